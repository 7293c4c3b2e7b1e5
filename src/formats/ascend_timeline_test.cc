// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_timeline.h"

#include <string>

#include <gtest/gtest.h>

#include "formats/json_kernels_test_support.h"

namespace gapless {
namespace {

void expect_the_rows(const CaptureTable& table) {
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table.start_ns[0], 1'736'408'883'704'643'212);
  EXPECT_EQ(table.duration_ns[0], 53'741);
  EXPECT_EQ(table.device[0], 3);
  EXPECT_EQ(table.stream[0], 2);
  EXPECT_EQ(table.task[0], 11051u);
  EXPECT_EQ(text_of(table, table.type[0]), "Add");
  EXPECT_EQ(text_of(table, table.core[0]), "AI_CORE");
  EXPECT_EQ(table.kind[0], KernelKind::kCompute);
  EXPECT_EQ(table.kind[1], KernelKind::kCopy);
  EXPECT_EQ(table.stream[1], 2) << "of its thread's name";
  EXPECT_EQ(table.kind[2], KernelKind::kCollective);
  EXPECT_EQ(table.stream[2], CaptureTable::kNoStream);
  EXPECT_EQ(table.device[2], 3);
  EXPECT_EQ(text_of(table, table.type[2]), "hcom_allReduce_");
  expect_sound_timeline(table);
}

TEST(AscendTimeline, ReadsKernelsCopiesAndCollectives) {
  const CaptureTable table = json_table(ascend_text());
  expect_the_rows(table);
  EXPECT_EQ(table.format, "ascend-json");
  EXPECT_EQ(table.device_word, "NPU");
  EXPECT_TRUE(table.types_derived);
  EXPECT_EQ(table.derived_type_count, 2u);
}

TEST(AscendTimeline, WaitsForNamesThatComeBehindTheEvents) {
  const std::string text = fmt::format("[{},{}]", kAscendEvents, kAscendNames);
  const CaptureTable table = json_table(text);
  expect_the_rows(table);
  EXPECT_EQ(count_of(table, "collective-parts"), 2u);
  EXPECT_EQ(property_of(table, "ascend.overlap.computing_ns"), "53742");
}

TEST(AscendTimeline, CountsWhatIsNoKernelAndPartsOfCollectives) {
  const CaptureTable table = json_table(ascend_text());
  EXPECT_EQ(count_of(table, "not-a-kernel"), 1u);
  EXPECT_EQ(count_of(table, "collective-parts"), 2u);
  EXPECT_EQ(table.dropped_count, 3u);
  EXPECT_EQ(table.sources[0].row_count, 6u);
}

TEST(AscendTimeline, AddsUpTheOverlapLanes) {
  const CaptureTable table = json_table(ascend_text());
  EXPECT_EQ(property_of(table, "ascend.overlap.computing_ns"), "53742");
  EXPECT_EQ(property_of(table, "ascend.overlap.communication_not_overlapped_ns"), "12500");
}

TEST(AscendTimeline, TakesTheDriversArrowAsTheLaunch) {
  const CaptureTable table = json_table(ascend_text());
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table.launch_ns[0], 1'736'408'883'700'001'000);
  EXPECT_EQ(table.launch_ns[1], kAbsent);
  EXPECT_EQ(count_of(table, "unpaired-flows"), 0u);
}

TEST(AscendTimeline, TakesTheFrameworksArrowWhereTheDriverHasNone) {
  std::string text = ascend_text();
  for (size_t at = text.find("\"HostToDevice\""); at != std::string::npos;
       at = text.find("\"HostToDevice\"")) {
    text.replace(at, 14, "\"other\"");
  }
  const CaptureTable table = json_table(text);
  ASSERT_EQ(table.size(), 3u);
  EXPECT_EQ(table.launch_ns[0], 1'736'408'883'699'990'500);
}

TEST(AscendTimeline, CountsArrowsWithOneEnd) {
  const std::string text = fmt::format(R"([{},{},
    {{"ph": "s", "cat": "HostToDevice", "id": "77", "pid": 803, "tid": 55, "ts": "5"}},
    {{"ph": "f", "cat": "HostToDevice", "id": "78", "pid": 800, "tid": 2, "ts": "6"}},
    {{"ph": "f", "cat": "async_npu", "id": "77", "pid": 800, "tid": 2, "ts": "6"}}])",
                                       kAscendNames, kAscendEvents);
  EXPECT_EQ(count_of(json_table(text), "unpaired-flows"), 3u);
}

TEST(AscendTimeline, Row38KeepsIdsBeyondTwoToTheFiftyThreeApart) {
  // As doubles all of these ids would be one, and all of these times three.
  std::string text = "[" + std::string(kAscendNames);
  for (int i = 0; i < 8; ++i) {
    const std::string start = fmt::format("1736408883704643.{:03}", 200 + i);
    text += fmt::format(R"(,
      {{"ph": "s", "cat": "async_npu", "id": 17364088837046432{:02}, "pid": 70, "tid": 70,
       "ts": "1736408883699990.{:03}"}},
      {{"ph": "X", "name": "k{}", "pid": 800, "tid": 2, "ts": "{}", "dur": 0.001,
       "args": {{"Task Type": "AI_CORE"}}}},
      {{"ph": "f", "cat": "async_npu", "id": 17364088837046432{:02}, "pid": 800, "tid": 2,
       "ts": "{}"}})",
                        i, i, i, start, i, start);
  }
  const CaptureTable table = json_table(text + "]");
  ASSERT_EQ(table.size(), 8u);
  for (int64_t i = 0; i < 8; ++i) {
    const size_t row = static_cast<size_t>(i);
    EXPECT_EQ(table.start_ns[row], 1'736'408'883'704'643'200 + i);
    EXPECT_EQ(table.launch_ns[row], 1'736'408'883'699'990'000 + i);
  }
}

