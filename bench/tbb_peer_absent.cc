// SPDX-License-Identifier: Apache-2.0
//
// In place of tbb_peer.cc where the library was not there when this was built.

#include "bench/task_peers.h"

namespace gapless {

std::unique_ptr<TaskPeer> make_tbb_flow_graph_peer(const TaskPeerArgs&) { return nullptr; }

std::unique_ptr<TaskPeer> make_tbb_task_group_peer(const TaskPeerArgs&, ReadySuccessors) {
  return nullptr;
}

std::vector<double> measure_tbb_latency_ns(int) { return {}; }

}  // namespace gapless
