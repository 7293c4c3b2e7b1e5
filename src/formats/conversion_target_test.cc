// SPDX-License-Identifier: Apache-2.0

#include "formats/conversion_target.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

namespace fs = std::filesystem;

Result<ConversionTarget> from_file(std::optional<Format> to, bool compress = false) {
  return choose_target({.input = "dir/x.json.gz",
                        .input_format = Format::kChromeJson,
                        .to = to,
                        .compress = compress});
}

Result<ConversionTarget> from_tracr(std::optional<Format> to) {
  return choose_target({.input = "run/tracr/", .input_format = Format::kTracr, .to = to});
}

TEST(ConversionTarget, LiesBesideTheInput) {
  EXPECT_EQ(from_file(Format::kGapless)->path, "dir/x.gapless");
  EXPECT_EQ(from_file(Format::kPerfetto)->path, "dir/x.pftrace");
  EXPECT_EQ(from_file(Format::kTracr)->path, "dir/x.tracr");
}

TEST(ConversionTarget, LiesInsideATracrDirectory) {
  EXPECT_EQ(from_tracr(std::nullopt)->path, "run/tracr/perfetto.json");
  EXPECT_EQ(from_tracr(std::nullopt)->format, Format::kChromeJson);
  EXPECT_EQ(from_tracr(Format::kFxt)->path, "run/tracr/perfetto.fxt");
  EXPECT_EQ(from_tracr(Format::kParaver)->path, "run/tracr/tracr.prv");
  EXPECT_EQ(from_tracr(Format::kGapless)->path, "run/tracr/trace.gapless");
  EXPECT_FALSE(from_tracr(Format::kTracr).has_value());
}

TEST(ConversionTarget, TakesTheFormatFromTheExtensionUnlessToldOtherwise) {
  const auto target = [](std::string output, std::optional<Format> to) {
    return choose_target({.input = "in.gapless", .output = std::move(output), .to = to});
  };
  EXPECT_EQ(target("a.fxt", std::nullopt)->format, Format::kFxt);
  EXPECT_EQ(target("a.fxt", Format::kChromeJson)->format, Format::kChromeJson);
  const Result<ConversionTarget> unknown = target("a.txt", std::nullopt);
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().code, ErrorCode::kUsage);
  EXPECT_NE(unknown.error().message.find("a.txt: the extension"), std::string::npos);
}

TEST(ConversionTarget, NeedsAnOutputOrAFormat) {
  const Result<ConversionTarget> target = from_file(std::nullopt);
  ASSERT_FALSE(target.has_value());
  EXPECT_EQ(target.error().code, ErrorCode::kUsage);
}

TEST(ConversionTarget, CompressesWhatCanBe) {
  EXPECT_TRUE(from_file(Format::kGapless, true)->compress);
  EXPECT_FALSE(from_file(Format::kFxt, true).has_value());
  const Result<ConversionTarget> gzip =
      choose_target({.input = "in.gapless", .output = "out.json.gz"});
  EXPECT_TRUE(gzip->compress) << "the name asks for it";
  EXPECT_EQ(
      choose_target({.input = "in.gapless", .to = Format::kChromeJson, .compress = true})->path,
      "in.json.gz");
}

TEST(ConversionTarget, NeverWritesOverTheInput) {
  std::string directory = testing::TempDir() + "gapless_target_XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  const std::string json = directory + "/x.json";
  std::ofstream(json) << "[]";
  fs::create_hard_link(json, directory + "/link.json");
  const auto to = [](std::string input, Format format, std::string output) {
    return choose_target({.input = std::move(input),
                          .input_format = format,
                          .output = std::move(output),
                          .to = Format::kChromeJson});
  };
  EXPECT_FALSE(to(json, Format::kChromeJson, "").has_value()) << "the default is the input itself";
  EXPECT_FALSE(to(json, Format::kChromeJson,
                  directory + "/../" + fs::path(directory).filename().string() + "/x.json")
                   .has_value());
  EXPECT_FALSE(to(json, Format::kChromeJson, directory + "/link.json").has_value());
  EXPECT_TRUE(to(json, Format::kChromeJson, directory + "/y.json").has_value());

  fs::create_directories(directory + "/proc.1");
  const std::string metadata = directory + "/proc.1/metadata.json";
  std::ofstream(metadata) << "{}";
  EXPECT_FALSE(to(directory, Format::kTracr, metadata).has_value());
  EXPECT_TRUE(to(directory, Format::kTracr, json).has_value()) << "x.json is not part of the trace";
  fs::remove_all(directory);
}

TEST(ConversionTarget, CountsAllFilesOfTheOutput) {
  std::string directory = testing::TempDir() + "gapless_target_XXXXXX";
  ASSERT_NE(::mkdtemp(directory.data()), nullptr);
  std::ofstream(directory + "/x.prv") << "12345";
  std::ofstream(directory + "/x.pcf") << "123";
  std::ofstream(directory + "/x.row") << "1";
  EXPECT_EQ(output_bytes({.format = Format::kParaver, .path = directory + "/x.prv"}), 9u);
  EXPECT_EQ(output_bytes({.format = Format::kFxt, .path = directory + "/x.prv"}), 5u);
  EXPECT_EQ(output_bytes({.format = Format::kTracr, .path = directory}), 9u);
  EXPECT_EQ(output_bytes({.format = Format::kFxt, .path = directory + "/none"}), 0u);
  fs::remove_all(directory);
}

}  // namespace
}  // namespace gapless
