// SPDX-License-Identifier: Apache-2.0
//
// In place of openmp_peer.cc where the compiler had no OpenMP when this was built.

#include "bench/task_peers.h"

namespace gapless {

std::unique_ptr<TaskPeer> make_openmp_peer(const TaskPeerArgs&) { return nullptr; }

}  // namespace gapless
