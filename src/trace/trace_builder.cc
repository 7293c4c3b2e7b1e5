// SPDX-License-Identifier: Apache-2.0

#include "trace/trace_builder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"

namespace gapless {

TraceBuilder::TraceBuilder(std::string format) { trace_.format = std::move(format); }

uint32_t TraceBuilder::add_device(Device device) {
  trace_.devices.push_back(std::move(device));
  return static_cast<uint32_t>(trace_.devices.size() - 1);
}

uint32_t TraceBuilder::add_lane(Lane lane) {
  GAPLESS_CHECK(lane.device < trace_.devices.size());
  trace_.lanes.push_back(std::move(lane));
  return static_cast<uint32_t>(trace_.lanes.size() - 1);
}

TraceBuilder::LaneState& TraceBuilder::state_of(uint32_t lane) {
  GAPLESS_DCHECK(lane < trace_.lanes.size());
  if (lane >= open_.size()) open_.resize(trace_.lanes.size());
  return open_[lane];
}

int64_t TraceBuilder::in_order(uint32_t lane, LaneState& state, int64_t time_ns) {
  if (time_ns < state.latest_ns) [[unlikely]] {
    count_finding(Severity::kWarning, "time-goes-back",
                  "events are older than the one before them on their lane; moved to its time",
                  lane);
    return state.latest_ns;
  }
  state.latest_ns = time_ns;
  return time_ns;
}

void TraceBuilder::close_top(LaneState& state, int64_t time_ns) {
  trace_.spans.end_ns[state.stack.back().row] = time_ns;
  state.stack.pop_back();
}

void TraceBuilder::begin(uint32_t lane, int64_t time_ns, uint32_t name, uint32_t value) {
  LaneState& state = state_of(lane);
  const int64_t time = in_order(lane, state, time_ns);
  state.stack.push_back({append_span(lane, time, kAbsent, name, value), false});
}

void TraceBuilder::end(uint32_t lane, int64_t time_ns) {
  LaneState& state = state_of(lane);
  const int64_t time = in_order(lane, state, time_ns);
  if (state.stack.empty() || state.stack.back().is_switch) {
    count_finding(Severity::kWarning, "end-without-begin",
                  "span ends have no begin (it was dropped, or the spans do not nest); ignored",
                  lane);
    return;
  }
  close_top(state, time);
}

void TraceBuilder::switch_off(uint32_t lane, int64_t time_ns) {
  LaneState& state = state_of(lane);
  const int64_t time = in_order(lane, state, time_ns);
  const auto top = std::find_if(state.stack.rbegin(), state.stack.rend(),
                                [](const OpenSpan& open) { return open.is_switch; });
  if (top == state.stack.rend()) return;
  while (!state.stack.back().is_switch) {
    count_finding(Severity::kWarning, "switch-cuts-span",
                  "spans were still open when their lane switched; ended there", lane);
    close_top(state, time);
  }
  close_top(state, time);
}

void TraceBuilder::switch_to(uint32_t lane, int64_t time_ns, uint32_t name, uint32_t value) {
  switch_off(lane, time_ns);
  LaneState& state = state_of(lane);
  const int64_t time = std::max(time_ns, state.latest_ns);
  state.stack.push_back({append_span(lane, time, kAbsent, name, value), true});
}

uint32_t TraceBuilder::open_span(uint32_t lane) const {
  return is_open(lane) ? open_[lane].stack.back().row : kNoIndex;
}

uint32_t TraceBuilder::add_span(uint32_t lane, int64_t begin_ns, int64_t end_ns, uint32_t name,
                                uint32_t value) {
  tie_order_ = TieOrder::kLongerFirst;
  return append_span(lane, begin_ns, end_ns, name, value);
}

uint32_t TraceBuilder::append_span(uint32_t lane, int64_t begin_ns, int64_t end_ns, uint32_t name,
                                   uint32_t value) {
  SpanColumns& spans = trace_.spans;
  const uint32_t row = static_cast<uint32_t>(spans.size());
  spans.begin_ns.push_back(begin_ns);
  spans.end_ns.push_back(end_ns);
  spans.lane.push_back(lane);
  spans.name.push_back(name);
  spans.value.push_back(value);
  return row;
}

void TraceBuilder::set_category(uint32_t span, uint32_t name) {
  trace_.spans.category.resize(trace_.spans.size(), kNoIndex);
  trace_.spans.category[span] = name;
}

void TraceBuilder::set_args(uint32_t span, uint32_t name) {
  trace_.spans.args.resize(trace_.spans.size(), kNoIndex);
  trace_.spans.args[span] = name;
}

void TraceBuilder::instant(uint32_t lane, int64_t time_ns, uint32_t name, uint32_t value) {
  trace_.instants.time_ns.push_back(time_ns);
  trace_.instants.lane.push_back(lane);
  trace_.instants.name.push_back(name);
  trace_.instants.value.push_back(value);
}

void TraceBuilder::counter(uint32_t lane, int64_t time_ns, uint32_t name, double value) {
  trace_.counters.time_ns.push_back(time_ns);
  trace_.counters.lane.push_back(lane);
  trace_.counters.name.push_back(name);
  trace_.counters.value.push_back(value);
}

void TraceBuilder::flow(uint32_t lane, int64_t time_ns, uint64_t id, FlowPhase phase,
                        uint32_t span) {
  trace_.flows.time_ns.push_back(time_ns);
  trace_.flows.lane.push_back(lane);
  trace_.flows.id.push_back(id);
  trace_.flows.phase.push_back(static_cast<uint8_t>(phase));
  trace_.flows.span.push_back(span);
}

// The newest row of the task, or a new one when it has this time already.
uint32_t TraceBuilder::task_row(uint64_t task, TaskTime time) {
  TaskColumns& tasks = trace_.tasks;
  const size_t column = static_cast<size_t>(time);
  const uint32_t new_row = static_cast<uint32_t>(tasks.size());
  const auto [entry, inserted] = task_rows_.try_emplace(task, new_row);
  if (!inserted && tasks.time_ns[column][entry->second] == kAbsent) return entry->second;
  entry->second = new_row;
  tasks.id.push_back(task);
  tasks.lane.push_back(kNoIndex);
  tasks.kernel.push_back(kNoIndex);
  for (std::vector<int64_t>& times : tasks.time_ns) times.push_back(kAbsent);
  if (!pending_costs_.empty()) [[unlikely]] {
    const auto pending = pending_costs_.find(task);
    if (pending != pending_costs_.end()) {
      set_cost(new_row, pending->second);
      pending_costs_.erase(pending);
    }
  }
  return new_row;
}

void TraceBuilder::task_time(uint64_t task, TaskTime time, int64_t time_ns, uint32_t lane,
                             uint32_t kernel) {
  TaskColumns& tasks = trace_.tasks;
  const uint32_t row = task_row(task, time);
  tasks.time_ns[static_cast<size_t>(time)][row] = time_ns;
  if (kernel != kNoIndex) tasks.kernel[row] = kernel;
  if (lane == kNoIndex) return;
  if (time >= TaskTime::kDispatch) tasks.lane[row] = lane;
  LaneState& state = state_of(lane);
  if (time == TaskTime::kStart) {
    std::vector<int64_t>& end_ns = tasks.time_ns[static_cast<size_t>(TaskTime::kEnd)];
    const uint32_t running = state.running_task;
    if (running != kNoIndex && end_ns[running] == kAbsent) end_ns[running] = time_ns;
    state.running_task = row;
  }
  if (time == TaskTime::kEnd && state.running_task == row) state.running_task = kNoIndex;
}

void TraceBuilder::edge(uint64_t producer, uint64_t consumer, EdgeKind kind) {
  pending_edges_.push_back({producer, consumer, kind});
}

void TraceBuilder::task_cost(uint64_t task, int64_t bytes, int64_t flops) {
  const Cost cost = {bytes, flops};
  const auto found = task_rows_.find(task);
  if (found != task_rows_.end()) return set_cost(found->second, cost);
  Cost& pending = pending_costs_[task];
  count_if_changed(pending, cost);
  pending = cost;
}

void TraceBuilder::set_cost(uint32_t row, const Cost& cost) {
  TaskColumns& tasks = trace_.tasks;
  tasks.bytes.resize(tasks.size(), kAbsent);
  tasks.flops.resize(tasks.size(), kAbsent);
  count_if_changed({tasks.bytes[row], tasks.flops[row]}, cost);
  tasks.bytes[row] = cost.bytes;
  tasks.flops[row] = cost.flops;
}

void TraceBuilder::count_if_changed(const Cost& before, const Cost& after) {
  if (before == Cost{} || before == after) return;
  count_finding(Severity::kWarning, "cost-given-twice",
                "costs of a task differ from what was given before; the later one is kept");
}

void TraceBuilder::count_finding(Severity severity, std::string_view code, std::string_view text,
                                 uint32_t lane, uint64_t count) {
  std::vector<size_t>& rows = counted_on_[lane];
  const auto same = [&](size_t row) { return counted_[row].code == code; };
  const auto found = std::find_if(rows.begin(), rows.end(), same);
  if (found != rows.end()) {
    counted_[*found].count += count;
    return;
  }
  rows.push_back(counted_.size());
  counted_.push_back({severity, std::string(code), std::string(text), lane, count});
}

void TraceBuilder::close_open_spans() {
  int64_t last_ns = time_range(trace_).end_ns;
  for (const LaneState& state : open_) last_ns = std::max(last_ns, state.latest_ns);
  for (uint32_t lane = 0; lane < open_.size(); ++lane) {
    const size_t open_count = open_[lane].stack.size();
    while (!open_[lane].stack.empty()) close_top(open_[lane], last_ns);
    if (open_count == 0) continue;
    count_finding(Severity::kWarning, "open-spans",
                  "spans did not end before the trace did; drawn to its end", lane, open_count);
  }
}

void TraceBuilder::resolve_edges() {
  for (const PendingEdge& edge : pending_edges_) {
    const auto producer = task_rows_.find(edge.producer);
    const auto consumer = task_rows_.find(edge.consumer);
    if (producer == task_rows_.end() || consumer == task_rows_.end()) {
      count_finding(Severity::kWarning, "edge-without-task",
                    "edges name a task that has no event; left out");
      continue;
    }
    trace_.edges.producer.push_back(producer->second);
    trace_.edges.consumer.push_back(consumer->second);
    trace_.edges.kind.push_back(static_cast<uint8_t>(edge.kind));
  }
}

Trace TraceBuilder::finish() {
  close_open_spans();
  resolve_edges();
  if (!pending_costs_.empty()) {
    count_finding(Severity::kWarning, "cost-without-task",
                  "costs name a task that has no event; left out", kNoIndex, pending_costs_.size());
  }
  SpanColumns& spans = trace_.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.end_ns[i] >= spans.begin_ns[i]) continue;
    count_finding(Severity::kWarning, "negative-duration",
                  "spans end before they begin; shown with no length", spans.lane[i]);
    spans.end_ns[i] = spans.begin_ns[i];
  }
  if (!spans.category.empty()) spans.category.resize(spans.size(), kNoIndex);
  if (!spans.args.empty()) spans.args.resize(spans.size(), kNoIndex);
  TaskColumns& tasks = trace_.tasks;
  if (!tasks.bytes.empty()) tasks.bytes.resize(tasks.size(), kAbsent);
  if (!tasks.flops.empty()) tasks.flops.resize(tasks.size(), kAbsent);

  for (Finding& finding : counted_) {
    const std::string where =
        finding.lane == kNoIndex ? "" : fmt::format("lane {}: ", trace_.lanes[finding.lane].name);
    finding.text = fmt::format("{}{} {}", where, finding.count, finding.text);
    trace_.findings.push_back(std::move(finding));
  }
  counted_.clear();
  counted_on_.clear();
  sort_trace(trace_, tie_order_);
  return std::move(trace_);
}

