// SPDX-License-Identifier: Apache-2.0
//
// Rows of a capture written as they stand in the files they came from: the header and then each
// record, byte for byte, tabs, quotes and line ends included.
//
// Plain files are mapped and records copied out of them. A compressed file is unpacked once from
// front to back, whatever the order of the rows, and takes the memory of the rows that are kept.

#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "trace/capture_table.h"

namespace gapless {

// In the order of `rows`, each of which must be one of the table. Every record gets the line end of
// its file's header, also the last. Returns the bytes written. Error when the table has no text (a
// database, a timeline), when the rows come from files with different headers, or when a file is no
// longer what it was: its header is gone, or a record does not begin and end where it did with the
// times that it had. The file appears when it is whole.
Result<uint64_t> write_row_text(const CaptureTable& table, std::span<const uint32_t> rows,
                                const std::string& path);

}  // namespace gapless
