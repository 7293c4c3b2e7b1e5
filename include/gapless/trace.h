// SPDX-License-Identifier: Apache-2.0
//
// Record what a C++ program does, for about 10 ns an event.
//
//   gapless::start_recording({.path = "run.gapless"});
//   const gapless::NameId kMatmul = gapless::intern_name("matmul");   // once, it takes a lock
//   gapless::span_begin(kMatmul);
//   ...
//   gapless::span_end();
//   gapless::stop_recording();
//
// or GAPLESS_TRACE_SCOPE("matmul"); at the top of a block, and nothing else: `gapless record --
// PROGRAM` (or GAPLESS_TRACE_FILE in the environment) starts and stops the recording by itself.
//
// Hot path. An event is one clock read, one 16-byte store and one pointer step in memory that no
// other thread writes. No lock, no allocation, no system call. While nothing is recorded it costs
// one load and one predictable branch. Compiled with GAPLESS_TRACE_OFF it leaves no instruction.
//
// That memory is the trace file itself, mapped and touched beforehand: when the program is killed,
// all that was recorded is in the file. A recorder never ends or throws into the program it
// watches, and no event but a thread's first waits for another thread. What it had to drop is
// counted for each lane and is in every report. Not for signal handlers. docs/recorder.md says how
// it works.

#pragma once

#include <atomic>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "gapless/trace_format.h"

#if defined(__x86_64__)
#include <x86intrin.h>
#elif !defined(__aarch64__)
#include <ctime>
#endif

