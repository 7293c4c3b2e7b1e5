// SPDX-License-Identifier: Apache-2.0
//
// One forward pass as a CSV file, and beside it a JSON file that says where it comes from and what
// it is. Both are there or neither is.

#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "report/passes_report.h"

namespace gapless {

// What stands in the JSON file. `options` are those that the pass was found with.
struct PassMetadata {
  const PassesInput& input;
  const PassDetail& detail;
  const PassesOptions& options;
  std::string version;  // of gapless
};

// `has_text`: the columns are those of the source, byte for byte; else gapless wrote them.
std::string pass_metadata_json(const PassMetadata& metadata, bool has_text);

// Whether each row of the table is text in a file that can be copied.
bool has_row_text(const CaptureTable& table);

// "pass.csv" has its metadata in "pass.json", any other name in "NAME.json".
std::string metadata_path(const std::string& csv_path);

struct WrittenPass {
  uint64_t row_count = 0;
  uint64_t bytes = 0;         // of the CSV file
  std::string metadata_path;  // empty: a pipe or a device has nothing beside it
};
// A table that has text is copied record by record, any other is written as the Ascend profiler
// would. When either file cannot be written, what was at both paths stays as it was.
Result<WrittenPass> write_pass_csv(const PassMetadata& metadata, const std::string& path);

}  // namespace gapless
