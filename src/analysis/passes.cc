// SPDX-License-Identifier: Apache-2.0

#include "analysis/passes.h"

#include <algorithm>
#include <map>
#include <set>
#include <span>
#include <unordered_map>

#include <fmt/core.h>

#include "analysis/pass_anchors.h"
#include "analysis/pass_boundaries.h"
#include "analysis/pass_findings.h"
#include "analysis/pass_signature.h"
#include "analysis/pass_split.h"

namespace gapless {
namespace {

// A draft has fewer anchors than half a pass, and no more than this.
constexpr uint32_t kMaxDraftAnchors = 8;

using Marks = std::vector<uint8_t>;

// Anchors [begin, end) of a device, between two boundaries.
struct Segment {
  uint32_t begin = 0;
  uint32_t end = 0;
  bool is_draft = false;

  uint32_t size() const { return end - begin; }
};

std::vector<Segment> segments_between(const Marks& is_boundary) {
  std::vector<Segment> segments;
  uint32_t begin = 0;
  const uint32_t last = static_cast<uint32_t>(is_boundary.size()) - 1;
  for (uint32_t interval = 1; interval <= last; ++interval) {
    if (interval < last && is_boundary[interval] == 0) continue;
    segments.push_back({.begin = begin, .end = interval});
    begin = interval;
  }
  return segments;
}

// The size of the segments that hold the most anchors.
uint32_t usual_size(const std::vector<Segment>& segments) {
  std::map<uint32_t, uint64_t> anchors;
  for (const Segment& segment : segments) anchors[segment.size()] += segment.size();
  uint32_t usual = 0;
  uint64_t most = 0;
  for (const auto& [size, sum] : anchors) {
    if (sum < most) continue;
    most = sum;
    usual = size;
  }
  return usual;
}

// The rows of a device, as far as they have keys.
struct DeviceRows {
  const KernelKeys* keys = nullptr;
  AnchorIntervals intervals;
};

// Finds the passes of one device.
class DevicePasses {
 public:
  DevicePasses(const CaptureTable& table, const DeviceRows& all, const DeviceRows& main,
               const PassOptions& options)
      : table_(table), all_(all), main_(main), options_(options) {}

  void find(FoundPasses& found);
  uint32_t by_gap_count() const { return splits_.by_gap_count; }
  // Rows that sample while layers of the next pass run.
  uint64_t late_count() const { return late_count_; }

 private:
  void mark_every(uint32_t anchors);
  void mark_boundaries();
  void count_late_rows();
  uint32_t count_of_commonest_sampling() const;
  void find_drafts();
  void classify_first(const std::vector<uint8_t>& is_short);
  void classify_last(const std::vector<uint8_t>& is_short);
  void separate_drafts();
  void separate_counted_drafts();
  bool begins_cut(const std::vector<ForwardPass>& passes) const;
  bool ends_cut(const std::vector<ForwardPass>& passes) const;
  bool is_like_another(const std::vector<ForwardPass>& passes, size_t pass) const;
  std::vector<ForwardPass> make_passes() const;
  void mark_rows(FoundPasses& found) const;
  uint32_t row_of(const Segment& segment) const {
    return segment.begin == 0 ? intervals_->first_row : splits_.rows[segment.begin];
  }

