// SPDX-License-Identifier: Apache-2.0
//
// The macro names of TraCR on the Gapless recorder: an instrumented program changes one include.
//
//   -#include <tracr/tracr.hpp>
//   +#include <gapless/tracr.h>
//
// As there, the macros do nothing unless ENABLE_TRACR is defined; TRACR_POLICY_PERIODIC,
// TRACR_POLICY_IGNORE_IF_FULL and TRACR_CAPACITY keep their meaning. The trace is written to
// <path>tracr.<pid>.gapless; `gapless convert --to tracr` makes a TraCR directory of it. A
// recording that `gapless record` began is used as it is. docs/from-tracr.md says what else is
// different.

#pragma once

#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "gapless/trace.h"

// The palette of Paraver. Our viewers choose colours by name, so these are accepted and not kept.
// NOLINTBEGIN(readability-identifier-naming): the names are TraCR's.
enum mark_color : uint16_t {
  MARK_COLOR_NONE = 0,
  MARK_COLOR_BLUE = 1,
  MARK_COLOR_LIGHT_GRAY = 2,
  MARK_COLOR_RED = 3,
  MARK_COLOR_GREEN = 4,
  MARK_COLOR_YELLOW = 5,
  MARK_COLOR_ORANGE = 6,
  MARK_COLOR_PURPLE = 7,
  MARK_COLOR_CYAN = 8,
  MARK_COLOR_MAGENTA = 9,
  MARK_COLOR_LIGHT_GREEN = 10,
  MARK_COLOR_PINK = 11,
  MARK_COLOR_TEAL = 12,
  MARK_COLOR_GRAY = 13,
  MARK_COLOR_LAVENDER = 14,
  MARK_COLOR_BROWN = 15,
  MARK_COLOR_LIGHT_YELLOW = 16,
  MARK_COLOR_MAROON = 17,
  MARK_COLOR_MINT = 18,
  MARK_COLOR_OLIVE = 19,
  MARK_COLOR_PEACH = 20,
  MARK_COLOR_NAVY = 21,
  MARK_COLOR_BRIGHT_BLUE = 22,
};
// NOLINTEND(readability-identifier-naming)

#if defined(ENABLE_TRACR) && !defined(GAPLESS_TRACE_OFF)

namespace gapless {

// The lane of each channel, plus one; 0: not used yet.
extern std::atomic<uint16_t> tracr_channel_lanes[65536];
LaneId make_tracr_lane(uint16_t channel);  // the first use of a channel

inline LaneId tracr_lane(uint16_t channel) {
  const uint16_t lane = tracr_channel_lanes[channel].load(std::memory_order_relaxed);
  if (lane != 0) [[likely]]
    return LaneId{static_cast<uint16_t>(lane - 1)};
  return make_tracr_lane(channel);
}

void start_tracr(FullPolicy policy, uint64_t capacity_bytes);
void set_tracr_path(std::string_view path);
void add_tracr_channels(uint16_t count);

// Any list of things that are or become strings, a nlohmann::json array among them.
template <typename Names>
void name_tracr_channels(const Names& names) {
  uint16_t channel = 0;
  for (const auto& name : names) {
    const std::string text = name;
    rename_lane(tracr_lane(channel++), text);
  }
}
inline void name_tracr_channels(std::initializer_list<const char*> names) {
  name_tracr_channels<std::initializer_list<const char*>>(names);
}

inline void tracr_set(uint16_t channel, uint16_t event, uint32_t extra = kNoValue) {
  switch_to(tracr_lane(channel), NameId{event}, extra);
}

#if defined(TRACR_POLICY_PERIODIC)
inline constexpr FullPolicy kTracrPolicy = FullPolicy::kKeepNewest;
#elif defined(TRACR_POLICY_IGNORE_IF_FULL)
inline constexpr FullPolicy kTracrPolicy = FullPolicy::kKeepOldest;
#else
inline constexpr FullPolicy kTracrPolicy = FullPolicy::kGrow;
#endif
#if defined(TRACR_CAPACITY)
inline constexpr uint64_t kTracrCapacityBytes = uint64_t{TRACR_CAPACITY} * sizeof(Record);
#else
inline constexpr uint64_t kTracrCapacityBytes = 16 << 20;
#endif

}  // namespace gapless

