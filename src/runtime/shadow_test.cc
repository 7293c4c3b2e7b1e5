// SPDX-License-Identifier: Apache-2.0

#include "runtime/shadow.h"

#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr BufferId kBuffer{3};
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();

// Four rows of eight out of rows of 32, from element 64 on.
View rows_of_eight() {
  return tile(dense_view(kBuffer, DType::kF32, {6, 32}),
              {.row = 2, .rows = 4, .column = 0, .columns = 8});
}

View strided(std::vector<int32_t> shape, std::vector<int64_t> strides) {
  View view = {.buffer = kBuffer, .dtype = DType::kF32};
  view.rank = static_cast<uint8_t>(shape.size());
  for (size_t i = 0; i < shape.size(); ++i) {
    view.shape[i] = shape[i];
    view.strides[i] = strides[i];
  }
  return view;
}

std::set<int64_t> offsets_by_counting(const View& view) {
  std::set<int64_t> offsets = {0};
  for (size_t dimension = 0; dimension < view.rank; ++dimension) {
    std::set<int64_t> further;
    for (int64_t index = 0; index < view.shape[dimension]; ++index) {
      for (const int64_t offset : offsets) further.insert(offset + index * view.strides[dimension]);
    }
    offsets = further;
  }
  return offsets;
}

void expect_same_elements(const View& view) {
  SCOPED_TRACE(view_text(view));
  const std::set<int64_t> expected = offsets_by_counting(view);
  const ElementSet elements(view);
  for (int64_t offset = -200; offset <= 200; ++offset) {
    const int64_t run = elements.run_from(offset);
    EXPECT_EQ(run > 0, expected.contains(offset)) << offset;
    for (int64_t i = 0; i < run; ++i) EXPECT_TRUE(expected.contains(offset + i)) << offset << i;
  }
  EXPECT_EQ(elements.extent(), expected.empty() ? 0 : *expected.rbegin() - *expected.begin() + 1);
  EXPECT_EQ(elements.first(), expected.empty() ? 0 : *expected.begin());
}

TEST(ElementSet, HasExactlyTheElementsOfOrdinaryViews) {
  expect_same_elements(strided({}, {}));
  expect_same_elements(strided({7}, {1}));
  expect_same_elements(strided({4, 8}, {32, 1}));
  expect_same_elements(strided({8, 4}, {1, 32}));
  expect_same_elements(strided({2, 3, 2, 4}, {70, 20, 7, 1}));
}

TEST(ElementSet, KnowsBackwardBroadcastAndEmptyDimensions) {
  expect_same_elements(strided({5}, {-3}));
  expect_same_elements(strided({4, 8}, {-32, 1}));
  expect_same_elements(strided({4, 8}, {0, 1}));
  expect_same_elements(strided({3, 4}, {0, 0}));
  expect_same_elements(strided({0}, {1}));
  expect_same_elements(strided({3, 0, 2}, {-8, 4, 1}));
}

TEST(ElementSet, KnowsViewsThatOverlapThemselves) {
  expect_same_elements(strided({5, 4}, {1, 1}));
  expect_same_elements(strided({4, 5}, {6, 4}));
  expect_same_elements(strided({3, 3, 3}, {15, 10, 6}));
  expect_same_elements(strided({3, 3, 3, 3}, {-15, 10, -6, 4}));
}

// Goal: any view. Method: random shapes and small strides of both signs against counting.
TEST(ElementSet, HasExactlyTheElementsOfRandomViews) {
  std::mt19937_64 random(1);
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<int32_t> shape(random() % 5);
    std::vector<int64_t> strides(shape.size());
    for (int32_t& extent : shape) extent = static_cast<int32_t>(random() % 5);
    for (int64_t& stride : strides) stride = static_cast<int64_t>(random() % 25) - 12;
    expect_same_elements(strided(shape, strides));
    if (HasFailure()) return;
  }
}

