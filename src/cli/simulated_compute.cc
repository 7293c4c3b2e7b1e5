// SPDX-License-Identifier: Apache-2.0

#include "cli/simulated_compute.h"

#include <algorithm>
#include <bit>
#include <memory>
#include <utility>
#include <vector>

#include "model/simulated_step.h"
#include "profile/profile_parts.h"
#include "sim/machine.h"

namespace gapless {
namespace {

class StepComputer {
 public:
  StepComputer(const ComputeRequest& request, CpuDecoder& decoder, int core_count)
      : request_(request), decoder_(decoder), core_count_(core_count), input_(decoder) {
    options_.lengths = request.problem.lengths;
    options_.seed = request.model.seed;
  }

  Result<ComputedStep> compute() {
    GAPLESS_TRY(check_profile_options(options_, decoder_));
    GAPLESS_TRY(input_.add(options_, [this](int sequence, int new_length, uint64_t seed) {
      return decoder_.fill_sequence(sequence, new_length, seed);
    }));
    const int layers = decoder_.config().layers;
    const std::vector<float> first = GAPLESS_TRY(compute_layers(1));
    if (request_.validate) GAPLESS_TRY(validate(first));
    if (layers > 1) GAPLESS_TRY(compute_layers(layers));
    if (makespan_ns_ != request_.makespan_ns)
      return fail(ErrorCode::kInvalidInput,
                  "internal error: the computed step takes {} ns, the one that was planned without "
                  "weights {} ns",
                  makespan_ns_, request_.makespan_ns);
    result_.core_count = core_count_;
    result_.level = cpu_level_name(decoder_.options().level);
    return std::move(result_);
  }

 private:
  // On the cores, then in the order of the simulation; what the latter gives.
  Result<std::vector<float>> compute_layers(int layers) {
    input_.take_back();
    const std::span<const float> y =
        GAPLESS_TRY(decoder_.step_hidden(input_.sequences(), input_.x(), layers));
    const std::vector<float> expected(y.begin(), y.end());
    const std::unique_ptr<ReplannedStep> step =
        GAPLESS_TRY(ReplannedStep::create(decoder_, request_.problem.core_count, layers));
    const SimGraph graph =
        GAPLESS_TRY(simulate_step_graph(step->graph(), request_.problem, request_.device));
    const SimResult simulated =
        GAPLESS_TRY(simulate(request_.device, graph, {.seed = request_.seed, .has_phases = false}));
    const std::vector<TaskBlock> order = start_order(graph, simulated);
    const Result<std::vector<float>> values = step->run(input_.x(), order);
    if (!values)
      return fail(ErrorCode::kInvalidInput, "internal error: {}", values.error().message);
    GAPLESS_TRY(check_equal(*values, expected));
    makespan_ns_ = simulated.makespan_ns;
    result_.block_count = std::ssize(order);
    result_.value_count = std::ssize(*values);
    return *values;
  }

  Result<void> check_equal(std::span<const float> values, std::span<const float> expected) const {
    const auto is_equal = [](float a, float b) {
      return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
    };
    const auto [first, other] =
        std::mismatch(values.begin(), values.end(), expected.begin(), is_equal);
    if (first == values.end()) return {};
    int64_t count = 0;
    for (size_t i = 0; i < values.size(); ++i) count += is_equal(values[i], expected[i]) ? 0 : 1;
    const int64_t place = first - values.begin();
    return fail(ErrorCode::kInvalidInput,
                "{} of {} values differ from those that cores give; the first in row {}, column "
                "{}: {} instead of {}",
                count, values.size(), place / decoder_.config().hidden,
                place % decoder_.config().hidden, *first, *other);
  }

  Result<void> validate(std::span<const float> values) {
    result_.validation = GAPLESS_TRY(check_against_reference(
        first_layer_of(decoder_, input_), input_, values, options_, core_count_));
    return {};
  }

  const ComputeRequest& request_;
  CpuDecoder& decoder_;
  const int core_count_;
  ProfileOptions options_;
  StepInput input_;
  int64_t makespan_ns_ = 0;
  ComputedStep result_;
};

}  // namespace

Result<ComputedStep> compute_simulated_step(const ComputeRequest& request) {
  const LayerProblem& problem = request.problem;
  ModelOptions options = request.model;
  options.layers = problem.config.layers;
  const ModelSource source = GAPLESS_TRY(find_model(options));
  const std::unique_ptr<CpuDevice> device = GAPLESS_TRY(make_device(options));
  const DecoderNeeds needs = {
      .max_sequences = problem.rows,
      .max_length = *std::max_element(problem.lengths.begin(), problem.lengths.end()),
      .with_head = false};
  const CpuModel model =
      GAPLESS_TRY(load_cpu_model(source, options, problem.weights, needs, *device));
  return StepComputer(request, *model.decoder, device->worker_count()).compute();
}

}  // namespace gapless
