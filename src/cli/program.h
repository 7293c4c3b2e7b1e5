// SPDX-License-Identifier: Apache-2.0
//
// The command-line program, as a function. One table of commands; parsing, running, and the only
// place where an Error becomes text and an exit status: 0 done, 1 failed, 2 wrong command line.

#pragma once

namespace gapless {

// The whole of main(). `arguments` are main's, the program's name among them.
int run_gapless(int argument_count, char** arguments);

}  // namespace gapless
