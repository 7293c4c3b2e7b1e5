// SPDX-License-Identifier: Apache-2.0

#include "bench/lttng_peer.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <thread>
#include <utility>

#include <fmt/core.h>
#include <sys/wait.h>
#include <unistd.h>

#define LTTNG_UST_TRACEPOINT_CREATE_PROBES
#define LTTNG_UST_TRACEPOINT_DEFINE
#include "base/file.h"
#include "bench/lttng_tracepoint.inc"
#include "bench/measurement.h"

namespace gapless {
namespace {

constexpr std::chrono::milliseconds kPollInterval{20};
constexpr int kPollCount = 250;  // 5 s

bool run_quietly(const std::string& command) {
  return std::system(("{ " + command + "; } >/dev/null 2>&1").c_str()) == 0;
}

bool is_enabled() { return lttng_ust_tracepoint_enabled(gapless_bench, event) != 0; }

// The library's own thread registers this process with the daemon.
bool wait_until_enabled() {
  for (int i = 0; i < kPollCount && !is_enabled(); ++i) std::this_thread::sleep_for(kPollInterval);
  return is_enabled();
}

int read_process_id(const std::string& path) {
  const Result<std::string> text = read_text_file(path);
  return text ? std::atoi(text->c_str()) : 0;
}

void end_daemon(int process) {
  ::kill(process, SIGTERM);
  for (int i = 0; i < kPollCount && ::kill(process, 0) == 0; ++i) {
    std::this_thread::sleep_for(kPollInterval);
  }
}

}  // namespace

Result<LttngPeer> LttngPeer::start(const std::string& folder) {
  if (!run_quietly("command -v lttng && command -v lttng-sessiond")) {
    return fail(ErrorCode::kSystem, "lttng and lttng-sessiond are not on PATH (lttng-tools)");
  }
  LttngPeer peer("");
  if (!run_quietly("lttng --no-sessiond list")) {
    const std::string pid_path = folder + "/lttng-sessiond.pid";
    const bool started =
        run_quietly(fmt::format("lttng-sessiond --daemonize --no-kernel --pidfile='{}'", pid_path));
    peer.daemon_process_ = read_process_id(pid_path);
    if (!started || peer.daemon_process_ == 0) {
      return fail(ErrorCode::kSystem, "lttng-sessiond did not start");
    }
  }
  const std::string session = fmt::format("gapless_bench_{}", ::getpid());
  const std::string lttng = "lttng --no-sessiond ";
  if (!run_quietly(lttng + "create " + session + " --snapshot --output='" + folder + "/lttng'")) {
    return fail(ErrorCode::kSystem, "the LTTng session daemon gave us no session");
  }
  peer.session_ = session;
  const std::string channel = " --userspace --session=" + session;
  const bool ready =
      run_quietly(lttng + "enable-channel rings" + channel +
                  " --overwrite --subbuf-size=4M --num-subbuf=4") &&
      run_quietly(lttng + "enable-event gapless_bench:event --channel=rings" + channel) &&
      run_quietly(lttng + "start " + session);
  if (!ready) return fail(ErrorCode::kSystem, "the LTTng session {} did not start", session);
  if (!wait_until_enabled()) {
    return fail(ErrorCode::kSystem, "the LTTng daemon did not enable our tracepoint within 5 s");
  }
  return peer;
}

LttngPeer::LttngPeer(LttngPeer&& other) noexcept
    : session_(std::exchange(other.session_, {})),
      daemon_process_(std::exchange(other.daemon_process_, 0)) {}

LttngPeer::~LttngPeer() {
  if (!session_.empty()) {
    static_cast<void>(run_quietly("lttng --no-sessiond destroy --no-wait " + session_));
  }
  if (daemon_process_ != 0) end_daemon(daemon_process_);
}

void LttngPeer::record_events(uint64_t first_value, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i) {
    lttng_ust_tracepoint(gapless_bench, event, first_value + i);
    compiler_barrier();
  }
}

std::string LttngPeer::version() {
  return fmt::format("{}.{}.{}", LTTNG_UST_MAJOR_VERSION, LTTNG_UST_MINOR_VERSION,
                     LTTNG_UST_PATCHLEVEL_VERSION);
}

}  // namespace gapless
