// SPDX-License-Identifier: Apache-2.0
//
// gapless check MODEL: whether the model still says the same in A8W8, and how far it is from that.
// Exit status 1 when a limit is broken.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/quantity.h"
#include "cli/command.h"
#include "cli/model_options.h"
#include "cli/progress_bar.h"
#include "kernels/packed_rows.h"
#include "kernels/sampling.h"
#include "model/generate.h"
#include "model/quality.h"
#include "report/text_table.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

constexpr int kExitBroken = 1;
constexpr int kPerplexityWindow = 2048;
constexpr size_t kShownPromptBytes = 32;

// Each leads somewhere else: prose, code, lists, numbers, other scripts, markup, a loop to fall
// into.
constexpr std::string_view kTexts[] = {
    "The capital of France is",
    "def fibonacci(n):\n    \"\"\"Returns the n-th number.\"\"\"\n",
    "1, 1, 2, 3, 5, 8, 13,",
    "Q: What is 17 * 23?\nA:",
    "床前明月光，",
    "Жили-были дед да баба",
    "{\"name\": \"Ada\", \"born\": 1815, \"tags\": [",
    "no no no no",
};
// Of prompts made of random tokens.
constexpr int kRandomLengths[] = {1, 2, 5, 7, 11, 19, 33, 47};

struct CheckArguments {
  ModelOptions model;
  std::string candidate;
  std::string prompts_file;
  std::vector<std::string> tokens;
  std::vector<int> counts = {16, 48};
  QualityLimits limits;
  std::string perplexity_file;
  double max_perplexity_ratio = 1.05;
  bool json = false;
};

struct Prompts {
  std::vector<Tokens> tokens;
  std::vector<std::string> texts;  // as many, or none
  std::string origin;
};

struct PerplexityPair {
  Perplexity reference;
  Perplexity candidate;
  double ratio() const { return candidate.value() / reference.value(); }
};

// What was compared, and what came out.
struct Check {
  ModelSource source;
  ModelSource candidate_source;
  std::optional<Tokenizer> tokenizer;
  Prompts prompts;
  Tokens text;  // for perplexity
  ModelDevice device;
  LoadedModel reference;
  LoadedModel candidate;
  std::vector<std::vector<PromptQuality>> qualities;  // by count
  std::optional<PerplexityPair> perplexity;
  std::vector<std::string> broken;
};

Result<Prompts> encode_texts(const Tokenizer& tokenizer, std::vector<std::string> texts,
                             std::string origin) {
  Prompts prompts{.tokens = {}, .texts = std::move(texts), .origin = std::move(origin)};
  for (const std::string& text : prompts.texts) {
    prompts.tokens.push_back(GAPLESS_TRY(tokenizer.encode(text)));
  }
  return prompts;
}

Result<std::vector<std::string>> read_lines(const std::string& path) {
  const std::string text = GAPLESS_TRY(read_text_file(path));
  std::vector<std::string> lines;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    if (end > begin) lines.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  if (lines.empty()) return fail(ErrorCode::kInvalidInput, "{}: has no line with a prompt", path);
  return lines;
}

Prompts random_prompts(const ModelConfig& config, uint64_t seed) {
  Prompts prompts{.tokens = {}, .texts = {}, .origin = fmt::format("tokens of seed {}", seed)};
  for (const int length : kRandomLengths) {
    Tokens& tokens = prompts.tokens.emplace_back();
    for (int i = 0; i < length; ++i) {
      const double draw = uniform_draw(seed, prompts.tokens.size(), static_cast<uint64_t>(i));
      tokens.push_back(static_cast<int32_t>(draw * config.vocabulary));
    }
  }
  return prompts;
}

