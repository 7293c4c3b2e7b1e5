// SPDX-License-Identifier: Apache-2.0

#include "report/page_data.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "base/check.h"
#include "base/json_text.h"
#include "report/page.h"
#include "report/page_columns.h"
#include "report/page_lanes.h"
#include "report/page_levels.h"
#include "report/trace_info.h"

namespace gapless {
namespace {

// Level 6 makes a page 3 % smaller and takes three times as long.
constexpr int kCompressionLevel = 1;

std::string_view name_of(const Trace& trace, uint32_t name) {
  return name == kNoIndex ? "(no name)" : trace.names[name];
}

// Differences of times of traces that others made may not fit in 64 bits; these wrap.
int64_t difference(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) - static_cast<uint64_t>(b));
}

struct PageKernel {
  uint32_t name = kNoIndex;  // of the trace's names
  int64_t run_ns = 0;
  uint32_t task_count = 0;
};

// Tasks and kernels as the page numbers them.
struct Numbering {
  std::vector<uint32_t> order;    // tasks by core and start
  std::vector<uint32_t> numbers;  // by task: its place in `order`
  std::vector<PageKernel> kernels;
  std::vector<uint32_t> task_kernels;  // by task: of `kernels`
};

void number_tasks(const StepTasks& tasks, Numbering& numbering) {
  numbering.order.reserve(tasks.task_count());
  for (uint32_t core = 0; core < tasks.core_count(); ++core) {
    const std::span<const uint32_t> of_core = tasks.tasks_of_core(core);
    numbering.order.insert(numbering.order.end(), of_core.begin(), of_core.end());
  }
  numbering.numbers.resize(tasks.task_count());
  for (uint32_t number = 0; number < tasks.task_count(); ++number) {
    numbering.numbers[numbering.order[number]] = number;
  }
}

// The largest run time first, then by name.
void number_kernels(const Trace& trace, const StepTasks& tasks, Numbering& numbering) {
  const size_t name_count = trace.names.size();
  // The last place is that of tasks without a name.
  std::vector<PageKernel> by_name(name_count + 1);
  const auto place_of = [&](uint32_t task) {
    return std::min<size_t>(tasks.kernel(task), name_count);
  };
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    PageKernel& kernel = by_name[place_of(task)];
    kernel.name = tasks.kernel(task);
    kernel.run_ns += tasks.end_ns(task) - tasks.start_ns(task);
    ++kernel.task_count;
  }
  std::copy_if(by_name.begin(), by_name.end(), std::back_inserter(numbering.kernels),
               [](const PageKernel& kernel) { return kernel.task_count > 0; });
  std::sort(numbering.kernels.begin(), numbering.kernels.end(),
            [&](const PageKernel& a, const PageKernel& b) {
              if (a.run_ns != b.run_ns) return a.run_ns > b.run_ns;
              return std::pair(name_of(trace, a.name), a.name) <
                     std::pair(name_of(trace, b.name), b.name);
            });
  std::vector<uint32_t> places(name_count + 1, kNoIndex);
  for (uint32_t i = 0; i < numbering.kernels.size(); ++i) {
    places[std::min<size_t>(numbering.kernels[i].name, name_count)] = i;
  }
  numbering.task_kernels.resize(tasks.task_count());
  for (uint32_t task = 0; task < tasks.task_count(); ++task) {
    numbering.task_kernels[task] = places[place_of(task)];
  }
}

void add_task_times(const StepTasks& tasks, const Numbering& numbering, PageColumns& columns) {
  const int64_t begin_ns = tasks.window().begin_ns;
  uint32_t core = kNoIndex;
  int64_t last_ns = 0;
  for (const uint32_t task : numbering.order) {
    if (std::exchange(core, tasks.core(task)) != tasks.core(task)) last_ns = begin_ns;
    columns.add(static_cast<uint64_t>(tasks.start_ns(task) - last_ns));
    last_ns = tasks.end_ns(task);
  }
  for (const uint32_t task : numbering.order) {
    columns.add(static_cast<uint64_t>(tasks.end_ns(task) - tasks.start_ns(task)));
  }
}

