// SPDX-License-Identifier: Apache-2.0
//
// Column chunks, built by hand, through read_trace_bytes: what fits together and what does not.

#include <algorithm>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trace/metadata_log.h"
#include "trace/raw_file_builder.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

template <typename T>
std::string column(uint16_t table, uint16_t number, const std::vector<T>& values,
                   uint64_t first_row = 0) {
  ColumnBlock block = {};
  block.table = table;
  block.column = number;
  block.element_bytes = sizeof(T);
  block.first_row = first_row;
  block.row_count = values.size();
  std::string payload(reinterpret_cast<const char*>(&block), sizeof(block));
  payload.append(reinterpret_cast<const char*>(values.data()), sizeof(T) * values.size());
  return payload;
}

// A file under construction with one device, one lane and two names.
class ColumnFile {
 public:
  ColumnFile() {
    file_.add_chunk({.type = ChunkType::kMetadata}, encode_device(0, 1, "d") +
                                                        encode_lane(0, LaneBody{}, "lane") +
                                                        encode_name(0, "x") + encode_name(1, "y"));
  }
  ColumnFile& add(const std::string& payload) {
    file_.add_chunk({.type = ChunkType::kColumns}, payload);
    return *this;
  }
  ColumnFile& add_spans(const std::vector<int64_t>& begin_ns, const std::vector<int64_t>& end_ns) {
    const std::vector<uint32_t> zeros(begin_ns.size());
    return add(column(1, 1, begin_ns))
        .add(column(1, 2, end_ns))
        .add(column(1, 3, zeros))
        .add(column(1, 4, zeros))
        .add(column(1, 5, zeros));
  }
  ColumnFile& add_tasks(const std::vector<int64_t>& times) {
    add(column(2, 1, std::vector<uint64_t>(times.size())));
    add(column(2, 2, std::vector<uint32_t>(times.size(), kNoIndex)));
    add(column(2, 3, std::vector<uint32_t>(times.size(), kNoIndex)));
    for (uint16_t time = 0; time < kTaskTimeCount; ++time) {
      add(column(2, static_cast<uint16_t>(4 + time), times));
    }
    return *this;
  }
  RawFileBuilder& file() { return file_; }

  Result<Trace> read() const { return read_trace_bytes(as_bytes(file_.bytes()), "test.trace"); }
  std::string error() const {
    const Result<Trace> trace = read();
    return trace ? "no error" : trace.error().message;
  }

 private:
  RawFileBuilder file_;
};

const Finding* find_code(const Trace& trace, std::string_view code) {
  const auto found = std::find_if(trace.findings.begin(), trace.findings.end(),
                                  [&](const Finding& finding) { return finding.code == code; });
  return found == trace.findings.end() ? nullptr : &*found;
}

TEST(Columns, BlocksAreJoinedByTheirFirstRow) {
  ColumnFile file;
  file.add(column<int64_t>(1, 1, {30, 40}, 2)).add(column<int64_t>(1, 1, {10, 20}, 0));
  file.add(column<int64_t>(1, 2, {11, 21, 31, 41}));
  for (uint16_t number = 3; number <= 5; ++number) {
    file.add(column<uint32_t>(1, number, {0, 0, 0, 0}));
  }
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.begin_ns, (std::vector<int64_t>{10, 20, 30, 40}));
}

TEST(Columns, ATableHasTheRowsOfItsShortestColumn) {
  ColumnFile file;
  file.add_spans({10, 20, 30}, {11, 21});
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.size(), 2u);
  EXPECT_EQ(trace->spans.lane.size(), 2u);
  ASSERT_NE(find_code(*trace, "cut-short"), nullptr);
  EXPECT_EQ(find_code(*trace, "cut-short")->text,
            "table 1 has 2 of 3 rows: columns are missing or cut short");
}

TEST(Columns, RowsBehindAGapAreLeftOut) {
  ColumnFile file;
  file.add_spans({10, 20}, {11, 21}).add(column<int64_t>(1, 1, {40}, 3));
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.begin_ns, (std::vector<int64_t>{10, 20}));
}

TEST(Columns, ColumnsAndTablesOfLaterVersionsArePassedOver) {
  ColumnFile file;
  file.add_spans({10}, {11}).add(column<uint8_t>(1, 99, {1})).add(column<uint8_t>(60000, 1, {1}));
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.size(), 1u);
}

