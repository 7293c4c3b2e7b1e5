// SPDX-License-Identifier: Apache-2.0
//
// Trace: what a recording means, in memory, whatever tool made it.
//
// Everything that repeats is a table of columns, one row a span (task, edge, counter sample, ...),
// so that ten million spans take 300 MB and an analysis touches only the columns it needs. Times
// are int64 nanoseconds on one clock; a time that was not recorded is kAbsent. Rows of `spans`,
// `counters`, `instants` and `flows` are in order of time, whatever their lane; TraceBuilder sees
// to that. docs/ARCHITECTURE.md defines the words.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "gapless/trace_format.h"

namespace gapless {

inline constexpr int64_t kAbsent = std::numeric_limits<int64_t>::min();
inline constexpr uint32_t kNoIndex = 0xffffffff;
// Times of native traces lie within 146 years of zero, so that differences of two always fit.
inline constexpr int64_t kMaxTimeNs = int64_t{1} << 62;

// Texts by number. Equal texts get the same number; numbers start at 0 without gaps.
class NameTable {
 public:
  NameTable() = default;
  NameTable(const NameTable& other);
  NameTable& operator=(const NameTable& other);
  NameTable(NameTable&&) = default;
  NameTable& operator=(NameTable&&) = default;

  uint32_t intern(std::string_view text);
  // kNoIndex when the text was never interned.
  uint32_t find(std::string_view text) const;
  std::string_view operator[](uint32_t id) const { return *texts_[id]; }
  size_t size() const { return texts_.size(); }

