// SPDX-License-Identifier: Apache-2.0
//
// HugeBuffer: zeroed memory in 2 MiB pages where the system gives them.
//
// Kernels that stream weights lose a quarter or more to page walks on 4 KiB pages. Asked for with
// madvise, so that it works wherever transparent huge pages are set to "madvise" or "always";
// huge_bytes() says what came of it. The memory lies between inaccessible pages: reading past the
// end of the last page faults, and the address sanitizer knows the first byte after size().

#pragma once

#include <cstddef>
#include <cstdint>

#include "base/result.h"

namespace gapless {

class HugeBuffer {
 public:
  static constexpr size_t kAlignment = size_t{2} << 20;

  HugeBuffer() = default;
  // Zero bytes give an empty buffer.
  static Result<HugeBuffer> allocate(size_t bytes);
  HugeBuffer(HugeBuffer&& other) noexcept;
  HugeBuffer& operator=(HugeBuffer&& other) noexcept;
  ~HugeBuffer();

  std::byte* data() const { return data_; }  // at kAlignment
  size_t size() const { return size_; }
  // How much of what has been touched so far lies in huge pages; from /proc/self/smaps.
  size_t huge_bytes() const;

 private:
  std::byte* data_ = nullptr;
  size_t size_ = 0;
  size_t usable_bytes_ = 0;      // size_ rounded up to whole pages
  void* reservation_ = nullptr;  // address space: the usable bytes, alignment and guards
  size_t reservation_bytes_ = 0;
};

}  // namespace gapless
