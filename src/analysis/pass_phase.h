// SPDX-License-Identifier: Apache-2.0
//
// What a forward pass was for: prefill, decode, decode with drafts, or a mixture.
//
// Told from the shapes of its attention kernels: T tokens of B sequences. Where a capture has no
// shapes, from the kernels that only one phase has, and with less confidence. What the evidence was
// is said in one sentence; without any, there is no phase.

#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trace/capture_table.h"

namespace gapless {

enum class PassPhase : uint8_t {
  kDecode = 0,       // one token a sequence
  kPrefill = 1,      // many
  kSpeculative = 2,  // one token a sequence and as many again as there are drafts
  kMixed = 3         // some sequences in prefill, the others in decode
};
std::string_view pass_phase_name(PassPhase phase);

struct PhaseGuess {
  std::optional<PassPhase> phase;  // nothing: no evidence
  double confidence = 0.0;         // 0 to 1: 1 when the shapes say so
  std::string evidence;            // "128 tokens of 128 sequences in FusedInferAttentionScore"
  int64_t tokens = -1;             // -1: not known
  int64_t sequences = -1;
  bool is_dummy = false;  // an idle worker's pass: one token, and nothing is sampled
};

// `rows` are those of the pass, drafts included, in order; `anchors` those of them that are the
// main pass's attention kernels.
PhaseGuess guess_phase(const CaptureTable& table, std::span<const uint32_t> rows,
                       std::span<const uint32_t> anchors, uint32_t draft_count);

struct PhaseSigns;  // of pass_phase.cc

// The same for many passes of one table: what a type, a name or a shape says is read once.
class PhaseReader {
 public:
  explicit PhaseReader(const CaptureTable& table);

  PhaseGuess guess(std::span<const uint32_t> rows, std::span<const uint32_t> anchors,
                   uint32_t draft_count);

 private:
  uint16_t type_words(uint32_t type);
  bool is_compiled(uint32_t name);  // its name has the hash of a kernel of a captured graph
  PhaseSigns read_signs(std::span<const uint32_t> rows, std::span<const uint32_t> anchors);

  const CaptureTable& table_;
  std::vector<uint16_t> words_of_type_;  // 0: not read yet
  std::vector<uint8_t> is_compiled_;     // 0: not read yet, 1: no, 2: yes
};

}  // namespace gapless
