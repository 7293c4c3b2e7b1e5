// SPDX-License-Identifier: Apache-2.0
//
// Goal: passes found are the passes made, to the row.
// Method: captures of every model, phase, mixture, cut, gap and noise, over several seeds, against
// the truth that the generator keeps.

#include <algorithm>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "analysis/capture_models.h"
#include "analysis/passes.h"
#include "analysis/synthetic_capture.h"
#include "base/mix_bits.h"

namespace gapless {
namespace {

constexpr int32_t kNoises[] = {0, 1000, 3000};

std::string describe(const CaptureOptions& options) {
  return fmt::format(
      "{} {} seed {} passes {} devices {} drafts {} chunks {} gap {} prefill {} mixed {} dummy {} "
      "noise {} cut {}{}",
      options.model, pass_phase_name(options.phase), options.seed, options.pass_count,
      options.device_count, options.draft_count, options.context_chunks, options.pass_gap_ns,
      options.prefill_permille, options.mixed_permille, options.dummy_permille,
      options.noise_permille, options.starts_mid_pass, options.ends_mid_pass);
}

// What the truth says of a pass, in one line.
std::string pass_text(const MadePass& pass, const SyntheticCapture& capture) {
  uint8_t drafts = 0;
  for (uint32_t row = pass.first_row; row <= pass.last_row; ++row) {
    drafts = std::max(drafts, capture.draft_of_row[row]);
  }
  return fmt::format("device {} pass {} rows {} to {} anchors {} drafts {} with {} cut {}{}",
                     pass.device, pass.index, pass.first_row, pass.last_row + 1,
                     pass.anchor_count - pass.draft_anchor_count, drafts, pass.draft_anchor_count,
                     pass.is_cut_at_start, pass.is_cut_at_end);
}

std::string pass_text(const ForwardPass& pass) {
  return fmt::format("device {} pass {} rows {} to {} anchors {} drafts {} with {} cut {}{}",
                     pass.device, pass.index, pass.first_row, pass.end_row, pass.anchor_count,
                     pass.draft_count, pass.draft_anchor_count, pass.is_cut_at_start,
                     pass.is_cut_at_end);
}

// Empty when all is as it was made; else the first thing that is not.
std::string difference(const SyntheticCapture& capture, const FoundPasses& found) {
  if (found.passes.size() != capture.passes.size()) {
    return fmt::format("{} passes made, {} found", capture.passes.size(), found.passes.size());
  }
  for (size_t i = 0; i < found.passes.size(); ++i) {
    const std::string made = pass_text(capture.passes[i], capture);
    const std::string seen = pass_text(found.passes[i]);
    if (made != seen) return fmt::format("made: {}; found: {}", made, seen);
  }
  for (size_t row = 0; row < capture.table.size(); ++row) {
    const uint8_t anchor = static_cast<uint8_t>(capture.is_anchor[row] == 0 ? 0
                                                : capture.draft_of_row[row] ? 2
                                                                            : 1);
    if (found.is_anchor[row] != anchor) {
      return fmt::format("row {}: anchor {}, found {}", row, anchor, found.is_anchor[row]);
    }
    // Kernels of collectives have times of their own, a little before or behind their summaries: at
    // the edge of a draft they can be on the other side.
    const KernelKind kind = capture.table.kind[row];
    if (kind == KernelKind::kFragment || kind == KernelKind::kAiCpuCollective) continue;
    if (found.draft_of_row[row] != capture.draft_of_row[row]) {
      return fmt::format("row {}: draft {}, found {}", row, capture.draft_of_row[row],
                         found.draft_of_row[row]);
    }
  }
  return "";
}

SyntheticCapture make_capture(const CaptureOptions& options) {
  Result<SyntheticCapture> capture = make_synthetic_capture(options);
  EXPECT_TRUE(capture.has_value()) << describe(options);
  if (!capture) return {};
  return std::move(capture).value();
}

void expect_found(const CaptureOptions& options) {
  const SyntheticCapture capture = make_capture(options);
  const Result<FoundPasses> found = find_passes(capture.table);
  ASSERT_TRUE(found.has_value()) << describe(options) << ": " << found.error().message;
  EXPECT_EQ(difference(capture, *found), "") << describe(options);
}

// Every cut, gap and noise. What a capture without gaps and a single cut pass promise is less, and
// has tests of its own.
void expect_found_in_all(CaptureOptions options, uint64_t seeds = 2) {
  const uint64_t first_seed = options.seed;
  for (options.seed = first_seed; options.seed < first_seed + seeds; ++options.seed) {
    for (const int32_t noise : kNoises) {
      for (const int64_t gap_ns : {int64_t{-1}, int64_t{0}}) {
        for (int cut = 0; cut < 4; ++cut) {
          options.noise_permille = noise;
          options.pass_gap_ns = gap_ns;
          options.starts_mid_pass = (cut & 1) != 0;
          options.ends_mid_pass = (cut & 2) != 0;
          expect_found(options);
        }
      }
    }
  }
}

class EveryModel : public testing::TestWithParam<std::string> {};

TEST_P(EveryModel, DecodeIsFoundAsMade) {
  expect_found_in_all({.model = GetParam(), .pass_count = 4});
}

TEST_P(EveryModel, PrefillIsFoundAsMade) {
  expect_found_in_all({.model = GetParam(), .phase = PassPhase::kPrefill, .pass_count = 4});
}

TEST_P(EveryModel, PrefillAmongDecodeIsFoundAsMade) {
  expect_found_in_all({.model = GetParam(), .pass_count = 7, .prefill_permille = 400});
}

TEST_P(EveryModel, FewPassesAreFoundAsMade) {
  for (uint32_t passes = 1; passes <= 3; ++passes) {
    for (const PassPhase phase : {PassPhase::kDecode, PassPhase::kPrefill}) {
      expect_found_in_all({.model = GetParam(), .phase = phase, .pass_count = passes}, 2);
    }
  }
}

TEST_P(EveryModel, DraftsAreFoundAsMade) {
  for (int32_t drafts = 0; drafts <= 3; ++drafts) {
    expect_found_in_all({.model = GetParam(), .pass_count = 3, .draft_count = drafts}, 1);
    expect_found_in_all(
        {.model = GetParam(), .pass_count = 5, .draft_count = drafts, .prefill_permille = 300}, 1);
  }
}

TEST_P(EveryModel, IdlePassesAreFoundAsMade) {
  for (const int32_t drafts : {0, 2}) {
    for (const uint64_t seed : {1, 5}) {
      expect_found_in_all({.model = GetParam(),
                           .seed = seed,
                           .pass_count = 8,
                           .draft_count = drafts,
                           .prefill_permille = 150,
                           .dummy_permille = 350},
                          1);
    }
  }
}

TEST_P(EveryModel, SeveralDevicesAreFoundEachForItself) {
  expect_found_in_all({.model = GetParam(), .pass_count = 3, .device_count = 3, .first_device = 4},
                      1);
}

TEST_P(EveryModel, TypesMadeOfNamesAreEnough) {
  for (const PassPhase phase : {PassPhase::kDecode, PassPhase::kPrefill}) {
    const CaptureOptions options = {
        .model = GetParam(), .phase = phase, .pass_count = 4, .dummy_permille = 200};
    SyntheticCapture capture = make_capture(options);
    CaptureTable& table = capture.table;
    for (size_t row = 0; row < table.size(); ++row) {
      const std::string type = derived_kernel_type(table.names[table.name[row]]);
      table.type[row] = table.names.intern(type);
    }
    const Result<FoundPasses> found = find_passes(table);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(difference(capture, *found), "") << describe(options);
  }
}

// Rows of `streams` start later by so much, as when the host does not wait for what was sampled.
// The truth about rows goes with them; passes of the truth keep their anchors and not their rows.
SyntheticCapture shift_streams(const SyntheticCapture& capture, const std::set<int32_t>& streams,
                               int64_t shift_ns) {
  SyntheticCapture shifted = capture;
  for (size_t row = 0; row < shifted.table.size(); ++row) {
    if (streams.contains(shifted.table.stream[row])) shifted.table.start_ns[row] += shift_ns;
  }
  const std::vector<uint32_t> rows = rows_in_order(shifted.table);
  keep_rows(shifted.table, rows);
  for (size_t at = 0; at < rows.size(); ++at) {
    shifted.is_anchor[at] = capture.is_anchor[rows[at]];
    shifted.draft_of_row[at] = capture.draft_of_row[rows[at]];
    shifted.pass_of_row[at] = capture.pass_of_row[rows[at]];
  }
  return shifted;
}

std::string anchors_text(uint32_t anchors, uint32_t drafts, uint32_t draft_anchors,
                         bool is_cut_at_start, bool is_cut_at_end) {
  return fmt::format("{}+{}/{}{}{}", anchors, drafts, draft_anchors, is_cut_at_start ? "<" : "",
                     is_cut_at_end ? ">" : "");
}

// Anchors, drafts and cuts of all passes, and nothing of rows.
std::string made_anchors(const SyntheticCapture& capture) {
  std::vector<uint32_t> drafts(capture.passes.size(), 0);
  for (size_t row = 0; row < capture.table.size(); ++row) {
    uint32_t& most = drafts[capture.pass_of_row[row]];
    most = std::max<uint32_t>(most, capture.draft_of_row[row]);
  }
  std::string text;
  for (size_t i = 0; i < capture.passes.size(); ++i) {
    const MadePass& pass = capture.passes[i];
    text += " " + anchors_text(pass.anchor_count - pass.draft_anchor_count, drafts[i],
                               pass.draft_anchor_count, pass.is_cut_at_start, pass.is_cut_at_end);
  }
  return text;
}

std::string found_anchors(const FoundPasses& found) {
  std::string text;
  for (const ForwardPass& pass : found.passes) {
    text += " " + anchors_text(pass.anchor_count, pass.draft_count, pass.draft_anchor_count,
                               pass.is_cut_at_start, pass.is_cut_at_end);
  }
  return text;
}

// Null: there is none.
const Finding* finding_of(const FoundPasses& found, std::string_view code) {
  for (const Finding& finding : found.findings) {
    if (finding.code == code) return &finding;
  }
  return nullptr;
}

constexpr int64_t kShiftsNs[] = {100'000, 300'000, 1'000'000, 3'000'000};

void expect_anchors_under_shift(const CaptureOptions& options,
                                const std::vector<KernelPlace>& places = {KernelPlace::kSampling}) {
  const SyntheticCapture capture = make_capture(options);
  std::set<int32_t> streams;
  for (const KernelPlace place : places) {
    streams.insert(find_capture_model(options.model)->streams[static_cast<size_t>(place)]);
  }
  for (const int64_t shift_ns : kShiftsNs) {
    const SyntheticCapture shifted = shift_streams(capture, streams, shift_ns);
    const Result<FoundPasses> found = find_passes(shifted.table);
    ASSERT_TRUE(found.has_value()) << describe(options);
    EXPECT_EQ(found_anchors(*found), made_anchors(capture)) << describe(options) << " " << shift_ns;
    for (size_t row = 0; row < shifted.table.size(); ++row) {
      const int made = shifted.is_anchor[row] == 0 ? 0 : shifted.draft_of_row[row] == 0 ? 1 : 2;
      if (found->is_anchor[row] == made) continue;
      ADD_FAILURE() << "row " << row << ": " << describe(options) << " " << shift_ns;
      break;
    }
  }
}

TEST_P(EveryModel, SamplingAmongTheLayersOfTheNextPassMovesNoAnchor) {
  for (const int32_t noise : kNoises) {
    for (const int32_t drafts : {-1, 0, 1, 3}) {
      for (int cut = 0; cut < 4; ++cut) {
        expect_anchors_under_shift({.model = GetParam(),
                                    .seed = 4,
                                    .pass_count = 5,
                                    .draft_count = drafts,
                                    .noise_permille = noise,
                                    .starts_mid_pass = (cut & 1) != 0,
                                    .ends_mid_pass = (cut & 2) != 0});
      }
    }
  }
}

TEST_P(EveryModel, SamplingAmongTheLayersOfOtherPhasesMovesNoAnchor) {
  for (const uint64_t seed : {1, 2, 3}) {
    expect_anchors_under_shift(
        {.model = GetParam(), .phase = PassPhase::kPrefill, .seed = seed, .pass_count = 4});
    expect_anchors_under_shift({.model = GetParam(),
                                .seed = seed,
                                .pass_count = 8,
                                .prefill_permille = 300,
                                .dummy_permille = 150});
  }
}

INSTANTIATE_TEST_SUITE_P(Capture, EveryModel,
                         testing::Values("qwen3-32b", "deepseek-v3", "glm-5.1", "qwen3.8-27b"),
                         [](const testing::TestParamInfo<std::string>& test) {
                           std::string name = test.param;
                           std::erase_if(name, [](char c) { return c == '-' || c == '.'; });
                           return name;
                         });

TEST(Passes, MixedPassesAreFoundAsMade) {
  for (const std::string model : {"qwen3-32b", "qwen3.8-27b"}) {
    expect_found_in_all({.model = model,
                         .pass_count = 7,
                         .prefill_permille = 200,
                         .mixed_permille = 300,
                         .dummy_permille = 200});
    expect_found_in_all({.model = model, .phase = PassPhase::kMixed, .pass_count = 3}, 1);
  }
}

TEST(Passes, ChunksOfContextAreAnchorsOfTheSamePass) {
  for (const int32_t chunks : {0, 1, 2, 4}) {
    expect_found_in_all({.model = "deepseek-v3",
                         .phase = PassPhase::kPrefill,
                         .pass_count = 3,
                         .context_chunks = chunks},
                        1);
    expect_found_in_all({.model = "deepseek-v3",
                         .pass_count = 6,
                         .draft_count = 1,
                         .context_chunks = chunks,
                         .prefill_permille = 400,
                         .dummy_permille = 200},
                        1);
  }
}

// Passes of idle workers sample nothing. Without gaps, and when the capture begins in a layer, no
// row is better than another to begin a pass: what holds is how many passes and anchors there are.
TEST(Passes, IdlePassesWithoutGapsKeepTheirAnchors) {
  for (const std::string model : {"qwen3-32b", "deepseek-v3", "glm-5.1", "qwen3.8-27b"}) {
    const SyntheticCapture capture = make_capture({.model = model,
                                                   .pass_count = 5,
                                                   .draft_count = 0,
                                                   .pass_gap_ns = 0,
                                                   .dummy_permille = 1000,
                                                   .starts_mid_pass = true});
    const Result<FoundPasses> found = find_passes(capture.table);
    ASSERT_TRUE(found.has_value());
    ASSERT_EQ(found->passes.size(), 5u) << model;
    for (size_t i = 0; i < 5; ++i) {
      EXPECT_EQ(found->passes[i].anchor_count, capture.passes[i].anchor_count) << model;
      EXPECT_EQ(found->passes[i].is_cut_at_start, i == 0) << model;
      EXPECT_FALSE(found->passes[i].is_cut_at_end) << model;
    }
  }
}

// All that the host launches beside the graph is late, inputs and sampling of drafts as well.
TEST(Passes, StreamsThatAreLateWithDraftsMoveNoAnchor) {
  for (const std::string model : {"qwen3-32b", "glm-5.1"}) {
    for (const int32_t drafts : {1, 2}) {
      for (const int32_t noise : kNoises) {
        expect_anchors_under_shift(
            {.model = model, .pass_count = 8, .draft_count = drafts, .noise_permille = noise},
            {KernelPlace::kSampling, KernelPlace::kEager});
      }
    }
  }
}

TEST(Passes, SamplingAmongTheLayersOfTheNextPassIsCounted) {
  const SyntheticCapture capture = make_capture({.model = "qwen3-32b", .pass_count = 6});
  const SyntheticCapture shifted = shift_streams(capture, {71}, 3'000'000);
  uint64_t late = 0;  // behind an anchor of the next pass
  uint32_t newest = 0;
  for (size_t row = 0; row < shifted.table.size(); ++row) {
    if (shifted.is_anchor[row] != 0) newest = shifted.pass_of_row[row];
    const std::string_view type =
        shifted.table.type[row] == kNoIndex ? "" : shifted.table.names[shifted.table.type[row]];
    const bool samples =
        type == "ApplyTopKTopPCustom" || type == "DSARandomUniform" || type == "ArgMaxV2";
    if (samples && shifted.pass_of_row[row] < newest) ++late;
  }
  ASSERT_GT(late, 0u);
  const Result<FoundPasses> found = find_passes(shifted.table);
  ASSERT_TRUE(found.has_value());
  const Finding* overlap = finding_of(*found, "passes-overlap");
  ASSERT_NE(overlap, nullptr);
  EXPECT_EQ(overlap->severity, Severity::kInfo);
  // Those that start behind the first row of the next pass and before its first anchor as well.
  EXPECT_GE(overlap->count, late);
  EXPECT_LE(overlap->count, 15u);
  const Result<FoundPasses> calm = find_passes(capture.table);
  ASSERT_TRUE(calm.has_value());
  EXPECT_EQ(finding_of(*calm, "passes-overlap"), nullptr);
}

TEST(Passes, DevicesThatWereMixedAreReported) {
  for (const std::string model : {"qwen3-32b", "deepseek-v3", "glm-5.1", "qwen3.8-27b"}) {
    SyntheticCapture capture = make_capture({.model = model, .pass_count = 4, .device_count = 2});
    const Result<FoundPasses> apart = find_passes(capture.table);
    ASSERT_TRUE(apart.has_value());
    EXPECT_EQ(finding_of(*apart, "streams-overlap"), nullptr) << model;
    std::fill(capture.table.device.begin(), capture.table.device.end(), CaptureTable::kNoDevice);
    keep_rows(capture.table, rows_in_order(capture.table));
    const Result<FoundPasses> mixed = find_passes(capture.table);
    ASSERT_TRUE(mixed.has_value());
    const Finding* overlap = finding_of(*mixed, "streams-overlap");
    ASSERT_NE(overlap, nullptr) << model;
    EXPECT_EQ(overlap->severity, Severity::kWarning);
  }
}

// Every type and name but the anchor's becomes a word that nobody has seen.
void rename_all(SyntheticCapture& capture, uint64_t seed) {
  CaptureTable& table = capture.table;
  const auto word = [&](uint32_t name) {
    return table.names.intern(fmt::format("{:x}", mix_bits(seed ^ mix_bits(name))));
  };
  for (size_t row = 0; row < table.size(); ++row) {
    if (table.kind[row] == KernelKind::kCollective) continue;
    if (capture.is_anchor[row] != 0) continue;
    table.type[row] = word(table.type[row]);
    table.name[row] = word(table.name[row]);
  }
}

struct RenamedCase {
  std::string model;
  std::string anchor;
  PassPhase phase = PassPhase::kDecode;
};

TEST(Passes, AreFoundAmongKernelsThatNobodyHasSeen) {
  const RenamedCase cases[] = {
      {"qwen3-32b", "FusedInferAttentionScore", PassPhase::kDecode},
      {"qwen3-32b", "FusedInferAttentionScore", PassPhase::kPrefill},
      {"deepseek-v3", "FusedInferAttentionScore", PassPhase::kDecode},
      {"deepseek-v3", "RINGMLAPrefillBF16Kernel", PassPhase::kPrefill},
      {"glm-5.1", "SparseFlashAttention", PassPhase::kDecode},
      {"qwen3.8-27b", "FusedInferAttentionScore", PassPhase::kDecode},
  };
  for (const RenamedCase& renamed : cases) {
    for (const uint32_t passes : {1u, 2u, 3u, 6u}) {
      for (const uint64_t seed : {1u, 2u, 3u}) {
        const CaptureOptions options = {.model = renamed.model,
                                        .phase = renamed.phase,
                                        .seed = seed,
                                        .pass_count = passes,
                                        .draft_count = 0,
                                        .starts_mid_pass = seed == 2,
                                        .ends_mid_pass = seed == 3};
        SyntheticCapture capture = make_capture(options);
        rename_all(capture, seed);
        const Result<FoundPasses> found = find_passes(capture.table, {.anchor = renamed.anchor});
        ASSERT_TRUE(found.has_value());
        EXPECT_EQ(difference(capture, *found), "") << describe(options);
      }
    }
  }
}

// Without gaps as well, when the capture begins with a pass; otherwise anchors are right.
TEST(Passes, OfUnknownKernelsNeedNoGap) {
  for (const std::string model : {"qwen3-32b", "deepseek-v3", "glm-5.1", "qwen3.8-27b"}) {
    for (const bool is_cut : {false, true}) {
      SyntheticCapture capture = make_capture({.model = model,
                                               .pass_count = 5,
                                               .draft_count = 0,
                                               .pass_gap_ns = 0,
                                               .starts_mid_pass = is_cut});
      rename_all(capture, 7);
      const std::string anchor =
          model == "glm-5.1" ? "SparseFlashAttention" : "FusedInferAttentionScore";
      const Result<FoundPasses> found = find_passes(capture.table, {.anchor = anchor});
      ASSERT_TRUE(found.has_value());
      if (!is_cut) {
        EXPECT_EQ(difference(capture, *found), "") << model;
      }
      ASSERT_EQ(found->passes.size(), 5u) << model;
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(found->passes[i].anchor_count, capture.passes[i].anchor_count) << model;
      }
    }
  }
}

// Drafts of unknown kernels are told by where they are: at the end of every pass.
TEST(Passes, DraftsOfUnknownKernelsAreFound) {
  for (const std::string model : {"qwen3-32b", "deepseek-v3", "glm-5.1", "qwen3.8-27b"}) {
    for (const int32_t drafts : {1, 2, 3}) {
      SyntheticCapture capture =
          make_capture({.model = model, .pass_count = 6, .draft_count = drafts});
      rename_all(capture, 11);
      const std::string anchor =
          model == "glm-5.1" ? "SparseFlashAttention" : "FusedInferAttentionScore";
      const Result<FoundPasses> found = find_passes(capture.table, {.anchor = anchor});
      ASSERT_TRUE(found.has_value());
      ASSERT_EQ(found->passes.size(), 6u) << model << drafts;
      for (size_t i = 0; i < 6; ++i) {
        const MadePass& made = capture.passes[i];
        EXPECT_EQ(found->passes[i].anchor_count, made.anchor_count - made.draft_anchor_count)
            << model << " " << drafts;
        EXPECT_EQ(found->passes[i].draft_count, static_cast<uint32_t>(drafts)) << model;
      }
    }
  }
}

// The published method: every so many anchors, drafts or not.
TEST(Passes, CountedAreAsManyAnchorsEach) {
  const SyntheticCapture capture = make_capture({.model = "glm-5.1", .pass_count = 4});
  const Result<FoundPasses> found =
      find_passes(capture.table, {.layers = 80, .method = PassMethod::kCount});
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->passes.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(found->passes[i].anchor_count, 80u);
    EXPECT_EQ(found->passes[i].first_row, capture.passes[i].first_row);
    EXPECT_EQ(found->passes[i].end_row, capture.passes[i].last_row + 1);
  }
}

}  // namespace
}  // namespace gapless
