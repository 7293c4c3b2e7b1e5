// SPDX-License-Identifier: Apache-2.0
//
// gapless quantize MODEL -o DIR: an A8W8 checkpoint of a model, and how much it lost.

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "model/checkpoint.h"
#include "model/model_config.h"
#include "model/quantize.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

struct QuantizeArguments {
  std::string model;
  std::string output;
  uint64_t shard_bytes = 4'000'000'000;
  int threads = 0;
  bool force = false;
  bool json = false;
};

std::string size_text(int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); }

double share(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string summary_text(const QuantizeSummary& summary, double seconds) {
  std::string text;
  add_fact(text, "written",
           fmt::format("{}, {} files of weights", summary.folder, summary.file_count));
  add_fact(text, "scheme",
           fmt::format("{}: int8 weights, a scale for each row; activations int8, "
                       "a scale for each token",
                       kQuantMethod));
  add_fact(text, "matrices", fmt::format("{} are int8 now", summary.matrix_count));
  add_fact(text, "as they were",
           fmt::format("{} tensors: embedding, norms, head", summary.other_count));
  if (!summary.left_out.empty())
    add_fact(text, "left out",
             fmt::format("{} tensors of a type that is not known here, {} first",
                         summary.left_out.size(), quoted_name(summary.left_out.front())));
  add_fact(text, "before", size_text(summary.source_bytes));
  add_fact(text, "after",
           fmt::format("{}, {} of that", size_text(summary.written_bytes),
                       format_share(share(summary.written_bytes, summary.source_bytes))));
  add_fact(text, "largest error",
           fmt::format("{} of row {} of {}", format_share(summary.largest_error.relative),
                       summary.largest_error.row, summary.largest_error.tensor));
  add_fact(text, "time", fmt::format("{:.3f} s", seconds));
  return text;
}

std::string summary_json(const QuantizeSummary& summary, double seconds) {
  Json json;
  json["folder"] = summary.folder;
  json["quant_method"] = kQuantMethod;
  json["file_count"] = summary.file_count;
  json["matrix_count"] = summary.matrix_count;
  json["other_count"] = summary.other_count;
  json["left_out"] = summary.left_out;
  json["source_bytes"] = summary.source_bytes;
  json["written_bytes"] = summary.written_bytes;
  json["largest_error"] = {{"relative", summary.largest_error.relative},
                           {"tensor", summary.largest_error.tensor},
                           {"row", summary.largest_error.row}};
  json["seconds"] = seconds;
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<int> run_quantize(const QuantizeArguments& arguments) {
  if (arguments.shard_bytes < 1 || arguments.shard_bytes > std::numeric_limits<int64_t>::max())
    return fail(ErrorCode::kUsage, "--shard-size: {} bytes are not the size of a file",
                arguments.shard_bytes);
  const Checkpoint checkpoint = GAPLESS_TRY(Checkpoint::open(arguments.model));
  using Clock = std::chrono::steady_clock;
  const Clock::time_point begin = Clock::now();
  ProgressBar bar("quantising", ProgressUnit::kBytes);
  const Result<QuantizeSummary> summary =
      quantize_checkpoint(checkpoint, {.folder = arguments.output,
                                       .replace = arguments.force,
                                       .shard_bytes = static_cast<int64_t>(arguments.shard_bytes),
                                       .thread_count = arguments.threads,
                                       .progress = bar.callback()});
  bar.erase();
  if (!summary) return summary.error();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  const Result<void> printed =
      print(arguments.json ? summary_json(*summary, seconds) : summary_text(*summary, seconds));
  if (!printed) return printed.error();
  return 0;
}

}  // namespace

RunCommand define_quantize(CLI::App& command) {
  const auto arguments = std::make_shared<QuantizeArguments>();
  command.add_option("MODEL", arguments->model, "A Hugging Face folder: bf16, f16 or f32 weights")
      ->required()
      ->option_text(" ");
  command.add_option("-o,--output", arguments->output, "The folder to write; new or empty")
      ->required()
      ->option_text("DIR REQUIRED");
  command
      .add_option("--shard-size", arguments->shard_bytes,
                  "Bytes of a file of weights: 500MB, 2GiB (default 4GB)")
      ->transform(CLI::AsSizeValue(true))
      ->option_text("SIZE");
  command.add_option("--threads", arguments->threads, "Threads (default: one for each core)")
      ->check(CLI::Range(1, 1024))
      ->option_text("N");
  command.add_flag("--force", arguments->force, "Replace the checkpoint that is in DIR");
  command.add_flag("--json", arguments->json, "The same facts as JSON, with exact numbers");
  command.footer(
      "The projections of all layers (q, k, v, o, gate, up, down) become int8 with a scale for\n"
      "each row, the same as `--dtype a8w8` makes of the model when it is loaded. Embedding,\n"
      "norms and head stay. The error of a row is |w - int8 * scale| / |w|.\n"
      "\n"
      "Examples:\n"
      "  gapless quantize Qwen3-14B -o Qwen3-14B-A8W8\n"
      "  gapless quantize Qwen3-0.6B -o small --shard-size 500MB --json");
  return [arguments] { return run_quantize(*arguments); };
}

}  // namespace gapless
