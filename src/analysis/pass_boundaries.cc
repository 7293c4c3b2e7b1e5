// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_boundaries.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

namespace gapless {
namespace {

// Names that are in more intervals than this share stand for something that layers do.
constexpr double kMaxHintedShare = 0.8;
// Kernels that recur within so many anchors belong to layers: full attention in one of four, two
// attention kernels a layer.
constexpr uint32_t kLayerReach = 6;
constexpr uint32_t kLongPass = 12;
constexpr uint32_t kMaxKeys = 1 << 14;
constexpr uint32_t kOrdinals = 16;
// Drafts are so near the end of a pass.
constexpr int64_t kMaxDraftAnchors = 8;
constexpr int64_t kUsualDrafts = 3;
constexpr uint32_t kMinDraftMass = 3;
constexpr uint32_t kMinMass = 4;
// Shares of a layer's kernels that a boundary has as well.
constexpr double kWhole = 0.95;
constexpr double kMost = 0.75;

using Marks = std::vector<uint8_t>;

// The second kernel of a type in an interval is another thing than the first: so a set of things
// tells how many there are of each type.
class Things {
 public:
  Things(const KernelKeys& keys, const AnchorIntervals& intervals)
      : keys_(keys),
        intervals_(intervals),
        ordinals_(keys.key_count <= kMaxKeys ? kOrdinals : 1),
        seen_(keys.key_count, 0),
        seen_in_(keys.key_count, kNoIndex) {}

  size_t size() const { return size_t{keys_.key_count} * ordinals_; }
  uint32_t key_of(size_t thing) const { return static_cast<uint32_t>(thing / ordinals_); }

  // Calls visit(thing, is_new) for each row of the interval that has a key. Kernels beyond the last
  // ordinal are all the same thing, and not new.
  template <typename Visit>
  void for_each(uint32_t interval, Visit visit) {
    ++round_;
    const uint32_t stop = intervals_.stop_row(interval);
    for (uint32_t row = intervals_.begin_row(interval); row < stop; ++row) {
      const uint32_t key = keys_.key[row];
      if (key == kNoIndex) continue;
      if (seen_in_[key] != round_) {
        seen_in_[key] = round_;
        seen_[key] = 0;
      }
      const bool is_new = seen_[key] < ordinals_;
      const uint32_t ordinal = std::min(seen_[key], ordinals_ - 1);
      ++seen_[key];
      visit(size_t{key} * ordinals_ + ordinal, is_new);
    }
  }

 private:
  const KernelKeys& keys_;
  const AnchorIntervals& intervals_;
  uint32_t ordinals_;
  uint32_t round_ = 0;
  std::vector<uint32_t> seen_;
  std::vector<uint32_t> seen_in_;
};

// In how many intervals a thing is, and how often the one before was close by.
struct ThingUse {
  uint32_t count = 0;
  uint32_t last = 0;
  uint32_t near_count = 0;

  bool is_isolated() const { return count > 0 && near_count * 4 <= count; }
};

// Of the intervals that are not marked. `reach`: closer than this is close by.
std::vector<ThingUse> count_uses(Things& things, const AnchorIntervals& intervals,
                                 const Marks& marked, uint32_t reach) {
  std::vector<ThingUse> uses(things.size());
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (marked[interval] != 0) continue;
    things.for_each(interval, [&](size_t thing, bool is_new) {
      if (!is_new) return;
      ThingUse& use = uses[thing];
      if (use.count > 0 && interval - use.last < reach) ++use.near_count;
      ++use.count;
      use.last = interval;
    });
  }
  return uses;
}

bool has_hint(const KernelKeys& keys, const AnchorIntervals& intervals, uint32_t interval,
              KernelHint hint) {
  const auto begin = keys.hint.begin() + intervals.begin_row(interval);
  const auto stop = keys.hint.begin() + intervals.stop_row(interval);
  return std::find(begin, stop, hint) != stop;
}

// Marks where names say that it is no layer. A name that is nearly everywhere says nothing.
Marks mark_hinted(const KernelKeys& keys, const AnchorIntervals& intervals) {
  Marks marks(intervals.last() + 1, 0);
  const double inner = static_cast<double>(intervals.last()) - 1.0;
  for (const KernelHint hint : {KernelHint::kSampling, KernelHint::kEmbedding}) {
    std::vector<uint32_t> hinted;
    for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
      if (has_hint(keys, intervals, interval, hint)) hinted.push_back(interval);
    }
    if (static_cast<double>(hinted.size()) > kMaxHintedShare * inner && hinted.size() > 1) continue;
    for (const uint32_t interval : hinted) marks[interval] = 1;
  }
  return marks;
}

