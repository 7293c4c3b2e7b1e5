// SPDX-License-Identifier: Apache-2.0

#include "graph/graph_text.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <fmt/format.h>

namespace gapless {
namespace {

constexpr size_t kBufferKindCount = 3;

// Text for a person: control characters would break a line or steer a terminal.
std::string printable(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const unsigned char byte = static_cast<unsigned char>(c);
    if (byte < 0x20 || byte == 0x7f) {
      out += fmt::format("\\x{:02x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

std::string kernel_text(const Graph& graph, uint32_t task) {
  if (!graph.kernels.contains(graph.tasks[task].kernel)) return "?";
  return printable(graph.kernel_name(task));
}

// How many tasks lie at each depth. Empty when the graph has a cycle.
std::vector<uint32_t> tasks_by_depth(const Graph& graph) {
  const Result<std::vector<uint32_t>> order = topological_order(graph);
  std::vector<uint32_t> counts;
  if (!order) return counts;
  std::vector<uint32_t> depth(graph.task_count(), 0);
  for (const uint32_t task : *order) {
    for (const Edge& edge : graph.producers_of(task)) {
      depth[task] = std::max(depth[task], depth[edge.task] + 1);
    }
    if (depth[task] >= counts.size()) counts.resize(size_t{depth[task]} + 1, 0);
    ++counts[depth[task]];
  }
  return counts;
}

void append_totals(std::string& out, const Graph& graph) {
  std::array<uint64_t, kEdgeKindCount> edge_counts = {};
  for (const Edge& edge : graph.producers) ++edge_counts[static_cast<size_t>(edge.kind)];
  const std::vector<uint32_t> counts = tasks_by_depth(graph);
  fmt::format_to(std::back_inserter(out), "{} tasks, {} edges ({} data, {} order, {} lifetime), ",
                 graph.task_count(), graph.producers.size(), edge_counts[0], edge_counts[1],
                 edge_counts[2]);
  if (counts.empty() && graph.task_count() > 0) {
    out += "with a cycle\n";
  } else {
    const uint32_t width = counts.empty() ? 0 : *std::max_element(counts.begin(), counts.end());
    fmt::format_to(std::back_inserter(out), "depth {}, width {}\n", counts.size(), width);
  }
}

void append_buffers(std::string& out, const Graph& graph) {
  std::array<uint64_t, kBufferKindCount> counts = {};
  std::array<uint64_t, kBufferKindCount> bytes = {};
  for (const GraphBuffer& buffer : graph.buffers) {
    ++counts[static_cast<size_t>(buffer.kind)];
    bytes[static_cast<size_t>(buffer.kind)] += static_cast<uint64_t>(buffer.bytes);
  }
  fmt::format_to(std::back_inserter(out), "{} buffers:", graph.buffers.size());
  for (size_t kind = 0; kind < kBufferKindCount; ++kind) {
    fmt::format_to(std::back_inserter(out), "{} {} {} ({} bytes)", kind == 0 ? "" : ",",
                   counts[kind], buffer_kind_name(static_cast<BufferKind>(kind)), bytes[kind]);
  }
  out += '\n';
}

struct KernelTotals {
  uint64_t task_count = 0;
  uint64_t block_count = 0;
  uint64_t bytes = 0;
  uint64_t flops = 0;
};

// Kernels in the order in which they were added; those that no task runs are left out.
void append_kernels(std::string& out, const Graph& graph) {
  std::vector<KernelTotals> totals(graph.kernels.size());
  size_t name_width = std::string_view("kernel").size();
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    const GraphTask& facts = graph.tasks[task];
    if (!graph.kernels.contains(facts.kernel)) continue;
    KernelTotals& kernel = totals[facts.kernel.id];
    ++kernel.task_count;
    kernel.block_count += static_cast<uint64_t>(facts.block_count);
    kernel.bytes += static_cast<uint64_t>(facts.cost.bytes);
    kernel.flops += static_cast<uint64_t>(facts.cost.flops);
    name_width = std::max(name_width, kernel_text(graph, task).size());
  }
  fmt::format_to(std::back_inserter(out), "{:<{}} {:>9} {:>9} {:>15} {:>17}\n", "kernel",
                 name_width, "tasks", "blocks", "bytes", "flops");
  for (size_t id = 0; id < totals.size(); ++id) {
    if (totals[id].task_count == 0) continue;
    const std::string name = printable(graph.kernels[KernelId{static_cast<uint16_t>(id)}].name);
    fmt::format_to(std::back_inserter(out), "{:<{}} {:>9} {:>9} {:>15} {:>17}\n", name, name_width,
                   totals[id].task_count, totals[id].block_count, totals[id].bytes,
                   totals[id].flops);
  }
}

std::string buffer_text(const Graph& graph, BufferId buffer) {
  const std::string& name = graph.buffers[buffer.index()].name;
  return name.empty() ? fmt::format("buffer {}", buffer.index()) : printable(name);
}

void append_task(std::string& out, const Graph& graph, uint32_t task) {
  const GraphTask& facts = graph.tasks[task];
  fmt::format_to(std::back_inserter(out), "{} {} on {}", task, kernel_text(graph, task),
                 core_kind_name(facts.core));
  if (facts.gang) {
    fmt::format_to(std::back_inserter(out), ", a gang of {} blocks", facts.block_count);
  } else if (facts.block_count != 1) {
    fmt::format_to(std::back_inserter(out), ", {} blocks", facts.block_count);
  }
  if (facts.predicate.value != nullptr) {
    fmt::format_to(std::back_inserter(out), ", if value {} {}",
                   comparison_text(facts.predicate.comparison), facts.predicate.operand);
  }
  std::string_view separator = ": ";
  for (const Argument& argument : graph.arguments_of(task)) {
    fmt::format_to(std::back_inserter(out), "{}{} {} {}", separator, access_name(argument.access),
                   buffer_text(graph, argument.view.buffer), view_text(argument.view));
    separator = ", ";
  }
  separator = "; after ";
  for (const Edge& edge : graph.producers_of(task)) {
    fmt::format_to(std::back_inserter(out), "{}{} ({})", separator, edge.task,
                   edge_kind_name(edge.kind));
    separator = ", ";
  }
  out += '\n';
}

std::string dot_escaped(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '"' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

}  // namespace

std::string graph_text(const Graph& graph, bool all_tasks) {
  std::string out;
  append_totals(out, graph);
  append_buffers(out, graph);
  append_kernels(out, graph);
  for (uint32_t task = 0; all_tasks && task < graph.task_count(); ++task) {
    append_task(out, graph, task);
  }
  return out;
}

std::string graph_dot(const Graph& graph) {
  constexpr std::array<std::string_view, kEdgeKindCount> kStyles = {"solid", "dashed", "dotted"};
  std::string out = "digraph gapless {\n  node [shape=box];\n";
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    fmt::format_to(std::back_inserter(out), "  t{} [label=\"{} {}\"];\n", task, task,
                   dot_escaped(graph.kernels.contains(graph.tasks[task].kernel)
                                   ? std::string_view(graph.kernel_name(task))
                                   : std::string_view("?")));
  }
  for (const GraphEdge& edge : edges_of(graph)) {
    fmt::format_to(std::back_inserter(out), "  t{} -> t{} [style={}];\n", edge.producer,
                   edge.consumer, kStyles[static_cast<size_t>(edge.kind)]);
  }
  out += "}\n";
  return out;
}

}  // namespace gapless