TEST(AscendTimeline, DropsAndCountsEventsThatStartAtZero) {
  const std::string text = fmt::format(R"([{}, {},
    {{"ph": "X", "name": "k", "pid": 800, "tid": 2, "ts": "0", "dur": 1,
     "args": {{"Task Type": "AI_CORE"}}}},
    {{"ph": "X", "name": "hcom_x", "pid": 801, "tid": 0, "ts": 0, "dur": 1}}])",
                                       kAscendNames, kAscendEvents);
  const CaptureTable table = json_table(text);
  EXPECT_EQ(table.size(), 3u);
  EXPECT_EQ(count_of(table, "start-not-positive"), 2u);
}

TEST(AscendTimeline, UnpacksTheDeviceFromTheNumberOfTheProcess) {
  // Process 3096504, place 13 in the view, device 5.
  constexpr int64_t kNumber = (int64_t{3096504} << 10) | (13 << 5) | 5;
  const auto text = [&](int64_t sort_index) {
    return fmt::format(R"([
      {{"ph": "M", "name": "process_name", "pid": {0}, "args": {{"name": "Ascend Hardware"}}}},
      {{"ph": "M", "name": "process_labels", "pid": {0}, "args": {{"labels": "NPU"}}}},
      {{"ph": "M", "name": "process_sort_index", "pid": {0}, "args": {{"sort_index": {1}}}}},
      {{"ph": "X", "name": "k", "pid": {0}, "tid": 1, "ts": "7", "dur": 1,
       "args": {{"Task Type": "MIX_AIC", "Stream Id": 8}}}}])",
                       kNumber, sort_index);
  };
  const CaptureTable packed = json_table(text(13));
  ASSERT_EQ(packed.size(), 1u);
  EXPECT_EQ(packed.device[0], 5);
  EXPECT_EQ(packed.stream[0], 8);
  const CaptureTable counted = json_table(text(2), {.default_device = 6});
  ASSERT_EQ(counted.size(), 1u);
  EXPECT_EQ(counted.device[0], 6);
}

TEST(AscendTimeline, KnowsTheKindsOfRows) {
  const auto row = [](std::string_view name, std::string_view type) {
    return fmt::format(R"(,{{"ph": "X", "name": "{}", "pid": 800, "tid": 2, "ts": "7", "dur": 1,
      "args": {{"Task Type": "{}", "Physic Stream Id": 2}}}})",
                       name, type);
  };
  const CaptureTable table = json_table(
      "[" + std::string(kAscendNames) + row("Cast", "KERNEL_AICPU") + row("Index", "AI_CPU") +
      row("xAivKernel", "AI_VECTOR_CORE") + row("allgatherAicpuKernel", "AI_CPU") +
      row("DSA", "DSA_SQE") + row("Notify Wait", "Notify Wait") + "]");
  ASSERT_EQ(table.size(), 5u);
  EXPECT_EQ(table.kind[0], KernelKind::kAiCpu);
  EXPECT_EQ(table.kind[1], KernelKind::kAiCpu);
  EXPECT_EQ(table.kind[2], KernelKind::kFragment);
  EXPECT_EQ(table.kind[3], KernelKind::kAiCpuCollective);
  EXPECT_EQ(table.kind[4], KernelKind::kCompute);
  EXPECT_EQ(count_of(table, "not-a-kernel"), 1u);
}

TEST(AscendTimeline, KeepsKernelsOfAProcessThatIsNeverNamed) {
  const CaptureTable table = json_table("[" + std::string(kAscendEvents) + "]");
  ASSERT_EQ(table.size(), 2u) << "the collective is nobody's";
  EXPECT_EQ(count_of(table, "process-not-named"), 8u);
  EXPECT_EQ(table.device[0], CaptureTable::kNoDevice);
}

TEST(AscendTimeline, CountsTasksOfProcessesThatAreNoDevice) {
  const CaptureTable table = json_table(R"([
    {"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "CANN"}},
    {"ph": "X", "name": "k", "pid": 1, "tid": 1, "ts": 7, "dur": 1,
     "args": {"Task Type": "AI_CORE"}}])",
                                        {.keep_host = true});
  EXPECT_EQ(table.size(), 0u);
  EXPECT_EQ(count_of(table, "other-process"), 1u);
  EXPECT_EQ(table.dropped_count, 1u);
}

TEST(AscendTimeline, KeepsCallsOfTheDriverWhenAskedTo) {
  for (const std::string& text :
       {ascend_text(), fmt::format("[{},{}]", kAscendEvents, kAscendNames)}) {
    EXPECT_TRUE(json_table(text).host.empty());
    const CaptureTable table = json_table(text, {.keep_host = true});
    ASSERT_EQ(table.host.size(), 1u);
    EXPECT_EQ(text_of(table, table.host[0].name), "AscendCL@aclnnAdd");
    EXPECT_EQ(text_of(table, table.host[0].category), "call");
    EXPECT_EQ(table.host[0].thread, 55);
    EXPECT_EQ(table.host[0].end_ns - table.host[0].begin_ns, 9'500);
  }
}

}  // namespace
}  // namespace gapless