Result<Prompts> collect_prompts(const CheckArguments& arguments, const Check& check) {
  const bool needs_tokenizer =
      !arguments.prompts_file.empty() || !arguments.perplexity_file.empty();
  if (needs_tokenizer && !check.tokenizer)
    return fail(ErrorCode::kInvalidInput,
                "{}: has no tokenizer.json, so there is nothing to read a text with",
                check.source.text());
  if (!arguments.tokens.empty()) {
    Prompts prompts{.tokens = {}, .texts = {}, .origin = "tokens as given"};
    for (const std::string& text : arguments.tokens) {
      prompts.tokens.push_back(GAPLESS_TRY(parse_tokens(text, check.source.config)));
    }
    return prompts;
  }
  if (!arguments.prompts_file.empty()) {
    std::vector<std::string> lines = GAPLESS_TRY(read_lines(arguments.prompts_file));
    return encode_texts(*check.tokenizer, std::move(lines), arguments.prompts_file);
  }
  if (!check.tokenizer) return random_prompts(check.source.config, arguments.model.seed);
  return encode_texts(*check.tokenizer, {std::begin(kTexts), std::end(kTexts)}, "built in");
}

Result<void> check_sources(const CheckArguments& arguments, const Check& check) {
  ModelConfig other = check.candidate_source.config;
  other.name = check.source.config.name;
  other.quantized = check.source.config.quantized;
  if (!(other == check.source.config))
    return fail(ErrorCode::kInvalidInput, "{} and {} are not the same model: config.json differs",
                arguments.model.model, arguments.candidate);
  if (check.source.config.quantized)
    return fail(ErrorCode::kInvalidInput,
                "{}: has A8W8 weights; give the checkpoint that they were made from, and this one "
                "as --candidate",
                arguments.model.model);
  return {};
}

int largest_count(const CheckArguments& arguments) {
  return *std::max_element(arguments.counts.begin(), arguments.counts.end());
}

DecoderNeeds needs_of(const CheckArguments& arguments, const Check& check) {
  int64_t longest = check.text.empty() ? 0 : kPerplexityWindow;
  for (const Tokens& prompt : check.prompts.tokens) {
    longest = std::max(longest, std::ssize(prompt) + largest_count(arguments));
  }
  const int64_t sequences =
      std::min<int64_t>(std::ssize(check.prompts.tokens), int64_t{kMaxMatmulRows});
  return {.max_sequences = static_cast<int>(sequences),
          .max_length =
              static_cast<int>(std::min<int64_t>(longest, check.source.config.max_positions))};
}

Result<void> load_both(const CheckArguments& arguments, Check& check) {
  check.source = GAPLESS_TRY(find_model(arguments.model));
  ModelOptions candidate = arguments.model;
  if (!arguments.candidate.empty()) candidate.model = arguments.candidate;
  check.candidate_source = GAPLESS_TRY(find_model(candidate));
  GAPLESS_TRY(check_sources(arguments, check));
  check.tokenizer = GAPLESS_TRY(find_tokenizer(check.source));
  check.prompts = GAPLESS_TRY(collect_prompts(arguments, check));
  if (!arguments.perplexity_file.empty()) {
    const std::string text = GAPLESS_TRY(read_text_file(arguments.perplexity_file));
    check.text = GAPLESS_TRY(check.tokenizer->encode(text));
    if (check.text.size() < 2)
      return fail(ErrorCode::kInvalidInput, "{}: has {} tokens; perplexity takes 2 or more",
                  arguments.perplexity_file, check.text.size());
  }
  const DecoderNeeds needs = needs_of(arguments, check);
  // Before the weights are packed, which takes long.
  GAPLESS_TRY(
      check_prompts(check.prompts.tokens, std::numeric_limits<int>::max(),
                    context_length(arguments.model, check.source.config, needs.max_length)));
  const DType dtype = weights_dtype(arguments.model, check.source.config);
  GAPLESS_TRY(check_device_dtype(arguments.model, dtype));
  check.device = GAPLESS_TRY(open_device(arguments.model));
  check.reference =
      GAPLESS_TRY(load_model(check.source, arguments.model, dtype, needs, check.device));
  check.candidate =
      GAPLESS_TRY(load_model(check.candidate_source, candidate, DType::kS8, needs, check.device));
  return {};
}

