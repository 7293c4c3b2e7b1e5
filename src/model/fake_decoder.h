// SPDX-License-Identifier: Apache-2.0
//
// FakeDecoder: a Decoder whose answer is obvious, for tests of what stands on top of one.
//
// The logits behind a token are a plain function of the sequence up to it. Everything that the
// interface forbids is a failure of the test: rows that do not exist, a sequence that is not live,
// a result that is read after the next step (it is overwritten with NaN and -1). What the interface
// lets happen (a full cache, a token outside the vocabulary) is an error, and nothing has changed.

#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <span>
#include <vector>

#include <gtest/gtest.h>

#include "base/result.h"
#include "kernels/sampling.h"
#include "model/decoder.h"
#include "model/model_config.h"

namespace gapless {

// Fills the logits of what comes behind `tokens`.
using FakeModel = std::function<void(std::span<const int32_t> tokens, std::span<float> logits)>;

// The next token is (3 x last + the one before + 1) mod vocabulary; the others get a logit that
// falls with their distance from it.
inline void chain_model(std::span<const int32_t> tokens, std::span<float> logits) {
  const int32_t before = tokens.size() > 1 ? tokens[tokens.size() - 2] : 0;
  const size_t size = logits.size();
  const size_t next = static_cast<size_t>(3 * tokens.back() + before + 1) % size;
  for (size_t i = 0; i < size; ++i) {
    logits[(next + i) % size] = -0.5f * static_cast<float>(i);
  }
}

struct FakeDecoderOptions {
  int vocabulary = 50;
  int max_rows = 8;
  int max_length = 32;
  int max_sequences = 8;
  int max_total_tokens = 1 << 20;  // of all sequences together
  int failing_step = -1;           // this step (from 0) is an error
  FakeModel model = chain_model;
};

// What a step was asked for.
struct FakeStep {
  std::vector<int> row_sequences;
  std::vector<int> head_rows;
  HeadOutput head = HeadOutput::kTop;
  int top_k = 0;
};

class FakeDecoder final : public Decoder {
 public:
  explicit FakeDecoder(FakeDecoderOptions options) : options_(std::move(options)) {
    config_.name = "fake";
    config_.vocabulary = options_.vocabulary;
  }

  const ModelConfig& config() const override { return config_; }
  int max_rows() const override { return options_.max_rows; }
  int max_length() const override { return options_.max_length; }

  Result<int> add_sequence() override {
    if (live_count() == options_.max_sequences)
      return fail(ErrorCode::kInvalidInput, "all {} sequences are in use", options_.max_sequences);
    int id = 0;
    while (sequences_.contains(id)) ++id;
    sequences_[id] = {};
    return id;
  }

  Result<int> fork(int source, int length) override {
    EXPECT_LE(length, this->length(source));
    const int id = GAPLESS_TRY(add_sequence());
    const std::vector<int32_t>& tokens = sequences_.at(source);
    sequences_[id].assign(tokens.begin(), tokens.begin() + length);
    return id;
  }

  void release(int sequence) override {
    EXPECT_EQ(sequences_.erase(sequence), 1u) << "sequence " << sequence << " is not live";
  }

  int length(int sequence) const override {
    EXPECT_TRUE(sequences_.contains(sequence)) << "sequence " << sequence << " is not live";
    return static_cast<int>(sequences_.at(sequence).size());
  }

  void truncate(int sequence, int length) override {
    EXPECT_LE(length, this->length(sequence));
    sequences_.at(sequence).resize(static_cast<size_t>(length));
  }

  Result<StepResult> step(const StepRequest& request) override {
    spoil_last_result();
    check_contract(request);
    const Result<void> possible = check_possible(request);
    if (!possible) return possible.error();
    std::vector<std::vector<float>> logits;
    size_t next_head = 0;
    for (size_t row = 0; row < request.rows.size(); ++row) {
      std::vector<int32_t>& tokens = sequences_.at(request.rows[row].sequence);
      tokens.push_back(request.rows[row].token);
      if (next_head == request.head_rows.size()) continue;
      if (request.head_rows[next_head] != static_cast<int>(row)) continue;
      ++next_head;
      logits.emplace_back(static_cast<size_t>(options_.vocabulary));
      options_.model(tokens, logits.back());
    }
    return give(request, logits);
  }

