// SPDX-License-Identifier: Apache-2.0

#include "kernels/cpu_level.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>

#include <gtest/gtest.h>

namespace gapless {
namespace {

constexpr const char* kVariable = "GAPLESS_CPU_LEVEL";

// Sets the environment variable (or takes it away) for as long as it lives.
class ScopedVariable {
 public:
  explicit ScopedVariable(const char* value) {
    if (const char* old = std::getenv(kVariable)) old_ = old;
    set(value);
  }
  ScopedVariable(const ScopedVariable&) = delete;
  ScopedVariable& operator=(const ScopedVariable&) = delete;
  ~ScopedVariable() { set(old_.has_value() ? old_->c_str() : nullptr); }

 private:
  static void set(const char* value) {
    if (value == nullptr) {
      ::unsetenv(kVariable);
    } else {
      ::setenv(kVariable, value, 1);
    }
  }
  std::optional<std::string> old_;
};

// The words of the line "flags : ..." of /proc/cpuinfo; empty where there is none.
std::vector<std::string> flags_of_machine() {
  std::ifstream info("/proc/cpuinfo");
  for (std::string line; std::getline(info, line);) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    std::vector<std::string> flags;
    for (std::string word; words >> word;) flags.push_back(word);
    return flags;
  }
  return {};
}

TEST(CpuLevel, NamesReadBack) {
  for (int i = 0; i < kCpuLevelCount; ++i) {
    const CpuLevel level = static_cast<CpuLevel>(i);
    EXPECT_EQ(parse_cpu_level(cpu_level_name(level)), level);
  }
  EXPECT_EQ(parse_cpu_level("sse"), std::nullopt);
  EXPECT_EQ(parse_cpu_level(""), std::nullopt);
}

TEST(CpuLevel, PortableAlwaysRunsAndComesFirst) {
  EXPECT_TRUE(has_cpu_level(CpuLevel::kPortable));
  const std::vector<CpuLevel> levels = usable_cpu_levels();
  ASSERT_FALSE(levels.empty());
  EXPECT_EQ(levels.front(), CpuLevel::kPortable);
  EXPECT_TRUE(std::is_sorted(levels.begin(), levels.end()));
  for (const CpuLevel level : levels) EXPECT_TRUE(has_cpu_level(level));
}

TEST(CpuLevel, AgreesWithWhatTheSystemSays) {
  const std::vector<std::string> flags = flags_of_machine();
  if (flags.empty()) GTEST_SKIP() << "/proc/cpuinfo lists no flags here";
  const auto has = [&flags](const char* flag) {
    return std::find(flags.begin(), flags.end(), flag) != flags.end();
  };
  const bool avx2 = has("avx2") && has("fma") && has("f16c");
  const bool avx512 = avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") &&
                      has("avx512vl") && has("avx512_vnni");
  EXPECT_EQ(has_cpu_level(CpuLevel::kAvx2), avx2);
  EXPECT_EQ(has_cpu_level(CpuLevel::kAvx2Vnni), avx2 && has("avx_vnni"));
  EXPECT_EQ(has_cpu_level(CpuLevel::kAvx512), avx512);
  EXPECT_EQ(has_cpu_level(CpuLevel::kAvx512Bf16), avx512 && has("avx512_bf16"));
}

TEST(CpuLevel, BestOneIsChosenWhenNothingIsAskedFor) {
  for (const char* value : {static_cast<const char*>(nullptr), ""}) {
    const ScopedVariable variable(value);
    const Result<CpuLevel> level = choose_cpu_level();
    ASSERT_TRUE(level.has_value());
    EXPECT_EQ(*level, usable_cpu_levels().back());
  }
}

TEST(CpuLevel, OptionComesBeforeTheEnvironment) {
  const ScopedVariable variable("portable");
  EXPECT_EQ(choose_cpu_level().value(), CpuLevel::kPortable);
  for (const CpuLevel level : usable_cpu_levels()) {
    EXPECT_EQ(choose_cpu_level(cpu_level_name(level)).value(), level);
  }
}

TEST(CpuLevel, UnknownNameIsAnErrorThatListsWhatRuns) {
  const ScopedVariable variable("avx9");
  const Result<CpuLevel> from_variable = choose_cpu_level();
  ASSERT_FALSE(from_variable.has_value());
  EXPECT_EQ(from_variable.error().code, ErrorCode::kInvalidInput);
  EXPECT_TRUE(from_variable.error().message.starts_with(
      "GAPLESS_CPU_LEVEL 'avx9': no such level; this machine can run portable"))
      << from_variable.error().message;
  const Result<CpuLevel> from_option = choose_cpu_level("fast");
  ASSERT_FALSE(from_option.has_value());
  EXPECT_TRUE(from_option.error().message.starts_with("cpu level 'fast': no such level"));
}

TEST(CpuLevel, LevelThatThisMachineLacksIsAnError) {
  for (int i = 0; i < kCpuLevelCount; ++i) {
    const CpuLevel level = static_cast<CpuLevel>(i);
    if (has_cpu_level(level)) continue;
    const Result<CpuLevel> chosen = choose_cpu_level(cpu_level_name(level));
    ASSERT_FALSE(chosen.has_value());
    EXPECT_NE(chosen.error().message.find("this machine can only run portable"), std::string::npos)
        << chosen.error().message;
  }
}

}  // namespace
}  // namespace gapless
