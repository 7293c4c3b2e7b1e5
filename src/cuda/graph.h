// SPDX-License-Identifier: Apache-2.0
//
// CudaGraph: launches that were recorded once and are started together, for the cost of one.

#pragma once

#include <functional>
#include <utility>

#include "base/result.h"
#include "cuda/device.h"

namespace gapless {

class CudaGraph {
 public:
  CudaGraph() = default;
  CudaGraph(CudaGraph&& other) noexcept : graph_(std::exchange(other.graph_, nullptr)) {}
  CudaGraph& operator=(CudaGraph&& other) noexcept {
    std::swap(graph_, other.graph_);
    return *this;
  }
  ~CudaGraph();

  // What `start` starts on the stream, which does nothing else meanwhile, becomes the graph;
  // nothing of it runs. An error of `start` is returned.
  static Result<CudaGraph> capture(CudaStream stream,
                                   const std::function<Result<void>(CudaStream)>& start);

  explicit operator bool() const { return graph_ != nullptr; }
  // Starts it; returns before it is done.
  Result<void> launch(CudaStream stream) const;

 private:
  void* graph_ = nullptr;  // a cudaGraphExec_t
};

}  // namespace gapless
