// SPDX-License-Identifier: Apache-2.0

#include "trace/chunk_reader.h"

#include <cstring>
#include <string>

#include <gtest/gtest.h>
#include <zstd.h>

#include "trace/raw_file_builder.h"

namespace gapless {
namespace {

Result<ChunkScan> scan(const std::string& file) {
  return scan_chunks(as_bytes(file), "test.trace", {});
}

std::string text_of(const FoundChunk& chunk) {
  return std::string(reinterpret_cast<const char*>(chunk.payload.data()), chunk.payload.size());
}

template <typename T>
void patch(std::string& file, size_t offset, T value) {
  std::memcpy(file.data() + offset, &value, sizeof(value));
}

TEST(ChunkReader, WalksPackedChunks) {
  RawFileBuilder file;
  file.add_chunk({.type = ChunkType::kMetadata}, "12345");
  const size_t second = file.add_chunk({.writer = 7, .sequence = 9}, std::string(16, 'r'));
  file.add_chunk({.type = ChunkType::kDrops}, "");
  const Result<ChunkScan> found = scan(file.bytes());
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->chunks.size(), 3u);
  EXPECT_TRUE(found->findings.empty());
  EXPECT_EQ(text_of(found->chunks[0]), "12345") << "without its padding";
  EXPECT_EQ(found->chunks[1].offset, second);
  EXPECT_EQ(second, 64u + 64u + 8u);
  EXPECT_EQ(found->chunks[1].writer, 7u);
  EXPECT_EQ(found->chunks[1].sequence, 9u);
  EXPECT_TRUE(found->chunks[1].sealed);
  EXPECT_EQ(found->chunks[2].payload.size(), 0u);
}

TEST(ChunkReader, WalksStridesOverGapsAndDamage) {
  RawFileBuilder file(1024, 4096);
  file.add_chunk({.sequence = 1}, "one");
  file.add_gap(1024);
  const size_t damaged = file.add_chunk({.sequence = 2}, "two");
  const size_t also_damaged = file.add_chunk({.sequence = 3}, "three");
  file.add_chunk({.sequence = 4, .sealed = false}, "four");
  std::string bytes = file.bytes();
  bytes[damaged + 5] ^= 1;
  bytes[also_damaged + 20] ^= 1;
  const Result<ChunkScan> found = scan(bytes);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->chunks.size(), 2u);
  EXPECT_EQ(found->chunks[0].sequence, 1u);
  EXPECT_EQ(found->chunks[1].sequence, 4u);
  EXPECT_FALSE(found->chunks[1].sealed);
  EXPECT_EQ(found->chunks[1].payload.size(), 1024u - 64u) << "an open chunk: all of its room";
  ASSERT_EQ(found->findings.size(), 1u);
  EXPECT_EQ(found->findings[0].count, 2u);
  EXPECT_EQ(found->findings[0].text,
            "2 chunks have a damaged header, the first at byte 6144; left out");
}

TEST(ChunkReader, APackedFileEndsWhereAHeaderIsDamaged) {
  RawFileBuilder file;
  file.add_chunk({}, "one");
  const size_t damaged = file.add_chunk({}, "two");
  file.add_chunk({}, "three");
  std::string bytes = file.bytes();
  bytes[damaged] ^= 1;
  Result<ChunkScan> found = scan(bytes);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->chunks.size(), 1u);
  ASSERT_EQ(found->findings.size(), 1u);
  EXPECT_EQ(found->findings[0].text,
            "a chunk header is damaged at byte 136; the 144 bytes from there on cannot be read");

  RawFileBuilder zeros;
  zeros.add_chunk({}, "one");
  zeros.add_gap(200);
  found = scan(zeros.bytes());
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->chunks.size(), 1u);
  ASSERT_EQ(found->findings.size(), 1u);
  EXPECT_EQ(found->findings[0].code, "damaged-chunk");
}

TEST(ChunkReader, UnpacksZstd) {
  const std::string text(10'000, 'z');
  std::string packed(ZSTD_compressBound(text.size()), '\0');
  packed.resize(ZSTD_compress(packed.data(), packed.size(), text.data(), text.size(), 1));
  RawFileBuilder file;
  file.add_chunk({.encoding = ChunkEncoding::kZstd, .raw_bytes = text.size()}, packed);
  file.add_chunk({.encoding = ChunkEncoding::kZstd, .raw_bytes = text.size() - 1}, packed);
  file.add_chunk({.encoding = ChunkEncoding::kZstd, .raw_bytes = text.size() + 1}, packed);
  file.add_chunk({.encoding = ChunkEncoding::kZstd, .raw_bytes = uint64_t{1} << 60}, packed);
  file.add_chunk({.encoding = ChunkEncoding::kZstd, .raw_bytes = 5}, "not zstd");
  file.add_chunk({.encoding = static_cast<ChunkEncoding>(9)}, "future");
  const Result<ChunkScan> found = scan(file.bytes());
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->chunks.size(), 1u);
  EXPECT_EQ(text_of(found->chunks[0]), text);
  ASSERT_EQ(found->findings.size(), 5u);
  for (const Finding& finding : found->findings) EXPECT_EQ(finding.code, "damaged-chunk");
  EXPECT_NE(found->findings[2].text.find("says it holds 1152921504606846976 bytes; at most"),
            std::string::npos)
      << found->findings[2].text;
  EXPECT_NE(found->findings[4].text.find("has encoding 9, which this build does not know"),
            std::string::npos);
}

