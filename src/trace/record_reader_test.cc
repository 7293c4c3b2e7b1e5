// SPDX-License-Identifier: Apache-2.0
//
// Files of raw records, built by hand, through read_trace_bytes.

#include "trace/record_reader.h"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trace/metadata_log.h"
#include "trace/raw_file_builder.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

constexpr uint64_t kStride = 1024;

// Two nanoseconds a tick, two lanes (0 "main", 5 "core"), names 0 "x" and 3 "y".
std::string sample_metadata() {
  ClockBody clock = {};
  clock.source = ClockSource::kTsc;
  clock.invariant = 1;
  clock.ticks_per_second = 500'000'000;
  LaneBody lane = {};
  LaneBody core = {};
  core.kind = LaneKind::kWorker;
  core.number = 12;
  core.device = 1;
  return encode_device(0, 4711, "program") + encode_device(1, 0, "cpu") + encode_clock(clock) +
         encode_anchor({0, 0}) + encode_anchor({1'000'000, 2'000'000}) +
         encode_lane(0, lane, "main") + encode_lane(5, core, "core") + encode_name(0, "x") +
         encode_name(3, "y");
}

std::string record(RecordKind kind, uint64_t ticks, uint16_t lane = 0, uint16_t name = kNoName,
                   uint32_t value = kNoValue) {
  return encode_record({kind, ticks, lane, name, value});
}

Trace read(const std::string& bytes) {
  Result<Trace> trace = read_trace_bytes(as_bytes(bytes), "test.trace");
  EXPECT_TRUE(trace.has_value()) << (trace ? "" : trace.error().message);
  return trace ? *std::move(trace) : Trace();
}

// A closed file of the records of one writer.
Trace read_records_of(const std::string& records) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({}, records);
  const uint64_t file_bytes = file.bytes().size() + kStride;
  file.add_chunk({.type = ChunkType::kMetadata},
                 encode_end({file_bytes, records.size() / sizeof(Record)}));
  return read(file.bytes());
}

const Finding* find_code(const Trace& trace, std::string_view code) {
  const auto found = std::find_if(trace.findings.begin(), trace.findings.end(),
                                  [&](const Finding& finding) { return finding.code == code; });
  return found == trace.findings.end() ? nullptr : &*found;
}

TEST(RecordReader, TakesLanesDevicesNamesAndClockFromTheMetadata) {
  const Trace trace = read_records_of("");
  EXPECT_EQ(trace.format, "gapless");
  ASSERT_EQ(trace.lanes.size(), 2u);
  EXPECT_EQ(trace.lanes[1].name, "core");
  EXPECT_EQ(trace.lanes[1].kind, LaneKind::kWorker);
  EXPECT_EQ(trace.lanes[1].number, 12);
  EXPECT_EQ(trace.lanes[1].device, 1u);
  ASSERT_EQ(trace.devices.size(), 2u);
  EXPECT_EQ(trace.devices[0].number, 4711);
  EXPECT_EQ(trace.names.size(), 2u);
  EXPECT_EQ(trace.clock.anchors.size(), 2u);
  EXPECT_EQ(trace.clock.source, ClockSource::kTsc);
  EXPECT_TRUE(trace.findings.empty());
}

TEST(RecordReader, SpansAndSwitches) {
  const Trace trace = read_records_of(
      record(RecordKind::kSpanBegin, 100, 0, 0, 7) + record(RecordKind::kSpanBegin, 110, 0, 3) +
      record(RecordKind::kSpanEnd, 120) + record(RecordKind::kSpanEnd, 130) +
      record(RecordKind::kSwitch, 200, 5, 0, 8) + record(RecordKind::kSwitch, 210, 5, 3) +
      record(RecordKind::kSwitch, 220, 5, kNoName));
  EXPECT_EQ(trace.spans.begin_ns, (std::vector<int64_t>{200, 220, 400, 420}));
  EXPECT_EQ(trace.spans.end_ns, (std::vector<int64_t>{260, 240, 420, 440}));
  EXPECT_EQ(trace.spans.lane, (std::vector<uint32_t>{0, 0, 1, 1}));
  EXPECT_EQ(trace.names[trace.spans.name[1]], "y");
  EXPECT_EQ(trace.spans.value, (std::vector<uint32_t>{7, kNoValue, 8, kNoValue}));
  EXPECT_EQ(trace.names.size(), 2u) << "ends and flows need no name";
  EXPECT_TRUE(trace.findings.empty());
}

