// SPDX-License-Identifier: Apache-2.0
//
// What the report page draws: the tasks, bubbles, edges and critical path of one step, packed into
// bytes that a browser unpacks in a fraction of a second, and levels of detail of it.
//
// The bytes are columns of LEB128 varints, zlib-compressed, in base64. `s` marks zigzag numbers
// (0, -1, 1, -2, ... are 0, 1, 2, 3, ...). Tasks are numbered by core and start. Times are
// nanoseconds since the window's begin. Columns, one after another, each as long as its count says:
//
//   tasks (all columns have task_count entries)
//     gap       start - the end of the task before on this core (of the first: start)
//     length    end - start
//     kernel    index in `kernels`
//     id        s, difference from the id of the task before
//     submit    0: not recorded, else 1 + zigzag(start - submit)
//     ready     likewise
//     dispatch  likewise
//     receive   likewise
//     finish    0: not recorded, else 1 + zigzag(finish - end)
//     layer     of task_groups.h
//     producers count of producers
//   edges (edge_count entries; 0 when they were left out)
//     producer  s, consumer's number - producer's number, grouped by consumer
//   bubbles (bubble_count entries, by core and time)
//     gap       begin - the end of the bubble before on this core (of the first: begin)
//     length
//     cause
//   path (path_count entries, by time; they tile the window)
//     part      PathPart
//     length
//     task      1 + number; 0: none
//   spans (span_count entries, by lane of `lanes` that is not a core, then begin, then outer first)
//     gap       s, begin - the begin of the span before on this lane
//     length
//     name      index in `span_names`
//     depth     0: outermost; at most 255
//   levels, coarsest first: each has bucket_count x core count entries, by core; a bucket is
//   ceil(window / bucket_count) long, the last may reach beyond the window
//     busy      0..255, of the bucket's part inside the window
//     kernel    the one with most time + 1; 0: none ran
//     cause     the largest bubble cause + 1; 0: none

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "report/step_report.h"
#include "trace/trace.h"

namespace gapless {

struct PageDataOptions {
  // Steps with more edges are drawn without them; the page says so.
  uint64_t max_edges = 4'000'000;
  // Spans of lanes that are not cores; of more the longest are drawn, and the page says so.
  uint64_t max_spans = 2'000'000;
};

// One step as the page takes it: a JSON object with "title", "window_ns", "core_count",
// "task_count", "edge_count", "edges_left_out" (0 or all), "bubble_count", "path_count",
// "span_count", "spans_left_out", "cores" [{"name", "kind", "task_count", "bubble_count"}], "lanes"
// [{"name", "kind", "span_count"}] (those that are not cores and have spans), "kernels" [name] (the
// largest run time first) with "kernel_run_ns" and "kernel_task_count" in the same order,
// "span_names" [name], "causes" [name], "path_parts" [name], "levels" [bucket_count], "bytes"
// (before compression), "columns" (the base64), and "report": what report_json() gives.
Result<std::string> page_data_json(const Trace& trace, const StepReport& report,
                                   const PageDataOptions& options = {});

// The page of one step.
Result<void> write_report_page(const std::string& path, const Trace& trace,
                               const StepReport& report);

}  // namespace gapless
