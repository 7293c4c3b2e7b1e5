// SPDX-License-Identifier: Apache-2.0
//
// Decoder: a model on a device, as a step that takes rows of tokens and gives logits.
//
// A row is the next token of a sequence. Rows of several sequences make a decode step; several rows
// of one sequence, in their order, make a chunk of its prefill; both may be mixed. Keys and values
// of all rows are written before any row attends, and a row attends to its own past only, so what a
// row gives does not depend, bit for bit, on which rows run with it.

#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "kernels/sampling.h"
#include "model/model_config.h"

namespace gapless {

struct StepRow {
  int sequence = 0;
  int32_t token = 0;
};

// What is wanted of the rows in StepRequest::head_rows.
enum class HeadOutput : uint8_t {
  kTop,     // the top_k largest logits, without storing the rest
  kLogits,  // all of them
};

struct StepRequest {
  std::span<const StepRow> rows;        // 1 .. max_rows()
  std::span<const int> head_rows = {};  // indices into rows, rising; none: the head does not run
  HeadOutput head = HeadOutput::kTop;
  int top_k = 1;
};

// Valid until the next step.
struct StepResult {
  std::span<const Candidate> top;  // kTop: [head row][top_k], best first
  std::span<const float> logits;   // kLogits: [head row][vocabulary]
};

class Decoder {
 public:
  virtual ~Decoder() = default;

  virtual const ModelConfig& config() const = 0;
  virtual int max_rows() const = 0;
  // Tokens that a sequence may have.
  virtual int max_length() const = 0;

  // An empty sequence, or one that begins with the first `length` tokens of `source` (whose pages
  // it shares until one of the two writes to them).
  virtual Result<int> add_sequence() = 0;
  virtual Result<int> fork(int source, int length) = 0;
  virtual void release(int sequence) = 0;
  virtual int length(int sequence) const = 0;
  // Takes tokens back from the end.
  virtual void truncate(int sequence, int length) = 0;

  // A token outside the vocabulary, a sequence that is too long, a cache that is full: an error
  // that says so, and no sequence has changed.
  virtual Result<StepResult> step(const StepRequest& request) = 0;
};

}  // namespace gapless
