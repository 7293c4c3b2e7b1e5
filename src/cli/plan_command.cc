// SPDX-License-Identifier: Apache-2.0
//
// gapless plan attention|matmul|layer: how a kernel's work would be cut for given shapes and cores,
// what it reads and how even the cores would be, without running it. For a simulated device
// (--device) a matmul is planned for its buffers, and attention for its cores.

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "cli/command.h"
#include "cli/plan_device.h"
#include "cli/plan_text.h"
#include "kernels/attention_plan.h"
#include "kernels/matmul_plan.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

constexpr int64_t kMaxCacheKib = int64_t{1} << 32;
struct AttentionArguments {
  AttentionProblem problem;
  int64_t batch = 1;
  int32_t length = 0;
  std::string lengths_text;
  std::vector<int32_t> lengths;
  std::string dtype = "bf16";
  std::string device;
  std::string device_name;  // of the profile that was found
  std::string rules = "ours";
  bool items = false;
  bool json = false;
};

struct MatmulArguments {
  MatmulProblem problem;
  bool dual = false;
  std::string dtype = "s8";
  std::string level;
  int64_t l1_kib = 32;
  int64_t l2_kib = 1024;
  std::string device;
  int64_t tile_k = 0;
  bool tiles = false;
  bool json = false;
};

double ratio(double value, double divisor) { return divisor == 0.0 ? 0.0 : value / divisor; }

int this_machines_cores() {
  const unsigned count = std::thread::hardware_concurrency();
  return count == 0 ? 1 : static_cast<int>(count);
}

int64_t item_tokens(const AttentionItem& item, const AttentionArguments& arguments) {
  const int64_t chunk = arguments.problem.chunk_tokens;
  const int64_t length = arguments.lengths[static_cast<size_t>(item.sequence)];
  return std::min(chunk, length - item.chunk * chunk);
}

double mean_cost(const AttentionPlan& plan, int core_count) {
  return static_cast<double>(plan.total_cost) / core_count;
}

int64_t moved_bytes(const AttentionPlan& plan) {
  return plan.kv_bytes + plan.q_bytes + plan.output_bytes + plan.partial_bytes;
}

std::string attention_items_text(const AttentionPlan& plan, const AttentionArguments& arguments) {
  std::vector<TableRow> rows = {{"SEQUENCE", "KV HEAD", "CHUNK", "TOKENS"}};
  for (const AttentionItem& item : plan.items) {
    rows.push_back({std::to_string(item.sequence), std::to_string(item.kv_head),
                    std::to_string(item.chunk), std::to_string(item_tokens(item, arguments))});
  }
  return align_columns(rows, "rrrr", "  ");
}

