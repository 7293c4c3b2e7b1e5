// SPDX-License-Identifier: Apache-2.0

#include "cuda/graph.h"

#include <cuda_runtime.h>

namespace gapless {

CudaGraph::~CudaGraph() {
  if (graph_ != nullptr)
    static_cast<void>(cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph_)));
}

Result<CudaGraph> CudaGraph::capture(CudaStream stream,
                                     const std::function<Result<void>(CudaStream)>& start) {
  const cudaStream_t cuda_stream = static_cast<cudaStream_t>(stream);
  GAPLESS_TRY(check_cuda(cudaStreamBeginCapture(cuda_stream, cudaStreamCaptureModeThreadLocal),
                         "beginning to capture a graph"));
  Result<void> started = start(stream);
  cudaGraph_t graph = nullptr;
  // The capture ends in any case: a stream that still captures is of no use to anybody.
  Result<void> ended = check_cuda(cudaStreamEndCapture(cuda_stream, &graph), "capturing a graph");
  CudaGraph result;
  cudaGraphExec_t executable = nullptr;
  Result<void> made = {};
  if (started && ended)
    made = check_cuda(cudaGraphInstantiate(&executable, graph, 0), "making a graph executable");
  if (graph != nullptr) static_cast<void>(cudaGraphDestroy(graph));
  if (!started) return std::move(started).error();
  if (!ended) return std::move(ended).error();
  if (!made) return std::move(made).error();
  result.graph_ = executable;
  return result;
}

Result<void> CudaGraph::launch(CudaStream stream) const {
  return check_cuda(
      cudaGraphLaunch(static_cast<cudaGraphExec_t>(graph_), static_cast<cudaStream_t>(stream)),
      "launching a graph");
}

}  // namespace gapless
