// SPDX-License-Identifier: Apache-2.0

#include "runtime/serial_run.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "base/mix_bits.h"
#include "graph/task_context.h"
#include "runtime/shadow.h"

namespace gapless {
namespace {

// splitmix64: small, and the same everywhere.
class RandomNumbers {
 public:
  explicit RandomNumbers(uint64_t seed) : state_(seed) {}
  uint64_t next() {
    const uint64_t bits = mix_bits(state_);
    state_ += kMixIncrement;
    return bits;
  }
  size_t below(size_t limit) { return static_cast<size_t>(next() % limit); }

 private:
  uint64_t state_;
};

// Which bytes of all memory a block has changed without having declared them. A byte that was
// written with the value it had does not show.
class MemoryWatch {
 public:
  MemoryWatch(const Graph& graph, const GraphMemory& memory)
      : graph_(graph), memory_(memory), before_(memory.guarded()) {}

  // Since the last call, or the begin. Empty: none.
  std::string undeclared_write(uint32_t task);

 private:
  std::string find_in(uint32_t task, uint32_t buffer) const;
  bool is_declared(uint32_t task, uint32_t buffer, int64_t byte) const;

  const Graph& graph_;
  const GraphMemory& memory_;
  std::vector<LineBytes> before_;
};

std::string MemoryWatch::undeclared_write(uint32_t task) {
  for (uint32_t buffer = 0; buffer < before_.size(); ++buffer) {
    const LineBytes& now = memory_.guarded()[buffer];
    if (now == before_[buffer]) continue;
    std::string found = find_in(task, buffer);
    if (!found.empty()) return found;
    before_[buffer] = now;
  }
  return {};
}

std::string MemoryWatch::find_in(uint32_t task, uint32_t buffer) const {
  const LineBytes& before = before_[buffer];
  const LineBytes& now = memory_.guarded()[buffer];
  const auto byte_at = [](size_t at) {
    return static_cast<int64_t>(at) - static_cast<int64_t>(GraphMemory::kGuardBytes);
  };
  const auto is_fault = [&](size_t at) {
    return now[at] != before[at] && !is_declared(task, buffer, byte_at(at));
  };
  size_t first = 0;
  while (first < now.size() && !is_fault(first)) ++first;
  if (first == now.size()) return {};
  size_t last = first;
  while (last + 1 < now.size() && is_fault(last + 1)) ++last;
  const GraphBuffer& facts = graph_.buffers[buffer];
  return fmt::format("wrote bytes {}..{} of buffer {} ('{}', {} bytes), which it did not declare",
                     byte_at(first), byte_at(last), buffer, facts.name, facts.bytes);
}

bool MemoryWatch::is_declared(uint32_t task, uint32_t buffer, int64_t byte) const {
  if (byte < 0) return false;
  for (const Argument& argument : graph_.arguments_of(task)) {
    const View& view = argument.view;
    if (view.buffer.index() != buffer || !writes(argument.access)) continue;
    const int64_t element = byte / dtype_bytes(view.dtype);
    if (ElementSet(view).run_from(element - view.offset) > 0) return true;
  }
  return false;
}

class SerialRun {
 public:
  SerialRun(const Graph& graph, GraphMemory& memory, const SerialOptions& options);
  Result<SerialSummary> run();

 private:
  Result<void> check() const;
  void become_ready(uint32_t task);
  uint32_t take_ready();
  Result<void> run_task(uint32_t task);
  Result<void> run_block(uint32_t task, int32_t block);

