// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_split.h"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>

namespace gapless {
namespace {

constexpr size_t kMaxSequences = 64;
constexpr size_t kMinMatch = 4;
constexpr size_t kMaxSampled = 64;  // intervals of one kind that a median is made of
constexpr int64_t kClearGap = 4;    // times the next

using Sequence = std::vector<uint32_t>;

// The rows of an interval that have a key, and their keys.
struct KeyedRows {
  std::vector<uint32_t> rows;
  Sequence keys;
};

class SplitFinder {
 public:
  SplitFinder(const CaptureTable& table, const KernelKeys& keys, const AnchorIntervals& intervals,
              const std::vector<Boundary>& boundaries)
      : table_(table), keys_(keys), intervals_(intervals), boundaries_(boundaries) {
    splits_.rows.assign(intervals.last() + 1, kNoIndex);
  }

  BoundarySplits find(bool begins_whole);

 private:
  struct GapPlace {
    uint32_t row = kNoIndex;
    int64_t gap_ns = -1;
  };

  KeyedRows keyed_rows(uint32_t begin, uint32_t stop) const;
  bool is_inner_boundary(uint32_t interval) const {
    return interval > 0 && interval < intervals_.last() && boundaries_[interval] != Boundary::kNone;
  }
  void find_sampling_streams();
  uint32_t behind_sampling(uint32_t interval) const;
  bool is_copy_to_host(uint32_t row) const;
  void learn(uint32_t interval);
  uint32_t embedding_in(uint32_t interval) const;
  uint32_t before_head(const KeyedRows& keyed, const std::set<Sequence>& heads) const;
  uint32_t at_head_suffix(const KeyedRows& keyed, const Sequence& head) const;
  void judge_ends(const Sequence& first);
  std::vector<GapPlace> gap_places(uint32_t interval) const;
  void split_by_gap(const std::vector<uint32_t>& group, const std::set<Sequence>& first_head);

