// SPDX-License-Identifier: Apache-2.0

#include "runtime/replay.h"

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "graph/reduce_edges.h"
#include "runtime/replay_state.h"
#include "runtime/stall_text.h"
#include "runtime/task_times.h"

namespace gapless {
namespace {

constexpr size_t kArenaAlignment = 4096;

struct FreeArena {
  void operator()(std::byte* memory) const { std::free(memory); }
};
using Arena = std::unique_ptr<std::byte, FreeArena>;

Result<Arena> allocate_arena(int64_t bytes) {
  const size_t rounded =
      (static_cast<size_t>(bytes) + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
  if (rounded == 0) return Arena();
  Arena arena(static_cast<std::byte*>(std::aligned_alloc(kArenaAlignment, rounded)));
  if (arena == nullptr) {
    return fail(ErrorCode::kSystem, "cannot allocate the arena: {} bytes for intermediates", bytes);
  }
  return arena;
}

}  // namespace

class Replay::Engine final : public Program {
 public:
  Engine(CpuDevice& device, Graph&& graph) : state_(device, std::move(graph), device.workers()) {}

  Result<void> prepare(const ReplayOptions& options);
  Result<StepSummary> run(std::span<const Binding> bindings);
  void cancel() { state_.stop.fetch_or(kStopCancel, std::memory_order_relaxed); }
  const ReplayState& state() const { return state_; }

  void work(Worker& worker) override { walk_step(state_, worker); }
  std::string describe_stall() const override;

 private:
  void begin_step();
  Result<StepSummary> end_step();

