// SPDX-License-Identifier: Apache-2.0

#include "cuda/stream.h"

#include <cuda_runtime.h>

namespace gapless {
namespace {

Result<void> copy(void* target, const void* source, int64_t bytes, cudaMemcpyKind kind,
                  CudaStream stream, const char* what) {
  if (bytes == 0) return {};
  return check_cuda(cudaMemcpyAsync(target, source, static_cast<size_t>(bytes), kind,
                                    static_cast<cudaStream_t>(stream)),
                    what);
}

}  // namespace

OwnedCudaStream::~OwnedCudaStream() {
  if (stream_ != nullptr) static_cast<void>(cudaStreamDestroy(static_cast<cudaStream_t>(stream_)));
}

Result<OwnedCudaStream> OwnedCudaStream::make() {
  cudaStream_t stream = nullptr;
  GAPLESS_TRY(check_cuda(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking),
                         "making a stream on the GPU"));
  OwnedCudaStream owned;
  owned.stream_ = stream;
  return owned;
}

CudaEvent::~CudaEvent() {
  if (event_ != nullptr) static_cast<void>(cudaEventDestroy(static_cast<cudaEvent_t>(event_)));
}

Result<CudaEvent> CudaEvent::make() {
  cudaEvent_t event = nullptr;
  GAPLESS_TRY(check_cuda(cudaEventCreate(&event), "making an event on the GPU"));
  CudaEvent owned;
  owned.event_ = event;
  return owned;
}

Result<void> CudaEvent::record(CudaStream stream) const {
  return check_cuda(
      cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)),
      "recording an event on the GPU");
}

Result<double> CudaEvent::seconds_since(const CudaEvent& earlier) const {
  float milliseconds = 0.0f;
  GAPLESS_TRY(
      check_cuda(cudaEventElapsedTime(&milliseconds, static_cast<cudaEvent_t>(earlier.event_),
                                      static_cast<cudaEvent_t>(event_)),
                 "reading the time between two events of the GPU"));
  return static_cast<double>(milliseconds) * 1e-3;
}

PinnedBuffer::~PinnedBuffer() {
  if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
}

Result<PinnedBuffer> PinnedBuffer::allocate(int64_t bytes, const char* what) {
  if (bytes < 0) return fail(ErrorCode::kInvalidInput, "{} of {} bytes", what, bytes);
  PinnedBuffer buffer;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    return fail(ErrorCode::kSystem,
                "{} needs {} bytes of the host's memory, which it does not have", what, bytes);
  }
  GAPLESS_TRY(check_cuda(status, what));
  buffer.data_ = static_cast<std::byte*>(data);
  buffer.bytes_ = bytes;
  return buffer;
}

Result<void> copy_to_device(void* target, const void* source, int64_t bytes, CudaStream stream) {
  return copy(target, source, bytes, cudaMemcpyHostToDevice, stream, "copying to the GPU");
}

Result<void> copy_from_device(void* target, const void* source, int64_t bytes, CudaStream stream) {
  return copy(target, source, bytes, cudaMemcpyDeviceToHost, stream, "copying from the GPU");
}

Result<void> copy_on_device(void* target, const void* source, int64_t bytes, CudaStream stream) {
  return copy(target, source, bytes, cudaMemcpyDeviceToDevice, stream, "copying on the GPU");
}

Result<void> clear_on_device(void* target, int64_t bytes, CudaStream stream) {
  if (bytes == 0) return {};
  return check_cuda(
      cudaMemsetAsync(target, 0, static_cast<size_t>(bytes), static_cast<cudaStream_t>(stream)),
      "clearing GPU memory");
}

}  // namespace gapless
