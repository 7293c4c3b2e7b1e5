// SPDX-License-Identifier: Apache-2.0
//
// Other runtimes that run our task shapes: oneTBB, OpenMP, and a plain loop as the floor. A peer is
// set up once for a shape and a number of workers and runs the whole shape at each call, so that
// rounds over all peers can be interleaved. Each lies in a file of its own, because each needs its
// own library and flags. A peer whose library was not there at build time is a null pointer.
//
// Idle workers of oneTBB and libgomp spin for milliseconds before they sleep. A benchmark that
// interleaves peers rests in between, or one peer's worker takes the core of the next.

#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bench/task_shapes.h"

namespace gapless {

class TaskPeer {
 public:
  virtual ~TaskPeer() = default;
  virtual std::string name() const = 0;
  // Runs every task of the shape once, each after its producers; returns when all are done.
  virtual void run() = 0;
  // How long it took to build what run() reuses, in wall time; 0 where the library builds nothing.
  virtual double build_ns() const { return 0.0; }
};

struct TaskPeerArgs {
  const TaskShape* shape = nullptr;  // outlives the peer
  int worker_count = 1;              // with the thread that calls run()
  TaskBody body = {};
};

// The floor: one thread, plain counters, a queue of ready tasks. `worker_count` must be 1.
std::unique_ptr<TaskPeer> make_serial_peer(const TaskPeerArgs& args);

// A graph of continue_nodes, built once. run() puts a message into each root and waits.
std::unique_ptr<TaskPeer> make_tbb_flow_graph_peer(const TaskPeerArgs& args);

// How a task of tbb::task_group passes its successors on. The counters are ours.
enum class ReadySuccessors {
  kSpawned,    // all are spawned
  kReturned,   // all but one; that is returned to the scheduler (a preview feature of oneTBB)
  kRunInline,  // all but one; that is run in the same task, which the scheduler does not see
};
std::unique_ptr<TaskPeer> make_tbb_task_group_peer(const TaskPeerArgs& args, ReadySuccessors ready);

// Tasks with depend clauses, which OpenMP cannot keep: each run() submits them all again.
std::unique_ptr<TaskPeer> make_openmp_peer(const TaskPeerArgs& args);

// All that are there, the floor first and only with one worker.
std::vector<std::unique_ptr<TaskPeer>> make_task_peers(const TaskPeerArgs& args);

// From submitting a task to its start on another thread that has nothing else to do, in ns. One
// value a sample; samples are 30 us apart, so that a library's worker is idle but not yet asleep.
// Needs two cores.
std::vector<double> measure_condition_variable_latency_ns(int sample_count);
// tbb::task_arena::enqueue. Empty where oneTBB was not there at build time.
std::vector<double> measure_tbb_latency_ns(int sample_count);

constexpr int64_t kLatencyIntervalNs = 30'000;

}  // namespace gapless
