// SPDX-License-Identifier: Apache-2.0
//
// The part of include/gapless/tracr.h that need not be inline.

#include <cstdio>
#include <mutex>
#include <string>

#define ENABLE_TRACR 1
#include "gapless/tracr.h"

namespace gapless {
namespace {

struct TracrState {
  std::mutex mutex;
  std::string path;  // a prefix, as in TraCR: "out/" or "run1_"
};

TracrState& tracr_state() {
  static TracrState* const instance = new TracrState();
  return *instance;
}

}  // namespace

std::atomic<uint16_t> tracr_channel_lanes[65536];

// Without a lock, because a fork could leave it locked in the child: of two threads that come at
// the same time one adds a lane that stays empty.
LaneId make_tracr_lane(uint16_t channel) {
  const std::string name = "Channel_" + std::to_string(channel + 1);
  const LaneId lane = add_lane({.name = name, .kind = LaneKind::kOther, .number = channel});
  uint16_t known = 0;
  const uint16_t mine = static_cast<uint16_t>(lane.id + 1);
  if (tracr_channel_lanes[channel].compare_exchange_strong(known, mine)) return lane;
  return LaneId{static_cast<uint16_t>(known - 1)};
}

void start_tracr(FullPolicy policy, uint64_t capacity_bytes) {
  if (is_recording()) return;  // `gapless record` was first
  RecorderOptions options;
  {
    const std::lock_guard lock(tracr_state().mutex);
    options.path = tracr_state().path + "tracr.%p.gapless";
  }
  options.policy = policy;
  options.capacity_bytes = capacity_bytes;
  // TraCR would end the program here. We say it and let it run.
  if (!start_recording(options)) {
    std::fprintf(stderr, "gapless: not recording: %s\n", recording_error().c_str());
  }
}

void set_tracr_path(std::string_view path) {
  const std::lock_guard lock(tracr_state().mutex);
  tracr_state().path = path;
}

void add_tracr_channels(uint16_t count) {
  for (uint16_t channel = 0; channel < count; ++channel) static_cast<void>(tracr_lane(channel));
}

}  // namespace gapless
