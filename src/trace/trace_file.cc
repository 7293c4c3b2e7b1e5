// SPDX-License-Identifier: Apache-2.0

#include "trace/trace_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/core.h>

#include "trace/column_reader.h"
#include "trace/metadata_reader.h"
#include "trace/record_reader.h"
#include "trace/recorder.h"
#include "trace/trace_builder.h"

namespace gapless {
namespace {

// Drop counts of the recorder, by lane number of the file. Adds to metadata, which becomes lanes.
void read_drops(const std::vector<FoundChunk>& chunks, Metadata& metadata) {
  for (const FoundChunk& chunk : chunks) {
    if (chunk.type != ChunkType::kDrops) continue;
    const size_t slots = std::min<size_t>(kDropSlotCount, chunk.payload.size() / sizeof(uint64_t));
    for (uint32_t slot = 0; slot < slots; ++slot) {
      uint64_t count = 0;
      std::memcpy(&count, chunk.payload.data() + slot * sizeof(uint64_t), sizeof(count));
      if (count == 0) continue;
      const auto lane = metadata.lanes.find(slot);
      const bool is_shared = slot == kDropSlotCount - 1;
      const bool is_known = lane != metadata.lanes.end() && !is_shared;
      const std::string where = is_shared  ? fmt::format("lanes from number {} on", slot)
                                : is_known ? fmt::format("lane {}", lane->second.name)
                                           : fmt::format("lane number {}", slot);
      if (is_known) lane->second.dropped_count += count;
      metadata.findings.push_back({Severity::kWarning, "dropped",
                                   fmt::format("{}: {} events were dropped", where, count),
                                   kNoIndex, count});
    }
  }
}

void add_closing_findings(const Metadata& metadata, uint64_t file_bytes, uint64_t record_count,
                          Trace& trace) {
  if (!metadata.end) {
    trace.findings.push_back(
        {Severity::kWarning, "not-closed",
         "the trace was not closed (the program was killed, or the file is cut short); everything "
         "up to its last whole chunk or record is here",
         kNoIndex, 1});
    return;
  }
  if (metadata.end->file_bytes != file_bytes) {
    trace.findings.push_back({Severity::kError, "cut-short",
                              fmt::format("the file has {} bytes; {} were written", file_bytes,
                                          metadata.end->file_bytes),
                              kNoIndex, 1});
  }
  if (metadata.end->record_count != record_count) {
    trace.findings.push_back({Severity::kError, "records-missing",
                              fmt::format("{} records were read; {} were written", record_count,
                                          metadata.end->record_count),
                              kNoIndex, 1});
  }
}

uint64_t count_rows(const Trace& trace) {
  return trace.spans.size() + trace.tasks.size() + trace.edges.size() + trace.counters.size() +
         trace.instants.size() + trace.flows.size();
}

void add_clock_findings(Trace& trace) {
  constexpr std::string_view kCode = "clock-not-invariant";
  // A file written from such a trace says it already.
  const bool is_said =
      std::any_of(trace.findings.begin(), trace.findings.end(),
                  [kCode](const Finding& finding) { return finding.code == kCode; });
  if (!trace.clock.invariant && !is_said) {
    trace.findings.push_back({Severity::kWarning, std::string(kCode),
                              "the machine does not promise that its clock runs at one rate on "
                              "all cores; times of different lanes may not agree",
                              kNoIndex, 1});
  }
}

}  // namespace

Result<Trace> read_trace_bytes(std::span<const std::byte> file, const std::string& name,
                               const Progress& progress) {
  ChunkScan scan = GAPLESS_TRY(scan_chunks(file, name, progress));
  Metadata metadata = read_metadata(scan.chunks);
  read_drops(scan.chunks, metadata);
  const bool has_columns =
      std::any_of(scan.chunks.begin(), scan.chunks.end(),
                  [](const FoundChunk& chunk) { return chunk.type == ChunkType::kColumns; });
  Trace trace;
  uint64_t record_count = 0;
  if (has_columns) {
    trace = GAPLESS_TRY(read_columns(scan.chunks, metadata, name));
    record_count = count_rows(trace);
  } else {
    TraceBuilder builder("gapless");
    record_count = read_records(scan.chunks, metadata, builder, progress);
    trace = builder.finish();
  }
  trace.properties = std::move(metadata.properties);
  for (Finding& finding : metadata.findings) {
    if (finding.lane >= trace.lanes.size()) finding.lane = kNoIndex;
    trace.findings.push_back(std::move(finding));
  }
  for (Finding& finding : scan.findings) trace.findings.push_back(std::move(finding));
  add_clock_findings(trace);
  add_closing_findings(metadata, file.size(), record_count, trace);
  return trace;
}

Result<Trace> read_trace_file(const std::string& path, const Progress& progress) {
  const MappedFile file = GAPLESS_TRY(MappedFile::open(path));
  return read_trace_bytes(file.bytes(), path, progress);
}

}  // namespace gapless
