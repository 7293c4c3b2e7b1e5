// SPDX-License-Identifier: Apache-2.0
//
// The GPU as the rest of the program sees it: limits, memory, errors. No CUDA header is needed to
// include this; a stream is an opaque pointer, and null is the default stream.

#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "base/result.h"

namespace gapless {

using CudaStream = void*;

struct CudaLimits {
  std::string name;
  int sm_count = 0;
  int compute_capability = 0;  // 90 for 9.0; at least kMinComputeCapability
  bool has_sm90_code = false;  // code_version.h
  int64_t shared_block_bytes = 0;
  int64_t shared_sm_bytes = 0;
  int64_t shared_reserved_bytes = 0;  // of every block, taken by the system
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double pin_bytes_per_s = 0;  // of the memory, at its clock: more than can be read; 0 if unknown
};

// Of the present device: the first of CUDA_VISIBLE_DEVICES. An error says why there is none, or
// that this one cannot run our kernels. With GAPLESS_CUDA_SHARED_KIB=99 in the environment its
// blocks have no more shared memory than that, as on smaller devices: a way to try what is done
// there, together with that of code_version.h. Waits of kernels have a limit and a report from then
// on (wait_limit.h).
Result<CudaLimits> cuda_limits();
inline constexpr int kMinComputeCapability = 80;
Result<void> check_capability(const CudaLimits& limits);
// What that variable does. Nothing is changed by null or an empty text.
Result<void> cap_shared_memory(CudaLimits& limits, const char* kib_text);

// Whether there is a GPU that our kernels can run on, if nothing is in their way: memory that
// others have taken, say. Needs no memory itself.
bool has_capable_gpu();

// Of the present device, now.
struct CudaMemory {
  int64_t free_bytes = 0;
  int64_t total_bytes = 0;
};
Result<CudaMemory> cuda_memory();

// Turns a cudaError_t into an error that says what was tried, and which wait of a kernel had not
// ended in time or which driver is missing if that is why.
Result<void> check_cuda(int status, const char* what);
// Why a program of CUDA version `needed` (13000 for 13.0) cannot use the driver of version `found`.
std::string driver_text(int found, int needed);

// Waits for everything that was started on the stream.
Result<void> synchronize(CudaStream stream);

// Memory of the device, given back at the end. At 256 bytes.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  DeviceBuffer(DeviceBuffer&& other) noexcept { swap(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    DeviceBuffer(std::move(other)).swap(*this);
    return *this;
  }
  ~DeviceBuffer();

  // `what` is for the error when there is not so much: "kv pages".
  static Result<DeviceBuffer> allocate(int64_t bytes, const char* what);

  std::byte* data() const { return data_; }
  int64_t bytes() const { return bytes_; }
  Result<void> copy_from_host(const void* source, int64_t bytes, int64_t offset = 0);
  Result<void> copy_to_host(void* target, int64_t bytes, int64_t offset = 0) const;
  Result<void> fill(int byte);

 private:
  void swap(DeviceBuffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
  }

  std::byte* data_ = nullptr;
  int64_t bytes_ = 0;
};

}  // namespace gapless
