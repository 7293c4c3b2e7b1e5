// SPDX-License-Identifier: Apache-2.0

#include "cli/child_process.h"

#include <csignal>
#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(ChildProcess, ReturnsTheStatusOfTheProgram) {
  const Result<ProgramExit> ended = run_program({"sh", "-c", "exit 7"}, {});
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->status, 7);
  EXPECT_EQ(ended->signal, 0);
}

TEST(ChildProcess, ReportsTheSignalAsShellsDo) {
  const Result<ProgramExit> ended = run_program({"sh", "-c", "kill -9 $$"}, {});
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->status, 137);
  EXPECT_EQ(ended->signal, SIGKILL);
}

TEST(ChildProcess, GetsTheEnvironment) {
  const Result<ProgramExit> ended =
      run_program({"sh", "-c", "test \"$GAPLESS_X\" = 'a b'"}, {{"GAPLESS_X", "a b"}});
  ASSERT_TRUE(ended.has_value());
  EXPECT_EQ(ended->status, 0);
}

TEST(ChildProcess, NamesAProgramThatIsNotThere) {
  const Result<ProgramExit> ended = run_program({"/no/such/program"}, {});
  ASSERT_FALSE(ended.has_value());
  EXPECT_EQ(ended.error().message, "/no/such/program: no such program");
}

// The child sends the signal to its parent, as `kill` from another terminal would.
TEST(ChildProcess, PassesOnASignalThatCameToUsAlone) {
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) {
    const std::string script = "kill -" + std::to_string(signal) + " $PPID; exec sleep 60";
    const Result<ProgramExit> ended = run_program({"sh", "-c", script}, {});
    ASSERT_TRUE(ended.has_value());
    EXPECT_EQ(ended->signal, signal);
  }
}

}  // namespace
}  // namespace gapless
