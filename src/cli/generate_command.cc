// SPDX-License-Identifier: Apache-2.0
//
// gapless generate MODEL -p TEXT: what the model says next, as it says it, and how long that took.

#include <algorithm>
#include <cstdint>
#include <cstdio>
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
#include "model/chat_template.h"
#include "model/generate.h"

namespace gapless {
namespace {

using Json = nlohmann::ordered_json;
using Tokens = std::vector<int32_t>;

struct GenerateArguments {
  ModelOptions model;
  std::vector<std::string> prompts;
  std::vector<std::string> prompt_files;
  std::vector<std::string> tokens;
  bool chat = false;
  std::string system;
  bool no_think = false;
  int max_tokens = 128;
  std::optional<double> temperature;
  std::optional<int> top_k;
  std::optional<double> top_p;
  bool ignore_eos = false;
  bool json = false;
};

// The text of a file, "-" being standard input, without the newline at its end.
Result<std::string> read_prompt(const std::string& path) {
  std::string text = GAPLESS_TRY(read_text_file(path == "-" ? "/dev/stdin" : path));
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

Result<Tokens> encode_prompt(const Tokenizer& tokenizer, const GenerateArguments& arguments,
                             const std::string& text) {
  if (!arguments.chat) return tokenizer.encode(text);
  std::vector<ChatMessage> messages;
  if (!arguments.system.empty())
    messages.push_back({.role = ChatRole::kSystem, .content = arguments.system});
  messages.push_back({.role = ChatRole::kUser, .content = text});
  const std::string rendered =
      GAPLESS_TRY(render_chat(messages, {.enable_thinking = !arguments.no_think}));
  return tokenizer.encode(rendered);
}

// Those given as text, then those in files, then those given as tokens.
Result<std::vector<Tokens>> collect_prompts(const GenerateArguments& arguments,
                                            const ModelSource& source,
                                            const std::optional<Tokenizer>& tokenizer) {
  std::vector<std::string> texts = arguments.prompts;
  for (const std::string& path : arguments.prompt_files) {
    texts.push_back(GAPLESS_TRY(read_prompt(path)));
  }
  if (!texts.empty() && !tokenizer)
    return fail(ErrorCode::kInvalidInput,
                "{}: has no tokenizer.json, so prompts must be token ids: --tokens 1,17,99",
                source.text());
  std::vector<Tokens> prompts;
  for (const std::string& text : texts) {
    prompts.push_back(GAPLESS_TRY(encode_prompt(*tokenizer, arguments, text)));
  }
  for (const std::string& text : arguments.tokens) {
    prompts.push_back(GAPLESS_TRY(parse_tokens(text, source.config)));
  }
  return prompts;
}

// What the command line says, else what the model's makers say, else greedy.
SamplingOptions choose_sampling(const GenerateArguments& arguments, const ModelSource& source) {
  const GenerationConfig makers =
      source.checkpoint ? source.checkpoint->generation() : GenerationConfig{};
  const bool asked = arguments.top_k || arguments.top_p;
  SamplingOptions sampling{.temperature = asked ? 1.0 : 0.0, .seed = arguments.model.seed};
  if (makers.do_sample.value_or(false)) {
    sampling.temperature = makers.temperature.value_or(1.0);
    sampling.top_k = makers.top_k.value_or(0);
    sampling.top_p = makers.top_p.value_or(1.0);
  }
  sampling.temperature = arguments.temperature.value_or(sampling.temperature);
  sampling.top_k = arguments.top_k.value_or(sampling.top_k);
  sampling.top_p = arguments.top_p.value_or(sampling.top_p);
  return sampling;
}

Tokens end_tokens(const GenerateArguments& arguments, const ModelSource& source,
                  const std::optional<Tokenizer>& tokenizer) {
  if (arguments.ignore_eos) return {};
  if (source.checkpoint && !source.checkpoint->generation().eos_tokens.empty())
    return source.checkpoint->generation().eos_tokens;
  if (!tokenizer) return {};
  return {tokenizer->end_ids().begin(), tokenizer->end_ids().end()};
}

// Writes the tokens of one sequence as they come: text, or ids where there is no tokenizer.
class TokenPrinter {
 public:
  explicit TokenPrinter(const std::optional<Tokenizer>& tokenizer) {
    if (tokenizer) stream_.emplace(*tokenizer, SpecialTokens::kSkip);
  }

  std::string push(int32_t token) {
    if (stream_) return stream_->push(token);
    return fmt::format("{}{}", std::exchange(is_first_, false) ? "" : " ", token);
  }
  std::string finish() { return stream_ ? stream_->finish() : ""; }

 private:
  std::optional<TextStream> stream_;
  bool is_first_ = true;
};

std::string whole_text(const std::optional<Tokenizer>& tokenizer, const Tokens& tokens) {
  TokenPrinter printer(tokenizer);
  std::string text;
  for (const int32_t token : tokens) text += printer.push(token);
  return text + printer.finish();
}

struct StepTimes {
  double median_s = 0.0;
  double smallest_s = 0.0;
  double largest_s = 0.0;
  double sum_s = 0.0;
};

StepTimes summarise(std::vector<double> step_s) {
  if (step_s.empty()) return {};
  std::sort(step_s.begin(), step_s.end());
  StepTimes times{.median_s = step_s[step_s.size() / 2],
                  .smallest_s = step_s.front(),
                  .largest_s = step_s.back()};
  for (const double one : step_s) times.sum_s += one;
  return times;
}

double rate(int64_t count, double seconds) {
  return seconds > 0.0 ? static_cast<double>(count) / seconds : 0.0;
}

// Of the decode steps alone: the first token of each sequence is the prefill's.
double decode_rate(const GenerationResult& result) {
  const int64_t first_tokens = std::ssize(result.sequences);
  return rate(result.times.generated_tokens - first_tokens, summarise(result.times.step_s).sum_s);
}

std::string duration_text(double seconds) {
  return format_duration(static_cast<int64_t>(seconds * 1e9));
}

std::string tokens_text(int64_t count) {
  return fmt::format("{} token{}", count, count == 1 ? "" : "s");
}

std::string times_text(const GenerationResult& result, const std::string& device) {
  const GenerationTimes& times = result.times;
  const StepTimes steps = summarise(times.step_s);
  std::string text = fmt::format("{:<16}{}\n", "device", device);
  text +=
      fmt::format("{:<16}{} in {}, {:.1f} tokens/s\n", "prompt", tokens_text(times.prompt_tokens),
                  duration_text(times.prefill_s), rate(times.prompt_tokens, times.prefill_s));
  text += fmt::format("{:<16}{}", "generated", tokens_text(times.generated_tokens));
  if (result.sequences.size() == 1)
    text += fmt::format(", {}", finish_reason_name(result.sequences[0].reason));
  text += fmt::format("\n{:<16}{}\n", "first token", duration_text(times.first_token_s));
  if (times.step_s.empty()) return text;
  text +=
      fmt::format("{:<16}{} in the median, {} to {}\n", "each step", duration_text(steps.median_s),
                  duration_text(steps.smallest_s), duration_text(steps.largest_s));
  text += fmt::format("{:<16}{:.1f} tokens/s\n", "decode", decode_rate(result));
  return text;
}

Json times_json(const GenerationResult& result) {
  const GenerationTimes& times = result.times;
  const StepTimes steps = summarise(times.step_s);
  return {{"prompt_tokens", times.prompt_tokens},
          {"generated_tokens", times.generated_tokens},
          {"prefill_s", times.prefill_s},
          {"prompt_tokens_per_s", rate(times.prompt_tokens, times.prefill_s)},
          {"first_token_s", times.first_token_s},
          {"step_count", times.step_s.size()},
          {"step_median_s", steps.median_s},
          {"step_smallest_s", steps.smallest_s},
          {"step_largest_s", steps.largest_s},
          {"decode_tokens_per_s", decode_rate(result)}};
}

// A run: what it takes and what it gives.
struct Run {
  ModelSource source;
  std::optional<Tokenizer> tokenizer;
  std::vector<Tokens> prompts;
  GenerateOptions options;
  ModelDevice device;
  LoadedModel model;
  GenerationResult result;
};

std::string run_json(const Run& run) {
  const SamplingOptions& sampling = run.options.sampling;
  Json json;
  json["model"] = run.source.config.name;
  json["layers"] = run.source.config.layers;
  json["dtype"] = weights_dtype_name(run.model.dtype);
  json["kv_dtype"] = dtype_name(run.model.kv_dtype);
  json["device"] = run.device.text;
  if (run.device.cpu) json["cpu_level"] = run.device.level;
  json["sampling"] = {{"temperature", sampling.temperature},
                      {"top_k", sampling.top_k},
                      {"top_p", sampling.top_p},
                      {"seed", sampling.seed}};
  json["sequences"] = Json::array();
  for (size_t i = 0; i < run.prompts.size(); ++i) {
    const Generation& made = run.result.sequences[i];
    Json sequence{{"prompt_tokens", run.prompts[i]},
                  {"tokens", made.tokens},
                  {"reason", finish_reason_name(made.reason)}};
    if (run.tokenizer) sequence["text"] = whole_text(run.tokenizer, made.tokens);
    json["sequences"].push_back(std::move(sequence));
  }
  json["times"] = times_json(run.result);
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

Result<void> print_sequences(const Run& run) {
  std::string text;
  for (size_t i = 0; i < run.prompts.size(); ++i) {
    const Generation& made = run.result.sequences[i];
    text += fmt::format("{}== prompt {}: {}, {}\n{}\n", i == 0 ? "" : "\n", i,
                        tokens_text(std::ssize(made.tokens)), finish_reason_name(made.reason),
                        whole_text(run.tokenizer, made.tokens));
  }
  return print(text);
}

// The only sequence, as it comes.
Result<void> stream_sequence(Run& run) {
  TokenPrinter printer(run.tokenizer);
  Result<void> printed;
  run.result = GAPLESS_TRY(generate(*run.model.decoder, run.prompts, run.options,
                                    [&printer, &printed](int /*sequence*/, int32_t token) {
                                      printed = print(printer.push(token));
                                      // A reader that has gone away is no error, but the end.
                                      return printed && std::ferror(stdout) == 0;
                                    }));
  if (!printed) return printed;
  return print(printer.finish() + "\n");
}

// All sequences, with nothing but a bar to look at.
Result<void> generate_silently(Run& run) {
  ProgressBar bar("generating", ProgressUnit::kUnknown);
  const Progress progress = bar.callback();
  const uint64_t most = run.prompts.size() * static_cast<uint64_t>(run.options.max_tokens);
  uint64_t done = 0;
  run.result = GAPLESS_TRY(generate(*run.model.decoder, run.prompts, run.options,
                                    [&progress, &done, most](int /*sequence*/, int32_t /*token*/) {
                                      if (progress) progress(++done, most);
                                      return true;
                                    }));
  return {};
}

Result<void> generate_and_print(Run& run, bool json) {
  if (!json && run.prompts.size() == 1) {
    GAPLESS_TRY(stream_sequence(run));
  } else {
    GAPLESS_TRY(generate_silently(run));
    if (json) return print(run_json(run));
    GAPLESS_TRY(print_sequences(run));
  }
  const std::string times = "\n" + times_text(run.result, run.device.text);
  std::fwrite(times.data(), 1, times.size(), stderr);
  return {};
}

Result<int> run_generate(const GenerateArguments& arguments) {
  GAPLESS_TRY(check_device_options(arguments.model));
  Run run;
  run.source = GAPLESS_TRY(find_model(arguments.model));
  run.tokenizer = GAPLESS_TRY(find_tokenizer(run.source));
  run.prompts = GAPLESS_TRY(collect_prompts(arguments, run.source, run.tokenizer));
  run.options = {.sampling = choose_sampling(arguments, run.source),
                 .max_tokens = arguments.max_tokens,
                 .end_tokens = end_tokens(arguments, run.source, run.tokenizer)};
  int64_t longest = 0;
  for (const Tokens& prompt : run.prompts) longest = std::max(longest, std::ssize(prompt));
  const int64_t needed = longest + std::max(1, arguments.max_tokens);
  const int positions = run.source.config.max_positions;
  const DecoderNeeds needs{.max_sequences = static_cast<int>(std::ssize(run.prompts)),
                           .max_length = static_cast<int>(std::min<int64_t>(needed, positions))};
  // Before the weights are packed, which takes long.
  const int max_length = context_length(arguments.model, run.source.config, needs.max_length);
  GAPLESS_TRY(check_prompts(run.prompts, kMaxMatmulRows, max_length));
  GAPLESS_TRY(check_sampling(run.options.sampling));
  const DType dtype = weights_dtype(arguments.model, run.source.config);
  GAPLESS_TRY(check_device_dtype(arguments.model, dtype));
  run.device = GAPLESS_TRY(open_device(arguments.model));
  run.model = GAPLESS_TRY(load_model(run.source, arguments.model, dtype, needs, run.device));
  GAPLESS_TRY(generate_and_print(run, arguments.json));
  return 0;
}

void add_prompt_options(CLI::App& command, GenerateArguments& arguments) {
  command.add_option("-p,--prompt", arguments.prompts, "What to continue; may be given again")
      ->allow_extra_args(false)
      ->option_text("TEXT");
  command
      .add_option("--prompt-file", arguments.prompt_files,
                  "The same from a file; - is standard input. A\nnewline at its end does not count")
      ->allow_extra_args(false)
      ->option_text("FILE");
  command
      .add_option("--tokens", arguments.tokens,
                  "The same as token ids, for checkpoints without\na tokenizer")
      ->allow_extra_args(false)
      ->option_text("A,B,...");
  command.add_flag("--chat", arguments.chat, "The prompt is what a user says: Qwen3's template");
  command.add_option("--system", arguments.system, "What the system says before it")
      ->option_text("TEXT");
  command.add_flag("--no-think", arguments.no_think, "The model is to answer without thinking");
}

}  // namespace

RunCommand define_generate(CLI::App& command) {
  const auto arguments = std::make_shared<GenerateArguments>();
  add_model_argument(command, arguments->model);
  add_prompt_options(command, *arguments);
  command
      .add_option("--max-tokens", arguments->max_tokens,
                  "At most so many for each prompt (default 128)")
      ->check(CLI::Range(1, 1 << 24).description(""))
      ->type_name("N");
  command.add_option("--temperature", arguments->temperature, "0: always the most likely token")
      ->type_name("T");
  command
      .add_option("--top-k", arguments->top_k, "Draw from the k most likely tokens; 0: from all")
      ->type_name("K");
  command
      .add_option("--top-p", arguments->top_p,
                  "Draw from the fewest tokens that have this much\nof the probability")
      ->type_name("P");
  command.add_flag("--ignore-eos", arguments->ignore_eos, "Go on behind an end token");
  command.add_flag("--json", arguments->json, "Tokens, text and times as JSON");
  add_device_option(command, arguments->model);
  add_model_options(command, arguments->model, "and of sampling");
  command.footer(
      "One prompt: its text is written as it is made. Several are generated together and written\n"
      "at the end. How long it took goes to standard error. Without --temperature, --top-k and\n"
      "--top-p the checkpoint's generation_config.json decides; without one, or where it does not\n"
      "say do_sample, the most likely token is taken, and its top_k and top_p do not count.\n"
      "\n"
      "Examples:\n"
      "  gapless generate Qwen3-0.6B --chat -p 'Why is the sky blue?'\n"
      "  gapless generate Qwen3-0.6B --dtype a8w8 -p 'Once upon a time' --temperature 0\n"
      "  gapless generate Qwen3-14B --device cuda --chat -p 'Why is the sky blue?'\n"
      "  gapless generate qwen3-0.6b --tokens 1,2,3 --max-tokens 32 --json | jq .times");
  return [arguments]() -> Result<int> {
    const GenerateArguments& typed = *arguments;
    if (typed.prompts.empty() && typed.prompt_files.empty() && typed.tokens.empty())
      return fail(ErrorCode::kUsage, "no prompt: -p, --prompt-file or --tokens is required");
    if (!typed.chat && (typed.no_think || !typed.system.empty()))
      return fail(ErrorCode::kUsage, "--system and --no-think need --chat");
    return run_generate(typed);
  };
}

}  // namespace gapless
