// SPDX-License-Identifier: Apache-2.0
//
// TraceBuilder: how every reader makes a Trace.
//
// Readers call it with events; it keeps the stack of open spans of each lane, pairs ends with
// begins, joins the events of a task, and finish() sorts what came out of order, ties flows to
// spans and writes down what did not fit as findings. A call costs tens of nanoseconds.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/trace.h"

namespace gapless {

// What comes first of two spans that begin together. The clock ticks in steps, so a span of no
// length and its successor may do so: where spans come as they were recorded, that order is right.
// Where they come in any order, the longer must hold the shorter.
enum class TieOrder { kAsRecorded, kLongerFirst };

class TraceBuilder {
 public:
  // `format` says what is being read, e.g. "chrome-json".
  explicit TraceBuilder(std::string format);

  // The parts that need no care: names, devices, clock, properties.
  Trace& trace() { return trace_; }

  uint32_t intern(std::string_view text) { return trace_.names.intern(text); }
  uint32_t add_device(Device device);
  uint32_t add_lane(Lane lane);

  // Spans that are opened and closed. Events of one lane must come in order of time; one that goes
  // back is moved to the lane's latest time and counted.
  void begin(uint32_t lane, int64_t time_ns, uint32_t name, uint32_t value = kNoValue);
  void end(uint32_t lane, int64_t time_ns);
  // Ends the lane's open switch span, with all that is nested in it, and begins the next one.
  void switch_to(uint32_t lane, int64_t time_ns, uint32_t name, uint32_t value = kNoValue);
  void switch_off(uint32_t lane, int64_t time_ns);
  // True while the lane has a span that began and did not end.
  bool is_open(uint32_t lane) const { return lane < open_.size() && !open_[lane].stack.empty(); }
  // The row of the innermost open span; kNoIndex when there is none.
  uint32_t open_span(uint32_t lane) const;

  // A span whose end is known, in any order: of those that begin together the longer is taken for
  // the outer one. Returns its row until finish().
  uint32_t add_span(uint32_t lane, int64_t begin_ns, int64_t end_ns, uint32_t name,
                    uint32_t value = kNoValue);
  // Category and arguments of a row (numbers of `names`); makes the columns when first used.
  void set_category(uint32_t span, uint32_t name);
  void set_args(uint32_t span, uint32_t name);

  void instant(uint32_t lane, int64_t time_ns, uint32_t name, uint32_t value = kNoValue);
  void counter(uint32_t lane, int64_t time_ns, uint32_t name, double value);
  // `span`: the row it belongs to, or kNoIndex: the innermost span that holds `time_ns` is found by
  // finish().
  void flow(uint32_t lane, int64_t time_ns, uint64_t id, FlowPhase phase, uint32_t span = kNoIndex);

  // One of the seven times. `lane` or `kernel` may be kNoIndex when this event does not know them.
  // A start ends the task that still runs on the lane. A time that the task already has begins a
  // new row: the task ran again.
  void task_time(uint64_t task, TaskTime time, int64_t time_ns, uint32_t lane, uint32_t kernel);
  void edge(uint64_t producer, uint64_t consumer, EdgeKind kind = EdgeKind::kData);
  // What the task moves and computes; kAbsent: not known. It is for the task's newest row, or for
  // the one that comes. Makes the columns when first used.
  void task_cost(uint64_t task, int64_t bytes, int64_t flops);

  void add_finding(Finding finding) { trace_.findings.push_back(std::move(finding)); }

  // Events may be counted instead of reported one by one; finish() adds one finding for each code.
  // `text` is the sentence without the number: "events name a channel that does not exist".
  void count_finding(Severity severity, std::string_view code, std::string_view text,
                     uint32_t lane = kNoIndex, uint64_t count = 1);

  // The trace, sorted and checked. Spans still open end at the last time of the trace.
  Trace finish();

 private:
  struct OpenSpan {
    uint32_t row;
    bool is_switch;
  };
  struct LaneState {
    std::vector<OpenSpan> stack;
    int64_t latest_ns = kAbsent;
    uint32_t running_task = kNoIndex;  // row of the task that started and did not end
  };

  struct Cost {
    int64_t bytes = kAbsent;
    int64_t flops = kAbsent;
    bool operator==(const Cost&) const = default;
  };

  LaneState& state_of(uint32_t lane);
  uint32_t append_span(uint32_t lane, int64_t begin_ns, int64_t end_ns, uint32_t name,
                       uint32_t value);
  int64_t in_order(uint32_t lane, LaneState& state, int64_t time_ns);
  void close_top(LaneState& state, int64_t time_ns);
  uint32_t task_row(uint64_t task, TaskTime time);
  void set_cost(uint32_t row, const Cost& cost);
  void count_if_changed(const Cost& before, const Cost& after);
  void close_open_spans();
  void resolve_edges();

  Trace trace_;
  std::vector<LaneState> open_;
  TieOrder tie_order_ = TieOrder::kAsRecorded;
  std::unordered_map<uint64_t, uint32_t> task_rows_;  // id -> newest row
  struct PendingEdge {
    uint64_t producer;
    uint64_t consumer;
    EdgeKind kind;
  };
  std::vector<PendingEdge> pending_edges_;
  std::unordered_map<uint64_t, Cost> pending_costs_;  // by id: tasks that had no event yet
  std::vector<Finding> counted_;  // one a code and lane, moved to the trace by finish()
  std::unordered_map<uint32_t, std::vector<size_t>> counted_on_;  // lane -> rows of counted_
};

// Sorts spans, counters, instants and flows by time (stable) and ties flows without a span to the
// innermost one around them on their lane.
void sort_trace(Trace& trace, TieOrder tie_order = TieOrder::kAsRecorded);

// One trace of several, whose times must already be on one clock: devices, lanes and tasks of all.
Trace merge_traces(std::vector<Trace> traces);

}  // namespace gapless
