// SPDX-License-Identifier: Apache-2.0
//
// Programs of graph_fuzz: any bytes as buffers, scopes and tasks, some of them nonsense.
//
// A program is data, so that it can be handed to several sinks. Buffers and tasks go by their
// number among those that were accepted; a Feed gives each sink its own ids for them.

#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "graph/task.h"

namespace gapless {

inline constexpr size_t kMaxBuffers = 8;
inline constexpr size_t kBufferBytes = 256;
inline constexpr size_t kMaxTasks = 56;  // that the input asks for; with fills no more than 64

using Bytes = std::bitset<kBufferBytes>;
// The bytes of a view that was accepted.
Bytes bytes_of(const View& view);

struct BufferPlan {
  std::string name;
  BufferKind kind = BufferKind::kExternal;
  int64_t bytes = 0;
};

// A TaskSpec that owns what it points to. Buffers and tasks are numbers among those accepted.
struct TaskPlan {
  TaskSpec spec;
  std::vector<Argument> arguments;
  std::vector<Scalar> scalars;
  std::vector<uint64_t> after;
};

enum class Action { kBuffer, kBeginScope, kEndScope, kTask };
struct Operation {
  Action action = Action::kTask;
  size_t index = 0;         // of FuzzProgram::buffers or FuzzProgram::tasks
  bool is_closing = false;  // ends what the input left open
};

struct FuzzProgram {
  std::vector<BufferPlan> buffers;
  std::vector<TaskPlan> tasks;
  std::vector<Operation> operations;
  int ring_count = 1;
  bool shadow = false;
};

FuzzProgram decode_program(std::span<const uint8_t> input);

// Every written byte depends on every byte that is only read and, where it is read too, on what was
// there. Blocks share the bytes out among them, so that their order does not count.
void mix_3_kernel(TaskContext& context);
void mix_5_kernel(TaskContext& context);

template <typename Sink>
void add_kernels(Sink& sink) {
  GAPLESS_CHECK(sink.add_kernel("mix_3", mix_3_kernel).has_value());
  GAPLESS_CHECK(sink.add_kernel("mix_5", mix_5_kernel).has_value());
  GAPLESS_CHECK(sink.add_kernel("\"\n<none>", nullptr).has_value());
  GAPLESS_CHECK(!sink.add_kernel("mix_3", mix_5_kernel).has_value());
}
inline constexpr uint16_t kRunKernels = 2;  // the third runs nothing

// A refusal must say why.
template <typename T>
bool is_accepted(const Result<T>& result) {
  GAPLESS_CHECK(result.has_value() || !result.error().message.empty());
  return result.has_value();
}

// Hands a program to a sink and notes what was accepted under which number.
class Feed {
 public:
  Feed(const FuzzProgram& program, TaskSink& sink) : program_(program), sink_(sink) {
    // Room at once: sinks keep the addresses.
    memory_.reserve(program.buffers.size());
  }

  // False when it was refused; a refusal says why.
  bool apply(const Operation& operation);
  const std::vector<BufferId>& buffers() const { return buffers_; }
  const std::vector<size_t>& tasks() const { return tasks_; }  // accepted, of FuzzProgram::tasks
  // The caller's memory; intermediates have none.
  std::vector<std::vector<std::byte>>& memory() { return memory_; }

 private:
  bool add_buffer(const BufferPlan& plan);
  bool add_task(size_t index);

  const FuzzProgram& program_;
  TaskSink& sink_;
  std::vector<BufferId> buffers_;
  std::vector<std::vector<std::byte>> memory_;  // by accepted buffer
  std::vector<size_t> tasks_;
  std::vector<TaskId> task_ids_;
};

}  // namespace gapless
