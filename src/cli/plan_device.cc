// SPDX-License-Identifier: Apache-2.0

#include "cli/plan_device.h"

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "cli/plan_text.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

std::string count_text(int64_t count, std::string_view noun) {
  return counted(static_cast<uint64_t>(count), noun);
}

double share_of(int64_t part, int64_t whole) {
  return whole == 0 ? 0.0 : static_cast<double>(part) / static_cast<double>(whole);
}

std::string buffers_text(const MatmulStaging& plan) {
  std::vector<TableRow> rows = {{"BUFFER", "BYTES", "OF", "SHARE", "HOLDS"}};
  for (const StagedBuffer& buffer : plan.buffers) {
    rows.push_back({buffer.name, std::to_string(buffer.used_bytes),
                    std::to_string(buffer.size_bytes),
                    format_share(share_of(buffer.used_bytes, buffer.size_bytes)), buffer.content});
  }
  return align_columns(rows, "lrrrl", "  ");
}

std::string staging_text(const MatmulStaging& plan, const DeviceMatmulArguments& arguments,
                         const DeviceProfile& profile) {
  const StagingProblem& problem = arguments.problem;
  std::string text;
  add_fact(text, "matmul",
           fmt::format("m {}, k {}, n {}{}", problem.m, problem.k, problem.n,
                       problem.is_dual ? " twice: gate and up" : ""));
  add_fact(
      text, "device",
      fmt::format("{}, one of {}", profile.name, count_text(profile.cluster_count, "cube core")));
  add_fact(
      text, "elements",
      fmt::format("{}, sums in {}, in blocks: m {}, k {}, n {}", arguments.dtype,
                  problem.is_int8 ? "s32" : "f32", plan.padded_m, plan.padded_k, plan.padded_n));
  add_fact(text, "A",
           fmt::format("{} loaded once, {}", exact_size_text(plan.a_bytes),
                       plan.is_a_in_l0a ? "moved to L0A once" : "moved to L0A in pieces"));
  if (problem.is_dual)
    add_fact(text, "saved",
             fmt::format("{} that the second matmul does not load again",
                         exact_size_text(plan.a_bytes)));
  add_fact(text, "B",
           fmt::format("{}, in {} of {} x {}{}, {}", exact_size_text(plan.b_bytes),
                       count_text(plan.tile_count, "tile"), plan.tile_k, plan.padded_n,
                       problem.is_dual ? " for each result" : "",
                       plan.tile_count > 1 ? "two buffers each" : "one buffer each"));
  add_fact(text, "one multiply",
           fmt::format("{} x {} x {}", plan.padded_m, plan.l0_k, plan.padded_n));
  add_fact(text, "steps",
           fmt::format("{}, {}, {}, {}", count_text(plan.load_count, "load"),
                       count_text(plan.move_count, "move"),
                       plan.multiply_count == 1 ? "1 multiply"
                                                : fmt::format("{} multiplies", plan.multiply_count),
                       count_text(plan.store_count, "store")));
  add_fact(text, "output written",
           fmt::format("{}, {}", exact_size_text(plan.store_bytes),
                       plan.vector_rows == 0
                           ? "by the fixpipe"
                           : fmt::format("scaled by {}",
                                         count_text(std::max<int64_t>(1, profile.vector_cores),
                                                    "vector core"))));
  return text + "\nbuffers at the fullest moment\n" + buffers_text(plan);
}

