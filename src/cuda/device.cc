// SPDX-License-Identifier: Apache-2.0

#include "cuda/device.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include <cuda_runtime.h>
#include <fmt/core.h>

#include "cuda/code_version.h"
#include "cuda/wait_report.h"

namespace gapless {
namespace {

constexpr const char* kSharedKibVariable = "GAPLESS_CUDA_SHARED_KIB";

Result<int64_t> attribute_of(int device, cudaDeviceAttr attribute, const char* what) {
  int value = 0;
  GAPLESS_TRY(check_cuda(cudaDeviceGetAttribute(&value, attribute, device), what));
  return int64_t{value};
}

// Two bits a clock on each wire; 0 where a driver does not say it.
double pin_bytes_per_s_of(int device) {
  constexpr const char* kWhat = "reading clock and width of the GPU's memory";
  const Result<int64_t> khz = attribute_of(device, cudaDevAttrMemoryClockRate, kWhat);
  const Result<int64_t> bits = attribute_of(device, cudaDevAttrGlobalMemoryBusWidth, kWhat);
  if (!khz || !bits) return 0;
  return 2e3 * static_cast<double>(*khz) * static_cast<double>(*bits) / 8;
}

Result<void> check_range(int64_t offset, int64_t bytes, int64_t size) {
  if (offset < 0 || bytes < 0 || offset > size - bytes)
    return fail(ErrorCode::kInvalidInput, "{} bytes at {} of a buffer of {} bytes on the GPU",
                bytes, offset, size);
  return {};
}

}  // namespace

std::string driver_text(int found, int needed) {
  if (found == 0) return "there is no NVIDIA driver";
  const auto version = [](int number) {
    return fmt::format("{}.{}", number / 1000, number % 1000 / 10);
  };
  // Drivers run programs of every minor version of theirs.
  return fmt::format("the NVIDIA driver is of CUDA {}; {} or newer is needed", version(found),
                     version(needed / 1000 * 1000));
}

Result<void> check_cuda(int status, const char* what) {
  if (status == cudaSuccess) return {};
  const cudaError_t error = static_cast<cudaError_t>(status);
  if (error == cudaErrorInsufficientDriver) {
    int found = 0;
    int needed = 0;
    static_cast<void>(cudaDriverGetVersion(&found));
    static_cast<void>(cudaRuntimeGetVersion(&needed));
    return fail(ErrorCode::kSystem, "{}: {} ({})", what, driver_text(found, needed),
                cudaGetErrorName(error));
  }
  // The error is not kept for the next call, unless the context is lost with it.
  static_cast<void>(cudaGetLastError());
  const std::string wait = expired_wait();
  if (!wait.empty())
    return fail(ErrorCode::kSystem, "{}: {}; the GPU can do nothing more for this process ({})",
                what, wait, cudaGetErrorName(error));
  return fail(ErrorCode::kSystem, "{}: {} ({})", what, cudaGetErrorString(error),
              cudaGetErrorName(error));
}

Result<CudaLimits> cuda_limits() {
  int device = 0;
  GAPLESS_TRY(check_cuda(cudaGetDevice(&device), "looking for a GPU"));
  cudaDeviceProp properties = {};
  GAPLESS_TRY(check_cuda(cudaGetDeviceProperties(&properties, device), "reading what the GPU is"));
  CudaLimits limits;
  limits.name = properties.name;
  limits.sm_count = properties.multiProcessorCount;
  limits.compute_capability = properties.major * 10 + properties.minor;
  GAPLESS_TRY(check_capability(limits));
  limits.shared_block_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  limits.shared_sm_bytes = static_cast<int64_t>(properties.sharedMemPerMultiprocessor);
  limits.shared_reserved_bytes = GAPLESS_TRY(attribute_of(
      device, cudaDevAttrReservedSharedMemoryPerBlock, "reading the GPU's shared memory"));
  limits.l2_bytes = properties.l2CacheSize;
  limits.memory_bytes = static_cast<int64_t>(properties.totalGlobalMem);
  limits.pin_bytes_per_s = pin_bytes_per_s_of(device);
  GAPLESS_TRY(check_cuda(find_sm90_code(&limits.has_sm90_code), "loading the code of our kernels"));
  GAPLESS_TRY(cap_shared_memory(limits, std::getenv(kSharedKibVariable)));
  GAPLESS_TRY(prepare_wait_limit());
  return limits;
}

Result<void> check_capability(const CudaLimits& limits) {
  const auto version = [](int number) { return fmt::format("{}.{}", number / 10, number % 10); };
  if (limits.compute_capability >= kMinComputeCapability) return {};
  return fail(ErrorCode::kInvalidInput, "{} has compute capability {}; {} is needed", limits.name,
              version(limits.compute_capability), version(kMinComputeCapability));
}

bool has_capable_gpu() {
  int device = 0;
  int major = 0;
  int minor = 0;
  const bool is_there =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess;
  if (!is_there) static_cast<void>(cudaGetLastError());
  return is_there && major * 10 + minor >= kMinComputeCapability;
}

Result<void> cap_shared_memory(CudaLimits& limits, const char* kib_text) {
  const std::string_view text = kib_text == nullptr ? "" : kib_text;
  if (text.empty()) return {};
  int64_t kib = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), kib);
  const int64_t most_kib = limits.shared_block_bytes >> 10;
  if (error != std::errc{} || end != text.data() + text.size() || kib < 1 || kib > most_kib)
    return fail(ErrorCode::kInvalidInput, "{}={}: {} has 1 to {} KiB of shared memory a block",
                kSharedKibVariable, text, limits.name, most_kib);
  limits.shared_block_bytes = kib << 10;
  limits.shared_sm_bytes = limits.shared_block_bytes + limits.shared_reserved_bytes;
  return {};
}