Result<Perplexity> measure_with_bar(const Check& check, Decoder& decoder, const std::string& what) {
  ProgressBar bar("perplexity, " + what, ProgressUnit::kUnknown);
  const Progress progress = bar.callback();
  const uint64_t total = check.text.size();
  return measure_perplexity(decoder, check.text, [&progress, total](int64_t done) {
    if (progress) progress(static_cast<uint64_t>(done), total);
  });
}

Result<void> compare(const CheckArguments& arguments, Check& check) {
  for (const int count : arguments.counts) {
    ProgressBar bar(fmt::format("comparing {} tokens", count), ProgressUnit::kUnknown);
    check.qualities.push_back(
        GAPLESS_TRY(compare_quality(*check.reference.decoder, *check.candidate.decoder,
                                    check.prompts.tokens, count, bar.callback())));
    for (const std::string& sentence : broken_limits(check.qualities.back(), arguments.limits)) {
      check.broken.push_back(fmt::format("{} tokens: {}", count, sentence));
    }
  }
  if (check.text.empty()) return {};
  const PerplexityPair pair{
      .reference = GAPLESS_TRY(measure_with_bar(check, *check.reference.decoder, "reference")),
      .candidate = GAPLESS_TRY(measure_with_bar(check, *check.candidate.decoder, "a8w8"))};
  check.perplexity = pair;
  if (!(pair.ratio() <= arguments.max_perplexity_ratio))
    check.broken.push_back(fmt::format("a perplexity {:.4f} times the reference's; at most {:.4f}",
                                       pair.ratio(), arguments.max_perplexity_ratio));
  return {};
}

// The first bytes of a prompt, whole characters only.
std::string shortened(const std::string& text) {
  if (text.size() <= kShownPromptBytes) return printable(text);
  size_t end = kShownPromptBytes;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;
  return printable(text.substr(0, end)) + "...";
}

std::string repetition_text(const Repetition& repetition) {
  if (repetition.period == 0) return "-";
  return fmt::format("{} of {}", format_share(repetition.share), repetition.period);
}

std::string quality_table(const std::vector<PromptQuality>& qualities, const Prompts& prompts) {
  std::vector<TableRow> rows = {
      {"PROMPT", "TOKENS", "AGREED", "SAME CHOICE", "MEAN KL", "LARGEST KL", "LOOP", "LOOP A8W8"}};
  if (!prompts.texts.empty()) rows[0].push_back("TEXT");
  for (size_t i = 0; i < qualities.size(); ++i) {
    const PromptQuality& quality = qualities[i];
    rows.push_back({std::to_string(i), std::to_string(prompts.tokens[i].size()),
                    std::to_string(quality.agreed_count), format_share(quality.same_choice),
                    fmt::format("{:.4f}", quality.mean_divergence),
                    fmt::format("{:.4f}", quality.largest_divergence),
                    repetition_text(quality.reference_repetition),
                    repetition_text(quality.candidate_repetition)});
    if (!prompts.texts.empty()) rows.back().push_back(shortened(prompts.texts[i]));
  }
  const QualityMeans means = mean_quality(qualities);
  rows.push_back(
      {"all", "", fmt::format("{:.1f}", means.agreed_count), format_share(means.same_choice),
       fmt::format("{:.4f}", means.divergence), fmt::format("{:.4f}", means.largest_divergence),
       format_share(means.reference_repetition), format_share(means.candidate_repetition)});
  return align_columns(rows, "rrrrrrrrl", "  ");
}

