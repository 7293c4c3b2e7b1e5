// SPDX-License-Identifier: Apache-2.0

#include "trace/chunk_reader.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
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
  if (header.stride_bytes != 0 && header.stride_bytes < sizeof(ChunkHeader)) {
    return fail(ErrorCode::kInvalidInput, "{}: chunks every {} bytes; their headers take {}", name,
                header.stride_bytes, sizeof(ChunkHeader));
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

struct FreeContext {
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};
// Kept from chunk to chunk: making one costs more than unpacking a small chunk.
using Decompressor = std::unique_ptr<ZSTD_DCtx, FreeContext>;

Result<std::vector<std::byte>> decompress(Decompressor& decompressor,
                                          std::span<const std::byte> stored, uint64_t raw_bytes) {
  if (raw_bytes > kMaxRawBytes) {
    return fail(ErrorCode::kInvalidInput, "says it holds {} bytes; at most {} are possible",
                raw_bytes, kMaxRawBytes);
  }
  std::vector<std::byte> raw(raw_bytes);
  if (decompressor == nullptr) decompressor.reset(ZSTD_createDCtx());
  const size_t size =
      ZSTD_decompressDCtx(decompressor.get(), raw.data(), raw.size(), stored.data(), stored.size());
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
bool read_payload(std::span<const std::byte> room, const ChunkHeader& header,
                  Decompressor& decompressor, FoundChunk& chunk, std::vector<Finding>& findings) {
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
    // Entries of metadata have checksums of their own: what is whole is still good.
    const bool has_entries =
        header.type == ChunkType::kMetadata && header.encoding == ChunkEncoding::kPlain;
    if (!has_entries) return damaged("has a wrong checksum");
    findings.push_back(error_finding(
        "damaged-chunk", fmt::format("the metadata at byte {} has a wrong checksum; only whole "
                                     "entries are read",
                                     chunk.offset)));
    return true;
  }
  if (header.encoding == ChunkEncoding::kPlain) return true;
  if (header.encoding != ChunkEncoding::kZstd) {
    return damaged(fmt::format("has encoding {}, which this build does not know",
                               static_cast<int>(header.encoding)));
  }
  Result<std::vector<std::byte>> raw = decompress(decompressor, chunk.payload, header.raw_bytes);
  if (!raw) return damaged(raw.error().message);
  chunk.decoded = std::move(*raw);
  chunk.payload = chunk.decoded;
  return true;
}

// Walks from chunk to chunk.
class Scanner {
 public:
  Scanner(std::span<const std::byte> file, uint64_t stride_bytes)
      : file_(file), stride_bytes_(stride_bytes) {}

  // Takes the chunk at `offset`. Returns where the next one is; nothing when there is none.
  std::optional<uint64_t> step(uint64_t offset);
  ChunkScan take_scan();

 private:
  std::optional<uint64_t> pass_over(uint64_t offset, const ChunkHeader& header);

  std::span<const std::byte> file_;
  const uint64_t stride_bytes_;
  Decompressor decompressor_;
  ChunkScan scan_;
  uint64_t damaged_header_count_ = 0;
  uint64_t first_damaged_offset_ = 0;
};

// What to do where no chunk begins: look one stride on. Without a stride this is the end.
std::optional<uint64_t> Scanner::pass_over(uint64_t offset, const ChunkHeader& header) {
  const uint64_t left = file_.size() - offset;
  constexpr ChunkHeader kUnwritten = {};
  const bool unwritten = std::memcmp(&header, &kUnwritten, sizeof(header)) == 0;
  if (stride_bytes_ == 0) {
    scan_.findings.push_back(error_finding(
        "damaged-chunk", fmt::format("{} at byte {}; the {} bytes from there on cannot be read",
                                     unwritten ? "there are zeros where a chunk should be"
                                               : "a chunk header is damaged",
                                     offset, left)));
    return std::nullopt;
  }
  // A recorder that was killed, or that met a full disk, leaves places it never wrote to.
  if (!unwritten && damaged_header_count_++ == 0) first_damaged_offset_ = offset;
  if (left < stride_bytes_) return std::nullopt;
  return offset + stride_bytes_;
}

std::optional<uint64_t> Scanner::step(uint64_t offset) {
  const uint64_t left = file_.size() - offset;
  if (left < sizeof(ChunkHeader)) {
    scan_.findings.push_back(error_finding(
        "cut-short",
        fmt::format("the file is cut short in a chunk header at byte {}: {} of {} bytes", offset,
                    left, sizeof(ChunkHeader))));
    return std::nullopt;
  }
  const ChunkHeader header = load<ChunkHeader>(file_, offset);
  if (!has_identity(header)) return pass_over(offset, header);
  if (header.allocated_bytes > left) {
    scan_.findings.push_back(error_finding(
        "cut-short", fmt::format("the file is cut short in the chunk at byte {}: {} of {} bytes; "
                                 "the chunk is left out",
                                 offset, left, header.allocated_bytes)));
    return std::nullopt;
  }
  FoundChunk chunk{header.type, header.writer, header.sequence, offset, false, {}, {}};
  const std::span<const std::byte> room =
      file_.subspan(offset + sizeof(ChunkHeader), header.allocated_bytes - sizeof(ChunkHeader));
  if (read_payload(room, header, decompressor_, chunk, scan_.findings))
    scan_.chunks.push_back(std::move(chunk));
  return offset + header.allocated_bytes;
}

// One finding for all damaged headers: a hostile file can have one every 64 bytes.
ChunkScan Scanner::take_scan() {
  if (damaged_header_count_ > 0) {
    Finding finding =
        error_finding("damaged-chunk",
                      fmt::format("{} chunks have a damaged header, the first at byte {}; left out",
                                  damaged_header_count_, first_damaged_offset_));
    finding.count = damaged_header_count_;
    scan_.findings.push_back(std::move(finding));
  }
  return std::move(scan_);
}

}  // namespace

bool is_trace_file(std::span<const std::byte> first_bytes) {
  return first_bytes.size() >= sizeof(kFileMagic) &&
         std::memcmp(first_bytes.data(), kFileMagic, sizeof(kFileMagic)) == 0;
}

Result<ChunkScan> scan_chunks(std::span<const std::byte> file, const std::string& name,
                              const Progress& progress) {
  const FileHeader file_header = GAPLESS_TRY(check_file_header(file, name));
  Scanner scanner(file, file_header.stride_bytes);
  uint64_t offset = file_header.first_chunk_offset;
  while (offset < file.size()) {
    if (progress) progress(offset, file.size());
    const std::optional<uint64_t> next = scanner.step(offset);
    if (!next) break;
    offset = *next;
  }
  return scanner.take_scan();
}

}  // namespace gapless
