// SPDX-License-Identifier: Apache-2.0
//
// make_traces FOLDER: writes traces of every kind in every format that Perfetto reads, and beside
// each what Perfetto must find in it: X.json, X.pftrace, X.fxt and X.expected.json. Prints the name
// of each. What is expected is counted from the trace itself, not from what a writer made of it.

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/file.h"
#include "base/json_text.h"
#include "base/result.h"
#include "formats/chrome_json.h"
#include "formats/fxt.h"
#include "formats/perfetto.h"
#include "formats/slice_layout.h"
#include "trace/synthetic.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

// A JSON object, member by member.
class ObjectText {
 public:
  void number(std::string_view key, int64_t value) { member(key, fmt::format("{}", value)); }
  void real(std::string_view key, double value) { member(key, fmt::format("{:.17g}", value)); }
  void text(std::string_view key, const std::string& json) { member(key, json); }
  std::string str() const { return text_ + "}"; }

 private:
  void member(std::string_view key, const std::string& json) {
    text_ += text_.size() == 1 ? "" : ",";
    append_json_string(text_, key);
    text_ += ':' + json;
  }
  std::string text_ = "{";
};

std::string list_text(const std::vector<std::string>& texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list += ',';
    append_json_string(list, text);
  }
  return list + "]";
}

template <typename Key>
std::string count_text(const std::map<Key, int64_t>& counts) {
  ObjectText object;
  for (const auto& [key, count] : counts) object.number(fmt::format("{}", key), count);
  return object.str();
}

void expect_slices(const Trace& trace, ObjectText& expected) {
  std::map<std::string, int64_t> names;
  std::map<std::string, int64_t> categories;
  std::map<std::string, int64_t> args;
  int64_t slice_count = static_cast<int64_t>(trace.spans.size() + trace.instants.size());
  int64_t duration_ns = 0;
  int64_t value_count = 0;
  int64_t value_sum = 0;
  const auto count_value = [&](uint32_t value) {
    if (value == kNoValue) return;
    ++value_count;
    value_sum += value;
  };
  for (size_t i = 0; i < trace.spans.size(); ++i) {
    duration_ns += trace.spans.end_ns[i] - trace.spans.begin_ns[i];
    ++names[std::string(trace.names[trace.spans.name[i]])];
    count_value(trace.spans.value[i]);
    if (!trace.spans.category.empty() && trace.spans.category[i] != kNoIndex) {
      ++categories[std::string(trace.names[trace.spans.category[i]])];
    }
    if (!trace.spans.args.empty() && trace.spans.args[i] != kNoIndex) {
      ++args[std::string(trace.names[trace.spans.args[i]])];
    }
  }
  for (size_t i = 0; i < trace.instants.size(); ++i) {
    ++names[std::string(trace.names[trace.instants.name[i]])];
    count_value(trace.instants.value[i]);
  }
  int64_t task_count = 0;
  std::set<uint64_t> task_ids;
  for (uint32_t task = 0; task < trace.tasks.size(); ++task) {
    if (!is_drawn(trace.tasks, task)) continue;
    ++slice_count;
    ++task_count;
    task_ids.insert(trace.tasks.id[task]);
    duration_ns += trace.tasks.at(TaskTime::kEnd)[task] - trace.tasks.at(TaskTime::kStart)[task];
    const uint32_t kernel = trace.tasks.kernel[task];
    ++names[std::string(kernel == kNoIndex ? kUnknownKernel : trace.names[kernel])];
  }
  expected.number("slices", slice_count);
  expected.number("duration_ns", duration_ns);
  expected.text("names", count_text(names));
  expected.text("categories", count_text(categories));
  expected.text("args", count_text(args));
  expected.number("values", value_count);
  expected.number("value_sum", value_sum);
  expected.number("tasks", task_count);
  expected.number("task_ids", static_cast<int64_t>(task_ids.size()));
}

// Every point of an arrow but the first makes a hop.
void expect_flows(const Trace& trace, ObjectText& expected) {
  std::set<uint64_t> ids(trace.flows.id.begin(), trace.flows.id.end());
  expected.number("flows",
                  static_cast<int64_t>(trace.flows.size() - ids.size() + trace.edges.size()));
}