std::string check_text(const CheckArguments& arguments, const Check& check) {
  std::string text;
  add_fact(text, "model",
           fmt::format("{}, {} layer{}", check.source.text(), check.source.config.layers,
                       check.source.config.layers == 1 ? "" : "s"));
  add_fact(text, "reference",
           fmt::format("{}, cache {}", weights_dtype_name(check.reference.dtype),
                       dtype_name(check.reference.kv_dtype)));
  add_fact(text, "candidate",
           arguments.candidate.empty() ? "a8w8, quantised now"
                                       : fmt::format("a8w8, from {}", arguments.candidate));
  add_fact(text, "device", check.device.text);
  add_fact(text, "prompts",
           fmt::format("{}, {}", check.prompts.tokens.size(), check.prompts.origin));
  for (size_t i = 0; i < arguments.counts.size(); ++i) {
    text += fmt::format("\n{} tokens behind each\n{}", arguments.counts[i],
                        quality_table(check.qualities[i], check.prompts));
  }
  text += "\n";
  if (check.perplexity) {
    add_fact(text, "perplexity",
             fmt::format("{:.4f}, a8w8 {:.4f}: {:.4f} times, over {} tokens",
                         check.perplexity->reference.value(), check.perplexity->candidate.value(),
                         check.perplexity->ratio(), check.perplexity->reference.token_count));
  }
  add_fact(
      text, "limits",
      fmt::format("same choice {:.1f} % or more, mean KL {:.4f} or less, loops {:.1f} points more",
                  100.0 * arguments.limits.min_same_choice, arguments.limits.max_mean_divergence,
                  100.0 * arguments.limits.max_extra_repetition));
  for (const std::string& sentence : check.broken) add_fact(text, "broken", sentence);
  add_fact(text, "verdict", check.broken.empty() ? "passed" : "failed");
  return text;
}

Json repetition_json(const Repetition& repetition) {
  return {{"share", repetition.share}, {"period", repetition.period}};
}

Json comparison_json(int count, const std::vector<PromptQuality>& qualities,
                     const Prompts& prompts) {
  const QualityMeans means = mean_quality(qualities);
  Json json{{"count", count},
            {"same_choice", means.same_choice},
            {"mean_divergence", means.divergence},
            {"largest_divergence", means.largest_divergence},
            {"agreed_count", means.agreed_count},
            {"reference_repetition", means.reference_repetition},
            {"candidate_repetition", means.candidate_repetition},
            {"prompts", Json::array()}};
  for (size_t i = 0; i < qualities.size(); ++i) {
    const PromptQuality& quality = qualities[i];
    Json prompt;
    if (!prompts.texts.empty()) prompt["text"] = prompts.texts[i];
    prompt["prompt_tokens"] = prompts.tokens[i];
    prompt["reference_tokens"] = quality.reference_tokens;
    prompt["candidate_tokens"] = quality.candidate_tokens;
    prompt["agreed_count"] = quality.agreed_count;
    prompt["same_choice"] = quality.same_choice;
    prompt["mean_divergence"] = quality.mean_divergence;
    prompt["largest_divergence"] = quality.largest_divergence;
    prompt["reference_repetition"] = repetition_json(quality.reference_repetition);
    prompt["candidate_repetition"] = repetition_json(quality.candidate_repetition);
    json["prompts"].push_back(std::move(prompt));
  }
  return json;
}

