// SPDX-License-Identifier: Apache-2.0
//
// What the tests of kernels share: arrays that end (or begin) where memory does, random values from
// a seed, and a comparison with a reference that says how far off the worst element is.

#pragma once

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/check.h"
#include "base/dtype.h"
#include "base/half.h"
#include "kernels/cpu_level.h"

namespace gapless {

// On which side of the array the inaccessible page lies: behind its last byte or before its first.
enum class GuardSide : uint8_t { kEnd, kBegin };

// `count` zeros; the first byte past one end of the array cannot be read nor written. (At the other
// end the array's last page may go on for a while.)
template <typename T>
class GuardedArray {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  explicit GuardedArray(int64_t count, GuardSide side = GuardSide::kEnd) : count_(count) {
    const size_t page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
    const size_t bytes = static_cast<size_t>(count) * sizeof(T);
    const size_t inner_bytes = (bytes + page_bytes - 1) / page_bytes * page_bytes;
    mapped_bytes_ = inner_bytes + 2 * page_bytes;
    mapping_ = ::mmap(nullptr, mapped_bytes_, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    GAPLESS_CHECK(mapping_ != MAP_FAILED);
    std::byte* const inner = static_cast<std::byte*>(mapping_) + page_bytes;
    if (inner_bytes > 0) {
      GAPLESS_CHECK(::mprotect(inner, inner_bytes, PROT_READ | PROT_WRITE) == 0);
    }
    const size_t offset = side == GuardSide::kEnd ? inner_bytes - bytes : 0;
    data_ = reinterpret_cast<T*>(inner + offset);
  }
  GuardedArray(std::span<const T> values, GuardSide side = GuardSide::kEnd)
      : GuardedArray(static_cast<int64_t>(values.size()), side) {
    for (size_t i = 0; i < values.size(); ++i) data_[i] = values[i];
  }
  GuardedArray(const GuardedArray&) = delete;
  GuardedArray& operator=(const GuardedArray&) = delete;
  ~GuardedArray() { ::munmap(mapping_, mapped_bytes_); }

  T* data() const { return data_; }
  int64_t size() const { return count_; }
  T& operator[](int64_t index) const { return data_[index]; }
  std::span<T> span() const { return {data_, static_cast<size_t>(count_)}; }

 private:
  void* mapping_ = nullptr;
  size_t mapped_bytes_ = 0;
  T* data_ = nullptr;
  int64_t count_ = 0;
};

inline void fill_normal(std::span<float> values, uint32_t seed, float deviation = 1.0f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution(0.0f, deviation);
  for (float& value : values) value = distribution(random);
}

inline void fill_uniform(std::span<float> values, float low, float high, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> distribution(low, high);
  for (float& value : values) value = distribution(random);
}

inline std::vector<float> normal_values(int64_t count, uint32_t seed, float deviation = 1.0f) {
  std::vector<float> values(static_cast<size_t>(count));
  fill_normal(values, seed, deviation);
  return values;
}

inline std::vector<float> uniform_values(int64_t count, float low, float high, uint32_t seed) {
  std::vector<float> values(static_cast<size_t>(count));
  fill_uniform(values, low, high, seed);
  return values;
}

// The values as an array of `dtype` (kF32, kBf16 or kF16), and back.
inline std::vector<std::byte> as_dtype(DType dtype, std::span<const float> values) {
  std::vector<std::byte> bytes(values.size() * static_cast<size_t>(dtype_bytes(dtype)));
  for (size_t i = 0; i < values.size(); ++i) {
    store_from_float(dtype, bytes.data(), static_cast<int64_t>(i), values[i]);
  }
  return bytes;
}

inline std::vector<float> as_floats(DType dtype, const void* data, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    values[static_cast<size_t>(i)] = load_as_float(dtype, data, i);
  }
  return values;
}

// For EXPECT_EQ(bits_of(a), bits_of(b)), which tells 0 from -0 and takes a NaN as equal to itself.
inline std::vector<uint32_t> bits_of(std::span<const float> values) {
  std::vector<uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

// How far an element may be from its reference: absolute + relative * |reference|.
struct Tolerance {
  double absolute = 0.0;
  double relative = 0.0;
};

// The tolerance of what is then cast to `dtype`: half a step of that type more.
inline Tolerance with_cast(DType dtype, Tolerance tolerance) {
  if (dtype == DType::kBf16) tolerance.relative += 0x1p-8;
  if (dtype == DType::kF16) {
    tolerance.relative += 0x1p-11;
    tolerance.absolute += 0x1p-25;  // among denormals
  }
  return tolerance;
}

struct Difference {
  double absolute = 0.0;        // the largest
  int64_t absolute_index = -1;  // where; -1 when all are equal
  double relative = 0.0;        // the largest, among references that are not 0
  int64_t relative_index = -1;
};

// 0 for two NaNs and for equal infinities; infinity when only one is a NaN or they are not equal.
inline double distance(double actual, double expected) {
  if (actual == expected || (std::isnan(actual) && std::isnan(expected))) return 0.0;
  const double apart = std::abs(actual - expected);
  return std::isnan(apart) ? std::numeric_limits<double>::infinity() : apart;
}

inline Difference difference_of(std::span<const float> actual, std::span<const double> expected) {
  GAPLESS_CHECK(actual.size() == expected.size());
  Difference largest;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double absolute = distance(static_cast<double>(actual[i]), expected[i]);
    if (absolute > largest.absolute) {
      largest.absolute = absolute;
      largest.absolute_index = static_cast<int64_t>(i);
    }
    const double relative = absolute / std::abs(expected[i]);
    if (relative > largest.relative) {
      largest.relative = relative;
      largest.relative_index = static_cast<int64_t>(i);
    }
  }
  return largest;
}

// EXPECT_TRUE(all_near(y, reference, {.relative = 1e-6})): fails with the worst element, and says
// how large the largest errors of all are.
inline testing::AssertionResult all_near(std::span<const float> actual,
                                         std::span<const double> expected, Tolerance tolerance) {
  if (actual.size() != expected.size()) {
    return testing::AssertionFailure() << actual.size() << " elements, not " << expected.size();
  }
  double worst = 0.0;
  size_t worst_index = 0;
  for (size_t i = 0; i < actual.size(); ++i) {
    const double apart = distance(static_cast<double>(actual[i]), expected[i]);
    if (apart == 0.0) continue;
    double allowed = tolerance.absolute + tolerance.relative * std::abs(expected[i]);
    if (!std::isfinite(allowed)) allowed = tolerance.absolute;
    const double excess = apart / allowed;
    if (excess > worst || std::isnan(excess)) {
      worst = std::isnan(excess) ? std::numeric_limits<double>::infinity() : excess;
      worst_index = i;
    }
  }
  if (worst <= 1.0) return testing::AssertionSuccess();
  const Difference largest = difference_of(actual, expected);
  return testing::AssertionFailure()
         << "element " << worst_index << " of " << actual.size() << " is " << actual[worst_index]
         << ", not " << expected[worst_index] << ": " << worst
         << " times the tolerance; largest errors: " << largest.absolute << " absolute (element "
         << largest.absolute_index << "), " << largest.relative << " relative (element "
         << largest.relative_index << ")";
}

// For SCOPED_TRACE(level_trace(level)): which level a failure is of.
inline std::string level_trace(CpuLevel level) {
  return "at level " + std::string(cpu_level_name(level));
}

}  // namespace gapless
