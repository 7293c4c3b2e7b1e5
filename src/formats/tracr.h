// SPDX-License-Identifier: Apache-2.0
//
// TraCR directories, in and out: proc.<id>/metadata.json and proc.<id>/thread.<n>/traces.bts, a
// bare array of 16-byte records. The reader knows the three dialects (the old one, the fork with
// markerLabels and flows, the one written for Ascend devices), repairs what can be repaired and
// says in a finding what could not. docs/from-tracr.md tells what changes for users of TraCR.

#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "formats/format.h"
#include "trace/trace.h"

namespace gapless {

// One record of a traces.bts file, little-endian.
struct TracrRecord {
  uint16_t channel;
  uint16_t event;    // number of the marker in order of registration, or one of those below
  uint32_t extra;    // the user's number, or the id of a flow; kNoValue: none
  uint64_t time_ns;  // of whatever clock the program was built with
};
static_assert(sizeof(TracrRecord) == 16 && std::is_trivially_copyable_v<TracrRecord>);

inline constexpr uint16_t kTracrReset = 0xffff;
inline constexpr uint16_t kTracrFlowStart = 0xfffe;
inline constexpr uint16_t kTracrFlowEnd = 0xfffd;

// True for the folder that holds the proc.<id> folders, for its parent (the folder is then called
// "tracr" or "tracr_<N>"), and for one proc.<id> folder.
bool is_tracr_directory(const std::string& path);

// One device a proc folder, one lane a channel. An event is a span from its SET to the next SET or
// RESET on the channel.
Result<Trace> read_tracr(const std::string& path, const ReadOptions& options);

// Makes `path` a directory in the newest dialect: there completely or not at all, and never over
// one that has something in it. TraCR has no nesting, so an inner span is written and the one
// around it continues after it: the covered time of a lane stays. Spans that overlap without
// nesting get channels of their own. Instants, counters and edges have no place in the format;
// metadata.json says how many there were. Times before 0 move the whole trace to begin at 0.
Result<void> write_tracr(const Trace& trace, const std::string& path, const WriteOptions& options);

// A proc folder in memory, for tests and the fuzzer.
struct TracrThread {
  std::string name;  // "thread.<n>"
  std::span<const std::byte> bytes;
};
struct TracrProc {
  std::string name;                     // "proc.<id>"
  std::optional<std::string> metadata;  // the text of metadata.json; nothing: there is none
  std::vector<TracrThread> threads;
};

// `path` is for messages.
Result<Trace> read_tracr_procs(std::span<const TracrProc> procs, const std::string& path,
                               const ReadOptions& options);

}  // namespace gapless