namespace gapless {

struct WriterState;  // the recorder's side of a writer, in src/trace/recorder.h

// A text, by number. Make it once, use it often.
struct NameId {
  uint16_t id = kNoName;
};

// A timeline: the calling thread's own, or one made by add_lane (a core, a queue).
struct LaneId {
  uint16_t id = kNoLane;
};

struct LaneSpec {
  std::string_view name = {};
  LaneKind kind = LaneKind::kOther;
  int64_t number = 0;            // what it is called outside: core number, channel
  std::string_view device = {};  // lanes of one device stand together; empty: this process
};

// What to do when a thread has filled its memory.
enum class FullPolicy : uint8_t {
  kGrow,        // the file grows; events are lost only when the disk is full
  kKeepNewest,  // the oldest events make room
  kKeepOldest,  // the newest events are not kept
};

struct RecorderOptions {
  std::string path;  // "%p" stands for the process id
  FullPolicy policy = FullPolicy::kGrow;
  uint64_t capacity_bytes = 16 << 20;  // of each thread, for the policies that keep
};

struct RecordingSummary {
  uint64_t event_count = 0;
  uint64_t dropped_count = 0;
  double ns_per_event = 0.0;  // the cost of one event, measured here at the end
};

#if defined(GAPLESS_TRACE_OFF)
inline constexpr bool kTraceCompiledIn = false;
// Another name for each setting, so that both kinds of object file can be linked together.
inline namespace trace_off {

[[gnu::always_inline]] inline bool start_recording(const RecorderOptions&) { return false; }
[[gnu::always_inline]] inline std::string recording_error() { return {}; }
[[gnu::always_inline]] inline RecordingSummary stop_recording() { return {}; }
[[gnu::always_inline]] inline void pause_recording() {}
[[gnu::always_inline]] inline void resume_recording() {}
[[gnu::always_inline]] inline bool is_recording() { return false; }
[[gnu::always_inline]] inline NameId intern_name(std::string_view) { return {}; }
[[gnu::always_inline]] inline LaneId add_lane(const LaneSpec&) { return {}; }
[[gnu::always_inline]] inline LaneId thread_lane() { return {}; }
[[gnu::always_inline]] inline void name_thread(std::string_view) {}
[[gnu::always_inline]] inline void rename_lane(LaneId, std::string_view) {}
[[gnu::always_inline]] inline void set_property(std::string_view, std::string_view) {}
[[gnu::always_inline]] inline void span_begin(NameId, uint32_t = kNoValue) {}
[[gnu::always_inline]] inline void span_begin(LaneId, NameId, uint32_t = kNoValue) {}
[[gnu::always_inline]] inline void span_end() {}
[[gnu::always_inline]] inline void span_end(LaneId) {}
[[gnu::always_inline]] inline void switch_to(NameId, uint32_t = kNoValue) {}
[[gnu::always_inline]] inline void switch_to(LaneId, NameId, uint32_t = kNoValue) {}
[[gnu::always_inline]] inline void switch_off() {}
[[gnu::always_inline]] inline void switch_off(LaneId) {}
[[gnu::always_inline]] inline void instant(NameId, uint32_t = kNoValue) {}
[[gnu::always_inline]] inline void instant(LaneId, NameId, uint32_t = kNoValue) {}
[[gnu::always_inline]] inline void counter(NameId, double) {}
[[gnu::always_inline]] inline void counter(LaneId, NameId, double) {}
[[gnu::always_inline]] inline void flow_out(uint32_t) {}
[[gnu::always_inline]] inline void flow_out(LaneId, uint32_t) {}
[[gnu::always_inline]] inline void flow_in(uint32_t) {}
[[gnu::always_inline]] inline void flow_in(LaneId, uint32_t) {}
[[gnu::always_inline]] inline void task_event(TaskTime, LaneId, uint32_t, NameId = {}) {}
[[gnu::always_inline]] inline void task_edge(uint32_t, uint32_t, EdgeKind = EdgeKind::kData) {}
[[gnu::always_inline]] inline void task_cost(uint32_t, uint64_t, uint64_t) {}

struct ScopedSpan {
  [[gnu::always_inline]] explicit ScopedSpan(NameId, uint32_t = kNoValue) {}
};

}  // namespace trace_off
#else
inline constexpr bool kTraceCompiledIn = true;
inline namespace trace_on {

// ---- The whole recording. One is under way in a process at a time.

// False when it could not start (recording_error() says why) or one is under way already.
bool start_recording(const RecorderOptions& options);
std::string recording_error();
// Closes the file. Other threads may go on calling; what they record from here on is not kept.
RecordingSummary stop_recording();
// Off and on again at run time. Spans that cross the gap are reported when the trace is read.
void pause_recording();
void resume_recording();
bool is_recording();

// ---- Names and lanes. These take a lock: not for hot paths. They may be made before, during and
// ---- between recordings, and stay valid for the life of the process.

NameId intern_name(std::string_view text);
LaneId add_lane(const LaneSpec& spec);
// The calling thread's lane. A thread that was never seen gets one, named after the thread.
LaneId thread_lane();
void name_thread(std::string_view name);
void rename_lane(LaneId lane, std::string_view name);
// What a reader of the trace should know: "model" is "Qwen3-14B". For this recording and later
// ones; the last value of a key holds. Texts are cut at 4,096 bytes, keys also at a zero byte; an
// empty key is no property.
void set_property(std::string_view key, std::string_view value);

// ---- The hot path.

// The raw clock: never converted here, so never divided and never wrapped.
inline uint64_t read_ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#elif defined(__aarch64__)
  uint64_t ticks;
  asm volatile("mrs %0, cntvct_el0" : "=r"(ticks));
  return ticks;
#else
  timespec now;
  clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
#endif
}

// Where one thread leaves its records. Got from thread_writer(); a runtime that records millions of
// events may keep the pointer for the length of a step and save the check, but not across
// stop_recording() or fork().
class Writer {
 public:
  void write(RecordKind kind, LaneId lane, NameId name, uint32_t value) {
    write_at(read_ticks(), kind, lane, name, value);
  }
  // With a time that was read before: one read may serve several records.
  void write_at(uint64_t ticks, RecordKind kind, LaneId lane, NameId name, uint32_t value) {
    store(ticks << kKindBits | static_cast<uint64_t>(kind),
          uint64_t{value} | uint64_t{name.id} << 32 | uint64_t{lane.id} << 48);
  }
  // For what carries no time: the value of a counter, the flops of a task.
  void write_untimed(RecordKind kind, uint64_t tail) { store(static_cast<uint64_t>(kind), tail); }
  void write_edge(uint32_t producer, uint32_t consumer, EdgeKind kind) {
    store(static_cast<uint64_t>(kind) << kKindBits | static_cast<uint64_t>(RecordKind::kEdge),
          uint64_t{consumer} | uint64_t{producer} << 32);
  }
  void write_cost(uint32_t task, uint64_t bytes, uint64_t flops) {
    const uint64_t limited = bytes < kMaxTaskCost ? bytes : kMaxTaskCost;
    store(limited << kKindBits | static_cast<uint64_t>(RecordKind::kTaskCost),
          uint64_t{task} | uint64_t{kNoName} << 32 | uint64_t{kNoLane} << 48);
    write_untimed(RecordKind::kPayload, flops < kMaxTaskCost ? flops : kMaxTaskCost);
  }

  LaneId lane() const { return lane_; }
  uint32_t session() const { return session_; }

 private:
  friend struct gapless::WriterState;

  // The head goes last: a reader that finds one finds a whole record behind it.
  void store(uint64_t head, uint64_t tail) {
    Record* slot = next_;
    if (slot == end_) [[unlikely]] {
      store_slow(head, tail);
      return;
    }
    std::memcpy(&slot->value, &tail, sizeof(tail));
    std::atomic_ref<uint64_t>(slot->head).store(head, std::memory_order_release);
    next_ = slot + 1;
  }
  void store_slow(uint64_t head, uint64_t tail);

