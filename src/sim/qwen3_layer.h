// SPDX-License-Identifier: Apache-2.0
//
// Qwen3 decode layers as tasks, tiled as the published kernels are: what the simulated 910B runs.
//
// Four lists that were published with their tilings, and an inferred one:
//   kBf16      the layer of June 2026: 419 submits and 572 records a layer for qwen3-14b
//   kA8W8      int8 q, k, v, o and KV cache, bf16 gate, up and down; gate and up in one task
//              (pypto-lib #642): 709 blocks a layer
//   kA8W8Int8  int8 gate and up too, without splits of K, and a bf16 cache (#810): 356 blocks
//   kA8W8Split kA8W8 with gate and up apart
//   kA8W8First what pypto-lib #665 reports, before #642 was merged: 324 tasks, 967 records; each
//              matmul tile is a mixed task, whose vector cores add up the slices of K
// Layers only: no embedding, no sampling. docs/simulator.md lists the tasks.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "sim/sim_graph.h"

namespace gapless {

enum class LayerTiling : uint8_t {
  kBf16 = 0,
  kA8W8 = 1,
  kA8W8Int8 = 2,
  kA8W8Split = 3,
  kA8W8First = 4,
};
inline constexpr int kLayerTilingCount = 5;
std::string_view layer_tiling_name(LayerTiling tiling);

struct LayerGraphArgs {
  LayerTiling tiling = LayerTiling::kBf16;
  int64_t layers = 1;
  int64_t hidden = 5120;
  int64_t q_heads = 40;
  int64_t kv_heads = 8;
  int64_t head_dim = 128;
  int64_t intermediate = 17408;
  std::vector<int64_t> lengths = std::vector<int64_t>(16, 4096);  // tokens, one a sequence
  // Tiles that write into one buffer follow each other, as when each is declared to change all of
  // it: an assumption, not a fact about any published layer.
  bool has_serial_tiles = false;
  bool attention_only = false;  // the attention of each layer and its merge, nothing between them
};

// Error when a dimension is out of range or does not divide as the kernels need it.
Result<SimGraph> make_layer_graph(const LayerGraphArgs& args);

}  // namespace gapless
