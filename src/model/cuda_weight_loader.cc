// SPDX-License-Identifier: Apache-2.0
//
// Weights of a checkpoint on the GPU. Host threads check, convert and pack tiles of 128 packed rows
// into a staging buffer, which is uploaded when it is full.

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "cuda/matmul_launch.h"
#include "model/checkpoint_source.h"
#include "model/cuda_weight_plan.h"
#include "model/cuda_weights.h"
#include "model/deal.h"

namespace gapless {
namespace {

constexpr int64_t kStagingBytes = int64_t{256} << 20;
constexpr int64_t kEmbeddingRows = 64;  // that a thread checks at a time

// One tile of a matrix, packed.
struct TileTarget {
  std::span<std::byte> packed;
  std::span<float> scales;  // s8
};

// Rows of a matrix before they are packed, with k padded.
struct TileRows {
  TileRows(DType dtype, int64_t count, int64_t k)
      : bytes(static_cast<size_t>(count * k * dtype_bytes(dtype))),
        scales(dtype == DType::kS8 ? static_cast<size_t>(count) : 0) {}
  std::vector<std::byte> bytes;
  std::vector<float> scales;
};

class CheckpointFiller final : public CudaWeightFiller {
 public:
  CheckpointFiller(CheckpointSource source, int thread_count)
      : source_(std::move(source)), thread_count_(thread_count) {}

  Result<std::vector<float>> read_norm(const WeightTensor& tensor) override {
    return source_.read_norm(tensor);
  }

  Result<void> fill_matrix(const CudaMatrixPlan& plan, CudaMatrix& matrix,
                           const BytesDone& bytes_done) override {
    const int64_t tiles = cuda_weight_rows(plan.shape) / kMatmulTileRows;
    const int64_t tile_bytes = cuda_weight_bytes(plan.shape) / tiles;
    const int64_t staged_tiles = std::min(tiles, std::max<int64_t>(1, kStagingBytes / tile_bytes));
    if (std::ssize(staging_) < staged_tiles * tile_bytes)
      staging_.resize(static_cast<size_t>(staged_tiles * tile_bytes));
    const bool is_s8 = plan.shape.dtype == DType::kS8;
    std::vector<float> scales(is_s8 ? static_cast<size_t>(cuda_weight_rows(plan.shape)) : 0);
    for (int64_t first = 0; first < tiles; first += staged_tiles) {
      const int64_t count = std::min(staged_tiles, tiles - first);
      const DealOptions dealing = {
          .count = count, .thread_count = thread_count_, .on_progress = [&](int64_t done) {
            bytes_done((first + done) * tile_bytes);
          }};
      GAPLESS_TRY(deal(dealing, [&](int64_t i) {
        const std::span<std::byte> packed = std::span(staging_).subspan(
            static_cast<size_t>(i * tile_bytes), static_cast<size_t>(tile_bytes));
        const size_t row = static_cast<size_t>((first + i) * kMatmulTileRows);
        const std::span<float> tile_scales =
            is_s8 ? std::span(scales).subspan(row, kMatmulTileRows) : std::span<float>();
        return pack_tile(plan, first + i, {.packed = packed, .scales = tile_scales});
      }));
      GAPLESS_TRY(
          matrix.weights.copy_from_host(staging_.data(), count * tile_bytes, first * tile_bytes));
    }
    if (!is_s8) return {};
    return matrix.scales.copy_from_host(scales.data(), matrix.scales.bytes());
  }

  DType embedding_dtype() const override { return source_.embedding_dtype(); }

  Result<void> fill_embedding(const WeightTensor& tensor, DeviceBuffer& embedding) override {
    const EmbeddingTable table = GAPLESS_TRY(source_.open_embedding(tensor));
    const int64_t jobs = (tensor.rows + kEmbeddingRows - 1) / kEmbeddingRows;
    GAPLESS_TRY(deal({.count = jobs, .thread_count = thread_count_}, [&](int64_t job) {
      const int64_t row = job * kEmbeddingRows;
      const int64_t count = std::min(kEmbeddingRows, tensor.rows - row);
      return source_.finish_embedding(tensor, {.row = row, .count = count}, table);
    }));
    return embedding.copy_from_host(table.rows, embedding.bytes());
  }

 private:
  // 128 packed rows lie together, be they one tile or two.
  Result<void> pack_tile(const CudaMatrixPlan& plan, int64_t tile, const TileTarget& target) const {
    CudaWeightShape shape = plan.shape;
    const int64_t tile_columns = shape.is_gated ? kMatmulTileRows / 2 : kMatmulTileRows;
    const int64_t first = tile * tile_columns;
    shape.columns = std::min(tile_columns, shape.columns - first);
    const RowRange rows = {.row = first, .count = shape.columns};
    TileRows own(shape.dtype, rows.count, shape.k);
    TileRows up(shape.dtype, shape.is_gated ? rows.count : 0, shape.k);
    if (shape.is_gated) {
      GAPLESS_TRY(read_rows(std::span(plan.parts).first(1), shape, rows, own));
      GAPLESS_TRY(read_rows(std::span(plan.parts).last(1), shape, rows, up));
    } else {
      GAPLESS_TRY(read_rows(plan.parts, shape, rows, own));
    }
    const void* up_bytes = shape.is_gated ? up.bytes.data() : nullptr;
    GAPLESS_TRY(pack_cuda_weights({shape, own.bytes.data(), up_bytes}, target.packed));
    if (target.scales.empty()) return {};
    const float* up_scales = shape.is_gated ? up.scales.data() : nullptr;
    return pack_cuda_scales({shape, own.scales.data(), up_scales}, target.scales);
  }

  // Rows of tensors that lie one below the other.
  Result<void> read_rows(std::span<const WeightTensor> parts, const CudaWeightShape& shape,
                         RowRange rows, TileRows& to) const {
    int64_t part_begin = 0;
    for (const WeightTensor& part : parts) {
      const int64_t begin = std::max(rows.row, part_begin);
      const int64_t end = std::min(rows.row + rows.count, part_begin + part.rows);
      if (begin < end) {
        const int64_t at = begin - rows.row;
        const RowTarget target = {.dtype = shape.dtype,
                                  .rows = to.bytes.data() + at * shape.k * dtype_bytes(shape.dtype),
                                  .stride = shape.k,
                                  .scales = to.scales.empty() ? nullptr : to.scales.data() + at};
        const RowRange range = {.row = begin - part_begin, .count = end - begin};
        GAPLESS_TRY(source_.read_rows(part, range, target));
      }
      part_begin += part.rows;
    }
    return {};
  }

  CheckpointSource source_;
  int thread_count_;
  std::vector<std::byte> staging_;
};

}  // namespace

Result<CudaModelWeights> load_cuda_weights(std::shared_ptr<const Checkpoint> checkpoint,
                                           const WeightOptions& options) {
  GAPLESS_TRY(check_cuda_weight_dtype(options.dtype));
  CheckpointSource source = GAPLESS_TRY(CheckpointSource::open(std::move(checkpoint), options));
  const ModelConfig config = source.config();
  CheckpointFiller filler(std::move(source), options.thread_count);
  return build_cuda_weights(config, options, filler);
}

}  // namespace gapless