namespace {

// Moves the rows of one column to the order given: new row i is old row order[i].
template <typename T>
void reorder(std::vector<T>& column, const std::vector<uint32_t>& order) {
  if (column.empty()) return;
  std::vector<T> sorted(order.size());
  for (size_t i = 0; i < order.size(); ++i) sorted[i] = column[order[i]];
  column = std::move(sorted);
}

// An order in which `before(a, b)` holds for neighbours; empty when the rows are in order already.
template <typename Before>
std::vector<uint32_t> sorted_order(size_t size, Before before) {
  bool in_order = true;
  for (uint32_t i = 1; i < size && in_order; ++i) in_order = !before(i, i - 1);
  if (in_order) return {};
  std::vector<uint32_t> order(size);
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(), before);
  return order;
}

void sort_spans(Trace& trace, TieOrder tie_order) {
  SpanColumns& spans = trace.spans;
  const auto before = [&spans, tie_order](uint32_t a, uint32_t b) {
    if (spans.begin_ns[a] != spans.begin_ns[b]) return spans.begin_ns[a] < spans.begin_ns[b];
    return tie_order == TieOrder::kLongerFirst && spans.end_ns[a] > spans.end_ns[b];
  };
  const std::vector<uint32_t> order = sorted_order(spans.size(), before);
  if (order.empty()) return;
  std::vector<uint32_t> new_row(order.size());
  for (uint32_t i = 0; i < order.size(); ++i) new_row[order[i]] = i;
  for (uint32_t& span : trace.flows.span) {
    if (span != kNoIndex) span = new_row[span];
  }
  for_each_column(trace, [&order](int table, int, auto& column) {
    if (table == 1) reorder(column, order);
  });
}

