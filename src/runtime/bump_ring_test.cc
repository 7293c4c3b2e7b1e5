// SPDX-License-Identifier: Apache-2.0

#include "runtime/bump_ring.h"

#include <cstdint>
#include <deque>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

// Which bytes of a ring are taken: by the number of their place, 0: free.
class ByteMap {
 public:
  explicit ByteMap(uint64_t capacity) : owners_(capacity, 0) {}

  void take(uint64_t offset, uint64_t count, int owner) {
    ASSERT_LE(offset + count, owners_.size()) << "a place wraps round the end";
    for (uint64_t i = offset; i < offset + count; ++i) {
      ASSERT_EQ(owners_[i], 0) << "byte " << i << " is given out twice";
      owners_[i] = owner;
    }
  }
  void give_back(uint64_t offset, uint64_t count) {
    for (uint64_t i = offset; i < offset + count; ++i) owners_[i] = 0;
  }

 private:
  std::vector<int> owners_;
};

TEST(BumpRing, GivesOutPlacesInOrder) {
  BumpRing ring(16);
  EXPECT_EQ(ring.allocate(4)->offset, 0u);
  EXPECT_EQ(ring.allocate(4)->offset, 4u);
  EXPECT_EQ(ring.allocate(4)->offset, 8u);
  EXPECT_EQ(ring.used(), 12u);
  EXPECT_EQ(ring.capacity(), 16u);
}

TEST(BumpRing, SkipsWhatIsTooSmallAtTheEnd) {
  BumpRing ring(16);
  const BumpRing::Place first = *ring.allocate(6);
  const BumpRing::Place second = *ring.allocate(6);
  EXPECT_FALSE(ring.allocate(6)) << "four at the end are not enough, and a place does not wrap";
  ring.release_to(first.end);
  const std::optional<BumpRing::Place> third = ring.allocate(6);
  ASSERT_TRUE(third);
  EXPECT_EQ(third->offset, 0u);
  EXPECT_EQ(ring.used(), 16u) << "what was skipped is not free before its neighbours are";
  ring.release_to(second.end);
  ring.release_to(third->end);
  EXPECT_EQ(ring.used(), 0u);
}

TEST(BumpRing, DoesNotGiveOutWhatIsStillHeldAtTheBeginning) {
  BumpRing ring(16);
  const BumpRing::Place first = *ring.allocate(4);
  ASSERT_TRUE(ring.allocate(10));
  ring.release_to(first.end);
  EXPECT_FALSE(ring.allocate(5)) << "four are free at the beginning";
  EXPECT_EQ(ring.allocate(4)->offset, 0u);
  EXPECT_FALSE(ring.allocate(1));
}

TEST(BumpRing, AlignsPlaces) {
  BumpRing ring(64);
  EXPECT_EQ(ring.allocate(3, 16)->offset, 0u);
  EXPECT_EQ(ring.allocate(3, 16)->offset, 16u);
  EXPECT_EQ(ring.allocate(1)->offset, 19u);
  EXPECT_EQ(ring.allocate(16, 32)->offset, 32u);
  EXPECT_FALSE(ring.allocate(1, 64)) << "the next multiple of 64 is the first place";
}

TEST(BumpRing, BeginsAnewWhenEmpty) {
  BumpRing ring(16);
  ring.release_to(ring.allocate(10)->end);
  const std::optional<BumpRing::Place> whole = ring.allocate(16);
  ASSERT_TRUE(whole) << "what is no larger than the ring fits when nothing is held";
  EXPECT_EQ(whole->offset, 0u);
}

TEST(BumpRing, MayBeFullToTheLastByte) {
  BumpRing ring(16);
  const BumpRing::Place first = *ring.allocate(8);
  const BumpRing::Place second = *ring.allocate(8);
  EXPECT_EQ(ring.used(), 16u);
  EXPECT_FALSE(ring.allocate(1));
  ring.release_to(first.end);
  EXPECT_EQ(ring.allocate(8)->offset, 0u);
  EXPECT_FALSE(ring.allocate(1));
  ring.release_to(second.end);
  EXPECT_EQ(ring.allocate(8)->offset, 8u);
}

