// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_bench_program.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <utility>

#include <fmt/core.h>

#include "base/file.h"

namespace gapless {
namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

constexpr std::string_view kJson = "--json FILE";
constexpr std::string_view kHelp = "-h, --help";

std::string_view name_in(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? path : path.substr(slash + 1);
}

Result<void> check_json_path(const std::string& path) {
  if (path.empty()) return fail(ErrorCode::kUsage, "--json needs the name of a file");
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  if (!is_directory(folder)) return fail(ErrorCode::kUsage, "--json {}: no such folder", path);
  if (is_directory(path)) return fail(ErrorCode::kUsage, "--json {}: is a folder", path);
  return {};
}

}  // namespace

Result<CudaBenchOptions> parse_cuda_bench_options(const CudaBenchProgram& program,
                                                  const std::vector<std::string>& arguments) {
  CudaBenchOptions options;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    const auto flag =
        std::find_if(program.flags.begin(), program.flags.end(),
                     [&](const CudaBenchFlag& known) { return known.name == argument; });
    if (flag != program.flags.end()) {
      options.*flag->value = true;
    } else if (argument == "-h" || argument == "--help") {
      options.asks_for_help = true;
    } else if (argument == "--json") {
      options.json_path = ++i < arguments.size() ? arguments[i] : "";
      GAPLESS_TRY(check_json_path(options.json_path));
    } else {
      return fail(ErrorCode::kUsage, "unknown option {}; --help lists those there are", argument);
    }
  }
  return options;
}

std::string cuda_bench_help(const CudaBenchProgram& program, std::string_view name) {
  size_t width = std::max(kJson.size(), kHelp.size());
  for (const CudaBenchFlag& flag : program.flags) width = std::max(width, flag.name.size());
  std::string text = fmt::format("usage: {} [OPTIONS]\n\n{}\n", name, program.about);
  const auto add = [&](std::string_view option, std::string_view help) {
    text += fmt::format("  {:{}}  {}\n", option, width, help);
  };
  for (const CudaBenchFlag& flag : program.flags) add(flag.name, flag.help);
  add(kJson, "Write the rows as JSON, too");
  add(kHelp, "Print this help");
  return text;
}

int run_cuda_bench(const CudaBenchProgram& program, int argc, char** argv,
                   const std::function<Result<void>(const CudaBenchOptions&)>& measure) {
  const std::string_view name = name_in(argv[0]);
  const Result<CudaBenchOptions> options =
      parse_cuda_bench_options(program, std::vector<std::string>(argv + 1, argv + argc));
  if (!options) {
    fmt::print(stderr, "{}: error: {}\n", name, options.error().message);
    return kExitUsage;
  }
  if (options->asks_for_help) {
    fmt::print("{}", cuda_bench_help(program, name));
    return 0;
  }
  const Result<void> done = measure(*options);
  if (done) return 0;
  fmt::print(stderr, "{}: error: {}\n", name, done.error().message);
  return kExitFailure;
}

}  // namespace gapless
