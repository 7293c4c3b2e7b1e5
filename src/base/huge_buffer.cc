// SPDX-License-Identifier: Apache-2.0

#include "base/huge_buffer.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <string>
#include <string_view>
#include <utility>

#include <sys/mman.h>
#include <unistd.h>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace gapless {
namespace {

struct AddressRange {
  uintptr_t begin = 0;
  uintptr_t end = 0;
};

// The range of a line "7f00-7f80 rw-p ..." that opens the entry of a mapping; empty for others.
AddressRange parse_range(std::string_view line) {
  AddressRange range;
  const char* const end = line.data() + line.size();
  const std::from_chars_result first = std::from_chars(line.data(), end, range.begin, 16);
  if (first.ec != std::errc{} || first.ptr == end || *first.ptr != '-') return {};
  const std::from_chars_result second = std::from_chars(first.ptr + 1, end, range.end, 16);
  if (second.ec != std::errc{}) return {};
  return range;
}

// The number of a line "AnonHugePages:   2048 kB", in bytes; 0 for others.
size_t parse_huge_bytes(std::string_view line) {
  constexpr std::string_view kField = "AnonHugePages:";
  if (!line.starts_with(kField)) return 0;
  const size_t digits = line.find_first_not_of(' ', kField.size());
  if (digits == std::string_view::npos) return 0;
  size_t kib = 0;
  std::from_chars(line.data() + digits, line.data() + line.size(), kib);
  return kib << 10;
}

// Shows and hides memory to the address sanitizer, where there is one.
void set_poisoned([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t bytes,
                  [[maybe_unused]] bool is_poisoned) {
#if defined(__SANITIZE_ADDRESS__)
  if (is_poisoned) {
    ASAN_POISON_MEMORY_REGION(data, bytes);
  } else {
    ASAN_UNPOISON_MEMORY_REGION(data, bytes);
  }
#endif
}

constexpr size_t round_up(size_t value, size_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

Result<HugeBuffer> HugeBuffer::allocate(size_t bytes) {
  HugeBuffer buffer;
  if (bytes == 0) return buffer;
  if (bytes > (SIZE_MAX >> 1)) return fail(ErrorCode::kSystem, "cannot map {} bytes", bytes);
  const size_t page_bytes = static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  // A small buffer would waste most of a huge page.
  const bool wants_huge = bytes >= kAlignment / 2;
  const size_t usable_bytes = round_up(bytes, wants_huge ? kAlignment : page_bytes);
  const size_t reservation_bytes = usable_bytes + kAlignment + 2 * page_bytes;
  void* const reservation = ::mmap(nullptr, reservation_bytes, PROT_NONE,
                                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (reservation == MAP_FAILED) {
    return fail(ErrorCode::kSystem, "cannot map {} bytes: {}", bytes, std::strerror(errno));
  }
  buffer.reservation_ = reservation;
  buffer.reservation_bytes_ = reservation_bytes;

  const uintptr_t address = reinterpret_cast<uintptr_t>(reservation);
  const size_t offset = round_up(address + page_bytes, kAlignment) - address;
  std::byte* const data = static_cast<std::byte*>(reservation) + offset;
  if (::mprotect(data, usable_bytes, PROT_READ | PROT_WRITE) != 0) {
    return fail(ErrorCode::kSystem, "cannot map {} bytes: {}", bytes, std::strerror(errno));
  }
  // A kernel without huge pages refuses, and small pages do.
  if (wants_huge) static_cast<void>(::madvise(data, usable_bytes, MADV_HUGEPAGE));
  set_poisoned(data + bytes, usable_bytes - bytes, true);
  buffer.data_ = data;
  buffer.size_ = bytes;
  buffer.usable_bytes_ = usable_bytes;
  return buffer;
}

HugeBuffer::HugeBuffer(HugeBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      usable_bytes_(std::exchange(other.usable_bytes_, 0)),
      reservation_(std::exchange(other.reservation_, nullptr)),
      reservation_bytes_(std::exchange(other.reservation_bytes_, 0)) {}

HugeBuffer& HugeBuffer::operator=(HugeBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(usable_bytes_, other.usable_bytes_);
  std::swap(reservation_, other.reservation_);
  std::swap(reservation_bytes_, other.reservation_bytes_);
  return *this;
}

HugeBuffer::~HugeBuffer() {
  if (reservation_ == nullptr) return;
  if (data_ != nullptr) set_poisoned(data_, usable_bytes_, false);
  ::munmap(reservation_, reservation_bytes_);
}

size_t HugeBuffer::huge_bytes() const {
  if (data_ == nullptr) return 0;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(data_);
  const uintptr_t end = begin + usable_bytes_;
  std::ifstream maps("/proc/self/smaps");
  size_t bytes = 0;
  bool is_ours = false;
  for (std::string line; std::getline(maps, line);) {
    const AddressRange range = parse_range(line);
    if (range.end != 0) is_ours = range.begin >= begin && range.end <= end;
    if (is_ours) bytes += parse_huge_bytes(line);
  }
  return std::min(bytes, usable_bytes_);
}

}  // namespace gapless
