// SPDX-License-Identifier: Apache-2.0

#include "model/generate.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/check.h"

namespace gapless {
namespace {

// A head that keeps so many of each tile does no less work than one that keeps all.
constexpr int kMaxHeadTop = 256;

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// What the head must give so that a token can be drawn.
struct WantedHead {
  HeadOutput output = HeadOutput::kTop;
  int top_k = 1;
};

WantedHead wanted_head(const SamplingOptions& sampling, int vocabulary) {
  if (sampling.temperature == 0.0) return {};
  if (sampling.top_k == 0 || sampling.top_k > kMaxHeadTop) return {.output = HeadOutput::kLogits};
  return {.output = HeadOutput::kTop, .top_k = std::min(sampling.top_k, vocabulary)};
}

int rows_of_chunk(const Decoder& decoder, int wanted) {
  GAPLESS_CHECK(wanted >= 0);
  return wanted == 0 ? decoder.max_rows() : std::min(wanted, decoder.max_rows());
}

// One call of generate(). Holds the decoder's sequences and releases them.
class GenerationRun {
 public:
  GenerationRun(Decoder& decoder, std::span<const std::vector<int32_t>> prompts,
                const GenerateOptions& options, const TokenCallback& on_token)
      : decoder_(decoder),
        prompts_(prompts),
        options_(options),
        on_token_(on_token),
        head_(wanted_head(options.sampling, decoder.config().vocabulary)) {}
  GenerationRun(const GenerationRun&) = delete;
  GenerationRun& operator=(const GenerationRun&) = delete;
  ~GenerationRun() {
    for (size_t prompt = 0; prompt < ids_.size(); ++prompt) end(prompt);
  }

  Result<GenerationResult> run();

 private:
  Result<void> check() const;
  Result<void> add_sequences();
  Result<void> prefill_prompts();
  Result<void> decode();
  void add_prompt_rows(size_t prompt);
  Result<void> run_step();
  Result<int32_t> choose(const StepResult& step, size_t head_row);
  std::span<const Candidate> candidates(const StepResult& step, size_t head_row);
  void take_tokens();
  void end(size_t prompt);

  bool is_live(size_t prompt) const { return ids_[prompt] >= 0; }
  Generation& generation(size_t prompt) { return result_.sequences[prompt]; }

  Decoder& decoder_;
  std::span<const std::vector<int32_t>> prompts_;
  const GenerateOptions& options_;
  const TokenCallback& on_token_;
  const WantedHead head_;
  Clock::time_point begin_ = Clock::now();

