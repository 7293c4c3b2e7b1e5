// SPDX-License-Identifier: Apache-2.0
//
// GraphBuilder: records tasks into a Graph and finds the edges between them.
//
//   GraphBuilder builder;
//   const KernelId norm = GAPLESS_TRY(builder.add_kernel("rms_norm", rms_norm_task));
//   const BufferId x = GAPLESS_TRY(builder.add_buffer({.name = "x", .bytes = 4096}));
//   GAPLESS_TRY(builder.add_task({.kernel = norm, .arguments = arguments}));
//   Graph graph = GAPLESS_TRY(builder.finish());
//
// add_task copies what it is given and asks the tensor map who must come before: about 100 ns where
// memory was touched before.

#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/task.h"
#include "graph/tensor_map.h"

namespace gapless {

struct GraphBuilderOptions {
  // Drop edges that longer paths imply: see graph/reduce_edges.h.
  bool reduce_edges = true;
  // Takes the memory for so many tasks at once; more are possible. Growing costs more than the rest
  // of add_task, because each time all that is there moves to pages that were never touched.
  uint32_t expected_tasks = 0;
};

// What a sink knows of a buffer when a task names it. bytes < 0: there is no such buffer.
struct BufferFacts {
  int64_t bytes = -1;
  BufferKind kind = BufferKind::kIntermediate;
  std::string_view name = {};
};

class GraphBuilder final : public TaskSink {
 public:
  explicit GraphBuilder(const GraphBuilderOptions& options = {});

  Result<KernelId> add_kernel(std::string name, KernelFunction run);
  Result<BufferId> add_buffer(const BufferSpec& spec) override;
  Result<TaskId> add_task(const TaskSpec& spec) override;
  void begin_scope() override;
  Result<void> end_scope() override;

  uint32_t task_count() const { return graph_.task_count(); }
  // The graph; the builder is empty afterwards. A scope that was not ended is an error, after which
  // the builder is as before.
  Result<Graph> finish();

 private:
  Result<void> check(const TaskSpec& spec) const;
  BufferFacts facts_of(BufferId buffer) const;
  bool has_ended(uint32_t scope) const;
  std::span<const Argument> tracked(std::span<const Argument> arguments);
  void add_edge(uint32_t producer, uint32_t consumer, EdgeKind kind);

  GraphBuilderOptions options_;
  Graph graph_;
  TensorMap map_;
  std::vector<uint32_t> open_scopes_;  // by depth
  std::vector<GraphEdge> edges_;       // by consumer
  // Of each producer, one past its newest edge; 0: it has none. Joins duplicates.
  std::vector<uint32_t> edge_after_;
  // Of the task being added; kept for their memory.
  std::vector<Dependency> found_;
  std::vector<Argument> tracked_;
};

// The rules that every sink applies to what it is given: a kernel, a core kind and a comparison
// that exist; argument, scalar and block counts and cost hints in range.
Result<void> check_task(const TaskSpec& spec, const KernelTable& kernels);
// True for most views that are right, at a fraction of the cost of check_argument: no negative
// stride, no empty dimension, small numbers. False: ask check_argument.
inline bool is_plainly_inside(const View& view, int64_t buffer_bytes) {
  constexpr int64_t kSmallStride = int64_t{1} << 28;  // times an extent, times four: below 2^61
  constexpr int64_t kSmallOffset = int64_t{1} << 60;
  bool is_plain = view.offset >= 0 && view.offset < kSmallOffset && view.rank <= kMaxRank &&
                  static_cast<int>(view.dtype) < kDTypeCount;
  int64_t last = is_plain ? view.offset : 0;
  for (size_t i = 0; i < static_cast<size_t>(kMaxRank); ++i) {
    const int64_t extent = view.shape[i];
    const int64_t stride = view.strides[i];
    if (i < view.rank) {
      is_plain &= extent >= 1 && stride >= 0 && stride < kSmallStride;
      last += (extent - 1) * (stride & (kSmallStride - 1));
    } else {
      is_plain &= extent == 0 && stride == 0;
    }
  }
  // Sizes of elements are powers of two; a division would cost as much as all the rest.
  return is_plain &&
         last < buffer_bytes >> std::countr_zero(static_cast<uint64_t>(dtype_bytes(view.dtype)));
}

// Type, rank and shape in range, every element within the buffer, no write to a constant. An extent
// of 0 is allowed. The message names kernel, argument, buffer and the numbers.
Result<void> check_argument(const TaskSpec& spec, int argument, const KernelTable& kernels,
                            const BufferFacts& buffer);

}  // namespace gapless
