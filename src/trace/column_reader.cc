// SPDX-License-Identifier: Apache-2.0

#include "trace/column_reader.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <utility>

#include <fmt/core.h>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

struct Block {
  ColumnBlock header;
  std::span<const std::byte> elements;
};

using BlocksByColumn = std::map<std::pair<int, int>, std::vector<Block>>;

BlocksByColumn collect_blocks(const std::vector<FoundChunk>& chunks,
                              std::vector<Finding>& findings) {
  BlocksByColumn blocks;
  for (const FoundChunk& chunk : chunks) {
    if (chunk.type != ChunkType::kColumns) continue;
    Block block = {};
    if (chunk.sealed && chunk.payload.size() >= sizeof(ColumnBlock)) {
      std::memcpy(&block.header, chunk.payload.data(), sizeof(ColumnBlock));
      block.elements = chunk.payload.subspan(sizeof(ColumnBlock));
    }
    const size_t element_bytes = block.header.element_bytes;
    if (element_bytes == 0 || block.elements.size() / element_bytes != block.header.row_count ||
        block.elements.size() % element_bytes != 0) {
      findings.push_back(
          {Severity::kError, "damaged-chunk",
           fmt::format("the columns at byte {} do not hold what they say; left out", chunk.offset),
           kNoIndex, 1});
      continue;
    }
    blocks[{block.header.table, block.header.column}].push_back(block);
  }
  for (auto& [key, list] : blocks) {
    std::sort(list.begin(), list.end(), [](const Block& a, const Block& b) {
      return a.header.first_row < b.header.first_row;
    });
  }
  return blocks;
}

// Rows from the first on, up to the first gap.
template <typename T>
void fill(std::vector<T>& column, const std::vector<Block>& blocks) {
  for (const Block& block : blocks) {
    if (block.header.element_bytes != sizeof(T) || block.header.first_row != column.size()) return;
    const size_t begin = column.size();
    column.resize(begin + block.header.row_count);
    if (block.header.row_count > 0) {
      std::memcpy(column.data() + begin, block.elements.data(), block.elements.size());
    }
  }
}

constexpr int kTableCount = 6;
constexpr std::pair<int, int> kOptionalColumns[] = {{1, 6}, {1, 7}, {2, 11}, {2, 12}};

bool is_optional(int table, int column) {
  return std::find(std::begin(kOptionalColumns), std::end(kOptionalColumns),
                   std::pair{table, column}) != std::end(kOptionalColumns);
}

// All columns of a table get the length of its shortest one; an optional column that is missing
// stays away.
void even_out(Trace& trace) {
  size_t rows[kTableCount + 1];
  size_t longest[kTableCount + 1] = {};
  std::fill(std::begin(rows), std::end(rows), std::numeric_limits<size_t>::max());
  for_each_column(trace, [&](int table, int column, const auto& values) {
    longest[table] = std::max(longest[table], values.size());
    if (is_optional(table, column) && values.empty()) return;
    rows[table] = std::min(rows[table], values.size());
  });
  for_each_column(trace, [&](int table, int column, auto& values) {
    if (is_optional(table, column) && values.empty()) return;
    values.resize(rows[table]);
  });
  for (int table = 1; table <= kTableCount; ++table) {
    if (rows[table] == longest[table]) continue;
    trace.findings.push_back(
        {Severity::kError, "cut-short",
         fmt::format("table {} has {} of {} rows: columns are missing or cut short", table,
                     rows[table], longest[table]),
         kNoIndex, longest[table] - rows[table]});
  }
}

// The largest number in a column that points somewhere must be below `limit`.
Result<void> check_indices(const std::vector<uint32_t>& column, size_t limit, bool may_be_absent,
                           std::string_view what, const std::string& name) {
  for (size_t row = 0; row < column.size(); ++row) {
    if (column[row] < limit || (may_be_absent && column[row] == kNoIndex)) continue;
    return fail(ErrorCode::kInvalidInput, "{}: row {} of {} is {}; there are {}", name, row, what,
                column[row], limit);
  }
  return {};
}

