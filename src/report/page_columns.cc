// SPDX-License-Identifier: Apache-2.0

#include "report/page_columns.h"

#include <zlib.h>

namespace gapless {
namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

uint32_t byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

}  // namespace

Result<std::string> compress_bytes(std::string_view bytes, int level) {
  uLongf size = compressBound(bytes.size());
  std::string compressed(size, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(compressed.data()), &size,
                               reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), level);
  if (status != Z_OK) {
    return fail(ErrorCode::kSystem, "zlib cannot compress {} bytes at level {}: error {}",
                bytes.size(), level, status);
  }
  compressed.resize(size);
  return compressed;
}

void append_base64(std::string& out, std::string_view bytes) {
  size_t at = out.size();
  out.resize(at + (bytes.size() + 2) / 3 * 4, '=');
  size_t i = 0;
  for (; i + 3 <= bytes.size(); i += 3) {
    const uint32_t three =
        byte_at(bytes, i) << 16 | byte_at(bytes, i + 1) << 8 | byte_at(bytes, i + 2);
    for (int shift = 18; shift >= 0; shift -= 6) out[at++] = kDigits[three >> shift & 63];
  }
  const size_t left = bytes.size() - i;
  if (left == 0) return;
  const uint32_t last =
      byte_at(bytes, i) << 16 | (left == 2 ? byte_at(bytes, i + 1) << 8 : uint32_t{0});
  out[at++] = kDigits[last >> 18];
  out[at++] = kDigits[last >> 12 & 63];
  if (left == 2) out[at++] = kDigits[last >> 6 & 63];
}

}  // namespace gapless
