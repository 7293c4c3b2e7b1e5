// SPDX-License-Identifier: Apache-2.0

#include "base/crc32c.h"

#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// From RFC 3720, B.4, and the usual check value.
TEST(Crc32c, MatchesKnownVectors) {
  std::string rising(32, '\0');
  for (size_t i = 0; i < rising.size(); ++i) rising[i] = static_cast<char>(i);
  const std::string falling(rising.rbegin(), rising.rend());
  const std::pair<std::string, uint32_t> vectors[] = {
      {"", 0},
      {"a", 0xc1d04330},
      {"123456789", 0xe3069283},
      {std::string(32, '\0'), 0x8a9136aa},
      {std::string(32, '\xff'), 0x62a8ab43},
      {rising, 0x46dd794e},
      {falling, 0x113fdb5c},
  };
  for (const auto& [text, crc] : vectors) {
    EXPECT_EQ(crc32c(text.data(), text.size()), crc) << text.size() << " bytes";
    EXPECT_EQ(crc32c_portable(text.data(), text.size()), crc) << text.size() << " bytes";
  }
}

TEST(Crc32c, PortableEqualsTheInstructionForAllSizesAndAlignments) {
  std::mt19937 random(7);
  std::vector<unsigned char> data(600);
  for (unsigned char& byte : data) byte = static_cast<unsigned char>(random());
  for (size_t begin = 0; begin < 17; ++begin) {
    for (size_t size = 0; size + begin <= data.size(); size += size < 80 ? 1 : 37) {
      const uint32_t start = static_cast<uint32_t>(random());
      ASSERT_EQ(crc32c(&data[begin], size, start), crc32c_portable(&data[begin], size, start))
          << size << " bytes from " << begin;
    }
  }
}

TEST(Crc32c, ContinuesWhereAnEarlierCallEnded) {
  const std::string text = "the quick brown fox jumps over the lazy dog, twice and more";
  const uint32_t whole = crc32c(text.data(), text.size());
  for (size_t cut = 0; cut <= text.size(); ++cut) {
    const uint32_t first = crc32c(text.data(), cut);
    EXPECT_EQ(crc32c(text.data() + cut, text.size() - cut, first), whole) << "cut at " << cut;
    const uint32_t portable = crc32c_portable(text.data(), cut);
    EXPECT_EQ(crc32c_portable(text.data() + cut, text.size() - cut, portable), whole);
  }
}

TEST(Crc32c, EverySingleBitMatters) {
  std::string text(40, 'x');
  const uint32_t crc = crc32c(text.data(), text.size());
  for (size_t bit = 0; bit < text.size() * 8; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
    EXPECT_NE(crc32c(text.data(), text.size()), crc) << "bit " << bit;
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  }
}

}  // namespace
}  // namespace gapless