Result<void> check_times(const std::vector<int64_t>& column, bool may_be_absent,
                         std::string_view what, const std::string& name) {
  for (size_t row = 0; row < column.size(); ++row) {
    if (column[row] >= -kMaxTimeNs && column[row] <= kMaxTimeNs) continue;
    if (may_be_absent && column[row] == kAbsent) continue;
    return fail(ErrorCode::kInvalidInput, "{}: row {} of {} is {} ns; times lie within {} ns", name,
                row, what, column[row], kMaxTimeNs);
  }
  return {};
}

Result<void> check_costs(const std::vector<int64_t>& column, std::string_view what,
                         const std::string& name) {
  for (size_t row = 0; row < column.size(); ++row) {
    // Negative numbers are large ones here.
    if (static_cast<uint64_t>(column[row]) <= kMaxTaskCost || column[row] == kAbsent) continue;
    return fail(ErrorCode::kInvalidInput, "{}: row {} of {} is {}; costs lie between 0 and {}",
                name, row, what, column[row], kMaxTaskCost);
  }
  return {};
}

Result<void> check_columns(const Trace& trace, const std::string& name) {
  const size_t lanes = trace.lanes.size();
  const size_t names = trace.names.size();
  GAPLESS_TRY(check_indices(trace.spans.lane, lanes, false, "spans.lane", name));
  GAPLESS_TRY(check_indices(trace.spans.name, names, false, "spans.name", name));
  GAPLESS_TRY(check_indices(trace.spans.category, names, true, "spans.category", name));
  GAPLESS_TRY(check_indices(trace.spans.args, names, true, "spans.args", name));
  GAPLESS_TRY(check_indices(trace.tasks.lane, lanes, true, "tasks.lane", name));
  GAPLESS_TRY(check_indices(trace.tasks.kernel, names, true, "tasks.kernel", name));
  GAPLESS_TRY(check_indices(trace.counters.lane, lanes, false, "counters.lane", name));
  GAPLESS_TRY(check_indices(trace.counters.name, names, false, "counters.name", name));
  GAPLESS_TRY(check_indices(trace.instants.lane, lanes, false, "instants.lane", name));
  GAPLESS_TRY(check_indices(trace.instants.name, names, false, "instants.name", name));
  GAPLESS_TRY(check_indices(trace.flows.lane, lanes, false, "flows.lane", name));
  GAPLESS_TRY(check_times(trace.spans.begin_ns, false, "spans.begin_ns", name));
  GAPLESS_TRY(check_times(trace.spans.end_ns, false, "spans.end_ns", name));
  for (const std::vector<int64_t>& times : trace.tasks.time_ns) {
    GAPLESS_TRY(check_times(times, true, "tasks.time_ns", name));
  }
  GAPLESS_TRY(check_costs(trace.tasks.bytes, "tasks.bytes", name));
  GAPLESS_TRY(check_costs(trace.tasks.flops, "tasks.flops", name));
  GAPLESS_TRY(check_times(trace.counters.time_ns, false, "counters.time_ns", name));
  GAPLESS_TRY(check_times(trace.instants.time_ns, false, "instants.time_ns", name));
  GAPLESS_TRY(check_times(trace.flows.time_ns, false, "flows.time_ns", name));
  for (size_t row = 0; row < trace.spans.size(); ++row) {
    const int64_t begin_ns = trace.spans.begin_ns[row];
    if (trace.spans.end_ns[row] >= begin_ns) continue;
    return fail(ErrorCode::kInvalidInput, "{}: span {} ends at {} ns, before it begins at {} ns",
                name, row, trace.spans.end_ns[row], begin_ns);
  }
  return {};
}

