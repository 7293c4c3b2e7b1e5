// SPDX-License-Identifier: Apache-2.0
//
// What the matmul gives bit for bit: s8 sums, epilogues, the same rows in other company, tiles,
// slices. How near its sums are to the truth is in matmul_accuracy_test.cc.

#include "kernels/matmul.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/half.h"
#include "base/test_effort.h"
#include "kernels/matmul_test_support.h"

namespace gapless {
namespace {

constexpr int64_t kRowCounts[] = {1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 33, 64};
constexpr Interleave kInterleaves[] = {Interleave::kNone, Interleave::kPairs};

// What s8 must give: integers, then the same float operations in the same order.
std::vector<float> exact_s8(const MatmulCase& of_case, const float* row_factor = nullptr) {
  const MatmulShape& shape = of_case.shape;
  std::vector<float> y;
  for (int64_t row = 0; row < shape.m; ++row) {
    const QuantizedRow x = quantize_row_reference(std::span<const float>(of_case.x).subspan(
        static_cast<size_t>(row * shape.k), static_cast<size_t>(shape.k)));
    for (int64_t column = 0; column < shape.n; ++column) {
      const int8_t* weights = of_case.quantized[0].data() + column * shape.k;
      int64_t sum = 0;
      for (int64_t k = 0; k < shape.k; ++k)
        sum += int64_t{x.values[static_cast<size_t>(k)]} * weights[k];
      const float scale = of_case.scales[0][static_cast<size_t>(column)];
      const float value = static_cast<float>(sum) * scale * x.scale;
      y.push_back(row_factor == nullptr ? value : value * row_factor[row]);
    }
  }
  return y;
}

TEST(Matmul, S8IsExactForEveryShape) {
  constexpr int64_t kDepths[] = {1, 2, 3, 5, 63, 64, 65, 130, 257, 515};
  constexpr int64_t kWidths[] = {1, 15, 16, 17, 95, 96, 97, 145, 177, 192, 209};
  uint32_t seed = 0;
  for (const int64_t m : kRowCounts) {
    for (const int64_t k : kDepths) {
      const int64_t n = kWidths[++seed % std::size(kWidths)];
      const MatmulCase of_case({.weights = DType::kS8, .m = m, .k = k, .n = n, .seed = seed});
      const std::vector<float> row_factor = uniform_values(m, 0.1f, 2.0f, seed);
      const std::vector<float> plain = exact_s8(of_case);
      const std::vector<float> scaled = exact_s8(of_case, row_factor.data());
      for (const CpuLevel level : usable_cpu_levels()) {
        ASSERT_TRUE(all_same(run_matmul(level, of_case), plain))
            << shape_text(of_case.shape, level);
        ASSERT_TRUE(all_same(
            run_matmul(level, of_case, {.row_factor = row_factor.data(), .gap = 1}), scaled))
            << shape_text(of_case.shape, level);
      }
    }
  }
}

TEST(Matmul, S8IsExactForRandomShapes) {
  std::mt19937 random(20);
  const auto below = [&random](int limit) {
    return std::uniform_int_distribution<int64_t>(1, limit)(random);
  };
  for (uint32_t round = 0; round < test_effort(80); ++round) {
    const MatmulCase of_case({.weights = DType::kS8,
                              .m = below(kMaxMatmulRows),
                              .k = below(600),
                              .n = below(200),
                              .seed = round});
    const std::vector<float> expected = exact_s8(of_case);
    const int64_t panels_per_tile = below(9);
    for (const CpuLevel level : usable_cpu_levels())
      ASSERT_TRUE(
          all_same(run_matmul(level, of_case, {.panels_per_tile = panels_per_tile}), expected))
          << shape_text(of_case.shape, level) << " by " << panels_per_tile << " panels";
  }
}

// Goal: nothing saturates or wraps. Method: all weights and activations at the ends of their range,
// in every combination of signs; the largest k stands 1 % below the limits of int32 (255 x 127 x
// k).
TEST(Matmul, S8IsExactAtTheExtremes) {
  for (const int64_t k : {int64_t{17408}, kMaxMatmulK}) {
    MatmulCase of_case({.weights = DType::kS8, .m = 4, .k = k, .n = 4});
    constexpr int8_t kWeights[] = {127, -127, -128, 127};
    constexpr float kRows[] = {1.0f, -1.0f, 1.0f, -1.0f};
    for (int64_t i = 0; i < 4 * k; ++i) {
      const int64_t row = i / k;
      // The last row and the last column alternate, each at its own pace.
      const bool is_turned_x = row == 3 && i % 2 == 0;
      const bool is_turned_weight = row == 3 && i % 4 < 2;
      const size_t at = static_cast<size_t>(i);
      of_case.x[at] = is_turned_x ? -kRows[row] : kRows[row];
      of_case.quantized[0][at] =
          static_cast<int8_t>(is_turned_weight ? -kWeights[row] : kWeights[row]);
    }
    of_case.scales[0] = {1.0f, 1.0f, 1.0f, 1.0f};
    of_case.pack();
    const std::vector<float> expected = exact_s8(of_case);
    EXPECT_EQ(expected[0], static_cast<float>(127 * 127 * k) * (1.0f / 127.0f));
    EXPECT_EQ(expected[2], static_cast<float>(-128 * 127 * k) * (1.0f / 127.0f));
    for (const CpuLevel level : usable_cpu_levels())
      EXPECT_TRUE(all_same(run_matmul(level, of_case), expected))
          << shape_text(of_case.shape, level);
  }
}

// f32 may differ in the last bits between levels with and without multiply-add; s8 must not.
TEST(Matmul, S8IsTheSameAtEveryLevel) {
  const MatmulCase of_case({.weights = DType::kS8, .m = 11, .k = 770, .n = 113, .seed = 21});
  const std::vector<float> row_factor = uniform_values(11, 0.1f, 2.0f, 22);
  const std::vector<float> residual = normal_values(11 * 113, 23);
  for (const DType stored : kFloatTypes) {
    const RunOptions options = {
        .output = stored, .row_factor = row_factor.data(), .residual = residual.data()};
    const std::vector<float> expected = run_matmul(CpuLevel::kPortable, of_case, options);
    for (const CpuLevel level : usable_cpu_levels())
      EXPECT_TRUE(all_same(run_matmul(level, of_case, options), expected)) << level_trace(level);
  }
}

// From what comes without a residual and in f32, all else follows bit for bit.
void expect_stepwise_epilogue(const MatmulCase& of_case, CpuLevel level) {
  const MatmulShape& shape = of_case.shape;
  const std::vector<float> residual = normal_values(shape.m * shape.n, shape.seed);
  std::vector<float> expected = run_matmul(level, of_case);
  for (size_t i = 0; i < expected.size(); ++i) expected[i] += residual[i];
  for (const DType stored : kFloatTypes) {
    std::vector<float> cast = expected;
    for (float& value : cast) value = cast_through(stored, value);
    const RunOptions options = {.output = stored, .residual = residual.data(), .gap = 5};
    EXPECT_TRUE(all_same(run_matmul(level, of_case, options), cast))
        << shape_text(shape, level) << " to " << dtype_name(stored);
  }
}

TEST(Matmul, EpilogueStepsAreRoundedOneByOne) {
  MatmulShape shape = {.k = 35, .seed = 30};
  for (const Interleave interleave : kInterleaves) {
    for (const DType dtype : kWeightTypes) {
      for (const int64_t m : {1, 4, 6}) {
        for (const int64_t n : {1, 7, 9, 16, 33}) {
          shape.weights = dtype;
          shape.m = m;
          shape.n = n;
          shape.interleave = interleave;
          ++shape.seed;
          const MatmulCase of_case(shape);
          for (const CpuLevel level : usable_cpu_levels()) expect_stepwise_epilogue(of_case, level);
        }
      }
    }
  }
}

TEST(Matmul, TheRowFactorMultipliesEveryColumnOfItsRow) {
  const std::vector<float> row_factor = uniform_values(6, 0.1f, 2.0f, 40);
  for (const DType dtype : kWeightTypes) {
    const MatmulCase of_case({.weights = dtype, .m = 6, .k = 35, .n = 41, .seed = 41});
    for (const CpuLevel level : usable_cpu_levels()) {
      std::vector<float> expected = run_matmul(level, of_case);
      for (size_t i = 0; i < expected.size(); ++i) expected[i] *= row_factor[i / 41];
      EXPECT_TRUE(all_same(run_matmul(level, of_case, {.row_factor = row_factor.data()}), expected))
          << shape_text(of_case.shape, level);
    }
  }
}

TEST(Matmul, TheResidualMayBeTheOutput) {
  for (const Interleave interleave : kInterleaves) {
    for (const DType dtype : kWeightTypes) {
      const MatmulCase of_case(
          {.weights = dtype, .m = 5, .k = 35, .n = 41, .interleave = interleave, .seed = 42});
      const std::vector<float> residual = normal_values(5 * 41, 43);
      for (const CpuLevel level : usable_cpu_levels()) {
        const GuardedRows rows(dtype, level, 5, 35);
        pack_rows(level, {.data = of_case.x.data(), .row_stride = 35}, 0, 5, rows.rows);
        const GuardedArray<float> y{std::span<const float>(residual)};
        const MatmulArgs args = {
            .weights = of_case.matrix.get(),
            .rows = rows.rows,
            .output = {
                .data = y.data(), .row_stride = 41, .residual = y.data(), .residual_stride = 41}};
        run_tiles(level, args, of_case.panel_step());
        EXPECT_TRUE(all_same(y.span(), run_matmul(level, of_case, {.residual = residual.data()})))
            << shape_text(of_case.shape, level);
      }
    }
  }
}

// Goal: a row's result depends on nothing but the row. Method: the rows of a large matmul again in
// smaller ones of every size, each time in another place.
TEST(Matmul, ARowDoesNotDependOnItsCompany) {
  for (const Interleave interleave : kInterleaves) {
    for (const DType dtype : kWeightTypes) {
      const int64_t k = 4 * 67 + 3;
      const int64_t n = 4 * 16 + 5;
      const MatmulCase all(
          {.weights = dtype, .m = 64, .k = k, .n = n, .interleave = interleave, .seed = 50});
      MatmulCase some(all.shape);
      for (const CpuLevel level : usable_cpu_levels()) {
        const std::vector<float> expected = run_matmul(level, all);
        for (const int64_t m : kRowCounts) {
          some.shape.m = m;
          std::vector<float> rows;
          for (int64_t row = 0; row < m; ++row) {
            const int64_t from = (row * 5 + m) % 64;
            std::copy_n(all.x.begin() + from * k, k, some.x.begin() + row * k);
            rows.insert(rows.end(), expected.begin() + from * n, expected.begin() + (from + 1) * n);
          }
          ASSERT_TRUE(all_same(run_matmul(level, some), rows)) << shape_text(some.shape, level);
        }
      }
    }
  }
}

TEST(Matmul, AColumnDoesNotDependOnItsTile) {
  for (const Interleave interleave : kInterleaves) {
    for (const DType dtype : kWeightTypes) {
      for (const int64_t m : {1, 4, 6}) {
        const MatmulCase of_case({.weights = dtype,
                                  .m = m,
                                  .k = 4 * 65 + 1,
                                  .n = 17 * 16 + 3,
                                  .interleave = interleave,
                                  .seed = 51});
        for (const CpuLevel level : usable_cpu_levels()) {
          const std::vector<float> expected = run_matmul(level, of_case);
          for (const int64_t panels : {1, 2, 3, 7, 13}) {
            const RunOptions options = {.panels_per_tile = panels * of_case.panel_step()};
            ASSERT_TRUE(all_same(run_matmul(level, of_case, options), expected))
                << shape_text(of_case.shape, level) << " by " << panels;
          }
        }
      }
    }
  }
}

TEST(Matmul, ATileWritesItsColumnsOnly) {
  for (const Interleave interleave : kInterleaves) {
    for (const DType dtype : kWeightTypes) {
      const MatmulCase of_case(
          {.weights = dtype, .m = 3, .k = 9, .n = 75, .interleave = interleave, .seed = 52});
      for (const CpuLevel level : usable_cpu_levels()) {
        const std::vector<float> whole = run_matmul(level, of_case);
        const GuardedRows rows(dtype, level, 3, 9);
        pack_rows(level, {.data = of_case.x.data(), .row_stride = 9}, 0, 3, rows.rows);
        for (int64_t panel = 0; panel < 5; ++panel) {
          const std::vector<float> before(3 * 75, -1234.5f);
          const GuardedArray<float> y{std::span<const float>(before)};
          const MatmulArgs args = {.weights = of_case.matrix.get(),
                                   .rows = rows.rows,
                                   .output = {.data = y.data(), .row_stride = 75}};
          const int64_t step = of_case.panel_step();
          matmul_tile(level, args, panel * step, step);
          matmul_tile(level, args, 0, 0);
          for (int64_t i = 0; i < y.size(); ++i) {
            const bool is_inside = i % 75 / 16 == panel;
            const float expected = is_inside ? whole[static_cast<size_t>(i)] : -1234.5f;
            ASSERT_EQ(y[i], expected) << shape_text(of_case.shape, level) << " element " << i;
          }
        }
      }
    }
  }
}

// ---- Slices of k.

struct SlicedRun {
  std::vector<int64_t> cuts = {};  // first lines of the slices, in order; the first one is 0
  std::vector<size_t> order = {};  // in which they are computed
  int64_t panels_per_tile = 0;
};

std::vector<float> run_slices(CpuLevel level, const MatmulCase& of_case, const SlicedRun& run) {
  const MatmulShape& shape = of_case.shape;
  const PackedMatrix& weights = *of_case.matrix;
  const GuardedRows rows(shape.weights, level, shape.m, shape.k);
  pack_rows(level, {.data = of_case.x.data(), .row_stride = shape.k}, 0, shape.m, rows.rows);
  const GuardedOutput y(DType::kF32, shape.m, shape.n, 2);
  const MatmulArgs args = {.weights = &weights, .rows = rows.rows, .output = y.output()};
  for (int64_t panel = 0; panel < weights.panel_count(); panel += run.panels_per_tile) {
    const int64_t count = std::min(run.panels_per_tile, weights.panel_count() - panel);
    std::vector<std::unique_ptr<GuardedArray<std::byte>>> sums;
    std::vector<const void*> slices;
    for (size_t slice = 0; slice < run.cuts.size(); ++slice) {
      sums.push_back(std::make_unique<GuardedArray<std::byte>>(matmul_sums_bytes(shape.m, count)));
      slices.push_back(sums.back()->data());
      std::memset(sums.back()->data(), 0xa5, static_cast<size_t>(sums.back()->size()));
    }
    for (const size_t slice : run.order) {
      const int64_t first = run.cuts[slice];
      const int64_t end = slice + 1 < run.cuts.size() ? run.cuts[slice + 1] : weights.line_count();
      matmul_slice(level, args, panel, count, first, end - first, sums[slice]->data());
    }
    matmul_combine(level, args, panel, count, static_cast<int>(slices.size()), slices.data());
  }
  EXPECT_TRUE(y.has_untouched_gaps());
  return y.values();
}

// 0 and some other lines, in order, the last one twice: an empty slice.
std::vector<int64_t> random_cuts(int64_t line_count, int slice_count, std::mt19937& random) {
  std::vector<int64_t> cuts = {0};
  std::uniform_int_distribution<int64_t> distribution(0, line_count);
  for (int i = 1; i < slice_count; ++i) cuts.push_back(distribution(random));
  std::sort(cuts.begin(), cuts.end());
  cuts.push_back(cuts.back());
  return cuts;
}

TEST(Matmul, SlicesAddUpToTheWholeWhateverTheirOrder) {
  std::mt19937 random(60);
  for (const Interleave interleave : kInterleaves) {
    for (const DType dtype : kWeightTypes) {
      for (const int64_t m : {1, 5}) {
        const MatmulCase of_case({.weights = dtype,
                                  .m = m,
                                  .k = 4 * 97 + 2,
                                  .n = 9 * 16 + 1,
                                  .interleave = interleave,
                                  .seed = 61});
        for (const CpuLevel level : usable_cpu_levels()) {
          const std::vector<float> whole = run_matmul(level, of_case);
          for (const int slice_count : {1, 2, 3, 7}) {
            SlicedRun run = {.cuts = random_cuts(of_case.matrix->line_count(), slice_count, random),
                             .panels_per_tile = 8};
            run.order.resize(run.cuts.size());
            std::iota(run.order.begin(), run.order.end(), size_t{0});
            const std::vector<float> sliced = run_slices(level, of_case, run);
            if (dtype == DType::kS8 || slice_count == 1) {
              // Adding the empty slice's zeros changes no float.
              ASSERT_TRUE(all_same(sliced, whole)) << shape_text(of_case.shape, level);
            }
            std::shuffle(run.order.begin(), run.order.end(), random);
            run.panels_per_tile = 2;
            ASSERT_TRUE(all_same(run_slices(level, of_case, run), sliced))
                << shape_text(of_case.shape, level) << " in " << slice_count << " slices";
          }
        }
      }
    }
  }
}

TEST(Matmul, KnowingTheNextTileChangesNothing) {
  for (const DType dtype : kWeightTypes) {
    for (const int64_t m : {1, 4, 9, 16, 33}) {
      const MatmulCase of_case({.weights = dtype, .m = m, .k = 700, .n = 16 * 20 - 3, .seed = 63});
      for (const CpuLevel level : usable_cpu_levels()) {
        const GuardedRows rows(dtype, level, m, of_case.shape.k);
        pack_rows(level, {.data = of_case.x.data(), .row_stride = of_case.shape.k}, 0, m,
                  rows.rows);
        const GuardedOutput y(DType::kF32, m, of_case.shape.n, 0);
        const MatmulArgs args = {
            .weights = of_case.matrix.get(), .rows = rows.rows, .output = y.output()};
        // 19 has fewer panels behind it than are read side by side.
        const int64_t order[] = {7, 0, 14, 19};
        const int64_t counts[] = {7, 7, 5, 1};
        for (int i = 0; i < 4; ++i)
          matmul_tile(level, args, order[i], counts[i], i + 1 < 4 ? order[i + 1] : -1);
        ASSERT_TRUE(all_same(y.values(), run_matmul(level, of_case)))
            << shape_text(of_case.shape, level);
      }
    }
  }
}

// Slices of floats are rounded at other places: within the bounds of matmul_accuracy_test.cc.
TEST(Matmul, SlicedFloatsAreAsNearAsWholeOnes) {
  for (const DType dtype : kFloatTypes) {
    const MatmulCase of_case({.weights = dtype, .m = 5, .k = 1031, .n = 35, .seed = 62});
    const std::vector<double> expected = matmul_reference(of_case.reference());
    const std::vector<double> magnitudes = matmul_magnitudes(of_case.reference());
    const double units = dtype == DType::kBf16 ? 5.0 : dtype == DType::kF16 ? 7.0 : 9.0;
    for (const CpuLevel level : usable_cpu_levels()) {
      const std::vector<float> y = run_slices(
          level, of_case, {.cuts = {0, 5, 300, 301}, .order = {3, 1, 0, 2}, .panels_per_tile = 3});
      for (size_t i = 0; i < y.size(); ++i)
        ASSERT_NEAR(static_cast<double>(y[i]), expected[i], units * 0x1p-24 * magnitudes[i])
            << shape_text(of_case.shape, level) << " element " << i;
    }
  }
}

// ---- What check_matmul refuses.

struct CheckedMatmul {
  CheckedMatmul(DType dtype, CpuLevel at_level)
      : level(at_level),
        of_case({.weights = dtype, .m = 3, .k = 10, .n = 20}),
        rows(dtype, at_level, 3, 10) {
    args = {.weights = of_case.matrix.get(),
            .rows = rows.rows,
            .output = {.data = y, .row_stride = 20, .residual = y, .residual_stride = 20}};
  }
  std::string error() const {
    const Result<void> fits = check_matmul(level, args);
    return fits.has_value() ? "accepted" : fits.error().message;
  }
  CpuLevel level;
  MatmulCase of_case;
  GuardedRows rows;
  MatmulArgs args;
  float y[3 * 20] = {};
};

TEST(Matmul, RefusesPartsThatDoNotFit) {
  const auto error_after = [](auto change, DType dtype = DType::kF32) {
    CheckedMatmul checked(dtype, CpuLevel::kPortable);
    change(checked.args);
    return checked.error();
  };
  EXPECT_EQ(error_after([](MatmulArgs&) {}), "accepted");
  EXPECT_EQ(error_after([](MatmulArgs& args) { args.weights = nullptr; }),
            "a matmul needs weights");
  const PackedMatrix empty;
  EXPECT_EQ(error_after([&empty](MatmulArgs& args) { args.weights = &empty; }),
            "a matmul needs weights");
  EXPECT_EQ(error_after([](MatmulArgs& args) { args.rows.m = 0; }),
            "a matmul takes 1 to 64 rows, not 0");
  EXPECT_EQ(error_after([](MatmulArgs& args) { args.rows.m = 65; }),
            "a matmul takes 1 to 64 rows, not 65");
  EXPECT_EQ(error_after([](MatmulArgs& args) { args.rows.k = 11; }),
            "rows of 11 elements do not fit weights with k = 10");
  EXPECT_EQ(error_after([](MatmulArgs& args) { args.rows.data = nullptr; }),
            "a matmul needs packed rows");
  EXPECT_EQ(error_after([](MatmulArgs& args) { args.rows.scales = nullptr; }, DType::kS8),
            "a matmul needs packed rows");
  EXPECT_EQ(error_after([](MatmulArgs& args) { args.rows.sums = nullptr; }, DType::kS8),
            "a matmul needs packed rows");
}

TEST(Matmul, RefusesOutputsThatDoNotFit) {
  const auto error_after = [](auto change) {
    CheckedMatmul checked(DType::kF32, CpuLevel::kPortable);
    change(checked.args.output);
    return checked.error();
  };
  EXPECT_EQ(error_after([](MatmulOutput& output) { output.data = nullptr; }),
            "a matmul needs an output");
  EXPECT_EQ(error_after([](MatmulOutput& output) { output.dtype = DType::kS8; }),
            "a matmul stores f32, bf16 or f16, not s8");
  EXPECT_EQ(error_after([](MatmulOutput& output) { output.row_stride = 19; }),
            "the matmul's output has rows of 19 elements, the weights give 20 columns");
  EXPECT_EQ(error_after([](MatmulOutput& output) { output.residual_stride = 19; }),
            "the matmul's residual has rows of 19 elements, the weights give 20 columns");
}

TEST(Matmul, RefusesRowsOfAnotherTypeOrLevel) {
  CheckedMatmul checked(DType::kBf16, CpuLevel::kPortable);
  checked.args.rows.weights = DType::kF32;
  EXPECT_EQ(checked.error(),
            "the rows were packed for f32 weights or another CPU level, the weights are bf16 at "
            "level portable");
  // The format differs: 16-bit pairs there, f32 here.
  CheckedMatmul other(DType::kBf16, CpuLevel::kPortable);
  other.level = CpuLevel::kAvx512Bf16;
  EXPECT_EQ(other.error(),
            "the rows were packed for bf16 weights or another CPU level, the weights are bf16 at "
            "level avx512-bf16");
}

// One k more, and sums of s8 could leave int32.
TEST(Matmul, RefusesMoreThanItCanSum) {
  const MatmulCase of_case({.weights = DType::kS8, .m = 1, .k = kMaxMatmulK + 1, .n = 1});
  const GuardedRows rows(DType::kS8, CpuLevel::kPortable, 1, kMaxMatmulK + 1);
  float y = 0.0f;
  const MatmulArgs args = {
      .weights = of_case.matrix.get(), .rows = rows.rows, .output = {.data = &y, .row_stride = 1}};
  const Result<void> fits = check_matmul(CpuLevel::kPortable, args);
  ASSERT_FALSE(fits.has_value());
  EXPECT_EQ(fits.error().message, "k = 65537; a matmul takes 1 to 65536");
}

}  // namespace
}  // namespace gapless
