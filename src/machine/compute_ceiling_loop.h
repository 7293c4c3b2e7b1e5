// SPDX-License-Identifier: Apache-2.0
//
// The chains of compute_ceiling_levels.h for any vector and any multiply-add.
//
// For level files only: everything is in an anonymous namespace, or the linker would take one
// level's code for another's.

#pragma once

#include <type_traits>
#include <utility>

#include "machine/compute_ceiling_levels.h"

namespace gapless {
namespace {

// `next` takes a chain's sum to the following one.
template <typename Vector, typename Next>
double run_chains(int64_t iterations, Next next) {
  using Element = std::remove_reference_t<decltype(std::declval<Vector&>()[0])>;
  Vector sums[kChains];
#pragma GCC unroll 12
  for (int chain = 0; chain < kChains; ++chain) {
    // Chains that are alike would become one, and one that stays at 2 would be seen through.
    sums[chain] = Vector{} + static_cast<Element>(3 + chain);
  }
  for (int64_t i = 0; i < iterations; ++i) {
#pragma GCC unroll 12
    for (Vector& sum : sums) sum = next(sum);
  }
  Vector total = {};
#pragma GCC unroll 12
  for (const Vector& sum : sums) total += sum;
  return static_cast<double>(total[0]);
}

}  // namespace
}  // namespace gapless
