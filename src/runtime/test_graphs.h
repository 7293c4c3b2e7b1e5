// SPDX-License-Identifier: Apache-2.0
//
// Small graphs for the tests of the runtime, and what their kernels do.
//
// A kernel is a plain function, so that it reaches a test's variables through pointers that travel
// as scalars. Most tests need only note_kernel(): it writes down that a task ran.

#pragma once

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "graph/graph_builder.h"
#include "graph/task_context.h"
#include "runtime/replay.h"
#include "runtime/spin.h"

namespace gapless {

// For what a test takes for granted: its value, or the end of the program with the error's text.
template <typename T>
T must(Result<T> result) {
  if (!result.has_value()) {
    ADD_FAILURE() << result.error().message;
    std::abort();
  }
  return std::move(result).value();
}
inline void must(const Result<void>& result) {
  if (result.has_value()) return;
  ADD_FAILURE() << result.error().message;
  std::abort();
}

// "accepted", or the error's text.
template <typename T>
std::string text_of(const Result<T>& result) {
  return result.has_value() ? "accepted" : result.error().message;
}

template <typename T>
Scalar pointer_to(T& object) {
  return Scalar::fixed(std::bit_cast<int64_t>(&object));
}
template <typename T>
T& object_at(const TaskContext& context, int scalar) {
  return *std::bit_cast<T*>(context.scalar(scalar));
}

// What ran, in the order in which it was written down.
class Journal {
 public:
  void note(int64_t what) {
    const std::lock_guard<std::mutex> guard(mutex_);
    entries_.push_back(what);
  }
  std::vector<int64_t> entries() const {
    const std::lock_guard<std::mutex> guard(mutex_);
    return entries_;
  }
  std::vector<int64_t> sorted() const {
    std::vector<int64_t> sorted = entries();
    std::sort(sorted.begin(), sorted.end());
    return sorted;
  }
  int64_t count(int64_t what) const {
    const std::vector<int64_t> all = entries();
    return std::count(all.begin(), all.end(), what);
  }
  // Where it stands; -1: nowhere.
  int64_t position(int64_t what) const {
    const std::vector<int64_t> all = entries();
    const auto found = std::find(all.begin(), all.end(), what);
    return found == all.end() ? -1 : found - all.begin();
  }
  void clear() {
    const std::lock_guard<std::mutex> guard(mutex_);
    entries_.clear();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<int64_t> entries_;
};

// Where `size` threads wait for each other, any number of times.
class MeetingPoint {
 public:
  explicit MeetingPoint(int64_t size) : size_(size) {}
  void meet() {
    const int64_t ticket = arrived_.fetch_add(1, std::memory_order_acq_rel);
    const int64_t complete = (ticket / size_ + 1) * size_;
    SpinWait wait;
    while (arrived_.load(std::memory_order_acquire) < complete) wait.poll();
  }

 private:
  int64_t size_;
  std::atomic<int64_t> arrived_ = 0;
};

// Opened once; whoever waits goes on.
class Gate {
 public:
  void open() { is_open_.store(true, std::memory_order_release); }
  void wait() const {
    SpinWait wait;
    while (!is_open_.load(std::memory_order_acquire)) wait.poll();
  }

 private:
  std::atomic<bool> is_open_ = false;
};

// Scalars: a Journal, a number to write into it.
inline void note_kernel(TaskContext& context) {
  object_at<Journal>(context, 0).note(context.scalar(1));
}
inline std::vector<Scalar> note(Journal& journal, int64_t number) {
  return {pointer_to(journal), Scalar::fixed(number)};
}

// Scalars: a Journal, a number, and whether to fail.
inline void note_or_fail_kernel(TaskContext& context) {
  note_kernel(context);
  if (context.scalar(2) != 0) context.fail("it was told to fail");
}
inline std::vector<Scalar> note_or_fail(Journal& journal, int64_t number,
                                        const int64_t& must_fail) {
  return {pointer_to(journal), Scalar::fixed(number), Scalar::read_from(&must_fail)};
}

struct TestTask {
  std::string name = "note";
  KernelFunction run = note_kernel;
  std::vector<Scalar> scalars = {};
  std::vector<TaskId> after = {};
  std::vector<Argument> arguments = {};
  CoreKind core = CoreKind::kAny;
  int32_t block_count = 1;
  bool gang = false;
  Predicate predicate = {};
  CostHint cost = {};
};

// Valid as long as the task is.
inline TaskSpec spec_of(const TestTask& task, KernelId kernel) {
  return {.kernel = kernel,
          .core = task.core,
          .arguments = task.arguments,
          .scalars = task.scalars,
          .block_count = task.block_count,
          .gang = task.gang,
          .after = task.after,
          .predicate = task.predicate,
          .cost = task.cost};
}

// A GraphBuilder that takes each kernel when it is first used, and every error as the test's end.
class TestGraph {
 public:
  TaskId add(const TestTask& task) {
    const auto [kernel, is_new] = kernels_.try_emplace(task.name);
    if (is_new) kernel->second = must(builder_.add_kernel(task.name, task.run));
    return must(builder_.add_task(spec_of(task, kernel->second)));
  }
  BufferId add_buffer(const BufferSpec& spec) { return must(builder_.add_buffer(spec)); }
  Graph finish() { return must(builder_.finish()); }

 private:
  GraphBuilder builder_;
  std::unordered_map<std::string, KernelId> kernels_;
};

// `count` tasks in a row that write 0, 1, 2, ... into the journal.
inline Graph make_chain(Journal& journal, int count) {
  TestGraph graph;
  std::vector<TaskId> last;
  for (int i = 0; i < count; ++i) {
    last = {graph.add({.scalars = note(journal, i), .after = last})};
  }
  return graph.finish();
}

// 0 before 1 and 2, these before 3.
inline Graph make_diamond(Journal& journal) {
  TestGraph graph;
  const TaskId top = graph.add({.scalars = note(journal, 0)});
  const TaskId left = graph.add({.scalars = note(journal, 1), .after = {top}});
  const TaskId right = graph.add({.scalars = note(journal, 2), .after = {top}});
  graph.add({.scalars = note(journal, 3), .after = {left, right}});
  return graph.finish();
}

inline std::unique_ptr<CpuDevice> make_device(int worker_count) {
  return must(CpuDevice::create({.worker_count = worker_count}));
}
inline std::unique_ptr<CpuDevice> make_cluster_device(int cluster_count) {
  return must(CpuDevice::create({.cluster_count = cluster_count}));
}

inline View vector_view(BufferId buffer, int64_t count, DType dtype = DType::kS64) {
  return dense_view(buffer, dtype, {count});
}

// Memory of the caller's, as it is bound.
template <typename T>
Binding bind_to(BufferId buffer, std::vector<T>& memory) {
  return {buffer, memory.data(), static_cast<int64_t>(memory.size() * sizeof(T))};
}

}  // namespace gapless
