// SPDX-License-Identifier: Apache-2.0
//
// Swimlane files of simpler, the runtime of the Ascend task graphs: what ran on which core, from
// dispatch to finish, with the edges of deps.json and the names of a name map where these lie
// beside it. docs/formats.md tells what is read, joined, left out and counted.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/input_stream.h"
#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

// By the first bytes (4096 are enough) of the records file, in any of its three generations.
bool looks_like_swimlane(std::string_view first_bytes);

// True when exactly or more than one file of a folder looks like one.
bool is_swimlane_folder(const std::string& path);

// `path` is the records file, plain or gzip, or a folder that holds one. One device; lanes for
// orchestrators, schedulers and cores; a task for each run of a kernel on a core, and one without a
// start where a task of several runs is complete, or was in the graph and did not run.
Result<Trace> read_swimlane(const std::string& path, const ReadOptions& options);

// The same from open files, for tests and the fuzzer.
struct SwimlaneInputs {
  InputStream records;
  std::optional<InputStream> deps;
  std::optional<InputStream> names;
};
Result<Trace> read_swimlane_inputs(SwimlaneInputs inputs, const ReadOptions& options);

}  // namespace gapless
