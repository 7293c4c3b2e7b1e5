// SPDX-License-Identifier: Apache-2.0

#include "kernels/matmul_bench_run.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <utility>

#include <unistd.h>

#include "base/half.h"

namespace gapless {
namespace {

constexpr int64_t kRowsAJob = 64;  // a multiple of kPanelRows: no two jobs share a panel
constexpr int64_t kSumsAlignment = 64;

int64_t cache_bytes(int name, int64_t otherwise) {
  const int64_t bytes = ::sysconf(name);
  return bytes > 0 ? bytes : otherwise;
}

std::vector<float> random_floats(int64_t count, float size, uint64_t seed) {
  RandomBits random(seed);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = size * random.next_float();
  return values;
}

// Every block of rows is another window of the same random values.
void fill_block(PackedMatrix& matrix, const std::vector<float>& values, int64_t block, int which) {
  const int64_t first = block * kRowsAJob;
  const int64_t count = std::min(kRowsAJob, matrix.n() - first);
  const int64_t spare = static_cast<int64_t>(values.size()) - kRowsAJob * matrix.k();
  const int64_t offset = (block * 2 + which) * 1009 % spare;
  matrix.set_rows(first, count, DType::kF32, values.data() + offset, which);
}

}  // namespace

Result<ProjectionWeights> make_weights(PinnedThreads& threads, const Projection& projection,
                                       DType dtype, int copy_count) {
  const std::vector<float> values = random_floats(kRowsAJob * projection.k + 8192, 0.05f, 7);
  ProjectionWeights weights = {projection, dtype, {}};
  for (int copy = 0; copy < copy_count; ++copy) {
    weights.copies.push_back(GAPLESS_TRY(
        PackedMatrix::create(dtype, projection.n, projection.k, projection.interleave)));
    PackedMatrix& matrix = weights.copies.back();
    const int64_t blocks = (projection.n + kRowsAJob - 1) / kRowsAJob;
    threads.run_jobs(threads.count(), blocks, [&](int64_t block) {
      fill_block(matrix, values, block, 0);
      if (projection.interleave == Interleave::kPairs) fill_block(matrix, values, block, 1);
    });
  }
  return weights;
}

MatmulRun::MatmulRun(PinnedThreads& threads, CpuLevel level, const ProjectionWeights& weights,
                     int64_t m, int thread_count)
    : threads_(&threads),
      level_(level),
      weights_(&weights),
      m_(m),
      thread_count_(thread_count),
      x_(random_floats(m * weights.projection.k, 1.0f, 11)) {}

Result<std::unique_ptr<MatmulRun>> MatmulRun::make(PinnedThreads& threads, CpuLevel level,
                                                   const ProjectionWeights& weights, int64_t m,
                                                   int thread_count) {
  std::unique_ptr<MatmulRun> run(new MatmulRun(threads, level, weights, m, thread_count));
  GAPLESS_TRY(run->prepare());
  return run;
}

Result<void> MatmulRun::prepare() {
  const Projection& shape = weights_->projection;
  plan_ =
      GAPLESS_TRY(plan_matmul({.weights = weights_->dtype,
                               .m = m_,
                               .k = shape.k,
                               .n = shape.n,
                               .interleave = shape.interleave,
                               .output_dtype = shape.output_dtype,
                               .core_count = thread_count_,
                               .l1_bytes = cache_bytes(_SC_LEVEL1_DCACHE_SIZE, int64_t{32} << 10),
                               .l2_bytes = cache_bytes(_SC_LEVEL2_CACHE_SIZE, int64_t{1} << 20),
                               .level = level_}));
  const int64_t packed_bytes = packed_rows_block_bytes(weights_->dtype, level_, m_, shape.k);
  packed_ = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(packed_bytes)));
  output_ = GAPLESS_TRY(
      HugeBuffer::allocate(static_cast<size_t>(m_ * shape.n * dtype_bytes(shape.output_dtype))));
  args_.weights = weights_->copies.data();
  args_.rows = packed_rows_in(packed_.data(), weights_->dtype, level_, m_, shape.k);
  args_.output = {.dtype = shape.output_dtype, .data = output_.data(), .row_stride = shape.n};
  if (shape.has_residual) {
    residual_.assign(static_cast<size_t>(m_ * shape.n), 1.0f);
    args_.output.residual = residual_.data();
    args_.output.residual_stride = shape.n;
  }
  if (plan_.k_slices > 1) {
    int64_t bytes = 0;
    for (const MatmulTilePlan& tile : plan_.tiles) {
      bytes += matmul_sums_bytes(m_, tile.panel_count) + kSumsAlignment;
    }
    sums_ = GAPLESS_TRY(HugeBuffer::allocate(static_cast<size_t>(bytes)));
    place_sums();
  }
  pack();
  return check_matmul(level_, args_);
}