  ReplayState state_;
  Arena arena_;
  NameId step_name_ = intern_name("step");
};

Result<void> Replay::Engine::prepare(const ReplayOptions& options) {
  DeviceLimits limits = state_.device.limits();
  limits.arena_bytes = options.memory.arena_bytes;
  GAPLESS_TRY(validate(state_.graph, limits));
  state_.memory = GAPLESS_TRY(plan_memory(state_.graph, options.memory));
  if (!state_.memory.lifetime_edges.empty()) {
    GAPLESS_TRY(add_lifetime_edges(state_.graph, state_.memory));
    reduce_edges(state_.graph);
  }
  arena_ = GAPLESS_TRY(allocate_arena(state_.memory.peak_bytes));
  for (size_t i = 0; i < state_.graph.buffers.size(); ++i) {
    const int64_t offset = state_.memory.offsets[i];
    if (offset < 0 || arena_ == nullptr || !state_.boundary.is_used(i)) continue;
    state_.boundary.addresses()[i] = arena_.get() + offset;
  }
  state_.plan = GAPLESS_TRY(make_replay_plan(state_.graph, state_.scheduler));
  if (options.shadow) state_.checkers.resize(static_cast<size_t>(state_.device.worker_count()));
  return {};
}

void Replay::Engine::begin_step() {
  state_.scheduler.attach(state_.plan.links.data());
  ++state_.step;
  state_.failure = {};
  state_.stop.store(0, std::memory_order_relaxed);  // what was cancelled between steps
  state_.ends_left.store(static_cast<int32_t>(state_.plan.end_count), std::memory_order_relaxed);
  for (int i = 0; i < state_.device.worker_count(); ++i) {
    Worker& worker = state_.device.worker(i);
    worker.counts = {};
    worker.failure = {};
    worker.task.store(kNoTask, std::memory_order_relaxed);
    worker.ready.reserve(state_.plan.longest_list);
  }
  state_.is_recorded = is_recording();
  if (state_.is_recorded) {
    state_.trace_base = CpuDevice::reserve_trace_ids(state_.plan.trace_id_count);
    state_.begin_ticks = read_ticks();
  }
}

Result<StepSummary> Replay::Engine::end_step() {
  WorkerCounts total;
  for (int i = 0; i < state_.device.worker_count(); ++i) total += state_.device.worker(i).counts;
  const uint32_t stop = state_.stop.exchange(0, std::memory_order_relaxed);
  if ((stop & kStopFailure) != 0) {
    const FirstFailure& first = state_.failure;
    std::string block;
    const int32_t block_count = state_.graph.tasks[first.task].block_count;
    if (block_count > 1) block = fmt::format(", block {} of {}", first.block, block_count);
    return fail(ErrorCode::kInvalidInput, "{}{}: {} ({} failed, {} after them did not run)",
                task_text(state_.graph, first.task), block, first.message, total.failed,
                total.poisoned);
  }
  if ((stop & kStopCancel) != 0 && total.cancelled > 0) {
    return fail(ErrorCode::kInvalidInput,
                "step {} was cancelled: {} of {} tasks or blocks did not run", state_.step,
                total.cancelled, total.cancelled + total.run + total.skipped);
  }
  return StepSummary{total.run, total.skipped, total.stolen};
}

Result<StepSummary> Replay::Engine::run(std::span<const Binding> bindings) {
  GAPLESS_TRY(state_.device.enter());
  const Result<void> bound = state_.boundary.bind(state_.graph, bindings);
  if (!bound || state_.graph.task_count() == 0) {
    state_.device.leave();
    if (!bound) return bound.error();
    return StepSummary{};
  }
  Phase phase;
  phase.begin();
  begin_step();
  release_roots(state_, state_.device.worker(0));
  state_.device.start(*this);
  state_.device.join();
  phase.end(state_.device.orchestrator_lane(), step_name_, state_.step);
  Result<StepSummary> summary = end_step();
  state_.device.leave();
  return summary;
}

std::string Replay::Engine::describe_stall() const {
  const auto name_of = [this](uint32_t task) { return task_text(state_.graph, task); };
  std::string text = describe_workers(state_.device, name_of);
  for (const CohortNeed& need : state_.board.waiting()) {
    text += fmt::format("{}: waits for {} workers at once; {} are free of other gangs\n",
                        name_of(need.task), state_.board.worker_count(need),
                        state_.board.free_worker_count());
  }
  UnfinishedList unfinished(text);
  for (uint32_t i = 0; i < state_.graph.task_count(); ++i) {
    const RunTask& task = state_.plan.tasks[i];
    if (task.finished_step.load(std::memory_order_relaxed) == state_.step) continue;
    std::vector<uint32_t> missing;
    for (const Edge& edge : state_.graph.producers_of(i)) {
      const RunTask& producer = state_.plan.tasks[edge.task];
      if (producer.finished_step.load(std::memory_order_relaxed) != state_.step) {
        missing.push_back(edge.task);
      }
    }
    unfinished.add(name_of(i), missing, name_of);
  }
  unfinished.finish();
  return text;
}

Replay::Replay(std::unique_ptr<Engine> engine) : engine_(std::move(engine)) {}
Replay::~Replay() = default;
Replay::Replay(Replay&&) noexcept = default;
Replay& Replay::operator=(Replay&&) noexcept = default;

Result<Replay> Replay::prepare(CpuDevice& device, Graph graph, const ReplayOptions& options) {
  std::unique_ptr<Engine> engine = std::make_unique<Engine>(device, std::move(graph));
  GAPLESS_TRY(engine->prepare(options));
  return Replay(std::move(engine));
}

Result<StepSummary> Replay::run(std::span<const Binding> bindings) {
  return engine_->run(bindings);
}

void Replay::cancel() { engine_->cancel(); }
const Graph& Replay::graph() const { return engine_->state().graph; }
const MemoryPlan& Replay::memory_plan() const { return engine_->state().memory; }
std::byte* Replay::address(BufferId buffer) const {
  const std::vector<std::byte*>& addresses = engine_->state().boundary.addresses();
  return buffer.index() < addresses.size() ? addresses[buffer.index()] : nullptr;
}

}  // namespace gapless
