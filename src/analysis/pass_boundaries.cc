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

// Whether the interval has more rows than those beside it: the end of one pass and the beginning of
// the next besides a layer.
bool is_longer_than_neighbours(const AnchorIntervals& intervals, uint32_t interval) {
  for (const uint32_t other : {interval - 1, interval + 1}) {
    if (other == 0 || other >= intervals.last()) continue;
    if (intervals.row_counts[other] >= intervals.row_counts[interval]) return false;
  }
  return true;
}

// By interval: how many anchors on the next mark is, the end of the capture being one.
std::vector<uint32_t> anchors_to_mark(const AnchorIntervals& intervals, const Marks& marks) {
  std::vector<uint32_t> distances(intervals.last() + 1, 0);
  for (uint32_t interval = intervals.last(); interval-- > 1;) {
    distances[interval] = marks[interval + 1] != 0 ? 1 : distances[interval + 1] + 1;
  }
  return distances;
}

// Drafts are at the end of a pass: between them the anchors' stream may do what it does in layers.
uint32_t draft_reach(const AnchorIntervals& intervals, const Marks& marks) {
  const uint32_t usual = usual_length(intervals, marks);
  return std::min(static_cast<uint32_t>(kMaxDraftAnchors), usual > 0 ? (usual - 1) / 2 : 0);
}

// Those boundaries that the anchors' stream shows as well: it is unlike any layer there.
Marks seen_on_main(const AnchorIntervals& intervals, const Marks& marks) {
  std::unordered_set<uint64_t> layers;
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (marks[interval] == 0) layers.insert(intervals.signatures[interval]);
  }
  Marks seen = marks;
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (layers.contains(intervals.signatures[interval])) seen[interval] = 0;
  }
  return seen;
}

// Those of `marks` that can be between drafts although the anchors' stream, which shows `seen`,
// does there what it does in layers: in a run as short as drafts are, or at the end of a pass with
// no layer between.
Marks marks_between_drafts(const AnchorIntervals& intervals, const Marks& marks,
                           const Marks& seen) {
  const std::vector<uint32_t> distances = anchors_to_mark(intervals, seen);
  const uint32_t reach = draft_reach(intervals, seen);
  Marks between(intervals.last() + 1, 0);
  bool is_chain = true;
  for (uint32_t interval = intervals.last(); interval-- > 1;) {
    if (seen[interval] != 0 || interval + 1 == intervals.last()) is_chain = true;
    if (seen[interval] != 0) continue;
    is_chain = is_chain && marks[interval] != 0;
    const bool is_near = distances[interval] <= kUsualDrafts || is_chain;
    if (marks[interval] != 0 && is_near && distances[interval] <= reach) between[interval] = 1;
  }
  uint32_t begin = 0;
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (seen[interval] != 0) begin = interval;
    const bool is_short = interval - begin + distances[interval] <= reach;
    if (marks[interval] != 0 && seen[interval] == 0 && is_short) between[interval] = 1;
  }
  return between;
}

// Whether a boundary is among layers, and where no draft is.
bool has_stray(const AnchorIntervals& intervals, const Marks& marks, const Marks& seen) {
  const Marks between = marks_between_drafts(intervals, marks, seen);
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (marks[interval] != 0 && seen[interval] == 0 && between[interval] == 0) return true;
  }
  return false;
}

// Whether most boundaries of the anchors' stream have more rows than a layer. A layer that is odd
// is no reason to mistrust what was found in all rows.
bool are_mostly_longer(const AnchorIntervals& intervals, const Marks& marks) {
  uint32_t count = 0;
  uint32_t longer = 0;
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (marks[interval] == 0) continue;
    ++count;
    if (is_longer_than_neighbours(intervals, interval)) ++longer;
  }
  return count > 0 && longer * 2 >= count;
}

// Intervals that are `distance` anchors before a mark or before the end of the capture, which may
// be the end of a pass or not.
std::vector<uint32_t> sides_before(const AnchorIntervals& intervals, const Marks& marks,
                                   uint32_t distance) {
  std::vector<uint32_t> sides;
  for (uint32_t interval = distance + 2; interval <= intervals.last(); ++interval) {
    const bool is_end = interval == intervals.last() || marks[interval] != 0;
    if (is_end && marks[interval - distance] == 0) sides.push_back(interval - distance);
  }
  return sides;
}

