// SPDX-License-Identifier: Apache-2.0
//
// gapless-gpu: the GPU tests, the GPU benchmarks and the commands of gapless in one program, for a
// machine that has a driver and nothing else. docs/gpu_bundle.md tells how it is built and used.

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "base/file.h"
#include "base/result.h"
#include "cli/program.h"
#include "cuda/device.h"

// The benchmarks' main functions under these names: cmake/gapless_gpu_bundle.cmake.
int cuda_attention_bench_main(int argument_count, char** arguments);
int cuda_layer_bench_main(int argument_count, char** arguments);
int cuda_matmul_bench_main(int argument_count, char** arguments);

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

constexpr const char* kUsage =
    "usage: gapless-gpu test [OPTIONS]         the GPU tests; see gapless-gpu test --help\n"
    "       gapless-gpu bench NAME [OPTIONS]   a GPU benchmark: attention, matmul or layer\n"
    "       gapless-gpu COMMAND ...            profile, generate, check and all else as gapless\n"
    "\n"
    "`gapless-gpu COMMAND --help` tells more of a command, `gapless-gpu --version` of the build.\n";

constexpr const char* kTestUsage =
    "\n"
    "gapless-gpu test takes these options of GoogleTest, and\n"
    "  --allow-no-gpu\n"
    "      Without a usable GPU, skip the tests that need one. Otherwise the program says why\n"
    "      there is none and ends with status 1.\n"
    "\n"
    "GAPLESS_TEST_DATA=FOLDER in the environment says where tests/data of the repository is;\n"
    "else it is where it was at build time, or tests that read it are skipped.\n";

struct Benchmark {
  std::string_view name;
  int (*run)(int argument_count, char** arguments);
};

constexpr Benchmark kBenchmarks[] = {
    {"attention", cuda_attention_bench_main},
    {"matmul", cuda_matmul_bench_main},
    {"layer", cuda_layer_bench_main},
};

// What was asked for and is not there is an error: without a GPU, or without data at the place that
// somebody named, all tests that matter would be skipped and nothing would fail.
gapless::Result<void> check_surroundings(bool needs_gpu) {
  using gapless::ErrorCode, gapless::fail;
  const char* const data = std::getenv("GAPLESS_TEST_DATA");  // NOLINT(concurrency-mt-unsafe)
  if (data != nullptr && !gapless::is_directory(std::string(data) + "/qwen3"))
    return fail(ErrorCode::kInvalidInput, "GAPLESS_TEST_DATA={}: has no folder qwen3", data);
  if (!needs_gpu) return {};
  const gapless::Result<gapless::CudaLimits> limits = gapless::cuda_limits();
  if (!limits)
    return fail(ErrorCode::kSystem,
                "no usable GPU: {}; --allow-no-gpu runs the tests that need none",
                limits.error().message);
  return {};
}

// A death test starts this program again with the options of `test`, but without that word.
bool is_death_test(int argument_count, char** arguments) {
  for (int i = 1; i < argument_count; ++i) {
    if (std::string_view(arguments[i]).starts_with("--gtest_internal_run_death_test")) return true;
  }
  return false;
}

int run_tests(int argument_count, char** arguments) {
  testing::InitGoogleTest(&argument_count, arguments);  // prints its help, but leaves the option
  bool needs_gpu = true;
  for (int i = 1; i < argument_count; ++i) {
    const std::string_view option = arguments[i];
    if (option == "-h" || option == "--help") {
      std::fputs(kTestUsage, stdout);
      return 0;
    }
    if (option != "--allow-no-gpu") {
      std::fprintf(stderr, "gapless-gpu test: error: unknown option %s\n", arguments[i]);
      return kExitUsage;
    }
    needs_gpu = false;
  }
  if (GTEST_FLAG_GET(list_tests)) return RUN_ALL_TESTS();
  const gapless::Result<void> surroundings = check_surroundings(needs_gpu);
  if (!surroundings) {
    std::fprintf(stderr, "gapless-gpu test: error: %s\n", surroundings.error().message.c_str());
    return kExitFailure;
  }
  return RUN_ALL_TESTS();
}

// With an option instead of a name it is the command of gapless, which times steps on cores.
bool names_benchmark(int argument_count, char** arguments) {
  if (argument_count < 2 || std::string_view(arguments[1]) != "bench") return false;
  return argument_count == 2 || arguments[2][0] != '-';
}

int run_benchmark(int argument_count, char** arguments) {
  if (argument_count == 0) {
    std::fputs(
        "gapless-gpu bench: error: which benchmark? There are attention, matmul and layer; with "
        "options only, like --batch 1, it times steps on cores, as gapless bench does\n",
        stderr);
    return kExitUsage;
  }
  for (const Benchmark& benchmark : kBenchmarks) {
    if (benchmark.name != arguments[0]) continue;
    std::string name = "gapless-gpu bench " + std::string(benchmark.name);
    arguments[0] = name.data();
    return benchmark.run(argument_count, arguments);
  }
  std::fprintf(stderr,
               "gapless-gpu bench: error: no benchmark %s; there are attention, matmul and layer\n",
               arguments[0]);
  return kExitUsage;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string_view command = argc > 1 ? argv[1] : "";
  if (command.empty()) {
    std::fputs(kUsage, stderr);
    return kExitUsage;
  }
  if (command == "-h" || command == "--help") {
    std::fputs(kUsage, stdout);
    return 0;
  }
  if (command == "test") {
    static char self[] = "/proc/self/exe";  // what a death test starts
    argv[1] = self;
    return run_tests(argc - 1, argv + 1);
  }
  if (is_death_test(argc, argv)) return run_tests(argc, argv);
  if (names_benchmark(argc, argv)) return run_benchmark(argc - 2, argv + 2);
  return gapless::run_gapless(argc, argv);
}
