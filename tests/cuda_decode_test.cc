// SPDX-License-Identifier: Apache-2.0
//
// The GPU decoder against transformers (tests/data/qwen3), against the CPU decoder and against
// itself: in other batches, in other forms of the same step, recorded.

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "analysis/kernel_times.h"
#include "cuda/gpu_test_support.h"
#include "cuda/recorder.h"
#include "model/cuda_decoder.h"
#include "model/cuda_weights.h"
#include "model/decoder_test_support.h"
#include "report/adds_up_test_support.h"
#include "report/step_report.h"
#include "tests/golden_decode_support.h"

namespace gapless {
namespace {

class CudaDecode : public GpuTest {};

struct CudaCase {
  DType dtype = DType::kBf16;
  DType kv_dtype = DType::kBf16;
  Fusions fusions = default_cuda_fusions();
  bool starts_early = true;
  int max_sequences = 8;
  int max_length = 200;
  int page_tokens = 16;
};

struct CudaSubject {
  std::unique_ptr<CudaModelWeights> weights;
  std::unique_ptr<CudaDecoder> decoder;
  CudaDecoder& operator*() { return *decoder; }
};

std::unique_ptr<CudaDecoder> decoder_of(const CudaModelWeights& weights,
                                        const CudaCase& cuda_case) {
  return must(CudaDecoder::create(weights, {.fusions = cuda_case.fusions,
                                            .kv_dtype = cuda_case.kv_dtype,
                                            .page_tokens = cuda_case.page_tokens,
                                            .max_sequences = cuda_case.max_sequences,
                                            .max_length = cuda_case.max_length,
                                            .starts_early = cuda_case.starts_early}));
}

CudaSubject subject_of(CudaModelWeights weights, const CudaCase& cuda_case) {
  CudaSubject subject;
  subject.weights = std::make_unique<CudaModelWeights>(std::move(weights));
  subject.decoder = decoder_of(*subject.weights, cuda_case);
  return subject;
}

CudaSubject golden_subject(const std::string& name, const CudaCase& cuda_case) {
  const std::shared_ptr<const Checkpoint> checkpoint =
      std::make_shared<const Checkpoint>(must(Checkpoint::open(golden_folder(name))));
  return subject_of(
      must(load_cuda_weights(checkpoint, {.dtype = cuda_case.dtype,
                                          .dual_gate_up = cuda_case.fusions.dual_gate_up,
                                          .thread_count = 1})),
      cuda_case);
}

// Five query heads a kv head, and widths that are no multiple of a tile.
ModelConfig small_config() {
  ModelConfig config = tiny_config();
  config.name = "small";
  config.hidden = 208;
  config.intermediate = 304;
  config.vocabulary = 272;
  return config;
}

CudaSubject small_subject(const CudaCase& cuda_case) {
  ModelConfig config = small_config();
  config.max_positions = std::max(config.max_positions, cuda_case.max_length);
  return subject_of(
      must(make_synthetic_cuda_weights(
          config, 7, {.dtype = cuda_case.dtype, .dual_gate_up = cuda_case.fusions.dual_gate_up})),
      cuda_case);
}

std::vector<std::string> golden_names() {
  std::vector<std::string> names = golden_f32_names();
  names.insert(names.end(), golden_bf16_names().begin(), golden_bf16_names().end());
  return names;
}

// Every set of fusions is a test of its own: a sanitizer ends each within minutes.
std::vector<Fusions> all_fusions() {
  std::vector<Fusions> all;
  for (int bits = 0; bits < 16; ++bits)
    all.push_back({.dual_gate_up = (bits & 1) != 0,
                   .qk_norm_rope = (bits & 2) != 0,
                   .deferred_norm = (bits & 4) != 0,
                   .residual = (bits & 8) != 0});
  return all;
}

class CudaDecodeFusions : public CudaDecode, public testing::WithParamInterface<Fusions> {};

std::string name_of_fusions(const testing::TestParamInfo<Fusions>& test) {
  std::string name;
  if (test.param.dual_gate_up) name += "DualGateUp";
  if (test.param.qk_norm_rope) name += "QkNormRope";
  if (test.param.deferred_norm) name += "DeferredNorm";
  if (test.param.residual) name += "Residual";
  return name.empty() ? "None" : name;
}

INSTANTIATE_TEST_SUITE_P(With, CudaDecodeFusions, testing::ValuesIn(all_fusions()),
                         name_of_fusions);

double rms(std::span<const float> a) {
  return rms_difference(a, std::vector<float>(a.size(), 0.0f));
}

// ---- Against transformers.

TEST_P(CudaDecodeFusions, ChooseTheTokensOfTransformersInBf16) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  for (const std::string& name : golden_bf16_names()) {
    CudaSubject subject = golden_subject(name, {.fusions = GetParam()});
    for (const GoldenPrompt& golden : read_golden(name))
      EXPECT_EQ(continue_greedily(*subject, golden), golden.greedy) << name;
  }
}

TEST_F(CudaDecode, IsCloserToTheExactLogitsThanTransformersInBf16) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  for (const std::string& name : golden_bf16_names()) {
    CudaSubject subject = golden_subject(name, {});
    for (const GoldenPrompt& golden : read_golden(name)) {
      const std::vector<float> logits = logits_alone(*subject, golden.prompt);
      EXPECT_LE(rms_difference(logits, golden.exact),
                0.8 * rms_difference(golden.logits, golden.exact))
          << name;
    }
  }
}