std::string check_json(const CheckArguments& arguments, const Check& check) {
  Json json;
  json["model"] = check.source.config.name;
  json["layers"] = check.source.config.layers;
  json["reference_dtype"] = weights_dtype_name(check.reference.dtype);
  json["kv_dtype"] = dtype_name(check.reference.kv_dtype);
  json["device"] = check.device.text;
  json["candidate_dtype"] = "a8w8";
  json["comparisons"] = Json::array();
  for (size_t i = 0; i < arguments.counts.size(); ++i) {
    json["comparisons"].push_back(
        comparison_json(arguments.counts[i], check.qualities[i], check.prompts));
  }
  if (check.perplexity) {
    json["perplexity"] = {{"token_count", check.perplexity->reference.token_count},
                          {"reference", check.perplexity->reference.value()},
                          {"candidate", check.perplexity->candidate.value()},
                          {"ratio", check.perplexity->ratio()}};
  }
  json["limits"] = {{"min_same_choice", arguments.limits.min_same_choice},
                    {"max_mean_divergence", arguments.limits.max_mean_divergence},
                    {"max_extra_repetition", arguments.limits.max_extra_repetition},
                    {"max_perplexity_ratio", arguments.max_perplexity_ratio}};
  json["broken"] = check.broken;
  json["passed"] = check.broken.empty();
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<int> run_check(const CheckArguments& arguments) {
  if (arguments.model.dtype == "a8w8")
    return fail(ErrorCode::kUsage, "--dtype is the reference's, which a8w8 is compared with");
  GAPLESS_TRY(check_device_options(arguments.model));
  Check check;
  GAPLESS_TRY(load_both(arguments, check));
  GAPLESS_TRY(compare(arguments, check));
  GAPLESS_TRY(print(arguments.json ? check_json(arguments, check) : check_text(arguments, check)));
  return check.broken.empty() ? 0 : kExitBroken;
}

void add_limit_options(CLI::App& command, CheckArguments& arguments) {
  const QualityLimits& limits = arguments.limits;
  command
      .add_option(
          "--min-same-choice", arguments.limits.min_same_choice,
          fmt::format("Share of positions, mean over prompts (default {})", limits.min_same_choice))
      ->check(from_zero_on())
      ->type_name("X");
  command
      .add_option("--max-kl", arguments.limits.max_mean_divergence,
                  fmt::format("Nats, mean over positions (default {})", limits.max_mean_divergence))
      ->check(from_zero_on())
      ->type_name("X");
  command
      .add_option("--max-repetition", arguments.limits.max_extra_repetition,
                  fmt::format("Share of texts that may be loops beyond the\nreference's, mean over "
                              "prompts (default "
                              "{})",
                              limits.max_extra_repetition))
      ->type_name("X");
  command
      .add_option(
          "--max-perplexity-ratio", arguments.max_perplexity_ratio,
          fmt::format("Of A8W8 to the reference (default {})", arguments.max_perplexity_ratio))
      ->check(from_zero_on())
      ->type_name("X");
}

}  // namespace

RunCommand define_check(CLI::App& command) {
  const auto arguments = std::make_shared<CheckArguments>();
  add_model_argument(command, arguments->model);
  command
      .add_option("--candidate", arguments->candidate,
                  "An A8W8 checkpoint of MODEL (default: MODEL is\nquantised now)")
      ->option_text("PATH");
  CLI::Option* file =
      command.add_option("--prompts", arguments->prompts_file, "Prompts, one on each line");
  file->option_text("FILE");
  command.add_option("--tokens", arguments->tokens, "A prompt as token ids; may be given again")
      ->allow_extra_args(false)
      ->excludes(file)
      ->option_text("A,B,...");
  command.add_option("--count", arguments->counts, "Tokens to generate for each (default 16,48)")
      ->delimiter(',')
      ->check(CLI::Range(1, 1 << 20).description(""))
      ->allow_extra_args(false)
      ->option_text("A,B,...");
  command
      .add_option("--perplexity", arguments->perplexity_file,
                  "Compare the perplexity of this text too")
      ->option_text("FILE");
  add_limit_options(command, *arguments);
  command.add_flag("--json", arguments->json, "The same facts as JSON, with all tokens");
  add_device_option(command, arguments->model);
  add_model_options(command, arguments->model, "and of prompts where there is no tokenizer");
  command.footer(
      "Both generate the most likely tokens behind each prompt. AGREED: how many until the first\n"
      "that differs. Then both are fed what the reference said. SAME CHOICE: where A8W8 would\n"
      "have taken the same next token. KL: how far its probabilities are, in nats. LOOP: the part\n"
      "of a text that is one n-gram over and over, up to its end. Exit status 1: a limit is "
      "broken.\n"
      "\n"
      "Examples:\n"
      "  gapless check Qwen3-0.6B\n"
      "  gapless check Qwen3-0.6B --prompts prompts.txt --count 64 --perplexity book.txt\n"
      "  gapless check Qwen3-14B --candidate Qwen3-14B-A8W8 --json | jq .passed");
  return [arguments] { return run_check(*arguments); };
}

}  // namespace gapless