// Times before the start, and the finish, which is after the end.
void add_other_times(const StepTasks& tasks, const Numbering& numbering, PageColumns& columns) {
  for (const TaskTime time :
       {TaskTime::kSubmit, TaskTime::kReady, TaskTime::kDispatch, TaskTime::kReceive}) {
    for (const uint32_t task : numbering.order) {
      const int64_t time_ns = tasks.time_ns(task, time);
      const int64_t before_ns = difference(tasks.start_ns(task), time_ns);
      columns.add(time_ns == kAbsent ? 0 : 1 + zigzag(before_ns));
    }
  }
  for (const uint32_t task : numbering.order) {
    const int64_t finish_ns = tasks.time_ns(task, TaskTime::kFinish);
    const int64_t after_ns = difference(finish_ns, tasks.end_ns(task));
    columns.add(finish_ns == kAbsent ? 0 : 1 + zigzag(after_ns));
  }
}

void add_tasks(const Trace& trace, const StepReport& report, const Numbering& numbering,
               PageColumns& columns) {
  const StepTasks& tasks = *report.tasks;
  add_task_times(tasks, numbering, columns);
  for (const uint32_t task : numbering.order) columns.add(numbering.task_kernels[task]);
  uint64_t last_id = 0;
  for (const uint32_t task : numbering.order) {
    const uint64_t id = trace.tasks.id[tasks.row(task)];
    columns.add_signed(static_cast<int64_t>(id - std::exchange(last_id, id)));
  }
  add_other_times(tasks, numbering, columns);
  for (const uint32_t task : numbering.order) columns.add(report.groups.task_layer[task]);
  for (const uint32_t task : numbering.order) columns.add(tasks.producers(task).size());
}

void add_edges(const StepTasks& tasks, const Numbering& numbering, PageColumns& columns) {
  for (uint32_t number = 0; number < tasks.task_count(); ++number) {
    for (const uint32_t producer : tasks.producers(numbering.order[number])) {
      columns.add_signed(int64_t{number} - int64_t{numbering.numbers[producer]});
    }
  }
}

void add_bubbles(const StepTasks& tasks, const BubblePartition& partition, PageColumns& columns) {
  uint32_t core = kNoIndex;
  int64_t last_ns = 0;
  for (const Bubble& bubble : partition.bubbles) {
    if (std::exchange(core, bubble.core) != bubble.core) last_ns = tasks.window().begin_ns;
    columns.add(static_cast<uint64_t>(bubble.begin_ns - last_ns));
    last_ns = bubble.end_ns;
  }
  for (const Bubble& bubble : partition.bubbles) {
    columns.add(static_cast<uint64_t>(bubble.end_ns - bubble.begin_ns));
  }
  for (const Bubble& bubble : partition.bubbles) columns.add(static_cast<uint64_t>(bubble.cause));
}

void add_path(const CriticalPath& path, const Numbering& numbering, PageColumns& columns) {
  for (const PathSegment& segment : path.segments) {
    columns.add(static_cast<uint64_t>(segment.part));
  }
  for (const PathSegment& segment : path.segments) {
    columns.add(static_cast<uint64_t>(segment.end_ns - segment.begin_ns));
  }
  for (const PathSegment& segment : path.segments) {
    columns.add(segment.task == kNoIndex ? 0 : 1 + uint64_t{numbering.numbers[segment.task]});
  }
}