TEST_P(CudaDecodeFusions, AreNearTheExactLogitsInA8W8) {
  if (!has_golden_data()) GTEST_SKIP() << no_golden_data();
  for (const std::string& name : golden_names()) {
    CudaSubject subject = golden_subject(name, {.dtype = DType::kS8, .fusions = GetParam()});
    for (const GoldenPrompt& golden : read_golden(name)) {
      const double error =
          rms_difference(logits_alone(*subject, golden.prompt), golden.exact) / rms(golden.exact);
      EXPECT_LE(error, 0.05) << name;
      EXPECT_GE(error, 0.002) << name;
    }
  }
}

// ---- Against the CPU.

// The same casts in the same places, so that only a value on the edge between two can differ.
TEST_F(CudaDecode, GivesTheLogitsOfTheCpuDecoder) {
  for (const DType dtype : {DType::kBf16, DType::kS8}) {
    for (const DType kv_dtype : {DType::kBf16, DType::kF16}) {
      for (const bool deferred : {false, true}) {
        const Fusions fusions = {.deferred_norm = deferred};
        CudaSubject subject =
            small_subject({.dtype = dtype, .kv_dtype = kv_dtype, .fusions = fusions});
        const ModelWeights weights =
            must(make_synthetic_weights(small_config(), 7, {.dtype = dtype, .thread_count = 1}));
        const std::unique_ptr<CpuDevice> device = make_device();
        CpuDecoderOptions options = tiny_options(weights);
        options.fusions = fusions;
        options.kv_dtype = kv_dtype;
        options.chunk_tokens = kDefaultChunkTokens;
        const std::unique_ptr<CpuDecoder> cpu = must(CpuDecoder::create(*device, weights, options));
        const std::vector<int32_t> tokens = random_tokens(3, 120, small_config().vocabulary);
        const std::vector<float> expected = logits_alone(*cpu, tokens);
        const double error = rms_difference(logits_alone(*subject, tokens), expected);
        EXPECT_LE(error / rms(expected), dtype == DType::kS8 ? 0.02 : 0.006)
            << dtype_name(dtype) << ", cache in " << dtype_name(kv_dtype);
      }
    }
  }
}

// ---- Against itself.

class CudaDecodeOfAPrompt : public CudaDecode, public testing::WithParamInterface<DType> {};

