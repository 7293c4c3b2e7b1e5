// SPDX-License-Identifier: Apache-2.0

#include "cuda/recorder_blocks.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <numeric>
#include <tuple>
#include <utility>

namespace gapless {
namespace {

constexpr int64_t kTimerTickNs = 32;       // of an H200
constexpr int64_t kMaxTimerTickNs = 2048;  // of GPUs of which more is not known
constexpr size_t kTickTimers = 256;        // so many show what the tick is
constexpr uint64_t kMaxTimerNs = uint64_t{1} << 61;
// No clock runs at more than 10 GHz, or at less than 10 MHz but while the GPU rests.
constexpr uint64_t kMaxCyclesOfNs = 10;
constexpr uint64_t kMaxNsOfCycle = 100;
constexpr uint64_t kMaxRestNs = 10'000'000'000;
constexpr int64_t kMaxAnchorErrorNs = 20'000;  // of a block's begin against the clock of its SM
constexpr int64_t kMaxLateCycles = 1 << 24;    // that one ends behind kMain
constexpr int64_t kMaxEarlyCycles = 1 << 16;   // that a role begins before the block's header says
constexpr size_t kMaxCandidates = 16;

// Whether one clock and one timer can say both.
bool can_both_be(const SmAnchor& a, const SmAnchor& b) {
  if (a.clock > b.clock) return can_both_be(b, a);
  if (b.time_ns < a.time_ns - kMaxTimerTickNs) return false;
  const uint64_t cycles = b.clock - a.clock;
  const uint64_t ns = static_cast<uint64_t>(std::max<int64_t>(b.time_ns - a.time_ns, 0));
  if (cycles / kMaxCyclesOfNs > ns + kMaxTimerTickNs) return false;
  return ns <= kMaxRestNs || (ns - kMaxRestNs) / kMaxNsOfCycle <= cycles;
}

// The one of some anchors, spread over all, with which the most others can be.
SmAnchor believed_anchor(const std::vector<SmAnchor>& anchors) {
  const size_t stride = anchors.size() / kMaxCandidates + 1;
  SmAnchor best = anchors.front();
  int64_t best_count = 0;
  for (size_t i = 0; i < anchors.size(); i += stride) {
    const int64_t count =
        std::count_if(anchors.begin(), anchors.end(),
                      [&](const SmAnchor& anchor) { return can_both_be(anchors[i], anchor); });
    if (count <= best_count) continue;
    best = anchors[i];
    best_count = count;
  }
  return best;
}

}  // namespace

RecordedBlocks::RecordedBlocks(const DeviceRecording& recording)
    : recording_(recording), places_(recording) {
  size_up();
  read_headers();
  if (!places_.has_phases()) unwrap_clocks();
  find_tick();
  make_clocks();
  time_blocks();
  time_launches();
  place_blocks();
}

// What the recording can have, whatever it says it has.
void RecordedBlocks::size_up() {
  for (const RecordedLaunch& launch : recording_.launches) {
    first_blocks_.push_back(step_blocks_);
    step_blocks_ += static_cast<size_t>(std::max(launch.blocks, 0));
  }
  if (step_blocks_ > 0) {
    step_count_ = std::min(static_cast<size_t>(std::max(recording_.step_count, 0)),
                           places_.count() / step_blocks_);
  }
  constexpr int64_t kMaxOffsetNs = static_cast<int64_t>(kMaxTimerNs);
  const int64_t offset_ns = recording_.clock.offset_ns;
  is_offset_known_ = offset_ns >= -kMaxOffsetNs && offset_ns <= kMaxOffsetNs;
  if (is_offset_known_) offset_ns_ = offset_ns;
  blocks_.resize(step_count_ * step_blocks_);
}

// Who is there.
void RecordedBlocks::read_headers() {
  clocks_.resize(static_cast<size_t>(std::max(recording_.sm_count, 0)));
  for (size_t place = 0; place < blocks_.size(); ++place) {
    const PlaceHeader header = places_.header(place);
    RecordedBlock& block = blocks_[place];
    const bool is_sound = places_.can_be_of(place, place / step_blocks_ + 1) &&
                          header.sm < clocks_.size() && header.begin_ns < kMaxTimerNs;
    if (!header.is_there) {
      ++missing_count_;
    } else if (!is_sound) {
      ++damaged_count_;
    } else {
      block.sm = header.sm;
      block.begin_clock = header.begin_clock;
      block.begin_ns = static_cast<int64_t>(header.begin_ns) - offset_ns_;
    }
  }
}

void RecordedBlocks::leave_out(RecordedBlock& block) {
  ++damaged_count_;
  block = {};
}

// What all differences of timers are multiples of, where there are enough to say so.
void RecordedBlocks::find_tick() {
  tick_ns_ = kTimerTickNs;
  int64_t common_ns = 0;
  int64_t first_ns = 0;
  size_t count = 0;
  for (const RecordedBlock& block : blocks_) {
    if (!block.is_there()) continue;
    if (count++ == 0) first_ns = block.begin_ns;
    common_ns = std::gcd(common_ns, block.begin_ns - first_ns);
  }
  if (count < kTickTimers) return;
  tick_ns_ = std::clamp(common_ns, kTimerTickNs, kMaxTimerTickNs);
}

std::vector<std::vector<size_t>> RecordedBlocks::places_of_sms() const {
  std::vector<std::vector<size_t>> places(clocks_.size());
  for (size_t place = 0; place < blocks_.size(); ++place) {
    if (blocks_[place].is_there()) places[blocks_[place].sm].push_back(place);
  }
  return places;
}

// Tasks have the lowest bits of clocks: all of an SM's are taken to be near its first one.
void RecordedBlocks::unwrap_clocks() {
  constexpr int kUnknownBits = 64 - kTaskClockBits;
  for (const std::vector<size_t>& of_sm : places_of_sms()) {
    if (of_sm.empty()) continue;
    const uint64_t first = blocks_[of_sm.front()].begin_clock;
    for (const size_t place : of_sm) {
      uint64_t& clock = blocks_[place].begin_clock;
      const int64_t since = static_cast<int64_t>((clock - first) << kUnknownBits) >> kUnknownBits;
      clock = (uint64_t{1} << (kTaskClockBits + 1)) + first + static_cast<uint64_t>(since);
    }
  }
}

// From the begins of an SM's blocks. Those that cannot be beside most of the others are left out,
// and after that those which the clock then shows to be far off.
void RecordedBlocks::make_clocks() {
  const std::vector<std::vector<size_t>> places = places_of_sms();
  for (size_t sm = 0; sm < places.size(); ++sm) {
    if (places[sm].empty()) continue;
    std::vector<SmAnchor> anchors;
    for (const size_t place : places[sm])
      anchors.push_back({blocks_[place].begin_clock, blocks_[place].begin_ns});
    const SmAnchor believed = believed_anchor(anchors);
    std::vector<SmAnchor> close;  // for which clock and timer were read together
    anchors.clear();
    for (const size_t place : places[sm]) {
      const SmAnchor anchor = {blocks_[place].begin_clock, blocks_[place].begin_ns};
      if (!can_both_be(believed, anchor)) {
        leave_out(blocks_[place]);
        continue;
      }
      anchors.push_back(anchor);
      if (places_.header(place).is_close) close.push_back(anchor);
    }
    clocks_[sm] = SmClock(std::move(close.empty() ? anchors : close), tick_ns_);
    backward_count_ += clocks_[sm].rejected_count();
    for (const size_t place : places[sm]) {
      RecordedBlock& block = blocks_[place];
      if (!block.is_there()) continue;
      const int64_t error_ns = clocks_[sm].time_ns(block.begin_clock) - block.begin_ns;
      if (std::abs(error_ns) > kMaxAnchorErrorNs) leave_out(block);
    }
  }
}

// Since the block's begin.
int64_t RecordedBlocks::cycles_of(size_t place, const DeviceRecord& record) const {
  return static_cast<int32_t>(record.clock - static_cast<uint32_t>(blocks_[place].begin_clock));
}

RolePhases RecordedBlocks::phases(size_t place, int role) const {
  const RecordedBlock& block = blocks_[place];
  const SmClock& clock = clocks_[block.sm];
  const std::vector<DeviceRecord> records = places_.records(place, role);
  const size_t count = records.size();
  RolePhases result;
  result.dropped = places_.dropped(place, role);
  result.is_damaged = result.dropped > 0 && count < kRoleRecords;
  int64_t most_cycles = std::numeric_limits<int32_t>::max();
  if (role != 0 && count > 0) {
    const std::vector<DeviceRecord> main = places_.records(place, 0);
    if (!main.empty()) most_cycles = cycles_of(place, main.back()) + kMaxLateCycles;
  }
  for (size_t i = 0; i < count && !result.is_damaged; ++i) {
    const DeviceRecord& record = records[i];
    const bool is_known =
        (record.tag & kRecordMark) != 0 && static_cast<int>(record.phase()) < kDevicePhaseCount;
    const bool is_end = record.phase() == DevicePhase::kEnd;
    const int64_t cycles = cycles_of(place, record);
    const bool is_near = cycles >= -kMaxEarlyCycles && cycles <= most_cycles;
    result.is_damaged = !is_known || is_end != (i + 1 == count) || !is_near;
    int64_t time_ns = clock.time_ns(block.begin_clock + static_cast<uint64_t>(cycles));
    if (i > 0 && time_ns < result.phases.back().time_ns) {
      time_ns = result.phases.back().time_ns;
      ++result.backward_count;
    }
    result.phases.push_back({time_ns, record.tag});
  }
  if (!result.is_damaged) return result;
  return {.is_damaged = true};
}

void RecordedBlocks::time_blocks() {
  for (size_t place = 0; place < blocks_.size(); ++place) {
    RecordedBlock& block = blocks_[place];
    if (!block.is_there()) continue;
    const RolePhases main = phases(place, 0);
    if (main.phases.empty()) {
      leave_out(block);  // every block has a kMain, and when this one ended is not known
      continue;
    }
    block.begin_ns = clocks_[block.sm].time_ns(block.begin_clock);
    block.end_ns = block.begin_ns;
    block.waited_ns = block.begin_ns;
    for (int role = 0; role < kDeviceRoleCount; ++role) {
      const RolePhases recorded = role == 0 ? main : phases(place, role);
      backward_count_ += recorded.backward_count;
      if (recorded.is_damaged) ++damaged_role_count_;
      if (recorded.phases.empty()) continue;
      block.begin_ns = std::min(block.begin_ns, recorded.phases.front().time_ns);
      block.end_ns = std::max(block.end_ns, recorded.phases.back().time_ns);
    }
    const auto wait = std::find_if(
        main.phases.begin(), main.phases.end(),
        [](const RolePhase& entry) { return entry.phase() == DevicePhase::kWaitLaunch; });
    if (wait != main.phases.end()) block.waited_ns = (wait + 1)->time_ns;
  }
}

LaunchRun RecordedBlocks::run_of(size_t first, size_t last) const {
  LaunchRun run;
  for (size_t place = first; place < last; ++place) {
    const RecordedBlock& block = blocks_[place];
    if (!block.is_there()) continue;
    const bool is_first = !std::exchange(run.is_there, true);
    run.begin_ns = is_first ? block.begin_ns : std::min(run.begin_ns, block.begin_ns);
    if (!is_first && block.end_ns <= run.end_ns) continue;
    run.end_ns = block.end_ns;
    run.last_block = place;
  }
  return run;
}

void RecordedBlocks::time_launches() {
  for (size_t step = 0; step < step_count_; ++step) {
    int64_t ready_ns = kAbsent;
    for (size_t launch = 0; launch < first_blocks_.size(); ++launch) {
      const size_t first = first_place(step, launch);
      const size_t last = launch + 1 < first_blocks_.size() ? first_place(step, launch + 1)
                                                            : (step + 1) * step_blocks_;
      const LaunchRun run = run_of(first, last);
      for (size_t place = first; place < last; ++place) {
        blocks_[place].ready_ns = ready_ns == kAbsent ? run.begin_ns : ready_ns;
      }
      if (run.is_there) ready_ns = run.end_ns;
      runs_.push_back(run);
    }
  }
}

// When the tasks of each SM start, and which blocks are there at once.
void RecordedBlocks::place_blocks() {
  std::vector<std::vector<size_t>> places = places_of_sms();
  for (std::vector<size_t>& of_sm : places) {
    std::sort(of_sm.begin(), of_sm.end(), [this](size_t a, size_t b) {
      return std::tuple(blocks_[a].end_ns, a) < std::tuple(blocks_[b].end_ns, b);
    });
    int64_t busy_until_ns = std::numeric_limits<int64_t>::min();
    for (const size_t place : of_sm) {
      RecordedBlock& block = blocks_[place];
      int64_t start_ns = std::max(block.waited_ns, busy_until_ns);
      // It cannot have begun before the launch before had ended; the clock's error says it did.
      const bool is_off = start_ns < block.ready_ns && block.ready_ns - start_ns <= tick_ns_;
      if (is_off) start_ns = block.ready_ns;
      block.start_ns = std::min(start_ns, block.end_ns);
      busy_until_ns = block.end_ns;
    }
    std::sort(of_sm.begin(), of_sm.end(), [this](size_t a, size_t b) {
      return std::tuple(blocks_[a].begin_ns, a) < std::tuple(blocks_[b].begin_ns, b);
    });
    SlotChooser slots;
    for (const size_t place : of_sm) {
      blocks_[place].slot = slots.choose(blocks_[place].begin_ns, blocks_[place].end_ns);
    }
  }
}

}  // namespace gapless
