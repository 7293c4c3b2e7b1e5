// SPDX-License-Identifier: Apache-2.0
//
// OpenMP as a peer: one thread of the team submits all tasks in ascending order. A task writes its
// own token and reads those of its producers, and the library finds the edges by their addresses.
// Compiled with the compiler's OpenMP flag, which no other file needs.

#include "bench/task_peers.h"

namespace gapless {
namespace {

class OpenmpPeer final : public TaskPeer {
 public:
  explicit OpenmpPeer(const TaskPeerArgs& args)
      : shape_(*args.shape),
        body_(args.body),
        worker_count_(args.worker_count),
        producer_begin_(shape_.task_count + size_t{1}),
        producer_tokens_(shape_.successors.size()),
        tokens_(shape_.task_count) {
    list_producer_tokens();
  }

  std::string name() const override { return "OpenMP tasks with depend"; }

  // The barrier at the end of the region waits for all tasks. `master` rather than `single`: the
  // caller submits in every run; with `single` LeakSanitizer now and then finds 136 bytes that
  // libgomp 12 lost.
  void run() override {
#pragma omp parallel num_threads(worker_count_)
#pragma omp master
    for (uint32_t task = 0; task < shape_.task_count; ++task) submit(task);
  }

 private:
  void list_producer_tokens() {
    for (size_t task = 0; task < shape_.task_count; ++task) {
      producer_begin_[task + 1] = producer_begin_[task] + shape_.producer_count[task];
    }
    std::vector<uint32_t> place(producer_begin_.begin(), producer_begin_.end() - 1);
    for (uint32_t task = 0; task < shape_.task_count; ++task) {
      const uint32_t end = shape_.successor_begin[task + size_t{1}];
      for (uint32_t i = shape_.successor_begin[task]; i < end; ++i) {
        producer_tokens_[place[shape_.successors[i]]++] = &tokens_[task];
      }
    }
  }

  // Not inline: the compiler keeps the list of dependencies on the stack of this function until it
  // returns.
  // NOLINTBEGIN(clang-analyzer-deadcode.DeadStores): it does not look into depend clauses.
  [[gnu::noinline]] void submit(uint32_t task) {
    const TaskBody* body = &body_;  // clang 14 crashes where a task copies a pointer to a function
    const char* const* inputs = producer_tokens_.data();
    const uint32_t begin = producer_begin_[task];
    const uint32_t end = producer_begin_[task + size_t{1}];
    char* output = &tokens_[task];
#pragma omp task depend(out : *output) depend(iterator(uint32_t i = begin : end), in : *inputs[i])
    body->function(body->state, task);
  }
  // NOLINTEND(clang-analyzer-deadcode.DeadStores)

  const TaskShape& shape_;
  TaskBody body_;
  int worker_count_;
  std::vector<uint32_t> producer_begin_;  // task_count + 1 places in `producer_tokens_`
  std::vector<const char*> producer_tokens_;
  std::vector<char> tokens_;  // only their addresses count
};

}  // namespace

std::unique_ptr<TaskPeer> make_openmp_peer(const TaskPeerArgs& args) {
  return std::make_unique<OpenmpPeer>(args);
}

}  // namespace gapless
