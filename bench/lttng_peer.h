// SPDX-License-Identifier: Apache-2.0
//
// LTTng-UST as the recorder's peer: one tracepoint with a number of eight bytes, recorded into a
// session of its own in flight-recorder mode (per-core rings that are overwritten, nothing goes to
// the disk), which is where LTTng is quickest.

#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"

namespace gapless {

class LttngPeer {
 public:
  // Starts a session daemon unless one runs, and a session in it. An error says why there is no
  // peer: not installed, not permitted. What it makes lies under `folder`.
  static Result<LttngPeer> start(const std::string& folder);
  LttngPeer(LttngPeer&& other) noexcept;
  LttngPeer& operator=(LttngPeer&&) = delete;
  // Ends the session, and the daemon if it was started here.
  ~LttngPeer();

  // The loop is in there, so that the tracepoint is inline in it as in an instrumented program.
  static void record_events(uint64_t first_value, uint32_t count);

  static std::string version();

 private:
  explicit LttngPeer(std::string session) : session_(std::move(session)) {}

  std::string session_;     // empty: nothing to end
  int daemon_process_ = 0;  // 0: not ours
};

}  // namespace gapless
