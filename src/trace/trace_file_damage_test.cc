// SPDX-License-Identifier: Apache-2.0
//
// Trace files that were cut or changed anywhere. The promise: a clear error, or a trace that is
// equal to the original, or one with a finding that says what happened. Never a crash, never
// silence.

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "trace/metadata_log.h"
#include "trace/raw_file_builder.h"
#include "trace/synthetic.h"
#include "trace/trace_difference.h"
#include "trace/trace_file.h"
#include "trace/trace_file_writer.h"

namespace gapless {
namespace {

struct Sample {
  std::string name;
  std::string bytes;
};

std::string column_file(bool compress) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("sample");
  Trace trace = make_synthetic_trace({.lane_count = 2,
                                      .spans_per_lane = 6,
                                      .nesting_depth = 2,
                                      .name_count = 3,
                                      .values = true,
                                      .categories = true,
                                      .args = true,
                                      .flow_count = 2,
                                      .counter_count = 3,
                                      .instant_count = 3,
                                      .task_lane_count = 1,
                                      .task_count = 4,
                                      .edges_per_task = 1});
  trace.tasks.bytes = {1, 2, 3, 4};
  trace.tasks.flops = {5, kAbsent, 7, kAbsent};
  trace.clock.anchors = {{1, 2}, {3, 4}};
  trace.findings = {{Severity::kWarning, "code", "a sentence", 0, 1}};
  EXPECT_TRUE(write_trace_file(trace, path, {.compress = compress, .progress = {}}).has_value());
  return *read_text_file(path);
}

std::string records_of(uint16_t lane, uint64_t first_tick) {
  std::string records;
  for (uint64_t i = 0; i < 5; ++i) {
    const uint64_t ticks = first_tick + 10 * i;
    records += encode_record({RecordKind::kSpanBegin, ticks, lane, 0, 1});
    records += encode_counter({RecordKind::kCounter, ticks + 1, lane, 1}, 0.5);
    records +=
        encode_record({RecordKind::kTaskStart, ticks + 2, lane, 1, static_cast<uint32_t>(i)});
    records += encode_cost(static_cast<uint32_t>(i), 100 + i, 200 + i);
    records += encode_record({RecordKind::kSpanEnd, ticks + 3, lane});
  }
  return records;
}

// As a recorder leaves it after close(): every chunk sealed.
std::string record_file(uint64_t stride) {
  ClockBody clock = {};
  clock.invariant = 1;
  clock.ticks_per_second = 1'000'000'000;
  RawFileBuilder file(stride, 128);
  std::string metadata = encode_device(0, 1, "p") + encode_clock(clock) + encode_anchor({0, 100}) +
                         encode_anchor({1000, 1100}) + encode_lane(0, LaneBody{}, "a") +
                         encode_lane(1, LaneBody{}, "b") + encode_name(0, "x") +
                         encode_name(1, "y");
  std::string drops(64, '\0');
  drops[8] = 2;
  const std::string first = records_of(0, 10);
  const std::string second = records_of(1, 14);
  const size_t record_count = 2 * (first.size() + second.size()) / sizeof(Record);
  file.add_chunk({.type = ChunkType::kDrops}, drops);
  file.add_chunk({.writer = 1, .sequence = 0}, first);
  file.add_chunk({.writer = 2, .sequence = 0}, second);
  file.add_chunk({.writer = 1, .sequence = 1}, records_of(0, 100));
  file.add_chunk({.writer = 2, .sequence = 1}, records_of(1, 104));
  const size_t padded = (metadata.size() + encode_end({}).size() + 7) / 8 * 8;
  const size_t last = stride == 0 ? sizeof(ChunkHeader) + padded : stride;
  metadata += encode_end({file.bytes().size() + last, record_count});
  file.add_chunk({.type = ChunkType::kMetadata}, metadata);
  return file.bytes();
}

const std::vector<Sample>& samples() {
  static const std::vector<Sample> all = {
      {"Columns", column_file(false)},
      {"CompressedColumns", column_file(true)},
      {"PackedRecords", record_file(0)},
      {"StridedRecords", record_file(1024)},
  };
  return all;
}

Result<Trace> read(std::string_view bytes) { return read_trace_bytes(as_bytes(bytes), "damaged"); }

size_t row_count(const Trace& trace) {
  return trace.spans.size() + trace.tasks.size() + trace.edges.size() + trace.counters.size() +
         trace.instants.size() + trace.flows.size();
}

class DamagedTraceFile : public testing::TestWithParam<size_t> {
 protected:
  const Sample& sample() const { return samples()[GetParam()]; }
};

TEST_P(DamagedTraceFile, TheSampleItselfIsWhole) {
  const Result<Trace> trace = read(sample().bytes);
  ASSERT_TRUE(trace.has_value()) << trace.error().message;
  EXPECT_GT(row_count(*trace), 20u);
  for (const Finding& finding : trace->findings) {
    EXPECT_TRUE(finding.code == "code" || finding.code == "dropped") << finding.text;
  }
  EXPECT_LT(sample().bytes.size(), 10'000u) << "small enough to damage every byte";
}

TEST_P(DamagedTraceFile, CutAtEveryByteItKeepsWhatIsWhole) {
  const Result<Trace> original = read(sample().bytes);
  ASSERT_TRUE(original.has_value());
  size_t most_rows = 0;
  for (size_t cut = 0; cut < sample().bytes.size(); ++cut) {
    const Result<Trace> trace = read(std::string_view(sample().bytes).substr(0, cut));
    if (!trace) {
      EXPECT_LT(cut, sizeof(FileHeader)) << trace.error().message;
      continue;
    }
    EXPECT_TRUE(has_more_findings(*trace, *original)) << "cut at " << cut << " silently";
    EXPECT_GE(row_count(*trace), most_rows)
        << "cut at " << cut << " keeps less than a shorter file";
    most_rows = row_count(*trace);
  }
  EXPECT_GT(most_rows, 0u);
}

// Goal: no changed byte is believed. Method: each byte, changed in four ways; what comes out is an
// error, the original, or a trace that says more than the original did.
TEST_P(DamagedTraceFile, NoChangedByteGoesUnnoticed) {
  const Result<Trace> original = read(sample().bytes);
  ASSERT_TRUE(original.has_value());
  std::string bytes = sample().bytes;
  size_t noticed = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int pattern : {0x01, 0x80, 0xff, 0x24}) {
      bytes[at] = static_cast<char>(sample().bytes[at] ^ pattern);
      const Result<Trace> trace = read(bytes);
      if (!trace || has_more_findings(*trace, *original)) {
        ++noticed;
      } else {
        const std::string difference = first_difference(*original, *trace);
        ASSERT_EQ(difference, "") << "byte " << at << " ^ " << pattern << " changed it silently";
      }
    }
    bytes[at] = sample().bytes[at];
  }
  EXPECT_GT(noticed, bytes.size()) << "most of the file matters";
}

