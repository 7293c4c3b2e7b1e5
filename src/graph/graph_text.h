// SPDX-License-Identifier: Apache-2.0
//
// A graph as text for people, as DOT for Graphviz and as JSON for programs.

#pragma once

#include <string>

#include "graph/graph.h"

namespace gapless {

// Totals first (tasks, edges by kind, depth, width, buffers), then one line a kernel, then with
// `all_tasks` one line a task with its arguments and producers. Depth is the number of tasks on the
// longest path; width is the most tasks that lie equally deep. A graph with a cycle has neither.
std::string graph_text(const Graph& graph, bool all_tasks = false);
// One node a task, one arrow an edge (data solid, order dashed, lifetime dotted).
std::string graph_dot(const Graph& graph);
// Everything but addresses: kernels, buffers, scopes, tasks with arguments and edges.
// docs/graph.md describes the fields.
std::string graph_json(const Graph& graph);

}  // namespace gapless