// Gives the names of the spans, of the trace's names, as they are numbered.
std::vector<uint32_t> add_spans(const Trace& trace, const PageLanes& page, PageColumns& columns) {
  size_t span = 0;
  for (const PageLane& lane : page.lanes) {
    int64_t last_ns = 0;
    for (const size_t end = span + lane.span_count; span < end; ++span) {
      const int64_t begin_ns = page.spans[span].begin_ns;
      columns.add_signed(begin_ns - std::exchange(last_ns, begin_ns));
    }
  }
  for (const PageSpan& each : page.spans) {
    columns.add(static_cast<uint64_t>(each.end_ns - each.begin_ns));
  }
  std::vector<uint32_t> names;
  std::vector<uint32_t> places(trace.names.size() + 1, kNoIndex);
  for (const PageSpan& each : page.spans) {
    uint32_t& place = places[std::min<size_t>(each.name, trace.names.size())];
    if (place == kNoIndex) {
      place = static_cast<uint32_t>(names.size());
      names.push_back(each.name);
    }
    columns.add(place);
  }
  for (const PageSpan& each : page.spans) columns.add(each.depth);
  return names;
}

void add_levels(const LevelInput& input, std::span<const uint32_t> bucket_counts,
                PageColumns& columns) {
  for (const uint32_t bucket_count : bucket_counts) {
    const PageLevel level = make_level(input, bucket_count);
    for (const uint8_t busy : level.busy) columns.add(busy);
    for (const uint32_t kernel : level.kernel) columns.add(kernel);
    for (const uint8_t cause : level.cause) columns.add(cause);
  }
}

// --- the JSON around the columns ---

void append_key(std::string& out, std::string_view key) {
  if (out.back() != '{') out += ",\n";
  append_json_string(out, key);
  out += ": ";
}

void append_number(std::string& out, std::string_view key, uint64_t number) {
  append_key(out, key);
  fmt::format_to(std::back_inserter(out), "{}", number);
}

void append_text(std::string& out, std::string_view key, std::string_view text) {
  append_key(out, key);
  append_json_string(out, text);
}

// append_entry(i) appends entry i of the list.
template <typename AppendEntry>
void append_list(std::string& out, std::string_view key, size_t count, AppendEntry append_entry) {
  append_key(out, key);
  out += '[';
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ", ";
    append_entry(i);
  }
  out += ']';
}

void append_numbers(std::string& out, std::string_view key, size_t count, auto number_at) {
  append_list(out, key, count,
              [&](size_t i) { fmt::format_to(std::back_inserter(out), "{}", number_at(i)); });
}

void append_texts(std::string& out, std::string_view key, size_t count, auto text_at) {
  append_list(out, key, count, [&](size_t i) { append_json_string(out, text_at(i)); });
}

void append_lane(std::string& out, const Lane& lane) {
  out += "{\"name\": ";
  append_json_string(out, lane.name);
  out += ", \"kind\": ";
  append_json_string(out, lane_kind_name(lane.kind));
}

void append_cores(std::string& out, const Trace& trace, const StepReport& report) {
  const StepTasks& tasks = *report.tasks;
  const std::vector<size_t> begins = bubble_begins(report.bubbles, tasks.core_count());
  append_list(out, "cores", tasks.core_count(), [&](size_t core) {
    append_lane(out, trace.lanes[tasks.lane(static_cast<uint32_t>(core))]);
    fmt::format_to(std::back_inserter(out), ", \"task_count\": {}, \"bubble_count\": {}}}",
                   tasks.tasks_of_core(static_cast<uint32_t>(core)).size(),
                   begins[core + 1] - begins[core]);
  });
}

void append_names(std::string& out, const Trace& trace, const Numbering& numbering,
                  std::span<const uint32_t> span_names) {
  const std::vector<PageKernel>& kernels = numbering.kernels;
  append_texts(out, "kernels", kernels.size(),
               [&](size_t i) { return name_of(trace, kernels[i].name); });
  append_numbers(out, "kernel_run_ns", kernels.size(), [&](size_t i) { return kernels[i].run_ns; });
  append_numbers(out, "kernel_task_count", kernels.size(),
                 [&](size_t i) { return kernels[i].task_count; });
  append_texts(out, "span_names", span_names.size(),
               [&](size_t i) { return name_of(trace, span_names[i]); });
  append_texts(out, "causes", kBubbleCauseCount,
               [](size_t i) { return bubble_cause_name(static_cast<BubbleCause>(i)); });
  append_texts(out, "path_parts", kPathPartCount,
               [](size_t i) { return path_part_name(static_cast<PathPart>(i)); });
}

