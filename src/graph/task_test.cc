// SPDX-License-Identifier: Apache-2.0

#include "graph/task.h"

#include <limits>
#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

TEST(Task, NamesItsKinds) {
  EXPECT_EQ(core_kind_name(CoreKind::kAny), "any");
  EXPECT_EQ(core_kind_name(CoreKind::kCube), "cube");
  EXPECT_EQ(core_kind_name(CoreKind::kVector), "vector");
  EXPECT_EQ(core_kind_name(CoreKind::kMixed), "mixed");
  EXPECT_EQ(access_name(Access::kIn), "in");
  EXPECT_EQ(access_name(Access::kOut), "out");
  EXPECT_EQ(access_name(Access::kInOut), "inout");
  EXPECT_EQ(buffer_kind_name(BufferKind::kExternal), "external");
  EXPECT_EQ(buffer_kind_name(BufferKind::kConstant), "constant");
  EXPECT_EQ(buffer_kind_name(BufferKind::kIntermediate), "intermediate");
}

TEST(Access, ReadsAndWritesAsItSays) {
  EXPECT_TRUE(reads(Access::kIn));
  EXPECT_FALSE(writes(Access::kIn));
  EXPECT_FALSE(reads(Access::kOut));
  EXPECT_TRUE(writes(Access::kOut));
  EXPECT_TRUE(reads(Access::kInOut));
  EXPECT_TRUE(writes(Access::kInOut));
}

TEST(Predicate, HoldsWithoutAValue) { EXPECT_TRUE(Predicate{}.holds()); }

struct ComparisonCase {
  Comparison comparison;
  const char* text;
  bool less, equal, greater;  // whether it holds for 6, 7 and 8 against 7
};

TEST(Predicate, ComparesWithTheValueOfNow) {
  const ComparisonCase cases[] = {
      {Comparison::kLess, "<", true, false, false},
      {Comparison::kLessEqual, "<=", true, true, false},
      {Comparison::kEqual, "==", false, true, false},
      {Comparison::kNotEqual, "!=", true, false, true},
      {Comparison::kGreaterEqual, ">=", false, true, true},
      {Comparison::kGreater, ">", false, false, true},
  };
  for (const ComparisonCase& expected : cases) {
    SCOPED_TRACE(expected.text);
    EXPECT_EQ(comparison_text(expected.comparison), expected.text);
    int64_t value = 6;
    const Predicate predicate = {&value, expected.comparison, 7};
    EXPECT_EQ(predicate.holds(), expected.less);
    value = 7;
    EXPECT_EQ(predicate.holds(), expected.equal);
    value = 8;
    EXPECT_EQ(predicate.holds(), expected.greater);
  }
}

TEST(Scalar, IsFixedOrReadWhenAsked) {
  EXPECT_EQ(Scalar::fixed(-3).value(), -3);
  EXPECT_EQ(Scalar::fixed_real(0.1).real(), 0.1);
  int64_t length = 5;
  const Scalar read = Scalar::read_from(&length);
  EXPECT_FALSE(read.is_fixed());
  length = 6;
  EXPECT_EQ(read.value(), 6);
}

TEST(KernelTable, NumbersKernelsInOrder) {
  KernelTable kernels;
  EXPECT_EQ(kernels.add("rms_norm", nullptr).value().id, 0);
  EXPECT_EQ(kernels.add("gate_up", nullptr).value().id, 1);
  EXPECT_EQ(kernels.size(), 2u);
  EXPECT_EQ(kernels[KernelId{1}].name, "gate_up");
  EXPECT_TRUE(kernels.contains(KernelId{1}));
  EXPECT_FALSE(kernels.contains(KernelId{2}));
  EXPECT_FALSE(kernels.contains(KernelId{}));
}

TEST(KernelTable, RefusesEmptyAndRepeatedNames) {
  KernelTable kernels;
  ASSERT_TRUE(kernels.add("rms_norm", nullptr).has_value());
  EXPECT_EQ(kernels.add("", nullptr).error().message, "a kernel needs a name");
  EXPECT_EQ(kernels.add("rms_norm", nullptr).error().message, "kernel rms_norm is there already");
  EXPECT_EQ(kernels.size(), 1u);
}

TEST(KernelTable, IsFullBeforeTheNumberThatMeansNone) {
  KernelTable kernels;
  for (int i = 0; i < 65535; ++i) {
    ASSERT_TRUE(kernels.add(std::to_string(i), nullptr).has_value());
  }
  const Result<KernelId> refused = kernels.add("one more", nullptr);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "kernel one more: there are 65535 kernels, no more are possible");
  EXPECT_FALSE(kernels.contains(KernelId{}));
}

}  // namespace
}  // namespace gapless
