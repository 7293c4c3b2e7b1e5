// SPDX-License-Identifier: Apache-2.0
//
// LateInputs: memory of the device that a launch reads and the launch before it writes at the last
// moment, for tests of launches that start early. Until then it is NaN.

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/result.h"
#include "cuda/device.h"
#include "cuda/graph.h"
#include "cuda/late_copy_test_kernel.h"
#include "cuda/stream.h"

namespace gapless {

// At 4 bytes, and a multiple of 4.
struct DeviceSpan {
  std::byte* data = nullptr;
  int64_t bytes = 0;
};

class LateInputs {
 public:
  using Start = std::function<Result<void>(CudaStream)>;

  // What the inputs hold now is right; `output` is what the launch writes. `between` is what
  // launches in between write: NaN before a run, and then theirs.
  static Result<LateInputs> make(const std::vector<DeviceSpan>& inputs, const DeviceSpan& output,
                                 const std::vector<DeviceSpan>& between = {}) {
    LateInputs late(output);
    int64_t bytes = 0;
    for (const DeviceSpan& input : inputs) bytes += input.bytes;
    late.kept_ = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "copies of inputs"));
    late.written_ns_ = GAPLESS_TRY(DeviceBuffer::allocate(sizeof(uint64_t), "a time"));
    late.stream_ = GAPLESS_TRY(OwnedCudaStream::make());
    std::vector<LateCopy> to_keep, to_forget, to_write;
    std::byte* kept = late.kept_.data();
    for (const DeviceSpan& input : inputs) {
      to_keep.push_back({.target = kept, .source = input.data, .bytes = input.bytes});
      to_forget.push_back({.target = input.data, .source = nullptr, .bytes = input.bytes});
      to_write.push_back({.target = input.data, .source = kept, .bytes = input.bytes});
      kept += input.bytes;
    }
    for (const DeviceSpan& span : between)
      to_forget.push_back({.target = span.data, .source = nullptr, .bytes = span.bytes});
    to_forget.push_back({.target = output.data, .source = nullptr, .bytes = output.bytes});
    GAPLESS_TRY(late.to_forget_.upload(to_forget));
    GAPLESS_TRY(late.to_write_.upload(to_write));
    CopyList keep;
    GAPLESS_TRY(keep.upload(to_keep));
    GAPLESS_TRY(keep.launch({}, nullptr));
    GAPLESS_TRY(synchronize(nullptr));
    return late;
  }

  // Inputs and output are NaN.
  Result<void> forget(CudaStream stream) const { return to_forget_.launch({}, stream); }

  // The output of the launch that `start` starts, with inputs that are NaN first and are written
  // `delay_ns` after it may have begun. In a graph: the host is not between the launches.
  Result<std::vector<std::byte>> run(uint32_t delay_ns, const Start& start) const {
    GAPLESS_TRY(synchronize(nullptr));  // our stream does not wait for what was copied on that one
    const Start start_all = [&](CudaStream stream) -> Result<void> {
      GAPLESS_TRY(forget(stream));
      GAPLESS_TRY(to_write_.launch(
          {.delay_ns = delay_ns, .written_ns = reinterpret_cast<uint64_t*>(written_ns_.data())},
          stream));
      return start(stream);
    };
    const CudaGraph graph = GAPLESS_TRY(CudaGraph::capture(stream_.get(), start_all));
    GAPLESS_TRY(graph.launch(stream_.get()));
    std::vector<std::byte> bytes(static_cast<size_t>(output_.bytes));
    GAPLESS_TRY(copy_from_device(bytes.data(), output_.data, output_.bytes, stream_.get()));
    GAPLESS_TRY(synchronize(stream_.get()));
    return bytes;
  }

  // When the inputs of the last run began to be written, on the GPU's timer.
  Result<uint64_t> written_ns() const {
    uint64_t ns = 0;
    GAPLESS_TRY(written_ns_.copy_to_host(&ns, sizeof(ns)));
    return ns;
  }

 private:
  // On the device.
  class CopyList {
   public:
    Result<void> upload(const std::vector<LateCopy>& copies) {
      const int64_t bytes = static_cast<int64_t>(copies.size() * sizeof(LateCopy));
      count_ = static_cast<int>(copies.size());
      buffer_ = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "a list of copies"));
      return buffer_.copy_from_host(copies.data(), bytes);
    }
    // With the delay of `launch`.
    Result<void> launch(LateCopyLaunch launch, CudaStream stream) const {
      launch.copies = reinterpret_cast<const LateCopy*>(buffer_.data());
      launch.copy_count = count_;
      return check_cuda(late_copy_launch_kernel(launch, stream), "launching copies");
    }

   private:
    DeviceBuffer buffer_;
    int count_ = 0;
  };

  explicit LateInputs(const DeviceSpan& output) : output_(output) {}

  DeviceSpan output_;
  DeviceBuffer kept_;
  DeviceBuffer written_ns_;
  CopyList to_forget_;
  CopyList to_write_;
  OwnedCudaStream stream_;
};

}  // namespace gapless
