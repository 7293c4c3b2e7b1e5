// SPDX-License-Identifier: Apache-2.0

#include "trace/recorder.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdio>
#include <ctime>
#include <fstream>
#include <system_error>
#include <utility>

#include <pthread.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "trace/clock.h"

namespace gapless {
namespace {

constexpr int kMaxAheadChunks = 16;
constexpr size_t kSpareChunks = 4;
constexpr int kUnlimited = 0;
constexpr uint32_t kNoWriter = 0xffffffff;

int chunk_limit(const RecorderOptions& options) {
  if (options.policy == FullPolicy::kGrow) return kUnlimited;
  const uint64_t chunks = options.capacity_bytes / ChunkFile::kChunkBytes;
  // At least four: one to fill, one that is ready, two that are kept.
  return static_cast<int>(std::clamp<uint64_t>(chunks, 4, INT_MAX));
}

std::string program_name() {
  char path[PATH_MAX] = {};
  const ssize_t size = ::readlink("/proc/self/exe", path, sizeof(path) - 1);
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "unknown";
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string text(4096, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  while (!text.empty() && text.back() == '\0') text.pop_back();
  std::replace(text.begin(), text.end(), '\0', ' ');
  return text;
}

std::string cpu_model() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

timespec monotonic_after(int64_t wait_ns) {
  timespec time = {};
  clock_gettime(CLOCK_MONOTONIC, &time);
  const int64_t nanoseconds = time.tv_nsec + wait_ns;
  time.tv_sec += nanoseconds / 1'000'000'000;
  time.tv_nsec = nanoseconds % 1'000'000'000;
  return time;
}

// Whose drop a record is: records that say what lane they are for carry it in the top bits.
uint16_t lane_of(uint64_t head, uint64_t tail, uint16_t own) {
  const RecordKind kind = static_cast<RecordKind>(head & kKindMask);
  const bool has_lane = kind != RecordKind::kPayload && kind != RecordKind::kEdge;
  const uint16_t lane = static_cast<uint16_t>(tail >> 48);
  return has_lane && lane != kNoLane ? lane : own;
}

// The slow path calls what a thread can be cancelled in; half done it would leave close() waiting.
class NoCancellation {
 public:
  NoCancellation() { pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before_); }
  ~NoCancellation() { pthread_setcancelstate(before_, nullptr); }
  NoCancellation(const NoCancellation&) = delete;
  NoCancellation& operator=(const NoCancellation&) = delete;

 private:
  int before_ = 0;
};

// Held for a few instructions, so waiting for it is short; a bound all the same, because whoever
// holds it may have been put aside by the system.
class HistoryLock {
 public:
  explicit HistoryLock(WriterState& state) : flag_(state.history_lock) {
    constexpr int kTries = 2000;
    constexpr int kSpins = 1900;
    for (int i = 0; i < kTries && !held_; ++i) {
      held_ = !flag_.test_and_set(std::memory_order_acquire);
      if (!held_ && i > kSpins) std::this_thread::yield();
    }
  }
  ~HistoryLock() {
    if (held_) flag_.clear(std::memory_order_release);
  }
  HistoryLock(const HistoryLock&) = delete;
  HistoryLock& operator=(const HistoryLock&) = delete;
  bool held() const { return held_; }