// The length that most anchors are in runs of, between marks.
uint32_t usual_length(const AnchorIntervals& intervals, const Marks& marks) {
  std::unordered_map<uint32_t, uint64_t> anchors;
  uint32_t begin = 0;
  uint32_t usual = 0;
  for (uint32_t interval = 1; interval <= intervals.last(); ++interval) {
    if (interval < intervals.last() && marks[interval] == 0) continue;
    const uint32_t length = interval - begin;
    const uint64_t sum = anchors[length] += length;
    if (usual == 0 || sum > anchors[usual] || (sum == anchors[usual] && length > usual)) {
      usual = length;
    }
    begin = interval;
  }
  return usual;
}

// Marks intervals with kernels that otherwise only marked ones have.
void mark_company(Things& things, const AnchorIntervals& intervals, Marks& marks) {
  const bool is_long = usual_length(intervals, marks) >= kLongPass;
  const std::vector<ThingUse> uses =
      count_uses(things, intervals, marks, is_long ? kLayerReach : 2);
  std::vector<uint8_t> is_known(things.size(), 0);
  uint32_t inner = 0;
  for (uint32_t interval = 0; interval <= intervals.last(); ++interval) {
    const bool is_edge = interval == 0 || interval == intervals.last();
    if (!is_edge && marks[interval] == 0) {
      ++inner;
      continue;
    }
    // What is of interest is the type, not how many there are.
    things.for_each(interval, [&](size_t thing, bool) { is_known[things.key_of(thing)] = 1; });
  }
  const double max_share = is_long ? 0.15 : 0.5;
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (marks[interval] != 0) continue;
    uint32_t shared = 0;
    bool has_other = false;
    things.for_each(interval, [&](size_t thing, bool is_new) {
      const ThingUse& use = uses[thing];
      const bool is_rare = use.count <= max_share * inner && use.is_isolated();
      if (!is_rare || !is_new) return;
      const bool is_first = thing == 0 || things.key_of(thing - 1) != things.key_of(thing);
      if (is_known[things.key_of(thing)] == 0) has_other = true;
      if (is_first) ++shared;
    });
    if (shared >= 2 && !has_other) marks[interval] = 1;
  }
}

// By interval: rows of things that are rare.
std::vector<uint32_t> rare_masses(Things& things, const AnchorIntervals& intervals,
                                  const std::vector<ThingUse>& uses) {
  std::vector<uint32_t> masses(intervals.last() + 1, 0);
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    things.for_each(interval, [&](size_t thing, bool) {
      if (uses[thing].is_isolated()) ++masses[interval];
    });
  }
  return masses;
}

// Whether the interval has what its neighbours have, and more.
bool holds_neighbour(Things& things, const AnchorIntervals& intervals, uint32_t interval,
                     double share) {
  std::vector<size_t> own;
  things.for_each(interval, [&](size_t thing, bool) { own.push_back(thing); });
  std::sort(own.begin(), own.end());
  for (const uint32_t other : {interval - 1, interval + 1}) {
    if (other == 0 || other >= intervals.last()) continue;
    uint32_t held = 0;
    things.for_each(other, [&](size_t thing, bool) {
      if (std::binary_search(own.begin(), own.end(), thing)) ++held;
    });
    if (held >= share * intervals.row_counts[other]) return true;
  }
  return false;
}

uint32_t median_rows(const AnchorIntervals& intervals) {
  std::vector<uint32_t> counts(intervals.row_counts.begin() + 1, intervals.row_counts.end() - 1);
  const auto middle = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / 2);
  std::nth_element(counts.begin(), middle, counts.end());
  return *middle;
}

// Intervals with rare kernels that are `distance` anchors before or behind nearly all marked ones.
std::vector<uint32_t> regular_sides(const AnchorIntervals& intervals, const Marks& marks,
                                    const std::vector<uint32_t>& masses, int64_t distance) {
  std::vector<uint32_t> sides;
  size_t possible = 0;
  for (int64_t interval = 1; interval < intervals.last(); ++interval) {
    const int64_t side = interval + distance;
    if (marks[static_cast<size_t>(interval)] == 0 || side < 1 || side >= intervals.last()) continue;
    ++possible;
    const size_t at = static_cast<size_t>(side);
    if (marks[at] == 0 && masses[at] >= kMinDraftMass) sides.push_back(static_cast<uint32_t>(side));
  }
  if (sides.size() < 2 || sides.size() * 5 < possible * 4) sides.clear();
  return sides;
}

