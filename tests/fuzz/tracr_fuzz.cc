// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer over the TraCR reader. The input is one proc: the text of metadata.json, a zero byte,
// then the records, cut into two threads at the middle. Whatever comes in, the reader must not
// crash and its spans must be in order and not negative.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <span>
#include <string>

#include "formats/tracr.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const uint8_t* const end = data + size;
  const uint8_t* const zero = std::find(data, end, uint8_t{0});
  gapless::TracrProc proc;
  proc.name = "proc.1";
  proc.metadata = std::string(data, zero);
  const std::span<const uint8_t> records(zero == end ? end : zero + 1, end);
  const std::span<const std::byte> bytes = std::as_bytes(records);
  const size_t half =
      bytes.size() / 2 / sizeof(gapless::TracrRecord) * sizeof(gapless::TracrRecord);
  proc.threads = {{"thread.1", bytes.first(half)}, {"thread.2", bytes.subspan(half)}};

  gapless::ReadOptions options;
  options.tracr_labels_by_key_order = size % 2 == 1;
  const gapless::Result<gapless::Trace> trace =
      gapless::read_tracr_procs({&proc, 1}, "fuzz", options);
  if (!trace) return 0;
  const gapless::SpanColumns& spans = trace->spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans.end_ns[i] < spans.begin_ns[i]) std::abort();
    if (i > 0 && spans.begin_ns[i] < spans.begin_ns[i - 1]) std::abort();
  }
  return 0;
}
