// SPDX-License-Identifier: Apache-2.0
//
// Recorder: one recording. The file, the writers of its threads, and the keeper: the one thread
// that does beforehand what the hot path must not do.
//
// A writer fills a chunk and takes the next from its list of ready ones; that is all it does, once
// in 16,380 records. The keeper makes ready chunks (reserves, maps and touches them; with
// kKeepNewest it empties the oldest), seals full ones, and reads clock anchors. When the keeper is
// late, the writer does that work itself, once, without waiting for anybody.

#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <semaphore.h>

#include "gapless/trace.h"
#include "trace/chunk_file.h"
#include "trace/chunk_list.h"
#include "trace/metadata_log.h"
#include "trace/registry.h"

namespace gapless {

class Recorder;

struct WriterState {
  Writer writer;
  Recorder* recorder = nullptr;
  uint32_t id = 0;
  uint32_t sequence = 0;                // of the next chunk
  Chunk* current = nullptr;             // the chunk that `writer` fills
  ChunkList ready;                      // keeper -> writer
  ChunkList full;                       // writer -> keeper
  int taken_count = 0;                  // chunks that `writer` has filled or is filling
  std::atomic<int> chunk_count = 0;     // chunks that were made for it
  std::atomic<int> ahead_count = 2;     // how many chunks the keeper holds ready; grows with use
  std::atomic<bool> refilling = false;  // the slow path is under way; close() waits for it
  std::atomic<bool> in_use = true;      // a thread has it
  uint64_t record_count = 0;            // in sealed chunks; the keeper's, then close()'s
  // Full chunks that stay mapped (kKeepNewest), oldest first. Held for a few instructions.
  std::atomic_flag history_lock = ATOMIC_FLAG_INIT;
  ChunkQueue history;

  // What Writer's friendship is for.
  void point_at(Chunk* chunk);
  void begin_chunk(Chunk* chunk);
  void bind(LaneId lane, uint32_t session);
};

class Recorder {
 public:
  Recorder(const RecorderOptions& options, uint32_t session);
  ~Recorder();

  // Empty when all is well; else why there is no recording. `path` has no %p any more.
  std::string open(const std::string& path, const Registry& registry);

  // For a thread's first event. nullptr when the recording is being closed.
  WriterState* attach(LaneId lane);
  // The thread has gone; another may have its writer.
  static void detach(WriterState& state) { state.in_use = false; }

  void note_name(uint16_t id, const std::string& text);
  void note_lane(uint16_t id, const RegisteredLane& lane);
  void note_device(uint32_t id, const std::string& name);
  void note_property(const RegisteredProperty& property);

  // Called by a writer that found its chunk full. True: there is room now. False: there is none,
  // and a record of `lane` has been counted as dropped.
  bool make_room(WriterState& state, uint16_t lane);

  // Seals everything. Writers stay valid memory until the Recorder is destroyed, so that a thread
  // that is just recording finds its chunk there.
  RecordingSummary close();
  bool has_attached_threads() const;

 private:
  void write_provenance();
  void write_clock(const AnchorBody& first);
  bool start_keeper();
  void give_up();
  void keep();
  void serve_writers();
  void serve(WriterState& state);
  bool refill(WriterState& state);
  Chunk* make_chunk();
  Chunk* take_chunk(WriterState& state);
  Chunk* make_bounded_chunk(WriterState& state);
  Chunk* reuse_oldest(WriterState& state);
  void collect_full(WriterState& state);
  void recycle(Chunk& chunk);
  static void seal_full(WriterState& state, Chunk* chunk);
  void count_drops(uint16_t lane, uint64_t count);
  void close_writer(WriterState& state, std::vector<Chunk*>& unused);
  uint64_t drop_unused(std::vector<Chunk*>& unused);
  void append(const std::string& entry);

  const RecorderOptions options_;
  const uint32_t session_;
  const int chunk_limit_;  // of each writer; 0: none
  ChunkFile file_;
  std::mutex metadata_mutex_;
  MetadataLog metadata_{file_};
  Chunk* drops_ = nullptr;               // its payload is one counter a lane
  std::atomic<bool> disk_full_ = false;  // a chunk was refused; only the keeper tries again
  std::atomic<bool> metadata_lost_ = false;

  mutable std::mutex writers_mutex_;  // the lists below; never held for long
  std::vector<std::unique_ptr<WriterState>> writers_;
  std::vector<Chunk*> spare_;  // touched chunks for threads that come

  sem_t wake_;
  std::atomic<bool> stopping_ = false;
  bool closed_ = false;
  std::thread keeper_;
};

// True on a thread that is inside the recorder, or is the keeper: it must not record, because it
// would wait for itself.
extern constinit thread_local bool thread_is_in_recorder;

// What one event costs on this machine, now: the median of a few short runs into memory of our own.
double measure_event_cost_ns();

// Which of the 64-bit counters of the drops chunk counts for this lane. Lanes beyond the table
// share the last one.
inline constexpr uint32_t kDropSlotCount = 4096;
inline uint32_t drop_slot(uint32_t lane) {
  return lane < kDropSlotCount - 1 ? lane : kDropSlotCount - 1;
}

}  // namespace gapless
