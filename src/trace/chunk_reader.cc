// SPDX-License-Identifier: Apache-2.0

#include "trace/chunk_reader.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/core.h>
#include <zstd.h>

#include "base/crc32c.h"

namespace gapless {
namespace {

// The largest payload we write is 8 MiB; more is a damaged or hostile file.
constexpr uint64_t kMaxRawBytes = 64 << 20;

template <typename T>
T load(std::span<const std::byte> bytes, uint64_t offset) {
  T value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

Result<FileHeader> check_file_header(std::span<const std::byte> file, const std::string& name) {
  if (file.empty()) return fail(ErrorCode::kInvalidInput, "{}: the file is empty", name);
  if (!is_trace_file(file)) return fail(ErrorCode::kInvalidInput, "{}: not a gapless trace", name);
  if (file.size() < sizeof(FileHeader)) {
    return fail(ErrorCode::kInvalidInput, "{}: cut short in the file header: {} of {} bytes", name,
                file.size(), sizeof(FileHeader));
  }
  const FileHeader header = load<FileHeader>(file, 0);
  if (header.byte_order != kByteOrderMark) {
    return fail(ErrorCode::kInvalidInput, "{}: byte order mark {:#010x}; this build reads {:#010x}",
                name, header.byte_order, kByteOrderMark);
  }
  if (header.version != kTraceVersion) {
    return fail(ErrorCode::kInvalidInput, "{}: trace version {}; this build reads version {}", name,
                header.version, kTraceVersion);
  }
  if (header.crc != crc32c(&header, offsetof(FileHeader, crc))) {
    return fail(ErrorCode::kInvalidInput, "{}: the file header is damaged (its checksum is wrong)",
                name);
  }
  return header;
}

Finding error_finding(std::string code, std::string text) {
  return {Severity::kError, std::move(code), std::move(text), kNoIndex, 1};
}

bool has_identity(const ChunkHeader& header) {
  return header.magic == kChunkMagic &&
         header.identity_crc == crc32c(&header, offsetof(ChunkHeader, identity_crc)) &&
         header.allocated_bytes >= sizeof(ChunkHeader);
}

bool is_sealed(const ChunkHeader& header) {
  constexpr size_t kBegin = offsetof(ChunkHeader, stored_bytes);
  const uint32_t crc = crc32c(&header.stored_bytes, offsetof(ChunkHeader, seal_crc) - kBegin);
  return header.state == ChunkState::kSealed && header.seal_crc == crc;
}

Result<std::vector<std::byte>> decompress(std::span<const std::byte> stored, uint64_t raw_bytes) {
  if (raw_bytes > kMaxRawBytes) {
    return fail(ErrorCode::kInvalidInput, "says it holds {} bytes; at most {} are possible",
                raw_bytes, kMaxRawBytes);
  }
  std::vector<std::byte> raw(raw_bytes);
  const size_t size = ZSTD_decompress(raw.data(), raw.size(), stored.data(), stored.size());
  if (ZSTD_isError(size) != 0) {
    return fail(ErrorCode::kInvalidInput, "cannot be decompressed: {}", ZSTD_getErrorName(size));
  }
  if (size != raw_bytes) {
    return fail(ErrorCode::kInvalidInput, "holds {} bytes after decompression, not {}", size,
                raw_bytes);
  }
  return raw;
}

// The payload of a chunk that lies wholly in the file. Nothing, and a finding, when it is damaged.
bool read_payload(std::span<const std::byte> room, const ChunkHeader& header, FoundChunk& chunk,
                  std::vector<Finding>& findings) {
  chunk.sealed = is_sealed(header);
  if (!chunk.sealed) {
    chunk.payload = room;
    return true;
  }
  const auto damaged = [&](const std::string& why) {
    findings.push_back(error_finding(
        "damaged-chunk", fmt::format("the chunk at byte {} {}; left out", chunk.offset, why)));
    return false;
  };
  if (header.stored_bytes > room.size()) {
    return damaged(fmt::format("says it stores {} bytes in {}", header.stored_bytes, room.size()));
  }
  chunk.payload = room.first(header.stored_bytes);
  if (header.payload_crc != crc32c(chunk.payload.data(), chunk.payload.size())) {
    return damaged("has a wrong checksum");
  }
  if (header.encoding == ChunkEncoding::kPlain) return true;
  if (header.encoding != ChunkEncoding::kZstd) {
    return damaged(fmt::format("has encoding {}, which this build does not know",
                               static_cast<int>(header.encoding)));
  }
  Result<std::vector<std::byte>> raw = decompress(chunk.payload, header.raw_bytes);
  if (!raw) return damaged(raw.error().message);
  chunk.decoded = std::move(*raw);
  chunk.payload = chunk.decoded;
  return true;
}

}  // namespace

bool is_trace_file(std::span<const std::byte> first_bytes) {
  return first_bytes.size() >= sizeof(kFileMagic) &&
         std::memcmp(first_bytes.data(), kFileMagic, sizeof(kFileMagic)) == 0;
}

Result<ChunkScan> scan_chunks(std::span<const std::byte> file, const std::string& name,
                              const Progress& progress) {
  const FileHeader file_header = GAPLESS_TRY(check_file_header(file, name));
  ChunkScan scan;
  const uint64_t stride = file_header.stride_bytes;
  uint64_t offset = file_header.first_chunk_offset;
  while (offset < file.size()) {
    if (progress) progress(offset, file.size());
    const uint64_t left = file.size() - offset;
    if (left < sizeof(ChunkHeader)) {
      scan.findings.push_back(error_finding(
          "cut-short",
          fmt::format("the file is cut short in a chunk header at byte {}: {} of {} bytes", offset,
                      left, sizeof(ChunkHeader))));
      break;
    }
    const ChunkHeader header = load<ChunkHeader>(file, offset);
    if (!has_identity(header)) {
      // A recorder that was killed, or that met a full disk, leaves places it never wrote to.
      constexpr ChunkHeader kUnwritten = {};
      const bool unwritten = std::memcmp(&header, &kUnwritten, sizeof(header)) == 0;
      if (!unwritten) {
        scan.findings.push_back(error_finding(
            "damaged-chunk",
            stride != 0
                ? fmt::format("the chunk at byte {} has a damaged header; left out", offset)
                : fmt::format("the chunk at byte {} has a damaged header; the {} bytes from there "
                              "on cannot be read",
                              offset, left)));
      }
      if (stride == 0) {
        if (unwritten) {
          scan.findings.push_back(error_finding(
              "damaged-chunk", fmt::format("there are zeros where a chunk should be, at byte {}; "
                                           "the {} bytes from there on cannot be read",
                                           offset, left)));
        }
        break;
      }
      if (left < stride) break;
      offset += stride;
      continue;
    }
    if (header.allocated_bytes > left) {
      scan.findings.push_back(error_finding(
          "cut-short", fmt::format("the file is cut short in the chunk at byte {}: {} of {} bytes; "
                                   "the chunk is left out",
                                   offset, left, header.allocated_bytes)));
      break;
    }
    FoundChunk chunk{header.type, header.writer, header.sequence, offset, false, {}, {}};
    const std::span<const std::byte> room =
        file.subspan(offset + sizeof(ChunkHeader), header.allocated_bytes - sizeof(ChunkHeader));
    if (read_payload(room, header, chunk, scan.findings)) scan.chunks.push_back(std::move(chunk));
    offset += header.allocated_bytes;
  }
  return scan;
}

}  // namespace gapless