void MatmulRun::place_sums() {
  int64_t offset = 0;
  for (const MatmulTilePlan& tile : plan_.tiles) {
    std::byte* sums = sums_.data() + offset;
    tile_sums_.push_back(sums);
    const int64_t bytes = matmul_sums_bytes(m_, tile.panel_count);
    offset += (bytes + kSumsAlignment - 1) / kSumsAlignment * kSumsAlignment;
    auto range = std::find_if(ranges_.begin(), ranges_.end(), [&tile](const Range& one) {
      return one.first_panel == tile.first_panel;
    });
    if (range == ranges_.end()) {
      ranges_.push_back({tile.first_panel, tile.panel_count, {}});
      ranges_.back().slices.resize(static_cast<size_t>(plan_.k_slices));
      range = ranges_.end() - 1;
    }
    range->slices[static_cast<size_t>(tile.slice)] = sums;
  }
}

double MatmulRun::pack() {
  const RowSource source = {
      .dtype = DType::kF32, .data = x_.data(), .row_stride = weights_->projection.k};
  return threads_->run_jobs(thread_count_, m_, [this, &source](int64_t row) {
    pack_rows(level_, source, row, 1, args_.rows);
  });
}

double MatmulRun::run() {
  MatmulArgs args = args_;
  last_copy_ = next_copy_;
  args.weights = &weights_->copies[next_copy_];
  next_copy_ = (next_copy_ + 1) % weights_->copies.size();
  const int64_t tile_count = static_cast<int64_t>(plan_.tiles.size());
  if (plan_.k_slices == 1) {
    std::atomic<int64_t> next_tile = 0;
    return threads_->run(thread_count_, [&](int) {
      int64_t index = next_tile.fetch_add(1, std::memory_order_relaxed);
      while (index < tile_count) {
        const int64_t next = next_tile.fetch_add(1, std::memory_order_relaxed);
        const MatmulTilePlan& tile = plan_.tiles[static_cast<size_t>(index)];
        matmul_tile(level_, args, tile.first_panel, tile.panel_count,
                    next < tile_count ? plan_.tiles[static_cast<size_t>(next)].first_panel : -1);
        index = next;
      }
    });
  }
  const double slices_ns = threads_->run_jobs(thread_count_, tile_count, [&](int64_t index) {
    const MatmulTilePlan& tile = plan_.tiles[static_cast<size_t>(index)];
    matmul_slice(level_, args, tile.first_panel, tile.panel_count, tile.first_line, tile.line_count,
                 tile_sums_[static_cast<size_t>(index)]);
  });
  return slices_ns + combine(args);
}

double MatmulRun::combine(const MatmulArgs& args) {
  const int64_t range_count = static_cast<int64_t>(ranges_.size());
  return threads_->run_jobs(thread_count_, range_count, [this, &args](int64_t index) {
    const Range& range = ranges_[static_cast<size_t>(index)];
    matmul_combine(level_, args, range.first_panel, range.panel_count, plan_.k_slices,
                   range.slices.data());
  });
}

// An s8 row is off by at most half a step of 1 / 127 in each element, which adds up like noise: 6
// deviations. The casts of 16-bit types are smaller than that.
double MatmulRun::expected(int64_t row, int64_t column, double& error_bound) const {
  const PackedMatrix& matrix = weights_->copies[last_copy_];
  const Projection& shape = weights_->projection;
  double sums[2] = {};
  double squares[2] = {};
  const int matrix_count = shape.interleave == Interleave::kPairs ? 2 : 1;
  for (int which = 0; which < matrix_count; ++which) {
    for (int64_t k = 0; k < shape.k; ++k) {
      const double w = static_cast<double>(matrix.value(column, k, which));
      sums[which] += w * static_cast<double>(x_[static_cast<size_t>(row * shape.k + k)]);
      squares[which] += w * w;
    }
  }
  const double step = 0.5 / 127.0;
  const double gate_error = 6.0 * step * std::sqrt(squares[0]);
  if (matrix_count == 1) {
    error_bound = gate_error;
    return sums[0] + (shape.has_residual ? 1.0 : 0.0);
  }
  const double silu = sums[0] / (1.0 + std::exp(-sums[0]));
  const double up_error = 6.0 * step * std::sqrt(squares[1]);
  // The slope of SiLU is at most 1.1; and bf16 has 8 bits.
  error_bound = 1.1 * gate_error * std::abs(sums[1]) + std::abs(silu) * up_error +
                std::abs(silu * sums[1]) * 0x1p-8 + gate_error * up_error;
  return silu * sums[1];
}

Result<void> MatmulRun::check() const {
  const Projection& shape = weights_->projection;
  for (const int64_t column : {int64_t{0}, shape.n / 3, shape.n - 1}) {
    const int64_t row = m_ - 1;
    double error_bound = 0.0;
    const double right = expected(row, column, error_bound);
    const double ours = static_cast<double>(
        load_as_float(shape.output_dtype, output_.data(), row * shape.n + column));
    if (std::abs(ours - right) <= error_bound) continue;  // not so for a NaN
    return fail(ErrorCode::kInvalidInput,
                "{} {} with {} rows: row {}, column {} is {}, not {} (at most {} off)", shape.name,
                dtype_name(weights_->dtype), m_, row, column, ours, right, error_bound);
  }
  return {};
}

}  // namespace gapless
