// SPDX-License-Identifier: Apache-2.0
//
// The script is run by a real bash, with the words as bash would hand them over.

#include "cli/completion.h"

#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <unistd.h>

namespace gapless {
namespace {

class Completion : public testing::Test {
 protected:
  void SetUp() override {
    CLI::App* info = app_.add_subcommand("info", "");
    info->add_option("TRACE", text_, "")->type_name("PATH");
    info->add_flag("--json", flag_, "");
    info->add_option("--top", number_, "")->type_name("N");
    CLI::App* convert = app_.add_subcommand("convert", "");
    convert->add_option("-o,--output", text_, "")->type_name("PATH");
    convert->add_option("--to", text_, "")->check(CLI::IsMember({"json", "fxt"}))->type_name("");
    CLI::App* completion = app_.add_subcommand("completion", "");
    completion->add_option("SHELL", text_, "")->check(CLI::IsMember({"bash"}))->type_name("");
    path_ = testing::TempDir() + "gapless_completion_" + std::to_string(::getpid()) + ".sh";
    std::ofstream(path_) << bash_completion(app_);
  }
  void TearDown() override { std::filesystem::remove(path_); }

  // What bash offers when the last of `words` is being completed.
  std::string offered(const std::string& words) const {
    const std::string command = "bash -c '. \"$0\"; COMP_WORDS=(" + words +
                                "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _tool; echo "
                                "\"${COMPREPLY[@]}\"' " +
                                path_ + " 2>&1";
    std::FILE* pipe = ::popen(command.c_str(), "r");
    std::array<char, 4096> buffer;
    const size_t size = std::fread(buffer.data(), 1, buffer.size(), pipe);
    EXPECT_EQ(::pclose(pipe), 0);
    const std::string text(buffer.data(), size);
    return text.substr(0, text.find('\n'));
  }

  std::string text_;
  bool flag_ = false;
  int number_ = 0;
  std::string path_;
  CLI::App app_{"", "tool"};
};

TEST_F(Completion, OffersCommandsFirst) {
  EXPECT_EQ(offered("tool \"\""), "info convert completion");
  EXPECT_EQ(offered("tool co"), "convert completion");
}

TEST_F(Completion, OffersTheLongOptionsOfTheCommand) {
  EXPECT_EQ(offered("tool info --"), "--help --json --top");
  EXPECT_EQ(offered("tool convert --t"), "--to");
  EXPECT_EQ(offered("tool --"), "--help");
}

TEST_F(Completion, OffersTheValuesOfAFixedSet) {
  EXPECT_EQ(offered("tool convert --to \"\""), "json fxt");
  EXPECT_EQ(offered("tool convert x --to f"), "fxt");
  EXPECT_EQ(offered("tool convert --to = j"), "json") << "bash splits --to=j";
  EXPECT_EQ(offered("tool completion \"\""), "bash");
}

TEST_F(Completion, LeavesFilesToBash) {
  EXPECT_EQ(offered("tool info \"\""), "");
  EXPECT_EQ(offered("tool convert -o \"\""), "");
}

TEST_F(Completion, OffersProgramsAfterTwoDashes) {
  EXPECT_NE((" " + offered("tool info -- bas") + " ").find(" bash "), std::string::npos);
  EXPECT_EQ(offered("tool info -- bash --"), "") << "arguments of the program are its own";
}

TEST_F(Completion, IsValidBash) { EXPECT_EQ(std::system(("bash -n " + path_).c_str()), 0); }

}  // namespace
}  // namespace gapless