void expect_counters(const Trace& trace, ObjectText& expected) {
  std::set<std::pair<uint32_t, uint32_t>> tracks;
  double sum = 0;
  for (size_t i = 0; i < trace.counters.size(); ++i) {
    tracks.insert({trace.counters.lane[i], trace.counters.name[i]});
    sum += trace.counters.value[i];  // exact: all are quarters
  }
  expected.number("counter_samples", static_cast<int64_t>(trace.counters.size()));
  expected.number("counter_tracks", static_cast<int64_t>(tracks.size()));
  expected.real("counter_sum", sum);
}

// The sum over the slices of a row of how many others are open when each begins. A slice without
// length is closed when it begins where it is written as begin and end; where it is written as one
// complete event, it is open for others that begin together with it.
int64_t sum_depths(const SliceLayout& layout, const SliceRow& row, bool as_complete_events) {
  std::vector<uint32_t> open;
  int64_t sum = 0;
  for (const uint32_t slice : row.slices) {
    const int64_t begin_ns = layout.begin_ns(slice);
    const auto is_over = [&](uint32_t other) {
      const bool is_point = layout.begin_ns(other) == layout.end_ns(other);
      return layout.end_ns(other) < begin_ns ||
             (layout.end_ns(other) == begin_ns && !(as_complete_events && is_point));
    };
    while (!open.empty() && is_over(open.back())) open.pop_back();
    sum += static_cast<int64_t>(open.size());
    open.push_back(slice);
  }
  return sum;
}

// Names of the rows that show something, in their order, and how deep slices lie in others.
void expect_tracks(const Trace& trace, ObjectText& expected) {
  const SliceLayout layout(trace);
  std::vector<std::string> names;
  std::vector<std::string> devices;
  int64_t depth_sum = 0;
  int64_t complete_depth_sum = 0;
  for (const SliceRow& row : layout.rows) {
    const bool has_instant =
        row.sub_lane == 0 &&
        std::count(trace.instants.lane.begin(), trace.instants.lane.end(), row.lane) != 0;
    if (row.slices.empty() && !has_instant) continue;
    names.push_back(row_name(trace, row));
    depth_sum += sum_depths(layout, row, false);
    complete_depth_sum += sum_depths(layout, row, true);
  }
  for (const Device& device : trace.devices) devices.push_back(device.name);
  expected.text("tracks", list_text(names));
  expected.text("devices", list_text(devices));
  // An instant that comes together with a slice may be drawn in it or beside it.
  if (trace.instants.size() != 0) return;
  expected.number("depth_sum", depth_sum);
  expected.number("complete_depth_sum", complete_depth_sum);
}

Result<void> write_all(const Trace& trace, const std::string& stem) {
  ObjectText expected;
  expect_slices(trace, expected);
  expect_flows(trace, expected);
  expect_counters(trace, expected);
  expect_tracks(trace, expected);
  GAPLESS_TRY(write_text_file(stem + ".expected.json", expected.str() + "\n"));
  GAPLESS_TRY(write_chrome_json(trace, stem + ".json", {}));
  GAPLESS_TRY(write_perfetto(trace, stem + ".pftrace", {}));
  return write_fxt(trace, stem + ".fxt", {});
}

// By hand: every way in which two slices of a lane can share a time.
Trace make_touching_trace() {
  TraceBuilder builder("test");
  builder.add_device({"device", 4711});
  for (int lane = 0; lane < 2; ++lane) {
    builder.add_lane({.name = fmt::format("touching {}", lane), .number = lane});
  }
  const uint32_t outer = builder.intern("outer");
  const uint32_t inner = builder.intern("inner");
  const uint32_t point = builder.intern("without length");
  for (uint32_t lane = 0; lane < 2; ++lane) {
    const int64_t t = 1'000'000 + 7 * lane;
    builder.add_span(lane, t, t + 100, outer);
    builder.add_span(lane, t, t + 40, inner);         // begins with its parent
    builder.add_span(lane, t + 40, t + 60, inner);    // touches its sibling
    builder.add_span(lane, t + 60, t + 100, inner);   // ends with its parent
    builder.add_span(lane, t + 100, t + 100, point);  // where one ends and another begins
    builder.add_span(lane, t + 100, t + 200, outer);
    builder.add_span(lane, t + 100, t + 200, inner);  // the same time as its parent
    builder.add_span(lane, t + 150, t + 150, point);  // inside
    builder.add_span(lane, t + 300, t + 300, point);  // alone, at the very end
  }
  return builder.finish();
}

