// SPDX-License-Identifier: Apache-2.0
//
// MatmulStaging: how one task's matmul goes through the buffers of a cube core.
//
// The rows (A) are loaded once into Mat and feed both results of a dual matmul. The weights (B)
// pass through Mat and L0B in tiles, two buffers each, so that a load runs beside a multiply. The
// sums stay in L0C until k is done. A plan that does not fit is an error with the sum, the limit
// and the most columns that would fit. Nothing is rounded but to the blocks that the cube reads.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "sim/device_profile.h"

namespace gapless {

inline constexpr int64_t kMaxStagedRows = 65536;
inline constexpr int64_t kMaxStagedDepth = 65536;
inline constexpr int64_t kMaxStagedColumns = int64_t{1} << 31;

struct StagingProblem {
  int64_t m = 0;
  int64_t k = 0;
  int64_t n = 0;         // of each result
  bool is_dual = false;  // gate and up: two weight matrices, one A
  bool is_int8 = false;  // A and B of a byte, sums in int32; otherwise bf16 and f32
  int64_t tile_k = 0;    // k of a tile of B in Mat; 0: the largest that leaves two of them
};

// What lies in one buffer at the fullest moment.
struct StagedBuffer {
  std::string name;
  std::string content;
  int64_t used_bytes = 0;
  int64_t size_bytes = 0;
  bool fits() const { return used_bytes <= size_bytes; }
};

struct MatmulStaging {
  int64_t padded_m = 0;  // in whole blocks: 16 rows and columns, 32 bytes of k
  int64_t padded_k = 0;
  int64_t padded_n = 0;
  int64_t tile_k = 0;
  int64_t tile_count = 0;    // along k, of each weight matrix
  int64_t l0_k = 0;          // k of one multiply
  int64_t vector_rows = 0;   // rows that one vector core scales; 0: no such pass
  bool is_a_in_l0a = false;  // all of it, not piece by piece
  std::vector<StagedBuffer> buffers;
  int64_t load_count = 0;  // memory to Mat
  int64_t move_count = 0;  // Mat to L0A and L0B
  int64_t multiply_count = 0;
  int64_t store_count = 0;
  int64_t a_bytes = 0;  // loaded, and moved on to L0A: each byte once
  int64_t b_bytes = 0;  // loaded, and moved on to L0B
  int64_t store_bytes = 0;
};

// Error: a number out of range, a device without buffers, or a buffer that is too small.
Result<MatmulStaging> plan_matmul_staging(const DeviceProfile& profile,
                                          const StagingProblem& problem);

}  // namespace gapless
