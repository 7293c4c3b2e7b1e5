// SPDX-License-Identifier: Apache-2.0

#include "model/quality.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "base/check.h"
#include "model/generate.h"

namespace gapless {
namespace {

constexpr size_t kMaxPeriod = 16;
constexpr size_t kMinRepeats = 3;

// log(sum of exp(logit)), in double and without overflow. NaN when a logit is.
double log_sum(std::span<const float> logits) {
  double largest = -std::numeric_limits<double>::infinity();
  for (const float logit : logits) largest = std::max(largest, static_cast<double>(logit));
  if (std::isinf(largest)) return largest;
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum);
}

// NaN is larger than all else.
double larger(double a, double b) { return std::isnan(b) || b > a ? b : a; }

int32_t best_token(std::span<const float> logits) {
  Candidate best;
  take_top(CpuLevel::kPortable, logits, 0, {&best, 1});
  return best.token;
}

// A sequence of a decoder for as long as this lives.
class HeldSequence {
 public:
  static Result<HeldSequence> add(Decoder& decoder) {
    return HeldSequence(decoder, GAPLESS_TRY(decoder.add_sequence()));
  }
  HeldSequence(HeldSequence&& other) noexcept
      : decoder_(other.decoder_), id_(std::exchange(other.id_, -1)) {}
  HeldSequence& operator=(HeldSequence&&) = delete;
  ~HeldSequence() {
    if (id_ >= 0) decoder_.release(id_);
  }
  int id() const { return id_; }

 private:
  HeldSequence(Decoder& decoder, int id) : decoder_(decoder), id_(id) {}
  Decoder& decoder_;
  int id_;
};

// Feeds `tokens` to a sequence; the logits of all rows from `first_head` on.
Result<std::span<const float>> feed(Decoder& decoder, int sequence, std::span<const int32_t> tokens,
                                    size_t first_head) {
  std::vector<StepRow> rows;
  std::vector<int> head_rows;
  for (size_t i = 0; i < tokens.size(); ++i) {
    rows.push_back({.sequence = sequence, .token = tokens[i]});
    if (i >= first_head) head_rows.push_back(static_cast<int>(i));
  }
  const StepResult step = GAPLESS_TRY(
      decoder.step({.rows = rows, .head_rows = head_rows, .head = HeadOutput::kLogits}));
  return step.logits;
}

struct Pair {
  Decoder& reference;
  Decoder& candidate;
  int max_rows() const { return std::min(reference.max_rows(), candidate.max_rows()); }
  int max_length() const { return std::min(reference.max_length(), candidate.max_length()); }
  size_t vocabulary() const { return static_cast<size_t>(reference.config().vocabulary); }
};

Result<void> check_pair(const Pair& pair, std::span<const std::vector<int32_t>> prompts,
                        int count) {
  const int candidate_vocabulary = pair.candidate.config().vocabulary;
  if (pair.reference.config().vocabulary != candidate_vocabulary)
    return fail(ErrorCode::kInvalidInput,
                "the models have vocabularies of {} and {} tokens and cannot be compared",
                pair.vocabulary(), candidate_vocabulary);
  if (count < 1)
    return fail(ErrorCode::kInvalidInput, "{} tokens to compare; must be 1 or more", count);
  if (prompts.empty()) return fail(ErrorCode::kInvalidInput, "there is no prompt to compare with");
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (std::ssize(prompts[i]) + count <= pair.max_length()) continue;
    return fail(ErrorCode::kInvalidInput,
                "prompt {} has {} tokens and {} are to follow; the cache holds {}", i,
                prompts[i].size(), count, pair.max_length());
  }
  return {};
}

// Adds up for a Progress.
struct TokenCount {
  const Progress& progress;
  uint64_t total = 0;
  uint64_t done = 0;
  void add(size_t tokens) {
    done += tokens;
    if (progress) progress(done, total);
  }
};

// What the decoder says behind each prompt, in groups that fit a step.
Result<std::vector<std::vector<int32_t>>> generate_all(
    Decoder& decoder, std::span<const std::vector<int32_t>> prompts, int count,
    TokenCount& counted) {
  std::vector<std::vector<int32_t>> texts;
  const size_t group = static_cast<size_t>(decoder.max_rows());
  for (size_t begin = 0; begin < prompts.size(); begin += group) {
    const size_t size = std::min(group, prompts.size() - begin);
    GenerationResult result =
        GAPLESS_TRY(generate(decoder, prompts.subspan(begin, size), {.max_tokens = count},
                             [&counted](int /*sequence*/, int32_t /*token*/) {
                               counted.add(1);
                               return true;
                             }));
    for (Generation& made : result.sequences) texts.push_back(std::move(made.tokens));
  }
  return texts;
}