// Sorts one of the tables whose rows are points in time.
void sort_points(Trace& trace, int table_number, const std::vector<int64_t>& times) {
  const std::vector<uint32_t> order =
      sorted_order(times.size(), [&times](uint32_t a, uint32_t b) { return times[a] < times[b]; });
  if (order.empty()) return;
  for_each_column(trace, [&](int table, int, auto& column) {
    if (table == table_number) reorder(column, order);
  });
}

// Walks spans and flows together in order of time, with the open spans of each lane on a stack.
void tie_flows(Trace& trace) {
  const SpanColumns& spans = trace.spans;
  FlowColumns& flows = trace.flows;
  std::vector<std::vector<uint32_t>> open(trace.lanes.size());
  size_t next = 0;
  for (size_t i = 0; i < flows.size(); ++i) {
    for (; next < spans.size() && spans.begin_ns[next] <= flows.time_ns[i]; ++next) {
      std::vector<uint32_t>& stack = open[spans.lane[next]];
      while (!stack.empty() && spans.end_ns[stack.back()] < spans.begin_ns[next]) stack.pop_back();
      stack.push_back(static_cast<uint32_t>(next));
    }
    if (flows.span[i] != kNoIndex) continue;
    std::vector<uint32_t>& stack = open[flows.lane[i]];
    while (!stack.empty() && spans.end_ns[stack.back()] < flows.time_ns[i]) stack.pop_back();
    if (!stack.empty()) flows.span[i] = stack.back();
  }
}

}  // namespace

