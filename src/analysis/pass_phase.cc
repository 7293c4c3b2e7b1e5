// SPDX-License-Identifier: Apache-2.0

#include "analysis/pass_phase.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <fmt/format.h>

#include "analysis/attention_shape.h"

namespace gapless {
namespace {

// What a type says.
constexpr uint16_t kIsRead = 1 << 0;
constexpr uint16_t kAttention = 1 << 1;
constexpr uint16_t kLargeMatMul = 1 << 2;
constexpr uint16_t kAllReduce = 1 << 3;
constexpr uint16_t kReduceScatter = 1 << 4;
constexpr uint16_t kAllGather = 1 << 5;
constexpr uint16_t kChunked = 1 << 6;    // linear attention to many tokens of a sequence
constexpr uint16_t kRecurrent = 1 << 7;  // the same to one token
constexpr uint16_t kSampling = 1 << 8;
constexpr uint16_t kPrefillOnly = 1 << 9;
constexpr uint16_t kDecodeOnly = 1 << 10;

struct TypeWord {
  std::string_view text;  // in lower case
  uint16_t word = 0;
};
constexpr TypeWord kWords[] = {
    {"matmulv3", kLargeMatMul},
    {"allreduce", kAllReduce},
    {"all_reduce", kAllReduce},
    {"reducescatter", kReduceScatter},
    {"reduce_scatter", kReduceScatter},
    {"allgather", kAllGather},
    {"all_gather", kAllGather},
    {"chunk", kChunked},
    {"causal_conv1d_fwd", kChunked},
    {"recurrent", kRecurrent},
    {"causal_conv1d_update", kRecurrent},
    {"argmax", kSampling},
    {"applytopktopp", kSampling},
    {"dsarandom", kSampling},
    {"multinomial", kSampling},
    {"sample", kSampling},
    {"sampling", kSampling},
};

// A draft adds so many tokens to a sequence at most.
constexpr int64_t kMostDrafts = 8;
constexpr size_t kHashDigits = 32;

uint16_t read_type(std::string_view type) {
  std::string lower(type);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  uint32_t words = kIsRead;
  for (const TypeWord& word : kWords) {
    if (lower.find(word.text) != std::string::npos) words |= word.word;
  }
  // A quantised matrix multiplication of that number is used in all phases.
  if (lower.find("quantbatchmatmul") != std::string::npos) words &= ~uint32_t{kLargeMatMul};
  if (const AttentionInputs* inputs = attention_inputs(type); inputs != nullptr) {
    words |= kAttention;
    if (inputs->use == AttentionUse::kPrefillOnly) words |= kPrefillOnly;
    if (inputs->use == AttentionUse::kDecodeOnly) words |= kDecodeOnly;
  }
  return static_cast<uint16_t>(words);
}

bool has_hash(std::string_view name) {
  size_t digits = 0;
  for (const char c : name) {
    const bool is_hex = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
    digits = is_hex ? digits + 1 : 0;
    if (digits == kHashDigits) return true;
  }
  return false;
}

// One kind of attention in a pass.
struct Attention {
  const AttentionInputs* inputs = nullptr;
  uint32_t type = kNoIndex;
  uint32_t shapes = kNoIndex;
  AttentionShape shape;
};

struct Verdict {
  PassPhase phase = PassPhase::kDecode;
  double confidence = 0.0;
};

// k drafts make 1 + k tokens of each sequence.
Verdict few_tokens(const AttentionShape& shape, uint32_t draft_count) {
  const int64_t drafts = shape.tokens / shape.sequences - 1;
  if (draft_count > 0) {
    return {PassPhase::kSpeculative, drafts == int64_t{draft_count} ? 1.0 : 0.7};
  }
  // Without a cache to read these are all the tokens there are.
  if (!shape.has_block_table) return {PassPhase::kPrefill, 0.7};
  return {PassPhase::kSpeculative, 0.6};
}

Verdict verdict_of(const Attention& attention, uint32_t draft_count) {
  const AttentionShape& shape = attention.shape;
  if (attention.inputs->use == AttentionUse::kPrefillOnly) return {PassPhase::kPrefill, 1.0};
  if (shape.tokens <= shape.sequences) {
    return {PassPhase::kDecode, shape.tokens == shape.sequences ? 1.0 : 0.6};
  }
  const bool is_few = shape.tokens <= shape.sequences * (1 + kMostDrafts);
  if (is_few && shape.tokens % shape.sequences == 0) return few_tokens(shape, draft_count);
  if (is_few) return {PassPhase::kMixed, 0.7};
  if (!shape.has_block_table || shape.sequences == 1) return {PassPhase::kPrefill, 1.0};
  // Several sequences, and keys in the cache: some may be in decode, or all in a later part of
  // their prefill. That a kernel always takes them from there says nothing.
  if (attention.inputs->is_always_paged) return {PassPhase::kPrefill, 0.6};
  return {PassPhase::kMixed, 0.6};
}

}  // namespace

// What the rows of a pass say, up to the last anchor of the main pass; of what follows only whether
// tokens were sampled.
struct PhaseSigns {
  std::vector<Attention> attention;  // each with tokens and sequences
  AttentionShape some_shape;         // else: the first of which only one of the two is known
  uint64_t anchor_count = 0;
  uint64_t compiled_anchor_count = 0;
  uint64_t large_matmul_count = 0;
  uint64_t all_reduce_count = 0;
  uint64_t reduce_scatter_count = 0;
  uint64_t all_gather_count = 0;
  uint64_t wrapper_count = 0;
  uint64_t chunked_count = 0;
  uint64_t recurrent_count = 0;
  uint64_t prefill_only_count = 0;
  uint64_t decode_only_count = 0;
  bool is_sampled = false;