std::string attention_text(const AttentionPlan& plan, const AttentionArguments& arguments) {
  const AttentionProblem& problem = arguments.problem;
  const int64_t batch = static_cast<int64_t>(arguments.lengths.size());
  std::string text;
  add_fact(text, "attention",
           fmt::format("{}, {}", counted(batch, "sequence"), counted(plan.token_count, "token")));
  add_fact(text, "heads",
           fmt::format("{} query heads over {} kv heads of {}", problem.q_heads,
                       problem.kv.kv_heads, problem.kv.head_dim));
  add_fact(text, "pages", fmt::format("{} tokens, {}", problem.kv.page_tokens, arguments.dtype));
  add_fact(text, "cores",
           arguments.device.empty()
               ? std::to_string(problem.core_count)
               : fmt::format("{} cube cores of {}", problem.core_count, arguments.device_name));
  add_fact(
      text, "cut into",
      fmt::format("{}: sequence x kv head x chunk of {} tokens",
                  counted(static_cast<int64_t>(plan.items.size()), "item"), problem.chunk_tokens));
  add_fact(text, "combines",
           fmt::format("{}, from {}", plan.combine_count, counted(plan.partial_count, "partial")));
  add_fact(text, "workspace", exact_size_text(plan.workspace_bytes));
  add_fact(text, "kv read", exact_size_text(plan.kv_bytes));
  add_fact(text, "q read", size_text(plan.q_bytes));
  add_fact(text, "partials moved", size_text(plan.partial_bytes));
  add_fact(text, "output written", size_text(plan.output_bytes));
  add_fact(text, "flops", format_count(plan.flops));
  add_fact(text, "intensity",
           fmt::format("{:.2f} flops a byte",
                       ratio(plan.flops, static_cast<double>(moved_bytes(plan)))));
  add_fact(text, "balance",
           balance_text(plan.balance, mean_cost(plan, problem.core_count), plan.largest_core_cost,
                        "tokens"));
  add_fact(text, "largest item",
           fmt::format("{} of a core's mean", format_share(plan.largest_item_share)));
  if (plan.items.empty()) return text;
  text += fmt::format("\nitems, longest first; each costs {} tokens more\n", kItemOverheadTokens);
  if (arguments.items) return text + attention_items_text(plan, arguments);
  std::vector<SizeRun> runs;
  for (const AttentionItem& item : plan.items) {
    add_to_runs(runs, {std::to_string((item_tokens(item, arguments) + kTokenVector - 1) /
                                      kTokenVector * kTokenVector)});
  }
  return text + runs_text(runs, {"ITEMS", "TOKENS IN WHOLE VECTORS"});
}

std::string attention_json(const AttentionPlan& plan, const AttentionArguments& arguments) {
  const AttentionProblem& problem = arguments.problem;
  Json json;
  json["problem"] = {{"lengths", arguments.lengths},
                     {"q_heads", problem.q_heads},
                     {"kv_heads", problem.kv.kv_heads},
                     {"head_dim", problem.kv.head_dim},
                     {"page_tokens", problem.kv.page_tokens},
                     {"kv_dtype", dtype_name(problem.kv.dtype)},
                     {"output_dtype", dtype_name(problem.output_dtype)},
                     {"chunk_tokens", problem.chunk_tokens},
                     {"core_count", problem.core_count}};
  if (!arguments.device.empty()) json["problem"]["device"] = arguments.device_name;
  json["item_count"] = plan.items.size();
  json["combine_count"] = plan.combine_count;
  json["partial_count"] = plan.partial_count;
  json["workspace_bytes"] = plan.workspace_bytes;
  json["token_count"] = plan.token_count;
  json["kv_bytes"] = plan.kv_bytes;
  json["q_bytes"] = plan.q_bytes;
  json["partial_bytes"] = plan.partial_bytes;
  json["output_bytes"] = plan.output_bytes;
  json["flops"] = plan.flops;
  json["flops_per_byte"] = ratio(plan.flops, static_cast<double>(moved_bytes(plan)));
  json["item_overhead_tokens"] = kItemOverheadTokens;
  json["total_cost"] = plan.total_cost;
  json["mean_core_cost"] = mean_cost(plan, problem.core_count);
  json["largest_core_cost"] = plan.largest_core_cost;
  json["largest_item_cost"] = plan.largest_item_cost;
  json["largest_item_share"] = plan.largest_item_share;
  json["balance"] = plan.balance;
  json["first_partial"] = plan.first_partial;
  if (arguments.items) {
    json["items"] = Json::array();
    for (const AttentionItem& item : plan.items) {
      json["items"].push_back({{"sequence", item.sequence},
                               {"kv_head", item.kv_head},
                               {"chunk", item.chunk},
                               {"token_count", item_tokens(item, arguments)}});
    }
  }
  return json.dump(2) + "\n";
}

