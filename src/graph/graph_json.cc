// SPDX-License-Identifier: Apache-2.0
//
// A graph as JSON, one line a kernel, buffer, scope or task; they are referred to by their index.
// Keys keep their order. Numbers that are read at run time are null, because only their address is
// known.

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "graph/graph_text.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;

Json buffer_json(const GraphBuffer& buffer) {
  return {{"name", buffer.name},
          {"kind", buffer_kind_name(buffer.kind)},
          {"bytes", buffer.bytes},
          {"scope", buffer.scope}};
}

Json scope_json(const GraphScope& scope) {
  return {{"parent", scope.parent},
          {"depth", scope.depth},
          {"first_task", scope.first_task},
          {"end_task", scope.end_task}};
}

Json argument_json(const Argument& argument) {
  const View& view = argument.view;
  Json shape = Json::array();
  Json strides = Json::array();
  for (size_t i = 0; i < view.rank; ++i) {
    shape.push_back(view.shape[i]);
    strides.push_back(view.strides[i]);
  }
  return {{"access", access_name(argument.access)},
          {"buffer", view.buffer.index()},
          {"dtype", dtype_name(view.dtype)},
          {"offset", view.offset},
          {"shape", std::move(shape)},
          {"strides", std::move(strides)}};
}

Json predicate_json(const Predicate& predicate) {
  if (predicate.value == nullptr) return nullptr;
  return {{"comparison", comparison_text(predicate.comparison)}, {"operand", predicate.operand}};
}

Json task_json(const Graph& graph, uint32_t task) {
  const GraphTask& facts = graph.tasks[task];
  Json json = {{"kernel", facts.kernel.id},
               {"core", core_kind_name(facts.core)},
               {"block_count", facts.block_count},
               {"gang", facts.gang},
               {"scope", facts.scope},
               {"cost_bytes", facts.cost.bytes},
               {"cost_flops", facts.cost.flops},
               {"predicate", predicate_json(facts.predicate)}};
  Json& arguments = json["arguments"] = Json::array();
  for (const Argument& argument : graph.arguments_of(task)) {
    arguments.push_back(argument_json(argument));
  }
  Json& scalars = json["scalars"] = Json::array();
  for (const Scalar& scalar : graph.scalars_of(task)) {
    scalars.push_back(scalar.is_fixed() ? Json(scalar.value()) : Json(nullptr));
  }
  Json& after = json["after"] = Json::array();
  for (const Edge& edge : graph.producers_of(task)) {
    after.push_back({{"task", edge.task}, {"kind", edge_kind_name(edge.kind)}});
  }
  return json;
}

// Appends a member of the outermost object: an array with one line an element, made by json_of(i).
template <typename JsonOf>
void append_array(std::string& out, std::string_view name, size_t count, JsonOf json_of) {
  out += out.empty() ? "{\n" : ",\n";
  out += fmt::format("\"{}\": [", name);
  for (size_t i = 0; i < count; ++i) {
    out += i == 0 ? "\n " : ",\n ";
    // Names need not be UTF-8; JSON must be.
    out += json_of(i).dump(-1, ' ', false, Json::error_handler_t::replace);
  }
  out += "]";
}

}  // namespace

std::string graph_json(const Graph& graph) {
  std::string out;
  append_array(out, "kernels", graph.kernels.size(), [&](size_t i) {
    return Json(graph.kernels[KernelId{static_cast<uint16_t>(i)}].name);
  });
  append_array(out, "buffers", graph.buffers.size(),
               [&](size_t i) { return buffer_json(graph.buffers[i]); });
  append_array(out, "scopes", graph.scopes.size(),
               [&](size_t i) { return scope_json(graph.scopes[i]); });
  append_array(out, "tasks", graph.tasks.size(),
               [&](size_t i) { return task_json(graph, static_cast<uint32_t>(i)); });
  out += "\n}\n";
  return out;
}

}  // namespace gapless