// Where the first draft begins there may be no more than the last norm of the pass: something that
// is nowhere but a few anchors before nearly every boundary, and has all that a layer has. The
// latter not if `can_be_less`: where an anchor stands for several layers and a draft has one.
void mark_small_draft_sides(Things& things, const AnchorIntervals& intervals, bool can_be_less,
                            Marks& marks) {
  std::unordered_map<uint64_t, uint32_t> uses;  // by signature
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    ++uses[intervals.signatures[interval]];
  }
  std::unordered_map<uint64_t, uint32_t> side_uses;
  const Marks ends = marks;
  for (uint32_t distance = 1; distance <= kUsualDrafts; ++distance) {
    for (const uint32_t side : sides_before(intervals, ends, distance)) {
      ++side_uses[intervals.signatures[side]];
    }
  }
  const auto is_odd = [&](uint32_t side) {
    const uint64_t signature = intervals.signatures[side];
    if (uses[signature] > side_uses[signature] + 1) return false;
    return can_be_less || (intervals.row_counts[side] > intervals.row_counts[side - 1] &&
                           holds_neighbour(things, intervals, side, kWhole));
  };
  const size_t end_count = static_cast<size_t>(std::count(ends.begin(), ends.end(), 1));
  for (uint32_t distance = 1; distance <= kUsualDrafts; ++distance) {
    std::vector<uint32_t> sides = sides_before(intervals, ends, distance);
    std::erase_if(sides, [&](uint32_t side) { return !is_odd(side); });
    if (sides.size() < 2 || sides.size() * 5 < end_count * 4) continue;
    std::unordered_set<uint64_t> found;
    for (const uint32_t side : sides) found.insert(intervals.signatures[side]);
    for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
      if (found.contains(intervals.signatures[interval])) marks[interval] = 1;
    }
  }
}

// Adds boundaries between drafts, of those that were found in all rows. The last run may be a pass
// that is cut: there only behind as many anchors as passes have, or if drafts follow, and no pass,
// where elsewhere is what it begins with.
void mark_between_drafts(const AnchorIntervals& intervals, const Marks& is_boundary, Marks& marks) {
  const std::vector<uint32_t> distances = anchors_to_mark(intervals, marks);
  const uint32_t reach = draft_reach(intervals, marks);
  const uint32_t usual = usual_length(intervals, marks);
  std::unordered_set<uint64_t> before_drafts;
  std::unordered_set<uint64_t> before_layers;
  uint32_t last_mark = 0;
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (marks[interval] == 0) continue;
    last_mark = interval;
    if (interval + distances[interval] >= intervals.last()) break;
    (distances[interval] <= reach ? before_drafts : before_layers)
        .insert(intervals.signatures[interval]);
  }
  const uint64_t begin = intervals.signatures[last_mark];
  const bool ends_in_drafts =
      before_drafts.contains(begin) ||
      (!before_layers.contains(begin) && intervals.last() - last_mark <= reach);
  const Marks between = marks_between_drafts(intervals, is_boundary, marks);
  for (uint32_t interval = 1; interval < intervals.last(); ++interval) {
    if (interval > last_mark && interval < last_mark + usual && !ends_in_drafts) continue;
    if (between[interval] != 0) marks[interval] = 1;
  }
}

uint64_t passes_and_draft_anchors(const AnchorIntervals& intervals, const Marks& marks) {
  const uint32_t reach = draft_reach(intervals, marks);
  uint64_t sum = 0;
  uint32_t begin = 0;
  for (uint32_t interval = 1; interval <= intervals.last(); ++interval) {
    if (interval < intervals.last() && marks[interval] == 0) continue;
    const uint32_t anchors = interval - begin;
    sum += anchors <= reach ? anchors : 1;
    begin = interval;
  }
  return sum;
}

}  // namespace

std::vector<uint8_t> find_boundaries_under_overlap(const KernelKeys& main_keys,
                                                   const AnchorIntervals& main_intervals,
                                                   const std::vector<uint8_t>& is_boundary) {
  if (!has_mark(is_boundary)) return {};
  const Marks seen = seen_on_main(main_intervals, is_boundary);
  if (!has_stray(main_intervals, is_boundary, seen)) return {};
  Marks marks = find_boundaries(main_keys, main_intervals);
  if (!are_mostly_longer(main_intervals, marks)) return {};
  Things things(main_keys, main_intervals);
  mark_small_draft_sides(things, main_intervals, false, marks);
  for (uint32_t interval = 1; interval < main_intervals.last(); ++interval) {
    if (seen[interval] == 0) continue;
    if (holds_neighbour(things, main_intervals, interval, kWhole)) marks[interval] = 1;
  }
  mark_between_drafts(main_intervals, is_boundary, marks);
  return marks;
}

std::vector<uint8_t> find_late_drafts(const KernelKeys& main_keys,
                                      const AnchorIntervals& main_intervals,
                                      const std::vector<uint8_t>& is_boundary,
                                      uint64_t sampling_count) {
  const int64_t found = 1 + std::count(is_boundary.begin(), is_boundary.end(), 1);
  if (found == 1 || sampling_count * 5 < static_cast<uint64_t>(found) * 6) return {};
  const Marks seen = seen_on_main(main_intervals, is_boundary);
  if (!are_mostly_longer(main_intervals, seen)) return {};
  Things things(main_keys, main_intervals);
  for (const bool can_be_less : {false, true}) {
    Marks marks = seen;
    mark_small_draft_sides(things, main_intervals, can_be_less, marks);
    const uint64_t expected = passes_and_draft_anchors(main_intervals, marks);
    if (sampling_count <= expected && sampling_count * 10 >= expected * 9) return marks;
  }
  return {};
}

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
