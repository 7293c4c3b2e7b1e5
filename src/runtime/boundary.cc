// SPDX-License-Identifier: Apache-2.0

#include "runtime/boundary.h"

#include <algorithm>
#include <utility>

namespace gapless {
namespace {

bool is_callers(const GraphBuffer& buffer) { return buffer.kind != BufferKind::kIntermediate; }

}  // namespace

Boundary::Boundary(const Graph& graph)
    : addresses_(graph.buffers.size(), nullptr),
      alignments_(graph.buffers.size(), 1),
      is_written_(graph.buffers.size(), false),
      is_used_(graph.buffers.size(), false) {
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    if (is_callers(graph.buffers[i]))
      addresses_[i] = static_cast<std::byte*>(graph.buffers[i].data);
  }
  for (const Argument& argument : graph.arguments) {
    const size_t buffer = argument.view.buffer.index();
    alignments_[buffer] = std::max(alignments_[buffer], dtype_bytes(argument.view.dtype));
    is_used_[buffer] = true;
    if (writes(argument.access)) is_written_[buffer] = true;
  }
}

Result<void> Boundary::bind(const Graph& graph, std::span<const Binding> bindings) {
  bool is_changed = !is_checked_;
  for (const Binding& binding : bindings) {
    const uint32_t index = binding.buffer.index();
    if (index >= graph.buffers.size()) {
      return fail(ErrorCode::kInvalidInput, "binding of buffer {}: the graph has {} buffers", index,
                  graph.buffers.size());
    }
    const GraphBuffer& buffer = graph.buffers[index];
    if (!is_callers(buffer)) {
      return fail(ErrorCode::kInvalidInput,
                  "binding of buffer {} ('{}'): it is an intermediate, whose memory is planned",
                  index, buffer.name);
    }
    if (binding.bytes != buffer.bytes) {
      return fail(ErrorCode::kInvalidInput,
                  "binding of buffer {} ('{}'): {} bytes, but the graph was recorded with {}",
                  index, buffer.name, binding.bytes, buffer.bytes);
    }
    if (addresses_[index] != binding.data) is_changed = true;
  }
  if (!is_changed) return {};
  const std::vector<std::byte*> before = addresses_;
  for (const Binding& binding : bindings) {
    addresses_[binding.buffer.index()] = static_cast<std::byte*>(binding.data);
  }
  Result<void> checked = check(graph);
  if (!checked) addresses_ = before;
  is_checked_ = checked.has_value();
  return checked;
}

Result<void> Boundary::check(const Graph& graph) const {
  std::vector<Range> ranges;
  for (size_t i = 0; i < graph.buffers.size(); ++i) {
    const GraphBuffer& buffer = graph.buffers[i];
    if (!is_callers(buffer) || !is_used_[i] || buffer.bytes == 0) continue;
    if (addresses_[i] == nullptr) {
      return fail(ErrorCode::kInvalidInput, "buffer {} ('{}', {} bytes) is not bound to memory", i,
                  buffer.name, buffer.bytes);
    }
    const uintptr_t address = reinterpret_cast<uintptr_t>(addresses_[i]);
    if (address % static_cast<uintptr_t>(alignments_[i]) != 0) {
      return fail(ErrorCode::kInvalidInput,
                  "buffer {} ('{}') is bound to address {:#x}, which is not a multiple of {}", i,
                  buffer.name, address, alignments_[i]);
    }
    ranges.push_back({addresses_[i], addresses_[i] + buffer.bytes, i});
  }
  return check_aliases(graph, std::move(ranges));
}

Result<void> Boundary::check_aliases(const Graph& graph, std::vector<Range> ranges) const {
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.buffer < b.buffer;
  });
  // The range that reaches farthest of those before, and the same of those that are written.
  const Range* farthest = nullptr;
  const Range* farthest_written = nullptr;
  for (const Range& range : ranges) {
    const Range* const other = is_written_[range.buffer] ? farthest : farthest_written;
    if (other != nullptr && other->end > range.begin) {
      const size_t written = is_written_[range.buffer] ? range.buffer : other->buffer;
      return fail(ErrorCode::kInvalidInput,
                  "buffers {} ('{}') and {} ('{}') share memory, and the graph writes '{}'; edges "
                  "between them were not recorded",
                  other->buffer, graph.buffers[other->buffer].name, range.buffer,
                  graph.buffers[range.buffer].name, graph.buffers[written].name);
    }
    if (farthest == nullptr || range.end > farthest->end) farthest = &range;
    if (is_written_[range.buffer] &&
        (farthest_written == nullptr || range.end > farthest_written->end)) {
      farthest_written = &range;
    }
  }
  return {};
}

}  // namespace gapless
