// SPDX-License-Identifier: Apache-2.0

#include "sim/fluid.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"

namespace gapless {
namespace {

constexpr uint64_t kUnitsPerByte = 1'000'000'000;  // a rate in bytes/s is one in units/ns

// Marks are less than 2^63 ahead of the count, so the sign of their difference orders them.
bool ends_later(uint64_t a_mark, uint32_t a_tag, uint64_t b_mark, uint32_t b_tag) {
  const int64_t ahead = static_cast<int64_t>(a_mark - b_mark);
  return ahead != 0 ? ahead > 0 : a_tag > b_tag;
}

}  // namespace

FluidMemory::FluidMemory(int64_t bytes_per_s, std::span<const int64_t> caps)
    : bytes_per_s_(bytes_per_s), class_count_(caps.size()) {
  GAPLESS_CHECK(caps.size() <= kMaxClasses);
  for (size_t i = 0; i < class_count_; ++i) classes_[i].cap = caps[i];
  std::iota(by_cap_.begin(), by_cap_.end(), size_t{0});
  std::stable_sort(by_cap_.begin(), by_cap_.begin() + static_cast<int64_t>(class_count_),
                   [&caps](size_t a, size_t b) { return caps[a] < caps[b]; });
}

void FluidMemory::advance(int64_t now_ns) {
  GAPLESS_DCHECK(now_ns >= now_ns_);
  const uint64_t elapsed_ns = static_cast<uint64_t>(now_ns - now_ns_);
  for (size_t i = 0; i < class_count_; ++i) {
    classes_[i].got += static_cast<uint64_t>(classes_[i].rate) * elapsed_ns;
  }
  now_ns_ = now_ns;
}

// Flows whose cap is below the equal share get their cap, and what they leave raises the share of
// the others.
void FluidMemory::share() {
  int64_t left = bytes_per_s_;
  int64_t flows_left = static_cast<int64_t>(active_count_);
  next_end_ns_ = kNever;
  for (size_t place = 0; place < class_count_; ++place) {
    Class& one = classes_[by_cap_[place]];
    const int64_t count = static_cast<int64_t>(one.flows.size());
    one.rate = 0;
    if (count == 0) continue;
    const int64_t equal = std::max(left / flows_left, int64_t{1});
    one.rate = std::min(one.cap, equal);
    if (one.rate < equal) {
      left -= one.rate * count;
      flows_left -= count;
    }
    const int64_t missing = static_cast<int64_t>(one.flows.front().mark - one.got);
    const int64_t rest = std::max(missing, int64_t{0});
    const int64_t end_ns = now_ns_ + (rest + one.rate - 1) / one.rate;
    const bool is_first =
        end_ns < next_end_ns_ || (end_ns == next_end_ns_ && by_cap_[place] < next_class_);
    if (!is_first) continue;
    next_end_ns_ = end_ns;
    next_class_ = by_cap_[place];
  }
}

void FluidMemory::start(int64_t now_ns, size_t flow_class, int64_t bytes, uint32_t tag) {
  GAPLESS_DCHECK(bytes > 0);
  GAPLESS_DCHECK(bytes <= kMaxFlowBytes);
  advance(now_ns);
  Class& one = classes_[flow_class];
  one.flows.push_back({one.got + static_cast<uint64_t>(bytes) * kUnitsPerByte, tag});
  std::push_heap(one.flows.begin(), one.flows.end(), [](const Flow& a, const Flow& b) {
    return ends_later(a.mark, a.tag, b.mark, b.tag);
  });
  ++active_count_;
  share();
}

uint32_t FluidMemory::take_next() {
  GAPLESS_DCHECK(next_end_ns_ != kNever);
  advance(next_end_ns_);
  Class& one = classes_[next_class_];
  const uint32_t tag = one.flows.front().tag;
  std::pop_heap(one.flows.begin(), one.flows.end(), [](const Flow& a, const Flow& b) {
    return ends_later(a.mark, a.tag, b.mark, b.tag);
  });
  one.flows.pop_back();
  --active_count_;
  share();
  return tag;
}

}  // namespace gapless
