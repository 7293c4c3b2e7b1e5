// SPDX-License-Identifier: Apache-2.0

#include "cli/simulated_profile.h"

#include <algorithm>
#include <filesystem>
#include <numeric>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "base/file.h"
#include "kernels/packed_rows.h"
#include "model/simulated_step.h"
#include "profile/profile.h"
#include "sim/machine.h"
#include "sim/qwen3_layer.h"
#include "sim/sim_trace.h"
#include "sim/tile_attention.h"

namespace gapless {
namespace {

constexpr int kPageTokens = 128;  // of the simulated kernels
constexpr int kMaxBatch = 256;
constexpr int kMaxSteps = 1000;
constexpr int64_t kMaxRecords = 10'000'000;  // of all steps: 2 GB

// How a layer is cut into tasks, by the name that --tiling has.
struct NamedTiling {
  std::string_view name;
  LayerTiling layer = LayerTiling::kBf16;
  DType dtype = DType::kBf16;
  DType kv_dtype = DType::kBf16;
  bool has_serial_tiles = false;
  bool has_page_tasks = false;  // attention alone, and no layer
  bool is_ours = false;         // the graph that CPU cores run; its types are the model's
  std::string_view source = {};
};

constexpr std::array<NamedTiling, 8> kTilings = {{
    {.name = "bf16", .source = "the layer of June 2026"},
    {.name = "a8w8",
     .layer = LayerTiling::kA8W8,
     .dtype = DType::kS8,
     .kv_dtype = DType::kS8,
     .source = "pypto-lib #642"},
    {.name = "a8w8-int8",
     .layer = LayerTiling::kA8W8Int8,
     .dtype = DType::kS8,
     .source = "pypto-lib #810"},
    {.name = "a8w8-split",
     .layer = LayerTiling::kA8W8Split,
     .dtype = DType::kS8,
     .kv_dtype = DType::kS8,
     .source = "a8w8 with gate and up apart, inferred"},
    {.name = "a8w8-serial",
     .layer = LayerTiling::kA8W8Split,
     .dtype = DType::kS8,
     .kv_dtype = DType::kS8,
     .has_serial_tiles = true,
     .source = "a8w8-split with one tile after another, assumed"},
    {.name = "a8w8-first",
     .layer = LayerTiling::kA8W8First,
     .dtype = DType::kS8,
     .kv_dtype = DType::kS8,
     .source = "pypto-lib #665, before #642"},
    {.name = "page-tasks",
     .has_page_tasks = true,
     .source = "four tasks of 2.05 us for each page and head group"},
    {.name = "ours", .is_ours = true, .source = "the graph that CPU cores run, cut for this chip"},
}};

const NamedTiling* find_tiling(std::string_view name) {
  const auto found = std::find_if(kTilings.begin(), kTilings.end(),
                                  [name](const NamedTiling& one) { return one.name == name; });
  return found == kTilings.end() ? nullptr : &*found;
}

// What makes an option that simulated devices refuse mean something.
enum class AllowedWith : uint8_t { kNothing, kOurs, kCompute };
struct RefusedOption {
  const char* name;
  std::string_view why;
  AllowedWith allowed_with = AllowedWith::kNothing;
};
constexpr std::string_view kCutByTiling = "how its layers are cut is --tiling";
constexpr std::array<RefusedOption, 10> kRefused = {{
    {"--threads", "its cores are those of the profile", AllowedWith::kCompute},
    {"--cpu-level", "it has no CPU's instructions", AllowedWith::kCompute},
    {"--max-length", "it holds no cache that could have more room"},
    {"--page", "pages of its kernels have 128 tokens", AllowedWith::kOurs},
    {"--no-validate", "it computes nothing that could be checked", AllowedWith::kCompute},
    {"--no-limits", "its limits are in the profile and need no measuring"},
    {"--dual-gate-up", kCutByTiling, AllowedWith::kOurs},
    {"--fuse-qk-rope", kCutByTiling, AllowedWith::kOurs},
    {"--defer-norm", kCutByTiling, AllowedWith::kOurs},
    {"--fuse-residual", kCutByTiling, AllowedWith::kOurs},
}};

// Profiles of the program are files that are called as they are.
std::vector<std::string> profile_names() {
  std::vector<std::string> names;
  for (const ProfileText& file : builtin_profile_texts())
    names.push_back(std::filesystem::path(file.path).stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

bool is_profile_path(const std::string& device) {
  return device.find('/') != std::string::npos || device.ends_with(".json");
}

bool is_allowed(const CLI::App& command, AllowedWith with) {
  const CLI::Option* tiling = command.get_option("--tiling");
  const bool is_ours = tiling->count() > 0 && tiling->as<std::string>() == "ours";
  const bool is_computed = command.count("--compute") > 0;
  return (with == AllowedWith::kOurs && is_ours) || (with == AllowedWith::kCompute && is_computed);
}

Result<DeviceProfile> make_profile(const SimulatedRequest& request) {
  DeviceProfile profile = GAPLESS_TRY(find_profile(request.model.device));
  for (const std::string& setting : request.simulated.settings) {
    const Result<void> is_set = set_parameter(profile, setting);
    if (!is_set) return fail(ErrorCode::kUsage, "--set: {}", is_set.error().message);
  }
  return profile;
}

// Of a checkpoint the config.json alone: its weights need not be there.
Result<ModelSource> find_config(const ModelOptions& options) {
  if (!is_directory(options.model)) return find_model(options);
  const std::string path = options.model + "/config.json";
  ModelSource source;
  const std::string text = GAPLESS_TRY(read_text_file(path));
  source.config = GAPLESS_TRY(parse_model_config(text, path));
  const std::filesystem::path folder = std::filesystem::absolute(options.model).lexically_normal();
  source.config.name = (folder.has_filename() ? folder : folder.parent_path()).filename().string();
  source.model_layers = source.config.layers;
  if (options.layers < 0 || options.layers > source.model_layers)
    return fail(ErrorCode::kInvalidInput, "--layers {}; model '{}' has 1 to {}", options.layers,
                source.config.name, source.model_layers);
  if (options.layers > 0) source.config.layers = options.layers;
  return source;
}

// The type that was typed, else the checkpoint's, else A8W8 as on other devices.
Result<DType> choose_dtype(const SimulatedRequest& request, const ModelConfig& config) {
  const ModelOptions& model = request.model;
  const bool is_checkpoint = is_directory(model.model);
  const DType dtype =
      model.dtype.empty() && !is_checkpoint ? DType::kS8 : weights_dtype(model, config);
  if (dtype == DType::kBf16 || dtype == DType::kS8) return dtype;
  if (!model.dtype.empty())
    return fail(ErrorCode::kUsage, "--dtype {}; --device {} has bf16 and a8w8", model.dtype,
                model.device);
  return fail(ErrorCode::kUsage,
              "{}: is of {}; --device {} has bf16 and a8w8: choose one with --dtype", model.model,
              weights_dtype_name(dtype), model.device);
}

Result<std::string> tiling_name(const SimulatedRequest& request, const ModelConfig& config) {
  if (!request.simulated.tiling.empty()) return request.simulated.tiling;
  return std::string(weights_dtype_name(GAPLESS_TRY(choose_dtype(request, config))));
}

// Types are those that the CPU would take, too.
Result<NamedTiling> choose_ours(const SimulatedRequest& request, const ModelConfig& config,
                                NamedTiling tiling) {
  const ModelOptions& model = request.model;
  if (request.simulated.attention_only)
    return fail(ErrorCode::kUsage, "--attention-only; --tiling {} has whole layers", tiling.name);
  if (request.batch > kMaxMatmulRows)
    return fail(ErrorCode::kUsage, "a batch of {}; --tiling {} takes 1 to {}", request.batch,
                tiling.name, kMaxMatmulRows);
  tiling.dtype = GAPLESS_TRY(choose_dtype(request, config));
  tiling.kv_dtype = model.kv_dtype.empty() ? config.dtype : *parse_dtype(model.kv_dtype);
  return tiling;
}

Result<NamedTiling> choose_tiling(const SimulatedRequest& request, const ModelConfig& config) {
  const std::string name = GAPLESS_TRY(tiling_name(request, config));
  const NamedTiling* tiling = find_tiling(name);
  if (tiling == nullptr) return fail(ErrorCode::kUsage, "--tiling {}: there is none", name);
  if (tiling->is_ours) return choose_ours(request, config, *tiling);
  if (request.simulated.compute)
    return fail(ErrorCode::kUsage,
                "--compute needs --tiling ours: tasks of the tiling {} have costs and no code",
                name);
  const ModelOptions& model = request.model;
  const std::string_view dtype = weights_dtype_name(tiling->dtype);
  if (!model.dtype.empty() && model.dtype != dtype)
    return fail(ErrorCode::kUsage, "--dtype {}; --tiling {} is of {}", model.dtype, name, dtype);
  const std::string_view kv_dtype = dtype_name(tiling->kv_dtype);
  if (!model.kv_dtype.empty() && model.kv_dtype != kv_dtype)
    return fail(ErrorCode::kUsage, "--kv-dtype {}; the tiling {} has keys and values in {}",
                model.kv_dtype, name, kv_dtype);
  if (!tiling->has_page_tasks) return *tiling;
  if (!request.simulated.attention_only)
    return fail(ErrorCode::kUsage, "--tiling {} is of attention alone: add --attention-only", name);
  if (config.layers != 1)
    return fail(ErrorCode::kUsage, "{} layers; --tiling {} has one", config.layers, name);
  return *tiling;
}

Result<std::vector<int32_t>> choose_lengths(const SimulatedRequest& request,
                                            const ModelConfig& config) {
  if (request.batch < 1 || request.batch > kMaxBatch)
    return fail(ErrorCode::kUsage, "a batch of {}; must be 1 to {} on a simulated device",
                request.batch, kMaxBatch);
  if (request.step_count < 1 || request.step_count > kMaxSteps)
    return fail(ErrorCode::kUsage, "{} steps; must be 1 to {} on a simulated device",
                request.step_count, kMaxSteps);
  std::vector<int32_t> lengths =
      GAPLESS_TRY(parse_lengths(request.lengths, request.batch, request.model.seed));
  const int32_t longest = *std::max_element(lengths.begin(), lengths.end());
  if (longest > config.max_positions)
    return fail(ErrorCode::kInvalidInput, "a length of {}; model '{}' has {} positions", longest,
                config.name, config.max_positions);
  return lengths;
}

Result<SimGraph> make_page_tasks(const ModelConfig& config, const std::vector<int32_t>& lengths) {
  const auto [least, most] = std::minmax_element(lengths.begin(), lengths.end());
  if (*least != *most)
    return fail(ErrorCode::kUsage,
                "--tiling page-tasks has sequences of one length, and these have {} to {}; give "
                "--ctx",
                *least, *most);
  return make_tile_attention_graph({.rows = std::ssize(lengths) * config.kv_heads,
                                    .pages = (*most + kPageTokens - 1) / kPageTokens});
}

// Of our graph.
LayerProblem our_problem(const ModelOptions& model, const NamedTiling& tiling,
                         const SimulatedProfile& profile) {
  return simulated_problem({.config = profile.config,
                            .weights = tiling.dtype,
                            .kv_dtype = tiling.kv_dtype,
                            .fusions = fusions_of(model, tiling.dtype),
                            .page_tokens = model.page_tokens,
                            .lengths = profile.lengths},
                           profile.device);
}

Result<SimGraph> make_graph(const ModelOptions& model, const NamedTiling& tiling,
                            const SimulatedProfile& profile) {
  const ModelConfig& config = profile.config;
  if (tiling.is_ours)
    return plan_simulated_step(our_problem(model, tiling, profile), profile.device);
  if (tiling.has_page_tasks) return make_page_tasks(config, profile.lengths);
  return make_layer_graph(
      {.tiling = tiling.layer,
       .layers = config.layers,
       .hidden = config.hidden,
       .q_heads = config.q_heads,
       .kv_heads = config.kv_heads,
       .head_dim = config.head_dim,
       .intermediate = config.intermediate,
       .lengths = std::vector<int64_t>(profile.lengths.begin(), profile.lengths.end()),
       .has_serial_tiles = tiling.has_serial_tiles,
       .attention_only = profile.attention_only});
}

// A time that is set for a kernel that nobody runs would change nothing.
Result<void> check_kernel_settings(const SimulatedProfile& profile, const SimGraph& graph) {
  constexpr std::string_view kPrefix = "kernel.";
  const std::vector<std::string>& kernels = graph.kernels();
  for (const std::string& setting : profile.settings) {
    if (!setting.starts_with(kPrefix)) continue;
    const size_t dot = setting.rfind('.', setting.find('='));
    const std::string name = setting.substr(kPrefix.size(), dot - kPrefix.size());
    if (std::find(kernels.begin(), kernels.end(), name) == kernels.end())
      return fail(ErrorCode::kUsage, "--set {}: no kernel is called {}; there are {}", setting,
                  name, fmt::join(kernels, ", "));
  }
  return {};
}

SimulatedStep measure_step(const DeviceProfile& device, const SimGraph& graph,
                           const SimResult& result, uint64_t seed) {
  SimulatedStep step{.seed = seed,
                     .makespan_ns = result.makespan_ns,
                     .submitted_ns = result.submitted_ns,
                     .window_wait_ns = result.window_wait_ns,
                     .pending_count = result.pending_count,
                     .overhead = measure_overhead(device, graph, result)};
  for (const std::vector<SimPhaseSpan>& thread : result.phases)
    for (const SimPhaseSpan& span : thread)
      step.phase_ns[static_cast<size_t>(span.phase)] += span.end_ns - span.begin_ns;
  int64_t cube_ns = 0;
  int64_t vector_ns = 0;
  for (const SimRecord& record : result.records) {
    const bool is_cube = record.core < static_cast<uint64_t>(device.cluster_count);
    (is_cube ? cube_ns : vector_ns) += record.end_ns - record.start_ns;
  }
  const double makespan_ns = static_cast<double>(std::max(result.makespan_ns, int64_t{1}));
  step.busy_cube_cores = static_cast<double>(cube_ns) / makespan_ns;
  step.busy_vector_cores = static_cast<double>(vector_ns) / makespan_ns;
  return step;
}

template <typename T>
void append(std::vector<T>& all, const std::vector<T>& more) {
  all.insert(all.end(), more.begin(), more.end());
}

// Steps of one device and one graph have the same lanes; the later one begins where the other ends,
// so that rows stay in order of time.
void append_step(Trace& all, const Trace& step) {
  std::vector<uint32_t> names;
  for (uint32_t i = 0; i < step.names.size(); ++i) names.push_back(all.names.intern(step.names[i]));
  const uint32_t first_row = static_cast<uint32_t>(all.tasks.size());
  append(all.spans.begin_ns, step.spans.begin_ns);
  append(all.spans.end_ns, step.spans.end_ns);
  append(all.spans.lane, step.spans.lane);
  append(all.spans.value, step.spans.value);
  for (const uint32_t name : step.spans.name) all.spans.name.push_back(names[name]);
  append(all.tasks.id, step.tasks.id);
  append(all.tasks.lane, step.tasks.lane);
  append(all.tasks.bytes, step.tasks.bytes);
  append(all.tasks.flops, step.tasks.flops);
  for (const uint32_t name : step.tasks.kernel) all.tasks.kernel.push_back(names[name]);
  for (size_t i = 0; i < all.tasks.time_ns.size(); ++i)
    append(all.tasks.time_ns[i], step.tasks.time_ns[i]);
  append(all.edges.kind, step.edges.kind);
  for (const uint32_t row : step.edges.producer) all.edges.producer.push_back(first_row + row);
  for (const uint32_t row : step.edges.consumer) all.edges.consumer.push_back(first_row + row);
}

int64_t sum_of_known(const std::vector<int64_t>& values) {
  int64_t sum = 0;
  for (const int64_t value : values) sum += value == kAbsent ? 0 : value;
  return sum;
}

Result<void> check_record_count(const SimulatedProfile& profile, int step_count) {
  const int64_t count = profile.record_count * step_count;
  if (count <= kMaxRecords) return {};
  return fail(ErrorCode::kInvalidInput,
              "{} steps of {} records are {}; a trace of at most {} is made", step_count,
              profile.record_count, count, kMaxRecords);
}

Result<void> run_steps(const SimulatedRequest& request, const SimGraph& graph,
                       SimulatedProfile& profile) {
  int64_t begin_ns = 0;
  for (int i = 0; i < request.step_count; ++i) {
    const uint64_t seed = request.model.seed + static_cast<uint64_t>(i);
    const SimResult result = GAPLESS_TRY(simulate(profile.device, graph, {.seed = seed}));
    profile.record_count = std::ssize(result.records);
    GAPLESS_TRY(check_record_count(profile, request.step_count));
    profile.steps.push_back(measure_step(profile.device, graph, result, seed));
    Trace trace = make_sim_trace(
        profile.device, graph, result,
        {.step = static_cast<uint32_t>(i), .begin_ns = begin_ns, .seed = request.model.seed});
    begin_ns = time_range(trace).end_ns;
    if (i > 0) {
      append_step(profile.trace, trace);
      continue;
    }
    profile.bytes = sum_of_known(trace.tasks.bytes);
    profile.flops = sum_of_known(trace.tasks.flops);
    profile.trace = std::move(trace);
  }
  return {};
}

// The table of the step in the middle.
Result<void> list_kernels(SimulatedProfile& profile) {
  std::vector<size_t> order(profile.steps.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return profile.steps[a].makespan_ns < profile.steps[b].makespan_ns;
  });
  // Of an even number the shorter of the two, as the report takes it.
  profile.middle = order[(order.size() - 1) / 2];
  const std::vector<StepWindow> windows = step_windows(profile.trace);
  if (profile.middle >= windows.size())
    return fail(ErrorCode::kInvalidInput, "{} steps were simulated and the trace has {}",
                profile.steps.size(), windows.size());
  profile.kernels =
      GAPLESS_TRY(kernel_times(profile.trace, {.window = windows[profile.middle].window,
                                               .lanes = core_lanes(profile.trace)}));
  for (const KernelTime& kernel : profile.kernels.kernels)
    profile.kernel_names.emplace_back(kernel_name(profile.trace, kernel));
  return {};
}

Result<void> compute_first_step(const SimulatedRequest& request, const NamedTiling& tiling,
                                SimulatedProfile& profile) {
  const SimulatedStep& first = profile.steps.front();
  profile.computed =
      GAPLESS_TRY(compute_simulated_step({.model = request.model,
                                          .problem = our_problem(request.model, tiling, profile),
                                          .device = profile.device,
                                          .seed = first.seed,
                                          .makespan_ns = first.makespan_ns,
                                          .validate = request.validate}));
  return {};
}

}  // namespace

std::string device_choices() {
  return fmt::format("{{cpu,cuda,{}}}", fmt::join(profile_names(), ","));
}

void add_simulated_options(CLI::App& command, SimulatedOptions& options) {
  std::vector<std::string> names;
  for (const NamedTiling& tiling : kTilings) names.emplace_back(tiling.name);
  command
      .add_option("--tiling", options.tiling,
                  "Simulated devices: how layers are cut into tasks:\n"
                  "bf16, a8w8, a8w8-int8, a8w8-split, a8w8-serial,\n"
                  "a8w8-first;\n"
                  "attention alone: page-tasks too; ours: the graph\n"
                  "of the CPU (default bf16 or a8w8, as the weights\n"
                  "are)")
      ->check(CLI::IsMember(names))
      ->option_text("NAME");
  command.add_flag("--attention-only", options.attention_only,
                   "Simulated devices: the attention of each layer,\nand nothing else");
  command.add_flag("--compute", options.compute,
                   "Simulated devices, --tiling ours: the CPU kernels\n"
                   "compute the step in the order of its starts, and\n"
                   "it is checked");
  command
      .add_option("--set", options.settings,
                  "Simulated devices: change a number of the\nprofile; may be repeated")
      ->allow_extra_args(false)
      ->option_text("NAME=NUMBER");
}

bool is_simulated(const std::string& device) { return device != "cpu" && device != "cuda"; }

Result<void> check_simulated_options(const CLI::App& command, const std::string& device) {
  if (!is_simulated(device)) {
    for (const char* name : {"--tiling", "--attention-only", "--compute", "--set"}) {
      if (command.count(name) > 0)
        return fail(ErrorCode::kUsage, "{} is of simulated devices; --device {} is none", name,
                    device);
    }
    return {};
  }
  const std::vector<std::string> names = profile_names();
  if (!is_profile_path(device) && std::find(names.begin(), names.end(), device) == names.end())
    return fail(ErrorCode::kUsage,
                "--device {}; there are cpu, cuda, the simulated {}, and profiles in files that "
                "end in .json",
                device, fmt::join(names, ", "));
  for (const RefusedOption& option : kRefused) {
    if (command.count(option.name) > 0 && !is_allowed(command, option.allowed_with))
      return fail(ErrorCode::kUsage, "{} means nothing on the simulated device {}: {}", option.name,
                  device, option.why);
  }
  return {};
}

Result<SimulatedProfile> profile_simulated(const SimulatedRequest& request) {
  SimulatedProfile profile;
  profile.device = GAPLESS_TRY(make_profile(request));
  profile.settings = request.simulated.settings;
  ModelSource source = GAPLESS_TRY(find_config(request.model));
  profile.model_layers = source.model_layers;
  profile.config = std::move(source.config);
  const NamedTiling tiling = GAPLESS_TRY(choose_tiling(request, profile.config));
  profile.dtype = weights_dtype_name(tiling.dtype);
  profile.kv_dtype = dtype_name(tiling.kv_dtype);
  profile.tiling = tiling.name;
  profile.tiling_source = tiling.source;
  profile.attention_only = request.simulated.attention_only;
  profile.has_given_times = tiling.has_page_tasks;
  profile.page_tokens = request.model.page_tokens;
  profile.lengths = GAPLESS_TRY(choose_lengths(request, profile.config));
  const SimGraph graph = GAPLESS_TRY(make_graph(request.model, tiling, profile));
  GAPLESS_TRY(check_kernel_settings(profile, graph));
  profile.task_count = graph.task_count();
  profile.edge_count = static_cast<int64_t>(graph.edge_count());
  GAPLESS_TRY(run_steps(request, graph, profile));
  GAPLESS_TRY(list_kernels(profile));
  if (request.simulated.compute) GAPLESS_TRY(compute_first_step(request, tiling, profile));
  return profile;
}

}  // namespace gapless
