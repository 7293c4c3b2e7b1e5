// SPDX-License-Identifier: Apache-2.0
//
// In place of lttng_peer.cc where the library was not there when this was built.

#include <utility>

#include "bench/lttng_peer.h"

namespace gapless {

Result<LttngPeer> LttngPeer::start(const std::string&) {
  return fail(ErrorCode::kSystem, "built without LTTng-UST (liblttng-ust-dev)");
}

LttngPeer::LttngPeer(LttngPeer&& other) noexcept
    : session_(std::exchange(other.session_, {})),
      daemon_process_(std::exchange(other.daemon_process_, 0)) {}

LttngPeer::~LttngPeer() = default;

void LttngPeer::record_events(uint64_t, uint32_t) {}

std::string LttngPeer::version() { return "none"; }

}  // namespace gapless