 private:
  std::unordered_map<std::string, uint32_t> ids_;
  std::vector<const std::string*> texts_;  // into ids_, whose keys do not move
};

// A thing with lanes: a process, a GPU, a chip.
struct Device {
  std::string name;
  int64_t number = 0;  // process id or device number
};

// What a span on a lane stands for. On a TraCR core lane it is not execution.
enum class SpanMeaning : uint8_t { kExecution = 0, kDispatchToFinish = 1 };

struct Lane {
  std::string name;
  LaneKind kind = LaneKind::kThread;
  uint32_t device = 0;
  int64_t number = 0;  // thread id, channel or core number: what the lane is called outside
  SpanMeaning meaning = SpanMeaning::kExecution;
  uint64_t dropped_count = 0;  // events the recorder had to give up on this lane
};

// Spans of one lane may nest and, in traces of others, overlap.
struct SpanColumns {
  std::vector<int64_t> begin_ns;
  std::vector<int64_t> end_ns;  // >= begin_ns
  std::vector<uint32_t> lane;
  std::vector<uint32_t> name;
  std::vector<uint32_t> value;  // the user's number; kNoValue: none
  // Present (one entry a row) only in traces that have them; numbers of `names`, kNoIndex: none.
  std::vector<uint32_t> category;
  std::vector<uint32_t> args;  // the text of a JSON object
  size_t size() const { return begin_ns.size(); }
};

std::string_view task_time_name(TaskTime time);

struct TaskColumns {
  std::vector<uint64_t> id;
  std::vector<uint32_t> lane;                                // where it ran; kNoIndex: unknown
  std::vector<uint32_t> kernel;                              // of `names`; kNoIndex: unknown
  std::array<std::vector<int64_t>, kTaskTimeCount> time_ns;  // by TaskTime; kAbsent: not recorded
  // Present (one entry a row) only in traces that have them: what the task moves and computes, 0 to
  // kMaxTaskCost; kAbsent: not recorded.
  std::vector<int64_t> bytes;
  std::vector<int64_t> flops;
  size_t size() const { return id.size(); }
  const std::vector<int64_t>& at(TaskTime time) const { return time_ns[static_cast<size_t>(time)]; }
};

// Producer and consumer are rows of `tasks`.
struct EdgeColumns {
  std::vector<uint32_t> producer;
  std::vector<uint32_t> consumer;
  std::vector<uint8_t> kind;  // EdgeKind
  size_t size() const { return producer.size(); }
};

struct CounterColumns {
  std::vector<int64_t> time_ns;
  std::vector<uint32_t> lane;
  std::vector<uint32_t> name;
  std::vector<double> value;
  size_t size() const { return time_ns.size(); }
};

struct InstantColumns {
  std::vector<int64_t> time_ns;
  std::vector<uint32_t> lane;
  std::vector<uint32_t> name;
  std::vector<uint32_t> value;  // kNoValue: none
  size_t size() const { return time_ns.size(); }
};

enum class FlowPhase : uint8_t { kOut = 0, kStep = 1, kIn = 2 };

// Points of arrows between spans. Points with the same id belong to one arrow, out before in.
struct FlowColumns {
  std::vector<int64_t> time_ns;
  std::vector<uint32_t> lane;
  std::vector<uint64_t> id;
  std::vector<uint8_t> phase;  // FlowPhase
  std::vector<uint32_t> span;  // the row of `spans` it is tied to; kNoIndex: none was open
  size_t size() const { return time_ns.size(); }
};

enum class Severity : uint8_t { kInfo = 0, kWarning = 1, kError = 2 };
std::string_view severity_name(Severity severity);

// Something a reader of this trace must know before believing it.
struct Finding {
  Severity severity = Severity::kInfo;
  std::string code;  // stable, for programs: "cut-short", "open-spans", "clock-wrap"
  std::string text;  // one sentence with the numbers in it
  uint32_t lane = kNoIndex;
  uint64_t count = 0;
};

struct Anchor {
  uint64_t ticks = 0;
  int64_t time_ns = 0;
};

struct TraceClock {
  ClockSource source = ClockSource::kNanoseconds;
  bool invariant = true;
  uint64_t ticks_per_second = 1'000'000'000;
  int64_t wall_minus_time_ns = 0;  // 0: unknown
  std::vector<Anchor> anchors;     // empty when the source gave nanoseconds
};

// Where a trace comes from: program, machine, version of the recorder. Keys are unique.
struct Property {
  std::string key;
  std::string value;
};

struct Trace {
  std::string format;  // what it was read from: "gapless", "tracr", "chrome-json"
  NameTable names;
  std::vector<Device> devices;
  std::vector<Lane> lanes;
  SpanColumns spans;
  TaskColumns tasks;
  EdgeColumns edges;
  CounterColumns counters;
  InstantColumns instants;
  FlowColumns flows;
  TraceClock clock;
  std::vector<Property> properties;
  std::vector<Finding> findings;
};

// The first and the last time of anything in the trace; both 0 when it is empty.
struct TimeRange {
  int64_t begin_ns = 0;
  int64_t end_ns = 0;
};
TimeRange time_range(const Trace& trace);

// Bytes held by the columns and the names.
size_t memory_bytes(const Trace& trace);

// Calls visit(table, column, vector) for every column, numbered as in the trace file. One list for
// the writer, the reader, memory_bytes and reorderings: a column added here is added everywhere.
template <typename AnyTrace, typename Visit>
void for_each_column(AnyTrace& trace, Visit visit) {
  visit(1, 1, trace.spans.begin_ns);
  visit(1, 2, trace.spans.end_ns);
  visit(1, 3, trace.spans.lane);
  visit(1, 4, trace.spans.name);
  visit(1, 5, trace.spans.value);
  visit(1, 6, trace.spans.category);
  visit(1, 7, trace.spans.args);
  visit(2, 1, trace.tasks.id);
  visit(2, 2, trace.tasks.lane);
  visit(2, 3, trace.tasks.kernel);
  for (int time = 0; time < kTaskTimeCount; ++time) {
    visit(2, 4 + time, trace.tasks.time_ns[static_cast<size_t>(time)]);
  }
  visit(2, 11, trace.tasks.bytes);
  visit(2, 12, trace.tasks.flops);
  visit(3, 1, trace.edges.producer);
  visit(3, 2, trace.edges.consumer);
  visit(3, 3, trace.edges.kind);
  visit(4, 1, trace.counters.time_ns);
  visit(4, 2, trace.counters.lane);
  visit(4, 3, trace.counters.name);
  visit(4, 4, trace.counters.value);
  visit(5, 1, trace.instants.time_ns);
  visit(5, 2, trace.instants.lane);
  visit(5, 3, trace.instants.name);
  visit(5, 4, trace.instants.value);
  visit(6, 1, trace.flows.time_ns);
  visit(6, 2, trace.flows.lane);
  visit(6, 3, trace.flows.id);
  visit(6, 4, trace.flows.phase);
  visit(6, 5, trace.flows.span);
}

}  // namespace gapless