TEST(Columns, BlocksThatLieAboutTheirSizeAreLeftOut) {
  const auto lie = [](uint32_t element_bytes, uint64_t row_count) {
    std::string payload = column<int64_t>(1, 1, {10, 20});
    std::memcpy(payload.data() + offsetof(ColumnBlock, element_bytes), &element_bytes, 4);
    std::memcpy(payload.data() + offsetof(ColumnBlock, row_count), &row_count, 8);
    return payload;
  };
  for (const std::string& payload :
       {lie(8, 3), lie(8, uint64_t{1} << 60), lie(8, uint64_t{1} << 61 | 2), lie(0, 2), lie(0, 0),
        lie(3, 5), lie(0xffffffff, 0), std::string("short"), std::string()}) {
    ColumnFile file;
    file.add(payload);
    const Result<Trace> trace = file.read();
    ASSERT_TRUE(trace.has_value());
    EXPECT_EQ(trace->spans.size(), 0u);
    EXPECT_NE(find_code(*trace, "damaged-chunk"), nullptr);
  }
  ColumnFile other_width;
  other_width.add_spans({10}, {11}).add(column<uint16_t>(1, 5, {1, 2}, 1));
  const Result<Trace> trace = other_width.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.size(), 1u);
}

TEST(Columns, AChunkThatWasNeverSealedIsSaid) {
  ColumnFile file;
  file.add_spans({10}, {11});
  file.file().add_chunk({.type = ChunkType::kColumns, .sealed = false},
                        column<uint32_t>(1, 6, {0}));
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_TRUE(trace->spans.category.empty());
  EXPECT_NE(find_code(*trace, "damaged-chunk"), nullptr) << "an optional column must not just go";
}

TEST(Columns, NumbersThatPointNowhereAreErrors) {
  ColumnFile lane;
  lane.add(column<int64_t>(1, 1, {10})).add(column<int64_t>(1, 2, {11}));
  lane.add(column<uint32_t>(1, 3, {1})).add(column<uint32_t>(1, 4, {0}));
  lane.add(column<uint32_t>(1, 5, {0}));
  EXPECT_EQ(lane.error(), "test.trace: row 0 of spans.lane is 1; there are 1");

  ColumnFile name;
  name.add(column<int64_t>(4, 1, {10})).add(column<uint32_t>(4, 2, {0}));
  name.add(column<uint32_t>(4, 3, {kNoIndex})).add(column<double>(4, 4, {1.0}));
  EXPECT_EQ(name.error(), "test.trace: row 0 of counters.name is 4294967295; there are 2");

  ColumnFile category;
  category.add_spans({10, 20}, {11, 21}).add(column<uint32_t>(1, 6, {kNoIndex, 2}));
  EXPECT_EQ(category.error(), "test.trace: row 1 of spans.category is 2; there are 2");

  ColumnFile instant;
  instant.add(column<int64_t>(5, 1, {10})).add(column<uint32_t>(5, 2, {7}));
  instant.add(column<uint32_t>(5, 3, {0})).add(column<uint32_t>(5, 4, {0}));
  EXPECT_EQ(instant.error(), "test.trace: row 0 of instants.lane is 7; there are 1");
}

TEST(Columns, EdgesAndFlowsToRowsThatAreGoneAreSaid) {
  ColumnFile file;
  file.add_spans({10}, {20}).add_tasks({1, 2});
  file.add(column<uint32_t>(3, 1, {0, 0, 5})).add(column<uint32_t>(3, 2, {1, 2, 1}));
  file.add(column<uint8_t>(3, 3, {0, 1, 200}));
  file.add(column<int64_t>(6, 1, {12, 13})).add(column<uint32_t>(6, 2, {0, 0}));
  file.add(column<uint64_t>(6, 3, {1, 1})).add(column<uint8_t>(6, 4, {0, 99}));
  file.add(column<uint32_t>(6, 5, {0, 4}));
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->edges.producer, (std::vector<uint32_t>{0}));
  EXPECT_EQ(trace->edges.consumer, (std::vector<uint32_t>{1}));
  EXPECT_EQ(trace->edges.kind.size(), 1u);
  EXPECT_EQ(find_code(*trace, "edge-without-task")->count, 2u);
  EXPECT_EQ(trace->flows.span, (std::vector<uint32_t>{0, kNoIndex}));
  EXPECT_EQ(find_code(*trace, "flow-without-span")->count, 1u);
  EXPECT_EQ(trace->flows.phase[1], static_cast<uint8_t>(FlowPhase::kIn));
}

