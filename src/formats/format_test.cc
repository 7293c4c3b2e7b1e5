// SPDX-License-Identifier: Apache-2.0

#include "formats/format.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <gtest/gtest.h>
#include <zlib.h>

#include "trace/trace_builder.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kJson =
    R"({"traceEvents":[{"ph":"X","name":"a","ts":1,"dur":2,"pid":1,"tid":1}]})";

// A directory of its own for each test.
class FormatTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = testing::TempDir() + "gapless_format_XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { fs::remove_all(directory_); }

  std::string path(const std::string& name) const { return directory_ + "/" + name; }
  std::string file(const std::string& name, std::string_view bytes) const {
    std::ofstream(path(name), std::ios::binary).write(bytes.data(), std::ssize(bytes));
    return path(name);
  }
  std::string gzip_file(const std::string& name, std::string_view bytes) const {
    const gzFile out = ::gzopen(path(name).c_str(), "wb");
    ::gzwrite(out, bytes.data(), static_cast<unsigned>(bytes.size()));
    ::gzclose(out);
    return path(name);
  }

  std::string directory_;
};

using Detection = FormatTest;

std::string error_of(const Result<Format>& result) {
  return result ? "(no error)" : result.error().message;
}

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST_F(Detection, GoesByContentAndNotByName) {
  EXPECT_EQ(detect_format(file("x.gapless", kJson)).value(), Format::kChromeJson);
  EXPECT_EQ(detect_format(file("noname", "  [\n")).value(), Format::kChromeJson);
  EXPECT_EQ(detect_format(gzip_file("x.fxt", kJson)).value(), Format::kChromeJson);
}

TEST_F(Detection, SaysWhatIsMissing) {
  const std::string message = error_of(detect_format(path("none.json")));
  EXPECT_TRUE(contains(message, "none.json: ")) << message;
  EXPECT_TRUE(contains(message, "o such file")) << message;
}

TEST_F(Detection, SaysThatAFileIsEmptyAndWhatWasLookedFor) {
  const std::string message = error_of(detect_format(file("empty", "")));
  EXPECT_TRUE(contains(message, "empty: empty (0 bytes); looked for")) << message;
  EXPECT_TRUE(contains(message, "TraCR directory")) << message;
}

TEST_F(Detection, QuotesTheBeginningOfSomethingElse) {
  const std::string message =
      error_of(detect_format(file("notes.txt", "hello\n\"world\" and more")));
  EXPECT_TRUE(contains(message, R"(begins with "hello\x0a\x22world\x22 an"...)")) << message;
}

TEST_F(Detection, NamesWhatADirectoryLacks) {
  const std::string message = error_of(detect_format(directory_));
  EXPECT_TRUE(contains(message, "looked for proc.*/metadata.json")) << message;
}

TEST_F(Detection, RefusesAPipe) {
  const std::string message = error_of(detect_format("/dev/null"));
  EXPECT_TRUE(contains(message, "a pipe or a device")) << message;
}

TEST_F(Detection, TellsHowToUnpackWhatItDoesNot) {
  EXPECT_TRUE(contains(error_of(detect_format(file("x.zst", "\x28\xb5\x2f\xfd\x04"))), "unzstd"));
  const std::string damaged = error_of(detect_format(file("x.gz", "\x1f\x8b\x08")));
  EXPECT_TRUE(contains(damaged, "x.gz: ")) << damaged;
  EXPECT_NE(damaged, "(no error)");
}

TEST_F(Detection, KnowsTheFormatsThatAreOnlyWritten) {
  const std::string fxt("\x10\x00\x04\x46\x78\x54\x16\x00", 8);
  EXPECT_TRUE(contains(error_of(detect_format(file("a", fxt))),
                       "a trace in fxt format, which gapless writes"));
  EXPECT_TRUE(contains(error_of(detect_format(file("b", "#Paraver (01/01/26 at 00:00):1_ns:0"))),
                       "a trace in paraver format, which gapless writes"));
  // Two packets: {timestamp: 1} and {timestamp: 2}.
  EXPECT_TRUE(contains(error_of(detect_format(file("c", "\x0a\x02\x40\x01\x0a\x02\x40\x02"))),
                       "a trace in perfetto format, which gapless writes"));
}

