// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over what lies beside a kernel table of the Ascend profiler: communication.json and
// step_trace_time.csv. Whatever comes in, every summary of a collective must be joined or counted
// as alone, times of waiting must not be negative, and the rows of the table must stay as they are.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string_view>
#include <vector>

#include "formats/ascend_communication.h"
#include "formats/ascend_step_trace.h"

namespace {

using gapless::CaptureTable;
using gapless::CommunicationJoin;
using gapless::InputStream;
using gapless::KernelKind;
using gapless::Result;
using gapless::StepTrace;

constexpr uint64_t kSummaryCount = 4;

void require(bool condition) {
  if (!condition) std::abort();
}

InputStream stream_of(std::string_view text) {
  return InputStream::from_memory(std::as_bytes(std::span(text.data(), text.size())), "fuzz");
}

// Kernels and collectives of two steps and two devices, some of which have the same name.
CaptureTable small_table() {
  CaptureTable table;
  const uint32_t steps[] = {table.names.intern("50"), table.names.intern("51")};
  const uint32_t names[] = {table.names.intern("hcom_allReduce__503_0_1"),
                            table.names.intern("hcom_allReduce__503_1_1")};
  const uint32_t kernel = table.names.intern("MatMulV2");
  for (uint32_t i = 0; i < 2 * kSummaryCount; ++i) {
    gapless::KernelRow row;
    row.start_ns = 1'000'000 + 10'000 * int64_t{i};
    row.duration_ns = 5000;
    row.device = i < kSummaryCount ? 0 : 1;
    row.kind = i % 2 == 0 ? KernelKind::kCompute : KernelKind::kCollective;
    row.name = i % 2 == 0 ? kernel : names[i / 2 % 2];
    row.step = steps[i / 2 % 2];
    table.append(row);
  }
  return table;
}

void check_communication(std::string_view text) {
  CaptureTable table = small_table();
  const std::vector<int64_t> starts = table.start_ns;
  const Result<CommunicationJoin> join = join_communication_json(stream_of(text), table);
  require(table.start_ns == starts);
  if (!join) {
    require(table.wait_ns.empty() && table.findings.empty());
    return;
  }
  require(join->joined_count + join->lone_row_count == kSummaryCount);
  require(table.wait_ns.size() == (join->joined_count > 0 ? table.size() : 0));
  require(table.transit_ns.size() == table.wait_ns.size());
  uint64_t joined_count = 0;
  for (size_t row = 0; row < table.wait_ns.size(); ++row) {
    if (table.wait_ns[row] == gapless::kAbsent) continue;
    require(table.kind[row] == KernelKind::kCollective);
    require(table.wait_ns[row] >= 0 && table.transit_ns[row] >= 0);
    ++joined_count;
  }
  require(joined_count == join->joined_count);
}

void check_steps(std::string_view text) {
  const Result<StepTrace> trace = read_step_trace(stream_of(text));
  if (!trace) return;
  CaptureTable table = small_table();
  check_step_trace(*trace, "ascend.", table);
  uint64_t said_count = 0;
  for (const gapless::Finding& finding : table.findings) {
    require(finding.count > 0);
    if (finding.code != "step-trace-unread") ++said_count;
  }
  require(said_count == (trace->rows.empty() ? 0 : 1));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  gapless::looks_like_communication_json(text);
  gapless::looks_like_step_trace(text);
  check_communication(text);
  check_steps(text);
  return 0;
}
