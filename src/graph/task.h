// SPDX-License-Identifier: Apache-2.0
//
// What a task is, before it is part of a graph: the description that an orchestrator hands in.
//
// The same description goes to a GraphBuilder (record once, replay often) and to a Stream (run
// while it is being submitted): both are a TaskSink, so that one function that describes a layer
// serves both.

#pragma once

#include <bit>
#include <cstdint>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/result.h"
#include "graph/view.h"

namespace gapless {

class TaskContext;  // what a kernel sees: graph/task_context.h

// Which core a task needs. A mixed task takes a cluster: one cube core and two vector cores.
enum class CoreKind : uint8_t { kAny = 0, kCube = 1, kVector = 2, kMixed = 3 };
inline constexpr int kCoreKindCount = 4;
std::string_view core_kind_name(CoreKind kind);

enum class Access : uint8_t { kIn = 0, kOut = 1, kInOut = 2 };
std::string_view access_name(Access access);
inline bool reads(Access access) { return access != Access::kOut; }
inline bool writes(Access access) { return access != Access::kIn; }

struct Argument {
  View view;
  Access access = Access::kIn;
};
inline Argument in(const View& view) { return {view, Access::kIn}; }
inline Argument out(const View& view) { return {view, Access::kOut}; }
inline Argument inout(const View& view) { return {view, Access::kInOut}; }

// A number for the kernel: fixed when the task is described, or read when it starts. What changes
// from step to step (a length, a page table's address) must be read: a fixed number is frozen into
// a recorded graph, and so is everything that was computed from one.
class Scalar {
 public:
  Scalar() = default;
  static Scalar fixed(int64_t value) { return Scalar(value, nullptr); }
  static Scalar fixed_real(double value) { return Scalar(std::bit_cast<int64_t>(value), nullptr); }
  // `*value` must stay readable as long as the task may run.
  static Scalar read_from(const int64_t* value) { return Scalar(0, value); }

  int64_t value() const { return from_ == nullptr ? fixed_ : *from_; }
  double real() const { return std::bit_cast<double>(value()); }
  bool is_fixed() const { return from_ == nullptr; }

 private:
  Scalar(int64_t fixed, const int64_t* from) : fixed_(fixed), from_(from) {}
  int64_t fixed_ = 0;
  const int64_t* from_ = nullptr;
};

// The task runs when `*value OP operand` holds when its last producer has ended; otherwise it is
// skipped and its successors go on. What a skipped task would have written is then undefined: an
// intermediate holds nothing from step to step, and its memory was somebody else's before. Who
// reads it must look at the same value.
enum class Comparison : uint8_t { kLess, kLessEqual, kEqual, kNotEqual, kGreaterEqual, kGreater };
struct Predicate {
  const int64_t* value = nullptr;  // nullptr: the task always runs
  Comparison comparison = Comparison::kNotEqual;
  int64_t operand = 0;
  bool holds() const;
};
// "<", ">=": as one writes it.
std::string_view comparison_text(Comparison comparison);

// What a task must move and compute, for priorities, rooflines and simulators. 0: not known.
struct CostHint {
  int64_t bytes = 0;
  int64_t flops = 0;
};

// A task. For a graph its number in order of submission; a stream packs its place and number.
struct TaskId {
  uint64_t id = ~uint64_t{0};
  bool operator==(const TaskId&) const = default;
};

struct KernelId {
  uint16_t id = 0xffff;
  bool operator==(const KernelId&) const = default;
};

// Called once a block. Reports failure through the context; must not throw (that ends the process).
using KernelFunction = void (*)(TaskContext& context);

struct Kernel {
  std::string name;
  KernelFunction run = nullptr;  // nullptr: only its cost is known; runs nothing
};

// Kernels by number, in the order in which they were added. Names are unique; at most 65,535.
class KernelTable {
 public:
  Result<KernelId> add(std::string name, KernelFunction run);
  const Kernel& operator[](KernelId id) const { return kernels_[id.id]; }
  bool contains(KernelId id) const { return id.id < kernels_.size(); }
  size_t size() const { return kernels_.size(); }

 private:
  std::vector<Kernel> kernels_;
  std::unordered_set<std::string> names_;
};

struct TaskSpec {
  KernelId kernel;
  CoreKind core = CoreKind::kAny;
  std::span<const Argument> arguments = {};
  std::span<const Scalar> scalars = {};
  int32_t block_count = 1;             // SPMD: the kernel is called once for each block
  bool gang = false;                   // all blocks start together and may wait for each other
  std::span<const TaskId> after = {};  // explicit edges
  Predicate predicate = {};
  CostHint cost = {};  // of all blocks together
  // For a cost that changes from step to step: one a block, read when a recorded step has run the
  // block, in place of `cost`. Must stay as long as the task may run, with block_count entries.
  const std::vector<CostHint>* block_costs = nullptr;
};
inline constexpr int kMaxArguments = 32;
inline constexpr int kMaxScalars = 16;
inline constexpr int32_t kMaxBlocks = 1 << 20;

enum class BufferKind : uint8_t {
  kExternal = 0,      // the caller's memory, bound when it runs
  kConstant = 1,      // the caller's, never written: not tracked, a write is an error
  kIntermediate = 2,  // the runtime's, lives as long as its scope and its tasks need it
};
std::string_view buffer_kind_name(BufferKind kind);

struct BufferSpec {
  std::string_view name = {};
  BufferKind kind = BufferKind::kIntermediate;
  int64_t bytes = 0;
  void* data = nullptr;  // external and constant: where it is; a graph may leave it for later
};

// Where tasks go.
class TaskSink {
 public:
  virtual ~TaskSink() = default;
  virtual Result<BufferId> add_buffer(const BufferSpec& spec) = 0;
  virtual Result<TaskId> add_task(const TaskSpec& spec) = 0;
  // Buffers added between the two live no longer than needed by tasks added between the two.
  virtual void begin_scope() = 0;
  virtual Result<void> end_scope() = 0;
};

}  // namespace gapless
