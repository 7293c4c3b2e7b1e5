// SPDX-License-Identifier: Apache-2.0
//
// The functions of include/gapless/trace.h: the one recording of this process.
//
// A tracer watches a process, so its state is the process's: this file is the one place where we
// keep globals. They are made on first use and never destroyed, because threads may record while
// the process exits.

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "gapless/trace.h"
#include "trace/recorder.h"
#include "trace/registry.h"

namespace gapless {
inline namespace trace_on {

constinit std::atomic<uint32_t> recording_session = 0;
constinit thread_local Writer* current_writer = nullptr;

}  // namespace trace_on

constinit thread_local bool thread_is_in_recorder = false;

namespace {

void lock_before_fork();
void unlock_in_parent();
void reset_in_child();

struct Process {
  std::mutex mutex;
  Registry registry;
  std::unique_ptr<Recorder> recorder;             // under way or paused
  std::vector<std::unique_ptr<Recorder>> closed;  // threads still point into these
  uint32_t session = 0;                           // number of the newest recording
  std::string error;
};

Process& process() {
  static Process* const instance = [] {
    pthread_atfork(lock_before_fork, unlock_in_parent, reset_in_child);
    return new Process();
  }();
  return *instance;
}

// Holds the mutex. Meanwhile the thread is not cancelled, and an event of a hook or a signal
// handler that comes in between is not recorded: its first event would wait for this very lock.
class ProcessLock {
 public:
  explicit ProcessLock(Process& p) : p_(p) {
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &cancel_state_);
    was_in_recorder_ = std::exchange(thread_is_in_recorder, true);
    p_.mutex.lock();
  }
  ~ProcessLock() {
    p_.mutex.unlock();
    thread_is_in_recorder = was_in_recorder_;
    pthread_setcancelstate(cancel_state_, nullptr);
  }
  ProcessLock(const ProcessLock&) = delete;
  ProcessLock& operator=(const ProcessLock&) = delete;

 private:
  Process& p_;
  int cancel_state_ = 0;
  bool was_in_recorder_ = false;
};

// The thread's side: gives the writer back when the thread ends.
struct ThreadState {
  WriterState* writer = nullptr;
  uint16_t lane = kNoLane;

  ~ThreadState();
  void release() {
    if (writer != nullptr) Recorder::detach(*writer);
    writer = nullptr;
  }
};

thread_local ThreadState thread_state;
constinit thread_local bool thread_has_ended = false;

ThreadState::~ThreadState() {
  thread_has_ended = true;
  current_writer = nullptr;
  release();
}

// Recordings that are closed and that no thread points into any more. Under the mutex.
void forget_closed(Process& p) {
  std::erase_if(p.closed, [](const auto& recorder) { return !recorder->has_attached_threads(); });
}

// Threads are called after their program until somebody names them; such names tell nothing.
std::string thread_name(int64_t id) {
  if (id == ::getpid()) return "main";
  char name[32] = {};
  const bool has_name = pthread_getname_np(pthread_self(), name, sizeof(name)) == 0;
  const std::string program = std::string(program_invocation_short_name).substr(0, 15);
  if (!has_name || name == program) return "thread " + std::to_string(id);
  return name;
}

// Under the mutex.
LaneId lane_of_this_thread(Process& p) {
  if (thread_state.lane == kNoLane) {
    const int64_t id = ::syscall(SYS_gettid);
    const RegisteredLane lane{thread_name(id), LaneKind::kThread, 0, id};
    thread_state.lane = p.registry.add_lane(lane);
    if (p.recorder) p.recorder->note_lane(thread_state.lane, p.registry.lanes()[thread_state.lane]);
  }
  return LaneId{thread_state.lane};
}

// A program that replaces itself (exec) keeps its process id; its first trace must stay.
std::string with_process_id(const std::string& path) {
  const size_t place = path.find("%p");
  if (place == std::string::npos) return path;
  std::string numbered;
  for (int attempt = 1; attempt < 1000; ++attempt) {
    const std::string id = std::to_string(::getpid());
    numbered = path;
    numbered.replace(place, 2, attempt == 1 ? id : id + "-" + std::to_string(attempt));
    if (::access(numbered.c_str(), F_OK) != 0) break;
  }
  return numbered;
}

// The child of a fork shares the parent's mapped chunks: it must not write to them, and it has no
// keeper. It can start a recording of its own.
void lock_before_fork() { process().mutex.lock(); }
void unlock_in_parent() { process().mutex.unlock(); }
void reset_in_child() {
  recording_session.store(0, std::memory_order_relaxed);
  current_writer = nullptr;
  thread_state.writer = nullptr;
  thread_state.lane = kNoLane;  // the child's threads have other numbers
  Process& p = process();
  static_cast<void>(p.recorder.release());
  for (std::unique_ptr<Recorder>& recorder : p.closed) static_cast<void>(recorder.release());
  p.closed.clear();
  p.mutex.unlock();
}

FullPolicy policy_from(const char* text) {
  const std::string policy = text == nullptr ? "" : text;
  if (policy == "newest") return FullPolicy::kKeepNewest;
  if (policy == "oldest") return FullPolicy::kKeepOldest;
  return FullPolicy::kGrow;
}

// `gapless record` sets these. Runs before main; a program that cannot be recorded runs all the
// same and says so once.
[[maybe_unused]] const bool kStartedFromEnvironment = [] {
  const char* path = std::getenv("GAPLESS_TRACE_FILE");
  if (path == nullptr || *path == '\0') return false;
  RecorderOptions options;
  options.path = path;
  options.policy = policy_from(std::getenv("GAPLESS_TRACE_POLICY"));
  if (const char* capacity = std::getenv("GAPLESS_TRACE_CAPACITY_MIB")) {
    const uint64_t mebibytes = std::strtoull(capacity, nullptr, 10);
    if (mebibytes > 0) options.capacity_bytes = mebibytes << 20;
  }
  const bool started = start_recording(options);
  if (!started) std::fprintf(stderr, "gapless: not recording: %s\n", recording_error().c_str());
  return started;
}();

}  // namespace

