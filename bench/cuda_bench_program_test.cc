// SPDX-License-Identifier: Apache-2.0

#include "bench/cuda_bench_program.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

const CudaBenchProgram kProgram = {
    .about = "Something, timed.\n",
    .flags = {{"--quick", "One round", &CudaBenchOptions::is_quick},
              {"--whole", "All layers", &CudaBenchOptions::has_whole_model}},
};

std::string error_of(const std::vector<std::string>& arguments) {
  const Result<CudaBenchOptions> options = parse_cuda_bench_options(kProgram, arguments);
  return options ? "" : options.error().message;
}

int run(const std::vector<std::string>& arguments, const std::string& measured = "") {
  std::vector<std::string> texts = {"/some/where/some_bench"};
  texts.insert(texts.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& text : texts) argv.push_back(text.data());
  return run_cuda_bench(kProgram, static_cast<int>(argv.size()), argv.data(),
                        [&](const CudaBenchOptions&) -> Result<void> {
                          if (measured.empty()) return {};
                          return fail(ErrorCode::kSystem, "{}", measured);
                        });
}

TEST(CudaBenchProgram, TakesItsOwnOptions) {
  const Result<CudaBenchOptions> none = parse_cuda_bench_options(kProgram, {});
  ASSERT_TRUE(none) << none.error().message;
  EXPECT_FALSE(none->is_quick || none->has_whole_model || none->asks_for_help);
  EXPECT_EQ(none->json_path, "");
  const Result<CudaBenchOptions> some =
      parse_cuda_bench_options(kProgram, {"--whole", "--json", "rows.json"});
  ASSERT_TRUE(some) << some.error().message;
  EXPECT_TRUE(some->has_whole_model);
  EXPECT_FALSE(some->is_quick);
  EXPECT_EQ(some->json_path, "rows.json");
}

TEST(CudaBenchProgram, RefusesOthers) {
  EXPECT_EQ(error_of({"--tune"}), "unknown option --tune; --help lists those there are");
  EXPECT_EQ(error_of({"--quick", "more"}), "unknown option more; --help lists those there are");
}

// A measurement of minutes is not lost for a name that was wrong from the start.
TEST(CudaBenchProgram, RefusesAFileThatCannotBe) {
  EXPECT_EQ(error_of({"--json"}), "--json needs the name of a file");
  EXPECT_EQ(error_of({"--json", "/nowhere/rows.json"}),
            "--json /nowhere/rows.json: no such folder");
  EXPECT_EQ(error_of({"--json", testing::TempDir()}),
            "--json " + testing::TempDir() + ": is a folder");
  EXPECT_EQ(error_of({"--json", testing::TempDir() + "/rows.json"}), "");
  EXPECT_EQ(error_of({"--json", "/dev/stdout"}), "");
}

TEST(CudaBenchProgram, SaysWhatItTakes) {
  EXPECT_EQ(cuda_bench_help(kProgram, "some_bench"),
            "usage: some_bench [OPTIONS]\n"
            "\n"
            "Something, timed.\n"
            "\n"
            "  --quick      One round\n"
            "  --whole      All layers\n"
            "  --json FILE  Write the rows as JSON, too\n"
            "  -h, --help   Print this help\n");
}

TEST(CudaBenchProgram, EndsWithAStatus) {
  EXPECT_EQ(run({}), 0);
  testing::internal::CaptureStdout();
  EXPECT_EQ(run({"-h"}, "not to be called"), 0);
  EXPECT_TRUE(testing::internal::GetCapturedStdout().starts_with("usage: some_bench [OPTIONS]\n"));
  testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--slow"}), 2);
  EXPECT_EQ(run({}, "no GPU"), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "some_bench: error: unknown option --slow; --help lists those there are\n"
            "some_bench: error: no GPU\n");
}

}  // namespace
}  // namespace gapless