  const CaptureTable& table_;
  const DeviceRows& all_;
  const DeviceRows& main_;  // on the streams of anchors only
  const PassOptions& options_;
  const KernelKeys* keys_ = all_.keys;
  const AnchorIntervals* intervals_ = &all_.intervals;
  Marks is_boundary_;
  std::vector<Segment> segments_;
  BoundarySplits splits_;
  bool begins_outside_ = false;
  bool ends_outside_ = false;
  bool is_overlapped_ = false;
  uint64_t late_count_ = 0;
};

void DevicePasses::mark_every(uint32_t anchors) {
  is_boundary_.assign(intervals_->last() + 1, 0);
  for (uint32_t interval = anchors; interval < intervals_->last(); interval += anchors) {
    is_boundary_[interval] = 1;
  }
}

// A short first segment is the end of a pass, or drafts of one that began before the capture: as
// what ends like it elsewhere.
void DevicePasses::classify_first(const std::vector<uint8_t>& is_short) {
  if (segments_.size() < 3 || is_short[0] == 0) return;
  const uint64_t own = intervals_->signatures[segments_[0].end];
  bool is_after_main = false;
  bool is_after_draft = false;
  for (size_t i = 1; i + 1 < segments_.size(); ++i) {
    if (intervals_->signatures[segments_[i].end] != own) continue;
    (segments_[i].is_draft ? is_after_draft : is_after_main) = true;
  }
  segments_[0].is_draft = is_after_draft && !is_after_main;
}

// A short last segment is a draft if other passes have more of them than there are so far; without
// other passes, if the capture does not end in it.
void DevicePasses::classify_last(const std::vector<uint8_t>& is_short) {
  const size_t last = segments_.size() - 1;
  if (last == 0 || is_short[last] == 0) return;
  std::map<uint32_t, uint32_t> passes_with;  // by number of drafts
  uint32_t drafts = 0;
  bool is_first_main = true;
  for (size_t i = 0; i < last; ++i) {
    if (segments_[i].is_draft) {
      ++drafts;
      continue;
    }
    if (!is_first_main) ++passes_with[drafts];
    is_first_main = false;
    drafts = 0;
  }
  if (passes_with.empty()) {
    segments_[last].is_draft = ends_outside_;
    return;
  }
  const auto usual =
      std::max_element(passes_with.begin(), passes_with.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  segments_[last].is_draft = drafts < usual->first;
}

// How often that kernel comes that samples most often.
uint32_t DevicePasses::count_of_commonest_sampling() const {
  std::vector<uint32_t> counts(all_.keys->key_count, 0);
  uint32_t most = 0;
  for (uint32_t row = intervals_->first_row; row < intervals_->end_row; ++row) {
    if (all_.keys->hint[row] != KernelHint::kSampling) continue;
    most = std::max(most, ++counts[all_.keys->key[row]]);
  }
  return most;
}

// Where the anchors' own stream has to decide, everything after is about its rows alone.
void DevicePasses::mark_boundaries() {
  is_boundary_ = find_boundaries(*keys_, *intervals_);
  Marks on_main = find_boundaries_under_overlap(*main_.keys, main_.intervals, is_boundary_);
  if (on_main.empty()) {
    on_main =
        find_late_drafts(*main_.keys, main_.intervals, is_boundary_, count_of_commonest_sampling());
  }
  if (on_main.empty()) return;
  is_boundary_ = std::move(on_main);
  keys_ = main_.keys;
  intervals_ = &main_.intervals;
  is_overlapped_ = true;
}

// Rows of other streams that sample and start between two layers, or behind the first row of the
// next pass.
void DevicePasses::count_late_rows() {
  for (uint32_t interval = 1; is_overlapped_ && interval < intervals_->last(); ++interval) {
    uint32_t row = intervals_->begin_row(interval);
    if (splits_.rows[interval] != kNoIndex) row = splits_.rows[interval];
    for (; row < intervals_->stop_row(interval); ++row) {
      const bool is_side = main_.keys->hint[row] == KernelHint::kNone;
      if (is_side && all_.keys->hint[row] == KernelHint::kSampling) ++late_count_;
    }
  }
}

void DevicePasses::find_drafts() {
  const uint32_t usual = usual_size(segments_);
  const uint32_t most = std::min(kMaxDraftAnchors, usual > 0 ? (usual - 1) / 2 : 0);
  std::vector<uint8_t> is_short;
  for (const Segment& segment : segments_) is_short.push_back(segment.size() <= most ? 1 : 0);
  for (size_t i = 1; i + 1 < segments_.size(); ++i) segments_[i].is_draft = is_short[i] != 0;
  classify_last(is_short);
  classify_first(is_short);
}

// Drafts one after the other, between which nothing is that only a boundary has: where names say
// nothing. They are apart where the kernels are those of no main layer.
void DevicePasses::separate_drafts() {
  std::set<uint64_t> layers;
  bool has_long_draft = false;
  for (const Segment& segment : segments_) {
    if (segment.is_draft && segment.size() > 1) has_long_draft = true;
    if (segment.is_draft) continue;
    for (uint32_t interval = segment.begin + 1; interval < segment.end; ++interval) {
      layers.insert(intervals_->signatures[interval]);
    }
  }
  if (!has_long_draft) return;
  std::vector<Segment> separated;
  for (const Segment& segment : segments_) {
    separated.push_back(segment);
    if (!segment.is_draft) continue;
    for (uint32_t interval = segment.begin + 1; interval < segment.end; ++interval) {
      if (layers.contains(intervals_->signatures[interval])) continue;
      is_boundary_[interval] = 1;
      separated.back().end = interval;
      separated.push_back({.begin = interval, .end = segment.end, .is_draft = true});
    }
  }
  segments_ = std::move(separated);
}

// Where sampling is late it does not tell which drafts are apart, but how many there are: if a
// kernel that samples comes as often as there are passes and anchors of drafts, each is a draft.
void DevicePasses::separate_counted_drafts() {
  const uint32_t most = count_of_commonest_sampling();
  std::vector<Segment> separated;
  uint32_t expected = 0;
  for (const Segment& segment : segments_) {
    expected += segment.is_draft ? segment.size() : 1;
    if (!segment.is_draft) separated.push_back(segment);
    for (uint32_t at = segment.begin; segment.is_draft && at < segment.end; ++at) {
      separated.push_back({.begin = at, .end = at + 1, .is_draft = true});
    }
  }
  // The last pass may be cut before it samples, and idle ones sample nothing.
  if (most > expected || most * 10ull < expected * 9ull) return;
  segments_ = std::move(separated);
  for (const Segment& segment : segments_) is_boundary_[segment.begin] = 1;
}

std::vector<ForwardPass> DevicePasses::make_passes() const {
  std::vector<ForwardPass> passes;
  for (const Segment& segment : segments_) {
    const uint32_t row = row_of(segment);
    if (!segment.is_draft || passes.empty()) {
      if (!passes.empty()) passes.back().end_row = row;
      ForwardPass& pass = passes.emplace_back();
      pass.device = table_.device[intervals_->first_row];
      pass.index = static_cast<uint32_t>(passes.size() - 1);
      pass.first_row = row;
      pass.first_anchor = intervals_->anchors[segment.begin];
      pass.last_anchor = intervals_->anchors[segment.end - 1];
      if (!segment.is_draft) pass.anchor_count = segment.size();
    }
    if (!segment.is_draft) continue;
    ++passes.back().draft_count;
    passes.back().draft_anchor_count += segment.size();
  }
  passes.back().end_row = intervals_->end_row;
  return passes;
}

// Whether another pass that is not cut has as many anchors, and the same kernels behind the first
// and before the last of them; or all such passes have as many.
bool DevicePasses::is_like_another(const std::vector<ForwardPass>& passes, size_t pass) const {
  std::vector<const Segment*> mains;  // by pass
  for (const Segment& segment : segments_) {
    if (!segment.is_draft) mains.push_back(&segment);
  }
  if (mains.size() != passes.size()) return false;
  const Segment& own = *mains[pass];
  uint32_t closed = 0;
  uint32_t as_large = 0;
  for (size_t other = 0; other < passes.size(); ++other) {
    const bool is_open =
        (other == 0 && !begins_outside_) || (other + 1 == passes.size() && !ends_outside_);
    const Segment& like = *mains[other];
    if (is_open || other == pass) continue;
    ++closed;
    if (like.size() != own.size()) continue;
    ++as_large;
    if (own.size() < 2) return true;
    if (intervals_->signatures[like.begin + 1] == intervals_->signatures[own.begin + 1] &&
        intervals_->signatures[like.end - 1] == intervals_->signatures[own.end - 1]) {
      return true;
    }
  }
  return closed > 0 && as_large == closed;
}

bool DevicePasses::begins_cut(const std::vector<ForwardPass>& passes) const {
  if (passes.front().anchor_count == 0 || splits_.begins_late) return true;
  return !begins_outside_ && !is_like_another(passes, 0);
}

bool DevicePasses::ends_cut(const std::vector<ForwardPass>& passes) const {
  if (splits_.ends_early) return true;
  // Drafts that are missing at the end although every other pass has them.
  uint32_t fewest = passes.size() < 3 ? 0 : kNoIndex;
  for (size_t i = 1; i + 1 < passes.size(); ++i) {
    fewest = std::min(fewest, passes[i].draft_count);
  }
  if (passes.back().draft_count < fewest) return true;
  return !ends_outside_ && !is_like_another(passes, passes.size() - 1);
}

void DevicePasses::mark_rows(FoundPasses& found) const {
  uint32_t draft = 0;
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    draft = segment.is_draft ? draft + 1 : 0;
    for (uint32_t anchor = segment.begin; anchor < segment.end; ++anchor) {
      found.is_anchor[intervals_->anchors[anchor]] = segment.is_draft ? 2 : 1;
    }
    if (!segment.is_draft) continue;
    const uint32_t end = i + 1 < segments_.size() ? row_of(segments_[i + 1]) : intervals_->end_row;
    const auto begin_it = found.draft_of_row.begin() + row_of(segment);
    std::fill(begin_it, found.draft_of_row.begin() + end,
              static_cast<uint8_t>(std::min<uint32_t>(draft, 0xff)));
  }
}

void DevicePasses::find(FoundPasses& found) {
  const bool is_counted = options_.method == PassMethod::kCount;
  if (is_counted) {
    mark_every(options_.layers);
  } else {
    mark_boundaries();
  }
  begins_outside_ = is_outside_layers(*keys_, *intervals_, is_boundary_, 0);
  ends_outside_ = is_outside_layers(*keys_, *intervals_, is_boundary_, intervals_->last());
  segments_ = segments_between(is_boundary_);
  if (!is_counted) {
    find_drafts();
    separate_drafts();
    if (is_overlapped_) separate_counted_drafts();
  }
  std::vector<Boundary> boundaries(intervals_->last() + 1, Boundary::kNone);
  for (const Segment& segment : segments_) {
    boundaries[segment.begin] = segment.is_draft ? Boundary::kDraft : Boundary::kPass;
  }
  splits_ = split_boundaries(table_, *keys_, *intervals_, boundaries, begins_outside_);
  count_late_rows();
  std::vector<ForwardPass> passes = make_passes();
  if (is_counted) {
    passes.back().is_cut_at_end = passes.back().anchor_count < options_.layers;
  } else {
    passes.front().is_cut_at_start = begins_cut(passes);
    passes.back().is_cut_at_end = ends_cut(passes);
  }
  mark_rows(found);
  found.passes.insert(found.passes.end(), passes.begin(), passes.end());
}

// A file that breaks off ends within its last pass, whatever that looks like.
void mark_cut_files(const CaptureTable& table, FoundPasses& found) {
  constexpr std::string_view kCodes[] = {"cut-short", "row-cut-short", "damaged"};
  const bool is_cut =
      std::any_of(table.findings.begin(), table.findings.end(), [&kCodes](const Finding& finding) {
        return std::find(std::begin(kCodes), std::end(kCodes), finding.code) != std::end(kCodes);
      });
  for (size_t i = 0; is_cut && i < found.passes.size(); ++i) {
    const bool is_last =
        i + 1 == found.passes.size() || found.passes[i + 1].device != found.passes[i].device;
    if (is_last) found.passes[i].is_cut_at_end = true;
  }
}

}  // namespace

Result<FoundPasses> find_passes(const CaptureTable& table, const PassOptions& options) {
  if (options.method == PassMethod::kCount && options.layers == 0) {
    return fail(ErrorCode::kInvalidInput, "passes by count need the number of layers, and it is 0");
  }
  AnchorChoice choice = GAPLESS_TRY(choose_anchors(table, options.anchor));
  FoundPasses found;
  found.anchor = choice.type;
  found.anchor_types = std::move(choice.types);
  found.candidates = std::move(choice.candidates);
  found.is_anchor.assign(table.size(), 0);
  found.draft_of_row.assign(table.size(), 0);
  const KernelKeys keys = make_kernel_keys(table);
  const KernelKeys main_keys = keys_on_anchor_streams(table, keys, choice.is_anchor);
  uint32_t by_gap_count = 0;
  uint64_t late_count = 0;
  for (uint32_t first = 0; first < table.size();) {
    uint32_t end = first;
    while (end < table.size() && table.device[end] == table.device[first]) ++end;
    const DeviceRows all = {&keys, make_anchor_intervals(keys, choice.is_anchor, first, end)};
    if (all.intervals.anchors.empty()) {
      add_finding(found, Severity::kWarning, "no-anchor",
                  fmt::format("{} {} has {} rows and no {}", table.device_word, table.device[first],
                              end - first, table.names[found.anchor]),
                  end - first);
    } else {
      const DeviceRows main = {&main_keys,
                               make_anchor_intervals(main_keys, choice.is_anchor, first, end)};
      DevicePasses device(table, all, main, options);
      device.find(found);
      by_gap_count += device.by_gap_count();
      late_count += device.late_count();
    }
    first = end;
  }
  mark_cut_files(table, found);
  const PassCounts counts = count_passes(found);
  found.anchors_per_pass = usual_anchors(counts);
  if (choice.is_guess) GAPLESS_TRY(check_guess(table, counts, found));
  add_count_findings(options, counts, found);
  add_anchor_findings(table, by_gap_count, found);
  add_overlap_findings(table, late_count, found);
  return found;
}

}  // namespace gapless
