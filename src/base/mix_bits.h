// SPDX-License-Identifier: Apache-2.0
//
// Random bits that are a function of a number: the same on every machine and in any order.

#pragma once

#include <cstdint>

namespace gapless {

// What splitmix64 adds to its state from one number to the next.
inline constexpr uint64_t kMixIncrement = 0x9e3779b97f4a7c15;

// The finalizer of splitmix64 over a counter: neighbouring values give bits that have nothing in
// common. About 1 ns.
constexpr uint64_t mix_bits(uint64_t value) {
  value += kMixIncrement;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9;
  value = (value ^ (value >> 27)) * 0x94d049bb133111eb;
  return value ^ (value >> 31);
}

}  // namespace gapless
