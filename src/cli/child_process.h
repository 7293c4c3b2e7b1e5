// SPDX-License-Identifier: Apache-2.0
//
// Running a program in the foreground: the terminal is its own while it runs.

#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace gapless {

struct EnvironmentVariable {
  std::string name;
  std::string value;
};

struct ProgramExit {
  int status = 0;  // what it returned, or 128 + the signal that ended it, as shells say
  int signal = 0;  // 0: it ended by itself
};

// Waits for the end of the program. Ctrl-C reaches it from the terminal and does not end us;
// SIGTERM, SIGHUP, and a SIGINT that somebody sent to us alone, are passed on.
Result<ProgramExit> run_program(const std::vector<std::string>& command,
                                const std::vector<EnvironmentVariable>& environment);

}  // namespace gapless