  void add_words(uint16_t words) {
    if ((words & kLargeMatMul) != 0) ++large_matmul_count;
    if ((words & kAllReduce) != 0) ++all_reduce_count;
    if ((words & kReduceScatter) != 0) ++reduce_scatter_count;
    if ((words & kAllGather) != 0) ++all_gather_count;
    if ((words & kChunked) != 0) ++chunked_count;
    if ((words & kRecurrent) != 0) ++recurrent_count;
    if ((words & kPrefillOnly) != 0) ++prefill_only_count;
    if ((words & kDecodeOnly) != 0) ++decode_only_count;
  }

  void add_attention(const CaptureTable& table, uint32_t row) {
    const uint32_t type = table.type[row];
    const uint32_t shapes = table.input_shapes[row];
    if (shapes == kNoIndex) return;
    for (const Attention& known : attention) {
      if (known.type == type && known.shapes == shapes) return;
    }
    const AttentionInputs* inputs = attention_inputs(table.names[type]);
    const AttentionShape shape = attention_shape(*inputs, table.names[shapes]);
    if (shape.tokens > 0 && shape.sequences > 0) {
      attention.push_back({inputs, type, shapes, shape});
    } else if (some_shape.tokens < 0) {
      some_shape = shape;
    }
  }
};

namespace {

void say(PassPhase phase, double confidence, std::string evidence, PhaseGuess& guess) {
  guess.phase = phase;
  guess.confidence = confidence;
  guess.evidence = std::move(evidence);
}

PassPhase decode_phase(uint32_t draft_count) {
  return draft_count > 0 ? PassPhase::kSpeculative : PassPhase::kDecode;
}

// The kind with the most tokens tells how many there are, the chunks of its context aside; kinds
// for several phases add up.
void guess_by_shapes(const CaptureTable& table, std::span<const Attention> attention,
                     uint32_t draft_count, PhaseGuess& guess) {
  const Attention* prefill = nullptr;
  const Attention* decode = nullptr;
  const Attention* most = &attention.front();
  for (const Attention& kind : attention) {
    const PassPhase phase = verdict_of(kind, draft_count).phase;
    if (phase == PassPhase::kPrefill && prefill == nullptr) prefill = &kind;
    if (phase == PassPhase::kDecode || phase == PassPhase::kSpeculative) decode = &kind;
    if (kind.shape.tokens > most->shape.tokens) most = &kind;
  }
  guess.tokens = most->shape.tokens;
  guess.sequences = most->shape.sequences;
  const std::string evidence = fmt::format("{} tokens of {} sequences in {}", guess.tokens,
                                           guess.sequences, table.names[most->type]);
  if (prefill != nullptr && decode != nullptr) {
    guess.tokens = prefill->shape.tokens + decode->shape.tokens;
    guess.sequences = prefill->shape.sequences + decode->shape.sequences;
    say(PassPhase::kMixed, 0.95,
        fmt::format("{} tokens of {} sequences in {} and {} of {} in {}", prefill->shape.tokens,
                    prefill->shape.sequences, table.names[prefill->type], decode->shape.tokens,
                    decode->shape.sequences, table.names[decode->type]),
        guess);
    return;
  }
  const Verdict verdict = verdict_of(*most, draft_count);
  say(verdict.phase, verdict.confidence, evidence, guess);
}

}  // namespace

PhaseReader::PhaseReader(const CaptureTable& table)
    : table_(table), words_of_type_(table.names.size(), 0), is_compiled_(table.names.size(), 0) {}

uint16_t PhaseReader::type_words(uint32_t type) {
  if (type == kNoIndex) return kIsRead;
  uint16_t& words = words_of_type_[type];
  if (words == 0) words = read_type(table_.names[type]);
  return words;
}

bool PhaseReader::is_compiled(uint32_t name) {
  if (name == kNoIndex) return false;
  uint8_t& known = is_compiled_[name];
  if (known == 0) known = has_hash(table_.names[name]) ? 2 : 1;
  return known == 2;
}

PhaseSigns PhaseReader::read_signs(std::span<const uint32_t> rows,
                                   std::span<const uint32_t> anchors) {
  PhaseSigns signs;
  signs.anchor_count = anchors.size();
  for (const uint32_t anchor : anchors) {
    if (is_compiled(table_.name[anchor])) ++signs.compiled_anchor_count;
  }
  const uint32_t last = anchors.empty() ? kNoIndex : anchors.back();
  const uint32_t anchor_type = anchors.empty() ? kNoIndex : table_.type[last];
  for (const uint32_t row : rows) {
    const uint16_t words = type_words(table_.type[row]);
    if (last != kNoIndex && row > last) {
      // Drafts sample as well: what is behind their first anchor is not the main pass's.
      if (table_.type[row] == anchor_type) break;
      signs.is_sampled = signs.is_sampled || (words & kSampling) != 0;
      continue;
    }
    if (table_.kind[row] == KernelKind::kAiCpuCollective) {
      ++signs.wrapper_count;
      continue;
    }
    if (table_.kind[row] == KernelKind::kFragment) continue;
    signs.add_words(words);
    if ((words & kAttention) != 0) signs.add_attention(table_, row);
  }
  return signs;
}

namespace {

// Linear attention has kernels of its own for many tokens and for one.
bool guess_by_linear_attention(const PhaseSigns& signs, uint32_t draft_count, PhaseGuess& guess) {
  if (signs.chunked_count == 0 && signs.recurrent_count == 0) return false;
  const bool is_mixed = signs.chunked_count > 0 && signs.recurrent_count > 0;
  const PassPhase phase = is_mixed                  ? PassPhase::kMixed
                          : signs.chunked_count > 0 ? PassPhase::kPrefill
                                                    : decode_phase(draft_count);
  say(phase, is_mixed ? 0.9 : 0.8,
      fmt::format("{} chunked and {} recurrent kernels of linear attention", signs.chunked_count,
                  signs.recurrent_count),
      guess);
  return true;
}

// Signs of an engine's habits, of which none is certain: prefill calls kernels one by one, has
// large matrices and splits its collectives; decode replays a graph.
void guess_by_habits(const PhaseSigns& signs, uint32_t draft_count, PhaseGuess& guess) {
  const uint64_t half = std::max<uint64_t>(signs.anchor_count / 2, 1);
  int prefill = 0;
  int decode = 0;
  std::string evidence;
  const auto add = [&evidence](uint64_t count, std::string_view what) {
    evidence += fmt::format("{}{} {}", evidence.empty() ? "" : ", ", count, what);
  };
  if (signs.large_matmul_count >= half) {
    ++prefill;
    add(signs.large_matmul_count, "MatMulV3");
  }
  const bool is_split = signs.reduce_scatter_count >= half && signs.all_gather_count >= half;
  const bool is_reduced = signs.all_reduce_count >= half;
  if (is_split && !is_reduced) {
    ++prefill;
    add(signs.reduce_scatter_count, "reduce-scatters");
  }
  if (is_reduced && !is_split) {
    ++decode;
    add(signs.all_reduce_count, "all-reduces");
  }
  if (signs.wrapper_count >= half) {
    ++prefill;
    add(signs.wrapper_count, "collectives on the AI CPU");
  }
  if (signs.compiled_anchor_count >= half) {
    ++decode;
    add(signs.compiled_anchor_count, "anchors of a captured graph");
  }
  if (prefill == decode) return;
  const double confidence =
      0.4 + 0.1 * std::min(prefill > decode ? prefill - decode : decode - prefill, 3);
  say(prefill > decode ? PassPhase::kPrefill : decode_phase(draft_count), confidence,
      "no shapes; " + evidence, guess);
}

void guess_without_shapes(const PhaseSigns& signs, uint32_t draft_count, PhaseGuess& guess) {
  if (guess_by_linear_attention(signs, draft_count, guess)) return;
  if (signs.prefill_only_count > 0 && signs.decode_only_count > 0) {
    say(PassPhase::kMixed, 0.8,
        fmt::format("{} kernels of attention for prefill and {} for decode",
                    signs.prefill_only_count, signs.decode_only_count),
        guess);
  } else if (signs.prefill_only_count > 0) {
    say(PassPhase::kPrefill, 0.9,
        fmt::format("{} kernels of attention for prefill", signs.prefill_only_count), guess);
  } else if (signs.decode_only_count > 0) {
    say(decode_phase(draft_count), 0.8,
        fmt::format("{} kernels of attention for decode", signs.decode_only_count), guess);
  } else {
    guess_by_habits(signs, draft_count, guess);
  }
}

}  // namespace

PhaseGuess PhaseReader::guess(std::span<const uint32_t> rows, std::span<const uint32_t> anchors,
                              uint32_t draft_count) {
  PhaseGuess guess;
  const PhaseSigns signs = read_signs(rows, anchors);
  if (signs.attention.empty()) {
    guess.tokens = signs.some_shape.tokens;
    guess.sequences = signs.some_shape.sequences;
    guess_without_shapes(signs, draft_count, guess);
    return guess;
  }
  guess_by_shapes(table_, signs.attention, draft_count, guess);
  // Where shapes leave several phases open, kernels of linear attention may decide.
  if (guess.confidence < 1.0 && guess.tokens > guess.sequences) {
    PhaseGuess linear = guess;
    if (guess_by_linear_attention(signs, draft_count, linear)) {
      linear.evidence = fmt::format("{}; {}", guess.evidence, linear.evidence);
      guess = linear;
    }
  }
  guess.is_dummy = guess.tokens == 1 && guess.sequences == 1 && !signs.is_sampled;
  if (guess.is_dummy) guess.evidence += "; nothing is sampled";
  return guess;
}

PhaseGuess guess_phase(const CaptureTable& table, std::span<const uint32_t> rows,
                       std::span<const uint32_t> anchors, uint32_t draft_count) {
  return PhaseReader(table).guess(rows, anchors, draft_count);
}

std::string_view pass_phase_name(PassPhase phase) {
  constexpr std::string_view kNames[] = {"decode", "prefill", "speculative", "mixed"};
  return kNames[static_cast<size_t>(phase)];
}

}  // namespace gapless
