// SPDX-License-Identifier: Apache-2.0

#include "trace/clock.h"

#include <algorithm>
#include <bit>
#include <ctime>
#include <limits>

#include "gapless/trace.h"
#include "trace/trace.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace gapless {
namespace {

// -Wpedantic objects to the plain spelling, and __extension__ goes with typedef only.
__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)
__extension__ typedef __int128 SignedWide;     // NOLINT(modernize-use-using)

int64_t now_ns(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

int64_t shifted(int64_t base_ns, Wide offset_ns, bool forward) {
  constexpr Wide kBeyondAll = Wide{1} << 65;  // out of range, whatever the base
  const SignedWide offset = static_cast<SignedWide>(std::min(offset_ns, kBeyondAll));
  const SignedWide time_ns = forward ? base_ns + offset : base_ns - offset;
  return static_cast<int64_t>(std::clamp<SignedWide>(time_ns, -kMaxTimeNs, kMaxTimeNs));
}

}  // namespace

ClockSource clock_source() {
#if defined(__x86_64__)
  return ClockSource::kTsc;
#elif defined(__aarch64__)
  return ClockSource::kCntvct;
#else
  return ClockSource::kMonotonicRaw;
#endif
}

bool clock_is_invariant() {
#if defined(__x86_64__)
  unsigned eax = 0;
  unsigned ebx = 0;
  unsigned ecx = 0;
  unsigned edx = 0;
  constexpr unsigned kInvariantTsc = 1u << 8;
  return __get_cpuid(0x80000007, &eax, &ebx, &ecx, &edx) != 0 && (edx & kInvariantTsc) != 0;
#else
  return true;
#endif
}

AnchorBody read_anchor() {
  constexpr int kTries = 8;
  AnchorBody best = {};
  uint64_t best_width = std::numeric_limits<uint64_t>::max();
  for (int i = 0; i < kTries; ++i) {
    const uint64_t before = read_ticks();
    const int64_t time_ns = now_ns(CLOCK_MONOTONIC_RAW);
    const uint64_t width = read_ticks() - before;
    if (width >= best_width) continue;
    best_width = width;
    best = {before + width / 2, time_ns};
  }
  return best;
}

int64_t wall_minus_monotonic_ns() { return now_ns(CLOCK_REALTIME) - now_ns(CLOCK_MONOTONIC_RAW); }

ClockMap::ClockMap(std::vector<AnchorBody> anchors, uint64_t ticks_per_second) {
  std::sort(anchors.begin(), anchors.end(),
            [](const AnchorBody& a, const AnchorBody& b) { return a.ticks < b.ticks; });
  std::vector<AnchorBody> rising;
  for (const AnchorBody& anchor : anchors) {
    if (rising.empty() ||
        (anchor.ticks > rising.back().ticks && anchor.time_ns > rising.back().time_ns)) {
      rising.push_back(anchor);
    }
  }
  anchor_count_ = rising.size();
  if (rising.empty()) rising.push_back({0, 0});
  for (size_t i = 0; i + 1 < rising.size(); ++i) {
    const uint64_t time_ns =
        static_cast<uint64_t>(rising[i + 1].time_ns) - static_cast<uint64_t>(rising[i].time_ns);
    const uint64_t ticks = rising[i + 1].ticks - rising[i].ticks;
    pieces_.push_back({rising[i].ticks, rising[i].time_ns, make_rate(time_ns, ticks)});
  }
  // After the last anchor: at the rate of the last piece.
  const Rate nominal = make_rate(1'000'000'000, std::max<uint64_t>(ticks_per_second, 1));
  const Rate last_rate = pieces_.empty() ? nominal : pieces_.back().rate;
  pieces_.push_back({rising.back().ticks, rising.back().time_ns, last_rate});
}

// Both arguments are at least 1.
ClockMap::Rate ClockMap::make_rate(uint64_t time_ns, uint64_t ticks) {
  int shift = 63 + std::countl_zero(time_ns);
  Wide rate = (Wide{time_ns} << shift) / ticks;
  for (; rate > std::numeric_limits<uint64_t>::max(); rate >>= 1) --shift;
  return {static_cast<uint64_t>(rate), shift};
}

int64_t ClockMap::to_ns_in(const Piece& piece, uint64_t ticks) {
  const bool forward = ticks >= piece.ticks;
  const uint64_t distance = forward ? ticks - piece.ticks : piece.ticks - ticks;
  const Wide scaled = Wide{distance} * piece.rate.scaled;
  return shifted(piece.time_ns, scaled >> piece.rate.shift, forward);
}

void ClockMap::find_piece(uint64_t ticks) {
  const auto after =
      std::upper_bound(pieces_.begin(), pieces_.end(), ticks,
                       [](uint64_t wanted, const Piece& piece) { return wanted < piece.ticks; });
  current_ = after == pieces_.begin() ? 0 : static_cast<size_t>(after - pieces_.begin()) - 1;
  piece_begin_ = current_ == 0 ? 0 : pieces_[current_].ticks;
  piece_end_ = after == pieces_.end() ? std::numeric_limits<uint64_t>::max() : after->ticks;
}

}  // namespace gapless