// A new line is also the first byte of a Perfetto packet.
TEST_F(Detection, DoesNotTakeTextForPerfetto) {
  EXPECT_TRUE(
      contains(error_of(detect_format(file("a", "\nhello, this is a text"))), "not a trace"));
  EXPECT_TRUE(contains(error_of(detect_format(file("b", "\n\n\n"))), "not a trace"));
  EXPECT_TRUE(contains(error_of(detect_format(file("c", "\n\x02\x07\x01\n"))), "not a trace"))
      << "7 is not a wire type";
}

Trace small_trace() {
  TraceBuilder builder("gapless");
  const uint32_t device = builder.add_device({.name = "demo", .number = 7});
  const uint32_t lane = builder.add_lane({.name = "main", .device = device, .number = 7});
  builder.add_span(lane, 1000, 3000, builder.intern("outer"));
  builder.add_span(lane, 5000, 6000, builder.intern("inner"));
  return builder.finish();
}

// Goal: the registry and the readers and writers agree for every format.
// Method: write one trace in each; what can be read is recognised and comes back, what cannot be
// read is recognised and refused.
TEST_F(Detection, RecognisesWhatEachWriterWrites) {
  for (const FormatInfo& info : all_formats()) {
    if (!info.can_write) continue;
    const std::string out = path("written_" + std::string(info.name));
    ASSERT_TRUE(write_trace(small_trace(), out, info.format).has_value()) << info.name;
    const Result<Format> detected = detect_format(out);
    if (!info.can_read) {
      EXPECT_TRUE(contains(error_of(detected), fmt::format("a trace in {} format", info.name)))
          << error_of(detected);
      continue;
    }
    ASSERT_TRUE(detected.has_value()) << info.name << ": " << error_of(detected);
    EXPECT_EQ(*detected, info.format);
    const Result<Trace> read = read_trace(out);
    ASSERT_TRUE(read.has_value()) << info.name << ": " << read.error().message;
    EXPECT_EQ(read->spans.size(), 2u) << info.name;
  }
}

TEST_F(Detection, CompressedOutputIsReadBack) {
  for (const FormatInfo& info : all_formats()) {
    if (!info.can_compress) continue;
    const std::string out = path("compressed_" + std::string(info.name));
    ASSERT_TRUE(write_trace(small_trace(), out, info.format, {.compress = true}).has_value());
    const Result<Trace> read = read_trace(out);
    ASSERT_TRUE(read.has_value()) << info.name << ": " << read.error().message;
    EXPECT_EQ(read->spans.size(), 2u) << info.name;
  }
}

TEST(Formats, AreFoundByName) {
  for (const FormatInfo& info : all_formats()) {
    EXPECT_EQ(format_by_name(info.name), info.format);
    EXPECT_EQ(info_of(info.format).name, info.name);
  }
  EXPECT_EQ(format_by_name("pdf"), std::nullopt);
  EXPECT_EQ(format_by_name(""), std::nullopt);
}

TEST(Formats, AreFoundByExtension) {
  EXPECT_EQ(format_by_extension("a/b.gapless"), Format::kGapless);
  EXPECT_EQ(format_by_extension("x.json"), Format::kChromeJson);
  EXPECT_EQ(format_by_extension("x.json.gz"), Format::kChromeJson);
  EXPECT_EQ(format_by_extension("x.pftrace"), Format::kPerfetto);
  EXPECT_EQ(format_by_extension("x.perfetto-trace"), Format::kPerfetto);
  EXPECT_EQ(format_by_extension("x.fxt"), Format::kFxt);
  EXPECT_EQ(format_by_extension("x.prv"), Format::kParaver);
  EXPECT_EQ(format_by_extension("out/"), Format::kTracr);
  EXPECT_EQ(format_by_extension("out.tracr"), Format::kTracr);
  EXPECT_EQ(format_by_extension("x.txt"), std::nullopt);
  EXPECT_EQ(format_by_extension("json"), std::nullopt);
}

}  // namespace
}  // namespace gapless
