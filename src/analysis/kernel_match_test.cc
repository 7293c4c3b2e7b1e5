// SPDX-License-Identifier: Apache-2.0

#include "analysis/kernel_match.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/mix_bits.h"

namespace gapless {
namespace {

using Names = std::vector<std::string>;

std::string joined(const Names& names, const std::vector<uint32_t>& places) {
  std::string text;
  for (const uint32_t place : places) text += (text.empty() ? "" : "+") + names[place];
  return text;
}

// One line a pair: "first -> second (match)".
std::string pairs_text(const Names& first, const Names& second, const KernelMap& map = {}) {
  const Result<std::vector<KernelPair>> pairs = match_kernels(first, second, map);
  if (!pairs) return pairs.error().message;
  std::string text;
  for (const KernelPair& pair : *pairs) {
    text += fmt::format("{} -> {} ({})\n", joined(first, pair.first), joined(second, pair.second),
                        kernel_match_name(pair.match));
  }
  return text;
}

TEST(NormalisedKernelName, LeavesWhatPeopleCallIt) {
  EXPECT_EQ(normalised_kernel_name("fa"), "fa");
  EXPECT_EQ(normalised_kernel_name("Fused<bf16>::fa_kernel_12"), "fa");
  EXPECT_EQ(normalised_kernel_name("aic_gate_up_incore_3"), "gate_up");
  EXPECT_EQ(normalised_kernel_name("aiv_RMSNorm_aiv"), "rmsnorm");
  EXPECT_EQ(normalised_kernel_name("fa_fused(r0t17)"), "fa_fused");
  EXPECT_EQ(normalised_kernel_name("void ns::fa_fused<Tile<16, 128>, (bool)1>(float*, int)"),
            "fa_fused");
  EXPECT_EQ(normalised_kernel_name("(anonymous namespace)::silu_kernel(int)"), "silu");
  EXPECT_EQ(normalised_kernel_name("void silu(int)"), "silu");
  EXPECT_EQ(normalised_kernel_name("down_cast_residual_incore_0_aiv"), "down_cast_residual");
}

TEST(NormalisedKernelName, KeepsNumbersThatArePartOfAWord) {
  EXPECT_EQ(normalised_kernel_name("softmax2"), "softmax2");
  EXPECT_EQ(normalised_kernel_name("mm_128x64"), "mm_128x64");
  EXPECT_EQ(normalised_kernel_name("topk_8"), "topk");
  EXPECT_EQ(normalised_kernel_name("gate up"), "gate up");
}

TEST(NormalisedKernelName, StaysWhereNothingWouldBeLeft) {
  for (const char* name : {"", "_kernel", "aiv_12", "<bf16>", "operator<", "a)b(", "12",
                           "(no name)", "operator()(int"}) {
    EXPECT_EQ(normalised_kernel_name(name), name);
  }
  EXPECT_EQ(normalised_kernel_name("kernel_7"), "kernel");
  EXPECT_EQ(normalised_kernel_name("aic_kernel"), "kernel");
}

TEST(NormalisedKernelName, IsItsOwnNormalisedName) {
  for (uint64_t seed = 1; seed <= 2000; ++seed) {
    constexpr std::string_view kLetters = "aA_1:<>() k_aiv_kernel_incore::void ";
    std::string name;
    for (uint64_t i = 0; i < 1 + seed % 14; ++i)
      name += kLetters[mix_bits(seed * 100 + i) % kLetters.size()];
    const std::string once = normalised_kernel_name(name);
    EXPECT_FALSE(once.empty()) << name;
    EXPECT_EQ(normalised_kernel_name(once), once) << name;
  }
}

TEST(ParseKernelMap, TakesLinesCommentsAndSpace) {
  const Result<KernelMap> map = parse_kernel_map(
      "# names of the port\n\n fa = fa_fused  # fused\nsoftmax=fa_fused\r\n\t\nfa = fa_fused\nx=y",
      "m");
  ASSERT_TRUE(map) << map.error().message;
  const KernelMap expected = {{"fa", "fa_fused"}, {"softmax", "fa_fused"}, {"x", "y"}};
  EXPECT_EQ(*map, expected);
  EXPECT_TRUE(parse_kernel_map("", "m").value().empty());
}

TEST(ParseKernelMap, SaysWhichLineIsWrong) {
  const auto error_of = [](std::string_view text) {
    const Result<KernelMap> map = parse_kernel_map(text, "names.map");
    return map ? "" : map.error().message;
  };
  const std::string form = "; must look like NAME IN THE FIRST = NAME IN THE SECOND";
  EXPECT_EQ(error_of("a = b\nfa fused\n"), "names.map:2: \"fa fused\"" + form);
  EXPECT_EQ(error_of("\n\n= b"), "names.map:3: \"= b\"" + form);
  EXPECT_EQ(error_of("a = # b"), "names.map:1: \"a =\"" + form);
  EXPECT_EQ(error_of("a = b\na = c\n"), "names.map:2: a = c, but an earlier line says a = b");
}

TEST(MatchKernels, EqualNamesMeetFirst) {
  EXPECT_EQ(pairs_text({"fa", "fa_kernel", "old"}, {"fa_kernel", "young", "fa"}),
            "fa -> fa (name)\n"
            "fa_kernel -> fa_kernel (name)\n"
            "old ->  (only in the first)\n"
            " -> young (only in the second)\n");
}

TEST(MatchKernels, WithoutKernelsThereAreNoPairs) {
  EXPECT_EQ(pairs_text({}, {}), "");
  EXPECT_EQ(pairs_text({}, {"b", "a"}), " -> b (only in the second)\n -> a (only in the second)\n");
}

TEST(MatchKernels, NormalisedNamesJoinAllThatAreLeft) {
  EXPECT_EQ(pairs_text({"aic_fa_incore_0", "silu", "fa_incore_1"}, {"FA", "silu", "ns::fa"}),
            "aic_fa_incore_0+fa_incore_1 -> FA+ns::fa (normalised name)\n"
            "silu -> silu (name)\n");
  EXPECT_EQ(pairs_text({"fa", "fa_1"}, {"fa"}),
            "fa -> fa (name)\n"
            "fa_1 ->  (only in the first)\n")
      << "what has its own name is not joined by a likeness";
}

TEST(MatchKernels, TheMapJoinsSeveralIntoOne) {
  const KernelMap map = {{"gate", "gate_up"}, {"up", "gate_up"}};
  EXPECT_EQ(pairs_text({"gate", "down", "up"}, {"down", "gate_up"}, map),
            "gate+up -> gate_up (map)\n"
            "down -> down (name)\n");
  EXPECT_EQ(pairs_text({"gate", "gate_up", "up"}, {"gate_up"}, map),
            "gate+gate_up+up -> gate_up (map)\n")
      << "beside what has the name already";
}

TEST(MatchKernels, TheMapHoldsAgainstEqualNames) {
  EXPECT_EQ(pairs_text({"matmul", "norm"}, {"matmul", "gate", "norm"}, {{"matmul", "gate"}}),
            "matmul -> gate (map)\n"
            "norm -> norm (name)\n"
            " -> matmul (only in the second)\n");
  EXPECT_EQ(pairs_text({"a", "b"}, {"a", "b"}, {{"a", "b"}, {"b", "a"}}),
            "a -> b (map)\n"
            "b -> a (map)\n");
  EXPECT_EQ(pairs_text({"a"}, {"a"}, {{"a", "a"}}), "a -> a (name)\n");
}

TEST(MatchKernels, ANameThatItsSideHasNotIsAnError) {
  EXPECT_EQ(pairs_text({"a"}, {"b"}, {{"x", "b"}}),
            "the map says x = b, but the first step has no kernel x");
  EXPECT_EQ(pairs_text({"a"}, {"b"}, {{"a", "y"}}),
            "the map says a = y, but the second step has no kernel y");
}

// Every name of both sides is in one pair, and pairs are in the order of their first.
TEST(MatchKernels, LeavesNothingOutAndTakesNothingTwice) {
  const Names pool = {"fa",    "fa_1",   "aic_fa", "FA_kernel", "silu", "silu_2",
                      "a::up", "up_aiv", "norm",   "x",         "y",    "x_incore_0"};
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    Names first;
    Names second;
    for (size_t i = 0; i < pool.size(); ++i) {
      const uint64_t bits = mix_bits(seed * 64 + i);
      if (bits & 1) first.push_back(pool[i]);
      if (bits & 2) second.insert(second.begin(), pool[i]);
    }
    KernelMap map;
    if (!first.empty() && !second.empty() && seed % 3 == 0) {
      map[first[mix_bits(seed) % first.size()]] = second[mix_bits(seed + 1) % second.size()];
    }
    const std::vector<KernelPair> pairs = match_kernels(first, second, map).value();
    std::vector<int> first_counts(first.size(), 0);
    std::vector<int> second_counts(second.size(), 0);
    for (const KernelPair& pair : pairs) {
      for (const uint32_t place : pair.first) ++first_counts[place];
      for (const uint32_t place : pair.second) ++second_counts[place];
      EXPECT_EQ(pair.match == KernelMatch::kOnlyFirst, pair.second.empty());
      EXPECT_EQ(pair.match == KernelMatch::kOnlySecond, pair.first.empty());
    }
    EXPECT_EQ(first_counts, std::vector<int>(first.size(), 1));
    EXPECT_EQ(second_counts, std::vector<int>(second.size(), 1));
  }
}

}  // namespace
}  // namespace gapless
