// SPDX-License-Identifier: Apache-2.0
//
// oneTBB as a peer: a flow graph, task groups with counters, and the way into an idle worker.
//
// Workers are limited by an arena, not by tbb::global_control: that holds for the whole process,
// and the smallest one wins, so peers with one and with two workers could not live side by side.

#include <atomic>
#include <deque>

#include <fmt/core.h>

// Lets a task of a task_group return the task to run next.
#define TBB_PREVIEW_TASK_GROUP_EXTENSIONS 1
#include <tbb/flow_graph.h>
#include <tbb/task_arena.h>
#include <tbb/task_group.h>
#include <tbb/version.h>

#include "base/check.h"
#include "bench/measurement.h"
#include "bench/task_peers.h"

namespace gapless {
namespace {

std::string versioned(const char* what) {
  return fmt::format("oneTBB {}.{} {}", TBB_VERSION_MAJOR, TBB_VERSION_MINOR, what);
}

class FlowGraphPeer final : public TaskPeer {
 public:
  explicit FlowGraphPeer(const TaskPeerArgs& args)
      : shape_(*args.shape), body_(args.body), arena_(args.worker_count) {
    arena_.initialize();
    const int64_t begin_ns = wall_ns();
    // A graph spawns into the arena that it was made in.
    arena_.execute([this] { build(); });
    build_ns_ = static_cast<double>(wall_ns() - begin_ns);
  }

  std::string name() const override { return versioned("flow graph"); }
  double build_ns() const override { return build_ns_; }

  void run() override {
    arena_.execute([this] {
      for (Node* root : roots_) root->try_put(tbb::flow::continue_msg());
      graph_->wait_for_all();
    });
  }

 private:
  using Node = tbb::flow::continue_node<tbb::flow::continue_msg>;

  void build() {
    graph_ = std::make_unique<tbb::flow::graph>();
    for (uint32_t task = 0; task < shape_.task_count; ++task) {
      nodes_.emplace_back(*graph_, [this, task](const tbb::flow::continue_msg& message) {
        body_.function(body_.state, task);
        return message;
      });
      if (shape_.producer_count[task] == 0) roots_.push_back(&nodes_.back());
    }
    for (uint32_t task = 0; task < shape_.task_count; ++task) {
      const uint32_t end = shape_.successor_begin[task + size_t{1}];
      for (uint32_t i = shape_.successor_begin[task]; i < end; ++i) {
        tbb::flow::make_edge(nodes_[task], nodes_[shape_.successors[i]]);
      }
    }
  }

  const TaskShape& shape_;
  TaskBody body_;
  tbb::task_arena arena_;
  std::unique_ptr<tbb::flow::graph> graph_;
  std::deque<Node> nodes_;  // they cannot be moved
  std::vector<Node*> roots_;
  double build_ns_ = 0.0;
};

class TaskGroupPeer final : public TaskPeer {
 public:
  TaskGroupPeer(const TaskPeerArgs& args, ReadySuccessors ready)
      : shape_(*args.shape),
        body_(args.body),
        ready_(ready),
        arena_(args.worker_count),
        waiting_for_(shape_.task_count) {
    arena_.initialize();
  }

  std::string name() const override {
    switch (ready_) {
      case ReadySuccessors::kSpawned:
        return versioned("task_group");
      case ReadySuccessors::kReturned:
        return versioned("task_group, returns a successor");
      case ReadySuccessors::kRunInline:
        return versioned("task_group, successor inline");
    }
    GAPLESS_CHECK(false);
  }

  void run() override {
    for (uint32_t task = 0; task < shape_.task_count; ++task) {
      waiting_for_[task].store(shape_.producer_count[task], std::memory_order_relaxed);
    }
    arena_.execute([this] {
      tbb::task_group group;
      for (uint32_t task = 0; task < shape_.task_count; ++task) {
        if (shape_.producer_count[task] == 0) spawn(group, task);
      }
      group.wait();
    });
  }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;

  void spawn(tbb::task_group& group, uint32_t task) {
    switch (ready_) {
      case ReadySuccessors::kSpawned:
        group.run([this, &group, task] {
          const uint32_t kept = run_task(group, task);
          if (kept != kNone) spawn(group, kept);
        });
        return;
      case ReadySuccessors::kReturned:
        group.run([this, &group, task] { return run_and_return(group, task); });
        return;
      case ReadySuccessors::kRunInline:
        group.run([this, &group, task] {
          uint32_t next = task;
          while (next != kNone) next = run_task(group, next);
        });
        return;
    }
  }

  // Spawns what became ready, but for the last of it, which is returned.
  uint32_t run_task(tbb::task_group& group, uint32_t task) {
    body_.function(body_.state, task);
    uint32_t kept = kNone;
    const uint32_t end = shape_.successor_begin[task + size_t{1}];
    for (uint32_t i = shape_.successor_begin[task]; i < end; ++i) {
      const uint32_t successor = shape_.successors[i];
      if (waiting_for_[successor].fetch_sub(1, std::memory_order_acq_rel) != 1) continue;
      if (kept != kNone) spawn(group, kept);
      kept = successor;
    }
    return kept;
  }

  tbb::task_handle run_and_return(tbb::task_group& group, uint32_t task) {
    const uint32_t kept = run_task(group, task);
    if (kept == kNone) return {};
    return group.defer([this, &group, kept] { return run_and_return(group, kept); });
  }

  const TaskShape& shape_;
  TaskBody body_;
  ReadySuccessors ready_;
  tbb::task_arena arena_;
  std::vector<std::atomic<uint32_t>> waiting_for_;  // producers that have not run
};

}  // namespace

std::unique_ptr<TaskPeer> make_tbb_flow_graph_peer(const TaskPeerArgs& args) {
  return std::make_unique<FlowGraphPeer>(args);
}

std::unique_ptr<TaskPeer> make_tbb_task_group_peer(const TaskPeerArgs& args,
                                                   ReadySuccessors ready) {
  return std::make_unique<TaskGroupPeer>(args, ready);
}

std::vector<double> measure_tbb_latency_ns(int sample_count) {
  // Two places, one of them kept for a thread that calls execute(), which none does.
  tbb::task_arena arena(2, 1);
  arena.initialize();
  std::vector<double> latencies_ns;
  std::atomic<int64_t> start_ns = 0;
  for (int i = 0; i < sample_count; ++i) {
    start_ns.store(0, std::memory_order_relaxed);
    const int64_t submit_ns = wall_ns();
    arena.enqueue([&start_ns] { start_ns.store(wall_ns(), std::memory_order_release); });
    while (start_ns.load(std::memory_order_acquire) == 0) compiler_barrier();
    latencies_ns.push_back(static_cast<double>(start_ns.load() - submit_ns));
    while (wall_ns() - submit_ns < kLatencyIntervalNs) compiler_barrier();
  }
  return latencies_ns;
}

}  // namespace gapless