TEST(ChunkReader, RefusesWhatIsNotOurs) {
  const std::string good = RawFileBuilder().bytes();
  const auto message = [](const std::string& file) {
    const Result<ChunkScan> found = scan(file);
    return found ? "no error" : found.error().message;
  };
  EXPECT_EQ(message(""), "test.trace: the file is empty");
  EXPECT_EQ(message("GAPLES"), "test.trace: not a gapless trace");
  EXPECT_EQ(message(std::string(100, 'x')), "test.trace: not a gapless trace");
  EXPECT_EQ(message(good.substr(0, 63)),
            "test.trace: cut short in the file header: 63 of 64 bytes");
  std::string other = good;
  patch(other, offsetof(FileHeader, version), uint32_t{2});
  EXPECT_EQ(message(other), "test.trace: trace version 2; this build reads version 1");
  repair_checksums(other);
  EXPECT_EQ(message(other), "test.trace: trace version 2; this build reads version 1");
  other = good;
  patch(other, offsetof(FileHeader, byte_order), uint32_t{0x04030201});
  EXPECT_EQ(message(other), "test.trace: byte order mark 0x04030201; this build reads 0x01020304");
  other = good;
  other[40] ^= 1;
  EXPECT_EQ(message(other), "test.trace: the file header is damaged (its checksum is wrong)");
}

TEST(ChunkReader, TellsItsFilesByTheFirstBytes) {
  EXPECT_TRUE(is_trace_file(as_bytes(RawFileBuilder().bytes())));
  EXPECT_TRUE(is_trace_file(as_bytes("GAPLESS\n")));
  EXPECT_FALSE(is_trace_file(as_bytes("GAPLESS")));
  EXPECT_FALSE(is_trace_file(as_bytes("{\"traceEvents\"")));
  EXPECT_FALSE(is_trace_file({}));
}

// Goal: no stride makes the walk long or the findings many. Method: megabytes of bytes that are
// not chunks.
TEST(ChunkReader, HostileStridesAreErrorsOrShortWalks) {
  const std::string garbage(4 << 20, 'g');
  for (const uint64_t stride : {uint64_t{1}, uint64_t{8}, uint64_t{63}}) {
    const Result<ChunkScan> found = scan(RawFileBuilder(stride).bytes() + garbage);
    ASSERT_FALSE(found.has_value());
    EXPECT_EQ(found.error().message, "test.trace: chunks every " + std::to_string(stride) +
                                         " bytes; their headers take 64");
  }
  for (const uint64_t stride : {uint64_t{64}, uint64_t{65}, uint64_t{1001}, uint64_t{1} << 40,
                                uint64_t{1} << 63, ~uint64_t{0}}) {
    const Result<ChunkScan> found = scan(RawFileBuilder(stride).bytes() + garbage);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->chunks.empty());
    EXPECT_LE(found->findings.size(), 2u) << stride;
    EXPECT_GE(found->findings.size(), 1u) << stride;
  }
}

TEST(ChunkReader, HostileOffsetsAndSizesAreSaid) {
  std::string file = RawFileBuilder().bytes();
  for (const uint64_t first : {uint64_t{1000}, uint64_t{1} << 63, ~uint64_t{0}}) {
    patch(file, offsetof(FileHeader, first_chunk_offset), first);
    repair_checksums(file);
    const Result<ChunkScan> found = scan(file);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->chunks.empty());
  }
  for (const uint64_t first : {uint64_t{0}, uint64_t{3}, uint64_t{63}}) {
    patch(file, offsetof(FileHeader, first_chunk_offset), first);
    repair_checksums(file);
    const Result<ChunkScan> found = scan(file);
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->findings.size(), 1u) << "the file header is not a chunk";
  }
  for (const uint64_t allocated :
       {uint64_t{0}, uint64_t{63}, uint64_t{1} << 40, ~uint64_t{0}, ~uint64_t{0} - 127}) {
    RawFileBuilder builder;
    const size_t chunk = builder.add_chunk({}, std::string(32, 'r'));
    std::string bytes = builder.bytes();
    patch(bytes, chunk + offsetof(ChunkHeader, allocated_bytes), allocated);
    repair_checksums(bytes);
    const Result<ChunkScan> found = scan(bytes);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->chunks.empty()) << allocated;
    EXPECT_EQ(found->findings.size(), 1u) << allocated;
  }
  for (const uint64_t stored : {uint64_t{33}, uint64_t{1} << 40, ~uint64_t{0}}) {
    RawFileBuilder builder;
    const size_t chunk = builder.add_chunk({}, std::string(32, 'r'));
    std::string bytes = builder.bytes();
    patch(bytes, chunk + offsetof(ChunkHeader, stored_bytes), stored);
    repair_checksums(bytes);
    const Result<ChunkScan> found = scan(bytes);
    ASSERT_TRUE(found.has_value());
    EXPECT_TRUE(found->chunks.empty()) << stored;
    ASSERT_EQ(found->findings.size(), 1u) << stored;
    EXPECT_EQ(found->findings[0].code, "damaged-chunk");
  }
}

TEST(ChunkReader, MetadataWithAWrongChecksumIsKeptForItsWholeEntries) {
  RawFileBuilder file;
  const size_t metadata = file.add_chunk({.type = ChunkType::kMetadata}, std::string(64, 'm'));
  const size_t records = file.add_chunk({}, std::string(64, 'r'));
  std::string bytes = file.bytes();
  bytes[metadata + sizeof(ChunkHeader)] ^= 1;
  bytes[records + sizeof(ChunkHeader)] ^= 1;
  const Result<ChunkScan> found = scan(bytes);
  ASSERT_TRUE(found.has_value());
  ASSERT_EQ(found->chunks.size(), 1u);
  EXPECT_EQ(found->chunks[0].type, ChunkType::kMetadata);
  EXPECT_EQ(found->findings.size(), 2u);
}

}  // namespace
}  // namespace gapless
