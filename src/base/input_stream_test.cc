// SPDX-License-Identifier: Apache-2.0

#include "base/input_stream.h"

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>
#include <zlib.h>

#include "base/file.h"
#include "base/temporary_directory.h"

namespace gapless {
namespace {

std::string gzip(std::string_view text, int level = 6) {
  z_stream stream = {};
  constexpr int kGzipHeader = 15 + 16;
  EXPECT_EQ(deflateInit2(&stream, level, Z_DEFLATED, kGzipHeader, 8, Z_DEFAULT_STRATEGY), Z_OK);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  std::vector<unsigned char> in(text.begin(), text.end());
  stream.next_in = in.data();
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<unsigned char*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

// Text that compresses, but not to nothing.
std::string sample_text(size_t size) {
  std::mt19937 random(3);
  std::string text;
  while (text.size() < size) text += "span " + std::to_string(random() % 1000) + "\n";
  text.resize(size);
  return text;
}

// All there is, in reads of `step` bytes.
std::string drain(InputStream& stream, size_t step) {
  std::string text;
  std::string buffer(step, '\0');
  while (true) {
    const Result<size_t> count = stream.read(std::span<char>(buffer.data(), buffer.size()));
    EXPECT_TRUE(count.has_value());
    if (!count) return text;
    text.append(buffer, 0, *count);
    if (*count < step) return text;
  }
}

InputStream memory_stream(std::string_view bytes) {
  return InputStream::from_memory(std::as_bytes(std::span<const char>(bytes.data(), bytes.size())),
                                  "memory");
}

TEST(InputStream, ReadsMemoryAndFilesAlike) {
  const TemporaryDirectory directory;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{2}, size_t{1000}, size_t{600'000}}) {
    const std::string text = sample_text(size);
    const std::string path = directory.path("in");
    ASSERT_TRUE(write_text_file(path, text).has_value());
    for (const size_t step : {size_t{1}, size_t{7}, size_t{4096}, size_t{1} << 20}) {
      if (step == 1 && size > 1000) continue;
      InputStream memory = memory_stream(text);
      EXPECT_TRUE(drain(memory, step) == text) << size << " bytes by " << step;
      Result<InputStream> file = InputStream::open_file(path);
      ASSERT_TRUE(file.has_value());
      EXPECT_EQ(file->source_size(), size);
      EXPECT_TRUE(drain(*file, step) == text) << size << " bytes by " << step;
      EXPECT_EQ(file->source_position(), size);
      EXPECT_EQ(file->damage(), "");
      EXPECT_EQ(file->name(), path);
    }
  }
}

TEST(InputStream, UnpacksGzipFromMemoryAndFiles) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("in.json");  // known by its bytes, not its name
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{1'000'000}}) {
    const std::string text = sample_text(size);
    const std::string packed = gzip(text);
    ASSERT_TRUE(write_text_file(path, packed).has_value());
    for (const size_t step : {size_t{13}, size_t{4096}, size_t{1} << 22}) {
      InputStream memory = memory_stream(packed);
      EXPECT_TRUE(drain(memory, step) == text) << size << " bytes by " << step;
      EXPECT_EQ(memory.damage(), "");
      Result<InputStream> file = InputStream::open_file(path);
      ASSERT_TRUE(file.has_value());
      EXPECT_TRUE(drain(*file, step) == text) << size << " bytes by " << step;
      EXPECT_EQ(file->damage(), "");
      EXPECT_EQ(file->source_position(), packed.size()) << "progress counts compressed bytes";
    }
  }
}