  const Graph& graph_;
  GraphMemory& memory_;
  const bool in_order_;
  RandomNumbers random_;
  std::vector<uint32_t> waits_for_;     // by task: producers that have not ended
  std::vector<bool> is_skipped_;        // by task: its predicate did not hold when it became ready
  std::vector<uint32_t> ready_;         // in order of the numbers a heap, the smallest first
  std::vector<ShadowChecker> checker_;  // one in shadow mode, else none
  std::vector<MemoryWatch> watch_;      // as well
  SerialSummary summary_;
};

SerialRun::SerialRun(const Graph& graph, GraphMemory& memory, const SerialOptions& options)
    : graph_(graph),
      memory_(memory),
      in_order_(options.order_seed == 0),
      random_(options.order_seed),
      waits_for_(graph.task_count()),
      is_skipped_(graph.task_count(), false) {
  if (!options.shadow) return;
  checker_.emplace_back();
  watch_.emplace_back(graph, memory);
}

Result<void> SerialRun::check() const {
  GAPLESS_TRY(topological_order(graph_));
  for (uint32_t task = 0; task < graph_.task_count(); ++task) {
    const GraphTask& facts = graph_.tasks[task];
    if (!facts.gang || facts.block_count == 1) continue;
    return fail(
        ErrorCode::kInvalidInput,
        "{}: a gang of {} blocks cannot be run serially: its blocks may wait for each other",
        task_text(graph_, task), facts.block_count);
  }
  return {};
}

Result<SerialSummary> SerialRun::run() {
  GAPLESS_TRY(check());
  for (uint32_t task = 0; task < graph_.task_count(); ++task) {
    waits_for_[task] = static_cast<uint32_t>(graph_.producers_of(task).size());
    if (waits_for_[task] == 0) become_ready(task);
  }
  while (!ready_.empty()) {
    const uint32_t task = take_ready();
    if (is_skipped_[task]) {
      ++summary_.skipped_count;
    } else {
      GAPLESS_TRY(run_task(task));
    }
    for (const Edge& edge : graph_.successors_of(task)) {
      if (--waits_for_[edge.task] == 0) become_ready(edge.task);
    }
  }
  return summary_;
}

void SerialRun::become_ready(uint32_t task) {
  is_skipped_[task] = !graph_.tasks[task].predicate.holds();
  ready_.push_back(task);
  if (in_order_) std::push_heap(ready_.begin(), ready_.end(), std::greater<>());
}

uint32_t SerialRun::take_ready() {
  if (in_order_) {
    std::pop_heap(ready_.begin(), ready_.end(), std::greater<>());
  } else {
    std::swap(ready_[random_.below(ready_.size())], ready_.back());
  }
  const uint32_t task = ready_.back();
  ready_.pop_back();
  return task;
}

Result<void> SerialRun::run_task(uint32_t task) {
  std::vector<int32_t> blocks(static_cast<size_t>(graph_.tasks[task].block_count));
  std::iota(blocks.begin(), blocks.end(), 0);
  for (size_t i = blocks.size(); !in_order_ && i > 1; --i) {
    std::swap(blocks[i - 1], blocks[random_.below(i)]);
  }
  for (const int32_t block : blocks) GAPLESS_TRY(run_block(task, block));
  return {};
}

Result<void> SerialRun::run_block(uint32_t task, int32_t block) {
  const GraphTask& facts = graph_.tasks[task];
  const std::span<const Argument> arguments = graph_.arguments_of(task);
  const std::span<const Scalar> scalars = graph_.scalars_of(task);
  TaskFailure failure;
  TaskContext context({.arguments = arguments.data(),
                       .scalars = scalars.data(),
                       .buffers = memory_.addresses().data(),
                       .argument_count = static_cast<int>(arguments.size()),
                       .scalar_count = static_cast<int>(scalars.size()),
                       .block_index = block,
                       .block_count = facts.block_count,
                       .checker = checker_.empty() ? nullptr : &checker_[0],
                       .failure = &failure});
  if (!checker_.empty()) checker_[0].begin_task(arguments);
  const Kernel& kernel = graph_.kernels[facts.kernel];
  if (kernel.run != nullptr) kernel.run(context);
  ++summary_.run_count;

  // What was not declared comes first: a failure may be its consequence.
  std::string fault;
  if (!checker_.empty()) fault = checker_[0].violation();
  if (fault.empty() && !watch_.empty()) fault = watch_[0].undeclared_write(task);
  if (fault.empty() && failure.failed) fault = failure.message;
  if (fault.empty() && !failure.failed) return {};
  std::string which;
  if (facts.block_count > 1) which = fmt::format(", block {} of {}", block, facts.block_count);
  return fail(ErrorCode::kInvalidInput, "{}{}: {}", task_text(graph_, task), which, fault);
}

void fill_with_pattern(std::span<std::byte> bytes, uint64_t seed) {
  RandomNumbers random(seed);
  for (size_t i = 0; i < bytes.size(); i += sizeof(uint64_t)) {
    const uint64_t value = random.next();
    std::memcpy(bytes.data() + i, &value, std::min(sizeof(value), bytes.size() - i));
  }
}

}  // namespace

GraphMemory::GraphMemory(const Graph& graph, uint64_t seed) {
  RandomNumbers seeds(seed);
  for (const GraphBuffer& buffer : graph.buffers) {
    const size_t bytes = static_cast<size_t>(buffer.bytes);
    LineBytes& memory = memory_.emplace_back(bytes + 2 * kGuardBytes);
    fill_with_pattern(memory, seeds.next());
    addresses_.push_back(memory.data() + kGuardBytes);
    if (buffer.kind == BufferKind::kIntermediate || buffer.data == nullptr) continue;
    std::memcpy(addresses_.back(), buffer.data, bytes);
  }
}

std::string GraphMemory::first_difference(const Graph& graph, const GraphMemory& a,
                                          const GraphMemory& b) {
  GAPLESS_CHECK(a.addresses_.size() == graph.buffers.size());
  GAPLESS_CHECK(b.addresses_.size() == graph.buffers.size());
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    if (buffer.kind == BufferKind::kIntermediate) continue;
    const std::span<const std::byte> bytes_of_a(a.addresses_[i], static_cast<size_t>(buffer.bytes));
    const auto [at_a, at_b] = std::mismatch(bytes_of_a.begin(), bytes_of_a.end(), b.addresses_[i]);
    if (at_a == bytes_of_a.end()) continue;
    return fmt::format("buffer {} ('{}') differs at byte {}: {} and {}", i, buffer.name,
                       at_a - bytes_of_a.begin(), std::to_integer<int>(*at_a),
                       std::to_integer<int>(*at_b));
  }
  return {};
}

Result<SerialSummary> run_serially(const Graph& graph, GraphMemory& memory,
                                   const SerialOptions& options) {
  return SerialRun(graph, memory, options).run();
}

Result<void> run_in_many_orders(const Graph& graph, int order_count, uint64_t seed) {
  GraphMemory expected(graph, seed);
  GAPLESS_TRY(run_serially(graph, expected));
  RandomNumbers order_seeds(seed);
  for (int order = 0; order < order_count; ++order) {
    const uint64_t order_seed = std::max<uint64_t>(order_seeds.next(), 1);  // 0 is no random order
    GraphMemory memory(graph, seed);
    const Result<SerialSummary> done = run_serially(graph, memory, {.order_seed = order_seed});
    const std::string fault =
        done ? GraphMemory::first_difference(graph, expected, memory) : done.error().message;
    if (fault.empty()) continue;
    return fail(ErrorCode::kInvalidInput, "random order {} of {} (order_seed {:#x}): {}", order,
                order_count, order_seed, fault);
  }
  return {};
}

}  // namespace gapless
