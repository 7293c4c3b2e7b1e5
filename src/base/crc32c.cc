// SPDX-License-Identifier: Apache-2.0

#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace gapless {
namespace {

constexpr uint32_t kPolynomial = 0x82f63b78;  // reflected Castagnoli

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t value = i;
    for (int bit = 0; bit < 8; ++bit) value = (value >> 1) ^ ((value & 1) != 0 ? kPolynomial : 0);
    table[i] = value;
  }
  return table;
}

constexpr std::array<uint32_t, 256> kTable = make_table();

#if defined(__x86_64__)

__attribute__((target("sse4.2"))) uint32_t crc32c_sse42(const void* data, size_t size,
                                                        uint32_t crc) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint64_t state = ~crc;
  for (; size >= 8; p += 8, size -= 8) {
    uint64_t word;
    std::memcpy(&word, p, 8);
    state = __builtin_ia32_crc32di(state, word);
  }
  uint32_t narrow = static_cast<uint32_t>(state);
  for (; size > 0; ++p, --size) narrow = __builtin_ia32_crc32qi(narrow, *p);
  return ~narrow;
}

bool has_instruction() {
  static const bool has = static_cast<bool>(__builtin_cpu_supports("sse4.2"));
  return has;
}

#endif

}  // namespace

uint32_t crc32c_portable(const void* data, size_t size, uint32_t crc) {
  const unsigned char* p = static_cast<const unsigned char*>(data);
  uint32_t state = ~crc;
  for (size_t i = 0; i < size; ++i) state = (state >> 8) ^ kTable[(state ^ p[i]) & 0xff];
  return ~state;
}

uint32_t crc32c(const void* data, size_t size, uint32_t crc) {
#if defined(__x86_64__)
  if (has_instruction()) return crc32c_sse42(data, size, crc);
#endif
  return crc32c_portable(data, size, crc);
}

}  // namespace gapless