INSTANTIATE_TEST_SUITE_P(In, CudaDecodeOfAPrompt, testing::Values(DType::kBf16, DType::kS8),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

TEST_P(CudaDecodeOfAPrompt, GivesTheSameBitsTokenByTokenAndInChunks) {
  CudaSubject subject = small_subject({.dtype = GetParam()});
  const std::vector<int32_t> tokens = random_tokens(4, 70, small_config().vocabulary);
  const std::vector<float> expected = logits_alone(*subject, tokens, 1);
  for (const size_t chunk : {3u, 16u, 33u, 64u})
    EXPECT_EQ(logits_alone(*subject, tokens, chunk), expected) << chunk;
}

TEST_F(CudaDecode, GivesTheSameBitsInAnyBatch) {
  for (const DType dtype : {DType::kBf16, DType::kS8}) {
    CudaSubject subject = small_subject({.dtype = dtype});
    CudaDecoder& decoder = *subject;
    std::vector<std::vector<int32_t>> prompts;
    std::vector<std::vector<float>> expected;
    for (uint64_t i = 0; i < 5; ++i) {
      prompts.push_back(random_tokens(i + 20, 1 + i * 37, small_config().vocabulary));
      expected.push_back(logits_alone(decoder, prompts.back()));
    }
    std::vector<StepRow> last;
    for (const std::vector<int32_t>& prompt : prompts) {
      const int sequence = must(decoder.add_sequence());
      if (prompt.size() > 1)
        static_cast<void>(
            append_tokens(decoder, sequence, std::span(prompt).first(prompt.size() - 1), 64));
      last.push_back({.sequence = sequence, .token = prompt.back()});
    }
    const std::vector<float> logits = step_logits(decoder, last);
    const size_t vocabulary = static_cast<size_t>(small_config().vocabulary);
    for (size_t i = 0; i < prompts.size(); ++i) {
      const std::vector<float> row(logits.begin() + static_cast<int64_t>(i * vocabulary),
                                   logits.begin() + static_cast<int64_t>((i + 1) * vocabulary));
      const std::vector<float> alone(expected[i].end() - static_cast<int64_t>(vocabulary),
                                     expected[i].end());
      EXPECT_EQ(row, alone) << "sequence " << i;
    }
  }
}

TEST_F(CudaDecode, GivesTheSameBitsWhenLaunchesDoNotOverlapAndWithOtherFusions) {
  const std::vector<int32_t> tokens = random_tokens(5, 70, small_config().vocabulary);
  CudaSubject subject = small_subject({});
  const std::vector<float> expected = logits_alone(*subject, tokens, 7);
  CudaSubject in_turn = small_subject({.starts_early = false});
  EXPECT_EQ(logits_alone(*in_turn, tokens, 7), expected);
  // These do not move a cast; a residual of its own adds the same two numbers.
  for (const Fusions& fusions : {Fusions{.qk_norm_rope = false, .deferred_norm = false},
                                 Fusions{.deferred_norm = false, .residual = false}}) {
    CudaSubject other = small_subject({.fusions = fusions});
    EXPECT_EQ(logits_alone(*other, tokens, 7), expected);
  }
}

// As wide as a real model: matmuls with a block on every SM, rows in clusters of blocks. A race
// would show in some input or other.
class CudaDecodeAtFullWidth : public CudaDecode,
                              public testing::WithParamInterface<std::tuple<DType, int>> {};

std::string input_name(const testing::TestParamInfo<std::tuple<DType, int>>& test) {
  return fmt::format("{}Input{}", dtype_name(std::get<0>(test.param)), std::get<1>(test.param));
}

constexpr DType kWeightTypes[] = {DType::kBf16, DType::kS8};
INSTANTIATE_TEST_SUITE_P(First, CudaDecodeAtFullWidth,
                         testing::Combine(testing::ValuesIn(kWeightTypes), testing::Values(0)),
                         input_name);
// Apart: they take the same ways through the kernels, and minutes each under a sanitizer.
INSTANTIATE_TEST_SUITE_P(Others, CudaDecodeAtFullWidth,
                         testing::Combine(testing::ValuesIn(kWeightTypes), testing::Range(1, 12)),
                         input_name);

TEST_P(CudaDecodeAtFullWidth, GivesTheSameBitsWhenLaunchesOverlap) {
  constexpr int kRows = 16;
  const auto [dtype, input] = GetParam();
  ModelConfig config = must(find_model_config("qwen3-14b"));
  config.layers = 2;
  const CudaModelWeights weights =
      must(make_synthetic_cuda_weights(config, 3, {.dtype = dtype, .with_head = false}));
  std::vector<float> x(static_cast<size_t>(kRows) * static_cast<size_t>(config.hidden));
  fill_normal(9, static_cast<uint64_t>(input) << 32, x);
  std::vector<float> results[2];
  for (const bool starts_early : {false, true}) {
    const std::unique_ptr<CudaDecoder> decoder =
        decoder_of(weights, {.dtype = dtype, .starts_early = starts_early, .max_sequences = kRows});
    std::vector<int> sequences;
    for (int i = 0; i < kRows; ++i) {
      sequences.push_back(must(decoder->add_sequence()));
      ASSERT_TRUE(decoder->fill_sequence(sequences.back(), i * 11 + input, 5));
    }
    const std::span<const float> y = must(decoder->step_hidden(sequences, x));
    expect_numbers(y);
    results[starts_early ? 1 : 0].assign(y.begin(), y.end());
  }
  EXPECT_EQ(results[0], results[1]);
}

// ---- Long sequences.

// Up to 34 chunks of the attention, which folds 32 in a row; steps go on over the end of a chunk.
constexpr int kLongLengths[] = {17000, 3, 2700, 511, 4096, 0, 5000, 1022};
constexpr int kLongCount = 8;
constexpr int kLongSteps = 3;
constexpr int kLongest = 17000 + kLongSteps;

// What steps in one batch make of the sequences with these numbers: of each one [steps][hidden].
std::vector<std::vector<float>> decode_long(CudaDecoder& decoder, std::span<const int> numbers) {
  const size_t hidden = static_cast<size_t>(decoder.config().hidden);
  std::vector<int> sequences;
  for (const int number : numbers) {
    sequences.push_back(must(decoder.add_sequence()));
    const Result<void> filled = decoder.fill_sequence(sequences.back(), kLongLengths[number],
                                                      static_cast<uint64_t>(number));
    EXPECT_TRUE(filled) << filled.error().message;
  }
  std::vector<std::vector<float>> results(numbers.size());
  std::vector<float> x(numbers.size() * hidden);
  for (int step = 0; step < kLongSteps; ++step) {
    for (size_t i = 0; i < numbers.size(); ++i)
      fill_normal(static_cast<uint64_t>(step), static_cast<uint64_t>(numbers[i]) << 32,
                  std::span(x).subspan(i * hidden, hidden));
    const std::span<const float> y = must(decoder.step_hidden(sequences, x));
    expect_numbers(y);
    for (size_t i = 0; i < numbers.size(); ++i) {
      const std::span<const float> row = y.subspan(i * hidden, hidden);
      results[i].insert(results[i].end(), row.begin(), row.end());
    }
  }
  for (const int sequence : sequences) decoder.release(sequence);
  return results;
}

constexpr int kLongNumbers[kLongCount] = {0, 1, 2, 3, 4, 5, 6, 7};
constexpr int kLongOtherOrder[kLongCount] = {5, 2, 7, 0, 6, 1, 4, 3};

// Batches in two orders, and each of `alone` for itself.
void expect_long_bits(CudaDecoder& decoder, std::span<const int> alone,
                      const std::vector<std::vector<float>>& expected) {
  const std::vector<std::vector<float>> results = decode_long(decoder, kLongOtherOrder);
  for (size_t i = 0; i < results.size(); ++i) {
    const int number = kLongOtherOrder[i];
    EXPECT_TRUE(results[i] == expected[static_cast<size_t>(number)])
        << kLongLengths[number] << " tokens in another order";
  }
  for (const int number : alone) {
    EXPECT_TRUE(decode_long(decoder, {&number, 1})[0] == expected[static_cast<size_t>(number)])
        << kLongLengths[number] << " tokens alone";
  }
}

class CudaDecodeOfLongSequences : public CudaDecode, public testing::WithParamInterface<DType> {};

INSTANTIATE_TEST_SUITE_P(In, CudaDecodeOfLongSequences, testing::Values(DType::kBf16, DType::kS8),
                         [](const auto& test) { return std::string(dtype_name(test.param)); });

TEST_P(CudaDecodeOfLongSequences, GivesTheSameBitsInAnyBatchAndWhenLaunchesOverlap) {
  std::vector<std::vector<float>> expected;
  for (const bool starts_early : {false, true}) {
    CudaSubject subject = small_subject({.dtype = GetParam(),
                                         .starts_early = starts_early,
                                         .max_sequences = kLongCount,
                                         .max_length = kLongest});
    const std::vector<std::vector<float>> results = decode_long(*subject, kLongNumbers);
    if (!starts_early) expected = results;
    EXPECT_TRUE(results == expected) << "launches that overlap";
    expect_long_bits(*subject, kLongNumbers, expected);
  }
}

TEST_P(CudaDecodeOfLongSequences, GivesTheSameBitsAtFullWidth) {
  ModelConfig config = must(find_model_config("qwen3-14b"));
  config.layers = 2;
  const CudaModelWeights weights =
      must(make_synthetic_cuda_weights(config, 3, {.dtype = GetParam(), .with_head = false}));
  std::vector<std::vector<float>> expected;
  for (const bool starts_early : {false, true}) {
    const std::unique_ptr<CudaDecoder> decoder = decoder_of(weights, {.dtype = GetParam(),
                                                                      .starts_early = starts_early,
                                                                      .max_sequences = kLongCount,
                                                                      .max_length = kLongest});
    const std::vector<std::vector<float>> results = decode_long(*decoder, kLongNumbers);
    if (!starts_early) expected = results;
    EXPECT_TRUE(results == expected) << "launches that overlap";
    expect_long_bits(*decoder, std::span(kLongNumbers).first(3), expected);
  }
}

// ---- Tokens and sequences.

// Goal: a graph that was left out of those that are kept is made again, and is that of its form.
// Method: more forms than are kept, twice over; a row has the bits of a batch that is always full,
// whose other rows are of sequences that are not looked at. (Alone, rows would be 1640 steps, and a
// sanitizer would not come to their end.)
TEST_F(CudaDecode, GivesTheSameBitsInMoreFormsThanAreKept) {
  constexpr int kForms = 40;
  CudaSubject subject = small_subject({.max_sequences = kForms});
  CudaSubject full = small_subject({.max_sequences = 2 * kForms});
  std::vector<int> sequences;
  std::vector<int> others;
  for (int i = 0; i < kForms; ++i) {
    sequences.push_back(must((*full).add_sequence()));
    ASSERT_EQ(must((*subject).add_sequence()), sequences.back());
  }
  for (int i = 0; i < kForms; ++i) others.push_back(must((*full).add_sequence()));
  const size_t hidden = static_cast<size_t>(small_config().hidden);
  std::vector<float> x(kForms * hidden);
  fill_normal(2, 0, x);
  for (int step = 0; step < 2 * kForms; ++step) {
    const size_t rows = static_cast<size_t>(step % kForms) + 1;
    const std::span<const float> y = must((*subject).step_hidden(
        std::span(sequences).first(rows), std::span(x).first(rows * hidden)));
    expect_numbers(y);
    std::vector<int> batch(others);
    std::copy_n(sequences.begin(), rows, batch.begin());
    const std::span<const float> expected = must((*full).step_hidden(batch, x));
    ASSERT_TRUE(std::ranges::equal(y, expected.first(rows * hidden)))
        << rows << " rows, step " << step;
  }
}

// Pages of 128 tokens are what the commands have.
TEST_F(CudaDecode, GivesTheSameBitsWithPagesOfAnySize) {
  std::vector<float> expected;
  for (const int page_tokens : {16, 128, 256}) {
    CudaSubject subject = small_subject({.max_length = 700, .page_tokens = page_tokens});
    std::vector<int> sequences;
    for (const int length : {1, 127, 128, 129, 600}) {
      sequences.push_back(must((*subject).add_sequence()));
      ASSERT_TRUE((*subject).fill_sequence(sequences.back(), length, 5));
    }
    std::vector<float> x(sequences.size() * static_cast<size_t>(small_config().hidden));
    fill_normal(3, 0, x);
    for (int step = 0; step < 3; ++step) {
      const std::span<const float> y = must((*subject).step_hidden(sequences, x));
      expect_numbers(y);
      x.assign(y.begin(), y.end());
    }
    if (expected.empty()) expected = x;
    EXPECT_EQ(x, expected) << "pages of " << page_tokens;
  }
}

TEST_F(CudaDecode, TakesTheLargestLogits) {
  CudaSubject subject = small_subject({});
  CudaDecoder& decoder = *subject;
  const std::vector<int32_t> tokens = random_tokens(6, 9, small_config().vocabulary);
  const std::vector<float> logits = logits_alone(decoder, tokens);
  for (const int top_k : {1, 5, 300}) {
    const int sequence = must(decoder.add_sequence());
    std::vector<StepRow> rows;
    for (const int32_t token : tokens) rows.push_back({.sequence = sequence, .token = token});
    const std::vector<int> head_rows = {2, 8};
    const StepResult result =
        must(decoder.step({.rows = rows, .head_rows = head_rows, .top_k = top_k}));
    ASSERT_EQ(result.top.size(), head_rows.size() * static_cast<size_t>(top_k));
    for (size_t i = 0; i < head_rows.size(); ++i) {
      const size_t vocabulary = static_cast<size_t>(small_config().vocabulary);
      std::vector<Candidate> expected(static_cast<size_t>(top_k));
      take_top(
          CpuLevel::kPortable,
          std::span(logits).subspan(static_cast<size_t>(head_rows[i]) * vocabulary, vocabulary), 0,
          expected);
      for (size_t k = 0; k < expected.size(); ++k)
        EXPECT_EQ(result.top[i * expected.size() + k], expected[k]);
    }
    decoder.release(sequence);
  }
}

TEST_F(CudaDecode, ForksShareTheirPast) {
  CudaSubject subject = small_subject({.dtype = DType::kS8});
  CudaDecoder& decoder = *subject;
  const std::vector<int32_t> past = random_tokens(8, 37, small_config().vocabulary);
  const std::vector<int32_t> left = random_tokens(9, 5, small_config().vocabulary);
  const std::vector<int32_t> right = random_tokens(10, 5, small_config().vocabulary);
  const int first = must(decoder.add_sequence());
  static_cast<void>(append_tokens(decoder, first, past, 64));
  const int second = must(decoder.fork(first, 37));
  const std::vector<float> of_left = append_tokens(decoder, first, left, 1);
  const std::vector<float> of_right = append_tokens(decoder, second, right, 1);
  for (const auto& [tail, logits] : {std::pair(left, of_left), std::pair(right, of_right)}) {
    std::vector<int32_t> whole = past;
    whole.insert(whole.end(), tail.begin(), tail.end());
    const std::vector<float> all = logits_alone(decoder, whole);
    EXPECT_TRUE(
        std::equal(logits.begin(), logits.end(), all.end() - static_cast<int64_t>(logits.size())));
  }
}

TEST_F(CudaDecode, AStepThatIsRefusedChangesNothing) {
  CudaSubject subject = small_subject({.max_sequences = 1});
  CudaDecoder& decoder = *subject;
  const int sequence = must(decoder.add_sequence());
  const StepRow row = {.sequence = sequence, .token = small_config().vocabulary};
  const Result<StepResult> bad = decoder.step({.rows = {&row, 1}});
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message, "token 272 of sequence 0; model 'small' has tokens 0 to 271");
  const std::vector<StepRow> rows = {{.sequence = sequence, .token = 1}, {.sequence = 5}};
  EXPECT_FALSE(decoder.step({.rows = rows}));
  EXPECT_EQ(decoder.length(sequence), 0);
}