TEST(RecordReader, InstantsCountersAndFlows) {
  const Trace trace = read_records_of(
      record(RecordKind::kInstant, 10, 0, 3, 5) +
      encode_counter({RecordKind::kCounter, 20, 5, 0}, -1.25) +
      record(RecordKind::kSpanBegin, 30, 0, 0) + record(RecordKind::kFlowOut, 31, 0, kNoName, 99) +
      record(RecordKind::kSpanEnd, 32) + record(RecordKind::kSpanBegin, 40, 5, 3) +
      record(RecordKind::kFlowIn, 41, 5, kNoName, 99) + record(RecordKind::kSpanEnd, 42, 5));
  ASSERT_EQ(trace.instants.size(), 1u);
  EXPECT_EQ(trace.instants.time_ns[0], 20);
  EXPECT_EQ(trace.instants.value[0], 5u);
  ASSERT_EQ(trace.counters.size(), 1u);
  EXPECT_EQ(trace.counters.time_ns[0], 40);
  EXPECT_EQ(trace.counters.lane[0], 1u);
  EXPECT_EQ(trace.counters.value[0], -1.25);
  ASSERT_EQ(trace.flows.size(), 2u);
  EXPECT_EQ(trace.flows.id, (std::vector<uint64_t>{99, 99}));
  EXPECT_EQ(trace.flows.phase, (std::vector<uint8_t>{0, 2}));
  EXPECT_EQ(trace.flows.span, (std::vector<uint32_t>{0, 1}));
  EXPECT_TRUE(trace.findings.empty());
}

TEST(RecordReader, TheSevenTimesOfATaskAndItsEdges) {
  std::string records;
  for (uint16_t time = 0; time < kTaskTimeCount; ++time) {
    records += record(static_cast<RecordKind>(16 + time), 100u + time, 5, time == 0 ? 3 : kNoName,
                      0xabcd0001);
  }
  records +=
      encode_edge(0xabcd0001, 2) + record(RecordKind::kTaskStart, 200, 5, 0, 2) + encode_edge(2, 3);
  const Trace trace = read_records_of(records);
  ASSERT_EQ(trace.tasks.size(), 2u);
  EXPECT_EQ(trace.tasks.id, (std::vector<uint64_t>{0xabcd0001, 2}));
  for (int time = 0; time < kTaskTimeCount; ++time) {
    EXPECT_EQ(trace.tasks.at(static_cast<TaskTime>(time))[0], 200 + 2 * time);
  }
  EXPECT_EQ(trace.tasks.lane, (std::vector<uint32_t>{1, 1}));
  EXPECT_EQ(trace.names[trace.tasks.kernel[0]], "y");
  EXPECT_EQ(trace.edges.producer, (std::vector<uint32_t>{0}));
  EXPECT_EQ(trace.edges.consumer, (std::vector<uint32_t>{1}));
  ASSERT_NE(find_code(trace, "edge-without-task"), nullptr);
  EXPECT_EQ(trace.findings.size(), 1u);
}

TEST(RecordReader, KindsOfLaterVersionsAreCounted) {
  const Trace trace = read_records_of(record(static_cast<RecordKind>(31), 10) +
                                      record(static_cast<RecordKind>(11), 11) +
                                      record(RecordKind::kInstant, 12, 0, 0));
  EXPECT_EQ(trace.instants.size(), 1u);
  ASSERT_NE(find_code(trace, "unknown-record"), nullptr);
  EXPECT_EQ(find_code(trace, "unknown-record")->count, 2u);
}

// What stands where ticks do in other records must not put the writers out of order, and what
// stands where lanes do must not make one.
TEST(RecordReader, KindsOfLaterVersionsNeedNotHaveATimeOrALane) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({.writer = 1}, record(static_cast<RecordKind>(11), 1'000'000, 77) +
                                    record(RecordKind::kInstant, 10, 0, 0, 1) +
                                    record(static_cast<RecordKind>(11), 1'000'000, 77) +
                                    record(RecordKind::kSpanBegin, 20, 0, 0) +
                                    record(RecordKind::kSpanEnd, 40, 0));
  file.add_chunk({.writer = 2},
                 record(RecordKind::kSpanBegin, 25, 0, 3) + record(RecordKind::kSpanEnd, 35, 0));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.lanes.size(), 2u);
  EXPECT_EQ(trace.spans.end_ns, (std::vector<int64_t>{80, 70}));
  EXPECT_EQ(find_code(trace, "unknown-record")->count, 2u);
  EXPECT_EQ(find_code(trace, "time-goes-back"), nullptr);
}

