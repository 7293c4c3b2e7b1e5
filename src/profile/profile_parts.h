// SPDX-License-Identifier: Apache-2.0
//
// What profiles of both devices share: the sequences of a step, the check against the reference,
// the limits of a plan, and what a recording says.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/result.h"
#include "kernels/kv_cache.h"
#include "model/decoder.h"
#include "model/layer_reference.h"
#include "profile/profile.h"
#include "trace/trace.h"

namespace gapless {

// At least one sequence and one step, lengths that the decoder has room for.
Result<void> check_profile_options(const ProfileOptions& options, const Decoder& decoder);

// The sequences of a step and what it is given. They are released at the end.
class StepInput {
 public:
  // Fills the tokens of a sequence up to `new_length`: the decoder's fill_sequence.
  using Fill = std::function<Result<void>(int sequence, int new_length, uint64_t seed)>;

  explicit StepInput(Decoder& decoder) : decoder_(decoder) {}
  ~StepInput();
  StepInput(const StepInput&) = delete;
  StepInput& operator=(const StepInput&) = delete;

  // One sequence for each length, with one token less than that.
  Result<void> add(const ProfileOptions& options, const Fill& fill);
  // Takes all of them back to that.
  void take_back();

  std::span<const int> sequences() const { return sequences_; }
  std::span<const float> x() const { return x_; }  // [rows][hidden], N(0, 1)
  // A random token for each, and the largest logit of each.
  StepRequest request() const { return {.rows = rows_, .head_rows = head_rows_}; }

 private:
  Decoder& decoder_;
  std::vector<int32_t> lengths_;
  std::vector<int> sequences_;
  std::vector<StepRow> rows_;
  std::vector<int> head_rows_;
  std::vector<float> x_;
};

// A decoder's cache as the reference sees it: the past from the decoder, the step's own tokens from
// the reference, cast as the cache would.
class PastCache final : public ReferenceCache {
 public:
  // The key and the value of a token that the row's sequence has; called by several threads.
  using ReadToken =
      std::function<void(int layer, int row, int32_t token, int kv_head, float* key, float* value)>;

  PastCache(const KvShape& shape, std::span<const int32_t> lengths, ReadToken read);

  void store(int layer, int row, int kv_head, const float* key, const float* value) override;
  void load(int layer, int row, int kv_head, float* keys, float* values) const override;

 private:
  KvPages own_pages() const;

  KvShape shape_;
  std::span<const int32_t> lengths_;
  ReadToken read_;
  mutable std::vector<std::byte> own_;  // a page a row, of which one token is used
};

// How close the first layer's values are; an error when one is not finite, or too many are outside
// the tolerance.
Result<Closeness> check_first_layer(std::span<const float> values, std::span<const double> expected,
                                    const ProfileOptions& options);

// The first layer of a decoder that has just run it, for the reference. `read`: as PastCache wants.
struct FirstLayer {
  const ModelConfig* config = nullptr;
  const LayerWeights* weights = nullptr;
  KvShape kv;
  int chunk_tokens = 0;
  bool deferred_norm = false;
  PastCache::ReadToken read;
};
// Of a decoder on CPU cores; both outlive it.
FirstLayer first_layer_of(const CpuDecoder& decoder, const StepInput& input);
// The layer in double precision on `thread_count` threads, and how close the values are to it.
Result<Closeness> check_against_reference(const FirstLayer& layer, const StepInput& input,
                                          std::span<const float> values,
                                          const ProfileOptions& options, int thread_count);

// Sums of the kernels of the layer.
void add_up(ProfilePlan& plan);
// Bytes, operations and limit of a step, from the plan, the layers and the limits that are there.
void count_step(ProfileResult& result);

// The first ones, or the mean of those that are there and these.
void take_limits(std::optional<MachineLimits>& limits, const MachineLimits& now);
// What whoever reads the trace needs for its roofline; nothing without limits.
std::vector<Property> limit_properties(const ProfileResult& result);

// Busy lanes and the table of the step whose length is the median. Error when there is no step.
Result<void> read_recorded_steps(const Trace& trace, const std::vector<uint32_t>& lanes,
                                 ProfileResult& result);

}  // namespace gapless
