// SPDX-License-Identifier: Apache-2.0
//
// gapless info TRACE: what a trace holds, one fact a line, stable enough to grep.

#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/progress_bar.h"
#include "formats/format.h"
#include "report/trace_info.h"

namespace gapless {
namespace {

struct InfoArguments {
  std::string trace;
  bool json = false;
  size_t top = 10;
  std::string lanes = "auto";
  bool tracr_labels_by_key_order = false;
};

Result<int> run_info(const InfoArguments& arguments) {
  ProgressBar bar("reading", ProgressUnit::kBytes);
  const Trace trace = GAPLESS_TRY(
      read_trace(arguments.trace, {.tracr_labels_by_key_order = arguments.tracr_labels_by_key_order,
                                   .progress = bar.callback()}));
  bar.erase();
  const TraceInfo info = describe(trace);
  const InfoOptions options{.top_names = arguments.top, .all_lanes = arguments.lanes == "all"};
  const Result<void> printed =
      print(arguments.json ? info_json(info, options) : info_text(info, options));
  if (!printed) return printed.error();
  return 0;
}

}  // namespace

RunCommand define_info(CLI::App& command) {
  const auto arguments = std::make_shared<InfoArguments>();
  command.add_option("TRACE", arguments->trace, "A trace of any format that is read")
      ->required()
      ->type_name("PATH")
      ->option_text(" ");
  command.add_flag("--json", arguments->json, "The same facts as JSON, with exact numbers");
  command
      .add_option("--top", arguments->top, "How many names to list, by summed time (default 10)")
      ->check(CLI::Range(0, 1'000'000).description(""))
      ->type_name("N");
  command
      .add_option(
          "--lanes", arguments->lanes,
          "all: a line for each lane; auto: more than 16 are\nsummarised by kind (default auto)")
      ->check(CLI::IsMember({"auto", "all"}))
      ->option_text("auto|all");
  add_tracr_option(command, arguments->tracr_labels_by_key_order);
  command.footer(
      "Times: wall is from the first to the last event; a union is the part of the wall that\n"
      "the slices of a lane cover; a sum adds durations, so nested slices count twice. A union\n"
      "is called busy only where it is made of the start and end of tasks.\n"
      "\n"
      "Examples:\n"
      "  gapless info trace.gapless\n"
      "  gapless info --top 3 --lanes all tracr/\n"
      "  gapless info --json trace.json.gz | jq .totals.span_count");
  return [arguments] { return run_info(*arguments); };
}

}  // namespace gapless