// "1,17,4096"
Result<std::vector<int32_t>> parse_lengths(std::string_view text) {
  std::vector<int32_t> lengths;
  while (true) {
    const std::string_view piece = text.substr(0, text.find(','));
    int32_t length = 0;
    const std::from_chars_result read =
        std::from_chars(piece.data(), piece.data() + piece.size(), length);
    if (piece.empty() || read.ec != std::errc() || read.ptr != piece.data() + piece.size())
      return fail(ErrorCode::kUsage, "--lengths: '{}' is not a number of tokens", piece);
    lengths.push_back(length);
    if (piece.size() == text.size()) return lengths;
    text.remove_prefix(piece.size() + 1);
  }
}

Result<int> run_atb_rules(const AttentionArguments& arguments) {
  const AttentionProblem& problem = arguments.problem;
  if (arguments.dtype != "bf16" && arguments.dtype != "f16")
    return fail(ErrorCode::kUsage, "--rules atb is for --dtype bf16 and f16, not {}",
                arguments.dtype);
  const AtbArguments atb = {.device_name = arguments.device_name,
                            .problem = {.lengths = arguments.lengths,
                                        .q_heads = problem.q_heads,
                                        .kv_heads = problem.kv.kv_heads,
                                        .head_dim = problem.kv.head_dim,
                                        .page_tokens = problem.kv.page_tokens,
                                        .is_bf16 = arguments.dtype == "bf16",
                                        .core_count = problem.core_count},
                            .dtype = arguments.dtype,
                            .json = arguments.json};
  const std::string text = GAPLESS_TRY(atb_attention_text(atb));
  GAPLESS_TRY(print(text));
  return 0;
}

Result<int> run_attention(AttentionArguments arguments) {
  arguments.problem.kv.dtype = *parse_dtype(arguments.dtype);
  if (!arguments.device.empty()) {
    const DeviceProfile profile = GAPLESS_TRY(find_profile(arguments.device));
    arguments.device_name = profile.name;
    arguments.problem.core_count = static_cast<int>(profile.cluster_count);
  }
  if (arguments.lengths.empty()) {
    if (arguments.batch < 0 || arguments.batch > kMaxPlanSequences)
      return fail(ErrorCode::kInvalidInput, "a batch of {} sequences; a plan is for 0 to {}",
                  arguments.batch, kMaxPlanSequences);
    arguments.lengths.assign(static_cast<size_t>(arguments.batch), arguments.length);
  }
  if (arguments.rules == "atb") return run_atb_rules(arguments);
  const AttentionPlan plan = GAPLESS_TRY(plan_attention(arguments.problem, arguments.lengths));
  if (arguments.items) {
    const Result<void> listable = check_listed(plan.items.size(), "items");
    if (!listable) return listable.error();
  }
  const Result<void> printed =
      print(arguments.json ? attention_json(plan, arguments) : attention_text(plan, arguments));
  if (!printed) return printed.error();
  return 0;
}

int64_t moved_bytes(const MatmulPlan& plan) {
  const int64_t sums_bytes = plan.workspace_bytes - plan.activation_bytes;  // written and read
  return plan.weight_bytes + plan.activation_bytes + plan.output_bytes +
         (plan.k_slices > 1 ? 2 * sums_bytes : 0);
}

double mean_cost(const MatmulPlan& plan, int core_count) {
  return static_cast<double>(plan.total_cost) / core_count;
}

double largest_tile_share(const MatmulPlan& plan, int core_count) {
  const MatmulTilePlan& tile = plan.tiles[0];
  return static_cast<double>(tile.panel_count * tile.line_count) / mean_cost(plan, core_count);
}

std::string_view fits_text(bool fits) { return fits ? "fits" : "does not fit"; }

std::string matmul_tiles_text(const MatmulPlan& plan) {
  std::vector<TableRow> rows = {{"FIRST PANEL", "PANELS", "FIRST LINE", "LINES", "SLICE"}};
  for (const MatmulTilePlan& tile : plan.tiles) {
    rows.push_back({std::to_string(tile.first_panel), std::to_string(tile.panel_count),
                    std::to_string(tile.first_line), std::to_string(tile.line_count),
                    std::to_string(tile.slice)});
  }
  return align_columns(rows, "rrrrr", "  ");
}