// Edges and flows may point to rows that a damaged file no longer has.
void drop_dangling_edges(Trace& trace) {
  EdgeColumns& edges = trace.edges;
  const size_t task_count = trace.tasks.size();
  size_t kept = 0;
  for (size_t row = 0; row < edges.size(); ++row) {
    if (edges.producer[row] >= task_count || edges.consumer[row] >= task_count) continue;
    edges.producer[kept] = edges.producer[row];
    edges.consumer[kept] = edges.consumer[row];
    edges.kind[kept] = edges.kind[row];
    ++kept;
  }
  const size_t dropped_count = edges.size() - kept;
  if (dropped_count == 0) return;
  edges.producer.resize(kept);
  edges.consumer.resize(kept);
  edges.kind.resize(kept);
  trace.findings.push_back(
      {Severity::kError, "edge-without-task",
       fmt::format("{} edges name a task that is not among the {} of the file; left out",
                   dropped_count, task_count),
       kNoIndex, dropped_count});
}

void untie_dangling_flows(Trace& trace) {
  uint64_t untied_count = 0;
  for (uint32_t& span : trace.flows.span) {
    if (span == kNoIndex || span < trace.spans.size()) continue;
    span = kNoIndex;
    ++untied_count;
  }
  if (untied_count == 0) return;
  trace.findings.push_back(
      {Severity::kError, "flow-without-span",
       fmt::format("{} flow points name a span that is not among the {} of the file", untied_count,
                   trace.spans.size()),
       kNoIndex, untied_count});
}

// Everything after the reader relies on rows in order of time.
void restore_order(Trace& trace) {
  const auto is_sorted = [](const std::vector<int64_t>& times) {
    return std::is_sorted(times.begin(), times.end());
  };
  if (is_sorted(trace.spans.begin_ns) && is_sorted(trace.counters.time_ns) &&
      is_sorted(trace.instants.time_ns) && is_sorted(trace.flows.time_ns)) {
    return;
  }
  sort_trace(trace, TieOrder::kLongerFirst);
  trace.findings.push_back({Severity::kWarning, "rows-out-of-order",
                            "the rows of the file are not in order of time; they were sorted",
                            kNoIndex, 1});
}

void clamp_kinds(std::vector<uint8_t>& column, uint8_t largest) {
  for (uint8_t& kind : column) kind = std::min(kind, largest);
}

}  // namespace

Result<Trace> read_columns(const std::vector<FoundChunk>& chunks, const Metadata& metadata,
                           const std::string& name) {
  Trace trace;
  trace.format = "gapless";
  for (const auto& [id, text] : metadata.names) {
    if (trace.names.intern(text) == id) continue;
    return fail(ErrorCode::kInvalidInput, "{}: name {} is out of order or given twice", name, id);
  }
  for (const auto& [id, device] : metadata.devices) trace.devices.push_back(device);
  for (const auto& [id, lane] : metadata.lanes) {
    if (id != trace.lanes.size() || lane.device >= trace.devices.size()) {
      return fail(ErrorCode::kInvalidInput, "{}: lane {} ({}) does not fit {} lanes and {} devices",
                  name, id, lane.name, trace.lanes.size(), trace.devices.size());
    }
    trace.lanes.push_back(lane);
  }
  const BlocksByColumn blocks = collect_blocks(chunks, trace.findings);
  for_each_column(trace, [&blocks](int table, int column, auto& values) {
    const auto found = blocks.find({table, column});
    if (found != blocks.end()) fill(values, found->second);
  });
  even_out(trace);
  clamp_kinds(trace.edges.kind, static_cast<uint8_t>(EdgeKind::kLifetime));
  clamp_kinds(trace.flows.phase, static_cast<uint8_t>(FlowPhase::kIn));
  GAPLESS_TRY(check_columns(trace, name));
  drop_dangling_edges(trace);
  untie_dangling_flows(trace);
  restore_order(trace);
  trace.clock = metadata.clock;
  return trace;
}

}  // namespace gapless