TEST(RecordReader, CostsOfTasks) {
  const Trace trace =
      read_records_of(encode_cost(2, 30, 40) + record(RecordKind::kTaskStart, 10, 5, 3, 1) +
                      record(RecordKind::kTaskStart, 20, 5, 3, 2) + encode_cost(1, 0, 7) +
                      record(RecordKind::kTaskStart, 30, 5, 3, 3) + encode_cost(9, 1, 1));
  EXPECT_EQ(trace.tasks.id, (std::vector<uint64_t>{1, 2, 3}));
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{0, 30, kAbsent}));
  EXPECT_EQ(trace.tasks.flops, (std::vector<int64_t>{7, 40, kAbsent}));
  EXPECT_EQ(find_code(trace, "cost-without-task")->count, 1u);
  EXPECT_EQ(trace.findings.size(), 1u) << "all records were read, none was strange";
  EXPECT_EQ(trace.lanes.size(), 2u) << "a cost is for no lane";
}

TEST(RecordReader, CostsAreLimitedToWhatARecordHolds) {
  const Trace trace = read_records_of(
      record(RecordKind::kTaskStart, 10, 5, 3, 1) + encode_cost(1, kMaxTaskCost, kMaxTaskCost) +
      record(RecordKind::kTaskStart, 20, 5, 3, 2) + encode_cost(2, kMaxTaskCost, ~uint64_t{0}));
  const int64_t largest = static_cast<int64_t>(kMaxTaskCost);
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{largest, largest}));
  EXPECT_EQ(trace.tasks.flops, (std::vector<int64_t>{largest, largest}));
}

// Bytes stand where ticks do in other records: they must not put the writers out of order.
TEST(RecordReader, CostsStayWithTheRecordBeforeThem) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({.writer = 1}, record(RecordKind::kSpanBegin, 10, 0, 0) +
                                    encode_cost(1, 1'000'000, 1) +
                                    record(RecordKind::kSpanEnd, 40, 0));
  file.add_chunk({.writer = 2}, record(RecordKind::kTaskStart, 15, 5, 3, 1) +
                                    record(RecordKind::kSpanBegin, 20, 0, 3) +
                                    encode_cost(2, 1, 1) + record(RecordKind::kSpanEnd, 30, 0));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.spans.end_ns, (std::vector<int64_t>{80, 60}));
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{1'000'000}));
  EXPECT_EQ(find_code(trace, "time-goes-back"), nullptr);
}

TEST(RecordReader, ACostMayHaveItsFlopsInTheNextChunk) {
  const std::string cost = encode_cost(1, 30, 40);
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({.writer = 1, .sequence = 0},
                 record(RecordKind::kTaskStart, 10, 5, 3, 1) + cost.substr(0, sizeof(Record)));
  file.add_chunk({.writer = 2, .sequence = 0}, record(RecordKind::kInstant, 10, 0, 0));
  file.add_chunk({.writer = 1, .sequence = 1}, cost.substr(sizeof(Record)));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.tasks.bytes, (std::vector<int64_t>{30}));
  EXPECT_EQ(trace.tasks.flops, (std::vector<int64_t>{40}));
}

TEST(RecordReader, CostsThatLostTheirFlopsAreCounted) {
  const std::string half = encode_cost(1, 30, 40).substr(0, sizeof(Record));
  const Trace trace = read_records_of(record(RecordKind::kTaskStart, 10, 5, 3, 1) + half + half +
                                      record(RecordKind::kTaskStart, 20, 5, 3, 2) + half);
  EXPECT_EQ(trace.tasks.size(), 2u);
  EXPECT_TRUE(trace.tasks.bytes.empty());
  EXPECT_EQ(find_code(trace, "cost-without-flops")->count, 3u);
  EXPECT_EQ(find_code(trace, "records-missing"), nullptr) << "all five records were read";
}