void add_cut(std::string& text, const MatmulPlan& plan, const MatmulArguments& arguments) {
  const MatmulProblem& problem = arguments.problem;
  add_fact(text, "matmul",
           fmt::format("m {}, k {}, n {}{}", problem.m, problem.k, problem.n,
                       arguments.dual ? " twice: gate and up" : ""));
  add_fact(text, "weights",
           fmt::format("{}, {}", arguments.dtype, exact_size_text(plan.weight_bytes)));
  add_fact(text, "cores",
           fmt::format("{}, level {}", problem.core_count, cpu_level_name(problem.level)));
  add_fact(text, "panels",
           fmt::format("{} of {} lines, {} together", plan.panel_count, plan.line_count,
                       plan.panels_together));
  add_fact(text, "cut into",
           fmt::format("{} of up to {}, k in {}",
                       counted(static_cast<int64_t>(plan.tiles.size()), "tile"),
                       counted(plan.panels_per_tile, "panel"), counted(plan.k_slices, "slice")));
  add_fact(text, "combines", std::to_string(plan.combine_count));
}

std::string matmul_text(const MatmulPlan& plan, const MatmulArguments& arguments) {
  const MatmulProblem& problem = arguments.problem;
  std::string text;
  add_cut(text, plan, arguments);
  add_fact(text, "workspace", exact_size_text(plan.workspace_bytes));
  add_fact(text, "rows read", size_text(plan.activation_bytes));
  add_fact(text, "output written", size_text(plan.output_bytes));
  add_fact(text, "flops", format_count(plan.flops));
  add_fact(text, "intensity",
           fmt::format("{:.2f} flops a byte",
                       ratio(plan.flops, static_cast<double>(moved_bytes(plan)))));
  add_fact(
      text, "in L1",
      fmt::format("{} of {}: {}; blocks of {} for {} of rows", size_text(plan.l1_needed_bytes),
                  size_text(problem.l1_bytes), fits_text(plan.fits_l1),
                  counted(plan.block_line_count, "line"), counted(plan.row_group_count, "group")));
  add_fact(text, "in L2",
           fmt::format("{} of {}: {}", size_text(plan.l2_needed_bytes), size_text(problem.l2_bytes),
                       fits_text(plan.fits_l2)));
  add_fact(text, "balance",
           balance_text(plan.balance, mean_cost(plan, problem.core_count), plan.largest_core_cost,
                        "lines"));
  add_fact(text, "largest tile",
           fmt::format("{} of a core's mean",
                       format_share(largest_tile_share(plan, problem.core_count))));
  text += "\ntiles, largest first\n";
  if (arguments.tiles) return text + matmul_tiles_text(plan);
  std::vector<SizeRun> runs;
  for (const MatmulTilePlan& tile : plan.tiles) {
    add_to_runs(runs, {std::to_string(tile.panel_count), std::to_string(tile.line_count),
                       size_text(tile.panel_count * tile.line_count * kLineBytes)});
  }
  return text + runs_text(runs, {"TILES", "PANELS", "LINES", "WEIGHTS"});
}

Json matmul_problem_json(const MatmulProblem& problem) {
  return {{"m", problem.m},
          {"k", problem.k},
          {"n", problem.n},
          {"dual", problem.interleave == Interleave::kPairs},
          {"weights_dtype", dtype_name(problem.weights)},
          {"output_dtype", dtype_name(problem.output_dtype)},
          {"core_count", problem.core_count},
          {"l1_bytes", problem.l1_bytes},
          {"l2_bytes", problem.l2_bytes},
          {"cpu_level", cpu_level_name(problem.level)}};
}

