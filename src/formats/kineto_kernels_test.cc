// SPDX-License-Identifier: Apache-2.0

#include "formats/kineto_kernels.h"

#include <string>

#include <gtest/gtest.h>

#include "formats/json_kernels_test_support.h"

namespace gapless {
namespace {

TEST(KinetoKernels, ReadsKernelsWithLaunchStepAndShapes) {
  const CaptureTable table = json_table(wrapped(kKinetoEvents));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table.format, "kineto-json");
  EXPECT_EQ(table.device_word, "GPU");
  EXPECT_EQ(table.start_ns[1], 1'600'001);
  EXPECT_EQ(table.duration_ns[1], 2'112);
  EXPECT_EQ(table.device[1], 0);
  EXPECT_EQ(table.stream[1], 7);
  EXPECT_EQ(table.kind[1], KernelKind::kCompute);
  EXPECT_EQ(table.launch_ns[1], 1'020'125);
  EXPECT_EQ(text_of(table, table.type[1]), "at::native::add_kernel");
  EXPECT_EQ(text_of(table, table.name[1]),
            "void at::native::add_kernel<4, std::array<char*, 3> >(int, float)");
  EXPECT_EQ(text_of(table, table.input_shapes[1]), "2,4096;4096;");
  EXPECT_EQ(text_of(table, table.step[1]), "3") << "by its launch: it starts behind the step";
  expect_sound_timeline(table);
}

TEST(KinetoKernels, ListsCopiesInOrderOfTimeAndWithoutLaunch) {
  const CaptureTable table = json_table(wrapped(kKinetoEvents));
  ASSERT_EQ(table.size(), 2u);
  EXPECT_EQ(table.kind[0], KernelKind::kCopy);
  EXPECT_EQ(text_of(table, table.type[0]), "Memcpy HtoD");
  EXPECT_EQ(table.launch_ns[0], kAbsent);
  EXPECT_EQ(text_of(table, table.step[0]), "(none)");
  EXPECT_EQ(count_of(table, "no-launch"), 1u);
  EXPECT_EQ(table.order_break_count, 1u);
}

TEST(KinetoKernels, KeepsTimesAsInTheFileAndSaysTheirBase) {
  const CaptureTable table = json_table(wrapped(kKinetoEvents));
  EXPECT_EQ(property_of(table, "baseTimeNanoseconds"), "1700000000000000001");
  EXPECT_EQ(property_of(table, "traceName"), "t.json");
}

TEST(KinetoKernels, GivesAllKernelsOfAGraphTheLaunchOfTheGraph) {
  std::string events = R"({"ph": "X", "cat": "cuda_runtime", "name": "cudaGraphLaunch", "ts": 5,
    "dur": 1, "pid": 1, "tid": 1, "args": {"correlation": 8}})";
  for (int kernel = 0; kernel < 4; ++kernel) {
    events += "," + kineto_kernel("gemm", 10 + kernel, 8);
  }
  events += "," + kineto_kernel("gemm", 30, 9);
  const CaptureTable table = json_table(bare_list(events));
  ASSERT_EQ(table.size(), 5u);
  for (size_t row = 0; row < 4; ++row) EXPECT_EQ(table.launch_ns[row], 5'000);
  EXPECT_EQ(table.launch_ns[4], kAbsent);
  EXPECT_EQ(count_of(table, "graph-launches"), 4u);
}

TEST(KinetoKernels, DropsEventsThatAreThereTwice) {
  const std::string event = kineto_kernel("gemm", 10, 8);
  const std::string other = kineto_kernel("gemm", 10, 9);
  const CaptureTable table = json_table(bare_list(event + "," + other + "," + event));
  EXPECT_EQ(table.size(), 2u) << "another launch is another kernel";
  EXPECT_EQ(count_of(table, "duplicate-rows"), 1u);
}

TEST(KinetoKernels, TakesTheEarlierOfRuntimeAndDriverCall) {
  const std::string events = R"(
    {"ph": "X", "cat": "cuda_driver", "name": "cuLaunchKernel", "ts": 6, "dur": 1,
     "args": {"correlation": 8}},
    {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 5, "dur": 3,
     "args": {"correlation": 8}},)" +
                             kineto_kernel("gemm", 10, 8);
  const CaptureTable table = json_table(bare_list(events));
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.launch_ns[0], 5'000);
}

