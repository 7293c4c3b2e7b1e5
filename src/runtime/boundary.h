// SPDX-License-Identifier: Apache-2.0
//
// Boundary: the caller's memory as a recorded graph sees it, and the contract about it.
//
// Addresses may change from step to step; sizes may not, and neither may what aliases what: edges
// were found under the assumption that different buffers are different memory. So a buffer that the
// graph writes must not touch any other one, and every address must suit the element types of the
// views on it. Checked whenever an address changed; otherwise the check costs one comparison.

#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "graph/graph.h"

namespace gapless {

struct Binding {
  BufferId buffer;
  void* data = nullptr;
  int64_t bytes = 0;
};

class Boundary {
 public:
  explicit Boundary(const Graph& graph);

  // Takes the addresses and checks the contract for all buffers of the caller. On an error nothing
  // is bound anew.
  Result<void> bind(const Graph& graph, std::span<const Binding> bindings);

  bool is_used(size_t buffer) const { return is_used_[buffer]; }

  // By buffer index; intermediates are filled in by the owner.
  std::vector<std::byte*>& addresses() { return addresses_; }
  const std::vector<std::byte*>& addresses() const { return addresses_; }

 private:
  struct Range {
    const std::byte* begin;
    const std::byte* end;
    size_t buffer;
  };
  Result<void> check(const Graph& graph) const;
  Result<void> check_aliases(const Graph& graph, std::vector<Range> ranges) const;

  std::vector<std::byte*> addresses_;
  std::vector<int64_t> alignments_;  // by buffer: of the largest element type that is used
  std::vector<bool> is_written_;     // by buffer
  std::vector<bool> is_used_;
  bool is_checked_ = false;
};

}  // namespace gapless
