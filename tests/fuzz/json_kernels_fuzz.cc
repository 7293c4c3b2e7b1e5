// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over the readers of profilers' JSON: Kineto's and Ascend's timelines, and what
// rocprofv3 writes. Whatever comes in, there is a sentence or a table whose rows name what exists,
// last no less than nothing and are in order.

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/check.h"
#include "formats/json_kernels.h"
#include "formats/rocprof_json.h"

namespace {

using namespace gapless;

void check_text(const CaptureTable& table, uint32_t id, bool may_be_absent) {
  GAPLESS_CHECK(id < table.names.size() || (may_be_absent && id == kNoIndex));
}

void check_table(const CaptureTable& table) {
  for (size_t row = 0; row < table.size(); ++row) {
    GAPLESS_CHECK(table.duration_ns[row] >= 0);
    GAPLESS_CHECK(table.end_ns(row) <= kMaxTimeNs);
    GAPLESS_CHECK(table.source[row] < table.sources.size());
    check_text(table, table.name[row], false);
    check_text(table, table.type[row], false);
    check_text(table, table.core[row], true);
    check_text(table, table.input_shapes[row], true);
    check_text(table, table.step[row], true);
    if (row == 0) continue;
    GAPLESS_CHECK(table.device[row - 1] <= table.device[row]);
    GAPLESS_CHECK(table.device[row - 1] < table.device[row] ||
                  table.start_ns[row - 1] <= table.start_ns[row]);
  }
  GAPLESS_CHECK(table.launch_ns.empty() || table.launch_ns.size() == table.size());
  for (size_t span = 0; span < table.host.size(); ++span) {
    GAPLESS_CHECK(table.host[span].end_ns >= table.host[span].begin_ns);
    GAPLESS_CHECK(span == 0 || table.host[span].begin_ns >= table.host[span - 1].begin_ns);
    check_text(table, table.host[span].name, false);
  }
}

void check_result(const Result<CaptureTable>& table) {
  if (table) {
    check_table(*table);
  } else {
    GAPLESS_CHECK(!table.error().message.empty());
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span<const std::byte> bytes = std::as_bytes(std::span(data, size));
  const CaptureReadOptions options{.keep_host = true};
  check_result(read_json_kernels(InputStream::from_memory(bytes, "fuzz.json"), options));
  check_result(read_rocprof_json(InputStream::from_memory(bytes, "fuzz.json"), options));
  return 0;
}