inline namespace trace_on {

bool start_recording(const RecorderOptions& options) {
  Process& p = process();
  const ProcessLock lock(p);
  if (p.recorder) {
    p.error = "a recording is under way already";
    return false;
  }
  static const bool registered = [] {
    std::atexit([] { stop_recording(); });
    return true;
  }();
  static_cast<void>(registered);
  forget_closed(p);
  const uint32_t session = ++p.session;
  std::unique_ptr<Recorder> recorder = std::make_unique<Recorder>(options, session);
  p.error = recorder->open(with_process_id(options.path), p.registry);
  if (!p.error.empty()) return false;
  p.recorder = std::move(recorder);
  recording_session.store(session, std::memory_order_release);
  return true;
}

std::string recording_error() {
  Process& p = process();
  const ProcessLock lock(p);
  return p.error;
}

RecordingSummary stop_recording() {
  Process& p = process();
  const ProcessLock lock(p);
  if (!p.recorder) return {};
  recording_session.store(0, std::memory_order_release);
  const RecordingSummary summary = p.recorder->close();
  p.closed.push_back(std::move(p.recorder));
  thread_state.release();  // the caller is not in the middle of an event
  current_writer = nullptr;
  forget_closed(p);
  return summary;
}

void pause_recording() { recording_session.store(0, std::memory_order_release); }

void resume_recording() {
  Process& p = process();
  const ProcessLock lock(p);
  if (p.recorder) recording_session.store(p.session, std::memory_order_release);
}

bool is_recording() { return recording_session.load(std::memory_order_relaxed) != 0; }

NameId intern_name(std::string_view text) {
  Process& p = process();
  const ProcessLock lock(p);
  bool is_new = false;
  const uint16_t id = p.registry.intern_name(text, &is_new);
  if (is_new && p.recorder) p.recorder->note_name(id, p.registry.names()[id]);
  return NameId{id};
}

LaneId add_lane(const LaneSpec& spec) {
  Process& p = process();
  const ProcessLock lock(p);
  bool is_new = false;
  const uint32_t device = p.registry.intern_device(spec.device, &is_new);
  if (is_new && p.recorder) p.recorder->note_device(device, p.registry.devices()[device]);
  const RegisteredLane lane{std::string(spec.name), spec.kind, device, spec.number};
  const uint16_t id = p.registry.add_lane(lane);
  if (p.recorder) p.recorder->note_lane(id, p.registry.lanes()[id]);
  return LaneId{id};
}

LaneId thread_lane() {
  Process& p = process();
  const ProcessLock lock(p);
  return lane_of_this_thread(p);
}

void name_thread(std::string_view name) { rename_lane(thread_lane(), name); }

void rename_lane(LaneId lane, std::string_view name) {
  Process& p = process();
  const ProcessLock lock(p);
  if (lane.id >= p.registry.lanes().size()) return;
  p.registry.rename_lane(lane.id, name);
  if (p.recorder) p.recorder->note_lane(lane.id, p.registry.lanes()[lane.id]);
}

void set_property(std::string_view key, std::string_view value) {
  Process& p = process();
  const ProcessLock lock(p);
  const RegisteredProperty* const changed = p.registry.set_property(key, value);
  if (changed != nullptr && p.recorder) p.recorder->note_property(*changed);
}

Writer* attach_thread() {
  // Destructors of other thread-local objects may still record; there is nobody left to own it.
  if (thread_has_ended || thread_is_in_recorder) return nullptr;
  Process& p = process();
  const ProcessLock lock(p);
  current_writer = nullptr;
  thread_state.release();
  forget_closed(p);
  if (!p.recorder) return nullptr;
  thread_state.writer = p.recorder->attach(lane_of_this_thread(p));
  if (thread_state.writer == nullptr) return nullptr;
  current_writer = &thread_state.writer->writer;
  return current_writer;
}

}  // namespace trace_on

}  // namespace gapless
