// SPDX-License-Identifier: Apache-2.0

#include "analysis/synthetic_capture.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "base/mix_bits.h"

namespace gapless {
namespace {

SyntheticCapture made(const CaptureOptions& options) {
  Result<SyntheticCapture> capture = make_synthetic_capture(options);
  EXPECT_TRUE(capture.has_value()) << (capture ? "" : capture.error().message);
  return capture ? *std::move(capture) : SyntheticCapture{};
}

struct TypeSum {
  double count = 0;    // a pass
  double mean_us = 0;  // of a row
};

// By type; kernels and wrappers of collectives by name.
std::map<std::string, TypeSum> sums_by_type(const SyntheticCapture& capture) {
  const CaptureTable& table = capture.table;
  std::map<std::string, TypeSum> sums;
  for (size_t row = 0; row < table.size(); ++row) {
    const bool is_fragment = table.kind[row] == KernelKind::kFragment;
    TypeSum& sum = sums[std::string(table.names[is_fragment ? table.name[row] : table.type[row]])];
    sum.count += 1;
    sum.mean_us += static_cast<double>(table.duration_ns[row]) / 1000.0;
  }
  for (auto& [type, sum] : sums) {
    sum.mean_us /= sum.count;
    sum.count /= static_cast<double>(capture.passes.size());
  }
  return sums;
}

std::map<int32_t, double> rows_by_stream(const SyntheticCapture& capture) {
  std::map<int32_t, double> counts;
  for (const int32_t stream : capture.table.stream) counts[stream] += 1;
  for (auto& [stream, count] : counts) count /= static_cast<double>(capture.passes.size());
  return counts;
}

double mean_wall_ms(const SyntheticCapture& capture) {
  const CaptureTable& table = capture.table;
  const int64_t span_ns = table.end_ns(table.size() - 1) - table.start_ns[0];
  return static_cast<double>(span_ns) / 1e6 / static_cast<double>(capture.passes.size());
}

struct Expected {
  std::string_view type;
  double count;
  double mean_us;  // 0: not measured
};

void expect_types(const SyntheticCapture& capture, const std::vector<Expected>& types) {
  const std::map<std::string, TypeSum> sums = sums_by_type(capture);
  for (const Expected& expected : types) {
    const auto found = sums.find(std::string(expected.type));
    ASSERT_NE(found, sums.end()) << expected.type;
    EXPECT_NEAR(found->second.count, expected.count, 1e-9) << expected.type;
    if (expected.mean_us == 0) continue;
    EXPECT_NEAR(found->second.mean_us, expected.mean_us, 0.03 * expected.mean_us) << expected.type;
  }
}

// What every capture must fulfil, whatever its options.
void expect_consistent(const SyntheticCapture& capture, const CaptureOptions& options) {
  const CaptureTable& table = capture.table;
  ASSERT_EQ(capture.pass_of_row.size(), table.size());
  ASSERT_EQ(capture.draft_of_row.size(), table.size());
  ASSERT_EQ(capture.is_anchor.size(), table.size());
  ASSERT_EQ(capture.summary_of_row.size(), table.size());
  std::vector<uint32_t> row_counts(capture.passes.size());
  for (size_t row = 0; row < table.size(); ++row) {
    ++row_counts[capture.pass_of_row[row]];
    EXPECT_EQ(capture.passes[capture.pass_of_row[row]].device, table.device[row]);
    EXPECT_GT(table.duration_ns[row], 0);
    EXPECT_EQ(table.start_ns[row] % options.tick_ns, 0);
    EXPECT_EQ(table.duration_ns[row] % options.tick_ns, 0);
    if (row > 0 && table.device[row] == table.device[row - 1]) {
      EXPECT_LE(table.start_ns[row - 1], table.start_ns[row]);
    }
    const uint32_t summary = capture.summary_of_row[row];
    if (summary == kNoIndex) continue;
    EXPECT_EQ(table.kind[summary], KernelKind::kCollective);
    EXPECT_EQ(capture.pass_of_row[summary], capture.pass_of_row[row]);
  }
  for (size_t pass = 0; pass < capture.passes.size(); ++pass) {
    const MadePass& made_pass = capture.passes[pass];
    EXPECT_EQ(made_pass.row_count, row_counts[pass]);
    EXPECT_EQ(capture.pass_of_row[made_pass.first_row], pass);
    EXPECT_EQ(capture.pass_of_row[made_pass.last_row], pass);
    EXPECT_EQ(made_pass.last_row - made_pass.first_row + 1, made_pass.row_count);
    EXPECT_LE(made_pass.union_ns, made_pass.wall_ns());
  }
}

TEST(SyntheticCapture, HasTheMeasuredStructureOfQwenDecode) {
  const CaptureOptions options = {.pass_count = 134};
  const SyntheticCapture capture = made(options);
  EXPECT_EQ(capture.table.size(), 127'434u) << "the rows of the measured capture";
  expect_consistent(capture, options);
  expect_types(capture, {{"FusedInferAttentionScore", 64, 61.2},
                         {"MatMulV2", 257, (192 * 20.6 + 64 * 8.6 + 86.6) / 257},
                         {"split_qkv_rmsnorm_rope_kernel", 63, 13.8},
                         {"AddRmsNormBias", 128, 5.3},
                         {"SwiGlu", 64, 5.2},
                         {"reshape_and_cache", 64, 4.2},
                         {"_triton_rope", 1, 0},
                         {"AivKernel", 132, 0},
                         {"hcom_allReduce_", 129, 0},
                         {"hcom_allGather_", 1, 0},
                         {"ApplyTopKTopPCustom", 1, 234.5},
                         {"DSARandomUniform", 1, 233.7},
                         {"SoftmaxV2", 1, 52.7},
                         {"ArgMaxV2", 1, 139.6}});
  const std::map<int32_t, double> streams = rows_by_stream(capture);
  EXPECT_EQ(streams.at(148), 660);
  EXPECT_EQ(streams.at(62), 22);
  EXPECT_EQ(streams.at(71), 7);
  EXPECT_EQ(streams.at(CaptureTable::kNoStream), 130);
  EXPECT_NEAR(streams.at(149), 131, 0.1);
  EXPECT_NEAR(streams.at(67), 1, 0.1);
  EXPECT_NEAR(mean_wall_ms(capture), 23.1, 0.7);
}

TEST(SyntheticCapture, HasTheMeasuredTimesOfQwenDecode) {
  const SyntheticCapture capture = made({.pass_count = 134});
  double compute_ms = 0;
  double collective_ms = 0;
  for (const MadePass& pass : capture.passes) {
    EXPECT_EQ(pass.anchor_count, 64u);
    EXPECT_EQ(pass.collective_count, 131u) << "130 summaries and a kernel without one";
    compute_ms += static_cast<double>(pass.compute_ns) / 1e6 / 134;
    collective_ms += static_cast<double>(pass.collective_ns) / 1e6 / 134;
  }
  EXPECT_NEAR(compute_ms, 11.43, 0.1);
  EXPECT_NEAR(collective_ms, 10.54, 0.6) << "a few waits make most of it";

  // A few kernels of collectives wait for other ranks: the deviation is far above the mean.
  double sum = 0;
  double squares = 0;
  double count = 0;
  for (size_t row = 0; row < capture.table.size(); ++row) {
    if (capture.table.kind[row] != KernelKind::kFragment) continue;
    const double us = static_cast<double>(capture.table.duration_ns[row]) / 1000.0;
    sum += us;
    squares += us * us;
    count += 1;
  }
  const double mean = sum / count;
  EXPECT_NEAR(std::sqrt(squares / count - mean * mean) / mean, 7.6, 1.2);
}

TEST(SyntheticCapture, HasTheMeasuredStructureOfQwenPrefill) {
  const CaptureOptions options = {.phase = PassPhase::kPrefill, .pass_count = 5};
  const SyntheticCapture capture = made(options);
  EXPECT_EQ(capture.table.size(), 6'360u);
  expect_consistent(capture, options);
  expect_types(capture, {{"MatMulV3", 128, 2825.6},
                         {"FusedInferAttentionScore", 64, 1083.6},
                         {"split_qkv_rmsnorm_rope_kernel", 63, 983.5},
                         {"SwiGlu", 64, 281},
                         {"AddRmsNormBias", 128, 108.5},
                         {"ReshapeAndCacheNdKernel", 64, 151.5},
                         {"hcom_reduceScatter_", 129, 0},
                         {"hcom_allGather_", 130, 0},
                         {"allgatherAicpuKernel", 129, 6605.7},
                         {"reduce_scatterAicpuKernel", 129, 2032.6}});
  EXPECT_NEAR(mean_wall_ms(capture), 1163, 35);
  const MadePass& pass = capture.passes[0];
  EXPECT_LT(pass.sum_ns(), pass.wall_ns() + pass.wall_ns() / 100)
      << "wrappers, which would double it, are in no sum";
}

TEST(SyntheticCapture, HasTheMeasuredStructureOfDeepSeekDecode) {
  const CaptureOptions options = {.model = "deepseek-v3", .seed = 4, .pass_count = 20};
  const SyntheticCapture capture = made(options);
  expect_consistent(capture, options);
  EXPECT_NEAR(static_cast<double>(capture.table.size()) / 20, 2306.4, 0.5);
  expect_types(capture, {{"QuantBatchMatmulV3", 305, 23.7},
                         {"FusedInferAttentionScore", 61, 59.8},
                         {"AscendQuantV2", 183, 10.1},
                         {"Transpose", 62, 17.1},
                         {"TransData", 61, 13.6},
                         {"TransposeBatchMatMul", 61, 12.6},
                         {"BatchMatMulV2", 61, 8.6},
                         {"InterleaveRope", 61, 8.3},
                         {"AddRmsNormBias", 119, 3.9},
                         {"DynamicQuant", 119, 3.5},
                         {"MoeGatingTopK", 58, 5.9},
                         {"KvRmsNormRopeCache", 61, 4.6},
                         {"Add", 120, 0},
                         {"RmsNorm", 62, 0},
                         {"MatMulV2", 59, 0},
                         {"SwiGlu", 61, 3.6},
                         {"DispatchFFNCombine", 58, 4149.5}});
  EXPECT_NEAR(mean_wall_ms(capture), 976, 40);
  uint32_t summaries = 0;
  for (const KernelKind kind : capture.table.kind) {
    summaries += kind == KernelKind::kCollective ? 1 : 0;
  }
  EXPECT_EQ(summaries, 195u * 20);
}

TEST(SyntheticCapture, HasOneAttentionMoreALayerForContext) {
  const SyntheticCapture capture =
      made({.model = "deepseek-v3", .phase = PassPhase::kPrefill, .seed = 3, .pass_count = 30});
  uint32_t with_context = 0;
  for (const MadePass& pass : capture.passes) {
    EXPECT_EQ(pass.anchor_count, 61u * (1 + static_cast<uint32_t>(pass.shape.context_chunks)));
    with_context += pass.shape.context_chunks == 1 ? 1 : 0;
  }
  EXPECT_GT(with_context, 5u);
  EXPECT_LT(with_context, 25u);
  for (size_t row = 0; row < capture.table.size(); ++row) {
    if (capture.is_anchor[row] == 0) continue;
    EXPECT_EQ(capture.table.names[capture.table.type[row]], "RINGMLAPrefillBF16Kernel");
  }
}

TEST(SyntheticCapture, CountsTheAnchorsOfDrafts) {
  const SyntheticCapture sparse = made({.model = "glm-5.1", .pass_count = 3});
  for (const MadePass& pass : sparse.passes) {
    EXPECT_EQ(pass.anchor_count, 80u);
    EXPECT_EQ(pass.draft_anchor_count, 2u);
    EXPECT_EQ(pass.shape.phase, PassPhase::kSpeculative);
    EXPECT_EQ(pass.shape.tokens, 3);
    EXPECT_NEAR(pass.row_count, 2770, 30);
  }
  expect_types(sparse, {{"SparseFlashAttention", 80, 0}, {"LightningIndexer", 80, 0}});

  const SyntheticCapture hybrid = made({.model = "qwen3.8-27b", .pass_count = 3});
  expect_types(hybrid, {{"FusedInferAttentionScore", 19, 0},
                        {"SwiGlu", 67, 0},
                        {"QuantBatchMatmulV3", 220, 0},
                        {"fused_recurrent_gated_delta_rule_fwd_kernel", 48, 0}});
  EXPECT_EQ(hybrid.passes[0].draft_anchor_count, 3u);

  const SyntheticCapture with_drafts = made({.pass_count = 2, .draft_count = 1});
  EXPECT_EQ(with_drafts.passes[1].anchor_count, 65u);
  EXPECT_EQ(with_drafts.passes[1].draft_anchor_count, 1u);
}

TEST(SyntheticCapture, MixesKindsOfPasses) {
  const CaptureOptions options = {.model = "qwen3.8-27b",
                                  .pass_count = 170,
                                  .prefill_permille = 300,
                                  .mixed_permille = 300,
                                  .dummy_permille = 100};
  const SyntheticCapture capture = made(options);
  expect_consistent(capture, options);
  std::map<PassPhase, int> phases;
  int dummies = 0;
  for (const MadePass& pass : capture.passes) {
    ++phases[pass.shape.phase];
    dummies += pass.shape.is_dummy ? 1 : 0;
    EXPECT_EQ(pass.anchor_count, 19u);
    if (pass.shape.phase == PassPhase::kMixed) {
      EXPECT_EQ(pass.shape.tokens, 2048 + 32);
      EXPECT_EQ(pass.shape.sequences, 2 + 8);
    }
    if (pass.shape.is_dummy) {
      EXPECT_EQ(pass.shape.tokens, 1);
    }
  }
  EXPECT_NEAR(phases[PassPhase::kPrefill], 51, 20);
  EXPECT_NEAR(phases[PassPhase::kMixed], 51, 20);
  EXPECT_NEAR(dummies, 17, 12);
  EXPECT_EQ(phases[PassPhase::kDecode], dummies);
}

TEST(SyntheticCapture, SaysTokensAndSequencesInTheShapesOfAttention) {
  const SyntheticCapture decode = made({.pass_count = 1, .sequences = 128});
  const CaptureTable& table = decode.table;
  size_t anchors = 0;
  for (size_t row = 0; row < table.size(); ++row) {
    if (decode.is_anchor[row] == 0) continue;
    ++anchors;
    EXPECT_EQ(table.names[table.input_shapes[row]],
              "128,4,128;12307,128,128;12307,128,128;;2048,2048;128;128;;;;;;;;128,512"
              ";;;;;;;;;;;;;;;;");
  }
  EXPECT_EQ(anchors, 64u);
}

TEST(SyntheticCapture, NamesKernelsAsTheProfilerDoes) {
  const SyntheticCapture capture = made({.pass_count = 1});
  const CaptureTable& table = capture.table;
  uint32_t hashed = 0;
  uint32_t collectives = 0;
  for (size_t row = 0; row < table.size(); ++row) {
    const std::string_view name = table.names[table.name[row]];
    EXPECT_EQ(name.find('#'), std::string_view::npos) << name;
    if (name.starts_with("SwiGlu_")) {
      const std::string_view hash = name.substr(7, 32);
      EXPECT_EQ(hash.find_first_not_of("0123456789abcdef"), std::string_view::npos) << name;
      EXPECT_EQ(name.substr(39), "_high_performance_2");
      ++hashed;
    }
    if (table.kind[row] == KernelKind::kCollective && name.find("_503_") != name.npos) {
      EXPECT_EQ(name, "hcom_allReduce__503_" + std::to_string(collectives) + "_1");
      ++collectives;
    }
  }
  EXPECT_EQ(hashed, 64u);
  EXPECT_EQ(collectives, 129u);
}

TEST(SyntheticCapture, GivesKernelsOfCollectivesTheirSummary) {
  const SyntheticCapture capture = made({.seed = 7, .pass_count = 50});
  const CaptureTable& table = capture.table;
  uint32_t lone = 0;
  uint32_t differing = 0;
  std::map<uint32_t, int> fragments;
  for (uint32_t row = 0; row < table.size(); ++row) {
    if (table.kind[row] != KernelKind::kFragment) continue;
    const uint32_t summary = capture.summary_of_row[row];
    if (summary == kNoIndex) {
      ++lone;
      continue;
    }
    ++fragments[summary];
    EXPECT_EQ(table.type[summary], table.type[row]);
    EXPECT_EQ(table.stream[summary], CaptureTable::kNoStream);
    EXPECT_LE(table.start_ns[summary] - 1000, table.start_ns[row]);
    EXPECT_LE(table.end_ns(row), table.end_ns(summary) + 1000);
    differing += table.duration_ns[summary] == table.duration_ns[row] ? 0 : 1;
  }
  EXPECT_EQ(lone, 50u);
  EXPECT_EQ(fragments.size(), 130u * 50);
  const auto has_two = [](const auto& entry) { return entry.second == 2; };
  EXPECT_NEAR(static_cast<double>(std::count_if(fragments.begin(), fragments.end(), has_two)), 50,
              2);
  EXPECT_GT(differing, 130u * 50 * 9 / 10);
}

TEST(SyntheticCapture, KeepsKernelsWithoutASummaryAwayFromSummaries) {
  for (const CaptureModel& model : capture_models()) {
    const SyntheticCapture capture = made(
        {.model = std::string(model.name), .seed = 2, .pass_count = 20, .noise_permille = 3000});
    const CaptureTable& table = capture.table;
    for (uint32_t row = 0; row < table.size(); ++row) {
      const bool is_fragment = table.kind[row] == KernelKind::kFragment;
      if (!is_fragment || capture.summary_of_row[row] != kNoIndex) continue;
      const uint32_t last = std::min<uint32_t>(row + 50, static_cast<uint32_t>(table.size()));
      for (uint32_t other = row - std::min(row, 50u); other < last; ++other) {
        if (table.kind[other] != KernelKind::kCollective) continue;
        const bool is_apart = table.end_ns(other) + 1000 < table.start_ns[row] ||
                              table.start_ns[other] - 1000 > table.end_ns(row);
        EXPECT_TRUE(is_apart) << model.name << " row " << row;
      }
    }
  }
}

TEST(SyntheticCapture, CutsTheFirstAndTheLastPass) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const CaptureOptions options = {.seed = seed,
                                    .pass_count = 3,
                                    .device_count = 2,
                                    .starts_mid_pass = true,
                                    .ends_mid_pass = true};
    const SyntheticCapture capture = made(options);
    expect_consistent(capture, options);
    ASSERT_EQ(capture.passes.size(), 6u);
    for (const MadePass& pass : capture.passes) {
      EXPECT_EQ(pass.is_cut_at_start, pass.index == 0);
      EXPECT_EQ(pass.is_cut_at_end, pass.index == 2);
      if (pass.index == 1) {
        EXPECT_EQ(pass.anchor_count, 64u);
      } else {
        EXPECT_LT(pass.anchor_count, 64u);
        EXPECT_GT(pass.anchor_count, 0u);
      }
    }
  }
  const SyntheticCapture one =
      made({.pass_count = 1, .starts_mid_pass = true, .ends_mid_pass = true});
  EXPECT_GT(one.passes[0].anchor_count, 0u);
  EXPECT_LT(one.passes[0].anchor_count, 63u);
}

TEST(SyntheticCapture, WithoutNoiseRepeatsOnePass) {
  const CaptureOptions options = {
      .model = "qwen3.8-27b", .pass_count = 4, .pass_gap_ns = 0, .noise_permille = 0};
  const SyntheticCapture capture = made(options);
  expect_consistent(capture, options);
  for (const MadePass& pass : capture.passes) {
    EXPECT_EQ(pass.compute_ns, capture.passes[0].compute_ns);
    EXPECT_EQ(pass.collective_ns, capture.passes[0].collective_ns);
    EXPECT_EQ(pass.wall_ns(), capture.passes[0].wall_ns());
  }
  const int64_t gap_ns = capture.passes[1].begin_ns - capture.passes[0].end_ns;
  EXPECT_LE(gap_ns, 10'000) << "no more than between two kernels";
}

// The union by another way: sort all ends of intervals and count what is open.
int64_t swept_union(const SyntheticCapture& capture, uint32_t pass) {
  std::vector<std::pair<int64_t, int>> edges;
  for (size_t row = 0; row < capture.table.size(); ++row) {
    if (capture.pass_of_row[row] != pass) continue;
    if (capture.table.kind[row] == KernelKind::kAiCpuCollective) continue;
    if (capture.summary_of_row[row] != kNoIndex) continue;  // a collective counts once
    edges.emplace_back(capture.table.start_ns[row], 1);
    edges.emplace_back(capture.table.end_ns(row), -1);
  }
  std::sort(edges.begin(), edges.end());
  int64_t covered_ns = 0;
  int64_t open = 0;
  for (size_t i = 0; i < edges.size(); ++i) {
    if (open > 0) covered_ns += edges[i].first - edges[i - 1].first;
    open += edges[i].second;
  }
  return covered_ns;
}

TEST(SyntheticCapture, SumsUpItsRows) {
  for (const CaptureModel& model : capture_models()) {
    for (const PassPhase phase : {PassPhase::kDecode, PassPhase::kPrefill}) {
      const CaptureOptions options = {.model = std::string(model.name),
                                      .phase = phase,
                                      .seed = 11,
                                      .pass_count = 2,
                                      .noise_permille = 3000,
                                      .starts_mid_pass = true};
      const SyntheticCapture capture = made(options);
      expect_consistent(capture, options);
      for (uint32_t pass = 0; pass < 2; ++pass) {
        EXPECT_EQ(capture.passes[pass].union_ns, swept_union(capture, pass)) << model.name;
      }
    }
  }
}

TEST(SyntheticCapture, KeepsSixteenDigitsAndTheGrainOfTheClock) {
  const SyntheticCapture capture = made({.pass_count = 1});
  EXPECT_GE(capture.table.start_ns[0], 1'764'246'877'073'569'640);
  EXPECT_LT(capture.table.start_ns[0], 1'764'246'877'073'669'640);
  const CaptureOptions fine = {.pass_count = 1, .tick_ns = 1};
  const SyntheticCapture odd = made(fine);
  const bool has_odd = std::any_of(odd.table.duration_ns.begin(), odd.table.duration_ns.end(),
                                   [](int64_t ns) { return ns % 20 != 0; });
  EXPECT_TRUE(has_odd);
}

uint64_t bits_of(const SyntheticCapture& capture) {
  uint64_t bits = 0;
  const CaptureTable& table = capture.table;
  for (size_t row = 0; row < table.size(); ++row) {
    bits = mix_bits(bits ^ static_cast<uint64_t>(table.start_ns[row]));
    bits = mix_bits(bits ^ static_cast<uint64_t>(table.duration_ns[row]));
    bits = mix_bits(bits ^ table.name[row] ^ (uint64_t{table.task[row]} << 32));
  }
  return bits;
}

TEST(SyntheticCapture, IsTheSameOnEveryMachine) {
  const CaptureOptions options = {.model = "deepseek-v3", .seed = 5, .pass_count = 2};
  EXPECT_EQ(bits_of(made(options)), 16074789003048093816u);
  CaptureOptions other = options;
  other.seed = 6;
  EXPECT_NE(bits_of(made(other)), bits_of(made(options)));
}

TEST(SyntheticCapture, NumbersStepsAndWrapsTasks) {
  const SyntheticCapture capture = made({.pass_count = 120, .passes_per_step = 2});
  const CaptureTable& table = capture.table;
  bool wraps = false;
  uint32_t last = 0;
  for (size_t row = 0; row < table.size(); ++row) {
    const uint32_t index = capture.passes[capture.pass_of_row[row]].index;
    EXPECT_EQ(table.names[table.step[row]], std::to_string(10 + index / 2));
    if (table.kind[row] == KernelKind::kCollective) {
      EXPECT_EQ(table.task[row], kNoIndex);
      continue;
    }
    EXPECT_LT(table.task[row], 65536u);
    if (table.stream[row] != 148) continue;
    wraps = wraps || table.task[row] < last;
    last = table.task[row];
  }
  EXPECT_TRUE(wraps) << "120 passes have 79200 tasks on the graph's stream";
}

TEST(SyntheticCapture, RefusesWhatItCannotMake) {
  const auto message = [](const CaptureOptions& options) {
    const Result<SyntheticCapture> capture = make_synthetic_capture(options);
    return capture ? std::string() : capture.error().message;
  };
  EXPECT_EQ(message({.model = "gpt-2"}), "no model gpt-2 to make a capture of");
  EXPECT_EQ(message({.model = "glm-5.1", .phase = PassPhase::kMixed}),
            "glm-5.1 has no mixed passes");
  EXPECT_EQ(message({.pass_count = 0}), "0 passes on 1 devices; 1 to 1024 devices are possible");
  EXPECT_EQ(message({.prefill_permille = 700, .mixed_permille = 400}),
            "a share of 1100 thousandths of the passes");
  EXPECT_NE(message({.tick_ns = 0}), "");
  EXPECT_NE(message({.pass_count = 4'000'000'000}), "");
}

}  // namespace
}  // namespace gapless
