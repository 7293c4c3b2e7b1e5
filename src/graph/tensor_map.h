// SPDX-License-Identifier: Apache-2.0
//
// TensorMap: who wrote and who read which part of which buffer, and so who must wait for whom.
//
// One node for each distinct view that is in use. A node knows its last writer, the readers since,
// and its neighbours: the nodes whose bytes overlap its own. The usual access finds its node by a
// hash of the view's 64 bytes and walks the neighbours, whatever the number of other views of the
// buffer. A view that was never seen asks a grid of cells for its neighbours, once.
//
// A read waits for the writers (data); a write waits for the readers, or the writer where nobody
// read (order), and then stands for all that it covers and for all that was there before it.
// Overlap is exact for rectangles and safe otherwise: see graph/region.h.
//
// Tasks are opaque 64-bit tags, any but ~0. One thread uses a map; nothing is locked.

#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "graph/region.h"
#include "graph/task.h"
#include "trace/trace.h"

namespace gapless {

struct Dependency {
  uint64_t task = 0;
  EdgeKind kind = EdgeKind::kData;
};

struct TensorMapStats {
  uint64_t node_count = 0;      // distinct views held now
  uint64_t created_count = 0;   // since the beginning
  uint64_t compared_count = 0;  // pairs of regions that were compared
  uint64_t swept_count = 0;     // nodes dropped because nobody can wait for them any more
  uint64_t memory_bytes = 0;
};

class TensorMap {
 public:
  // Whether a task may still have to be waited for. A map with a filter forgets views and readers
  // whose tasks are done when it grows; one without remembers all.
  using IsLive = bool (*)(const void* owner, uint64_t task);

  explicit TensorMap(IsLive is_live = nullptr, const void* owner = nullptr);
  ~TensorMap();
  TensorMap(TensorMap&&) noexcept;
  TensorMap& operator=(TensorMap&&) noexcept;

  // Appends to `found` the tasks that `task` must wait for because of its arguments, then enters
  // it. May append one task several times, never `task` itself. All views must be valid.
  void access(uint64_t task, std::span<const Argument> arguments, std::vector<Dependency>& found);

  // The buffer is gone: forgets all its views.
  void forget(BufferId buffer);

  TensorMapStats stats() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace gapless
