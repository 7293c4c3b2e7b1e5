// SPDX-License-Identifier: Apache-2.0
//
// A matmul with random weights and tokens on the GPU, and the same in double on the host. Whatever
// must not be read or written is NaN before a run: rows of x beyond the tokens, gaps between rows,
// outputs; and a workspace before it is prepared.

#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/half.h"
#include "cuda/device.h"
#include "cuda/late_copy_test_support.h"
#include "cuda/matmul.h"

namespace gapless {

// A linear congruential generator: large matrices are filled in no time.
class MatmulRandom {
 public:
  explicit MatmulRandom(uint64_t seed) : state_(seed * 2 + 1) {}
  uint32_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>(state_ >> 33);
  }
  float between(float low, float high) {
    return low + (high - low) * static_cast<float>(bits() & 0xffffff) * 0x1p-24f;
  }

 private:
  uint64_t state_;
};

// [rows][k] of bf16 or s8, with `stride` elements a row.
struct MatmulMatrix {
  DType dtype = DType::kBf16;
  int64_t stride = 0;
  std::vector<std::byte> bytes;
  std::vector<float> scales;  // [rows], s8

  double at(int64_t row, int64_t column) const {
    const size_t index = static_cast<size_t>(row * stride + column);
    if (dtype == DType::kS8) return static_cast<int8_t>(bytes[index]);
    Bf16 value;
    std::memcpy(&value, bytes.data() + 2 * index, sizeof(value));
    return static_cast<double>(to_float(value));
  }
  void set(int64_t row, int64_t column, float value) {
    const size_t index = static_cast<size_t>(row * stride + column);
    if (dtype == DType::kS8) {
      bytes[index] = static_cast<std::byte>(static_cast<int8_t>(value));
      return;
    }
    const Bf16 cast = to_bf16(value);
    std::memcpy(bytes.data() + 2 * index, &cast, sizeof(cast));
  }
};

// `poisoned_rows` more rows than asked for, and `gap` more elements a row, are NaN (s8: -1).
inline MatmulMatrix random_matrix(DType dtype, int64_t rows, int64_t k, uint64_t seed,
                                  int64_t poisoned_rows = 0, int64_t gap = 0) {
  MatmulMatrix matrix;
  matrix.dtype = dtype;
  matrix.stride = k + gap;
  const int64_t count = (rows + poisoned_rows) * matrix.stride;
  matrix.bytes.assign(static_cast<size_t>(count * dtype_bytes(dtype)), std::byte{0xff});
  MatmulRandom random(seed);
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t i = 0; i < k; ++i) {
      const float value = dtype == DType::kS8 ? static_cast<float>(random.bits() % 255) - 127.0f
                                              : random.between(-1.0f, 1.0f);
      matrix.set(row, i, value);
    }
    matrix.scales.push_back(random.between(1e-4f, 1e-3f));
  }
  return matrix;
}

inline constexpr int kAllTokens[] = {1, 2, 4, 8, 15, 16, 17, 24, 33, 64};

struct CudaMatmulCase {
  CudaMatmulShape shape;
  CudaMatmulTuning tuning;
  int tokens = 0;
  bool has_residual = false;
  DType residual_dtype = DType::kF32;
  uint64_t seed = 1;
};

inline CudaMatmulCase case_of(DType dtype, int64_t columns, int64_t k, bool is_gated, int tokens) {
  CudaMatmulCase c;
  c.shape.weights = {.dtype = dtype, .columns = columns, .k = k, .is_gated = is_gated};
  c.shape.output_dtype = DType::kF32;
  c.shape.max_tokens = tokens;
  c.tokens = tokens;
  return c;
}

inline std::string name_of(const CudaMatmulCase& c) {
  const CudaWeightShape& w = c.shape.weights;
  return std::string(dtype_name(w.dtype)) + (w.is_gated ? " gated" : "") + " columns " +
         std::to_string(w.columns) + " k " + std::to_string(w.k) + " tokens " +
         std::to_string(c.tokens);
}

class CudaMatmulRun {
 public:
  static Result<CudaMatmulRun> make(const CudaMatmulCase& c) {
    CudaMatmulRun run(c, GAPLESS_TRY(CudaMatmul::make(c.shape, c.tuning)));
    run.fill_host();
    GAPLESS_TRY(run.upload());
    return run;
  }