// Adds what the rows of both say to the sums of `quality`.
void compare_rows(std::span<const float> reference, std::span<const float> candidate,
                  size_t vocabulary, PromptQuality& quality) {
  GAPLESS_CHECK(reference.size() == candidate.size());
  for (size_t begin = 0; begin < reference.size(); begin += vocabulary) {
    const std::span<const float> p = reference.subspan(begin, vocabulary);
    const std::span<const float> q = candidate.subspan(begin, vocabulary);
    const double nats = divergence(p, q);
    quality.mean_divergence += nats;
    quality.largest_divergence = larger(quality.largest_divergence, nats);
    if (best_token(p) == best_token(q)) quality.same_choice += 1.0;
  }
}

// Feeds both the prompt and what the reference said behind it, all but its last token: nothing
// was said after that.
Result<void> compare_positions(const Pair& pair, const std::vector<int32_t>& prompt,
                               PromptQuality& quality) {
  std::vector<int32_t> text = prompt;
  const std::vector<int32_t>& said = quality.reference_tokens;
  text.insert(text.end(), said.begin(), said.end() - 1);
  const HeldSequence reference = GAPLESS_TRY(HeldSequence::add(pair.reference));
  const HeldSequence candidate = GAPLESS_TRY(HeldSequence::add(pair.candidate));
  const size_t first_position = prompt.size() - 1;
  const size_t chunk = static_cast<size_t>(pair.max_rows());
  for (size_t begin = 0; begin < text.size(); begin += chunk) {
    const size_t size = std::min(chunk, text.size() - begin);
    const std::span<const int32_t> tokens = std::span<const int32_t>(text).subspan(begin, size);
    const size_t first_head = first_position > begin ? first_position - begin : 0;
    const std::span<const float> p =
        GAPLESS_TRY(feed(pair.reference, reference.id(), tokens, first_head));
    const std::span<const float> q =
        GAPLESS_TRY(feed(pair.candidate, candidate.id(), tokens, first_head));
    compare_rows(p, q, pair.vocabulary(), quality);
  }
  quality.same_choice /= static_cast<double>(said.size());
  quality.mean_divergence /= static_cast<double>(said.size());
  return {};
}

int count_agreed(const std::vector<int32_t>& a, const std::vector<int32_t>& b) {
  return static_cast<int>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin());
}

// The sum of -log p of what comes next in the text, for the rows of `logits`.
Result<double> next_token_nats(std::span<const float> logits, std::span<const int32_t> next,
                               int64_t first_position) {
  double nats = 0.0;
  const size_t vocabulary = logits.size() / next.size();
  for (size_t i = 0; i < next.size(); ++i) {
    const std::span<const float> row = logits.subspan(i * vocabulary, vocabulary);
    const double token_nats = log_sum(row) - static_cast<double>(row[static_cast<size_t>(next[i])]);
    if (std::isnan(token_nats))
      return fail(ErrorCode::kInvalidInput, "a logit before token {} of the text is not finite",
                  first_position + static_cast<int64_t>(i));
    nats += token_nats;
  }
  return nats;
}

Result<void> check_text(const Decoder& decoder, std::span<const int32_t> tokens) {
  if (tokens.size() < 2)
    return fail(ErrorCode::kInvalidInput, "a text of {} tokens; perplexity takes 2 or more",
                tokens.size());
  const int vocabulary = decoder.config().vocabulary;
  for (const int32_t token : tokens) {
    if (token >= 0 && token < vocabulary) continue;
    return fail(ErrorCode::kInvalidInput, "token {} is outside the vocabulary of {}", token,
                vocabulary);
  }
  return {};
}

}  // namespace

double divergence(std::span<const float> p_logits, std::span<const float> q_logits) {
  GAPLESS_CHECK(p_logits.size() == q_logits.size());
  const double p_sum = log_sum(p_logits);
  const double q_sum = log_sum(q_logits);
  double nats = 0.0;
  for (size_t i = 0; i < p_logits.size(); ++i) {
    const double log_p = static_cast<double>(p_logits[i]) - p_sum;
    const double log_q = static_cast<double>(q_logits[i]) - q_sum;
    // Also what p says is impossible must be a number in q.
    if (std::isnan(log_q)) return log_q;
    const double p = std::exp(log_p);
    if (p != 0.0) nats += p * (log_p - log_q);
  }
  // The sum of rounding errors may be a hair below zero; NaN stays.
  return nats < 0.0 ? 0.0 : nats;
}

Repetition find_repetition(std::span<const int32_t> tokens) {
  const size_t size = tokens.size();
  Repetition found;
  size_t longest = 0;
  for (size_t period = 1; period <= std::min(kMaxPeriod, size / kMinRepeats); ++period) {
    size_t length = period;
    while (length < size && tokens[size - 1 - length] == tokens[size - 1 - length + period]) {
      ++length;
    }
    if (length < kMinRepeats * period || length <= longest) continue;
    longest = length;
    found = {.share = static_cast<double>(length) / static_cast<double>(size),
             .period = static_cast<int>(period)};
  }
  return found;
}

