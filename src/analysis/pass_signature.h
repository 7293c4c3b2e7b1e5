// SPDX-License-Identifier: Apache-2.0
//
// What lies between one anchor and the next: the kernels there as a set, whatever their order.
//
// Kernels of several streams change places from layer to layer, and a collective has now one kernel
// and now two. So only compute kernels count, each type as often as it occurs, in no order: two
// layers of a kind have the same signature. Costs one pass over the rows, 5 bytes a row.

#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "trace/capture_table.h"

namespace gapless {

// What a kernel's name says about its place in a pass.
enum class KernelHint : uint8_t {
  kNone = 0,
  kSampling = 1,  // chooses tokens: behind the layers
  kEmbedding = 2  // looks tokens up: before them
};
KernelHint kernel_hint(std::string_view name);

// Types of compute kernels as small numbers.
struct KernelKeys {
  std::vector<uint32_t> key;     // by row; kNoIndex: a collective, a copy, or without any name
  std::vector<KernelHint> hint;  // by row
  uint32_t key_count = 0;
};
KernelKeys make_kernel_keys(const CaptureTable& table);

// The same, but only of rows on the stream of the anchor before or behind them: what other streams
// do goes on while the next pass runs, where the host does not wait for it.
KernelKeys keys_on_anchor_streams(const CaptureTable& table, const KernelKeys& keys,
                                  const std::vector<uint8_t>& is_anchor);

// The anchors of one device, and the intervals that they leave. Interval i lies before anchor i;
// the first and the last are open: the capture begins or ends in them.
struct AnchorIntervals {
  uint32_t first_row = 0;  // of the device
  uint32_t end_row = 0;
  std::vector<uint32_t> anchors;     // rows
  std::vector<uint64_t> signatures;  // by interval: equal for the same kernels
  std::vector<uint32_t> row_counts;  // by interval: rows that have a key

  // At least one anchor.
  uint32_t last() const { return static_cast<uint32_t>(anchors.size()); }  // interval
  uint32_t begin_row(uint32_t interval) const {
    return interval == 0 ? first_row : anchors[interval - 1] + 1;
  }
  uint32_t stop_row(uint32_t interval) const {
    return interval == last() ? end_row : anchors[interval];
  }
};
// `is_anchor` is by row of the table.
AnchorIntervals make_anchor_intervals(const KernelKeys& keys, const std::vector<uint8_t>& is_anchor,
                                      uint32_t first_row, uint32_t end_row);

}  // namespace gapless