  MatmulMatrix& weights() { return weights_; }
  MatmulMatrix& x() { return x_; }
  const CudaMatmul& matmul() const { return matmul_; }
  int64_t output_stride() const { return c_.shape.weights.columns + kGap; }

  CudaMatmulArgs args() const {
    const bool is_s8 = c_.shape.weights.dtype == DType::kS8;
    return {
        .weights = device_weights_.data(),
        .weight_scales = is_s8 ? reinterpret_cast<const float*>(device_scales_.data()) : nullptr,
        .tokens = c_.tokens,
        .x = device_x_.data(),
        .x_stride = x_.stride,
        .token_scales = reinterpret_cast<const float*>(device_token_scales_.data()),
        .residual = c_.has_residual ? device_residual_.data() : nullptr,
        .residual_dtype = c_.residual_dtype,
        .residual_stride = c_.shape.weights.columns,
        .output = device_output_.data(),
        .output_stride = output_stride(),
        .workspace = device_workspace_.data(),
        .workspace_bytes = device_workspace_.bytes()};
  }

  // After a change of weights() or x() too.
  Result<void> upload() {
    const CudaWeightShape& shape = c_.shape.weights;
    std::vector<std::byte> packed(static_cast<size_t>(cuda_weight_bytes(shape)));
    const void* up = shape.is_gated ? up_.bytes.data() : nullptr;
    GAPLESS_TRY(pack_cuda_weights({shape, weights_.bytes.data(), up}, packed));
    std::vector<float> scales(static_cast<size_t>(cuda_weight_rows(shape)));
    GAPLESS_TRY(pack_cuda_scales(
        {shape, weights_.scales.data(), shape.is_gated ? up_.scales.data() : nullptr}, scales));
    GAPLESS_TRY(copy(device_weights_, packed));
    GAPLESS_TRY(copy(device_scales_, scales));
    GAPLESS_TRY(copy(device_x_, x_.bytes));
    GAPLESS_TRY(copy(device_token_scales_, x_.scales));
    if (c_.residual_dtype == DType::kF32) {
      GAPLESS_TRY(copy(device_residual_, residual_));
    } else {
      std::vector<Bf16> cast;
      for (const float value : residual_) cast.push_back(to_bf16(value));
      GAPLESS_TRY(copy(device_residual_, cast));
    }
    const int64_t output_bytes = c_.tokens * output_stride() * dtype_bytes(c_.shape.output_dtype);
    device_output_ = GAPLESS_TRY(DeviceBuffer::allocate(output_bytes, "outputs"));
    device_workspace_ =
        GAPLESS_TRY(DeviceBuffer::allocate(matmul_.workspace_bytes(), "workspaces"));
    GAPLESS_TRY(device_workspace_.fill(0xff));
    return matmul_.prepare(device_workspace_.data(), device_workspace_.bytes(), nullptr);
  }

  // The raw bytes of a poisoned output after one launch.
  Result<std::vector<std::byte>> run(bool has_token_scales = true) {
    GAPLESS_TRY(device_output_.fill(0xff));
    CudaMatmulArgs launch_args = args();
    if (!has_token_scales) launch_args.token_scales = nullptr;
    GAPLESS_TRY(matmul_.launch(launch_args, nullptr));
    GAPLESS_TRY(synchronize(nullptr));
    std::vector<std::byte> output(static_cast<size_t>(device_output_.bytes()));
    GAPLESS_TRY(device_output_.copy_to_host(output.data(), device_output_.bytes()));
    return output;
  }

  float value_in(const std::vector<std::byte>& output, int64_t token, int64_t column) const {
    const size_t index = static_cast<size_t>(token * output_stride() + column);
    if (c_.shape.output_dtype == DType::kF32) {
      float value;
      std::memcpy(&value, output.data() + 4 * index, sizeof(value));
      return value;
    }
    Bf16 value;
    std::memcpy(&value, output.data() + 2 * index, sizeof(value));
    return to_float(value);
  }
  // Whether no byte between the rows was written.
  bool has_clean_gaps(const std::vector<std::byte>& output) const {
    const int64_t bytes = dtype_bytes(c_.shape.output_dtype);
    for (int64_t token = 0; token < c_.tokens; ++token) {
      const int64_t begin = token * output_stride() + c_.shape.weights.columns;
      for (int64_t i = begin * bytes; i < (begin + kGap) * bytes; ++i) {
        if (output[static_cast<size_t>(i)] != std::byte{0xff}) return false;
      }
    }
    return true;
  }