// Sampling and inputs are on both sides of drafts, and one of them may be much smaller than the
// other: marks intervals with rare kernels that are always a few anchors from a marked one, and
// those that are like them.
void mark_draft_sides(Things& things, const AnchorIntervals& intervals,
                      const std::vector<uint32_t>& masses, Marks& marks) {
  const Marks strong = marks;
  if (usual_length(intervals, strong) < kLongPass) return;
  std::unordered_set<uint64_t> signatures;
  for (int64_t distance = -kMaxDraftAnchors; distance <= kMaxDraftAnchors; ++distance) {
    for (const uint32_t side : regular_sides(intervals, strong, masses, distance)) {
      // An odd layer has other kernels in the place of some; a boundary has more. Not so where an
      // anchor stands for several layers and a draft has one: there, at the very end of a pass, an
      // odd layer is the less likely thing.
      const bool is_at_end = distance < 0 && distance >= -kUsualDrafts;
      if (is_at_end || holds_neighbour(things, intervals, side, kWhole)) {
        signatures.insert(intervals.signatures[side]);
      }
    }
  }
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (signatures.contains(intervals.signatures[interval])) marks[interval] = 1;
  }
}

// Marks what is rare enough and large enough. `reach` tells what is rare.
void mark_rare(Things& things, const AnchorIntervals& intervals, uint32_t reach, Marks& marks) {
  const std::vector<ThingUse> uses = count_uses(things, intervals, marks, reach);
  const std::vector<uint32_t> masses = rare_masses(things, intervals, uses);
  const uint32_t most = *std::max_element(masses.begin(), masses.end());
  const uint32_t layer_rows = median_rows(intervals);
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    const uint32_t mass = masses[interval];
    if (mass == 0 || mass * 2 < most) continue;
    const bool is_large = mass * 2 >= layer_rows && mass >= kMinMass;
    const bool is_short_reach = reach < kLayerReach;
    const bool is_more = mass >= kMinMass && holds_neighbour(things, intervals, interval, kWhole);
    const bool fits =
        is_large && (!is_short_reach || holds_neighbour(things, intervals, interval, kMost));
    if (fits || is_more) marks[interval] = 1;
  }
  if (reach == kLayerReach) mark_draft_sides(things, intervals, masses, marks);
}

bool has_mark(const Marks& marks) {
  return std::find(marks.begin(), marks.end(), 1) != marks.end();
}

}  // namespace

std::vector<uint8_t> find_boundaries(const KernelKeys& keys, const AnchorIntervals& intervals) {
  if (intervals.last() < 2) return Marks(intervals.last() + 1, 0);
  Things things(keys, intervals);
  Marks marks = mark_hinted(keys, intervals);
  if (has_mark(marks)) {
    mark_company(things, intervals, marks);
    return marks;
  }
  for (const uint32_t reach : {kLayerReach, uint32_t{4}, uint32_t{2}}) {
    mark_rare(things, intervals, reach, marks);
    if (has_mark(marks)) break;
  }
  return marks;
}

bool is_outside_layers(const KernelKeys& keys, const AnchorIntervals& intervals,
                       const std::vector<uint8_t>& is_boundary, uint32_t interval) {
  if (has_hint(keys, intervals, interval, KernelHint::kSampling) ||
      has_hint(keys, intervals, interval, KernelHint::kEmbedding)) {
    return true;
  }
  std::vector<uint8_t> is_in_layers(keys.key_count, 0);
  for (uint32_t inner = 1; inner < intervals.last(); ++inner) {
    if (is_boundary[inner] != 0) continue;
    for (uint32_t row = intervals.begin_row(inner); row < intervals.stop_row(inner); ++row) {
      if (keys.key[row] != kNoIndex) is_in_layers[keys.key[row]] = 1;
    }
  }
  uint32_t outside = 0;
  for (uint32_t row = intervals.begin_row(interval); row < intervals.stop_row(interval); ++row) {
    const uint32_t key = keys.key[row];
    if (key == kNoIndex || is_in_layers[key] != 0) continue;
    is_in_layers[key] = 1;
    ++outside;
  }
  return outside >= 2;
}

}  // namespace gapless