// A flow over three spans, ids used again, a task of an unknown kernel, one that never started.
Trace make_arrow_trace() {
  TraceBuilder builder("test");
  builder.add_device({"host", 1});
  builder.add_device({"device", 1});
  builder.add_lane({.name = "launch", .number = 1});
  builder.add_lane({.name = "stream", .kind = LaneKind::kStream, .device = 1, .number = 1});
  const uint32_t call = builder.intern("call");
  const uint32_t kernel = builder.intern("kernel");
  for (int i = 0; i < 10; ++i) {
    const int64_t t = 100 * i;
    const uint64_t id = static_cast<uint64_t>(i) + 1;
    const uint32_t from = builder.add_span(0, t, t + 20, call);
    const uint32_t middle = builder.add_span(0, t + 30, t + 40, call);
    const uint32_t to = builder.add_span(1, t + 50, t + 90, kernel);
    builder.flow(0, t + 10, id, FlowPhase::kOut, from);
    builder.flow(0, t + 35, id, FlowPhase::kStep, middle);
    builder.flow(1, t + 60, id, FlowPhase::kIn, to);
  }
  builder.task_time(1, TaskTime::kStart, 2000, 0, kNoIndex);
  builder.task_time(1, TaskTime::kEnd, 2100, 0, kNoIndex);
  builder.task_time(2, TaskTime::kStart, 2200, 1, kernel);
  builder.task_time(2, TaskTime::kEnd, 2300, 1, kernel);
  builder.task_time(3, TaskTime::kSubmit, 1900, kNoIndex, kernel);
  builder.edge(1, 2);
  return builder.finish();
}

struct Case {
  std::string_view name;
  SyntheticOptions options;
};

const std::vector<Case>& synthetic_cases() {
  static const std::vector<Case> cases = {
      {"nesting", {.lane_count = 5, .spans_per_lane = 2000, .nesting_depth = 6, .values = true}},
      {"many_lanes",
       {.device_count = 3,
        .lane_count = 300,
        .spans_per_lane = 50,
        .counter_count = 900,
        .instant_count = 500}},
      {"flows",
       {.lane_count = 77,
        .spans_per_lane = 100,
        .nesting_depth = 3,
        .values = true,
        .flow_count = 5000}},
      {"counters", {.device_count = 2, .lane_count = 6, .counter_count = 20000}},
      {"unicode",
       {.spans_per_lane = 300,
        .nesting_depth = 3,
        .unicode_names = true,
        .values = true,
        .categories = true,
        .args = true,
        .instant_count = 100}},
      {"overlapping", {.lane_count = 8, .spans_per_lane = 2000, .overlapping = true}},
      {"overlapping_ties",
       {.lane_count = 8, .spans_per_lane = 2000, .overlapping = true, .ties = true}},
      {"ties", {.lane_count = 8, .spans_per_lane = 2000, .nesting_depth = 5, .ties = true}},
      {"tasks", {.lane_count = 2, .task_lane_count = 75, .task_count = 5000, .edges_per_task = 6}},
      {"many_names", {.lane_count = 4, .spans_per_lane = 30000, .name_count = 70000}},
      {"million",
       {.lane_count = 80,
        .spans_per_lane = 12500,
        .nesting_depth = 3,
        .values = true,
        .flow_count = 1000,
        .counter_count = 1000}},
  };
  return cases;
}

Result<void> make_traces(const std::string& folder) {
  GAPLESS_TRY(make_directories(folder));
  const auto write = [&folder](std::string_view name, const Trace& trace) -> Result<void> {
    GAPLESS_TRY(write_all(trace, fmt::format("{}/{}", folder, name)));
    fmt::print("{}\n", name);
    return {};
  };
  GAPLESS_TRY(write("touching", make_touching_trace()));
  GAPLESS_TRY(write("arrows", make_arrow_trace()));
  for (const Case& one : synthetic_cases()) {
    GAPLESS_TRY(write(one.name, make_synthetic_trace(one.options)));
  }
  return {};
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_traces FOLDER\n");
    return 2;
  }
  const gapless::Result<void> result = gapless::make_traces(argv[1]);
  if (!result) std::fprintf(stderr, "make_traces: error: %s\n", result.error().message.c_str());
  return result ? 0 : 1;
}
