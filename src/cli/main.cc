// SPDX-License-Identifier: Apache-2.0
//
// gapless: the command-line program. What it does is in program.cc, which the program for machines
// with a GPU has too (bench/gpu_bundle.cc).

#include "cli/program.h"

// NOLINTNEXTLINE(bugprone-exception-escape): only std::bad_alloc can, and that ends us.
int main(int argc, char** argv) { return gapless::run_gapless(argc, argv); }