TEST(RecordReader, UndescribedLanesAndNamesGetPlaceholders) {
  const Trace trace = read_records_of(
      record(RecordKind::kInstant, 10, 77, 88) + record(RecordKind::kInstant, 11, 77, 88) +
      record(RecordKind::kInstant, 12, 0, kNoName) + record(RecordKind::kInstant, 13, kNoLane, 0) +
      encode_counter({RecordKind::kCounter, 14, kNoLane, 0}, 1.0) +
      record(RecordKind::kSpanBegin, 15, kNoLane, 0) + record(RecordKind::kSpanEnd, 16, kNoLane) +
      record(RecordKind::kTaskSubmit, 17, kNoLane, kNoName, 6));
  ASSERT_EQ(trace.instants.size(), 3u);
  EXPECT_EQ(trace.lanes[trace.instants.lane[0]].name, "lane 77");
  EXPECT_EQ(trace.lanes[trace.instants.lane[0]].kind, LaneKind::kOther);
  EXPECT_EQ(trace.names[trace.instants.name[0]], "name 88");
  EXPECT_EQ(trace.names[trace.instants.name[2]], "(no name)");
  EXPECT_EQ(find_code(trace, "unknown-lane")->count, 1u);
  EXPECT_EQ(find_code(trace, "unknown-name")->count, 1u);
  EXPECT_EQ(find_code(trace, "no-lane")->count, 4u);
  EXPECT_EQ(trace.counters.size(), 0u);
  ASSERT_EQ(trace.tasks.size(), 1u) << "a task need not have a core yet";
  EXPECT_EQ(trace.tasks.lane[0], kNoIndex);
  EXPECT_EQ(find_code(trace, "records-missing"), nullptr);
}

TEST(RecordReader, WritersAreMergedByTimeAndTheirChunksBySequence) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  // The chunks lie in the file in any order.
  file.add_chunk({.writer = 2, .sequence = 1}, record(RecordKind::kInstant, 50, 5, 3, 6) +
                                                   record(RecordKind::kInstant, 70, 5, 3, 8));
  file.add_chunk({.writer = 1, .sequence = 0}, record(RecordKind::kInstant, 10, 0, 0, 1) +
                                                   record(RecordKind::kInstant, 40, 0, 0, 5));
  file.add_chunk({.writer = 2, .sequence = 0}, record(RecordKind::kInstant, 20, 5, 3, 2) +
                                                   record(RecordKind::kInstant, 30, 5, 3, 4));
  file.add_chunk({.writer = 1, .sequence = 1}, record(RecordKind::kInstant, 60, 0, 0, 7));
  file.add_chunk({.writer = 3, .sequence = 0}, "");
  file.add_chunk({.writer = 4, .sequence = 0}, record(RecordKind::kInstant, 25, 0, 0, 3));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.instants.value, (std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8}));
}

// A lane written by two threads: their records are put in order before spans are paired.
TEST(RecordReader, TwoWritersOfOneLaneInterleave) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({.writer = 1},
                 record(RecordKind::kSpanBegin, 10, 5, 0) + record(RecordKind::kSpanEnd, 40, 5));
  file.add_chunk({.writer = 2},
                 record(RecordKind::kSpanBegin, 20, 5, 3) + record(RecordKind::kSpanEnd, 30, 5));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.spans.begin_ns, (std::vector<int64_t>{20, 40}));
  EXPECT_EQ(trace.spans.end_ns, (std::vector<int64_t>{80, 60}));
}

TEST(RecordReader, ACounterMayHaveItsValueInTheNextChunk) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({.writer = 1, .sequence = 0}, record(RecordKind::kCounter, 10, 0, 0));
  file.add_chunk({.writer = 2, .sequence = 0}, record(RecordKind::kInstant, 11, 0, 0));
  file.add_chunk({.writer = 1, .sequence = 1},
                 encode_payload(2.5) + encode_counter({RecordKind::kCounter, 20, 0, 0}, 3.5));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.counters.value, (std::vector<double>{2.5, 3.5}));
  EXPECT_EQ(trace.counters.time_ns, (std::vector<int64_t>{20, 40}));
}

TEST(RecordReader, PayloadsAndCountersThatLostEachOtherAreCounted) {
  const Trace trace = read_records_of(encode_payload(1.0) + record(RecordKind::kCounter, 10, 0, 0) +
                                      record(RecordKind::kInstant, 20, 0, 0) +
                                      record(RecordKind::kCounter, 30, 0, 0));
  EXPECT_EQ(trace.counters.size(), 0u);
  EXPECT_EQ(trace.instants.size(), 1u);
  EXPECT_EQ(find_code(trace, "payload-without-record")->count, 1u);
  EXPECT_EQ(find_code(trace, "counter-without-value")->count, 2u);
  EXPECT_EQ(find_code(trace, "records-missing"), nullptr) << "all four records were read";
}

