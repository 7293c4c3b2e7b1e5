// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over the reader of swimlane files. The input is the records, a zero byte, deps.json, a
// zero byte, and a name map; the last two may be missing. Whatever comes in, there is a sentence or
// a trace whose rows name what exists, whose runs are not negative and whose ids differ.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"
#include "formats/swimlane_reader.h"

namespace {

using namespace gapless;

// Takes the bytes up to the next zero byte; nothing when all were taken.
std::optional<InputStream> take_file(std::span<const uint8_t>& left, const char* name) {
  if (left.empty()) return std::nullopt;
  const size_t size = static_cast<size_t>(std::find(left.begin(), left.end(), 0) - left.begin());
  InputStream file = InputStream::from_memory(std::as_bytes(left.first(size)), name);
  left = left.subspan(std::min(size + 1, left.size()));
  return file;
}

void check_trace(const Trace& trace) {
  const TaskColumns& tasks = trace.tasks;
  for (size_t row = 0; row < tasks.size(); ++row) {
    GAPLESS_CHECK(tasks.lane[row] == kNoIndex || tasks.lane[row] < trace.lanes.size());
    GAPLESS_CHECK(tasks.kernel[row] < trace.names.size());
    const int64_t end_ns = tasks.at(TaskTime::kEnd)[row];
    GAPLESS_CHECK(end_ns == kAbsent || end_ns >= tasks.at(TaskTime::kStart)[row]);
  }
  for (size_t edge = 0; edge < trace.edges.size(); ++edge) {
    GAPLESS_CHECK(trace.edges.producer[edge] < tasks.size());
    GAPLESS_CHECK(trace.edges.consumer[edge] < tasks.size());
  }
  std::vector<uint64_t> ids = tasks.id;
  std::sort(ids.begin(), ids.end());
  GAPLESS_CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
  for (size_t span = 0; span < trace.spans.size(); ++span) {
    GAPLESS_CHECK(trace.spans.end_ns[span] >= trace.spans.begin_ns[span]);
    GAPLESS_CHECK(span == 0 || trace.spans.begin_ns[span] >= trace.spans.begin_ns[span - 1]);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  std::span<const uint8_t> left(data, size);
  std::optional<InputStream> records = take_file(left, "records.json");
  if (!records) return 0;
  std::optional<InputStream> deps = take_file(left, "deps.json");
  std::optional<InputStream> names = take_file(left, "name_map.json");
  const Result<Trace> trace = read_swimlane_inputs(
      {.records = std::move(*records), .deps = std::move(deps), .names = std::move(names)}, {});
  if (trace) {
    check_trace(*trace);
  } else {
    GAPLESS_CHECK(!trace.error().message.empty());
  }
  return 0;
}