  std::vector<int> ids_;        // by prompt: the decoder's number of it; -1: it has ended
  std::vector<size_t> placed_;  // by prompt: tokens of it that the decoder has
  // The step that is being made: its rows, those that get a token, and which prompts these are.
  std::vector<StepRow> rows_;
  std::vector<int> head_rows_;
  std::vector<size_t> head_prompts_;
  std::vector<int32_t> chosen_;
  std::vector<Candidate> ordered_;  // of one row, when all logits are wanted
  GenerationResult result_;
};

Result<void> GenerationRun::check() const {
  GAPLESS_TRY(check_sampling(options_.sampling));
  if (options_.max_tokens < 1)
    return fail(ErrorCode::kInvalidInput, "at most {} tokens to generate; must be 1 or more",
                options_.max_tokens);
  if (options_.prefill_rows < 0)
    return fail(ErrorCode::kInvalidInput, "{} prompt tokens in a step; must be 0 (all) or more",
                options_.prefill_rows);
  return check_prompts(prompts_, decoder_.max_rows(), decoder_.max_length());
}

Result<void> GenerationRun::add_sequences() {
  for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    ids_.push_back(GAPLESS_TRY(decoder_.add_sequence()));
  }
  placed_.resize(prompts_.size());
  result_.sequences.resize(prompts_.size());
  return {};
}

// As much of the prompt as the step still has room for.
void GenerationRun::add_prompt_rows(size_t prompt) {
  const std::vector<int32_t>& tokens = prompts_[prompt];
  const size_t room = static_cast<size_t>(decoder_.max_rows()) - rows_.size();
  const size_t chunk = static_cast<size_t>(rows_of_chunk(decoder_, options_.prefill_rows));
  const size_t count = std::min({room, chunk, tokens.size() - placed_[prompt]});
  for (size_t i = 0; i < count; ++i) {
    rows_.push_back({.sequence = ids_[prompt], .token = tokens[placed_[prompt] + i]});
  }
  placed_[prompt] += count;
  result_.times.prompt_tokens += static_cast<int64_t>(count);
  if (count == 0 || placed_[prompt] < tokens.size()) return;
  head_rows_.push_back(static_cast<int>(rows_.size()) - 1);
  head_prompts_.push_back(prompt);
}

Result<void> GenerationRun::prefill_prompts() {
  size_t first = 0;  // prompt that is not there completely
  while (first < prompts_.size()) {
    for (size_t prompt = first; prompt < prompts_.size(); ++prompt) add_prompt_rows(prompt);
    GAPLESS_TRY(run_step());
    if (result_.times.first_token_s == 0.0 && !chosen_.empty())
      result_.times.first_token_s = seconds_since(begin_);
    result_.times.prefill_s = seconds_since(begin_);
    take_tokens();
    while (first < prompts_.size() && placed_[first] == prompts_[first].size()) ++first;
  }
  return {};
}

Result<void> GenerationRun::decode() {
  while (true) {
    const Clock::time_point begin = Clock::now();
    for (size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
      if (!is_live(prompt)) continue;
      head_rows_.push_back(static_cast<int>(rows_.size()));
      head_prompts_.push_back(prompt);
      rows_.push_back({.sequence = ids_[prompt], .token = generation(prompt).tokens.back()});
    }
    if (rows_.empty()) return {};
    GAPLESS_TRY(run_step());
    result_.times.step_s.push_back(seconds_since(begin));
    take_tokens();
  }
}

// Runs the rows and chooses a token for each head row.
Result<void> GenerationRun::run_step() {
  const StepResult step = GAPLESS_TRY(decoder_.step(
      {.rows = rows_, .head_rows = head_rows_, .head = head_.output, .top_k = head_.top_k}));
  chosen_.clear();
  for (size_t head_row = 0; head_row < head_rows_.size(); ++head_row) {
    chosen_.push_back(GAPLESS_TRY(choose(step, head_row)));
  }
  rows_.clear();
  head_rows_.clear();
  return {};
}

std::span<const Candidate> GenerationRun::candidates(const StepResult& step, size_t head_row) {
  if (head_.output == HeadOutput::kTop) {
    const size_t top_k = static_cast<size_t>(head_.top_k);
    return step.top.subspan(head_row * top_k, top_k);
  }
  const size_t vocabulary = static_cast<size_t>(decoder_.config().vocabulary);
  const std::span<const float> logits = step.logits.subspan(head_row * vocabulary, vocabulary);
  ordered_.clear();
  for (size_t token = 0; token < vocabulary; ++token) {
    ordered_.push_back({logits[token], static_cast<int32_t>(token)});
  }
  std::sort(ordered_.begin(), ordered_.end(), comes_before);
  return ordered_;
}

Result<int32_t> GenerationRun::choose(const StepResult& step, size_t head_row) {
  const size_t prompt = head_prompts_[head_row];
  const size_t draw = generation(prompt).tokens.size();
  return sample(candidates(step, head_row), options_.sampling, prompt, draw);
}

// The chosen tokens become part of their sequences, some of which this ends.
void GenerationRun::take_tokens() {
  for (size_t i = 0; i < chosen_.size(); ++i) {
    const size_t prompt = head_prompts_[i];
    const int32_t token = chosen_[i];
    Generation& made = generation(prompt);
    made.tokens.push_back(token);
    ++result_.times.generated_tokens;
    const bool goes_on = !on_token_ || on_token_(static_cast<int>(prompt), token);
    const std::vector<int32_t>& ends = options_.end_tokens;
    if (std::find(ends.begin(), ends.end(), token) != ends.end()) {
      made.reason = FinishReason::kEndToken;
    } else if (!goes_on) {
      made.reason = FinishReason::kStopped;
    } else if (std::ssize(made.tokens) >= options_.max_tokens) {
      made.reason = FinishReason::kMaxTokens;
    } else if (decoder_.length(ids_[prompt]) >= decoder_.max_length()) {
      made.reason = FinishReason::kFullContext;
    } else {
      continue;
    }
    end(prompt);
  }
  head_prompts_.clear();
}

void GenerationRun::end(size_t prompt) {
  const int id = std::exchange(ids_[prompt], -1);
  if (id >= 0) decoder_.release(id);
}

Result<GenerationResult> GenerationRun::run() {
  GAPLESS_TRY(check());
  GAPLESS_TRY(add_sequences());
  GAPLESS_TRY(prefill_prompts());
  GAPLESS_TRY(decode());
  return std::move(result_);
}

}  // namespace