TEST(KinetoKernels, KnowsCollectivesByTheirKernels) {
  const CaptureTable table = json_table(bare_list(
      kineto_kernel("ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgs)", 10, 1)));
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.kind[0], KernelKind::kCollective);
  EXPECT_EQ(table.stream[0], 7);
  EXPECT_EQ(text_of(table, table.type[0]), "ncclDevKernel_AllReduce_Sum_bf16_RING_LL");
}

TEST(KinetoKernels, ReadsCallsOfHipAndFilesOfOldVersions) {
  const CaptureTable table = json_table(bare_list(R"(
    {"ph": "X", "cat": "hip_runtime", "name": "hipLaunchKernel", "ts": 1, "dur": 1,
     "args": {"correlation": "4"}},
    {"ph": "X", "cat": "Kernel", "name": "Cijk_A", "pid": 1, "tid": "stream 12", "ts": "2",
     "dur": "3.5", "args": {"correlation": "4"}})"));
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(table.device[0], 1);
  EXPECT_EQ(table.stream[0], 12);
  EXPECT_EQ(table.duration_ns[0], 3'500);
  EXPECT_EQ(table.launch_ns[0], 1'000);
}

TEST(KinetoKernels, KeepsTheHostOnlyWhenAskedTo) {
  EXPECT_TRUE(json_table(wrapped(kKinetoEvents)).host.empty());
  const CaptureTable table = json_table(wrapped(kKinetoEvents), {.keep_host = true});
  ASSERT_EQ(table.host.size(), 2u);
  EXPECT_EQ(text_of(table, table.host[0].name), "ProfilerStep#3");
  EXPECT_EQ(text_of(table, table.host[0].category), "range");
  EXPECT_EQ(table.host[0].begin_ns, 1'000'000);
  EXPECT_EQ(table.host[0].end_ns, 1'500'500);
  EXPECT_EQ(text_of(table, table.host[1].category), "call");
  EXPECT_EQ(table.host[1].process, 90);
  EXPECT_EQ(table.host[1].thread, 91);
}

TEST(KinetoKernels, CountsEventsThatCannotBeRows) {
  const CaptureTable table = json_table(bare_list(R"(
    {"ph": "X", "cat": "kernel", "name": "a", "dur": 1},
    {"ph": "X", "cat": "kernel", "name": "b", "ts": "soon", "dur": 1},
    {"ph": "X", "cat": "kernel", "name": "c", "ts": 4, "dur": -1},
    {"ph": "X", "cat": "kernel", "name": "d", "ts": 4611686018427387, "dur": 4611686018427387},
    {"ph": "X", "cat": "kernel", "name": "e", "ts": 5})"));
  ASSERT_EQ(table.size(), 1u);
  EXPECT_EQ(count_of(table, "no-start"), 1u);
  EXPECT_EQ(count_of(table, "not-a-number"), 1u);
  EXPECT_EQ(count_of(table, "duration-negative"), 1u);
  EXPECT_EQ(count_of(table, "time-out-of-range"), 1u);
  EXPECT_EQ(count_of(table, "no-duration"), 1u);
  EXPECT_EQ(table.dropped_count, 4u);
  EXPECT_EQ(table.sources[0].row_count, 5u);
}

TEST(ShortKernelName, LeavesOutReturnTypeTemplateArgumentsAndParameters) {
  EXPECT_EQ(short_kernel_name("void f<1, g<int> >(int, float*)"), "f");
  EXPECT_EQ(short_kernel_name("void cutlass::Kernel2<a_b>(a_b::Params)"), "cutlass::Kernel2");
  EXPECT_EQ(short_kernel_name("triton_poi_fused_add_0"), "triton_poi_fused_add_0");
  EXPECT_EQ(short_kernel_name("void (anonymous namespace)::softmax<float>(float*)"), "softmax");
  EXPECT_EQ(short_kernel_name("std::enable_if<((4)>(3)), void>::type gemv<int>(int)"), "gemv");
  EXPECT_EQ(short_kernel_name("void a::b<c>::operator()<int>(int) const"), "a::b::operator()");
  EXPECT_EQ(short_kernel_name("void a::operator<< <int>(a&)"), "a::operator<<");
  EXPECT_EQ(short_kernel_name("f<((1)<(2))>(int)"), "f");
  EXPECT_EQ(short_kernel_name("f<g<h<int>>>(g<int>(*)(int), long)"), "f");
  EXPECT_EQ(short_kernel_name("Memset (Device)"), "Memset");
  EXPECT_EQ(short_kernel_name(""), "");
  EXPECT_EQ(short_kernel_name("(("), "((");
}

}  // namespace
}  // namespace gapless
