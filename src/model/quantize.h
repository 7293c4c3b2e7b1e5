// SPDX-License-Identifier: Apache-2.0
//
// quantize_checkpoint: a checkpoint whose projections are s8, made of one in bf16, f16 or f32.
//
//   config.json                    the source's, and quantization_config: what was done
//   model-0000i-of-0000n           matrices of layers as I8, everything else as it was
//   the last of them               "<name>_scale", F32, one for each row of each matrix
//   model.safetensors.index.json   and the tokenizer's and generation's files, when there
//
// The integers and scales are those that load_weights makes of the source, bit for bit. Rows stream
// through a few MiB. The folder appears when it is complete, or not at all.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "model/checkpoint.h"

namespace gapless {

struct QuantizeOptions {
  std::string folder;                   // to write; it must not exist or be empty
  bool replace = false;                 // or be another checkpoint, which goes
  int64_t shard_bytes = 4'000'000'000;  // of a file, unless one tensor is larger
  int thread_count = 0;                 // 0: one for each CPU we may use
  Progress progress = {};               // counts bytes of the source
};

// How far a row's numbers are from what they were: |w - q scale| / |w|, both lengths of vectors.
struct RowError {
  double relative = 0.0;
  std::string tensor;
  int64_t row = 0;
};

struct QuantizeSummary {
  std::string folder;        // as it is now
  int matrix_count = 0;      // now s8
  int other_count = 0;       // as they were
  int file_count = 0;        // of weights
  int64_t source_bytes = 0;  // of the tensors, without headers
  int64_t written_bytes = 0;
  RowError largest_error;             // of all rows of all matrices
  std::vector<std::string> left_out;  // tensors of a type that we do not know
};

Result<QuantizeSummary> quantize_checkpoint(const Checkpoint& source,
                                            const QuantizeOptions& options);

}  // namespace gapless