std::string title_of(const StepReport& report) {
  if (report.step_count <= 1) return report.source;
  return fmt::format("{}, step {}", report.source, report.step);
}

struct PackedStep {
  Numbering numbering;
  PageLanes lanes;
  std::vector<uint32_t> span_names;
  std::vector<uint32_t> bucket_counts;
  bool has_edges = false;
  PageColumns columns;
};

PackedStep pack_step(const Trace& trace, const StepReport& report, const PageDataOptions& options) {
  const StepTasks& tasks = *report.tasks;
  PackedStep step;
  number_tasks(tasks, step.numbering);
  number_kernels(trace, tasks, step.numbering);
  step.lanes = find_page_lanes(trace, tasks, options.max_spans);
  step.bucket_counts = level_bucket_counts(tasks, report.bubbles);
  step.has_edges = tasks.edge_count() <= options.max_edges;

  add_tasks(trace, report, step.numbering, step.columns);
  if (step.has_edges) add_edges(tasks, step.numbering, step.columns);
  add_bubbles(tasks, report.bubbles, step.columns);
  add_path(report.path, step.numbering, step.columns);
  step.span_names = add_spans(trace, step.lanes, step.columns);
  add_levels({.tasks = tasks,
              .bubbles = report.bubbles,
              .task_kernels = step.numbering.task_kernels,
              .kernel_count = static_cast<uint32_t>(step.numbering.kernels.size())},
             step.bucket_counts, step.columns);
  return step;
}

void append_counts(std::string& out, const StepReport& report, const PackedStep& step) {
  const StepTasks& tasks = *report.tasks;
  append_number(out, "window_ns", static_cast<uint64_t>(tasks.window_ns()));
  append_number(out, "core_count", tasks.core_count());
  append_number(out, "task_count", tasks.task_count());
  append_number(out, "edge_count", step.has_edges ? tasks.edge_count() : 0);
  append_number(out, "edges_left_out", step.has_edges ? 0 : tasks.edge_count());
  append_number(out, "bubble_count", report.bubbles.bubbles.size());
  append_number(out, "path_count", report.path.segments.size());
  append_number(out, "span_count", step.lanes.spans.size());
  append_number(out, "spans_left_out", step.lanes.spans_left_out);
}

}  // namespace

Result<std::string> page_data_json(const Trace& trace, const StepReport& report,
                                   const PageDataOptions& options) {
  GAPLESS_CHECK(report.tasks.has_value());
  const PackedStep step = pack_step(trace, report, options);
  const std::string compressed =
      GAPLESS_TRY(compress_bytes(step.columns.bytes(), kCompressionLevel));
  std::string out = "{";
  append_text(out, "title", title_of(report));
  append_counts(out, report, step);
  append_cores(out, trace, report);
  append_list(out, "lanes", step.lanes.lanes.size(), [&](size_t i) {
    const PageLane& lane = step.lanes.lanes[i];
    append_lane(out, trace.lanes[lane.lane]);
    fmt::format_to(std::back_inserter(out), ", \"span_count\": {}}}", lane.span_count);
  });
  append_names(out, trace, step.numbering, step.span_names);
  append_numbers(out, "levels", step.bucket_counts.size(),
                 [&](size_t i) { return step.bucket_counts[i]; });
  append_number(out, "bytes", step.columns.bytes().size());
  append_key(out, "columns");
  out += '"';
  append_base64(out, compressed);
  out += '"';
  append_key(out, "report");
  out += report_json(trace, report);
  out += "}\n";
  return out;
}

Result<void> write_report_page(const std::string& path, const Trace& trace,
                               const StepReport& report) {
  PageInput input;
  input.title = fmt::format("Gapless: {}", report.source);
  input.first = GAPLESS_TRY(page_data_json(trace, report));
  return write_page(path, input);
}

}  // namespace gapless
