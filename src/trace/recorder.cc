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

timespec realtime_after(int64_t wait_ns) {
  timespec time = {};
  clock_gettime(CLOCK_REALTIME, &time);
  const int64_t nanoseconds = time.tv_nsec + wait_ns;
  time.tv_sec += nanoseconds / 1'000'000'000;
  time.tv_nsec = nanoseconds % 1'000'000'000;
  return time;
}

// Records that say what lane they are for carry it in the top bits.
uint16_t lane_of(uint64_t head, uint64_t tail, LaneId own) {
  const RecordKind kind = static_cast<RecordKind>(head & kKindMask);
  const bool has_lane = kind != RecordKind::kPayload && kind != RecordKind::kEdge;
  return has_lane ? static_cast<uint16_t>(tail >> 48) : own.id;
}

// Held for a few instructions, so waiting for it is short; a bound all the same, because whoever
// holds it may have been put aside by the system.
class HistoryLock {
 public:
  explicit HistoryLock(WriterState& state) : flag_(state.history_lock) {
    constexpr int kTries = 2000;
    for (int i = 0; i < kTries && !held_; ++i) {
      held_ = !flag_.test_and_set(std::memory_order_acquire);
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

void ChunkList::push(Chunk* chunk) {
  count_.fetch_add(1, std::memory_order_relaxed);
  chunk->next = head_.load(std::memory_order_relaxed);
  while (!head_.compare_exchange_weak(chunk->next, chunk, std::memory_order_release,
                                      std::memory_order_relaxed)) {
  }
}

// One thread takes, so a head cannot go and come back between the load and the exchange.
Chunk* ChunkList::pop() {
  Chunk* head = head_.load(std::memory_order_acquire);
  while (head != nullptr &&
         !head_.compare_exchange_weak(head, head->next, std::memory_order_acquire,
                                      std::memory_order_acquire)) {
  }
  if (head != nullptr) count_.fetch_sub(1, std::memory_order_relaxed);
  return head;
}

Chunk* ChunkList::take_all() {
  count_.store(0, std::memory_order_relaxed);
  return head_.exchange(nullptr, std::memory_order_acquire);
}

void WriterState::point_at(Chunk* chunk) {
  current = chunk;
  writer.next_ = chunk == nullptr ? nullptr : chunk->records();
  writer.end_ = chunk == nullptr ? nullptr : chunk->records() + ChunkFile::kRecordsPerChunk;
}

void WriterState::bind(LaneId lane, uint32_t session) {
  writer.state_ = this;
  writer.lane_ = lane;
  writer.session_ = session;
}

void Writer::store_slow(uint64_t head, uint64_t tail) {
  if (state_->recorder->make_room(*state_, lane_of(head, tail, lane_))) store(head, tail);
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
    closed_ = true;
    for (Chunk* chunk : spare_) ChunkFile::unmap(chunk);
    metadata_.close();
    ::unlink(path.c_str());
    return path + ": no room for a trace on this disk";
  }
  ChunkFile::identify(*drops_, ChunkType::kDrops, 0, 0);
  write_clock(first);
  start_keeper();
  return {};
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
    } else {
      chunk = make_chunk();
    }
    if (chunk != nullptr) {
      ChunkFile::identify(*chunk, ChunkType::kRecords, state->id, state->sequence++);
      state->chunk_count = 1;
    }
    state->point_at(chunk);
  }
  sem_post(&wake_);
  return state;
}

