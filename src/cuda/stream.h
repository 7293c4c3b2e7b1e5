// SPDX-License-Identifier: Apache-2.0
//
// A stream, points in time on it, and host memory that the device copies from and to.

#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>

#include "base/result.h"
#include "cuda/device.h"

namespace gapless {

// Its work does not wait for that of any other stream.
class OwnedCudaStream {
 public:
  OwnedCudaStream() = default;
  OwnedCudaStream(OwnedCudaStream&& other) noexcept
      : stream_(std::exchange(other.stream_, nullptr)) {}
  OwnedCudaStream& operator=(OwnedCudaStream&& other) noexcept {
    std::swap(stream_, other.stream_);
    return *this;
  }
  ~OwnedCudaStream();

  static Result<OwnedCudaStream> make();
  CudaStream get() const { return stream_; }

 private:
  CudaStream stream_ = nullptr;
};

// A point on a stream. The device notes the time when it gets there.
class CudaEvent {
 public:
  CudaEvent() = default;
  CudaEvent(CudaEvent&& other) noexcept : event_(std::exchange(other.event_, nullptr)) {}
  CudaEvent& operator=(CudaEvent&& other) noexcept {
    std::swap(event_, other.event_);
    return *this;
  }
  ~CudaEvent();

  static Result<CudaEvent> make();
  Result<void> record(CudaStream stream) const;
  // From `earlier` to this one; both have been reached.
  Result<double> seconds_since(const CudaEvent& earlier) const;

 private:
  void* event_ = nullptr;
};

// Host memory that stays where it is, so that copies run beside the host.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  PinnedBuffer(PinnedBuffer&& other) noexcept { swap(other); }
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    PinnedBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~PinnedBuffer();

  static Result<PinnedBuffer> allocate(int64_t bytes, const char* what);
  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }

 private:
  void swap(PinnedBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

// In the order of the stream; the host's memory may be of any kind, and is not touched before the
// stream was waited for.
Result<void> copy_to_device(void* target, const void* source, int64_t bytes, CudaStream stream);
Result<void> copy_from_device(void* target, const void* source, int64_t bytes, CudaStream stream);
Result<void> copy_on_device(void* target, const void* source, int64_t bytes, CudaStream stream);
Result<void> clear_on_device(void* target, int64_t bytes, CudaStream stream);

}  // namespace gapless
