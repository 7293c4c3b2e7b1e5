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

// What side streams do, sampling above all, can go on among the layers of the next pass. Then
// `is_boundary`, which was found in all rows, cuts runs of layers, and what the anchors' own stream
// does decides: returns the boundaries that it shows, with those of the others that fit them.
// Empty: nothing lies among layers, or the anchors' stream shows no boundary, and what was found
// stands. `main_keys` and `main_intervals` are of the anchors' streams only.
std::vector<uint8_t> find_boundaries_under_overlap(const KernelKeys& main_keys,
                                                   const AnchorIntervals& main_intervals,
                                                   const std::vector<uint8_t>& is_boundary);

// Drafts whose sampling and inputs are late by so much that they all lie where the pass ends: told
// by the anchors' stream, if a kernel that samples comes as often (`sampling_count`) as there are
// passes and anchors of drafts then. Empty: what was found stands.
std::vector<uint8_t> find_late_drafts(const KernelKeys& main_keys,
                                      const AnchorIntervals& main_intervals,
                                      const std::vector<uint8_t>& is_boundary,
                                      uint64_t sampling_count);

// Whether the first or the last interval has kernels that are in no layer: one that samples or
// looks up, or at least two types.
bool is_outside_layers(const KernelKeys& keys, const AnchorIntervals& intervals,
                       const std::vector<uint8_t>& is_boundary, uint32_t interval);

}  // namespace gapless
