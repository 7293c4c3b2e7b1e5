// SPDX-License-Identifier: Apache-2.0
//
// Metadata entries: encode_* of trace/metadata_log.h and what trace/metadata_reader.h makes of
// them.

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/crc32c.h"
#include "trace/metadata_log.h"
#include "trace/metadata_reader.h"
#include "trace/raw_file_builder.h"

namespace gapless {
namespace {

Metadata read(const std::string& entries) {
  std::vector<FoundChunk> chunks;
  chunks.push_back({ChunkType::kMetadata, 0, 0, 64, true, as_bytes(entries), {}});
  return read_metadata(chunks);
}

TEST(Metadata, EntriesAreReadBack) {
  LaneBody lane = {};
  lane.number = -5;
  lane.device = 2;
  lane.kind = LaneKind::kVectorCore;
  lane.meaning = 1;
  lane.dropped_count = 99;
  ClockBody clock = {};
  clock.source = ClockSource::kCntvct;
  clock.invariant = 0;
  clock.ticks_per_second = 50'000'000;
  clock.wall_minus_time_ns = -7;
  FindingBody finding = {};
  finding.severity = 2;
  finding.lane = 3;
  finding.count = 4;
  const Metadata metadata =
      read(encode_name(7, "matmul") + encode_name(0, "") + encode_lane(3, lane, "core 3") +
           encode_device(2, 910, "npu") + encode_anchor({10, -20}) + encode_anchor({30, 40}) +
           encode_clock(clock) + encode_property("host", "a\nb") +
           encode_finding(finding, "odd", "a sentence") + encode_end({1000, 2000}));

  EXPECT_EQ(metadata.names.at(7), "matmul");
  EXPECT_EQ(metadata.names.at(0), "");
  const Lane& read_lane = metadata.lanes.at(3);
  EXPECT_EQ(read_lane.name, "core 3");
  EXPECT_EQ(read_lane.number, -5);
  EXPECT_EQ(read_lane.device, 2u);
  EXPECT_EQ(read_lane.kind, LaneKind::kVectorCore);
  EXPECT_EQ(read_lane.meaning, SpanMeaning::kDispatchToFinish);
  EXPECT_EQ(read_lane.dropped_count, 99u);
  EXPECT_EQ(metadata.devices.at(2).name, "npu");
  EXPECT_EQ(metadata.devices.at(2).number, 910);
  ASSERT_EQ(metadata.clock.anchors.size(), 2u);
  EXPECT_EQ(metadata.clock.anchors[0].time_ns, -20);
  EXPECT_EQ(metadata.clock.source, ClockSource::kCntvct);
  EXPECT_FALSE(metadata.clock.invariant);
  EXPECT_EQ(metadata.clock.ticks_per_second, 50'000'000u);
  EXPECT_EQ(metadata.clock.wall_minus_time_ns, -7);
  ASSERT_EQ(metadata.properties.size(), 1u);
  EXPECT_EQ(metadata.properties[0].value, "a\nb");
  ASSERT_EQ(metadata.findings.size(), 1u);
  EXPECT_EQ(metadata.findings[0].code, "odd");
  EXPECT_EQ(metadata.findings[0].text, "a sentence");
  EXPECT_EQ(metadata.findings[0].severity, Severity::kError);
  EXPECT_EQ(metadata.findings[0].lane, 3u);
  EXPECT_EQ(metadata.findings[0].count, 4u);
  ASSERT_TRUE(metadata.end.has_value());
  EXPECT_EQ(metadata.end->file_bytes, 1000u);
  EXPECT_EQ(metadata.end->record_count, 2000u);
}

TEST(Metadata, EntriesAreMultiplesOfEightBytesAndPaddedWithZeros) {
  for (size_t size = 0; size < 20; ++size) {
    const std::string entry = encode_name(1, std::string(size, 'n'));
    EXPECT_EQ(entry.size() % 8, 0u);
    EXPECT_EQ(entry.substr(16 + size).find_first_not_of('\0'), std::string::npos);
    EXPECT_EQ(read(entry).names.at(1), std::string(size, 'n')) << "the padding is not text";
  }
}

TEST(Metadata, LaterEntriesReplaceEarlierOnes) {
  const Metadata metadata = read(encode_name(1, "old") + encode_property("k", "old") +
                                 encode_name(1, "new") + encode_property("k", "new"));
  EXPECT_EQ(metadata.names.at(1), "new");
  ASSERT_EQ(metadata.properties.size(), 1u);
  EXPECT_EQ(metadata.properties[0].value, "new");
}

TEST(Metadata, AnEmptyEntryEndsTheChunk) {
  const std::string entries =
      encode_name(0, "before") + std::string(16, '\0') + encode_name(1, "after");
  const Metadata metadata = read(entries);
  EXPECT_EQ(metadata.names.size(), 1u);
  EXPECT_TRUE(metadata.findings.empty()) << "the place where the writer has not been yet";
}

TEST(Metadata, KindsOfLaterVersionsArePassedOver) {
  const Metadata metadata =
      read(encode_entry(static_cast<MetadataKind>(77), 1, "future") + encode_name(0, "known"));
  EXPECT_EQ(metadata.names.at(0), "known");
  EXPECT_TRUE(metadata.findings.empty());
}

TEST(Metadata, ADamagedEntryIsLeftOutAndTheOthersStay) {
  const std::string first = encode_name(0, "first");
  const std::string damaged = encode_name(1, "second");
  const std::string last = encode_name(2, "third");
  for (size_t at = 4; at < 16 + 6; ++at) {  // all but the size
    std::string entries = first + damaged + last;
    entries[first.size() + at] = static_cast<char>(entries[first.size() + at] ^ 0x10);
    const Metadata metadata = read(entries);
    EXPECT_EQ(metadata.names.count(1), 0u) << "byte " << at;
    EXPECT_EQ(metadata.names.at(0), "first") << "byte " << at;
    ASSERT_EQ(metadata.names.count(2), 1u) << "byte " << at;
    ASSERT_EQ(metadata.findings.size(), 1u);
    EXPECT_EQ(metadata.findings[0].text,
              "1 entries of the metadata in the chunk at byte 64 are damaged; left out");
  }
}

TEST(Metadata, BodiesThatAreTooShortAreDamaged) {
  for (const MetadataKind kind :
       {MetadataKind::kLane, MetadataKind::kDevice, MetadataKind::kAnchor, MetadataKind::kClock,
        MetadataKind::kProperty, MetadataKind::kFinding, MetadataKind::kEnd}) {
    for (size_t size = 0; size < 8; ++size) {
      const Metadata metadata = read(encode_entry(kind, 0, std::string(size, 'x')));
      ASSERT_EQ(metadata.findings.size(), 1u) << static_cast<int>(kind) << ", " << size << " bytes";
      EXPECT_EQ(metadata.findings[0].code, "damaged-metadata");
    }
  }
  FindingBody body = {};
  const std::string no_zero(reinterpret_cast<const char*>(&body), sizeof(body));
  EXPECT_EQ(read(encode_entry(MetadataKind::kFinding, 0, no_zero + "code")).findings[0].code,
            "damaged-metadata");
}

TEST(Metadata, HostileSizesStopTheChunk) {
  for (const uint32_t entry_bytes : {1u, 15u, 17u + 8u, 1000u, 0x7fffffffu, 0xffffffffu}) {
    std::string entries = encode_name(0, "good") + encode_name(1, "");
    const size_t second = encode_name(0, "good").size();
    std::memcpy(entries.data() + second, &entry_bytes, sizeof(entry_bytes));
    const Metadata metadata = read(entries);
    EXPECT_EQ(metadata.names.size(), 1u) << entry_bytes;
    ASSERT_EQ(metadata.findings.size(), 1u) << entry_bytes;
  }
}

TEST(Metadata, NumbersOutOfRangeBecomeTheNearest) {
  LaneBody lane = {};
  lane.kind = static_cast<LaneKind>(200);
  lane.meaning = 200;
  ClockBody clock = {};
  clock.source = static_cast<ClockSource>(200);
  FindingBody finding = {};
  finding.severity = 200;
  const Metadata metadata =
      read(encode_lane(0, lane, "l") + encode_clock(clock) + encode_finding(finding, "c", "t"));
  EXPECT_EQ(metadata.lanes.at(0).kind, LaneKind::kOther);
  EXPECT_EQ(metadata.lanes.at(0).meaning, SpanMeaning::kExecution);
  EXPECT_LE(static_cast<int>(metadata.clock.source), 3);
  EXPECT_EQ(metadata.findings[0].severity, Severity::kError);
}

}  // namespace
}  // namespace gapless
