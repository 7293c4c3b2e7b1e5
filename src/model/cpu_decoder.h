// SPDX-License-Identifier: Apache-2.0
//
// CpuDecoder: a model on CPU cores. Each step is a replay of a recorded graph (model/step_graph.h);
// graphs are built when a form of step is first asked for; the last few that were used are kept.
//
//   CpuDevice, ModelWeights         the caller's; both outlive the decoder
//   KV pages of each layer          ours, in huge pages, dealt out by a KvPagePool

#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "base/huge_buffer.h"
#include "base/result.h"
#include "kernels/attention_plan.h"
#include "model/decoder.h"
#include "model/fusions.h"
#include "model/kv_page_pool.h"
#include "model/step_graph.h"
#include "model/step_rows.h"
#include "model/weights.h"
#include "runtime/cpu_device.h"
#include "runtime/replay.h"

namespace gapless {

struct CpuDecoderOptions {
  Fusions fusions;  // dual_gate_up must be that of the weights
  CpuLevel level = CpuLevel::kPortable;
  DType kv_dtype = DType::kBf16;  // kF32, kF16, kBf16 or kS8
  int page_tokens = 128;
  int chunk_tokens = kDefaultChunkTokens;
  int max_sequences = 1;
  int max_length = 4096;  // of a sequence
  // Pages of the pool; 0: as many as max_sequences of max_length need.
  int page_count = 0;
  bool shadow = false;  // ReplayOptions::shadow
};

// What the cache of all layers takes, for messages before it is tried.
int64_t kv_cache_bytes(const ModelConfig& config, const CpuDecoderOptions& options);

class CpuDecoder final : public Decoder {
 public:
  static Result<std::unique_ptr<CpuDecoder>> create(CpuDevice& device, const ModelWeights& weights,
                                                    const CpuDecoderOptions& options);

  const ModelConfig& config() const override { return model_.weights->config; }
  int max_rows() const override { return kMaxMatmulRows; }
  int max_length() const override { return options_.max_length; }
  Result<int> add_sequence() override { return pool_.add_sequence(); }
  Result<int> fork(int source, int length) override;
  void release(int sequence) override { pool_.release(sequence); }
  int length(int sequence) const override { return pool_.length(sequence); }
  void truncate(int sequence, int length) override { pool_.truncate(sequence, length); }
  Result<StepResult> step(const StepRequest& request) override;

  // A step without embedding and head: row i is the next token of sequences[i] and has the values
  // x[i] ([rows][hidden]). Gives [rows][hidden] behind the first `layers` layers (0: all), valid
  // until the next step.
  Result<std::span<const float>> step_hidden(std::span<const int> sequences,
                                             std::span<const float> x, int layers = 0);

  // Fills the tokens [length, new_length) of a sequence in every layer with keys and values that
  // nobody computed: N(0, 1) keys, as normed ones are, and values of half of that, from the seed.
  // On an error the sequence has not changed.
  Result<void> fill_sequence(int sequence, int new_length, uint64_t seed);

  // What the sequence's cache holds, as the attention sees it: [head_dim] each.
  void read_token(int layer, int sequence, int token, int kv_head, float* key, float* value) const;

  const CpuDecoderOptions& options() const { return options_; }
  // The attention plan of the last step.
  const AttentionPlan& attention_plan() const { return attention_plan_; }
  // The graph of a form of step, for tests; valid until a step of another form.
  Result<const Graph*> graph(const StepForm& form);
  const StepModel& model() const { return model_; }
  int64_t cache_bytes() const;

 private:
  // The least recently used makes room for a new one.
  static constexpr size_t kMaxGraphs = 32;
  struct Recorded {
    std::unique_ptr<StepJobs> jobs;
    std::unique_ptr<Replay> replay;
    int64_t last_use = 0;
  };
  CpuDecoder(CpuDevice& device, const CpuDecoderOptions& options, KvPagePool pool)
      : device_(device), options_(options), pool_(std::move(pool)) {}
  Result<void> allocate(const ModelWeights& weights);
  void copy_page(int32_t from, int32_t to);
  CopyPage page_copier();
  Result<void> prepare_state(std::span<const StepRow> rows);
  Result<void> run(const StepForm& form, std::span<const StepRow> rows);
  Result<Recorded*> recorded(const StepForm& form);
  KvPages layer_pages(int layer) const;

  CpuDevice& device_;
  CpuDecoderOptions options_;
  KvPagePool pool_;
  StepModel model_;
  AttentionPlan attention_plan_;
  std::vector<HugeBuffer> pages_;  // by layer
  HugeBuffer partials_;
  std::vector<float> hidden_in_;
  std::vector<float> hidden_out_;
  std::vector<Candidate> top_;
  std::vector<float> logits_;
  std::map<StepForm, Recorded> graphs_;
  int64_t use_count_ = 0;
};

}  // namespace gapless