 private:
  std::atomic_flag& flag_;
  bool held_ = false;
};

}  // namespace

void WriterState::point_at(Chunk* chunk) {
  current = chunk;
  writer.next_ = chunk == nullptr ? nullptr : chunk->records();
  writer.end_ = chunk == nullptr ? nullptr : chunk->records() + ChunkFile::kRecordsPerChunk;
}

void WriterState::begin_chunk(Chunk* chunk) {
  ChunkFile::identify(*chunk, ChunkType::kRecords, id, sequence++);
  chunk->lane = writer.lane_.id;
  ++taken_count;
  point_at(chunk);
}

void WriterState::bind(LaneId lane, uint32_t session) {
  writer.state_ = this;
  writer.lane_ = lane;
  writer.session_ = session;
}

void Writer::store_slow(uint64_t head, uint64_t tail) {
  if (state_->recorder->make_room(*state_, lane_of(head, tail, lane_.id))) store(head, tail);
}

Recorder::Recorder(const RecorderOptions& options, uint32_t session)
    : options_(options), session_(session), chunk_limit_(chunk_limit(options)) {
  sem_init(&wake_, 0, 0);
}

Recorder::~Recorder() {
  if (!closed_) close();
  for (const std::unique_ptr<WriterState>& state : writers_) {
    if (state->current != nullptr) ChunkFile::unmap(state->current);
  }
  if (drops_ != nullptr) ChunkFile::unmap(drops_);
  sem_destroy(&wake_);
}

std::string Recorder::open(const std::string& path, const Registry& registry) {
  const AnchorBody first = read_anchor();
  std::string error = file_.create(path);
  if (!error.empty()) {
    closed_ = true;
    return error;
  }
  // The first chunk is metadata: a file cut short still has its names.
  write_provenance();
  for (const RegisteredProperty& property : registry.properties()) note_property(property);
  for (uint32_t id = 0; id < registry.names().size(); ++id) {
    append(encode_name(id, registry.names()[id]));
  }
  for (uint32_t id = 1; id < registry.devices().size(); ++id) {
    note_device(id, registry.devices()[id]);
  }
  for (uint32_t id = 0; id < registry.lanes().size(); ++id) {
    note_lane(static_cast<uint16_t>(id), registry.lanes()[id]);
  }
  drops_ = file_.make_chunk();
  for (size_t i = 0; i < kSpareChunks; ++i) {
    if (Chunk* chunk = file_.make_chunk()) spare_.push_back(chunk);
  }
  if (drops_ == nullptr || spare_.empty() || metadata_lost_) {
    give_up();
    ::unlink(path.c_str());
    return path + ": cannot be written and mapped: no room on this disk, or it cannot map files";
  }
  ChunkFile::identify(*drops_, ChunkType::kDrops, 0, 0);
  write_clock(first);
  if (!start_keeper()) {
    give_up();
    ::unlink(path.c_str());
    return path + ": the system refuses one more thread, which the recorder needs";
  }
  return {};
}

// What open() made so far goes.
void Recorder::give_up() {
  closed_ = true;
  for (Chunk* chunk : spare_) ChunkFile::unmap(chunk);
  spare_.clear();
  metadata_.close();
  file_.close();
}

void Recorder::append(const std::string& entry) {
  const std::lock_guard lock(metadata_mutex_);
  if (closed_ || !metadata_.append(entry)) metadata_lost_ = true;
}

void Recorder::write_provenance() {
  utsname machine = {};
  ::uname(&machine);
  append(encode_device(0, ::getpid(), program_name()));
  append(encode_property("program", program_name()));
  append(encode_property("command", command_line()));
  append(encode_property("pid", std::to_string(::getpid())));
  append(encode_property("host", machine.nodename));
  append(encode_property("system", std::string(machine.sysname) + " " + machine.release));
  append(encode_property("architecture", machine.machine));
  append(encode_property("cpu", cpu_model()));
  append(encode_property("cpus", std::to_string(::sysconf(_SC_NPROCESSORS_ONLN))));
}

void Recorder::write_clock(const AnchorBody& first) {
  const AnchorBody now = read_anchor();
  const double elapsed_ns = static_cast<double>(now.time_ns - first.time_ns);
  const double elapsed_ticks = static_cast<double>(now.ticks - first.ticks);
  ClockBody clock = {};
  clock.source = clock_source();
  clock.invariant = clock_is_invariant() ? 1 : 0;
  clock.ticks_per_second = static_cast<uint64_t>(elapsed_ticks * 1e9 / elapsed_ns);
  clock.wall_minus_time_ns = wall_minus_monotonic_ns();
  append(encode_clock(clock));
  append(encode_anchor(first));
  append(encode_anchor(now));
}

void Recorder::note_name(uint16_t id, const std::string& text) { append(encode_name(id, text)); }

void Recorder::note_lane(uint16_t id, const RegisteredLane& lane) {
  LaneBody body = {};
  body.number = lane.number;
  body.device = lane.device;
  body.kind = lane.kind;
  append(encode_lane(id, body, lane.name));
}

void Recorder::note_device(uint32_t id, const std::string& name) {
  append(encode_device(id, id, name));
}

void Recorder::note_property(const RegisteredProperty& property) {
  append(encode_property(property.key, property.value));
}

// ---- What threads call.

WriterState* Recorder::attach(LaneId lane) {
  WriterState* state = nullptr;
  Chunk* chunk = nullptr;
  {
    const std::lock_guard lock(writers_mutex_);
    if (stopping_) return nullptr;
    const auto free = std::find_if(writers_.begin(), writers_.end(),
                                   [](const auto& writer) { return !writer->in_use; });
    if (free != writers_.end()) {
      (*free)->in_use = true;
      (*free)->bind(lane, session_);
      if ((*free)->current != nullptr) (*free)->current->lane = lane.id;
      return free->get();
    }
    writers_.push_back(std::make_unique<WriterState>());
    state = writers_.back().get();
    state->id = static_cast<uint32_t>(writers_.size() - 1);
    state->recorder = this;
    state->bind(lane, session_);
    // Made here and not after the lock: close() must not come in between.
    if (!spare_.empty()) {
      chunk = spare_.back();
      spare_.pop_back();
    } else if (!disk_full_) {
      chunk = make_chunk();
    }
    if (chunk != nullptr) state->begin_chunk(chunk);
    state->chunk_count = state->taken_count;
  }
  sem_post(&wake_);
  return state;
}

bool Recorder::make_room(WriterState& state, uint16_t lane) {
  // Interrupted by a signal handler, or by a hook of what we call, that records as well.
  if (state.refilling.load(std::memory_order_relaxed)) {
    count_drops(lane, 1);
    return false;
  }
  const NoCancellation guard;
  // close() sets `stopping_`, then waits for `refilling`: one of the two sees the other.
  state.refilling = true;
  bool has_room = false;
  if (!stopping_) {
    has_room = refill(state);
    if (!has_room) count_drops(lane, 1);
  }
  state.refilling = false;
  return has_room;
}

bool Recorder::refill(WriterState& state) {
  Chunk* chunk = take_chunk(state);
  if (chunk == nullptr) return false;
  if (state.current != nullptr) state.full.push(state.current);
  state.begin_chunk(chunk);
  const int ahead = state.ahead_count.load(std::memory_order_relaxed);
  if (state.ready.count() <= ahead / 2) {
    state.ahead_count.store(std::min(2 * ahead, kMaxAheadChunks), std::memory_order_relaxed);
    sem_post(&wake_);
  }
  return true;
}

// The next chunk to fill, by the policy. The thread makes it itself when the keeper is late.
Chunk* Recorder::take_chunk(WriterState& state) {
  const bool keeps_oldest = options_.policy == FullPolicy::kKeepOldest;
  if (keeps_oldest && state.taken_count == chunk_limit_) return nullptr;
  if (Chunk* chunk = state.ready.pop()) return chunk;
  if (options_.policy != FullPolicy::kKeepNewest) return disk_full_ ? nullptr : make_chunk();

  Chunk* chunk = disk_full_ ? nullptr : make_bounded_chunk(state);
  if (chunk == nullptr) chunk = reuse_oldest(state);
  if (chunk == nullptr && state.current != nullptr) {
    // All other chunks are in the keeper's hands: the one just filled is the oldest we have.
    chunk = std::exchange(state.current, nullptr);
    recycle(*chunk);
  }
  return chunk;
}

void Recorder::count_drops(uint16_t lane, uint64_t count) {
  uint64_t* counters = reinterpret_cast<uint64_t*>(drops_->payload());
  std::atomic_ref<uint64_t>(counters[drop_slot(lane)]).fetch_add(count, std::memory_order_relaxed);
}

// ---- What threads and the keeper call.

Chunk* Recorder::make_chunk() {
  Chunk* chunk = file_.make_chunk();
  disk_full_ = chunk == nullptr;
  return chunk;
}

// One more chunk for a writer that may have only so many; nullptr when it has them.
Chunk* Recorder::make_bounded_chunk(WriterState& state) {
  if (state.chunk_count.fetch_add(1) < chunk_limit_) {
    if (Chunk* chunk = make_chunk()) return chunk;
  }
  state.chunk_count.fetch_sub(1);
  return nullptr;
}

Chunk* Recorder::reuse_oldest(WriterState& state) {
  collect_full(state);
  Chunk* oldest = nullptr;
  {
    const HistoryLock lock(state);
    if (lock.held()) oldest = state.history.pop();
  }
  if (oldest != nullptr) recycle(*oldest);
  return oldest;
}

// Empties a chunk, counting what is lost with it.
void Recorder::recycle(Chunk& chunk) {
  // Neighbours are mostly of one lane: one addition for each stretch of them.
  uint16_t lane = kNoLane;
  uint64_t count = 0;
  for (size_t i = 0; i < ChunkFile::kRecordsPerChunk; ++i) {
    const Record& record = chunk.records()[i];
    const uint16_t next = lane_of(record.head, uint64_t{record.lane} << 48, chunk.lane);
    if (next != lane) {
      if (count > 0) count_drops(lane, count);
      lane = next;
      count = 0;
    }
    ++count;
  }
  count_drops(lane, count);
  ChunkFile::clear(chunk);
}

// Moves full chunks to where they stay: the history, or the file.
void Recorder::collect_full(WriterState& state) {
  const HistoryLock lock(state);
  if (!lock.held()) return;
  Chunk* oldest = nullptr;  // the list gives the newest first
  for (Chunk* chunk = state.full.take_all(); chunk != nullptr;) {
    Chunk* const older = std::exchange(chunk->next, oldest);
    oldest = std::exchange(chunk, older);
  }
  while (oldest != nullptr) {
    Chunk* const chunk = std::exchange(oldest, oldest->next);
    if (options_.policy == FullPolicy::kKeepNewest) {
      state.history.push(chunk);
    } else {
      seal_full(state, chunk);
    }
  }
}

void Recorder::seal_full(WriterState& state, Chunk* chunk) {
  ChunkFile::seal(*chunk, ChunkFile::kRecordsPerChunk * sizeof(Record));
  state.record_count += ChunkFile::kRecordsPerChunk;
  ChunkFile::unmap(chunk);
}

// ---- The keeper.

bool Recorder::start_keeper() {
  // It must not be the thread that runs the program's signal handlers.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  bool started = true;
  try {
    keeper_ = std::thread([this] { keep(); });
  } catch (const std::system_error&) {  // the library has no other way to say so
    started = false;
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return started;
}

void Recorder::keep() {
  pthread_setname_np(pthread_self(), "gapless-keeper");
  thread_is_in_recorder = true;  // for good: hooks of what it calls must not record
  // Anchors: soon, so that a program killed early has two that are apart; then ever less often.
  constexpr int64_t kLongestIntervalNs = 10'000'000'000;
  int64_t interval_ns = 10'000'000;
  int64_t next_anchor_ns = read_anchor().time_ns + interval_ns;
  while (!stopping_) {
    const int64_t wait_ns =
        std::clamp<int64_t>(next_anchor_ns - read_anchor().time_ns, 1'000'000, kLongestIntervalNs);
    const timespec deadline = monotonic_after(wait_ns);
    while (sem_clockwait(&wake_, CLOCK_MONOTONIC, &deadline) != 0 && errno == EINTR) {
    }
    while (sem_trywait(&wake_) == 0) {  // one round answers all calls so far
    }
    serve_writers();
    const AnchorBody now = read_anchor();
    if (now.time_ns < next_anchor_ns) continue;
    append(encode_anchor(now));
    interval_ns = std::min(2 * interval_ns, kLongestIntervalNs);
    next_anchor_ns = now.time_ns + interval_ns;
  }
}

void Recorder::serve_writers() {
  std::vector<WriterState*> writers;
  size_t spares_missing = 0;
  {
    const std::lock_guard lock(writers_mutex_);
    for (const std::unique_ptr<WriterState>& state : writers_) writers.push_back(state.get());
    spares_missing = kSpareChunks - std::min(kSpareChunks, spare_.size());
  }
  for (WriterState* state : writers) serve(*state);
  for (; spares_missing > 0 && !stopping_; --spares_missing) {
    Chunk* chunk = make_chunk();
    if (chunk == nullptr) return;
    const std::lock_guard lock(writers_mutex_);
    spare_.push_back(chunk);
  }
}

void Recorder::serve(WriterState& state) {
  // Of a bounded writer's chunks at most a quarter waits; the others keep what was recorded.
  const int limit = chunk_limit_ == kUnlimited ? INT_MAX : std::max(1, chunk_limit_ / 4);
  collect_full(state);
  // A bound, so that one busy writer does not keep the keeper from the others.
  for (int i = 0; i < kMaxAheadChunks && !stopping_; ++i) {
    if (state.ready.count() >= std::min(state.ahead_count.load(), limit)) return;
    Chunk* chunk = chunk_limit_ == kUnlimited ? make_chunk() : make_bounded_chunk(state);
    // A full disk may have stopped us short of the limit: a quarter is of what there is.
    const bool may_reuse = options_.policy == FullPolicy::kKeepNewest &&
                           state.ready.count() < std::max(1, state.chunk_count / 4);
    if (chunk == nullptr && may_reuse) chunk = reuse_oldest(state);
    if (chunk == nullptr) return;
    state.ready.push(chunk);
    collect_full(state);
  }
  sem_post(&wake_);
}

// ---- The end.

bool Recorder::has_attached_threads() const {
  const std::lock_guard lock(writers_mutex_);
  return std::any_of(writers_.begin(), writers_.end(),
                     [](const auto& writer) { return writer->in_use.load(); });
}

void Recorder::close_writer(WriterState& state, std::vector<Chunk*>& unused) {
  while (state.refilling) std::this_thread::yield();
  collect_full(state);
  while (Chunk* chunk = state.history.pop()) seal_full(state, chunk);
  for (Chunk* chunk = state.ready.take_all(); chunk != nullptr; chunk = chunk->next) {
    unused.push_back(chunk);
  }
  // The current chunk stays mapped: its thread may be about to store one record more, which goes
  // behind the sealed part.
  if (state.current == nullptr) return;
  const size_t count = ChunkFile::count_records(*state.current);
  ChunkFile::seal(*state.current, count * sizeof(Record));
  // Its blocks stay too: on a full disk a store into a hole would be a SIGBUS.
  if (!state.in_use) file_.punch(*state.current, count * sizeof(Record));
  state.record_count += count;
}

// Chunks that nobody used: those at the end of the file go, the others stay as empty ones. Returns
// the size of the file.
uint64_t Recorder::drop_unused(std::vector<Chunk*>& unused) {
  std::sort(unused.begin(), unused.end(),
            [](const Chunk* a, const Chunk* b) { return a->offset > b->offset; });
  uint64_t end_offset = file_.end_offset();
  for (Chunk* chunk : unused) {
    if (chunk->offset + ChunkFile::kChunkBytes == end_offset) {
      end_offset = chunk->offset;
    } else {
      ChunkFile::identify(*chunk, ChunkType::kRecords, kNoWriter, 0);
      ChunkFile::seal(*chunk, 0);
      file_.punch(*chunk, 0);
    }
    ChunkFile::unmap(chunk);
  }
  return file_.shrink_to(end_offset);
}

RecordingSummary Recorder::close() {
  RecordingSummary summary;
  {
    const std::lock_guard lock(writers_mutex_);
    stopping_ = true;
  }
  sem_post(&wake_);
  if (keeper_.joinable()) keeper_.join();

  std::vector<Chunk*> unused = std::move(spare_);
  for (const std::unique_ptr<WriterState>& state : writers_) {
    close_writer(*state, unused);
    summary.event_count += state->record_count;
  }
  const uint64_t* drops = reinterpret_cast<const uint64_t*>(drops_->payload());
  for (uint32_t i = 0; i < kDropSlotCount; ++i) summary.dropped_count += drops[i];
  ChunkFile::seal(*drops_, kDropSlotCount * sizeof(uint64_t));
  summary.ns_per_event = measure_event_cost_ns();

  const std::lock_guard lock(metadata_mutex_);
  const uint64_t file_bytes = drop_unused(unused);
  char cost[32];
  std::snprintf(cost, sizeof(cost), "%.2f", summary.ns_per_event);
  metadata_.append_closing(encode_anchor(read_anchor()));
  metadata_.append_closing(encode_property("recorder.ns_per_event", cost));
  metadata_.append_closing(encode_property("recorder.events", std::to_string(summary.event_count)));
  metadata_.append_closing(encode_property("recorder.writers", std::to_string(writers_.size())));
  if (metadata_lost_) {
    FindingBody body = {};
    body.severity = 2;
    body.lane = 0xffffffff;
    metadata_.append_closing(encode_finding(body, "metadata-lost",
                                            "the disk was full: some names or lanes are missing"));
  }
  metadata_.append_closing(encode_end({file_bytes, summary.event_count}));
  metadata_.close();
  closed_ = true;
  file_.close();
  return summary;
}

double measure_event_cost_ns() {
  constexpr uint32_t kEvents = 4096;
  std::vector<std::byte> memory(ChunkFile::kChunkBytes);
  WriterState scratch;
  Chunk chunk;
  chunk.memory = memory.data();
  std::array<double, 5> runs_ns;
  for (double& run_ns : runs_ns) {
    scratch.point_at(&chunk);
    const AnchorBody begin = read_anchor();
    for (uint32_t i = 0; i < kEvents; ++i) {
      scratch.writer.write(RecordKind::kInstant, LaneId{}, NameId{}, i);
    }
    run_ns = static_cast<double>(read_anchor().time_ns - begin.time_ns) / kEvents;
  }
  std::sort(runs_ns.begin(), runs_ns.end());
  return runs_ns[runs_ns.size() / 2];
}

}  // namespace gapless
