// SPDX-License-Identifier: Apache-2.0

#include "formats/rocprof_json.h"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "formats/json_kernels_test_support.h"

namespace gapless {
namespace {

constexpr std::string_view kRecords = R"("buffer_records": {
  "kernel_dispatch": [
    {"size": 1, "kind": 1, "operation": 0, "thread_id": 44,
     "correlation_id": {"internal": 31, "external": 0},
     "start_timestamp": 1736408883704643213, "end_timestamp": 1736408883704643313,
     "dispatch_info": {"size": 1, "agent_id": {"handle": 901}, "queue_id": {"handle": 3},
       "kernel_id": 12, "dispatch_id": 5, "grid_size": {"x": 1, "y": 1, "z": 1}},
     "stream_id": {"handle": 2}},
    {"kind": 1, "operation": 0, "correlation_id": {"internal": 32, "external": 0},
     "start_timestamp": "1736408883704643100", "end_timestamp": "1736408883704643200",
     "dispatch_info": {"agent_id": {"handle": 901}, "queue_id": {"handle": 139654329098240},
       "kernel_id": 13, "dispatch_id": 4}}],
  "hsa_api": [{"kind": 9}],
  "memory_copy": [
    {"kind": 2, "operation": 1, "correlation_id": {"internal": 33}, "bytes": 64,
     "start_timestamp": 1736408883704643000, "end_timestamp": 1736408883704643010,
     "src_agent_id": {"handle": 901}, "dst_agent_id": {"handle": 900}}],
  "hip_api": [
    {"kind": 3, "operation": 0, "thread_id": 44, "correlation_id": {"internal": 31},
     "start_timestamp": 1736408883704642001, "end_timestamp": 1736408883704642002},
    {"kind": 3, "operation": 1, "thread_id": 44, "correlation_id": {"internal": 32},
     "start_timestamp": 1736408883704642003, "end_timestamp": 1736408883704642005}]})";

constexpr std::string_view kTables = R"json("metadata": {"pid": 4321, "init_time": 5},
  "agents": [
    {"size": 1, "id": {"handle": 900}, "type": 1, "node_id": 0, "logical_node_type_id": 0},
    {"size": 1, "id": {"handle": 901}, "type": 2, "node_id": 4, "logical_node_type_id": 1}],
  "kernel_symbols": [
    {"kernel_id": 12, "kernel_name": "_Z3addv.kd", "formatted_kernel_name": "void add<4>(int)"},
    {"kernel_id": 13, "kernel_name": "ncclDevKernel_Generic(args)"}],
  "strings": {"buffer_records": [{"kind": "NONE", "operations": []},
    {"kind": "KERNEL_DISPATCH", "operations": ["KERNEL_DISPATCH_NONE"]},
    {"kind": "MEMORY_COPY", "operations": ["MEMORY_COPY_NONE", "MEMORY_COPY_DEVICE_TO_HOST"]},
    {"kind": "HIP_RUNTIME_API", "operations": ["hipLaunchKernel", "hipGraphLaunch"]}]})json";

std::string rocprof_text(std::string_view first = kTables, std::string_view second = kRecords) {
  return fmt::format(R"({{"rocprofiler-sdk-tool": [{{{}, {}}}]}})", first, second);
}

CaptureTable rocprof_table(std::string_view text, const CaptureReadOptions& options = {}) {
  Result<CaptureTable> table = read_rocprof_json(json_stream(text), options);
  EXPECT_TRUE(table.has_value()) << table.error().message;
  return table ? std::move(*table) : CaptureTable{};
}

void expect_the_rows(const CaptureTable& table) {
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table.kind[0], KernelKind::kCopy);
  EXPECT_EQ(text_of(table, table.name[0]), "MEMORY_COPY_DEVICE_TO_HOST");
  EXPECT_EQ(table.device[0], 1) << "where it comes from: the other end is the host";
  EXPECT_EQ(table.stream[0], CaptureTable::kNoStream);
  EXPECT_EQ(table.kind[1], KernelKind::kCollective);
  EXPECT_EQ(table.stream[1], 0) << "the first queue whose handle is an address";
  EXPECT_EQ(table.launch_ns[1], 1'736'408'883'704'642'003);
  EXPECT_EQ(table.start_ns[2], 1'736'408'883'704'643'213);
  EXPECT_EQ(table.duration_ns[2], 100);
  EXPECT_EQ(table.device[2], 1);
  EXPECT_EQ(table.stream[2], 2);
  EXPECT_EQ(table.task[2], 5u);
  EXPECT_EQ(text_of(table, table.name[2]), "void add<4>(int)");
  EXPECT_EQ(text_of(table, table.type[2]), "add");
  EXPECT_EQ(table.launch_ns[2], 1'736'408'883'704'642'001);
  EXPECT_EQ(count_of(table, "graph-launches"), 1u);
  expect_sound_timeline(table);
}

TEST(RocprofJson, ReadsDispatchesAndCopies) {
  const CaptureTable table = rocprof_table(rocprof_text());
  expect_the_rows(table);
  EXPECT_EQ(table.format, "rocprof-json");
  EXPECT_EQ(table.device_word, "GPU");
  EXPECT_EQ(property_of(table, "rocprof.0.pid"), "4321");
  EXPECT_EQ(table.sources[0].row_count, 3u);
}

