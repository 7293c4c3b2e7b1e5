// SPDX-License-Identifier: Apache-2.0
//
// gapless plan layer: the kernels of one layer of a decode step, how each is cut into tasks, and
// what each moves and computes. The graph that `gapless profile` runs is made from the same table.

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "base/quantity.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "kernels/core_loads.h"
#include "kernels/packed_rows.h"
#include "model/deal.h"
#include "model/layer_plan.h"
#include "profile/profile.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

struct LayerArguments {
  ModelOptions model;
  int batch = 16;
  std::string lengths = "4096";
  bool json = false;
};

std::string size_text(int64_t bytes) { return format_bytes(static_cast<uint64_t>(bytes)); }

std::string layer_text(const LayerProblem& problem, const LayerPlan& plan) {
  const auto [least, most] = std::minmax_element(problem.lengths.begin(), problem.lengths.end());
  const std::string lengths =
      *least == *most ? std::to_string(*most) : fmt::format("{} to {}", *least, *most);
  const std::string text = fmt::format(
      "a layer of {}, {} weights, {} of {} tokens, for {} core{} ({})\n\n", problem.config.name,
      weights_dtype_name(problem.weights),
      problem.rows == 1 ? "a sequence" : fmt::format("{} sequences", problem.rows), lengths,
      problem.core_count, problem.core_count == 1 ? "" : "s", cpu_level_name(problem.level));
  std::vector<TableRow> rows = {
      {"KERNEL", "GROUP", "TASKS", "LARGEST TASK", "BYTES", "FROM MEMORY", "FLOPS", "FLOPS/BYTE"}};
  const auto add = [&](const std::string& name, std::string_view group, int64_t tasks,
                       const std::string& tile, int64_t bytes, int64_t memory, int64_t flops) {
    rows.push_back({name, std::string(group), std::to_string(tasks), tile, size_text(bytes),
                    memory == 0 ? "" : size_text(memory), format_count(static_cast<double>(flops)),
                    fmt::format("{:.2f}", static_cast<double>(flops) /
                                              static_cast<double>(std::max<int64_t>(bytes, 1)))});
  };
  for (const KernelPlan& kernel : plan.kernels)
    add(kernel.name, layer_group_name(kernel.kernel), kernel.task_count, kernel.tile, kernel.bytes,
        kernel.weight_bytes, kernel.flops);
  add("all", "", plan.task_count, "", plan.bytes, plan.weight_bytes, plan.flops);
  return text + align_columns(rows, "llrlrrrr") +
         fmt::format("\nattention workspace  {} ({} bytes)\n",
                     size_text(plan.attention_workspace_bytes), plan.attention_workspace_bytes);
}

std::string layer_json(const LayerProblem& problem, const LayerPlan& plan) {
  Json kernels = Json::array();
  for (const KernelPlan& kernel : plan.kernels)
    kernels.push_back({{"name", kernel.name},
                       {"group", layer_group_name(kernel.kernel)},
                       {"task_count", kernel.task_count},
                       {"largest_task", kernel.tile},
                       {"bytes", kernel.bytes},
                       {"memory_bytes", kernel.weight_bytes},
                       {"flops", kernel.flops}});
  const Json json = {{"model", problem.config.name},
                     {"dtype", weights_dtype_name(problem.weights)},
                     {"kv_dtype", dtype_name(problem.kv_dtype)},
                     {"rows", problem.rows},
                     {"lengths", problem.lengths},
                     {"core_count", problem.core_count},
                     {"cpu_level", cpu_level_name(problem.level)},
                     {"task_count", plan.task_count},
                     {"bytes", plan.bytes},
                     {"memory_bytes", plan.weight_bytes},
                     {"flops", plan.flops},
                     {"attention_workspace_bytes", plan.attention_workspace_bytes},
                     {"kernels", kernels}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<int> run_plan_layer(const LayerArguments& arguments) {
  const ModelOptions& options = arguments.model;
  if (arguments.batch < 1 || arguments.batch > kMaxMatmulRows)
    return fail(ErrorCode::kUsage, "a batch of {}; must be 1 to {}", arguments.batch,
                kMaxMatmulRows);
  const ModelSource source = GAPLESS_TRY(find_model(options));
  LayerProblem problem;
  problem.config = source.config;
  problem.weights = weights_dtype(options, source.config);
  problem.kv_dtype =
      options.kv_dtype.empty() ? source.config.dtype : *parse_dtype(options.kv_dtype);
  problem.fusions = fusions_of(options, problem.weights);
  problem.page_tokens = options.page_tokens;
  problem.rows = arguments.batch;
  problem.core_count = options.threads > 0 ? options.threads : usable_cpu_count();
  // A level that this machine does not have can be planned for all the same.
  problem.level = options.cpu_level.empty() ? GAPLESS_TRY(choose_cpu_level())
                                            : *parse_cpu_level(options.cpu_level);
  problem.lengths = GAPLESS_TRY(parse_lengths(arguments.lengths, arguments.batch, options.seed));
  const LayerPlan plan = GAPLESS_TRY(plan_layer(problem));
  GAPLESS_TRY(print(arguments.json ? layer_json(problem, plan) : layer_text(problem, plan)));
  return 0;
}

}  // namespace

RunCommand define_plan_layer(CLI::App& command) {
  const std::shared_ptr<LayerArguments> arguments = std::make_shared<LayerArguments>();
  ModelOptions& model = arguments->model;
  model.model = "qwen3-14b";
  model.dtype = "a8w8";
  command
      .add_option("--model", model.model,
                  "A size like qwen3-0.6b or the folder of a\ncheckpoint (default qwen3-14b)")
      ->option_text("MODEL");
  command.add_option("--batch", arguments->batch, "Sequences in a step, 1 to 64 (default 16)")
      ->option_text("N");
  command
      .add_option("--lengths", arguments->lengths,
                  "Tokens of all, of each, or a range to spread\nthem over (default 4096)")
      ->option_text("N|A,B,...|A..B");
  command.add_option("--dtype", model.dtype, "Of the weights (default a8w8)")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "a8w8"}))
      ->option_text("bf16|f16|f32|a8w8");
  command.add_option("--kv-dtype", model.kv_dtype, "Of keys and values (default: the model's)")
      ->check(CLI::IsMember({"bf16", "f16", "f32", "s8"}))
      ->option_text("bf16|f16|f32|s8");
  command.add_option("--page", model.page_tokens, "Tokens of a cache page (default 128)")
      ->option_text("TOKENS");
  command.add_option("--cores", model.threads, "Cores to plan for (default: those here)")
      ->check(CLI::Range(1, kMaxPlanCores).description(""))
      ->option_text("N");
  command
      .add_option("--cpu-level", model.cpu_level, "Instructions to plan for (default: best here)")
      ->check(CLI::IsMember({"portable", "avx2", "avx2-vnni", "avx512", "avx512-bf16"}))
      ->option_text("NAME");
  add_fusion_options(command, model);
  command.add_flag("--json", arguments->json, "The same facts as JSON, with exact numbers");
  command.footer(
      "Examples:\n"
      "  gapless plan layer --model qwen3-14b --batch 16\n"
      "  gapless plan layer --model qwen3-32b --dtype bf16 --batch 1 --lengths 32768\n"
      "  gapless plan layer --dual-gate-up off --cores 24");
  return [arguments] { return run_plan_layer(*arguments); };
}

}  // namespace gapless