TEST(RecordReader, AnOpenChunkIsReadUpToItsFirstEmptySlot) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata, .sealed = false}, sample_metadata());
  file.add_chunk({.writer = 1, .sequence = 0, .sealed = false},
                 record(RecordKind::kInstant, 10, 0, 0, 1) +
                     record(RecordKind::kInstant, 20, 0, 0, 2) + std::string(sizeof(Record), '\0') +
                     record(RecordKind::kInstant, 30, 0, 0, 3));
  file.add_gap(kStride);
  file.add_chunk({.writer = 1, .sequence = 1, .sealed = false},
                 record(RecordKind::kInstant, 40, 0, 0, 4));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.instants.value, (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_EQ(trace.lanes[0].name, "main");
  ASSERT_NE(find_code(trace, "not-closed"), nullptr);
  EXPECT_EQ(trace.findings.size(), 1u) << "a killed program is no damage";
}

TEST(RecordReader, WithoutMetadataTicksAreNanoseconds) {
  RawFileBuilder file(kStride);
  file.add_chunk({},
                 record(RecordKind::kSpanBegin, 100, 3, 4) + record(RecordKind::kSpanEnd, 150, 3));
  const Trace trace = read(file.bytes());
  ASSERT_EQ(trace.spans.size(), 1u);
  EXPECT_EQ(trace.spans.begin_ns[0], 100);
  EXPECT_EQ(trace.spans.end_ns[0], 150);
  EXPECT_EQ(trace.devices[0].name, "unknown process");
  EXPECT_NE(find_code(trace, "unknown-lane"), nullptr);
}

TEST(RecordReader, DropsAreCountedByLane) {
  std::vector<uint64_t> counters(4096);
  counters[5] = 3;
  counters[9] = 4;
  counters[4095] = 5;
  RawFileBuilder file(64 * 1024);
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({.type = ChunkType::kDrops},
                 std::string(reinterpret_cast<const char*>(counters.data()), 8 * counters.size()));
  const Trace trace = read(file.bytes());
  EXPECT_EQ(trace.lanes[1].dropped_count, 3u);
  EXPECT_EQ(trace.lanes[0].dropped_count, 0u);
  std::vector<std::string> texts;
  for (const Finding& finding : trace.findings) {
    if (finding.code == "dropped") texts.push_back(finding.text);
  }
  EXPECT_EQ(texts, (std::vector<std::string>{"lane core: 3 events were dropped",
                                             "lane number 9: 4 events were dropped",
                                             "lanes from number 4095 on: 5 events were dropped"}));
}

TEST(RecordReader, MissingRecordsAreSaid) {
  RawFileBuilder file(kStride);
  file.add_chunk({.type = ChunkType::kMetadata},
                 sample_metadata() + encode_end({2 * kStride + 64, 5}));
  file.add_chunk({}, record(RecordKind::kInstant, 10, 0, 0));
  const Trace trace = read(file.bytes());
  ASSERT_NE(find_code(trace, "records-missing"), nullptr);
  EXPECT_EQ(find_code(trace, "records-missing")->text, "1 records were read; 5 were written");
  EXPECT_EQ(find_code(trace, "cut-short"), nullptr);
}

TEST(RecordReader, SaysHowFarItIs) {
  std::string records;
  for (uint64_t i = 1; i <= 200'000; ++i) {
    records += encode_counter({RecordKind::kCounter, i, 0, 0}, 1.0);
  }
  RawFileBuilder file;
  file.add_chunk({.type = ChunkType::kMetadata}, sample_metadata());
  file.add_chunk({}, encode_payload(0.0) + records);  // an odd number of records
  uint64_t calls = 0;
  uint64_t latest = 0;
  const Progress progress = [&](uint64_t done, uint64_t total) {
    EXPECT_LE(done, total);
    latest = done;
    ++calls;
  };
  ASSERT_TRUE(read_trace_bytes(as_bytes(file.bytes()), "test.trace", progress).has_value());
  EXPECT_GE(calls, 6u);
  EXPECT_GT(latest, 300'000u);
}

}  // namespace
}  // namespace gapless