std::string matmul_json(const MatmulPlan& plan, const MatmulArguments& arguments) {
  const int core_count = arguments.problem.core_count;
  Json json;
  json["problem"] = matmul_problem_json(arguments.problem);
  json["tile_count"] = plan.tiles.size();
  json["panel_count"] = plan.panel_count;
  json["line_count"] = plan.line_count;
  json["panels_together"] = plan.panels_together;
  json["panels_per_tile"] = plan.panels_per_tile;
  json["k_slices"] = plan.k_slices;
  json["combine_count"] = plan.combine_count;
  json["workspace_bytes"] = plan.workspace_bytes;
  json["weight_bytes"] = plan.weight_bytes;
  json["activation_bytes"] = plan.activation_bytes;
  json["output_bytes"] = plan.output_bytes;
  json["flops"] = plan.flops;
  json["flops_per_byte"] = ratio(plan.flops, static_cast<double>(moved_bytes(plan)));
  json["row_group_count"] = plan.row_group_count;
  json["block_line_count"] = plan.block_line_count;
  json["l1_needed_bytes"] = plan.l1_needed_bytes;
  json["fits_l1"] = plan.fits_l1;
  json["l2_needed_bytes"] = plan.l2_needed_bytes;
  json["fits_l2"] = plan.fits_l2;
  json["total_cost"] = plan.total_cost;
  json["mean_core_cost"] = mean_cost(plan, core_count);
  json["largest_core_cost"] = plan.largest_core_cost;
  json["largest_tile_share"] = largest_tile_share(plan, core_count);
  json["balance"] = plan.balance;
  if (arguments.tiles) {
    json["tiles"] = Json::array();
    for (const MatmulTilePlan& tile : plan.tiles) {
      json["tiles"].push_back({{"first_panel", tile.first_panel},
                               {"panel_count", tile.panel_count},
                               {"first_line", tile.first_line},
                               {"line_count", tile.line_count},
                               {"slice", tile.slice}});
    }
  }
  return json.dump(2) + "\n";
}

Result<int> run_device_matmul(const MatmulArguments& arguments) {
  if (arguments.dtype == "f32")
    return fail(ErrorCode::kUsage, "--device is for --dtype s8, bf16 and f16, not f32");
  const MatmulProblem& problem = arguments.problem;
  const DeviceMatmulArguments device = {.device = arguments.device,
                                        .problem = {.m = problem.m,
                                                    .k = problem.k,
                                                    .n = problem.n,
                                                    .is_dual = arguments.dual,
                                                    .is_int8 = arguments.dtype == "s8",
                                                    .tile_k = arguments.tile_k},
                                        .dtype = arguments.dtype,
                                        .json = arguments.json};
  const std::string text = GAPLESS_TRY(device_matmul_text(device));
  GAPLESS_TRY(print(text));
  return 0;
}

Result<int> run_matmul(MatmulArguments arguments) {
  if (arguments.dtype == "a8w8") arguments.dtype = "s8";  // the rows go with the weights
  if (!arguments.device.empty()) return run_device_matmul(arguments);
  MatmulProblem& problem = arguments.problem;
  problem.weights = *parse_dtype(arguments.dtype);
  problem.interleave = arguments.dual ? Interleave::kPairs : Interleave::kNone;
  for (const int64_t kib : {arguments.l1_kib, arguments.l2_kib}) {
    if (kib < 1 || kib > kMaxCacheKib)
      return fail(ErrorCode::kInvalidInput, "a cache of {} KiB; 1 to {} are possible", kib,
                  kMaxCacheKib);
  }
  problem.l1_bytes = arguments.l1_kib << 10;
  problem.l2_bytes = arguments.l2_kib << 10;
  // A level that this machine does not have can be planned for all the same.
  problem.level =
      arguments.level.empty() ? GAPLESS_TRY(choose_cpu_level()) : *parse_cpu_level(arguments.level);
  const MatmulPlan plan = GAPLESS_TRY(plan_matmul(problem));
  if (arguments.tiles) {
    const Result<void> listable = check_listed(plan.tiles.size(), "tiles");
    if (!listable) return listable.error();
  }
  const Result<void> printed =
      print(arguments.json ? matmul_json(plan, arguments) : matmul_text(plan, arguments));
  if (!printed) return printed.error();
  return 0;
}