void sort_trace(Trace& trace, TieOrder tie_order) {
  sort_spans(trace, tie_order);
  sort_points(trace, 4, trace.counters.time_ns);
  sort_points(trace, 5, trace.instants.time_ns);
  sort_points(trace, 6, trace.flows.time_ns);
  tie_flows(trace);
}

namespace {

template <typename T>
void append(std::vector<T>& to, const std::vector<T>& from) {
  to.insert(to.end(), from.begin(), from.end());
}

void append_shifted(std::vector<uint32_t>& to, const std::vector<uint32_t>& from, uint32_t shift) {
  for (const uint32_t index : from) to.push_back(index == kNoIndex ? kNoIndex : index + shift);
}

void append_named(std::vector<uint32_t>& to, const std::vector<uint32_t>& from,
                  const std::vector<uint32_t>& names) {
  for (const uint32_t id : from) to.push_back(id == kNoIndex ? kNoIndex : names[id]);
}

// Optional columns: rows that never had one get kNoIndex, costs kAbsent.
void append_optional(std::vector<uint32_t>& to, const std::vector<uint32_t>& from,
                     const std::vector<uint32_t>& names, size_t rows_before, size_t rows_after) {
  if (to.empty() && from.empty()) return;
  to.resize(rows_before, kNoIndex);
  append_named(to, from, names);
  to.resize(rows_after, kNoIndex);
}

void append_costs(std::vector<int64_t>& to, const std::vector<int64_t>& from, size_t rows_before,
                  size_t rows_after) {
  if (to.empty() && from.empty()) return;
  to.resize(rows_before, kAbsent);
  append(to, from);
  to.resize(rows_after, kAbsent);
}

void append_trace(Trace& to, const Trace& from) {
  const uint32_t device_shift = static_cast<uint32_t>(to.devices.size());
  const uint32_t lane_shift = static_cast<uint32_t>(to.lanes.size());
  const uint32_t span_shift = static_cast<uint32_t>(to.spans.size());
  const uint32_t task_shift = static_cast<uint32_t>(to.tasks.size());
  std::vector<uint32_t> names(from.names.size());
  for (uint32_t id = 0; id < names.size(); ++id) names[id] = to.names.intern(from.names[id]);

  append(to.devices, from.devices);
  for (Lane lane : from.lanes) {
    lane.device += device_shift;
    to.lanes.push_back(std::move(lane));
  }
  append(to.spans.begin_ns, from.spans.begin_ns);
  append(to.spans.end_ns, from.spans.end_ns);
  append_shifted(to.spans.lane, from.spans.lane, lane_shift);
  append_named(to.spans.name, from.spans.name, names);
  append(to.spans.value, from.spans.value);
  append_optional(to.spans.category, from.spans.category, names, span_shift, to.spans.size());
  append_optional(to.spans.args, from.spans.args, names, span_shift, to.spans.size());

  append(to.tasks.id, from.tasks.id);
  append_shifted(to.tasks.lane, from.tasks.lane, lane_shift);
  append_named(to.tasks.kernel, from.tasks.kernel, names);
  for (size_t time = 0; time < kTaskTimeCount; ++time) {
    append(to.tasks.time_ns[time], from.tasks.time_ns[time]);
  }
  append_costs(to.tasks.bytes, from.tasks.bytes, task_shift, to.tasks.size());
  append_costs(to.tasks.flops, from.tasks.flops, task_shift, to.tasks.size());
  append_shifted(to.edges.producer, from.edges.producer, task_shift);
  append_shifted(to.edges.consumer, from.edges.consumer, task_shift);
  append(to.edges.kind, from.edges.kind);

  append(to.counters.time_ns, from.counters.time_ns);
  append_shifted(to.counters.lane, from.counters.lane, lane_shift);
  append_named(to.counters.name, from.counters.name, names);
  append(to.counters.value, from.counters.value);
  append(to.instants.time_ns, from.instants.time_ns);
  append_shifted(to.instants.lane, from.instants.lane, lane_shift);
  append_named(to.instants.name, from.instants.name, names);
  append(to.instants.value, from.instants.value);
  append(to.flows.time_ns, from.flows.time_ns);
  append_shifted(to.flows.lane, from.flows.lane, lane_shift);
  append(to.flows.id, from.flows.id);
  append(to.flows.phase, from.flows.phase);
  append_shifted(to.flows.span, from.flows.span, span_shift);

  for (Finding finding : from.findings) {
    if (finding.lane != kNoIndex) finding.lane += lane_shift;
    to.findings.push_back(std::move(finding));
  }
  for (const Property& property : from.properties) {
    const auto same = [&](const Property& p) { return p.key == property.key; };
    if (std::none_of(to.properties.begin(), to.properties.end(), same)) {
      to.properties.push_back(property);
    }
  }
}

}  // namespace

Trace merge_traces(std::vector<Trace> traces) {
  if (traces.empty()) return {};
  Trace merged = std::move(traces.front());
  for (size_t i = 1; i < traces.size(); ++i) {
    append_trace(merged, traces[i]);
    traces[i] = {};
  }
  sort_trace(merged);
  return merged;
}

}  // namespace gapless
