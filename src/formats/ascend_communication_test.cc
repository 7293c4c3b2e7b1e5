// SPDX-License-Identifier: Apache-2.0

#include "formats/ascend_communication.h"

#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "formats/ascend_folder_test_support.h"

namespace gapless {
namespace {

Result<CommunicationJoin> join(std::string_view text, CaptureTable& table) {
  return join_communication_json(stream_of_text(text, "c.json"), table);
}

CommunicationJoin joined(std::string_view text, CaptureTable& table) {
  Result<CommunicationJoin> result = join(text, table);
  EXPECT_TRUE(result.has_value()) << (result ? "" : result.error().message);
  return result ? *result : CommunicationJoin{};
}

std::string in_step(const std::string& step, const std::string& entries,
                    const std::string& group = "collective") {
  return "{\"" + step + "\": {\"" + group + "\": {" + entries + "}}}";
}

TEST(AscendCommunication, JoinsByNameAndStep) {
  CaptureTable table = ascend_table(ascend_text("H8", two_steps()));
  const CommunicationJoin result = joined(two_steps_communication(), table);
  EXPECT_EQ(result.joined_count, 2u);
  EXPECT_EQ(result.lone_entry_count, 0u);
  EXPECT_EQ(result.lone_row_count, 0u);
  ASSERT_EQ(table.wait_ns.size(), table.size());
  ASSERT_EQ(table.transit_ns.size(), table.size());
  // Milliseconds with digits beyond the nanosecond, rounded half away from zero.
  const std::vector<int64_t> waits = {kAbsent, 4000, kAbsent, kAbsent, 6500, kAbsent, kAbsent};
  const std::vector<int64_t> transits = {kAbsent, 1000, kAbsent, kAbsent, 123, kAbsent, kAbsent};
  EXPECT_EQ(table.wait_ns, waits) << "synchronization is a part of waiting";
  EXPECT_EQ(table.transit_ns, transits);
  EXPECT_EQ(finding_text(table, "communication-joined"),
            "c.json: wait and transit of 2 collectives; 0 entries have no row, 0 rows no entry, 0 "
            "entries no times");
}

TEST(AscendCommunication, JoinsByNameAloneWhereOneSideKnowsNoStep) {
  CaptureTable without = ascend_table(ascend_text("H9", two_steps()));
  EXPECT_EQ(joined(two_steps_communication(), without).joined_count, 2u);
  CaptureTable with = ascend_table(ascend_text("H8", two_steps()));
  const std::string unnamed =
      in_step("step", communication_entry("hcom_allReduce__503_1_1@1", "0.001", "0.002"), "p2p");
  EXPECT_EQ(joined(unnamed, with).joined_count, 1u);
  EXPECT_EQ(with.wait_ns[4], 1000);
}

TEST(AscendCommunication, CountsWhatHasNoPartner) {
  CaptureTable table = ascend_table(ascend_text("H8", two_steps()));
  const std::string text =
      in_step("step51", communication_entry("hcom_allReduce__503_0_1@1", "1", "1") + "," +
                            communication_entry("hcom_other@1", "1", "1") + "," +
                            communication_entry("hcom_allReduce__503_1_1@1", "-1", "1") + "," +
                            communication_entry("hcom_allReduce__503_1_1@1", "true", "1") +
                            ",\"hcom_x@1\": 7");
  const CommunicationJoin result = joined(text, table);
  EXPECT_EQ(result.joined_count, 0u);
  EXPECT_EQ(result.lone_entry_count, 2u) << "one is of another step, one has another name";
  EXPECT_EQ(result.unread_count, 3u);
  EXPECT_EQ(result.lone_row_count, 2u);
  EXPECT_TRUE(table.wait_ns.empty());
  EXPECT_EQ(find_finding(table, "communication-joined")->severity, Severity::kWarning);
}

// A graph that is replayed gives its collectives the same names again.
TEST(AscendCommunication, TakesTheNearestOfRowsWithOneName) {
  const std::vector<AscendRowCells> rows = {collective_cells("hcom_a__1_0_1", "1000", "5", "50"),
                                            collective_cells("hcom_a__1_0_1", "2000", "5", "50"),
                                            collective_cells("hcom_a__1_0_1", "3000", "5", "50")};
  CaptureTable table = ascend_table(ascend_text("H8", rows));
  const std::string text =
      in_step("step50", communication_entry("hcom_a__1_0_1@1", "0.003", "0", "3000.2") + "," +
                            communication_entry("hcom_a__1_0_1@2", "0.001", "0", "999.8") + "," +
                            communication_entry("hcom_a__1_0_1@3", "0.002", "0", "3000.1") + "," +
                            communication_entry("hcom_a__1_0_1@4", "0.009", "0", "3000.1"));
  const CommunicationJoin result = joined(text, table);
  EXPECT_EQ(result.joined_count, 3u);
  EXPECT_EQ(result.lone_entry_count, 1u) << "each row has one";
  EXPECT_EQ(table.wait_ns, (std::vector<int64_t>{1000, 2000, 3000}));
}

TEST(AscendCommunication, TellsItFromOtherJson) {
  EXPECT_TRUE(looks_like_communication_json(two_steps_communication()));
  EXPECT_FALSE(looks_like_communication_json(
      R"({"step": {"p2p": {}, "collective": {"a-top1@1": {"0-1": {"Transport Type": 1}}}}})"));
  EXPECT_FALSE(looks_like_communication_json(R"([{"ph": "X"}])"));
  EXPECT_FALSE(looks_like_communication_json(""));
  CaptureTable table = ascend_table(ascend_text("H8", two_steps()));
  const size_t finding_count = table.findings.size();
  for (const std::string_view text : {"", "[]", "7", "\"step\""}) {
    const Result<CommunicationJoin> result = join(text, table);
    ASSERT_FALSE(result.has_value()) << text;
    EXPECT_EQ(result.error().message, "c.json: no times of collectives: not a JSON object");
  }
  EXPECT_EQ(table.findings.size(), finding_count);
}

TEST(AscendCommunication, PassesOverWhatItDoesNotKnow) {
  CaptureTable table = ascend_table(ascend_text("H8", two_steps()));
  const std::string text =
      "{\"version\": 3, \"step51\": {\"other\": [1, {}], \"p2p\": null, \"collective\": {" +
      communication_entry("hcom_allReduce__503_1_1@1", "0.001", "0.002") + "}}, \"step52\": []}";
  EXPECT_EQ(joined(text, table).joined_count, 1u);
}

TEST(AscendCommunication, ReadsFilesCutAtEveryByte) {
  const std::string text = two_steps_communication();
  uint64_t last_count = 0;
  for (size_t bytes = 1; bytes < text.size(); ++bytes) {
    CaptureTable table = ascend_table(ascend_text("H8", two_steps()));
    const CommunicationJoin result = joined(text.substr(0, bytes), table);
    EXPECT_GE(result.joined_count, last_count) << bytes;
    last_count = result.joined_count;
    EXPECT_EQ(finding_count(table.findings, "communication-cut-short"), 1u) << bytes;
    EXPECT_EQ(table.wait_ns.size(), result.joined_count > 0 ? table.size() : 0) << bytes;
  }
  EXPECT_EQ(last_count, 2u);
}

}  // namespace
}  // namespace gapless
