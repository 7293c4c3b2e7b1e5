// SPDX-License-Identifier: Apache-2.0
//
// gapless-gpu: the GPU tests, the GPU benchmarks and the commands of gapless in one program, for a
// machine that has a driver and nothing else. docs/gpu_bundle.md tells how it is built and used.

#include <cstdio>
#include <string_view>

#include <gtest/gtest.h>

#include "cli/program.h"

// The benchmarks' main functions under these names: cmake/gapless_gpu_bundle.cmake.
int cuda_attention_bench_main(int argument_count, char** arguments);
int cuda_layer_bench_main(int argument_count, char** arguments);
int cuda_matmul_bench_main(int argument_count, char** arguments);

namespace {

constexpr int kExitUsage = 2;

constexpr const char* kUsage =
    "usage: gapless-gpu test [OPTIONS]         the GPU tests; options are GoogleTest's\n"
    "       gapless-gpu bench NAME [OPTIONS]   a GPU benchmark: attention, matmul or layer\n"
    "       gapless-gpu COMMAND ...            profile, generate, check and all else as gapless\n"
    "\n"
    "`gapless-gpu COMMAND --help` tells more of a command, `gapless-gpu --version` of the build.\n";

struct Benchmark {
  std::string_view name;
  int (*run)(int argument_count, char** arguments);
};

constexpr Benchmark kBenchmarks[] = {
    {"attention", cuda_attention_bench_main},
    {"matmul", cuda_matmul_bench_main},
    {"layer", cuda_layer_bench_main},
};

int run_tests(int argument_count, char** arguments) {
  testing::InitGoogleTest(&argument_count, arguments);
  if (argument_count > 1) {
    std::fprintf(stderr, "gapless-gpu test: error: unknown option %s\n", arguments[1]);
    return kExitUsage;
  }
  return RUN_ALL_TESTS();
}

// Without a name it is the command of gapless, which times steps.
bool names_benchmark(int argument_count, char** arguments) {
  return argument_count > 2 && std::string_view(arguments[1]) == "bench" && arguments[2][0] != '-';
}

int run_benchmark(int argument_count, char** arguments) {
  for (const Benchmark& benchmark : kBenchmarks) {
    if (benchmark.name == arguments[0]) return benchmark.run(argument_count, arguments);
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
  if (command == "test") return run_tests(argc - 1, argv + 1);
  if (names_benchmark(argc, argv)) return run_benchmark(argc - 2, argv + 2);
  return gapless::run_gapless(argc, argv);
}