TEST(BumpRing, RefusesWhatIsLargerThanItself) {
  BumpRing ring(16);
  EXPECT_FALSE(ring.allocate(17));
  EXPECT_EQ(ring.used(), 0u);
  EXPECT_TRUE(ring.allocate(16)) << "a refusal changes nothing";
}

TEST(BumpRing, GivesOutPlacesOfNoSizeEvenWhenFull) {
  BumpRing ring(16);
  EXPECT_LT(ring.allocate(0)->offset, 16u);
  ASSERT_TRUE(ring.allocate(16));
  const std::optional<BumpRing::Place> nothing = ring.allocate(0);
  ASSERT_TRUE(nothing);
  EXPECT_LT(nothing->offset, 16u);
  EXPECT_EQ(ring.used(), 16u);
}

TEST(BumpRing, APlaceOfNoSizeMayBeReleasedAfterTheRingHasBegunAnew) {
  BumpRing ring(16);
  ring.release_to(ring.allocate(4)->end);
  const BumpRing::Place nothing = *ring.allocate(0);
  const BumpRing::Place whole = *ring.allocate(16);
  ring.release_to(nothing.end);
  EXPECT_EQ(ring.used(), 16u) << "releasing nothing frees nothing";
  EXPECT_FALSE(ring.allocate(1));
  ring.release_to(whole.end);
  EXPECT_EQ(ring.used(), 0u);
}

TEST(BumpRing, ARingOfOneGivesOutOneAtATime) {
  BumpRing ring(1);
  for (int i = 0; i < 100; ++i) {
    const std::optional<BumpRing::Place> place = ring.allocate(1);
    ASSERT_TRUE(place);
    EXPECT_EQ(place->offset, 0u);
    EXPECT_FALSE(ring.allocate(1));
    ring.release_to(place->end);
  }
}

TEST(BumpRing, ARingWithoutRoomHoldsOnlyPlacesOfNoSize) {
  BumpRing ring(0);
  EXPECT_FALSE(ring.allocate(1));
  EXPECT_TRUE(ring.allocate(0));
}

// Goal: no byte is given out twice, no place wraps or is misaligned, and room is refused only when
// there is none. Method: a map of bytes beside the ring; a refusal is legal only while something
// is held.
TEST(BumpRing, AgreesWithAMapOfBytesAtRandom) {
  struct Held {
    BumpRing::Place place;
    uint64_t count = 0;
  };
  for (uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    const uint64_t capacity = 16 * (1 + random() % 20);
    BumpRing ring(capacity);
    ByteMap map(capacity);
    std::deque<Held> held;
    for (int step = 0; step < 2000; ++step) {
      const uint64_t alignment = uint64_t{1} << random() % 5;
      const uint64_t count = random() % 8 == 0 ? 0 : random() % (capacity / (1 + random() % 6) + 1);
      const std::optional<BumpRing::Place> place = ring.allocate(count, alignment);
      if (place) {
        ASSERT_EQ(place->offset % alignment, 0u);
        map.take(place->offset, count, step + 1);
        if (testing::Test::HasFatalFailure()) return;
        if (!held.empty()) {
          ASSERT_GE(place->end, held.back().place.end);
        }
        held.push_back({*place, count});
      } else {
        ASSERT_FALSE(held.empty()) << "an empty ring refuses " << count << " of " << capacity;
      }
      uint64_t to_release = place ? random() % 3 : 1 + random() % 3;
      for (; to_release > 0 && !held.empty(); --to_release) {
        map.give_back(held.front().place.offset, held.front().count);
        ring.release_to(held.front().place.end);
        held.pop_front();
      }
      if (held.empty()) {
        ASSERT_EQ(ring.used(), 0u);
      }
      ASSERT_LE(ring.used(), capacity);
    }
  }
}

}  // namespace
}  // namespace gapless