TEST(RocprofJson, TakesTablesThatComeBehindTheRecords) {
  expect_the_rows(rocprof_table(rocprof_text(kRecords, kTables)));
}

TEST(RocprofJson, ReadsSeveralProcessesAndOneWithoutTheList) {
  const std::string two =
      fmt::format(R"({{"rocprofiler-sdk-tool": [{{{0}, {1}}}, {{{1}, {0}}}]}})", kTables, kRecords);
  EXPECT_EQ(rocprof_table(two).size(), 6u);
  const std::string alone =
      fmt::format(R"({{"rocprofiler-sdk-tool": {{{}, {}}}}})", kTables, kRecords);
  expect_the_rows(rocprof_table(alone));
}

TEST(RocprofJson, CountsAgentsWithoutOrdinalByTheirNodes) {
  const CaptureTable table = rocprof_table(R"({"rocprofiler-sdk-tool": [{"agents": [
      {"id": {"handle": 7}, "type": 2, "node_id": 9},
      {"id": {"handle": 8}, "type": 2, "node_id": 5}],
    "buffer_records": {"kernel_dispatch": [{"start_timestamp": 1, "end_timestamp": 2,
      "dispatch_info": {"agent_id": {"handle": 7}, "kernel_id": 1}}]}}]})");
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.device[0], 1);
  EXPECT_EQ(count_of(table, "no-symbol"), 1u);
  EXPECT_EQ(text_of(table, table.name[0]), "kernel 1");
}

TEST(RocprofJson, CountsRecordsThatCannotBeRows) {
  const CaptureTable table = rocprof_table(R"({"rocprofiler-sdk-tool": [{"buffer_records": {
    "kernel_dispatch": [
      {"start_timestamp": 5, "end_timestamp": 4}, {"start_timestamp": 5}, 7,
      {"start_timestamp": 0, "end_timestamp": 4},
      {"start_timestamp": 5, "end_timestamp": 9223372036854775807},
      {"start_timestamp": 5, "end_timestamp": 5}]}}]})",
                                           {.default_device = 4});
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.device[0], 4);
  EXPECT_EQ(count_of(table, "unknown-agent"), 1u);
  EXPECT_EQ(count_of(table, "duration-negative"), 1u);
  EXPECT_EQ(count_of(table, "no-start"), 2u);
  EXPECT_EQ(count_of(table, "start-not-positive"), 1u);
  EXPECT_EQ(count_of(table, "time-out-of-range"), 1u);
  EXPECT_EQ(table.dropped_count, 5u);
}

TEST(RocprofJson, KeepsCallsWhenAskedTo) {
  EXPECT_TRUE(rocprof_table(rocprof_text()).host.empty());
  const CaptureTable table = rocprof_table(rocprof_text(), {.keep_host = true});
  ASSERT_EQ(table.host.size(), 2u);
  EXPECT_EQ(text_of(table, table.host[0].name), "hipLaunchKernel");
  EXPECT_EQ(table.host[0].process, 4321);
  EXPECT_EQ(table.host[0].thread, 44);
  EXPECT_EQ(table.host[1].end_ns - table.host[1].begin_ns, 2);
}

TEST(RocprofJson, IsKnownByItsFirstBytes) {
  EXPECT_TRUE(looks_like_rocprof("{\"rocprofiler-sdk-tool\": ["));
  EXPECT_TRUE(looks_like_rocprof("\xef\xbb\xbf {\n\"rocprofiler-sdk-tool\""));
  EXPECT_FALSE(looks_like_rocprof("[\"rocprofiler-sdk-tool\"]"));
  EXPECT_FALSE(looks_like_rocprof("{\"traceEvents\": []}"));
  EXPECT_FALSE(looks_like_rocprof(""));
}

TEST(RocprofJson, SaysInOneSentenceWhyAFileIsNone) {
  const auto error = [](std::string_view text) {
    const Result<CaptureTable> table = read_rocprof_json(json_stream(text));
    return table ? "no error" : table.error().message;
  };
  EXPECT_EQ(error(""), "t.json: is empty");
  EXPECT_EQ(error("[]"), "t.json: not what rocprofv3 writes: begins with byte 0x5b");
  EXPECT_EQ(error("{\"a\": 1}"), "t.json: has no \"rocprofiler-sdk-tool\", which rocprofv3 writes");
  EXPECT_EQ(error("{\"a\""),
            "t.json: cut short at byte 4, before the \"rocprofiler-sdk-tool\", which rocprofv3 "
            "writes");
}

TEST(RocprofJson, ReadsAFileThatIsCutAnywhere) {
  const std::string text = rocprof_text();
  size_t before = 0;
  for (size_t bytes = 0; bytes < text.size(); ++bytes) {
    const Result<CaptureTable> table =
        read_rocprof_json(json_stream(std::string_view(text).substr(0, bytes)));
    if (!table) {
      ASSERT_EQ(before, 0u);
      continue;
    }
    expect_sound_timeline(*table);
    ASSERT_GE(table->size(), before);
    ASSERT_EQ(count_of(*table, "cut-short"), 1u) << bytes;
    before = table->size();
  }
  EXPECT_EQ(before, 3u);
}

}  // namespace
}  // namespace gapless
