// SPDX-License-Identifier: Apache-2.0
//
// communication.json of the Ascend profiler: how much of each collective was waiting for other
// ranks and how much was moving bytes, joined to the summaries of collectives in a table.
//
// Entries are joined by the name before '@', within a step where both sides know it. Of rows with
// one name the nearest start counts: the file's own starts went through doubles, so time alone
// joins nothing. Streams through the file in the memory of one entry beside the table.

#pragma once

#include <cstdint>
#include <string_view>

#include "base/input_stream.h"
#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

struct CommunicationJoin {
  uint64_t joined_count = 0;
  uint64_t lone_entry_count = 0;  // entries without a row
  uint64_t lone_row_count = 0;    // summaries without an entry
  uint64_t unread_count = 0;      // entries without the two times
};

// Whether a file that begins like this is one. The matrix of links beside it is not.
bool looks_like_communication_json(std::string_view first_bytes);

// Sets wait_ns ("Wait Time(ms)", which includes "Synchronization Time(ms)": the wait before the
// first bytes move) and transit_ns, and adds findings: "communication-joined", and
// "communication-cut-short" for a file that ends too early, of which the entries before that count.
// Error when it cannot be read or is no JSON object; the table is then as it was.
Result<CommunicationJoin> join_communication_json(InputStream input, CaptureTable& table);

}  // namespace gapless