  const CaptureTable& table_;
  const KernelKeys& keys_;
  const AnchorIntervals& intervals_;
  const std::vector<Boundary>& boundaries_;
  std::set<int32_t> other_streams_;  // that do more than sampling
  std::set<Sequence> heads_;         // from the beginning of a pass to its first anchor
  std::set<Sequence> tails_;         // from the last anchor of a pass to its end
  BoundarySplits splits_;
};

KeyedRows SplitFinder::keyed_rows(uint32_t begin, uint32_t stop) const {
  KeyedRows keyed;
  for (uint32_t row = begin; row < stop; ++row) {
    if (keys_.key[row] == kNoIndex) continue;
    keyed.rows.push_back(row);
    keyed.keys.push_back(keys_.key[row]);
  }
  return keyed;
}

// A stream is for sampling only if whatever it does between two anchors begins with sampling.
void SplitFinder::find_sampling_streams() {
  int32_t known = CaptureTable::kNoStream;
  for (uint32_t interval = 0; interval <= intervals_.last(); ++interval) {
    std::set<int32_t> begun;
    for (uint32_t row = intervals_.begin_row(interval); row < intervals_.stop_row(interval);
         ++row) {
      if (keys_.key[row] == kNoIndex || table_.stream[row] == known) continue;
      const int32_t stream = table_.stream[row];
      if (other_streams_.contains(stream)) {
        known = stream;
        continue;
      }
      if (!begun.insert(stream).second) continue;
      if (keys_.hint[row] != KernelHint::kSampling) other_streams_.insert(stream);
    }
  }
  for (const uint32_t anchor : intervals_.anchors) {
    if (table_.stream[anchor] == known) continue;
    known = table_.stream[anchor];
    other_streams_.insert(known);
  }
}

bool SplitFinder::is_copy_to_host(uint32_t row) const {
  if (table_.kind[row] != KernelKind::kCopy || table_.name[row] == kNoIndex) return false;
  const std::string_view name = table_.names[table_.name[row]];
  for (const std::string_view word :
       {"DtoH", "D2H", "Device -> Pageable", "Device -> Pinned", "DEVICE_TO_HOST"}) {
    if (name.find(word) != std::string_view::npos) return true;
  }
  return false;
}

bool is_of_collective(KernelKind kind) {
  return kind == KernelKind::kCollective || kind == KernelKind::kFragment ||
         kind == KernelKind::kAiCpuCollective;
}

// kNoIndex: nothing is sampled in the interval.
uint32_t SplitFinder::behind_sampling(uint32_t interval) const {
  const uint32_t begin = intervals_.begin_row(interval);
  const uint32_t stop = intervals_.stop_row(interval);
  uint32_t last = stop;
  while (last > begin && keys_.hint[last - 1] != KernelHint::kSampling) --last;
  if (last == begin) return kNoIndex;
  const int32_t stream = table_.stream[last - 1];
  if (stream != CaptureTable::kNoStream && !other_streams_.contains(stream)) {
    for (uint32_t row = last; row < stop; ++row) {
      if (keys_.key[row] == kNoIndex) continue;
      if (table_.stream[row] != stream) break;
      last = row + 1;
    }
  }
  // What was sampled goes to the host. Kernels of collectives that begin while sampling goes on
  // were launched before.
  const int64_t end_ns = table_.end_ns(last - 1);
  while (last < stop && (is_copy_to_host(last) ||
                         (is_of_collective(table_.kind[last]) && table_.start_ns[last] < end_ns))) {
    ++last;
  }
  return last;
}

void SplitFinder::learn(uint32_t interval) {
  const uint32_t split = splits_.rows[interval];
  if (heads_.size() < kMaxSequences) {
    heads_.insert(keyed_rows(split, intervals_.stop_row(interval)).keys);
  }
  if (tails_.size() < kMaxSequences) {
    tails_.insert(keyed_rows(intervals_.begin_row(interval), split).keys);
  }
}

// The first; kNoIndex: none.
uint32_t SplitFinder::embedding_in(uint32_t interval) const {
  for (uint32_t row = intervals_.begin_row(interval); row < intervals_.stop_row(interval); ++row) {
    if (keys_.hint[row] == KernelHint::kEmbedding) return row;
  }
  return kNoIndex;
}

uint32_t SplitFinder::at_head_suffix(const KeyedRows& keyed, const Sequence& head) const {
  if (head.empty() || head.size() > keyed.keys.size()) return kNoIndex;
  if (!std::equal(head.rbegin(), head.rend(), keyed.keys.rbegin())) return kNoIndex;
  return keyed.rows[keyed.rows.size() - head.size()];
}

// The longest head that the interval ends with; else where most of one begins.
uint32_t SplitFinder::before_head(const KeyedRows& keyed, const std::set<Sequence>& heads) const {
  size_t longest = 0;
  uint32_t found = kNoIndex;
  for (const Sequence& head : heads) {
    const uint32_t row = at_head_suffix(keyed, head);
    if (row == kNoIndex || head.size() <= longest) continue;
    longest = head.size();
    found = row;
  }
  if (found != kNoIndex) return found;
  for (size_t at = 0; at < keyed.keys.size(); ++at) {
    for (const Sequence& head : heads) {
      size_t length = 0;
      while (length < head.size() && at + length < keyed.keys.size() &&
             head[length] == keyed.keys[at + length]) {
        ++length;
      }
      if (length < kMinMatch || length <= longest) continue;
      longest = length;
      found = keyed.rows[at];
    }
  }
  return found;
}

// One entry for each row with a key: the largest gap between the last such row and this one.
std::vector<SplitFinder::GapPlace> SplitFinder::gap_places(uint32_t interval) const {
  std::vector<GapPlace> places;
  const uint32_t begin = intervals_.begin_row(interval);
  int64_t busy_until_ns = table_.end_ns(begin - 1);
  GapPlace place;
  for (uint32_t row = begin; row < intervals_.stop_row(interval); ++row) {
    if (table_.kind[row] == KernelKind::kAiCpuCollective) continue;
    const int64_t gap_ns = std::max<int64_t>(table_.start_ns[row] - busy_until_ns, 0);
    if (gap_ns > place.gap_ns) place = {row, gap_ns};
    busy_until_ns = std::max(busy_until_ns, table_.end_ns(row));
    if (keys_.key[row] == kNoIndex) continue;
    places.push_back(place);
    place = {};
    if (keys_.hint[row] == KernelHint::kEmbedding) break;
  }
  return places;
}

int64_t median_of(std::vector<int64_t>& numbers) {
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::nth_element(numbers.begin(), middle, numbers.end());
  return *middle;
}

// `group`: intervals with the same kernels.
void SplitFinder::split_by_gap(const std::vector<uint32_t>& group,
                               const std::set<Sequence>& first_head) {
  std::vector<std::vector<int64_t>> gaps(intervals_.row_counts[group.front()]);
  for (size_t i = 0; i < group.size() && i < kMaxSampled; ++i) {
    const std::vector<GapPlace> places = gap_places(group[i]);
    for (size_t at = 0; at < places.size(); ++at) gaps[at].push_back(places[at].gap_ns);
  }
  size_t best = 0;
  int64_t best_ns = -1;
  int64_t next_ns = -1;
  for (size_t at = 0; at < gaps.size() && !gaps[at].empty(); ++at) {
    const int64_t median_ns = median_of(gaps[at]);
    next_ns = std::max(next_ns, std::min(median_ns, best_ns));
    if (median_ns <= best_ns) continue;
    best = at;
    best_ns = median_ns;
  }
  const bool is_clear = best_ns > 0 && best_ns / kClearGap >= next_ns;
  for (const uint32_t interval : group) {
    const uint32_t begin = intervals_.begin_row(interval);
    const uint32_t stop = intervals_.stop_row(interval);
    uint32_t row = is_clear ? kNoIndex : before_head(keyed_rows(begin, stop), first_head);
    if (row == kNoIndex) {
      const std::vector<GapPlace> places = gap_places(interval);
      row = places.empty() ? stop : places[std::min(best, places.size() - 1)].row;
      ++splits_.by_gap_count;
    }
    splits_.rows[interval] = row;
  }
}

bool is_longer_with_suffix(const Sequence& whole, const Sequence& suffix) {
  return whole.size() > suffix.size() && std::equal(suffix.rbegin(), suffix.rend(), whole.rbegin());
}

bool is_longer_with_prefix(const Sequence& whole, const Sequence& prefix) {
  return whole.size() > prefix.size() && std::equal(prefix.begin(), prefix.end(), whole.begin());
}

void SplitFinder::judge_ends(const Sequence& first) {
  splits_.begins_late =
      !heads_.contains(first) && std::any_of(heads_.begin(), heads_.end(), [&](const Sequence& h) {
        return is_longer_with_suffix(h, first);
      });
  const uint32_t begin = intervals_.begin_row(intervals_.last());
  const Sequence end = keyed_rows(begin, intervals_.end_row).keys;
  const bool has_sampling =
      std::find(keys_.hint.begin() + begin, keys_.hint.begin() + intervals_.end_row,
                KernelHint::kSampling) != keys_.hint.begin() + intervals_.end_row;
  splits_.ends_early = has_sampling && !tails_.contains(end) &&
                       std::any_of(tails_.begin(), tails_.end(), [&](const Sequence& t) {
                         return is_longer_with_prefix(t, end);
                       });
}

BoundarySplits SplitFinder::find(bool begins_whole) {
  find_sampling_streams();
  const uint32_t last = intervals_.last();
  for (uint32_t interval = 1; interval < last; ++interval) {
    if (!is_inner_boundary(interval)) continue;
    splits_.rows[interval] = behind_sampling(interval);
    if (splits_.rows[interval] != kNoIndex) learn(interval);
  }
  std::map<uint64_t, std::vector<uint32_t>> unknown;  // by signature
  for (uint32_t interval = 1; interval < last; ++interval) {
    if (!is_inner_boundary(interval) || splits_.rows[interval] != kNoIndex) continue;
    const KeyedRows keyed =
        keyed_rows(intervals_.begin_row(interval), intervals_.stop_row(interval));
    splits_.rows[interval] = before_head(keyed, heads_);
    if (splits_.rows[interval] == kNoIndex && boundaries_[interval] == Boundary::kDraft) {
      splits_.rows[interval] = embedding_in(interval);
    }
    if (splits_.rows[interval] == kNoIndex) {
      unknown[intervals_.signatures[interval]].push_back(interval);
    }
  }
  const Sequence first = keyed_rows(intervals_.begin_row(0), intervals_.stop_row(0)).keys;
  std::set<Sequence> first_head;
  if (begins_whole) first_head.insert(first);
  for (const auto& [signature, group] : unknown) split_by_gap(group, first_head);
  judge_ends(first);
  return splits_;
}

}  // namespace

BoundarySplits split_boundaries(const CaptureTable& table, const KernelKeys& keys,
                                const AnchorIntervals& intervals,
                                const std::vector<Boundary>& boundaries, bool begins_whole) {
  return SplitFinder(table, keys, intervals, boundaries).find(begins_whole);
}

}  // namespace gapless
