// SPDX-License-Identifier: Apache-2.0
//
// Values that are a function of a seed and a place, the same everywhere and in any order: inputs
// and caches that nobody computed. About 1.5 ns a value.

#pragma once

#include <cstdint>
#include <span>

namespace gapless {

// The finalizer of splitmix64 over a counter.
constexpr uint64_t mix_bits(uint64_t value) {
  value += 0x9e3779b97f4a7c15;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

// Nearly normal, mean 0 and deviation 1: the sum of four uniform values, never beyond +-3.5.
void fill_normal(uint64_t seed, uint64_t place, std::span<float> values);

}  // namespace gapless
