// SPDX-License-Identifier: Apache-2.0
//
// The bash completion script of a command line, made from its option tree, so that it cannot
// disagree with it.

#pragma once

#include <string>

#include <CLI/CLI.hpp>

namespace gapless {

// Completes commands, long options, the values of options that have a fixed set, programs after
// "--", and files elsewhere.
std::string bash_completion(const CLI::App& app);

}  // namespace gapless
