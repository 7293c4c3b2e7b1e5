// SPDX-License-Identifier: Apache-2.0

#include "report/pass_metadata.h"

#include <filesystem>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/file.h"
#include "base/temporary_directory.h"
#include "formats/ascend_csv.h"
#include "report/passes_test_support.h"

namespace gapless {
namespace {

using nlohmann::json;

constexpr std::string_view kHeader =
    "Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Dim";
constexpr std::string_view kLines[] = {
    "\"a,1\",Attention,AI_CORE,1764246877073569.640\t,6.54,0,20",
    "b,MatMul,AI_CORE,1764246877073580.000\t,10.000,3.8,20",
    "c,Attention,AI_CORE,1764246877073600.020\t,6.540,10.020000,20",
};

std::string table_text() {
  std::string text = std::string(kHeader) + "\r\n";
  for (const std::string_view line : kLines) text += std::string(line) + "\r\n";
  return text;
}

// Two passes; the first has two rows. Read from `path`, so that there is text to copy.
MadeCapture read_passes(const std::string& path) {
  EXPECT_TRUE(write_text_file(path, table_text()));
  Result<CaptureTable> table = read_ascend_csv(std::vector<std::string>{path});
  EXPECT_TRUE(table) << (table ? "" : table.error().message);
  MadeCapture capture;
  capture.table = *std::move(table);
  capture.collectives.counted_by = {0, 1, 2};
  capture.found.is_anchor = {1, 0, 1};
  capture.found.draft_of_row = {0, 0, 0};
  capture.found.anchor = capture.table.names.find("Attention");
  capture.add_pass(summary_of(PassPhase::kDecode, 16, 26'900), 1);
  capture.found.passes[0].end_row = 2;
  capture.add_pass(summary_of(PassPhase::kDecode, 16, 6'540), 1);
  return capture;
}

Result<WrittenPass> write(const MadeCapture& capture, size_t pass, const std::string& path) {
  const PassesInput input = capture.input();
  const PassDetail detail = make_pass_detail(input, pass, capture.full_window(pass));
  const PassesOptions options = {.paths = {"given.csv"}};
  return write_pass_csv({input, detail, options, "0.1.0"}, path);
}

TEST(PassMetadata, LiesBesideTheTable) {
  EXPECT_EQ(metadata_path("folder/pass.csv"), "folder/pass.json");
  EXPECT_EQ(metadata_path("pass.csv.txt"), "pass.csv.txt.json");
  EXPECT_EQ(metadata_path("pass"), "pass.json");
}

TEST(PassMetadata, KeepsTheColumnsByteForByte) {
  const TemporaryDirectory folder;
  const MadeCapture capture = read_passes(folder.path("kernel_details.csv"));
  const Result<WrittenPass> written = write(capture, 0, folder.path("pass.csv"));
  ASSERT_TRUE(written) << written.error().message;
  const std::string text = read_text_file(folder.path("pass.csv")).value();
  EXPECT_EQ(text, table_text().substr(0, table_text().find("c,Attention")));
  EXPECT_EQ(written->bytes, text.size());
  EXPECT_EQ(written->row_count, 2u);
  const json metadata = json::parse(read_text_file(written->metadata_path).value());
  EXPECT_EQ(metadata["sources"], json::array({folder.path("kernel_details.csv")}));
  EXPECT_EQ(metadata["columns"], "of the source");
  EXPECT_EQ(metadata["pass"], 0);
  EXPECT_EQ(metadata["window"]["policy"], "full");
  EXPECT_EQ(metadata["window"]["begin_ns"], 1'764'246'877'073'569'640);
  EXPECT_EQ(metadata["window"]["end_ns"], 1'764'246'877'073'590'000);
  EXPECT_EQ(metadata["anchor"], "Attention");
  EXPECT_EQ(metadata["phase"]["name"], "decode");
  EXPECT_EQ(metadata["phase"]["tokens"], 16);
  EXPECT_EQ(metadata["rows"], 2);
  EXPECT_EQ(metadata["time_ns"]["wall"], 26'900);
  EXPECT_EQ(metadata["options"]["dedup"], "interval");
  EXPECT_EQ(metadata["gapless"], "0.1.0");
  // Nothing else is left: the capture, the pass and its metadata.
  EXPECT_EQ(list_directory(folder.path()).value().size(), 3u);
}

TEST(PassMetadata, OfATableWithoutTextSaysWhoWroteTheColumns) {
  const TemporaryDirectory folder;
  const MadeCapture capture = made_passes({100, 120});
  const Result<WrittenPass> written = write(capture, 1, folder.path("pass.csv"));
  ASSERT_TRUE(written) << written.error().message;
  const json metadata = json::parse(read_text_file(folder.path("pass.json")).value());
  EXPECT_EQ(metadata["columns"], "written by gapless");
  EXPECT_EQ(metadata["sources"], json::array({"given.csv"}));
  const Result<CaptureTable> back =
      read_ascend_csv(std::vector<std::string>{folder.path("pass.csv")});
  ASSERT_TRUE(back) << back.error().message;
  ASSERT_EQ(back->size(), 1u);
  EXPECT_EQ(back->start_ns[0], capture.table.start_ns[1]);
  EXPECT_EQ(back->duration_ns[0], 120'000);
}

TEST(PassMetadata, LeavesEverythingAsItWasWhenItCannotBeWritten) {
  const TemporaryDirectory folder;
  const MadeCapture capture = read_passes(folder.path("kernel_details.csv"));
  ASSERT_TRUE(make_directories(folder.path("pass.json")));
  ASSERT_FALSE(write(capture, 0, folder.path("pass.csv")));
  EXPECT_FALSE(std::filesystem::exists(folder.path("pass.csv")));
  ASSERT_TRUE(write_text_file(folder.path("pass.csv"), "old"));
  const Result<WrittenPass> written = write(capture, 0, folder.path("pass.csv"));
  ASSERT_FALSE(written);
  EXPECT_NE(written.error().message.find("pass.json: is a directory"), std::string::npos);
  EXPECT_EQ(read_text_file(folder.path("pass.csv")).value(), "old");
  EXPECT_EQ(list_directory(folder.path()).value().size(), 3u);
}

TEST(PassMetadata, NamesTheFileThatCannotBeWritten) {
  const TemporaryDirectory folder;
  const MadeCapture capture = read_passes(folder.path("kernel_details.csv"));
  const std::string path = folder.path("no/such/pass.csv");
  const Result<WrittenPass> written = write(capture, 0, path);
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message.find(path + ": "), 0u) << written.error().message;
  const Result<WrittenPass> into_folder = write(capture, 0, folder.path());
  ASSERT_FALSE(into_folder);
  EXPECT_EQ(into_folder.error().message, folder.path() + ": is a directory");
}

TEST(PassMetadata, FollowsALinkAndHasNoneBesideADescriptor) {
  const TemporaryDirectory folder;
  const MadeCapture capture = read_passes(folder.path("kernel_details.csv"));
  ASSERT_TRUE(write_text_file(folder.path("real.csv"), "old"));
  std::filesystem::create_symlink(folder.path("real.csv"), folder.path("link.csv"));
  ASSERT_TRUE(write(capture, 1, folder.path("link.csv")));
  EXPECT_TRUE(std::filesystem::is_symlink(folder.path("link.csv")));
  const std::string expected = std::string(kHeader) + "\r\n" + std::string(kLines[2]) + "\r\n";
  EXPECT_EQ(read_text_file(folder.path("real.csv")).value(), expected);
  const int fd = ::open(folder.path("piped").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_GE(fd, 0);
  const Result<WrittenPass> written = write(capture, 1, "/dev/fd/" + std::to_string(fd));
  ::close(fd);
  ASSERT_TRUE(written) << written.error().message;
  EXPECT_TRUE(written->metadata_path.empty());
  EXPECT_EQ(read_text_file(folder.path("piped")).value(), expected);
}

TEST(PassMetadata, RefusesAWindowWithoutRows) {
  const TemporaryDirectory folder;
  const MadeCapture capture = read_passes(folder.path("kernel_details.csv"));
  const PassesInput input = capture.input();
  const PassDetail detail = make_pass_detail(input, 0, {});
  const PassesOptions options;
  const Result<WrittenPass> written =
      write_pass_csv({input, detail, options, "0.1.0"}, folder.path("pass.csv"));
  ASSERT_FALSE(written);
  EXPECT_EQ(written.error().message, "pass 0 has no rows in the window");
}

}  // namespace
}  // namespace gapless
