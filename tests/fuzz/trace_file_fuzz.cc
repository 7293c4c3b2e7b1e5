// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as a Gapless trace file.
//
// Checksums would stop nearly every mutation at the door, so each input is read twice: as it is,
// and with all its checksums made right. What is read must hold what trace/trace.h promises.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/check.h"
#include "trace/raw_file_builder.h"
#include "trace/trace_file.h"

namespace gapless {
namespace {

void check_indices(const std::vector<uint32_t>& column, size_t limit, bool may_be_absent) {
  for (const uint32_t index : column) {
    GAPLESS_CHECK(index < limit || (may_be_absent && index == kNoIndex));
  }
}

void check_sorted(const std::vector<int64_t>& times) {
  GAPLESS_CHECK(std::is_sorted(times.begin(), times.end()));
}

void check_tables_are_even(const Trace& trace) {
  const size_t rows[] = {0,
                         trace.spans.size(),
                         trace.tasks.size(),
                         trace.edges.size(),
                         trace.counters.size(),
                         trace.instants.size(),
                         trace.flows.size()};
  for_each_column(trace, [&rows](int table, int column, const auto& values) {
    const bool is_optional = table == 1 && column >= 6;
    GAPLESS_CHECK(values.size() == rows[table] || (is_optional && values.empty()));
  });
}

void check_trace(const Trace& trace) {
  check_tables_are_even(trace);
  const size_t lanes = trace.lanes.size();
  const size_t names = trace.names.size();
  for (const Lane& lane : trace.lanes) GAPLESS_CHECK(lane.device < trace.devices.size());
  check_indices(trace.spans.lane, lanes, false);
  check_indices(trace.spans.name, names, false);
  check_indices(trace.spans.category, names, true);
  check_indices(trace.spans.args, names, true);
  check_indices(trace.tasks.lane, lanes, true);
  check_indices(trace.tasks.kernel, names, true);
  check_indices(trace.edges.producer, trace.tasks.size(), false);
  check_indices(trace.edges.consumer, trace.tasks.size(), false);
  check_indices(trace.counters.lane, lanes, false);
  check_indices(trace.counters.name, names, false);
  check_indices(trace.instants.lane, lanes, false);
  check_indices(trace.instants.name, names, false);
  check_indices(trace.flows.lane, lanes, false);
  check_indices(trace.flows.span, trace.spans.size(), true);
  check_sorted(trace.spans.begin_ns);
  check_sorted(trace.counters.time_ns);
  check_sorted(trace.instants.time_ns);
  check_sorted(trace.flows.time_ns);
  for (size_t row = 0; row < trace.spans.size(); ++row) {
    GAPLESS_CHECK(trace.spans.end_ns[row] >= trace.spans.begin_ns[row]);
  }
  const TimeRange range = time_range(trace);
  GAPLESS_CHECK(range.begin_ns >= -kMaxTimeNs);
  GAPLESS_CHECK(range.end_ns <= kMaxTimeNs);
  for (const Finding& finding : trace.findings) {
    GAPLESS_CHECK(finding.lane == kNoIndex || finding.lane < lanes);
  }
}

void read(std::span<const std::byte> file) {
  const Result<Trace> trace = read_trace_bytes(file, "fuzz");
  if (trace) {
    check_trace(*trace);
  } else {
    GAPLESS_CHECK(trace.error().message.starts_with("fuzz: "));
  }
}

}  // namespace
}  // namespace gapless

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  gapless::read(std::as_bytes(std::span<const uint8_t>(data, size)));
  std::string repaired(reinterpret_cast<const char*>(data), size);
  gapless::repair_checksums(repaired);
  gapless::read(gapless::as_bytes(repaired));
  return 0;
}
