// SPDX-License-Identifier: Apache-2.0
//
// How long a wait inside a kernel may take, and who is told of one that takes longer.
//
// Blocks wait for copies, for their other warps and for other blocks: microseconds. A wait that
// does not end is a bug, broken memory, or a workspace that somebody else wrote to. When the limit
// has passed on the GPU's timer, the thread that waits writes which wait it was into memory of the
// host and stops the kernel (waits.cuh). Where one wait makes others wait, it may be any of them
// that is reported. The device's context is lost by that: whatever is asked of CUDA from then on
// fails, and check_cuda() says why (wait_report.h).

#pragma once

#include <cstdint>

namespace gapless {

// What is waited for. wait_report.cc has words for each.
enum class DeviceWait : uint8_t {
  kNone,
  kMatmulStage,
  kMatmulSlot,
  kMatmulEpoch,
  kMatmulSums,
  kAttentionQueries,
  kAttentionKeys,
  kAttentionValues,
  kAttentionStates,
  kAttentionPlace,
  kAttentionPartials,
  kRowParts,
  kRecordedBlock,
  kTest,
  kCount
};

// What the device tells the host, in one store of 64 bits.
struct alignas(8) WaitReport {
  uint32_t block = 0;
  uint16_t warp = 0;
  DeviceWait wait = DeviceWait::kNone;
  uint8_t unused = 0;
};
static_assert(sizeof(WaitReport) == 8);

// Part of every launch whose kernel waits; start_kernel() puts it there.
struct WaitLimit {
  uint64_t* report = nullptr;  // where the device writes a WaitReport; null: nobody is told
  uint32_t limit_ms = 20'000;
};

// What start_kernel() puts there: what wait_report.h prepared, or the usual limit.
WaitLimit present_wait_limit();

}  // namespace gapless