template <typename T>
CLI::Option* add_number(CLI::App& command, const std::string& name, T& value,
                        const std::string& description, const std::string& unit = "N") {
  return command.add_option(name, value, description)->type_name(unit);
}

// What is about this machine does not go with a device. Said here and not to the parser, which
// would say it in the help of every such option.
Result<void> check_without_device(const CLI::App& command,
                                  std::initializer_list<const char*> options) {
  for (const char* option : options) {
    if (command.count("--device") != 0 && command.count(option) != 0)
      return fail(ErrorCode::kUsage, "{} excludes --device", option);
  }
  return {};
}

RunCommand define_attention(CLI::App& command) {
  const auto arguments = std::make_shared<AttentionArguments>();
  AttentionProblem& problem = arguments->problem;
  problem.q_heads = 40;
  problem.kv = {.dtype = DType::kBf16, .kv_heads = 8, .head_dim = 128, .page_tokens = 128};
  problem.core_count = this_machines_cores();
  CLI::Option* batch = add_number(command, "--batch", arguments->batch, "Sequences (default 1)");
  CLI::Option* length =
      add_number(command, "--length", arguments->length, "Tokens of each, the new one included");
  batch->option_text("N");
  length->option_text("TOKENS");
  command
      .add_option("--lengths", arguments->lengths_text, "Tokens of each sequence, instead of both")
      ->excludes(batch)
      ->excludes(length)
      ->option_text("A,B,...");
  add_number(command, "--heads", problem.q_heads, "Query heads (default 40)");
  add_number(command, "--kv-heads", problem.kv.kv_heads, "Key and value heads (default 8)");
  add_number(command, "--head-dim", problem.kv.head_dim, "Elements of a head (default 128)");
  add_number(command, "--page", problem.kv.page_tokens, "Tokens of a page (default 128)", "TOKENS");
  add_number(command, "--chunk", problem.chunk_tokens, "Tokens of an item (default 512)", "TOKENS");
  add_number(command, "--cores", problem.core_count, "Cores to plan for (default: those here)");
  command.add_option("--dtype", arguments->dtype, "Of keys and values (default bf16)")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "s8"}))
      ->option_text("bf16|f16|f32|s8");
  CLI::Option* device =
      command
          .add_option("--device", arguments->device, "A simulated device, or its file, to plan for")
          ->option_text("NAME");
  command.add_option("--rules", arguments->rules, "How to cut for the device (default ours)")
      ->check(CLI::IsMember({"ours", "atb"}))
      ->needs(device)
      ->option_text("ours|atb");
  command.add_flag("--items", arguments->items, "List every item");
  command.add_flag("--json", arguments->json, "The same facts as JSON, with exact numbers");
  command.footer(
      "The defaults are the heads of Qwen3-14B.\n"
      "\n"
      "Examples:\n"
      "  gapless plan attention --batch 16 --length 4096\n"
      "  gapless plan attention --lengths 1,17,4096,131072 --cores 24 --items\n"
      "  gapless plan attention --length 8192 --json | jq .workspace_bytes\n"
      "  gapless plan attention --batch 16 --length 4096 --device ascend-910b --rules atb");
  return [arguments, &command]() -> Result<int> {
    if (command.count("--length") + command.count("--lengths") == 0)
      return fail(ErrorCode::kUsage, "--length or --lengths is required");
    GAPLESS_TRY(check_without_device(command, {"--cores"}));
    if (arguments->rules == "atb" && command.count("--chunk") + command.count("--items") != 0)
      return fail(ErrorCode::kUsage, "--rules atb has neither --chunk nor --items");
    if (command.count("--lengths") != 0)
      arguments->lengths = GAPLESS_TRY(parse_lengths(arguments->lengths_text));
    return run_attention(*arguments);
  };
}

