// SPDX-License-Identifier: Apache-2.0

#include "kernels/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/half.h"

namespace gapless {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 31;
constexpr uint8_t kS8Bias = 128;

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kS8 || dtype == DType::kBf16 || dtype == DType::kF16 ||
         dtype == DType::kF32;
}

// A symmetric s8 scale; 1 for a row of zeros. NaN when the row has one or an infinity: what is made
// with it is NaN then, not a wrong number.
float s8_scale(const float* values, int64_t count) {
  float amax = 0.0f;
  bool is_finite = true;
  for (int64_t i = 0; i < count; ++i) {
    amax = std::max(amax, std::abs(values[i]));
    is_finite = is_finite && std::isfinite(values[i]);
  }
  if (!is_finite) return std::nanf("");
  return amax == 0.0f ? 1.0f : amax / 127.0f;
}

int8_t quantize(float value, float scale) {
  const float scaled = std::nearbyint(value / scale);
  return std::isnan(scaled) ? int8_t{0} : static_cast<int8_t>(std::clamp(scaled, -127.0f, 127.0f));
}

}  // namespace

Result<PackedMatrix> PackedMatrix::create(DType dtype, int64_t n, int64_t k,
                                          Interleave interleave) {
  if (!is_weight_dtype(dtype))
    return fail(ErrorCode::kInvalidInput, "weights are s8, bf16, f16 or f32, not {}",
                dtype_name(dtype));
  if (n < 1 || n > kMaxExtent || k < 1 || k > kMaxExtent)
    return fail(ErrorCode::kInvalidInput, "weights of n = {}, k = {} are not between 1 and {}", n,
                k, kMaxExtent);
  PackedMatrix matrix;
  const int matrices = interleave == Interleave::kPairs ? 2 : 1;
  matrix.dtype_ = dtype;
  matrix.interleave_ = interleave;
  matrix.n_ = n;
  matrix.k_ = k;
  matrix.line_count_ = (k + line_k(dtype) - 1) / line_k(dtype);
  matrix.panel_count_ = (n + kPanelRows - 1) / kPanelRows * matrices;
  size_t bytes = 0;
  if (__builtin_mul_overflow(matrix.panel_count_, matrix.panel_stride(), &bytes))
    return fail(ErrorCode::kSystem, "cannot map weights of n = {}, k = {}", n, k);
  matrix.data_ = GAPLESS_TRY(HugeBuffer::allocate(bytes));
  if (dtype == DType::kS8) {
    std::memset(matrix.data_.data(), kS8Bias, bytes);
    matrix.scales_.assign(static_cast<size_t>(matrix.panel_count_ * kPanelRows), 0.0f);
  }
  return matrix;
}

int64_t PackedMatrix::weight_bytes() const {
  const int64_t scales = static_cast<int64_t>(scales_.size() * sizeof(float));
  return panel_count_ * line_count_ * kLineBytes + scales;
}

int64_t PackedMatrix::panel_of(int64_t row, int which) const {
  GAPLESS_CHECK(which == 0 || (which == 1 && interleave_ == Interleave::kPairs));
  const int64_t panel = row / kPanelRows;
  return interleave_ == Interleave::kPairs ? panel * 2 + which : panel;
}

std::byte* PackedMatrix::element(int64_t row, int64_t k, int which) const {
  const int64_t width = dtype_bytes(dtype_);
  const int64_t in_panel = row % kPanelRows;
  std::byte* panel = data_.data() + panel_of(row, which) * panel_stride();
  if (dtype_ == DType::kF16 || dtype_ == DType::kF32)
    return panel + (k * kPanelRows + in_panel) * width;
  const int64_t together = line_k(dtype_);
  const int64_t line = k / together;
  return panel + line * kLineBytes + (in_panel * together + k % together) * width;
}

// Elements [0, k) of a row, already of the matrix's type, to their lines. A row has four bytes in
// each line, or two bytes twice (f16).
void PackedMatrix::place_row(int64_t row, int which, const void* source) {
  std::byte* to = element(row, 0, which);
  const std::byte* from = static_cast<const std::byte*>(source);
  const int64_t step = dtype_ == DType::kF16 ? kLineBytes / 2 : kLineBytes;
  const int64_t width = dtype_ == DType::kF16 ? 2 : 4;
  const int64_t bytes = k_ * dtype_bytes(dtype_);
  int64_t done = 0;
  if (width == 2)
    for (; done + 2 <= bytes; done += 2, to += step) std::memcpy(to, from + done, 2);
  else
    for (; done + 4 <= bytes; done += 4, to += step) std::memcpy(to, from + done, 4);
  std::memcpy(to, from + done, static_cast<size_t>(bytes - done));
}

void PackedMatrix::set_rows(int64_t row, int64_t count, DType source_dtype, const void* source,
                            int which) {
  GAPLESS_CHECK(row >= 0 && count >= 0 && row + count <= n_);
  GAPLESS_CHECK(source_dtype != DType::kS8);
  const std::byte* from = static_cast<const std::byte*>(source);
  const int64_t row_bytes = k_ * dtype_bytes(source_dtype);
  if (source_dtype == dtype_) {
    for (int64_t i = 0; i < count; ++i) place_row(row + i, which, from + i * row_bytes);
    return;
  }
  std::vector<float> values(static_cast<size_t>(k_));
  std::vector<std::byte> converted(static_cast<size_t>(k_ * dtype_bytes(dtype_)));
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t j = 0; j < k_; ++j)
      values[static_cast<size_t>(j)] = load_as_float(source_dtype, from + i * row_bytes, j);
    if (dtype_ == DType::kS8) {
      const float scale = s8_scale(values.data(), k_);
      int8_t* quantized = reinterpret_cast<int8_t*>(converted.data());
      std::transform(values.begin(), values.end(), quantized,
                     [scale](float value) { return quantize(value, scale); });
      set_quantized_rows(row + i, 1, quantized, &scale, which);
    } else {
      for (int64_t j = 0; j < k_; ++j)
        store_from_float(dtype_, converted.data(), j, values[static_cast<size_t>(j)]);
      place_row(row + i, which, converted.data());
    }
  }
}

void PackedMatrix::set_quantized_rows(int64_t row, int64_t count, const int8_t* source,
                                      const float* scales, int which) {
  GAPLESS_CHECK(dtype_ == DType::kS8);
  GAPLESS_CHECK(row >= 0 && count >= 0 && row + count <= n_);
  std::vector<uint8_t> biased(static_cast<size_t>(k_));
  for (int64_t i = 0; i < count; ++i) {
    const int64_t to = row + i;
    scales_[static_cast<size_t>(panel_of(to, which) * kPanelRows + to % kPanelRows)] = scales[i];
    std::transform(source + i * k_, source + (i + 1) * k_, biased.begin(),
                   [](int8_t value) { return static_cast<uint8_t>(value + kS8Bias); });
    place_row(to, which, biased.data());
  }
}

float PackedMatrix::value(int64_t row, int64_t k, int which) const {
  const std::byte* at = element(row, k, which);
  if (dtype_ != DType::kS8) return load_as_float(dtype_, at, 0);
  const float scale =
      scales_[static_cast<size_t>(panel_of(row, which) * kPanelRows + row % kPanelRows)];
  return static_cast<float>(static_cast<int>(*at) - kS8Bias) * scale;
}

}  // namespace gapless