#define INSTRUMENTATION_ACTIVE true
#define INSTRUMENTATION_START() \
  ::gapless::start_tracr(::gapless::kTracrPolicy, ::gapless::kTracrCapacityBytes)
#define INSTRUMENTATION_END() static_cast<void>(::gapless::stop_recording())
// Not needed any more: a thread's first event does it. Called early, it saves that event the time.
#define INSTRUMENTATION_THREAD_INIT() static_cast<void>(::gapless::thread_writer())
#define INSTRUMENTATION_THREAD_FINALIZE() static_cast<void>(0)
#define INSTRUMENTATION_MARK_ADD(label) ::gapless::intern_name(label).id
#define INSTRUMENTATION_MARK_W_COLOR_ADD(label, color) \
  (static_cast<void>(color), ::gapless::intern_name(label).id)
#define INSTRUMENTATION_MARK_SET(...) ::gapless::tracr_set(__VA_ARGS__)
#define INSTRUMENTATION_MARK_RESET(channel) ::gapless::switch_off(::gapless::tracr_lane(channel))
#define INSTRUMENTATION_FLOW_START(channel, flow) \
  ::gapless::flow_out(::gapless::tracr_lane(channel), flow)
#define INSTRUMENTATION_FLOW_END(channel, flow) \
  ::gapless::flow_in(::gapless::tracr_lane(channel), flow)
#define INSTRUMENTATION_ADD_CHANNEL_NAMES(...) ::gapless::name_tracr_channels(__VA_ARGS__)
#define INSTRUMENTATION_ADD_NUM_CHANNELS(count) ::gapless::add_tracr_channels(count)
#define INSTRUMENTATION_ON() ::gapless::resume_recording()
#define INSTRUMENTATION_OFF() ::gapless::pause_recording()
#define INSTRUMENTATION_TRACE_PATH(path) ::gapless::set_tracr_path(path)
#define INSTRUMENTATION_IS_PROC_READY() ::gapless::is_recording()
#define INSTRUMENTATION_PROC_EXISTS() ::gapless::is_recording()
#define INSTRUMENTATION_THREAD_EXISTS() (::gapless::current_writer != nullptr)

#else

namespace gapless {
// Takes the arguments of a macro that does nothing, so that they do not count as unused.
template <typename... Arguments>
[[gnu::always_inline]] inline constexpr void ignore_arguments(const Arguments&...) {}
}  // namespace gapless

#define INSTRUMENTATION_ACTIVE false
#define INSTRUMENTATION_START() static_cast<void>(0)
#define INSTRUMENTATION_END() static_cast<void>(0)
#define INSTRUMENTATION_THREAD_INIT() static_cast<void>(0)
#define INSTRUMENTATION_THREAD_FINALIZE() static_cast<void>(0)
#define INSTRUMENTATION_MARK_ADD(label) static_cast<uint16_t>(0)
#define INSTRUMENTATION_MARK_W_COLOR_ADD(label, color) static_cast<uint16_t>(0)
#define INSTRUMENTATION_MARK_SET(...) ::gapless::ignore_arguments(__VA_ARGS__)
#define INSTRUMENTATION_MARK_RESET(channel) ::gapless::ignore_arguments(channel)
#define INSTRUMENTATION_FLOW_START(channel, flow) ::gapless::ignore_arguments(channel, flow)
#define INSTRUMENTATION_FLOW_END(channel, flow) ::gapless::ignore_arguments(channel, flow)
#define INSTRUMENTATION_ADD_CHANNEL_NAMES(...) static_cast<void>(0)
#define INSTRUMENTATION_ADD_NUM_CHANNELS(count) ::gapless::ignore_arguments(count)
#define INSTRUMENTATION_ON() static_cast<void>(0)
#define INSTRUMENTATION_OFF() static_cast<void>(0)
#define INSTRUMENTATION_TRACE_PATH(path) ::gapless::ignore_arguments(path)
#define INSTRUMENTATION_IS_PROC_READY() false
#define INSTRUMENTATION_PROC_EXISTS() false
#define INSTRUMENTATION_THREAD_EXISTS() false

#endif
