// SPDX-License-Identifier: Apache-2.0
//
// What the tests of streams share: a stream that takes kernels when they are first used, and
// kernels whose results tell in which order they ran.

#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/task_context.h"
#include "runtime/stream.h"
#include "runtime/test_graphs.h"

namespace gapless {

using Numbers = std::vector<int64_t>;

// A Stream that takes each kernel when it is first used, and every error as the test's end.
class TestStream {
 public:
  explicit TestStream(CpuDevice& device, const StreamOptions& options = {})
      : stream_(must(Stream::open(device, options))) {}

  Stream* operator->() { return stream_.get(); }

  KernelId kernel(const std::string& name, KernelFunction run) {
    const auto [known, is_new] = kernels_.try_emplace(name);
    if (is_new) known->second = must(stream_->add_kernel(name, run));
    return known->second;
  }
  Result<TaskId> try_add(const TestTask& task) {
    return stream_->add_task(spec_of(task, kernel(task.name, task.run)));
  }
  TaskId add(const TestTask& task) { return must(try_add(task)); }

  // All of the caller's numbers, as an external buffer.
  View share(std::string_view name, Numbers& numbers) {
    return view_of(name, BufferKind::kExternal, numbers);
  }
  View share_constant(std::string_view name, Numbers& numbers) {
    return view_of(name, BufferKind::kConstant, numbers);
  }
  View add_intermediate(std::string_view name, int64_t count) {
    const int64_t bytes = count * dtype_bytes(DType::kS64);
    return vector_view(must(stream_->add_buffer({.name = name, .bytes = bytes})), count);
  }
  StreamSummary wait() { return must(stream_->wait()); }

 private:
  View view_of(std::string_view name, BufferKind kind, Numbers& numbers) {
    const int64_t count = static_cast<int64_t>(numbers.size());
    const BufferSpec spec = {.name = name,
                             .kind = kind,
                             .bytes = count * dtype_bytes(DType::kS64),
                             .data = numbers.data()};
    return vector_view(must(stream_->add_buffer(spec)), count);
  }

  std::unique_ptr<Stream> stream_;
  std::unordered_map<std::string, KernelId> kernels_;
};

// Arguments: to. Scalars: what to write.
inline void fill_kernel(TaskContext& context) {
  int64_t* const to = context.data<int64_t>(0);
  for (int64_t i = 0; i < context.argument(0).view.shape[0]; ++i) to[i] = context.scalar(0);
}
inline TestTask fill_task(const View& to, int64_t value) {
  return {.name = "fill",
          .run = fill_kernel,
          .scalars = {Scalar::fixed(value)},
          .arguments = {out(to)}};
}

// Arguments: from, to.
inline void copy_kernel(TaskContext& context) {
  const int64_t* const from = context.data<int64_t>(0);
  int64_t* const to = context.data<int64_t>(1);
  for (int64_t i = 0; i < context.argument(1).view.shape[0]; ++i) to[i] = from[i];
}
inline TestTask copy_task(const View& from, const View& to) {
  return {.name = "copy", .run = copy_kernel, .arguments = {in(from), out(to)}};
}

// Arguments: x. Scalars: s. x = x * 3 + s: no two orders give the same result.
inline int64_t mixed(int64_t x, int64_t s) {
  return static_cast<int64_t>(static_cast<uint64_t>(x) * 3 + static_cast<uint64_t>(s));
}
inline void mix_kernel(TaskContext& context) {
  int64_t* const x = context.data<int64_t>(0);
  for (int64_t i = 0; i < context.argument(0).view.shape[0]; ++i) {
    x[i] = mixed(x[i], context.scalar(0));
  }
}
inline TestTask mix_task(const View& x, int64_t value) {
  return {
      .name = "mix", .run = mix_kernel, .scalars = {Scalar::fixed(value)}, .arguments = {inout(x)}};
}

// Scalars: a Gate.
inline void wait_at_gate_kernel(TaskContext& context) { object_at<Gate>(context, 0).wait(); }
inline TestTask wait_at(Gate& gate) {
  return {.name = "wait_at_gate", .run = wait_at_gate_kernel, .scalars = {pointer_to(gate)}};
}
inline void open_gate_kernel(TaskContext& context) { object_at<Gate>(context, 0).open(); }
inline TestTask open_task(Gate& gate) {
  return {.name = "open_gate", .run = open_gate_kernel, .scalars = {pointer_to(gate)}};
}
// Scalars: two Gates. Says that it runs, then waits until it may end.
inline void start_and_wait_kernel(TaskContext& context) {
  object_at<Gate>(context, 0).open();
  object_at<Gate>(context, 1).wait();
}
inline TestTask start_and_wait(Gate& started, Gate& may_end) {
  return {.name = "start_and_wait",
          .run = start_and_wait_kernel,
          .scalars = {pointer_to(started), pointer_to(may_end)}};
}

inline void fail_kernel(TaskContext& context) { context.fail("it was told to fail"); }

// Rings of a few tasks, so that they go round often.
inline StreamOptions small_rings() {
  return {.window_tasks = 64,
          .window_edges = 256,
          .window_bytes = 1 << 16,
          .heap_bytes = 1 << 16,
          .max_buffers = 1024};
}

}  // namespace gapless
