// SPDX-License-Identifier: Apache-2.0
//
// Shadow mode: do kernels touch only what their tasks declared?
//
// Dependencies come from declarations, so a wrong one is a race that may not show for months. In
// shadow mode a kernel's TensorRefs ask a ShadowChecker before each access. It knows three faults:
// elements outside the declared view, a write through an argument that is only read, a read of an
// argument that is only written before this block has written it. The access is not made; the task
// fails with a sentence that names argument, elements and bytes.
//
// What goes through raw pointers (TaskContext::data) is not seen here; run_serially() finds such
// writes by comparing memory before and after each task.

#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "graph/task_context.h"

namespace gapless {

// The element offsets of a view, counted from its first element: which of them it has.
class ElementSet {
 public:
  explicit ElementSet(const View& view);

  // How many elements in a row from `offset` on are certainly in the set; 0: `offset` is not.
  // Exact for one element. Costs more than a few divisions only where a view overlaps itself.
  int64_t run_from(int64_t offset) const;
  // All elements lie in [first(), first() + extent()).
  int64_t first() const { return first_; }
  int64_t extent() const { return extent_; }

 private:
  struct Dimension {
    int64_t stride = 0;  // at least 1
    int64_t count = 0;   // at least 2
    int64_t reach = 0;   // of the dimensions inside: the largest offset they add
  };
  int64_t run_within(int dimension, int64_t offset) const;

  std::array<Dimension, kMaxRank> dimensions_ = {};  // the largest stride first
  int dimension_count_ = 0;
  int64_t first_ = 0;
  int64_t extent_ = 0;  // 0: the view is empty
};

class ShadowChecker final : public AccessChecker {
 public:
  // Before each block of each task. `arguments` must stay while the block runs. Blocks of a task
  // have no order, so what one has written is not there for another to read, unless they are a
  // gang or the parts of a mixed task, which may wait for each other.
  void begin_task(std::span<const Argument> arguments, bool is_gang = false);
  bool check(int argument, int64_t element_offset, int64_t count, bool is_write) override;
  void* scratch(int64_t bytes) override;
  // The first fault since begin_task(), as a sentence; empty: none.
  const std::string& violation() const { return violation_; }

 private:
  struct Touch {
    int argument = 0;
    int64_t offset = 0;
    int64_t count = 0;
    bool is_write = false;
  };
  // The first element of the touch that the view does not have; past its end: none.
  int64_t first_outside(const Touch& touch) const;
  // The first one that this block has not written; past its end: none.
  int64_t first_unwritten(const Touch& touch) const;
  void note_written(const Touch& touch);
  bool refuse(const Touch& touch, const std::string& why);

  std::span<const Argument> arguments_;
  std::vector<ElementSet> elements_;  // by argument
  // By argument that is only written, from its set's first element on; empty: nothing yet.
  std::vector<std::vector<bool>> written_;
  std::string violation_;
  std::vector<std::vector<std::byte>> scratch_;  // each as large as what was refused
  bool is_gang_ = false;
};

}  // namespace gapless