Result<std::vector<PromptQuality>> compare_quality(Decoder& reference, Decoder& candidate,
                                                   std::span<const std::vector<int32_t>> prompts,
                                                   int count, const Progress& progress) {
  const Pair pair{reference, candidate};
  GAPLESS_TRY(check_pair(pair, prompts, count));
  TokenCount counted{.progress = progress,
                     .total = 3 * prompts.size() * static_cast<size_t>(count)};
  std::vector<std::vector<int32_t>> said =
      GAPLESS_TRY(generate_all(reference, prompts, count, counted));
  std::vector<std::vector<int32_t>> repeated =
      GAPLESS_TRY(generate_all(candidate, prompts, count, counted));
  std::vector<PromptQuality> qualities(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    PromptQuality& quality = qualities[i];
    quality.reference_tokens = std::move(said[i]);
    quality.candidate_tokens = std::move(repeated[i]);
    quality.agreed_count = count_agreed(quality.reference_tokens, quality.candidate_tokens);
    quality.reference_repetition = find_repetition(quality.reference_tokens);
    quality.candidate_repetition = find_repetition(quality.candidate_tokens);
    GAPLESS_TRY(compare_positions(pair, prompts[i], quality));
    counted.add(static_cast<size_t>(count));
  }
  return qualities;
}

QualityMeans mean_quality(std::span<const PromptQuality> prompts) {
  QualityMeans means;
  const double count = static_cast<double>(prompts.size());
  for (const PromptQuality& prompt : prompts) {
    means.agreed_count += prompt.agreed_count / count;
    means.same_choice += prompt.same_choice / count;
    means.divergence += prompt.mean_divergence / count;
    means.largest_divergence = larger(means.largest_divergence, prompt.largest_divergence);
    means.reference_repetition += prompt.reference_repetition.share / count;
    means.candidate_repetition += prompt.candidate_repetition.share / count;
  }
  return means;
}

std::vector<std::string> broken_limits(std::span<const PromptQuality> prompts,
                                       const QualityLimits& limits) {
  if (prompts.empty()) return {"no prompt was compared"};
  const QualityMeans means = mean_quality(prompts);
  std::vector<std::string> broken;
  if (!(means.same_choice >= limits.min_same_choice))
    broken.push_back(
        fmt::format("the same choice in {:.1f} % of positions; at least {:.1f} % must be",
                    100.0 * means.same_choice, 100.0 * limits.min_same_choice));
  if (!(means.divergence <= limits.max_mean_divergence))
    broken.push_back(fmt::format("a mean KL of {:.4f} nats; at most {:.4f} may be",
                                 means.divergence, limits.max_mean_divergence));
  const double extra = means.candidate_repetition - means.reference_repetition;
  if (!(extra <= limits.max_extra_repetition))
    broken.push_back(fmt::format(
        "loops are {:.1f} % of the texts and {:.1f} % of the reference's; at most {:.1f} points "
        "more may be",
        100.0 * means.candidate_repetition, 100.0 * means.reference_repetition,
        100.0 * limits.max_extra_repetition));
  return broken;
}

double Perplexity::value() const {
  if (token_count == 0) return std::numeric_limits<double>::quiet_NaN();
  return std::exp(nats / static_cast<double>(token_count));
}

Result<Perplexity> measure_perplexity(Decoder& decoder, std::span<const int32_t> tokens,
                                      const std::function<void(int64_t done)>& on_progress) {
  GAPLESS_TRY(check_text(decoder, tokens));
  Perplexity perplexity;
  const size_t window = static_cast<size_t>(decoder.max_length());
  const size_t chunk = static_cast<size_t>(decoder.max_rows());
  const size_t fed = tokens.size() - 1;  // the last one has nothing to predict
  for (size_t window_begin = 0; window_begin < fed; window_begin += window) {
    const HeldSequence sequence = GAPLESS_TRY(HeldSequence::add(decoder));
    const size_t window_end = std::min(fed, window_begin + window);
    for (size_t begin = window_begin; begin < window_end; begin += chunk) {
      const size_t size = std::min(chunk, window_end - begin);
      const std::span<const float> logits =
          GAPLESS_TRY(feed(decoder, sequence.id(), tokens.subspan(begin, size), 0));
      perplexity.nats += GAPLESS_TRY(next_token_nats(logits, tokens.subspan(begin + 1, size),
                                                     static_cast<int64_t>(begin) + 1));
      perplexity.token_count += static_cast<int64_t>(size);
      if (on_progress) on_progress(perplexity.token_count);
    }
  }
  return perplexity;
}

}  // namespace gapless
