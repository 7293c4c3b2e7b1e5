// SPDX-License-Identifier: Apache-2.0
//
// Rows are converted and placed panel by panel, a block of k at a time: sixteen blocks and the
// lines they go to stay in L1. About 0.7 ns a weight on a core of Zen 4, from bf16 to s8 or bf16.

#include "kernels/packed_matrix.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/half.h"
#include "kernels/cpu_level.h"
#include "kernels/elementwise.h"

namespace gapless {
namespace {

constexpr int64_t kMaxExtent = int64_t{1} << 31;
constexpr uint8_t kS8Bias = 128;
constexpr int64_t kBlockBytes = 256;    // of one row, in the matrix's type
constexpr size_t kVectorElements = 16;  // the compiler vectorises loops of a fixed length

bool is_weight_dtype(DType dtype) {
  return dtype == DType::kS8 || dtype == DType::kBf16 || dtype == DType::kF16 ||
         dtype == DType::kF32;
}

// Casts give the same bits at every level.
CpuLevel cast_level() {
  static const CpuLevel level = usable_cpu_levels().back();
  return level;
}

// The largest bit pattern without its sign. Patterns are ordered as the magnitudes that they stand
// for, infinity above all numbers and NaN above infinity.
template <typename Bits>
Bits largest_bits(const void* row, int64_t count) {
  const std::byte* from = static_cast<const std::byte*>(row);
  std::array<Bits, kVectorElements> largest = {};
  std::array<Bits, kVectorElements> bits = {};
  for (size_t left = static_cast<size_t>(count); left > 0;) {
    const size_t part = std::min(left, kVectorElements);
    if (part == kVectorElements) {
      std::memcpy(bits.data(), from, sizeof(bits));
    } else {
      bits.fill(0);
      std::memcpy(bits.data(), from, part * sizeof(Bits));
    }
    for (size_t i = 0; i < kVectorElements; ++i) {
      const Bits magnitude = static_cast<Bits>(bits[i] & std::numeric_limits<Bits>::max());
      largest[i] = std::max(largest[i], magnitude);
    }
    from += part * sizeof(Bits);
    left -= part;
  }
  return *std::max_element(largest.begin(), largest.end());
}

// A symmetric s8 scale; 1 for a row of zeros. NaN when the row has one or an infinity: what is made
// with it is NaN then, not a wrong number.
float s8_scale(DType dtype, const void* row, int64_t count) {
  const float amax = largest_magnitude(dtype, row, count);
  if (!std::isfinite(amax)) return std::nanf("");
  return amax == 0.0f ? 1.0f : amax / 127.0f;
}

// Floats from 2^23 on are integers: adding this rounds to nearest, ties to even, and leaves the
// integer in the lowest bits.
constexpr float kRounder = 0x1.8p23f;

// value / scale as the nearest integer within +-127; a NaN is 0.
uint8_t quantize(float value, float scale) {
  const float scaled = value / scale;
  const float clamped = std::isnan(scaled) ? 0.0f : std::clamp(scaled, -127.0f, 127.0f);
  return static_cast<uint8_t>(std::bit_cast<uint32_t>(clamped + kRounder));
}

// The same for values that are numbers and at most 127 scales large, but for a rounding error.
void quantize_vector(const float* values, float scale, uint8_t bias, uint8_t* out) {
  std::array<float, kVectorElements> numbers;
  std::array<uint32_t, kVectorElements> rounded;
  std::array<uint8_t, kVectorElements> bytes;
  std::memcpy(numbers.data(), values, sizeof(numbers));
  for (size_t i = 0; i < kVectorElements; ++i)
    rounded[i] = std::bit_cast<uint32_t>(numbers[i] / scale + kRounder) + bias;
  for (size_t i = 0; i < kVectorElements; ++i) bytes[i] = static_cast<uint8_t>(rounded[i]);
  std::memcpy(out, bytes.data(), sizeof(bytes));
}

// Adds `bias`, modulo 256.
void quantize_block(const float* values, size_t count, float scale, uint8_t bias, uint8_t* out) {
  size_t done = 0;
  // A scale without all its bits may be too small by any factor.
  if (std::isnormal(scale))
    for (; done + kVectorElements <= count; done += kVectorElements)
      quantize_vector(values + done, scale, bias, out + done);
  for (; done < count; ++done)
    out[done] = static_cast<uint8_t>(quantize(values[done], scale) + bias);
}

// A block of a row, from its type to s8 plus `bias`.
void quantize_elements(DType dtype, const std::byte* from, int64_t count, float scale, uint8_t bias,
                       uint8_t* out) {
  GAPLESS_DCHECK(count <= kBlockBytes);
  std::array<float, kBlockBytes> values;
  cast_row(cast_level(), dtype, from, count, DType::kF32, values.data());
  quantize_block(values.data(), static_cast<size_t>(count), scale, bias, out);
}

// Words of the blocks of `row_count` rows to their lines, in which the rows lie side by side.
template <typename Word>
void place_words(const std::byte* blocks, int64_t word_count, int64_t row_count, std::byte* to) {
  constexpr int64_t kBytes = sizeof(Word);
  for (int64_t word = 0; word < word_count; ++word, to += kPanelRows * kBytes) {
    const std::byte* from = blocks + word * kBytes;
    if (row_count == kPanelRows) {
      for (int64_t row = 0; row < kPanelRows; ++row)
        std::memcpy(to + row * kBytes, from + row * kBlockBytes, sizeof(Word));
    } else {
      for (int64_t row = 0; row < row_count; ++row)
        std::memcpy(to + row * kBytes, from + row * kBlockBytes, sizeof(Word));
    }
  }
}

}  // namespace

float largest_magnitude(DType dtype, const void* row, int64_t count) {
  if (dtype == DType::kF32) return std::bit_cast<float>(largest_bits<int32_t>(row, count));
  const uint16_t bits = static_cast<uint16_t>(largest_bits<int16_t>(row, count));
  if (dtype == DType::kBf16) return to_float(Bf16{bits});
  GAPLESS_CHECK(dtype == DType::kF16);
  return to_float(F16{bits});
}

float quantize_row(DType source_dtype, const void* source, int64_t count, int8_t* quantized) {
  const float scale = s8_scale(source_dtype, source, count);
  const std::byte* from = static_cast<const std::byte*>(source);
  uint8_t* to = reinterpret_cast<uint8_t*>(quantized);
  for (int64_t done = 0; done < count; done += kBlockBytes) {
    const int64_t part = std::min(count - done, kBlockBytes);
    quantize_elements(source_dtype, from + done * dtype_bytes(source_dtype), part, scale, 0,
                      to + done);
  }
  return scale;
}

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

size_t PackedMatrix::scale_index(int64_t row, int which) const {
  return static_cast<size_t>(panel_of(row, which) * kPanelRows + row % kPanelRows);
}

// Rows of one panel. convert(i, k, count, out) gives elements [k, k + count) of the i-th of them in
// the matrix's type. A row has four bytes in each line, or two bytes twice (f16).
template <typename Convert>
void PackedMatrix::place_rows(int64_t row, int64_t count, int which, const Convert& convert) {
  std::array<std::byte, kPanelRows * kBlockBytes> blocks;
  const int64_t width = dtype_bytes(dtype_);
  const std::byte padding{dtype_ == DType::kS8 ? kS8Bias : uint8_t{0}};
  for (int64_t k = 0; k < k_; k += kBlockBytes / width) {
    const int64_t part = std::min(k_ - k, kBlockBytes / width);
    const int64_t bytes = part * width;
    const int64_t padded_bytes = (bytes + 3) / 4 * 4;
    for (int64_t i = 0; i < count; ++i) {
      std::byte* block = blocks.data() + i * kBlockBytes;
      convert(i, k, part, block);
      std::fill(block + bytes, block + padded_bytes, padding);
    }
    if (dtype_ == DType::kF16)
      place_words<uint16_t>(blocks.data(), part, count, element(row, k, which));
    else
      place_words<uint32_t>(blocks.data(), padded_bytes / 4, count, element(row, k, which));
  }
}

// Rows of one panel, from another type than the matrix's.
void PackedMatrix::convert_rows(int64_t row, int64_t count, DType source_dtype,
                                const std::byte* source, int which) {
  const int64_t width = dtype_bytes(source_dtype);
  const auto from = [&](int64_t i, int64_t k) { return source + (i * k_ + k) * width; };
  if (dtype_ == DType::kS8) {
    std::array<float, kPanelRows> scales = {};
    for (int64_t i = 0; i < count; ++i) {
      const float scale = s8_scale(source_dtype, from(i, 0), k_);
      scales[static_cast<size_t>(i)] = scales_[scale_index(row + i, which)] = scale;
    }
    place_rows(row, count, which, [&](int64_t i, int64_t k, int64_t part, std::byte* out) {
      quantize_elements(source_dtype, from(i, k), part, scales[static_cast<size_t>(i)], kS8Bias,
                        reinterpret_cast<uint8_t*>(out));
    });
    return;
  }
  place_rows(row, count, which, [&](int64_t i, int64_t k, int64_t part, std::byte* out) {
    std::array<float, kBlockBytes> values;
    cast_row(cast_level(), source_dtype, from(i, k), part, DType::kF32, values.data());
    cast_row(cast_level(), DType::kF32, values.data(), part, dtype_, out);
  });
}

void PackedMatrix::set_rows(int64_t row, int64_t count, DType source_dtype, const void* source,
                            int which) {
  GAPLESS_CHECK(row >= 0 && count >= 0 && row + count <= n_);
  GAPLESS_CHECK(source_dtype != DType::kS8);
  const std::byte* from = static_cast<const std::byte*>(source);
  const int64_t width = dtype_bytes(source_dtype);
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min(count - done, kPanelRows - (row + done) % kPanelRows);
    const std::byte* rows = from + done * k_ * width;
    if (source_dtype == dtype_) {
      place_rows(row + done, part, which, [&](int64_t i, int64_t k, int64_t size, std::byte* out) {
        std::memcpy(out, rows + (i * k_ + k) * width, static_cast<size_t>(size * width));
      });
    } else {
      convert_rows(row + done, part, source_dtype, rows, which);
    }
    done += part;
  }
}

void PackedMatrix::set_quantized_rows(int64_t row, int64_t count, const int8_t* source,
                                      const float* scales, int which) {
  GAPLESS_CHECK(dtype_ == DType::kS8);
  GAPLESS_CHECK(row >= 0 && count >= 0 && row + count <= n_);
  for (int64_t i = 0; i < count; ++i) scales_[scale_index(row + i, which)] = scales[i];
  for (int64_t done = 0; done < count;) {
    const int64_t part = std::min(count - done, kPanelRows - (row + done) % kPanelRows);
    const int8_t* rows = source + done * k_;
    place_rows(row + done, part, which, [&](int64_t i, int64_t k, int64_t size, std::byte* out) {
      std::transform(rows + i * k_ + k, rows + i * k_ + k + size, out,
                     [](int8_t value) { return std::byte{static_cast<uint8_t>(value + kS8Bias)}; });
    });
    done += part;
  }
}

float PackedMatrix::value(int64_t row, int64_t k, int which) const {
  const std::byte* at = element(row, k, which);
  if (dtype_ != DType::kS8) return load_as_float(dtype_, at, 0);
  return static_cast<float>(static_cast<int>(*at) - kS8Bias) * scales_[scale_index(row, which)];
}

}  // namespace gapless