// ---- Recorded.

void expect_recorded_step(const CudaCase& cuda_case, RecordLevel level) {
  SCOPED_TRACE(dtype_name(cuda_case.dtype));
  CudaSubject subject = small_subject(cuda_case);
  CudaDecoder& decoder = *subject;
  std::vector<int> sequences;
  for (int i = 0; i < 4; ++i) {
    sequences.push_back(must(decoder.add_sequence()));
    ASSERT_TRUE(decoder.fill_sequence(sequences.back(), 30 + i * 40, 11));
  }
  std::vector<float> x(sequences.size() * static_cast<size_t>(small_config().hidden));
  fill_normal(1, 0, x);
  const std::span<const float> y = must(decoder.step_hidden(sequences, x));
  const std::vector<float> expected(y.begin(), y.end());
  constexpr int kSteps = 5;
  EXPECT_EQ(must(decoder.repeat_step(kSteps)).size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(must(decoder.copy_hidden()), expected);
  EXPECT_EQ(must(decoder.repeat_step_recorded(kSteps, level)).size(), static_cast<size_t>(kSteps));
  EXPECT_EQ(must(decoder.copy_hidden()), expected) << "by launches that record";
  const std::vector<CudaNode> nodes = decoder.last_nodes();
  const Trace trace = device_trace(must(decoder.take_recording()));
  int64_t blocks = 0;
  int64_t bytes = 0;
  for (const CudaNode& node : nodes) {
    blocks += node.blocks;
    bytes += node.bytes;
  }
  EXPECT_EQ(static_cast<int64_t>(trace.tasks.size()), blocks * (kSteps + 1));
  int64_t task_bytes = 0;
  for (const int64_t some : trace.tasks.bytes) task_bytes += some;
  EXPECT_EQ(task_bytes, bytes * (kSteps + 1));
  for (const Finding& finding : trace.findings)
    EXPECT_TRUE(finding.code != "dropped" && finding.code != "records-missing" &&
                finding.severity != Severity::kError)
        << finding.text;
  EXPECT_EQ(step_windows(trace).size(), static_cast<size_t>(kSteps + 1));
  const Result<StepReport> report = make_step_report(trace, "recording");
  ASSERT_TRUE(report) << report.error().message;
  expect_report_adds_up(*report);
}

TEST_P(CudaDecodeFusions, GiveTheSameBitsAndATraceThatAddsUpWhenTasksAreRecorded) {
  for (const DType dtype : {DType::kBf16, DType::kS8})
    expect_recorded_step({.dtype = dtype, .fusions = GetParam()}, RecordLevel::kTasks);
}

TEST_P(CudaDecodeFusions, GiveTheSameBitsAndATraceThatAddsUpWhenPhasesAreRecorded) {
  for (const DType dtype : {DType::kBf16, DType::kS8})
    expect_recorded_step({.dtype = dtype, .fusions = GetParam()}, RecordLevel::kPhases);
}

}  // namespace
}  // namespace gapless