// Goal: structures that lie, with right checksums. Method: each byte changed, then all checksums
// made right again, so that every check behind the checksums is reached.
TEST_P(DamagedTraceFile, LiesWithRightChecksumsDoNotCrash) {
  std::string bytes = sample().bytes;
  size_t read_count = 0;
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int pattern : {0x01, 0x80, 0xff}) {
      bytes[at] = static_cast<char>(bytes[at] ^ pattern);
      repair_checksums(bytes);
      const Result<Trace> trace = read(bytes);
      if (trace) ++read_count;
      bytes = sample().bytes;
    }
  }
  EXPECT_GT(read_count, bytes.size());
}

// A killed program leaves open chunks, which have no checksum: no promise but to read on.
TEST(OpenTraceFile, ChangedBytesDoNotCrash) {
  RawFileBuilder file(1024, 128);
  file.add_chunk({.type = ChunkType::kMetadata, .sealed = false},
                 encode_device(0, 1, "p") + encode_lane(0, LaneBody{}, "a") + encode_name(0, "x"));
  file.add_chunk({.writer = 1, .sealed = false}, records_of(0, 10));
  std::string bytes = file.bytes();
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (const int pattern : {0x01, 0x80, 0xff}) {
      bytes[at] = static_cast<char>(file.bytes()[at] ^ pattern);
      const Result<Trace> trace = read(bytes);
      EXPECT_TRUE(!trace || !trace->findings.empty()) << "byte " << at;
    }
    bytes[at] = file.bytes()[at];
  }
}

INSTANTIATE_TEST_SUITE_P(Samples, DamagedTraceFile, testing::Range<size_t>(0, 4),
                         [](const testing::TestParamInfo<size_t>& sample) {
                           return samples()[sample.param].name;
                         });

}  // namespace
}  // namespace gapless