  int live_count() const { return static_cast<int>(sequences_.size()); }
  const std::vector<FakeStep>& steps() const { return steps_; }

 private:
  void spoil_last_result() {
    for (Candidate& candidate : top_) {
      candidate = {std::numeric_limits<float>::quiet_NaN(), -1};
    }
    for (float& logit : logits_) logit = std::numeric_limits<float>::quiet_NaN();
  }

  void check_contract(const StepRequest& request) {
    FakeStep step{.row_sequences = {},
                  .head_rows = {request.head_rows.begin(), request.head_rows.end()},
                  .head = request.head,
                  .top_k = request.top_k};
    EXPECT_GE(request.rows.size(), 1u);
    EXPECT_LE(static_cast<int>(request.rows.size()), options_.max_rows);
    for (const StepRow& row : request.rows) {
      EXPECT_TRUE(sequences_.contains(row.sequence)) << row.sequence << " is not live";
      step.row_sequences.push_back(row.sequence);
    }
    for (size_t i = 0; i < request.head_rows.size(); ++i) {
      EXPECT_GE(request.head_rows[i], i == 0 ? 0 : request.head_rows[i - 1] + 1);
      EXPECT_LT(request.head_rows[i], static_cast<int>(request.rows.size()));
    }
    EXPECT_GE(request.top_k, 1);
    EXPECT_LE(request.top_k, options_.vocabulary);
    steps_.push_back(std::move(step));
  }

  Result<void> check_possible(const StepRequest& request) const {
    if (static_cast<int>(steps_.size()) - 1 == options_.failing_step)
      return fail(ErrorCode::kSystem, "step {} fails, as the test wants", options_.failing_step);
    std::map<int, int> lengths;
    size_t total = request.rows.size();
    for (const auto& [id, tokens] : sequences_) {
      lengths[id] = static_cast<int>(tokens.size());
      total += tokens.size();
    }
    for (const StepRow& row : request.rows) {
      if (row.token < 0 || row.token >= options_.vocabulary)
        return fail(ErrorCode::kInvalidInput, "token {} is outside the vocabulary of {}", row.token,
                    options_.vocabulary);
      if (++lengths[row.sequence] > options_.max_length)
        return fail(ErrorCode::kInvalidInput, "sequence {} is longer than {} tokens", row.sequence,
                    options_.max_length);
    }
    if (static_cast<int>(total) > options_.max_total_tokens)
      return fail(ErrorCode::kInvalidInput, "the cache is full");
    return {};
  }

  // In memory of its own for each step: what was given before must not come to life again.
  StepResult give(const StepRequest& request, const std::vector<std::vector<float>>& rows) {
    std::vector<Candidate> top;
    std::vector<float> logits;
    for (const std::vector<float>& row : rows) {
      if (request.head == HeadOutput::kLogits) {
        logits.insert(logits.end(), row.begin(), row.end());
        continue;
      }
      std::vector<Candidate> best(static_cast<size_t>(request.top_k));
      take_top(CpuLevel::kPortable, row, 0, best);
      top.insert(top.end(), best.begin(), best.end());
    }
    spoilt_top_.push_back(std::move(top_));
    spoilt_logits_.push_back(std::move(logits_));
    top_ = std::move(top);
    logits_ = std::move(logits);
    return {.top = top_, .logits = logits_};
  }

  FakeDecoderOptions options_;
  ModelConfig config_;
  std::map<int, std::vector<int32_t>> sequences_;
  std::vector<FakeStep> steps_;
  std::vector<Candidate> top_;
  std::vector<float> logits_;
  std::vector<std::vector<Candidate>> spoilt_top_;
  std::vector<std::vector<float>> spoilt_logits_;
};

}  // namespace gapless