TEST(ShadowChecker, AllowsWhatWasDeclared) {
  const std::vector<Argument> arguments = {in(rows_of_eight()), out(rows_of_eight()),
                                           inout(strided({}, {}))};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_TRUE(checker.check(0, 0, 8, false));
  EXPECT_TRUE(checker.check(0, 96, 8, false));
  EXPECT_TRUE(checker.check(0, 103, 1, false));
  EXPECT_TRUE(checker.check(1, 32, 8, true));
  EXPECT_TRUE(checker.check(1, 34, 6, false));
  EXPECT_TRUE(checker.check(2, 0, 1, false));
  EXPECT_TRUE(checker.check(2, 0, 1, true));
  EXPECT_EQ(checker.violation(), "");
}

TEST(ShadowChecker, AllowsNoElementsAnywhere) {
  const std::vector<Argument> arguments = {in(strided({0}, {1}))};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_TRUE(checker.check(0, 0, 0, false));
  EXPECT_TRUE(checker.check(0, 12, 0, false));
  EXPECT_FALSE(checker.check(0, 0, 1, false));
  EXPECT_EQ(checker.violation(),
            "argument 0 (in, f32[0] strides [1] at 0): read element 0 (bytes 0..3 of buffer 3): "
            "element 0 is outside the view");
}

TEST(ShadowChecker, RefusesElementsOutsideTheView) {
  const std::vector<Argument> arguments = {in(rows_of_eight()), inout(rows_of_eight())};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(1, 40, 8, true));
  EXPECT_EQ(checker.violation(),
            "argument 1 (inout, f32[4,8] strides [32,1] at 64): wrote elements 40..47 (bytes "
            "416..447 of buffer 3): element 40 is outside the view");
  checker.begin_task(arguments);
  EXPECT_EQ(checker.violation(), "");
  EXPECT_FALSE(checker.check(0, -1, 1, false));
  EXPECT_EQ(checker.violation(),
            "argument 0 (in, f32[4,8] strides [32,1] at 64): read element -1 (bytes 252..255 of "
            "buffer 3): element -1 is outside the view");
}

TEST(ShadowChecker, NamesTheFirstElementOutside) {
  const std::vector<Argument> arguments = {in(rows_of_eight())};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, 36, 29, false));  // to the begin of the next row
  EXPECT_EQ(checker.violation(),
            "argument 0 (in, f32[4,8] strides [32,1] at 64): read elements 36..64 (bytes 400..515 "
            "of buffer 3): element 40 is outside the view");
}

TEST(ShadowChecker, RefusesWritesToInputs) {
  const std::vector<Argument> arguments = {out(strided({4}, {1})), in(rows_of_eight())};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(1, 33, 2, true));
  EXPECT_EQ(checker.violation(),
            "argument 1 (in, f32[4,8] strides [32,1] at 64): wrote elements 33..34 (bytes 388..395 "
            "of buffer 3): the argument is only read");
}

TEST(ShadowChecker, RefusesToReadOutputsBeforeTheyAreWritten) {
  const std::vector<Argument> arguments = {out(strided({4}, {-2}))};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_TRUE(checker.check(0, -4, 1, true));
  EXPECT_TRUE(checker.check(0, -4, 1, false));
  EXPECT_FALSE(checker.check(0, -2, 1, false));
  EXPECT_EQ(checker.violation(),
            "argument 0 (out, f32[4] strides [-2] at 0): read element -2 (bytes -8..-5 of buffer "
            "3): element -2 is an output that the task has not written yet");
}

TEST(ShadowChecker, NamesTheFirstElementThatIsNotWritten) {
  const std::vector<Argument> arguments = {out(rows_of_eight())};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_TRUE(checker.check(0, 0, 3, true));
  EXPECT_TRUE(checker.check(0, 4, 1, true));
  EXPECT_FALSE(checker.check(0, 0, 8, false));
  EXPECT_EQ(checker.violation(),
            "argument 0 (out, f32[4,8] strides [32,1] at 64): read elements 0..7 (bytes 256..287 "
            "of buffer 3): element 3 is an output that the task has not written yet");
}