TEST(InputStream, JoinsTheMembersOfAGzipFile) {
  const std::string a = sample_text(300'000);
  const std::string packed = gzip(a) + gzip("") + gzip("tail", 0) + gzip(a, 9);
  InputStream stream = memory_stream(packed);
  EXPECT_TRUE(drain(stream, 1000) == a + "tail" + a);
  EXPECT_EQ(stream.damage(), "");
}

// Goal: wherever a gzip file was cut, what could be unpacked arrives, and the cut is said.
// Method: every cut, read in two ways; the texts must agree and begin the original.
TEST(InputStream, AGzipFileCutAtAnyByteGivesItsFrontAndSaysSo) {
  // Long runs: a few compressed bytes stand for a lot of text that zlib may hold back.
  const std::string text = sample_text(300) + std::string(3000, 'x') + sample_text(300);
  const std::string packed = gzip(text);
  size_t longest = 0;
  for (size_t cut = 2; cut < packed.size(); ++cut) {
    InputStream at_once = memory_stream(std::string_view(packed).substr(0, cut));
    const std::string front = drain(at_once, 10'000);
    EXPECT_EQ(at_once.damage(), "the gzip data stops in the middle") << "cut at " << cut;
    EXPECT_TRUE(text.starts_with(front)) << "cut at " << cut;
    EXPECT_GE(front.size(), longest) << "cut at " << cut;
    longest = std::max(longest, front.size());
    InputStream in_steps = memory_stream(std::string_view(packed).substr(0, cut));
    EXPECT_TRUE(drain(in_steps, 5) == front) << "cut at " << cut;
    EXPECT_EQ(in_steps.damage(), "the gzip data stops in the middle") << "cut at " << cut;
  }
  EXPECT_EQ(longest, text.size()) << "a cut in the trailer loses no text";
}

TEST(InputStream, ASecondMemberCutShortIsSaid) {
  const std::string packed = gzip("first") + gzip("second").substr(0, 12);
  InputStream stream = memory_stream(packed);
  EXPECT_EQ(drain(stream, 100), "firsts");
  EXPECT_EQ(stream.damage(), "the gzip data stops in the middle");
}

TEST(InputStream, DamageAtAnyByteIsSaidOrHarmless) {
  const std::string text = sample_text(2000);
  const std::string packed = gzip(text);
  int said_count = 0;
  for (size_t at = 2; at < packed.size(); ++at) {
    std::string damaged = packed;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    InputStream stream = memory_stream(damaged);
    const std::string got = drain(stream, 333);
    if (stream.damage().empty()) {
      EXPECT_TRUE(got == text) << "byte " << at << " changed the text silently";
    } else {
      ++said_count;
    }
  }
  EXPECT_GT(said_count, static_cast<int>(packed.size()) - 20) << "all but a few header bytes";
}

TEST(InputStream, SaysNearWhichByteTheDamageIs) {
  std::string packed = gzip(sample_text(100'000));
  packed[packed.size() / 2] = static_cast<char>(packed[packed.size() / 2] ^ 0x55);
  InputStream stream = memory_stream(packed);
  drain(stream, 4096);
  EXPECT_TRUE(stream.damage().starts_with("the gzip data is damaged near byte "))
      << stream.damage();
}

TEST(InputStream, BytesAfterTheLastMemberAreSaid) {
  const std::string packed = gzip("whole") + "garbage";
  InputStream stream = memory_stream(packed);
  EXPECT_EQ(drain(stream, 100), "whole");
  EXPECT_NE(stream.damage(), "");
}

TEST(InputStream, ReadsNothingMoreAfterTheEnd) {
  for (const std::string& bytes :
       {std::string("plain"), gzip("packed"), gzip("cut").substr(0, 11)}) {
    InputStream stream = memory_stream(bytes);
    drain(stream, 100);
    char buffer[8];
    for (int i = 0; i < 3; ++i) EXPECT_EQ(*stream.read(buffer), 0u);
    EXPECT_EQ(*stream.read({}), 0u);
  }
}

TEST(InputStream, SaysWhyAFileCannotBeOpened) {
  const TemporaryDirectory directory;
  const Result<InputStream> missing = InputStream::open_file(directory.path("missing"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message,
            directory.path("missing") + ": cannot open: No such file or directory");
  const Result<InputStream> folder = InputStream::open_file(directory.path());
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().message, directory.path() + ": is a directory");
}

TEST(InputStream, MovesWithItsPlace) {
  const std::string packed = gzip("0123456789");
  InputStream first = memory_stream(packed);
  char buffer[4];
  ASSERT_EQ(*first.read(buffer), 4u);
  InputStream second = std::move(first);
  EXPECT_EQ(drain(second, 100), "456789");
}

}  // namespace
}  // namespace gapless