  Record* next_ = nullptr;
  Record* end_ = nullptr;
  uint32_t session_ = 0;
  LaneId lane_;
  WriterState* state_ = nullptr;
};

extern std::atomic<uint32_t> recording_session;  // 0: nothing is recorded
extern constinit thread_local Writer* current_writer;
// First event of a thread in this recording. nullptr when the thread cannot record.
Writer* attach_thread();

// The calling thread's writer; nullptr while nothing is recorded.
inline Writer* thread_writer() {
  const uint32_t session = recording_session.load(std::memory_order_relaxed);
  if (session == 0) return nullptr;
  Writer* writer = current_writer;
  if (writer != nullptr && writer->session() == session) [[likely]]
    return writer;
  return attach_thread();
}

// Spans nest. One that is not closed properly is reported when the trace is read.
inline void span_begin(NameId name, uint32_t value = kNoValue) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kSpanBegin, w->lane(), name, value);
}
inline void span_begin(LaneId lane, NameId name, uint32_t value = kNoValue) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kSpanBegin, lane, name, value);
}
inline void span_end() {
  if (Writer* w = thread_writer()) w->write(RecordKind::kSpanEnd, w->lane(), {}, kNoValue);
}
inline void span_end(LaneId lane) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kSpanEnd, lane, {}, kNoValue);
}

// Ends what the lane was switched to before and begins this: one record where a pair would take
// two.
inline void switch_to(NameId name, uint32_t value = kNoValue) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kSwitch, w->lane(), name, value);
}
inline void switch_to(LaneId lane, NameId name, uint32_t value = kNoValue) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kSwitch, lane, name, value);
}
inline void switch_off() { switch_to(NameId{}); }
inline void switch_off(LaneId lane) { switch_to(lane, NameId{}); }

inline void instant(NameId name, uint32_t value = kNoValue) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kInstant, w->lane(), name, value);
}
inline void instant(LaneId lane, NameId name, uint32_t value = kNoValue) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kInstant, lane, name, value);
}

// A counter takes two records.
inline void counter(LaneId lane, NameId name, double value) {
  if (Writer* w = thread_writer()) {
    w->write(RecordKind::kCounter, lane, name, kNoValue);
    w->write_untimed(RecordKind::kPayload, std::bit_cast<uint64_t>(value));
  }
}
inline void counter(NameId name, double value) {
  if (Writer* w = thread_writer()) counter(w->lane(), name, value);
}

// An arrow from the span that is open here (out) to the one that is open there (in).
inline void flow_out(LaneId lane, uint32_t id) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kFlowOut, lane, {}, id);
}
inline void flow_out(uint32_t id) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kFlowOut, w->lane(), {}, id);
}
inline void flow_in(LaneId lane, uint32_t id) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kFlowIn, lane, {}, id);
}
inline void flow_in(uint32_t id) {
  if (Writer* w = thread_writer()) w->write(RecordKind::kFlowIn, w->lane(), {}, id);
}

// One of the seven times of a task. `core` is the lane it is for, which need not be the caller's;
// a start also ends the task that still runs on that core. Task ids are unique in a recording.
inline void task_event(TaskTime time, LaneId core, uint32_t task, NameId kernel = {}) {
  if (Writer* w = thread_writer()) {
    const int kind = static_cast<int>(RecordKind::kTaskSubmit) + static_cast<int>(time);
    w->write(static_cast<RecordKind>(kind), core, kernel, task);
  }
}
// `consumer` waits for `producer`.
inline void task_edge(uint32_t producer, uint32_t consumer, EdgeKind kind = EdgeKind::kData) {
  if (Writer* w = thread_writer()) w->write_edge(producer, consumer, kind);
}
// What the task reads and writes in memory, and what it computes. Takes two records and no clock
// read. Best once a task, at any time; the last one holds.
inline void task_cost(uint32_t task, uint64_t bytes, uint64_t flops) {
  if (Writer* w = thread_writer()) w->write_cost(task, bytes, flops);
}

// A span as long as a block.
class ScopedSpan {
 public:
  explicit ScopedSpan(NameId name, uint32_t value = kNoValue) { span_begin(name, value); }
  ~ScopedSpan() { span_end(); }
  ScopedSpan(const ScopedSpan&) = delete;
  ScopedSpan& operator=(const ScopedSpan&) = delete;
};

}  // namespace trace_on
#endif

}  // namespace gapless

#define GAPLESS_TRACE_JOIN2(a, b) a##b
#define GAPLESS_TRACE_JOIN(a, b) GAPLESS_TRACE_JOIN2(a, b)

#if defined(GAPLESS_TRACE_OFF)
#define GAPLESS_TRACE_SCOPE(name) static_cast<void>(0)
#define GAPLESS_TRACE_COUNTER(name, value) static_cast<void>(0)
#else
   // GAPLESS_TRACE_SCOPE("matmul"); records the rest of the block as a span on this thread's lane.
#define GAPLESS_TRACE_SCOPE(name)                                              \
  static const ::gapless::NameId GAPLESS_TRACE_JOIN(gapless_name_, __LINE__) = \
      ::gapless::intern_name(name);                                            \
  const ::gapless::ScopedSpan GAPLESS_TRACE_JOIN(                              \
      gapless_span_, __LINE__)(GAPLESS_TRACE_JOIN(gapless_name_, __LINE__))
   // GAPLESS_TRACE_COUNTER("queue length", n); records the value of a counter now.
#define GAPLESS_TRACE_COUNTER(name, value)                                              \
  do {                                                                                  \
    static const ::gapless::NameId gapless_counter_name = ::gapless::intern_name(name); \
    ::gapless::counter(gapless_counter_name, static_cast<double>(value));               \
  } while (false)
#endif