TEST(Columns, TimesThatMakeNoSenseAreErrors) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  ColumnFile backwards;
  backwards.add_spans({10, 20}, {11, 19});
  EXPECT_EQ(backwards.error(), "test.trace: span 1 ends at 19 ns, before it begins at 20 ns");
  ColumnFile absent;
  absent.add_spans({kAbsent}, {5});
  EXPECT_EQ(absent.error(),
            "test.trace: row 0 of spans.begin_ns is -9223372036854775808 ns; times "
            "lie within 4611686018427387904 ns");
  ColumnFile endless;
  endless.add_spans({0}, {kMax});
  EXPECT_NE(endless.error(), "no error");
  ColumnFile task;
  task.add_tasks({kAbsent, 5});
  EXPECT_TRUE(task.read().has_value()) << "a task need not have all its times";
  ColumnFile far_task;
  far_task.add_tasks({kMax});
  EXPECT_NE(far_task.error(), "no error");
}

TEST(Columns, RowsOutOfOrderAreSortedAndSaid) {
  ColumnFile file;
  file.add_spans({30, 10, 10, 20}, {31, 11, 15, 21});
  file.add(column<int64_t>(6, 1, {30})).add(column<uint32_t>(6, 2, {0}));
  file.add(column<uint64_t>(6, 3, {1})).add(column<uint8_t>(6, 4, {0}));
  file.add(column<uint32_t>(6, 5, {0}));
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->spans.begin_ns, (std::vector<int64_t>{10, 10, 20, 30}));
  EXPECT_EQ(trace->spans.end_ns, (std::vector<int64_t>{15, 11, 21, 31}));
  EXPECT_EQ(trace->flows.span, (std::vector<uint32_t>{3}));
  EXPECT_NE(find_code(*trace, "rows-out-of-order"), nullptr);
}

TEST(Columns, NamesAndLanesMustBeNumberedWithoutGaps) {
  const auto error = [](const std::string& metadata) {
    RawFileBuilder file;
    file.add_chunk({.type = ChunkType::kMetadata}, metadata);
    file.add_chunk({.type = ChunkType::kColumns}, column<int64_t>(1, 1, {}));
    const Result<Trace> trace = read_trace_bytes(as_bytes(file.bytes()), "test.trace");
    return trace ? "no error" : trace.error().message;
  };
  EXPECT_EQ(error(encode_name(0, "a") + encode_name(2, "b")),
            "test.trace: name 2 is out of order or given twice");
  EXPECT_EQ(error(encode_name(0, "a") + encode_name(1, "a")),
            "test.trace: name 1 is out of order or given twice");
  EXPECT_EQ(error(encode_device(0, 0, "d") + encode_lane(1, LaneBody{}, "core")),
            "test.trace: lane 1 (core) does not fit 0 lanes and 1 devices");
  EXPECT_EQ(error(encode_lane(0, LaneBody{}, "core")),
            "test.trace: lane 0 (core) does not fit 0 lanes and 0 devices");
  EXPECT_EQ(error(""), "no error");
}

TEST(Columns, CostsOfTasksAreOptionalEachForItself) {
  ColumnFile file;
  file.add_tasks({10, 20}).add(column<int64_t>(2, 11, {kAbsent, 7}));
  const Result<Trace> trace = file.read();
  ASSERT_TRUE(trace.has_value());
  EXPECT_EQ(trace->tasks.bytes, (std::vector<int64_t>{kAbsent, 7}));
  EXPECT_TRUE(trace->tasks.flops.empty());
  EXPECT_EQ(find_code(*trace, "cut-short"), nullptr);
}

TEST(Columns, CostsOutOfRangeAreAnError) {
  ColumnFile negative;
  negative.add_tasks({10, 20}).add(column<int64_t>(2, 11, {0, -1}));
  EXPECT_EQ(negative.error(),
            "test.trace: row 1 of tasks.bytes is -1; costs lie between 0 and 576460752303423487");
  const int64_t largest = static_cast<int64_t>(kMaxTaskCost);
  ColumnFile large;
  large.add_tasks({10, 20}).add(column<int64_t>(2, 12, {largest, largest + 1}));
  EXPECT_EQ(large.error(),
            "test.trace: row 1 of tasks.flops is 576460752303423488; costs lie between 0 and "
            "576460752303423487");
  ColumnFile within;
  within.add_tasks({10}).add(column<int64_t>(2, 11, {0})).add(column<int64_t>(2, 12, {largest}));
  EXPECT_EQ(within.error(), "no error");
}

}  // namespace
}  // namespace gapless
