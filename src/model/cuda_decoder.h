// SPDX-License-Identifier: Apache-2.0
//
// CudaDecoder: a model on an NVIDIA GPU. Each form of step is a CUDA graph of the launches that
// model/cuda_step.h lists, captured when it is first asked for; the last few are kept. Lengths,
// pages and tokens are read on the device, so that a graph follows sequences as they grow.
//
// What it computes is what CpuDecoder does, with the same cast points: what goes into a projection
// is bf16 or s8, keys, values, q and probabilities have the cache's type, the rest is f32.

#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "cuda/device.h"
#include "cuda/graph.h"
#include "cuda/recorder.h"
#include "cuda/stream.h"
#include "kernels/sampling.h"
#include "model/cuda_step.h"
#include "model/cuda_weights.h"
#include "model/decoder.h"
#include "model/fusions.h"
#include "model/kv_page_pool.h"
#include "model/step_rows.h"

namespace gapless {

struct CudaDecoderOptions {
  Fusions fusions = default_cuda_fusions();  // dual_gate_up must be that of the weights
  DType kv_dtype = DType::kBf16;             // bf16 or f16
  int page_tokens = 128;
  int chunk_tokens = kDefaultChunkTokens;
  int max_sequences = 1;
  int max_length = 4096;     // of a sequence
  int page_count = 0;        // of the pool; 0: as many as max_sequences of max_length need
  bool starts_early = true;  // launches overlap (programmatic dependent launch)
};

// What the cache of all layers takes.
int64_t cuda_kv_cache_bytes(const ModelConfig& config, const CudaDecoderOptions& options);
// What a decoder takes of the device's memory beside its weights, at most: the cache, and what
// steps need.
int64_t cuda_decoder_bytes(const ModelConfig& config, const WeightOptions& weights,
                           const CudaDecoderOptions& options);
// Whether weights of so many bytes and a decoder have room in the device's memory. The error says
// what of it to make smaller.
Result<void> check_cuda_decoder_memory(const ModelConfig& config, const WeightOptions& weights,
                                       const CudaDecoderOptions& options, int64_t weight_bytes,
                                       const CudaMemory& memory);

class CudaDecoder final : public Decoder {
 public:
  // The weights outlive the decoder.
  static Result<std::unique_ptr<CudaDecoder>> create(const CudaModelWeights& weights,
                                                     const CudaDecoderOptions& options);

  const ModelConfig& config() const override { return model_.weights().config; }
  int max_rows() const override { return model_.max_rows(); }
  int max_length() const override { return options_.max_length; }
  Result<int> add_sequence() override { return pool_.add_sequence(); }
  Result<int> fork(int source, int length) override;
  void release(int sequence) override {
    last_form_.reset();
    pool_.release(sequence);
  }
  int length(int sequence) const override { return pool_.length(sequence); }
  void truncate(int sequence, int length) override {
    last_form_.reset();
    pool_.truncate(sequence, length);
  }
  Result<StepResult> step(const StepRequest& request) override;

  // As CpuDecoder's.
  Result<std::span<const float>> step_hidden(std::span<const int> sequences,
                                             std::span<const float> x, int layers = 0);
  // The same values as CpuDecoder's, made on the device.
  Result<void> fill_sequence(int sequence, int new_length, uint64_t seed);

  // What is left of the last step's rows behind its layers: [rows][hidden].
  Result<std::vector<float>> copy_hidden() const;

  // The last step `count` times again, if nothing else was done with the decoder since: one behind
  // the other and without the host in between: the same rows at the same places, so that every one
  // does the same work. Gives the seconds of each on the device, from the end of the one before it
  // (of a first one that does not count). Clocks fall in a pause: `warm_count` steps run, and have
  // ended, right before those that count.
  Result<std::vector<double>> repeat_step(int count, int warm_count = 0);
  // The same with launches that record; what the warm ones recorded is forgotten, and the first one
  // behind them does not count. The newest recording is kept for take_recording(). Of many steps
  // the first ones are recorded: as many as kMaxRecordingBytes hold.
  Result<std::vector<double>> repeat_step_recorded(int count, RecordLevel level,
                                                   int warm_count = 0);
  Result<DeviceRecording> take_recording();
  // Launches of the last step, in their order, as they were for its lengths.
  std::vector<CudaNode> last_nodes() const;

  // A copy of what a layer's pages hold, as cuda/kv_pages.h lays it out.
  Result<std::vector<std::byte>> copy_layer_pages(int layer) const;
  std::span<const int32_t> sequence_pages(int sequence) const { return pool_.pages(sequence); }
  const KvShape& kv_shape() const { return model_.options().kv; }

  const CudaModelWeights& weights() const { return model_.weights(); }
  const CudaDecoderOptions& options() const { return options_; }
  int64_t cache_bytes() const { return cuda_kv_cache_bytes(config(), options_); }

 private:
  static constexpr size_t kMaxGraphs = 32;
  static constexpr int64_t kMaxRecordingBytes = int64_t{1} << 30;
  struct Captured {
    CudaGraph graph;
    int64_t last_use = 0;
  };
  struct Recording {
    CudaRecorder recorder;
    std::vector<HostStep> host_steps;
  };

  CudaDecoder(const CudaDecoderOptions& options, KvPagePool pool, OwnedCudaStream stream,
              CudaStepModel model)
      : options_(options),
        pool_(std::move(pool)),
        stream_(std::move(stream)),
        model_(std::move(model)) {}
  CopyPage page_copier();
  Result<void> fill_tokens(int sequence, int first_token, uint64_t seed);
  Result<void> write_inputs(std::span<const StepRow> rows, std::span<const int> head_rows);
  Result<const CudaGraph*> captured(const CudaStepForm& form);
  Result<void> start(const StepForm& form, std::span<const StepRow> rows,
                     std::span<const int> head_rows);
  Result<void> run(const StepForm& form, std::span<const StepRow> rows,
                   std::span<const int> head_rows);
  Result<std::span<const float>> read_logits(int64_t rows);
  Result<StepResult> read_head(const StepRequest& request);
  Result<void> warm_up(const CudaGraph& graph, int count);
  Result<std::vector<double>> time_launches(const CudaGraph& graph, int count,
                                            std::vector<HostStep>* host_steps);

  CudaDecoderOptions options_;
  KvPagePool pool_;
  OwnedCudaStream stream_;
  CudaStepModel model_;
  PinnedBuffer inputs_;
  std::map<CudaStepForm, Captured> graphs_;
  int64_t use_count_ = 0;
  std::optional<CudaStepForm> last_form_;
  std::vector<int32_t> lengths_;  // of the last step's rows
  std::optional<Recording> recording_;
  std::vector<float> hidden_out_;
  PinnedBuffer logits_;
  std::vector<Candidate> top_;
};

}  // namespace gapless