Result<CudaMemory> cuda_memory() {
  size_t free_bytes = 0;
  size_t total_bytes = 0;
  GAPLESS_TRY(check_cuda(cudaMemGetInfo(&free_bytes, &total_bytes), "asking for free GPU memory"));
  return CudaMemory{static_cast<int64_t>(free_bytes), static_cast<int64_t>(total_bytes)};
}

Result<void> synchronize(CudaStream stream) {
  return check_cuda(cudaStreamSynchronize(static_cast<cudaStream_t>(stream)),
                    "waiting for the GPU");
}

DeviceBuffer::~DeviceBuffer() {
  if (data_ != nullptr) static_cast<void>(cudaFree(data_));
}

Result<DeviceBuffer> DeviceBuffer::allocate(int64_t bytes, const char* what) {
  if (bytes < 0) return fail(ErrorCode::kInvalidInput, "{} of {} bytes", what, bytes);
  DeviceBuffer buffer;
  buffer.bytes_ = bytes;
  if (bytes == 0) return buffer;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    static_cast<void>(cudaGetLastError());
    size_t free_bytes = 0;
    size_t total_bytes = 0;
    static_cast<void>(cudaMemGetInfo(&free_bytes, &total_bytes));
    return fail(ErrorCode::kSystem, "{} need {} bytes of GPU memory; {} of {} are free", what,
                bytes, free_bytes, total_bytes);
  }
  GAPLESS_TRY(check_cuda(status, what));
  buffer.data_ = static_cast<std::byte*>(data);
  return buffer;
}

Result<void> DeviceBuffer::copy_from_host(const void* source, int64_t bytes, int64_t offset) {
  GAPLESS_TRY(check_range(offset, bytes, bytes_));
  return check_cuda(
      cudaMemcpy(data_ + offset, source, static_cast<size_t>(bytes), cudaMemcpyHostToDevice),
      "copying to the GPU");
}

Result<void> DeviceBuffer::copy_to_host(void* target, int64_t bytes, int64_t offset) const {
  GAPLESS_TRY(check_range(offset, bytes, bytes_));
  return check_cuda(
      cudaMemcpy(target, data_ + offset, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost),
      "copying from the GPU");
}

Result<void> DeviceBuffer::fill(int byte) {
  return check_cuda(cudaMemset(data_, byte, static_cast<size_t>(bytes_)), "filling GPU memory");
}

}  // namespace gapless