std::string staging_json(const MatmulStaging& plan, const DeviceMatmulArguments& arguments,
                         const DeviceProfile& profile) {
  const StagingProblem& problem = arguments.problem;
  Json json;
  json["problem"] = {{"m", problem.m},           {"k", problem.k},
                     {"n", problem.n},           {"dual", problem.is_dual},
                     {"dtype", arguments.dtype}, {"device", profile.name}};
  json["padded"] = {{"m", plan.padded_m}, {"k", plan.padded_k}, {"n", plan.padded_n}};
  json["tile_k"] = plan.tile_k;
  json["tile_count"] = plan.tile_count;
  json["l0_k"] = plan.l0_k;
  json["a_in_l0a"] = plan.is_a_in_l0a;
  json["vector_rows"] = plan.vector_rows;
  json["load_count"] = plan.load_count;
  json["move_count"] = plan.move_count;
  json["multiply_count"] = plan.multiply_count;
  json["store_count"] = plan.store_count;
  json["a_bytes"] = plan.a_bytes;
  json["b_bytes"] = plan.b_bytes;
  json["store_bytes"] = plan.store_bytes;
  json["buffers"] = Json::array();
  for (const StagedBuffer& buffer : plan.buffers) {
    json["buffers"].push_back({{"name", buffer.name},
                               {"used_bytes", buffer.used_bytes},
                               {"size_bytes", buffer.size_bytes},
                               {"holds", buffer.content}});
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

// What is wrong with a plan of the rules: (kind, sentence).
std::vector<std::pair<std::string, std::string>> atb_findings(const AtbPlan& plan,
                                                              const AtbProblem& problem) {
  const AtbTiling& tiling = plan.tiling;
  const AtbWorkspace& workspace = plan.workspace;
  std::vector<std::pair<std::string, std::string>> findings;
  if (!tiling.is_key_handled)
    findings.emplace_back(
        "error",
        fmt::format("no kernel handles key {}: there is no output, and no message", tiling.key));
  if (workspace.overflows())
    findings.emplace_back(
        "error", fmt::format("workspace overflow: partial results need {} bytes and have {}",
                             workspace.o_core_needed, workspace.o_core));
  const int64_t lost = (tiling.former_group_move < tiling.group ? tiling.former_batch : 0) +
                       (tiling.tail_group_move < tiling.group ? tiling.tail_batch : 0);
  if (lost > 0)
    findings.emplace_back(
        "warning",
        fmt::format("group sharing lost in {} of {}: K and V are read {:.2f} times in all", lost,
                    count_text(static_cast<int64_t>(problem.lengths.size()), "sequence"),
                    plan.read_factor()));
  if (tiling.active_cores < problem.core_count)
    findings.emplace_back(
        "warning", fmt::format("{} of {} cores have nothing to do",
                               problem.core_count - tiling.active_cores, problem.core_count));
  return findings;
}

std::string heads_text(int64_t batch, int64_t split, int64_t move, int64_t group) {
  return fmt::format("{}: {} heads an item, {} of a group of {} at once",
                     count_text(batch, "sequence"), split, move, group);
}

int64_t token_count(const AtbProblem& problem) {
  return std::accumulate(problem.lengths.begin(), problem.lengths.end(), int64_t{0});
}

int64_t kv_bytes(const AtbProblem& problem, int64_t tokens) {
  return tokens * 2 * problem.head_dim * 2;
}

void add_atb_cut(std::string& text, const AtbPlan& plan, const AtbArguments& arguments) {
  const AtbProblem& problem = arguments.problem;
  const AtbTiling& tiling = plan.tiling;
  add_fact(
      text, "attention",
      fmt::format("{}, {}", count_text(static_cast<int64_t>(problem.lengths.size()), "sequence"),
                  count_text(token_count(problem), "token")));
  add_fact(text, "heads",
           fmt::format("{} query heads over {} kv heads of {}", problem.q_heads, problem.kv_heads,
                       problem.head_dim));
  add_fact(text, "pages", fmt::format("{} tokens, {}", problem.page_tokens, arguments.dtype));
  add_fact(
      text, "device",
      fmt::format("{}, {}", arguments.device_name, count_text(problem.core_count, "cube core")));
  add_fact(text, "rules",
           fmt::format("atb, {}", tiling.is_kv_split_rule ? "BNS: sequences, heads and tokens"
                                                          : "BN: sequences and heads"));
  add_fact(text, "tiling key", std::to_string(tiling.key));
  add_fact(text, "active cores", fmt::format("{} of {}", tiling.active_cores, problem.core_count));
  add_fact(text, "head split",
           heads_text(tiling.former_batch, tiling.former_head_split, tiling.former_group_move,
                      tiling.group));
  if (tiling.tail_batch > 0)
    add_fact(text, "",
             heads_text(tiling.tail_batch, tiling.tail_head_split, tiling.tail_group_move,
                        tiling.group));
  add_fact(text, "kv split",
           fmt::format("{} tokens an item, {} of the longest sequence", tiling.kv_split_tokens,
                       count_text(tiling.kv_split_count, "part")));
}

std::string atb_text(const AtbPlan& plan, const AtbArguments& arguments) {
  const AtbProblem& problem = arguments.problem;
  const AtbLoads& loads = plan.loads;
  const AtbWorkspace& workspace = plan.workspace;
  const double mean = static_cast<double>(loads.total_cost) / static_cast<double>(plan.core_count);
  std::string text;
  add_atb_cut(text, plan, arguments);
  add_fact(text, "cut into",
           fmt::format("{}, {} at most on a core, {} of them empty",
                       count_text(loads.item_count, "item"), loads.largest_core_items,
                       loads.empty_item_count));
  add_fact(
      text, "balance",
      fmt::format("{} (a core reads {:.1f} tokens of a kv head in the mean, {} at most: {:.2f} "
                  "times the mean)",
                  format_share(1.0 / plan.imbalance()), mean, loads.largest_core_cost,
                  plan.imbalance()));
  add_fact(text, "kv read",
           fmt::format("{} into the cores, {:.2f} times what is needed",
                       exact_size_text(kv_bytes(problem, loads.total_cost)), plan.read_factor()));
  add_fact(text, "rows used",
           fmt::format("{} of those that are multiplied, the rest is padding",
                       format_share(share_of(loads.used_rows, loads.padded_rows))));
  add_fact(text, "workspace", exact_size_text(workspace.total()));
  add_fact(text, "partials",
           fmt::format("{} bytes given, {} needed", workspace.o_core, workspace.o_core_needed));
  const std::vector<std::pair<std::string, std::string>> findings = atb_findings(plan, problem);
  if (!findings.empty()) text += "\n";
  for (const auto& [kind, sentence] : findings) add_fact(text, kind, sentence);
  return text;
}

Json tiling_json(const AtbTiling& tiling) {
  return {{"rule", tiling.is_kv_split_rule ? "bns" : "bn"},
          {"key", tiling.key},
          {"key_handled", tiling.is_key_handled},
          {"active_cores", tiling.active_cores},
          {"former_batch", tiling.former_batch},
          {"former_head_split", tiling.former_head_split},
          {"former_group_move", tiling.former_group_move},
          {"tail_batch", tiling.tail_batch},
          {"tail_head_split", tiling.tail_head_split},
          {"tail_group_move", tiling.tail_group_move},
          {"group", tiling.group},
          {"kv_split_tokens", tiling.kv_split_tokens},
          {"kv_split_count", tiling.kv_split_count},
          {"block_tokens", tiling.block_tokens}};
}

Json workspace_json(const AtbWorkspace& workspace) {
  return {{"total_bytes", workspace.total()},
          {"s_bytes", workspace.s},
          {"p_bytes", workspace.p},
          {"o_tmp_bytes", workspace.o_tmp},
          {"go_bytes", workspace.go},
          {"o_core_bytes", workspace.o_core},
          {"o_core_needed_bytes", workspace.o_core_needed},
          {"l_bytes", workspace.l},
          {"l_needed_bytes", workspace.l_needed},
          {"k16_bytes", workspace.k16},
          {"v16_bytes", workspace.v16},
          {"overflows", workspace.overflows()}};
}

std::string atb_json(const AtbPlan& plan, const AtbArguments& arguments) {
  const AtbProblem& problem = arguments.problem;
  const AtbLoads& loads = plan.loads;
  Json json;
  json["problem"] = {{"lengths", problem.lengths},         {"q_heads", problem.q_heads},
                     {"kv_heads", problem.kv_heads},       {"head_dim", problem.head_dim},
                     {"page_tokens", problem.page_tokens}, {"kv_dtype", arguments.dtype},
                     {"device", arguments.device_name},    {"core_count", problem.core_count}};
  json["tiling"] = tiling_json(plan.tiling);
  json["workspace"] = workspace_json(plan.workspace);
  json["item_count"] = loads.item_count;
  json["empty_item_count"] = loads.empty_item_count;
  json["largest_core_items"] = loads.largest_core_items;
  json["total_cost"] = loads.total_cost;
  json["largest_core_cost"] = loads.largest_core_cost;
  json["balance"] = 1.0 / plan.imbalance();
  json["kv_bytes"] = kv_bytes(problem, loads.total_cost);
  json["read_factor"] = plan.read_factor();
  json["used_rows"] = loads.used_rows;
  json["padded_rows"] = loads.padded_rows;
  json["findings"] = Json::array();
  for (const auto& [kind, sentence] : atb_findings(plan, problem))
    json["findings"].push_back({{"kind", kind}, {"text", sentence}});
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace

Result<std::string> device_matmul_text(const DeviceMatmulArguments& arguments) {
  const DeviceProfile profile = GAPLESS_TRY(find_profile(arguments.device));
  const MatmulStaging plan = GAPLESS_TRY(plan_matmul_staging(profile, arguments.problem));
  return arguments.json ? staging_json(plan, arguments, profile)
                        : staging_text(plan, arguments, profile);
}

Result<std::string> atb_attention_text(const AtbArguments& arguments) {
  const AtbPlan plan = GAPLESS_TRY(plan_atb_attention(arguments.problem));
  return arguments.json ? atb_json(plan, arguments) : atb_text(plan, arguments);
}

}  // namespace gapless
