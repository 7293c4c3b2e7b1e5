// SPDX-License-Identifier: Apache-2.0
//
// TaskContext: what a kernel sees of its task: arguments, scalars, which block it is.
//
//   void add_rows(TaskContext& context) {
//     const TensorRef<float> x = context.tensor<float>(0);
//     const TensorRef<float> y = context.tensor<float>(1);
//     for (int64_t i = 0; i < x.extent(0); ++i) y.store(x.load(i, 0) + 1.0f, i, 0);
//   }
//
// A TensorRef is a pointer with a shape. In shadow mode (runtime/shadow.h) it carries a checker as
// well: an element outside the declared view, a write to an input, a read of an output that the
// task has not written are reported with task, argument and region. Out of shadow mode an access
// costs one predictable branch more than a pointer; read() and write() pay it once for many
// elements.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include <fmt/core.h>

#include "base/check.h"
#include "base/result.h"
#include "graph/task.h"

namespace gapless {

// Told about each access in shadow mode. Elements are counted from the argument's first one, in
// the view's own strides.
class AccessChecker {
 public:
  virtual ~AccessChecker() = default;
  // False when the access was not declared: the caller must not touch the memory.
  virtual bool check(int argument, int64_t element_offset, int64_t count, bool is_write) = 0;
  // Memory to be touched instead of what was refused, until the next task.
  virtual void* scratch(int64_t bytes) = 0;
};

// Which part of a cluster runs a mixed task's kernel. On a device without clusters one core runs
// it alone, as kWhole.
enum class MixedRole : uint8_t { kWhole = 0, kCube = 1, kVector0 = 2, kVector1 = 3 };

template <typename T>
class TensorRef {
 public:
  TensorRef(T* data, const View& view, int argument, AccessChecker* checker)
      : data_(data), view_(&view), argument_(argument), checker_(checker) {}

  int rank() const { return view_->rank; }
  int64_t extent(int dimension) const { return view_->shape[static_cast<size_t>(dimension)]; }
  int64_t stride(int dimension) const { return view_->strides[static_cast<size_t>(dimension)]; }
  const View& view() const { return *view_; }

  // One element, by its indices: as many as the rank.
  template <typename... Index>
  T load(Index... index) const {
    const int64_t offset = offset_of(index...);
    if (checker_ != nullptr && !checker_->check(argument_, offset, 1, false)) return T{};
    return data_[offset];
  }
  template <typename... Index>
  void store(T value, Index... index) const {
    const int64_t offset = offset_of(index...);
    if (checker_ != nullptr && !checker_->check(argument_, offset, 1, true)) return;
    data_[offset] = value;
  }

  // `count` elements in memory from the one at these indices, to read or to write. In shadow mode
  // some other memory when they were not declared, so that the kernel can go on.
  template <typename... Index>
  const T* read(int64_t count, Index... index) const {
    const int64_t offset = offset_of(index...);
    if (checker_ != nullptr && !checker_->check(argument_, offset, count, false))
      return instead(count);
    return data_ + offset;
  }
  template <typename... Index>
  T* write(int64_t count, Index... index) const {
    const int64_t offset = offset_of(index...);
    if (checker_ != nullptr && !checker_->check(argument_, offset, count, true))
      return instead(count);
    return data_ + offset;
  }

 private:
  template <typename... Index>
  int64_t offset_of(Index... index) const {
    int64_t offset = 0;
    size_t dimension = 0;
    ((offset += static_cast<int64_t>(index) * view_->strides[dimension++]), ...);
    return offset;
  }

  T* instead(int64_t count) const {
    return static_cast<T*>(checker_->scratch(count * static_cast<int64_t>(sizeof(T))));
  }

  T* data_;
  const View* view_;
  int argument_;
  AccessChecker* checker_;
};

// What went wrong in a task: filled by TaskContext::fail, read by the device.
struct TaskFailure {
  bool failed = false;
  std::string message;
};

class TaskContext {
 public:
  // Filled by the device that runs the task; kernels only read it.
  struct Fields {
    const Argument* arguments = nullptr;
    const Scalar* scalars = nullptr;
    std::byte* const* buffers = nullptr;  // where each buffer begins, by BufferId::index()
    int argument_count = 0;
    int scalar_count = 0;
    int32_t block_index = 0;
    int32_t block_count = 1;
    int worker_index = 0;
    MixedRole role = MixedRole::kWhole;
    AccessChecker* checker = nullptr;
    TaskFailure* failure = nullptr;
  };
  explicit TaskContext(const Fields& fields) : fields_(fields) {}
  // For devices, which keep one context a worker and change it from task to task.
  Fields& fields() { return fields_; }

  int argument_count() const { return fields_.argument_count; }
  int scalar_count() const { return fields_.scalar_count; }
  int64_t scalar(int index) const {
    GAPLESS_DCHECK(index < fields_.scalar_count);
    return fields_.scalars[index].value();
  }
  double real(int index) const { return fields_.scalars[index].real(); }

  int32_t block_index() const { return fields_.block_index; }
  int32_t block_count() const { return fields_.block_count; }
  // Which core runs it: 0 .. workers - 1. Results must not depend on it.
  int worker_index() const { return fields_.worker_index; }
  MixedRole role() const { return fields_.role; }

  const Argument& argument(int index) const {
    GAPLESS_DCHECK(index < fields_.argument_count);
    return fields_.arguments[index];
  }
  // `T` must be as large as the argument's element type.
  template <typename T>
  TensorRef<T> tensor(int index) const {
    const Argument& declared = argument(index);
    GAPLESS_DCHECK(static_cast<int64_t>(sizeof(T)) == dtype_bytes(declared.view.dtype));
    return TensorRef<T>(reinterpret_cast<T*>(address_of(index)), declared.view, index,
                        fields_.checker);
  }
  // The first element, unchecked: for kernels that are checked by their own tests.
  template <typename T>
  T* data(int index) const {
    return reinterpret_cast<T*>(address_of(index));
  }

  // The task failed: its successors will not run, and the step returns the message of the first
  // task that failed.
  template <typename... Args>
  void fail(fmt::format_string<Args...> format, Args&&... args) const {
    if (fields_.failure->failed) return;
    fields_.failure->failed = true;
    fields_.failure->message = fmt::vformat(format, fmt::make_format_args(args...));
  }

 private:
  std::byte* address_of(int index) const {
    const View& view = argument(index).view;
    return fields_.buffers[view.buffer.index()] + view.offset * dtype_bytes(view.dtype);
  }

  Fields fields_;
};

}  // namespace gapless
