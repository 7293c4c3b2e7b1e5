// SPDX-License-Identifier: Apache-2.0
//
// What the commands share. One file a command: it adds its options to the parser, and returns what
// runs it once they are parsed. Running is: call the library, print.

#pragma once

#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>

#include "base/result.h"
#include "trace/trace.h"

namespace gapless {

// Gives the exit status.
using RunCommand = std::function<Result<int>()>;

RunCommand define_info(CLI::App& command);
RunCommand define_convert(CLI::App& command);
RunCommand define_record(CLI::App& command);
RunCommand define_plan(CLI::App& command);
// A command within plan.
RunCommand define_plan_layer(CLI::App& command);
RunCommand define_report(CLI::App& command);
RunCommand define_diff(CLI::App& command);
RunCommand define_whatif(CLI::App& command);
RunCommand define_calibrate(CLI::App& command);
RunCommand define_passes(CLI::App& command);
RunCommand define_align(CLI::App& command);
RunCommand define_profile(CLI::App& command);
RunCommand define_generate(CLI::App& command);
RunCommand define_check(CLI::App& command);
RunCommand define_quantize(CLI::App& command);
RunCommand define_bench(CLI::App& command);
RunCommand define_synth(CLI::App& command);
RunCommand define_completion(CLI::App& command);

// Refuses what is below 0 or not finite, with a sentence.
CLI::Validator from_zero_on();

// Adds the option of all commands that read TraCR directories.
void add_tracr_option(CLI::App& command, bool& labels_by_key_order);

// To standard output. A reader that has gone away (| head) is not an error.
Result<void> print(std::string_view text);

// To standard error, after what was printed so far: "gapless convert: warning: ...".
void print_note(std::string_view command, std::string_view kind, std::string_view text);

// A page must not be written over a trace, and its folder must be there. An empty path is none.
Result<void> check_page_path(const std::string& page, std::initializer_list<std::string> traces);
// Says where the page is. Standard output is JSON and nothing else where that was asked for: then
// it is a note.
Result<void> print_page_path(std::string_view command, const std::string& page, bool json);

// Warnings and errors among the findings of a trace, one line each; of many of the same kind the
// first few, and how many more there are.
void print_findings(std::string_view command, const Trace& trace);

}  // namespace gapless
