// SPDX-License-Identifier: Apache-2.0

#include "base/huge_buffer.h"

#include <algorithm>
#include <fstream>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <unistd.h>

#include "base/test_effort.h"

namespace gapless {
namespace {

bool is_zero(const HugeBuffer& buffer) {
  return std::all_of(buffer.data(), buffer.data() + buffer.size(),
                     [](std::byte value) { return value == std::byte{0}; });
}

// AnonHugePages of the whole process.
size_t huge_bytes_of_process() {
  std::ifstream rollup("/proc/self/smaps_rollup");
  for (std::string word; rollup >> word;) {
    size_t kib = 0;
    if (word == "AnonHugePages:" && rollup >> kib) return kib << 10;
  }
  return 0;
}

TEST(HugeBuffer, IsAlignedZeroedAndWritable) {
  for (const size_t bytes : {size_t{1}, size_t{4096}, size_t{1} << 20, (size_t{5} << 20) + 3}) {
    const Result<HugeBuffer> buffer = HugeBuffer::allocate(bytes);
    ASSERT_TRUE(buffer.has_value()) << buffer.error().message;
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % HugeBuffer::kAlignment, 0u);
    EXPECT_TRUE(is_zero(*buffer));
    buffer->data()[0] = std::byte{1};
    buffer->data()[bytes - 1] = std::byte{2};
    EXPECT_EQ(buffer->data()[bytes - 1], std::byte{2});
  }
}

TEST(HugeBuffer, OfZeroBytesIsEmpty) {
  const Result<HugeBuffer> buffer = HugeBuffer::allocate(0);
  ASSERT_TRUE(buffer.has_value());
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(buffer->size(), 0u);
  EXPECT_EQ(buffer->huge_bytes(), 0u);
}

TEST(HugeBuffer, MovesItsMemory) {
  HugeBuffer first = std::move(HugeBuffer::allocate(100)).value();
  first.data()[99] = std::byte{7};
  std::byte* const data = first.data();
  HugeBuffer second = std::move(first);
  EXPECT_EQ(second.data(), data);
  HugeBuffer third = std::move(HugeBuffer::allocate(50)).value();
  third = std::move(second);
  EXPECT_EQ(third.data(), data);
  EXPECT_EQ(third.size(), 100u);
  EXPECT_EQ(third.data()[99], std::byte{7});
}

TEST(HugeBuffer, SaysHowMuchCouldNotBeMapped) {
  for (const size_t bytes : {SIZE_MAX, SIZE_MAX - (size_t{1} << 21), size_t{1} << 60}) {
    const Result<HugeBuffer> buffer = HugeBuffer::allocate(bytes);
    ASSERT_FALSE(buffer.has_value());
    EXPECT_EQ(buffer.error().code, ErrorCode::kSystem);
    EXPECT_NE(buffer.error().message.find(std::to_string(bytes)), std::string::npos)
        << buffer.error().message;
  }
}

TEST(HugeBuffer, CountsHugePagesOfItsOwn) {
  std::ifstream setting("/sys/kernel/mm/transparent_hugepage/enabled");
  std::string modes;
  std::getline(setting, modes);
  if (modes.empty() || modes.find("[never]") != std::string::npos) {
    GTEST_SKIP() << "no transparent huge pages here";
  }
  if (kSanitized) GTEST_SKIP() << "the sanitizer has huge pages of its own";
  const HugeBuffer touched = std::move(HugeBuffer::allocate(size_t{8} << 20)).value();
  const HugeBuffer untouched = std::move(HugeBuffer::allocate(size_t{8} << 20)).value();
  const size_t before = huge_bytes_of_process();
  for (size_t i = 0; i < touched.size(); i += 4096) touched.data()[i] = std::byte{1};
  const size_t added = huge_bytes_of_process() - before;
  // How many there are is the system's business: it may have run out of them.
  EXPECT_EQ(touched.huge_bytes(), added);
  EXPECT_LE(touched.huge_bytes(), touched.size());
  EXPECT_EQ(untouched.huge_bytes(), 0u);
}

TEST(HugeBufferDeathTest, EndsAtInaccessiblePages) {
  const HugeBuffer buffer = std::move(HugeBuffer::allocate(size_t{2} << 20)).value();
  volatile std::byte* const data = buffer.data();
  EXPECT_DEATH(static_cast<void>(data[buffer.size()]), "");
  EXPECT_DEATH(static_cast<void>(*(data - 1)), "");
}

#if defined(__SANITIZE_ADDRESS__)
TEST(HugeBufferDeathTest, ShowsTheSanitizerWhereItEnds) {
  const HugeBuffer buffer = std::move(HugeBuffer::allocate(64)).value();
  volatile std::byte* const data = buffer.data();
  EXPECT_DEATH(static_cast<void>(data[64]), "poison");
}
#endif

}  // namespace
}  // namespace gapless
