// SPDX-License-Identifier: Apache-2.0
//
// reduce_edges: drops edges that longer paths imply.
//
// What is ordered stays ordered, and order is all that a run needs; an edge that carries data is
// dropped like any other. For each task the search goes back from its producers, along edges that
// were kept so far, no further than its earliest producer: a producer that is met again is implied
// by another. In layers, where nothing is implied, that costs one step a producer.

#pragma once

#include <cstdint>

#include "graph/graph.h"

namespace gapless {

// Returns how many edges were dropped. Where a search takes more than `budget` steps for one task,
// what it has not found by then stays. The graph must have no cycle.
uint64_t reduce_edges(Graph& graph, uint64_t budget = 4096);

}  // namespace gapless