std::string_view finish_reason_name(FinishReason reason) {
  switch (reason) {
    case FinishReason::kEndToken:
      return "end token";
    case FinishReason::kMaxTokens:
      return "max tokens";
    case FinishReason::kFullContext:
      return "full context";
    case FinishReason::kStopped:
      return "stopped";
  }
  GAPLESS_CHECK(false);
  return {};
}

Result<void> check_prompts(std::span<const std::vector<int32_t>> prompts, int max_rows,
                           int max_length) {
  if (prompts.empty()) return fail(ErrorCode::kInvalidInput, "there is no prompt");
  if (std::ssize(prompts) > max_rows)
    return fail(ErrorCode::kInvalidInput, "{} prompts; a step has room for {}", prompts.size(),
                max_rows);
  for (size_t i = 0; i < prompts.size(); ++i) {
    if (prompts[i].empty()) return fail(ErrorCode::kInvalidInput, "prompt {} has no token", i);
    if (std::ssize(prompts[i]) > max_length)
      return fail(ErrorCode::kInvalidInput, "prompt {} has {} tokens; the cache holds {}", i,
                  prompts[i].size(), max_length);
  }
  return {};
}

Result<GenerationResult> generate(Decoder& decoder, std::span<const std::vector<int32_t>> prompts,
                                  const GenerateOptions& options, const TokenCallback& on_token) {
  return GenerationRun(decoder, prompts, options, on_token).run();
}

Result<StepResult> prefill(Decoder& decoder, int sequence, std::span<const int32_t> tokens,
                           int chunk_rows, HeadOutput head, int top_k) {
  if (tokens.empty()) return fail(ErrorCode::kInvalidInput, "there is no token to prefill");
  const int length = decoder.length(sequence);
  const size_t chunk = static_cast<size_t>(rows_of_chunk(decoder, chunk_rows));
  std::vector<StepRow> rows;
  for (size_t begin = 0;; begin += chunk) {
    const size_t count = std::min(chunk, tokens.size() - begin);
    rows.clear();
    for (const int32_t token : tokens.subspan(begin, count)) rows.push_back({sequence, token});
    const int last_row = static_cast<int>(count) - 1;
    const bool is_last = begin + count == tokens.size();
    Result<StepResult> step = decoder.step(
        {.rows = rows,
         .head_rows = is_last ? std::span<const int>(&last_row, 1) : std::span<const int>(),
         .head = head,
         .top_k = top_k});
    if (!step) decoder.truncate(sequence, length);
    if (!step || is_last) return step;
  }
}

}  // namespace gapless
