// SPDX-License-Identifier: Apache-2.0

#include "sim/device_profile.h"

#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/file.h"
#include "base/temporary_directory.h"

namespace gapless {
namespace {

DeviceProfile ascend() {
  Result<DeviceProfile> profile = find_profile("ascend-910b");
  EXPECT_TRUE(profile.has_value());
  return profile ? *profile : DeviceProfile{};
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  const size_t place = text.find(what);
  EXPECT_NE(place, std::string::npos) << what;
  return place == std::string::npos ? text : text.replace(place, what.size(), with);
}

std::string parse_error(const std::string& text) {
  const Result<DeviceProfile> profile = parse_profile(text, "x.json");
  return profile ? "" : profile.error().message;
}

TEST(DeviceProfile, BuiltInOnesAreComplete) {
  const Result<std::vector<DeviceProfile>> profiles = builtin_profiles();
  ASSERT_TRUE(profiles.has_value()) << profiles.error().message;
  ASSERT_EQ(profiles->size(), 3u);
  EXPECT_EQ((*profiles)[0].name, "ascend-910b");
  EXPECT_EQ((*profiles)[1].name, "cpu-like");
  EXPECT_EQ((*profiles)[2].name, "ideal-910b");
  for (const DeviceProfile& profile : *profiles) {
    EXPECT_EQ(profile.sources.size(), profile_parameters().size());
  }
}

TEST(DeviceProfile, AscendHasTheCoresAndBuffersOfTheChip) {
  const DeviceProfile profile = ascend();
  EXPECT_EQ(profile.cluster_count, 24);
  EXPECT_EQ(profile.vector_core_count(), 48);
  EXPECT_EQ(profile.core_count(), 72);
  EXPECT_EQ(profile.scheduler_threads, 3);
  EXPECT_EQ(profile.mat_bytes, 524288);
  EXPECT_EQ(profile.l0a_bytes, 65536);
  EXPECT_EQ(profile.l0b_bytes, 65536);
  EXPECT_EQ(profile.l0c_bytes, 131072);
  EXPECT_EQ(profile.ub_bytes, 196608);
}

TEST(DeviceProfile, IdealHasNoOverhead) {
  const Result<DeviceProfile> profile = find_profile("ideal-910b");
  ASSERT_TRUE(profile.has_value());
  for (const ProfileParameter& parameter : profile_parameters()) {
    if (!parameter.key.ends_with("_ns")) continue;
    EXPECT_EQ((*profile).*parameter.member, 0) << parameter.key;
  }
  EXPECT_EQ(profile->core_count(), 72);
}

TEST(DeviceProfile, WhatIsWrittenReadsBack) {
  DeviceProfile profile = ascend();
  ASSERT_TRUE(set_parameter(profile, "kernel.q_proj.mean_ns=22700").has_value());
  ASSERT_TRUE(set_parameter(profile, "kernel.q_proj.sigma_ns=1600").has_value());
  ASSERT_TRUE(set_parameter(profile, "kernel.a.b.mean_ns=1").has_value());
  const Result<DeviceProfile> again = parse_profile(profile_json(profile), "x.json");
  ASSERT_TRUE(again.has_value()) << again.error().message;
  EXPECT_TRUE(*again == profile);
  ASSERT_NE(again->find_kernel("q_proj"), nullptr);
  EXPECT_EQ(again->find_kernel("q_proj")->sigma_ns, 1600);
  EXPECT_EQ(again->find_kernel("a.b")->mean_ns, 1);
  EXPECT_EQ(again->find_kernel("k_proj"), nullptr);
}

TEST(DeviceProfile, RefusesAFileThatIsCutAnywhere) {
  const std::string text = profile_json(ascend());
  const size_t whole = text.find_last_of('}') + 1;
  for (size_t size = 0; size < whole; ++size) {
    EXPECT_FALSE(parse_profile(text.substr(0, size), "x.json").has_value()) << size;
  }
  EXPECT_TRUE(parse_profile(text.substr(0, whole), "x.json").has_value());
}

// Goal: whatever the bytes are, there is an answer, and what is accepted can be written and read.
TEST(DeviceProfile, SurvivesChangedBytes) {
  const std::string text = profile_json(ascend());
  std::mt19937_64 random(1);
  int accepted = 0;
  for (int round = 0; round < 1000; ++round) {
    std::string changed = text;
    for (int i = 0; i < 3; ++i) changed[random() % text.size()] = static_cast<char>(random() % 256);
    const Result<DeviceProfile> profile = parse_profile(changed, "x.json");
    if (!profile) continue;
    ++accepted;
    const Result<DeviceProfile> again = parse_profile(profile_json(*profile), "x.json");
    ASSERT_TRUE(again.has_value());
    EXPECT_TRUE(*again == *profile);
  }
  EXPECT_GT(accepted, 0) << "texts of sources may say anything";
}

TEST(DeviceProfile, SaysWhatIsWrongWithAFile) {
  const std::string text = profile_json(ascend());
  EXPECT_EQ(parse_error("{"), "x.json: is not valid JSON");
  EXPECT_EQ(parse_error("[1]"), "x.json is a list; it must be an object");
  EXPECT_EQ(parse_error("{}"), "x.json: \"name\" is missing");
  EXPECT_EQ(parse_error(replaced(text, "\"summary\"", "\"sumary\"")),
            "x.json: \"sumary\" is not a key that is known here");
  EXPECT_EQ(parse_error(replaced(text, "scheduler.poll_ns", "scheduler.pol_ns")),
            "x.json: there is no parameter \"scheduler.pol_ns\"");
  EXPECT_EQ(parse_error(replaced(text, "\"value\": 195", "\"value\": -1")),
            "x.json: scheduler.poll_ns is -1; it must be a whole number from 0 to 1000000000");
  EXPECT_EQ(parse_error(replaced(text, "\"value\": 195", "\"value\": \"195\"")),
            "x.json: scheduler.poll_ns is \"195\"; it must be a whole number from 0 to 1000000000");
  EXPECT_EQ(parse_error(replaced(text, "\"value\": 195", "\"value\": 19.5")),
            "x.json: scheduler.poll_ns is 19.5; it must be a whole number from 0 to 1000000000");
  EXPECT_EQ(parse_error(replaced(text, "\"value\": 195", "\"valu\": 195")),
            "x.json: scheduler.poll_ns: \"valu\" is not a key that is known here");
  EXPECT_EQ(parse_error(replaced(text, "\"kernels\": {}", "\"kernels\": 3")),
            "x.json: \"kernels\" is 3; it must be an object");
  EXPECT_EQ(parse_error(replaced(text, "\"kernels\": {}", "\"kernels\": {\"a\": {}}")),
            "x.json: kernel a: \"mean_ns\" is missing");
}

TEST(DeviceProfile, MissesEachParameter) {
  for (const ProfileParameter& parameter : profile_parameters()) {
    const std::string text = profile_json(ascend());
    const size_t begin = text.find(fmt::format("\"{}\"", parameter.key));
    const size_t end = text.find('}', begin) + 1;
    const bool has_comma = text[end] == ',';
    const size_t from = has_comma ? begin : text.rfind(',', begin);
    const std::string cut = text.substr(0, from) + text.substr(has_comma ? end + 1 : end);
    EXPECT_EQ(parse_error(cut),
              fmt::format("x.json: the parameter \"{}\" is missing", parameter.key));
  }
}

TEST(DeviceProfile, SetsOneParameter) {
  DeviceProfile profile = ascend();
  ASSERT_TRUE(set_parameter(profile, "hbm.bytes_per_s=1.3e12").has_value());
  EXPECT_EQ(profile.hbm_bytes_per_s, 1'300'000'000'000);
  ASSERT_TRUE(set_parameter(profile, "scheduler.poll_ns=0").has_value());
  EXPECT_EQ(profile.poll_ns, 0);
}

TEST(DeviceProfile, RefusesAParameterThatCannotBe) {
  DeviceProfile profile = ascend();
  const DeviceProfile before = profile;
  const auto error_of = [&profile](std::string_view text) {
    const Result<void> result = set_parameter(profile, text);
    return result ? std::string() : result.error().message;
  };
  EXPECT_EQ(error_of("hbm.bytes_per_s"),
            "hbm.bytes_per_s: a parameter is set as NAME=NUMBER, such as hbm.bytes_per_s=1.2e12");
  EXPECT_EQ(error_of("hbm=1"), "there is no parameter \"hbm\"");
  EXPECT_EQ(error_of("scheduler.poll_ns=x"), "scheduler.poll_ns: \"x\" is not a whole number");
  EXPECT_EQ(error_of("scheduler.poll_ns="), "scheduler.poll_ns: \"\" is not a whole number");
  EXPECT_EQ(error_of("scheduler.poll_ns=1.5"), "scheduler.poll_ns: \"1.5\" is not a whole number");
  EXPECT_EQ(error_of("scheduler.poll_ns=-1"),
            "scheduler.poll_ns is -1; it must be a whole number from 0 to 1000000000");
  EXPECT_EQ(error_of("cluster.count=100"),
            "cluster.count=100: 100 clusters of 1 cube and 2 vector cores are 300 cores; at most "
            "256 are simulated");
  EXPECT_EQ(error_of("scheduler.threads=25"),
            "scheduler.threads=25: 25 scheduler threads for 24 clusters; each thread needs one");
  EXPECT_EQ(error_of("cluster.is_unified=1"),
            "cluster.is_unified=1: cluster.is_unified is 1, so cluster.vector_cores must be 0 and "
            "not 2");
  EXPECT_EQ(error_of("kernel.x=1"),
            "kernel.x: of a kernel kernel.NAME.mean_ns and kernel.NAME.sigma_ns can be set");
  EXPECT_EQ(error_of("kernel.x.sigma_ns=1"), "kernel.x.sigma_ns: set kernel.x.mean_ns first");
  EXPECT_EQ(error_of("kernel.x.mean_ns=-1"),
            "kernel.x.mean_ns is -1; it must be from 0 to 1000000000000");
  EXPECT_TRUE(profile == before);
}

TEST(DeviceProfile, IsFoundByItsNameOrItsPath) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/mine.json";
  DeviceProfile profile = ascend();
  profile.name = "mine";
  Result<OutputFile> file = OutputFile::create(path);
  ASSERT_TRUE(file.has_value());
  file->append(profile_json(profile));
  ASSERT_TRUE(file->commit().has_value());
  const Result<DeviceProfile> found = find_profile(path);
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_TRUE(*found == profile);
  EXPECT_EQ(find_profile("ascend").error().message,
            "no device profile is called \"ascend\"; there are ascend-910b, cpu-like, ideal-910b, "
            "and files that end in .json");
  EXPECT_FALSE(find_profile(folder.path() + "/none.json").has_value());
}

// 1200000000 as 1,200,000,000.
std::string grouped(int64_t number) {
  std::string text = fmt::format("{}", number);
  for (int64_t place = static_cast<int64_t>(text.size()) - 3; place > 0; place -= 3) {
    text.insert(static_cast<size_t>(place), ",");
  }
  return text;
}

TEST(DeviceProfile, IsInTheDocumentationWithEverySource) {
  const std::filesystem::path here = std::filesystem::path(__FILE__).parent_path();
  const Result<std::string> text = read_text_file((here / "../../docs/simulator.md").string());
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const DeviceProfile profile = ascend();
  for (size_t i = 0; i < profile_parameters().size(); ++i) {
    const ProfileParameter& parameter = profile_parameters()[i];
    const std::string row = fmt::format("| `{}` | {} | {} |", parameter.key,
                                        grouped(profile.*parameter.member), profile.sources[i]);
    EXPECT_NE(text->find(row), std::string::npos) << row;
  }
}

}  // namespace
}  // namespace gapless
