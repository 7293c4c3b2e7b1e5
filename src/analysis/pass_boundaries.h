// SPDX-License-Identifier: Apache-2.0
//
// Which intervals between anchors are no layer: a pass, or a draft behind it, ends there.
//
// Three kinds of evidence, the stronger first:
//  - names: a kernel that samples or looks tokens up is between layers, never in one;
//  - company: kernels that are only where those are, and never in two layers close by (a pass of
//    an idle worker prepares its inputs as all do, but samples nothing);
//  - rarity, when names say nothing: kernels, or more of them than a layer has, that come once in
//    many anchors. An odd layer has a few such kernels too; a boundary has many times as many, and
//    everything that a layer has besides: the end of the last and the beginning of the first.
// What comes once in a single pass is no boundary unless it is large. Undecidable without names:
// fewer than 4 anchors a pass, when a pass has as few kernels outside its layers as an odd layer.

#pragma once

#include <cstdint>
#include <vector>

#include "analysis/pass_signature.h"

namespace gapless {

// By interval: 1 when a pass or a draft ends in it. Never the first or the last.
std::vector<uint8_t> find_boundaries(const KernelKeys& keys, const AnchorIntervals& intervals);

// Whether the first or the last interval has kernels that are in no layer: one that samples or
// looks up, or at least two types.
bool is_outside_layers(const KernelKeys& keys, const AnchorIntervals& intervals,
                       const std::vector<uint8_t>& is_boundary, uint32_t interval);

}  // namespace gapless
