// SPDX-License-Identifier: Apache-2.0
//
// CRC-32C (Castagnoli), by the CPU's instruction where there is one. About 7 GB/s with it, 1 GB/s
// without.

#pragma once

#include <cstddef>
#include <cstdint>

namespace gapless {

// `crc` continues an earlier call over the bytes before these.
uint32_t crc32c(const void* data, size_t size, uint32_t crc = 0);
// The table version, for machines without the instruction and for the test that compares them.
uint32_t crc32c_portable(const void* data, size_t size, uint32_t crc = 0);

}  // namespace gapless