  // Whether there is a number in every place of the rows, and not the same one in all.
  bool has_values(const std::vector<std::byte>& output) const {
    float least = std::numeric_limits<float>::infinity();
    float most = -least;
    for (int64_t token = 0; token < c_.tokens; ++token) {
      for (int64_t column = 0; column < c_.shape.weights.columns; ++column) {
        const float value = value_in(output, token, column);
        if (!std::isfinite(value)) return false;
        least = std::min(least, value);
        most = std::max(most, value);
      }
    }
    return least < most;
  }

  double sum(const MatmulMatrix& matrix, int64_t token, int64_t column) const {
    double total = 0.0;  // of s8: an exact integer
    for (int64_t i = 0; i < c_.shape.weights.k; ++i)
      total += x_.at(token, i) * matrix.at(column, i);
    return total;
  }
  // Of `weights()`, with its scales, in the order and type of the contract: s8 to the last bit.
  float scaled(const MatmulMatrix& matrix, int64_t token, int64_t column) const {
    float value = static_cast<float>(sum(matrix, token, column));
    if (matrix.dtype == DType::kS8) value *= matrix.scales[static_cast<size_t>(column)];
    return value * x_.scales[static_cast<size_t>(token)];
  }
  double expected(int64_t token, int64_t column) const {
    double value = static_cast<double>(scaled(weights_, token, column));
    if (c_.shape.weights.is_gated)
      value = value / (1.0 + std::exp(-value)) * static_cast<double>(scaled(up_, token, column));
    if (!c_.has_residual) return value;
    const float r = residual_[static_cast<size_t>(token * c_.shape.weights.columns + column)];
    return value + static_cast<double>(c_.residual_dtype == DType::kF32 ? r : to_float(to_bf16(r)));
  }

  const DeviceBuffer& output() const { return device_output_; }
  // What the launch before a matmul may write.
  std::vector<DeviceSpan> inputs() const {
    std::vector<DeviceSpan> spans = {{device_x_.data(), device_x_.bytes()},
                                     {device_token_scales_.data(), device_token_scales_.bytes()}};
    if (c_.has_residual) spans.push_back({device_residual_.data(), device_residual_.bytes()});
    return spans;
  }

 private:
  static constexpr int64_t kGap = 6;
  static constexpr int64_t kTokenGap = 16;

  CudaMatmulRun(const CudaMatmulCase& c, CudaMatmul matmul) : c_(c), matmul_(std::move(matmul)) {}

  template <typename T>
  static Result<void> copy(DeviceBuffer& buffer, const std::vector<T>& values) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(T));
    buffer = GAPLESS_TRY(DeviceBuffer::allocate(bytes, "a test"));
    return buffer.copy_from_host(values.data(), bytes);
  }

  void fill_host() {
    const CudaWeightShape& shape = c_.shape.weights;
    weights_ = random_matrix(shape.dtype, shape.columns, shape.k, c_.seed);
    if (shape.is_gated) up_ = random_matrix(shape.dtype, shape.columns, shape.k, c_.seed + 1);
    x_ = random_matrix(shape.dtype, c_.tokens, shape.k, c_.seed + 2, 3, kTokenGap);
    // Gates of a few units, whatever k is.
    const float typical = shape.dtype == DType::kS8 ? 73.0f * 73.0f * 5e-4f : 0.33f;
    const float factor = 2.0f / (typical * std::sqrt(static_cast<float>(shape.k)));
    for (float& scale : x_.scales) scale = factor * (0.5f + 1e3f * scale);
    MatmulRandom random(c_.seed + 3);
    for (int64_t i = 0; i < c_.tokens * shape.columns; ++i) {
      residual_.push_back(random.between(-2.0f, 2.0f));
    }
  }

  CudaMatmulCase c_;
  CudaMatmul matmul_;
  MatmulMatrix weights_;
  MatmulMatrix up_;
  MatmulMatrix x_;
  std::vector<float> residual_;
  DeviceBuffer device_weights_;
  DeviceBuffer device_scales_;
  DeviceBuffer device_x_;
  DeviceBuffer device_token_scales_;
  DeviceBuffer device_residual_;
  DeviceBuffer device_output_;
  DeviceBuffer device_workspace_;
};

}  // namespace gapless