bool Recorder::make_room(WriterState& state, uint16_t lane) {
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
  Chunk* chunk = state.ready.pop();
  if (chunk == nullptr && !disk_full_) chunk = next_chunk(state);
  if (chunk == nullptr && options_.policy == FullPolicy::kKeepNewest && state.current != nullptr) {
    // All other chunks are in the keeper's hands: the one just filled is the oldest we have.
    chunk = std::exchange(state.current, nullptr);
    recycle(state, *chunk);
  }
  if (chunk == nullptr) return false;
  if (state.current != nullptr) state.full.push(state.current);
  ChunkFile::identify(*chunk, ChunkType::kRecords, state.id, state.sequence++);
  state.point_at(chunk);
  const int ahead = state.ahead_count.load(std::memory_order_relaxed);
  if (state.ready.count() <= ahead / 2) {
    state.ahead_count.store(std::min(2 * ahead, kMaxAheadChunks), std::memory_order_relaxed);
    sem_post(&wake_);
  }
  return true;
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

// A chunk to fill, by the policy.
Chunk* Recorder::next_chunk(WriterState& state) {
  if (chunk_limit_ == kUnlimited) return make_chunk();
  if (state.chunk_count.fetch_add(1) < chunk_limit_) {
    if (Chunk* chunk = make_chunk()) return chunk;
  }
  state.chunk_count.fetch_sub(1);
  if (options_.policy != FullPolicy::kKeepNewest) return nullptr;

  collect_full(state);
  Chunk* oldest = nullptr;
  {
    const HistoryLock lock(state);
    if (!lock.held() || state.history.empty()) return nullptr;
    oldest = state.history.front();
    state.history.pop_front();
  }
  recycle(state, *oldest);
  return oldest;
}

// Empties a chunk, counting what is lost with it.
void Recorder::recycle(WriterState& state, Chunk& chunk) {
  // Neighbours are mostly of one lane: one addition for each stretch of them.
  uint16_t lane = kNoLane;
  uint64_t count = 0;
  for (size_t i = 0; i < ChunkFile::kRecordsPerChunk; ++i) {
    const Record& record = chunk.records()[i];
    const uint16_t next = lane_of(record.head, uint64_t{record.lane} << 48, state.writer.lane());
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
  const bool keeps = options_.policy == FullPolicy::kKeepNewest;
  const HistoryLock lock(state);
  if (!lock.held()) return;
  std::vector<Chunk*> full;
  for (Chunk* chunk = state.full.take_all(); chunk != nullptr; chunk = chunk->next) {
    full.push_back(chunk);
  }
  std::reverse(full.begin(), full.end());  // the list gives the newest first
  for (Chunk* chunk : full) {
    if (keeps) {
      state.history.push_back(chunk);
      continue;
    }
    ChunkFile::seal(*chunk, ChunkFile::kRecordsPerChunk * sizeof(Record));
    state.record_count += ChunkFile::kRecordsPerChunk;
    ChunkFile::unmap(chunk);
  }
}

// ---- The keeper.

void Recorder::start_keeper() {
  // It must not be the thread that runs the program's signal handlers.
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  keeper_ = std::thread([this] { keep(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

void Recorder::keep() {
  pthread_setname_np(pthread_self(), "gapless-keeper");
  // Anchors: soon, so that a program killed early has two that are apart; then ever less often.
  constexpr int64_t kLongestIntervalNs = 10'000'000'000;
  int64_t interval_ns = 10'000'000;
  int64_t next_anchor_ns = read_anchor().time_ns + interval_ns;
  while (!stopping_) {
    const int64_t wait_ns =
        std::clamp<int64_t>(next_anchor_ns - read_anchor().time_ns, 1'000'000, kLongestIntervalNs);
    const timespec deadline = realtime_after(wait_ns);
    while (sem_timedwait(&wake_, &deadline) != 0 && errno == EINTR) {
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
  while (!stopping_ && state.ready.count() < std::min(state.ahead_count.load(), limit)) {
    Chunk* chunk = next_chunk(state);
    if (chunk == nullptr) return;
    state.ready.push(chunk);
    collect_full(state);
  }
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
  for (Chunk* chunk : state.history) {
    ChunkFile::seal(*chunk, ChunkFile::kRecordsPerChunk * sizeof(Record));
    state.record_count += ChunkFile::kRecordsPerChunk;
    ChunkFile::unmap(chunk);
  }
  state.history.clear();
  for (Chunk* chunk = state.ready.take_all(); chunk != nullptr; chunk = chunk->next) {
    unused.push_back(chunk);
  }
  // The current chunk stays mapped: its thread may be about to store one record more, which goes
  // behind the sealed part.
  if (state.current == nullptr) return;
  const size_t count = ChunkFile::count_records(*state.current);
  ChunkFile::seal(*state.current, count * sizeof(Record));
  file_.punch(*state.current, count * sizeof(Record));
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
  return file_.truncate(end_offset) ? end_offset : file_.end_offset();
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
  constexpr size_t kClosingBytes = 4096;  // more than the entries below
  const bool has_room = metadata_.reserve(kClosingBytes);
  const uint64_t file_bytes = drop_unused(unused);
  if (has_room) {
    char cost[32];
    std::snprintf(cost, sizeof(cost), "%.2f", summary.ns_per_event);
    metadata_.append(encode_anchor(read_anchor()));
    metadata_.append(encode_property("recorder.ns_per_event", cost));
    metadata_.append(encode_property("recorder.events", std::to_string(summary.event_count)));
    metadata_.append(encode_property("recorder.writers", std::to_string(writers_.size())));
    if (metadata_lost_) {
      FindingBody body = {};
      body.severity = 2;
      body.lane = 0xffffffff;
      metadata_.append(encode_finding(body, "metadata-lost",
                                      "the disk was full: some names or lanes are missing"));
    }
    metadata_.append(encode_end({file_bytes, summary.event_count}));
  }
  metadata_.close();
  closed_ = true;
  file_.close();
  return summary;
}

double measure_event_cost_ns() {
  constexpr uint32_t kEvents = 4096;
  std::vector<std::byte> memory(ChunkFile::kChunkBytes);
  WriterState scratch;
  Chunk chunk{memory.data(), 0, nullptr};
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