TEST(ShadowChecker, ForgetsWhatTheLastTaskWrote) {
  const std::vector<Argument> arguments = {out(strided({4}, {1}))};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_TRUE(checker.check(0, 0, 4, true));
  EXPECT_TRUE(checker.check(0, 0, 4, false));
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, 0, 1, false));
}

TEST(ShadowChecker, KeepsTheFirstFaultAndRefusesTheOthersToo) {
  const std::vector<Argument> arguments = {in(strided({4}, {1}))};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, 4, 1, false));
  const std::string first = checker.violation();
  EXPECT_FALSE(checker.check(0, 0, 1, true));
  EXPECT_FALSE(checker.check(0, 9, 1, false));
  EXPECT_TRUE(checker.check(0, 3, 1, false));
  EXPECT_EQ(checker.violation(), first);
}

TEST(ShadowChecker, RefusesArgumentsThatTheTaskDoesNotHave) {
  const std::vector<Argument> arguments = {in(strided({4}, {1}))};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(2, 0, 1, false));
  EXPECT_EQ(checker.violation(), "argument 2: read element 0: the task has 1 arguments");
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(-1, 0, 1, true));
  EXPECT_EQ(checker.violation(), "argument -1: wrote element 0: the task has 1 arguments");
}

TEST(ShadowChecker, SurvivesWildOffsetsAndCounts) {
  const std::vector<Argument> arguments = {in(strided({4}, {1}))};
  ShadowChecker checker;
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, 1, kMost, false));
  EXPECT_EQ(checker.violation(),
            "argument 0 (in, f32[4] strides [1] at 0): read 9223372036854775807 elements from 1 "
            "on: element 4 is outside the view");
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, kMost, kMost, false));
  EXPECT_NE(checker.violation(), "");
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, kLeast, 1, false));
  EXPECT_NE(checker.violation(), "");
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, 0, -2, false));
  EXPECT_EQ(checker.violation(),
            "argument 0 (in, f32[4] strides [1] at 0): read -2 elements from 0 on: -2 elements "
            "cannot be touched");
}

TEST(ShadowChecker, GuardsTensorRefs) {
  const std::vector<Argument> arguments = {in(rows_of_eight()), out(strided({4}, {1}))};
  std::vector<float> memory(6 * 32, 1.0f);
  ShadowChecker checker;
  checker.begin_task(arguments);
  const TensorRef<float> input(memory.data() + 64, arguments[0].view, 0, &checker);
  const TensorRef<float> output(memory.data(), arguments[1].view, 1, &checker);
  EXPECT_EQ(input.load(3, 7), 1.0f);
  EXPECT_EQ(input.read(8, 1, 0), memory.data() + 96);
  EXPECT_EQ(output.write(4, 0), memory.data());
  EXPECT_EQ(checker.violation(), "");
  output.store(2.0f, 4);
  EXPECT_EQ(memory[4], 1.0f);
  EXPECT_EQ(input.load(4, 0), 0.0f);
  // What is refused is some other memory, so that kernels need not look.
  const float* const read = input.read(9, 0, 0);
  EXPECT_TRUE(read < memory.data() || read >= memory.data() + memory.size());
  EXPECT_EQ(read[8], 0.0f);
  float* const written = output.write(5, 0);
  EXPECT_TRUE(written < memory.data() || written >= memory.data() + memory.size());
  written[4] = 7.0f;
  EXPECT_EQ(checker.violation(),
            "argument 1 (out, f32[4] strides [1] at 0): wrote element 4 (bytes 16..19 of buffer "
            "3): element 4 is outside the view");
}

// Parts that run at the same time may wait for each other and then read what the others wrote.
TEST(ShadowChecker, LetsAGangReadItsOutputs) {
  const std::vector<Argument> arguments = {out(strided({4}, {1}))};
  ShadowChecker checker;
  checker.begin_task(arguments, true);
  EXPECT_TRUE(checker.check(0, 2, 1, false));
  EXPECT_FALSE(checker.check(0, 4, 1, false)) << "outside is outside for gangs too";
  checker.begin_task(arguments);
  EXPECT_FALSE(checker.check(0, 2, 1, false));
}

}  // namespace
}  // namespace gapless