void add_device_options(CLI::App& command, MatmulArguments& arguments) {
  CLI::Option* device = command
                            .add_option("--device", arguments.device,
                                        "A simulated device, or its file: plan one\n"
                                        "task for the buffers of a cube core")
                            ->option_text("NAME");
  command
      .add_option("--tile-k", arguments.tile_k, "k of a tile of weights there (default: chosen)")
      ->needs(device)
      ->option_text("N");
}

RunCommand define_matmul(CLI::App& command) {
  const auto arguments = std::make_shared<MatmulArguments>();
  MatmulProblem& problem = arguments->problem;
  problem.core_count = this_machines_cores();
  add_number(command, "--m", problem.m, "Rows of x: tokens of the step")->required();
  add_number(command, "--k", problem.k, "Elements of a row")->required();
  add_number(command, "--n", problem.n, "Columns of y")->required();
  command.add_flag("--dual", arguments->dual, "Gate and up in one pass, n columns each");
  command.add_option("--dtype", arguments->dtype, "Of the weights (default s8)")
      ->check(CLI::IsMember({"s8", "a8w8", "bf16", "f16", "f32"}))
      ->option_text("s8|a8w8|bf16|f16|f32");
  add_number(command, "--cores", problem.core_count, "Cores to plan for (default: those here)");
  add_number(command, "--panels-per-tile", problem.panels_per_tile,
             "Panels of 16 columns in a tile (default: chosen)");
  add_number(command, "--k-slices", problem.k_slices, "Slices along k (default: chosen)");
  command
      .add_option("--cpu-level", arguments->level, "Instructions to plan for (default: best here)")
      ->check(CLI::IsMember({"portable", "avx2", "avx2-vnni", "avx512", "avx512-bf16"}))
      ->option_text("NAME");
  add_number(command, "--l1", arguments->l1_kib, "L1 data cache of a core (default 32)", "KIB");
  add_number(command, "--l2", arguments->l2_kib, "L2 cache of a core (default 1024)", "KIB");
  command.add_flag("--tiles", arguments->tiles, "List every tile");
  add_device_options(command, *arguments);
  command.add_flag("--json", arguments->json, "The same facts as JSON, with exact numbers");
  command.footer(
      "Examples:\n"
      "  gapless plan matmul --m 16 --k 5120 --n 17408 --dual\n"
      "  gapless plan matmul --m 1 --k 17408 --n 5120 --dtype bf16 --cores 48\n"
      "  gapless plan matmul --m 4 --k 5120 --n 7168 --panels-per-tile 6 --tiles\n"
      "  gapless plan matmul --m 16 --k 512 --n 256 --dual --device ascend-910b");
  return [arguments, &command]() -> Result<int> {
    GAPLESS_TRY(check_without_device(command, {"--cores", "--panels-per-tile", "--k-slices",
                                               "--cpu-level", "--l1", "--l2", "--tiles"}));
    return run_matmul(*arguments);
  };
}

}  // namespace

RunCommand define_plan(CLI::App& command) {
  command.require_subcommand(1);
  CLI::App& attention =
      *command.add_subcommand("attention", "Items, workspace and balance of a decode attention");
  CLI::App& matmul =
      *command.add_subcommand("matmul", "Tiles, workspace and balance of a matmul for few rows");
  CLI::App& layer = *command.add_subcommand("layer", "Kernels, tasks, bytes and flops of a layer");
  for (CLI::App* each : {&attention, &matmul, &layer}) each->group("Commands");
  const RunCommand plan_attention = define_attention(attention);
  const RunCommand plan_matmul = define_matmul(matmul);
  const RunCommand plan_layer = define_plan_layer(layer);
  command.footer("`gapless plan COMMAND --help` tells more.");
  return [=, &attention, &layer] {
    if (layer.parsed()) return plan_layer();
    return attention.parsed() ? plan_attention() : plan_matmul();
  };
}

}  // namespace gapless
