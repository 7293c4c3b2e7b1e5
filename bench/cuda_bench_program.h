// SPDX-License-Identifier: Apache-2.0
//
// The command line of the benchmarks on a GPU.

#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace gapless {

struct CudaBenchOptions {
  bool asks_for_help = false;
  bool is_quick = false;
  bool is_main_only = false;
  bool tunes = false;
  bool has_whole_model = false;
  std::string json_path;  // empty: rows are only printed
};

// An option of one benchmark; all have --json and --help.
struct CudaBenchFlag {
  std::string_view name;
  std::string_view help;
  bool CudaBenchOptions::*value = nullptr;
};

struct CudaBenchProgram {
  std::string_view about;  // lines
  std::vector<CudaBenchFlag> flags;
};

// `arguments` are those behind the program's name. A file that could not be written in the end is
// an error before anything is measured.
Result<CudaBenchOptions> parse_cuda_bench_options(const CudaBenchProgram& program,
                                                  const std::vector<std::string>& arguments);
std::string cuda_bench_help(const CudaBenchProgram& program, std::string_view name);

// The whole of main(): options in, errors as text and exit status. argv[0] names the program.
int run_cuda_bench(const CudaBenchProgram& program, int argc, char** argv,
                   const std::function<Result<void>(const CudaBenchOptions&)>& measure);

}  // namespace gapless
