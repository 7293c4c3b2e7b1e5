// SPDX-License-Identifier: Apache-2.0

#include "model/safetensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "base/test_effort.h"
#include "tests/golden_test_support.h"

namespace gapless {
namespace {

const std::string kData = test_data_folder() + "/qwen3";

// A file of this header (its length is put before it) and this much data: 0, 1, 2, ...
std::string file_bytes(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string bytes(sizeof(length), '\0');
  std::memcpy(bytes.data(), &length, sizeof(length));
  bytes += header;
  for (size_t i = 0; i < data_bytes; ++i) bytes += static_cast<char>(i);
  return bytes;
}

class Safetensors : public testing::Test {
 protected:
  Result<SafetensorsFile> open(std::string_view bytes) {
    const std::string path = directory_.path("x.safetensors");
    EXPECT_TRUE(write_text_file(path, bytes));
    return SafetensorsFile::open(path);
  }
  // The message, without the folder.
  std::string error_of(std::string_view bytes) {
    const Result<SafetensorsFile> file = open(bytes);
    if (file) return "(no error)";
    const std::string& message = file.error().message;
    const std::string prefix = directory_.path("");
    return message.starts_with(prefix) ? message.substr(prefix.size()) : message;
  }
  std::string header_error(std::string_view header, size_t data_bytes) {
    return error_of(file_bytes(header, data_bytes));
  }

  TemporaryDirectory directory_;
};

constexpr std::string_view kTwoTensors =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},)"
    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}})";

// The tensors lie one behind the other inside the file, can be read and can be found.
void expect_sound(const SafetensorsFile& file, size_t file_size) {
  size_t total_bytes = 0;
  unsigned sum = 0;
  for (const StoredTensor& tensor : file.tensors()) {
    EXPECT_EQ(tensor.bytes.data(), file.tensors()[0].bytes.data() + total_bytes);
    total_bytes += tensor.bytes.size();
    for (const std::byte byte : tensor.bytes) sum += std::to_integer<unsigned>(byte);
    if (tensor.dtype) {
      EXPECT_EQ(tensor_bytes(tensor.shape, *tensor.dtype), std::ssize(tensor.bytes));
    }
    EXPECT_EQ(file.find(tensor.name), &tensor);
  }
  EXPECT_LT(total_bytes, file_size);
  EXPECT_LE(sum, 255 * total_bytes);
}

TEST_F(Safetensors, ListsTensorsInTheOrderOfTheirData) {
  const Result<SafetensorsFile> file = open(file_bytes(kTwoTensors, 12));
  ASSERT_TRUE(file) << file.error().message;
  ASSERT_EQ(file->tensors().size(), 2u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  const StoredTensor& a = file->tensors()[0];
  EXPECT_EQ(a.name, "a");
  EXPECT_EQ(a.dtype, DType::kBf16);
  EXPECT_EQ(a.shape, (std::vector<int64_t>{1, 2}));
  ASSERT_EQ(a.bytes.size(), 4u);
  EXPECT_EQ(a.bytes[3], std::byte{3});
  const StoredTensor* b = file->find("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b, &file->tensors()[1]);
  EXPECT_EQ(b->dtype_name, "F32");
  EXPECT_EQ(b->bytes[0], std::byte{4});
  EXPECT_EQ(file->find("c"), nullptr);
  EXPECT_EQ(file->find(""), nullptr);
}

TEST_F(Safetensors, StaysValidWhenTheFileIsMoved) {
  Result<SafetensorsFile> file = open(file_bytes(kTwoTensors, 12));
  ASSERT_TRUE(file);
  const StoredTensor* b = file->find("b");
  const SafetensorsFile moved = std::move(file).value();
  EXPECT_EQ(moved.find("b"), b);
  EXPECT_EQ(b->bytes[7], std::byte{11});
}

TEST_F(Safetensors, ReadsWhatTransformersWrote) {
  for (const std::string name : {"bf16-gqa4", "bf16-gqa5-tied", "f32-gqa4-tied", "f32-gqa5"}) {
    for (const auto& entry : std::filesystem::directory_iterator(kData + "/" + name)) {
      if (entry.path().extension() != ".safetensors") continue;
      const Result<SafetensorsFile> file = SafetensorsFile::open(entry.path().string());
      ASSERT_TRUE(file) << file.error().message;
      EXPECT_GT(file->tensors().size(), 10u);
      expect_sound(*file, static_cast<size_t>(entry.file_size()));
      for (const StoredTensor& tensor : file->tensors()) {
        EXPECT_TRUE(file->require(tensor.name)) << tensor.name;
      }
    }
  }
}

std::vector<float> floats_of(const StoredTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

TEST_F(Safetensors, FindsEachTensorsOwnBytes) {
  // Goal: names lead to the right bytes. Method: transformers wrote the logits of a model twice, in
  // f32 and in f64; tensors that lie far apart in the file must agree to rounding.
  const Result<SafetensorsFile> file =
      SafetensorsFile::open(kData + "/f32-gqa5/golden.safetensors");
  ASSERT_TRUE(file) << file.error().message;
  const StoredTensor* prompt = file->find("prompt.3");
  ASSERT_NE(prompt, nullptr);
  EXPECT_EQ(prompt->dtype, DType::kS32);
  EXPECT_EQ(prompt->shape, std::vector<int64_t>{33});
  for (int i = 0; i < 4; ++i) {
    const std::vector<float> exact = floats_of(*file->require(fmt::format("exact.{}", i)).value());
    const std::vector<float> logits =
        floats_of(*file->require(fmt::format("logits.{}", i)).value());
    ASSERT_EQ(exact.size(), logits.size());
    float largest = 0.0f;
    for (size_t j = 0; j < exact.size(); ++j) {
      ASSERT_NEAR(exact[j], logits[j], 1e-3f);
      largest = std::max(largest, std::fabs(exact[j]));
    }
    EXPECT_GT(largest, 1.0f);
  }
}

TEST_F(Safetensors, RefusesAFileThatIsCutAnywhere) {
  const std::string bytes = file_bytes(kTwoTensors, 12);
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(open(bytes.substr(0, size))) << "cut at " << size;
  }
  EXPECT_EQ(error_of(""),
            "x.safetensors: 0 bytes are too few for a safetensors file; download it again");
  EXPECT_EQ(error_of(bytes.substr(0, 20)),
            fmt::format("x.safetensors: cut short in its header: 20 of {} bytes; download it again",
                        8 + kTwoTensors.size()));
  EXPECT_EQ(error_of(bytes.substr(0, bytes.size() - 1)),
            "x.safetensors: tensor \"b\" ends at byte 12 of the data, of which the file has 11; it "
            "is cut short: download it again");
}

TEST_F(Safetensors, SurvivesEveryFlippedBitOfTheHeader) {
  const std::string bytes = file_bytes(kTwoTensors, 12);
  int refused = 0;
  for (size_t i = 0; i < 8 + kTwoTensors.size(); ++i) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = bytes;
      flipped[i] = static_cast<char>(flipped[i] ^ (1 << bit));
      const Result<SafetensorsFile> file = open(flipped);
      if (file) expect_sound(*file, flipped.size());
      refused += file ? 0 : 1;
    }
  }
  // What is left are other names and other types of the same size.
  EXPECT_GT(refused, static_cast<int>(kTwoTensors.size()) * 8 / 2);
}

TEST_F(Safetensors, SurvivesRandomDamageToARealHeader) {
  const std::string whole =
      read_text_file(kData + "/bf16-gqa4/model-00002-of-00002.safetensors").value();
  const uint32_t rounds = test_effort(500);
  std::mt19937 random(5);
  constexpr std::string_view kAlphabet = "{}[]\",:0123456789-.e \\u\xff";
  for (uint32_t round = 0; round < rounds; ++round) {
    std::string bytes = whole;
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      bytes[8 + random() % 1104] = kAlphabet[random() % kAlphabet.size()];
    }
    const Result<SafetensorsFile> file = open(bytes);
    if (file) expect_sound(*file, bytes.size());
  }
}

TEST_F(Safetensors, RefusesAHeaderThatIsNoHeader) {
  std::string huge = file_bytes("{}", 0);
  huge[7] = '\x7f';
  EXPECT_EQ(error_of(huge),
            "x.safetensors: not a safetensors file: its header would have 9151314442816847874 "
            "bytes; the format allows 100000000");
  EXPECT_EQ(header_error("", 0),
            "x.safetensors: not a safetensors file: its header does not begin with '{'");
  EXPECT_EQ(header_error("[1]", 0),
            "x.safetensors: not a safetensors file: its header does not begin with '{'");
  EXPECT_EQ(header_error("{\"a\"", 0), "x.safetensors: the header is not valid JSON at its byte 5");
  EXPECT_EQ(header_error("{} {}", 0), "x.safetensors: the header is not valid JSON at its byte 4");
  EXPECT_EQ(header_error("{}   ", 0), "(no error)") << "padding";
  EXPECT_EQ(header_error("{}", 3),
            "x.safetensors: 3 bytes follow the last tensor; the format allows none");
  EXPECT_NE(SafetensorsFile::open(directory_.path("none")).error().message.find("cannot open"),
            std::string::npos);
}

TEST_F(Safetensors, RecognisesAGitLfsPointer) {
  EXPECT_EQ(error_of("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 9\n"),
            "x.safetensors: is a Git LFS pointer and not the weights; run 'git lfs pull' in its "
            "folder");
}

TEST_F(Safetensors, RefusesTensorsThatAreNotDescribedProperly) {
  const auto tensor_error = [this](std::string_view description) {
    return header_error(fmt::format("{{\"w\":{}}}", description), 8);
  };
  EXPECT_EQ(tensor_error("7"), "x.safetensors: \"w\" is a number and no object");
  EXPECT_EQ(tensor_error("null"), "x.safetensors: \"w\" is null and no object");
  EXPECT_EQ(tensor_error("[]"), "x.safetensors: \"w\" is a list and no object");
  EXPECT_EQ(tensor_error("{}"), "x.safetensors: tensor \"w\" has no dtype");
  EXPECT_EQ(tensor_error(R"({"dtype":"F32","shape":[2]})"),
            "x.safetensors: tensor \"w\" has no data_offsets");
  EXPECT_EQ(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})"),
            "x.safetensors: tensor \"w\": data_offsets has 1 numbers and not 2");
  EXPECT_EQ(tensor_error(R"({"dtype":"F32","shape":[2],"data_offsets":[0,4,8]})"),
            "x.safetensors: tensor \"w\": data_offsets has more than 2 numbers");
  EXPECT_EQ(tensor_error(R"({"dtype":5})"),
            "x.safetensors: tensor \"w\": dtype is a number and not the name of a type");
  EXPECT_EQ(tensor_error(R"({"shape":"2"})"),
            "x.safetensors: tensor \"w\": shape is a text and not a list of numbers");
  EXPECT_EQ(tensor_error(R"({"shape":{}})"),
            "x.safetensors: tensor \"w\": shape is an object and not a list of numbers");
  EXPECT_EQ(tensor_error(R"({"shape":[[]]})"),
            "x.safetensors: tensor \"w\": shape has a list among its numbers");
  EXPECT_EQ(tensor_error(R"({"shape":[-2]})"),
            "x.safetensors: tensor \"w\": shape has -2, where no negative number can stand, among "
            "its numbers");
  EXPECT_EQ(tensor_error(R"({"shape":[1e3]})"),
            "x.safetensors: tensor \"w\": shape has 1e3, which is no whole number below 2^63, "
            "among its numbers");
  EXPECT_EQ(tensor_error(R"({"shape":[9223372036854775808]})"),
            "x.safetensors: tensor \"w\": shape has 9223372036854775808, which is no whole number "
            "below 2^63, among its numbers");
  EXPECT_EQ(tensor_error(R"({"shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1]})"),
            "x.safetensors: tensor \"w\": shape has more than 16 numbers");
  EXPECT_EQ(tensor_error(R"({"dtype":"F32","dtype":"F32"})"),
            "x.safetensors: \"w\" has \"dtype\" twice");
  EXPECT_EQ(tensor_error(R"({"colour":1})"),
            "x.safetensors: tensor \"w\" has \"colour\", which is not part of the format");
  EXPECT_EQ(header_error(R"({"__metadata__":{"n":1}})", 0),
            "x.safetensors: metadata \"n\" is a number and no text");
}

TEST_F(Safetensors, RefusesTensorsThatDoNotLieWhereTheySay) {
  const auto tensor_error = [this](std::string_view shape, std::string_view offsets) {
    return header_error(
        fmt::format(R"({{"w":{{"dtype":"F32","shape":{},"data_offsets":{}}}}})", shape, offsets),
        8);
  };
  EXPECT_EQ(tensor_error("[2]", "[0,8]"), "(no error)");
  EXPECT_EQ(tensor_error("[2]", "[8,0]"),
            "x.safetensors: tensor \"w\" ends at byte 0, before it begins at 8");
  EXPECT_EQ(tensor_error("[3]", "[0,12]"),
            "x.safetensors: tensor \"w\" ends at byte 12 of the data, of which the file has 8; it "
            "is cut short: download it again");
  EXPECT_EQ(tensor_error("[3]", "[0,8]"),
            "x.safetensors: tensor \"w\" of shape [3] and type F32 has 8 bytes; it must have 12");
  EXPECT_EQ(tensor_error("[4294967296,4294967296]", "[0,0]"),
            "x.safetensors: tensor \"w\" of shape [4294967296, 4294967296] is larger than 2^63 "
            "bytes");
  EXPECT_EQ(tensor_error("[4611686018427387906]", "[0,8]"),
            "x.safetensors: tensor \"w\" of shape [4611686018427387906] is larger than 2^63 bytes");
  EXPECT_EQ(tensor_error("[1]", "[4,8]"),
            "x.safetensors: bytes 0 to 4 of the data, before tensor \"w\", belong to no tensor");
  EXPECT_EQ(tensor_error("[1]", "[0,4]"),
            "x.safetensors: 4 bytes follow the last tensor; the format allows none");
}

TEST_F(Safetensors, RefusesOverlapsAndDuplicates) {
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[5],"data_offsets":[0,5]},)"
                         R"("b":{"dtype":"U8","shape":[5],"data_offsets":[3,8]}})",
                         8),
            "x.safetensors: tensor \"b\" begins at byte 3 of the data, inside \"a\", which ends at "
            "5");
  EXPECT_EQ(header_error(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},)"
                         R"("a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})",
                         8),
            "x.safetensors: \"a\" is there twice");
}

TEST_F(Safetensors, KeepsTypesItDoesNotKnowUntilTheyAreAskedFor) {
  const Result<SafetensorsFile> file =
      open(file_bytes(R"({"f8":{"dtype":"F8_E4M3","shape":[3],"data_offsets":[0,3]},)"
                      R"("w":{"dtype":"F16","shape":[2],"data_offsets":[4,8]},)"
                      R"("pad":{"dtype":"BOOL","shape":[],"data_offsets":[3,4]}}     )",
                      8));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("f8")->dtype, std::nullopt);
  EXPECT_EQ(file->find("f8")->dtype_name, "F8_E4M3");
  const std::string message = file->require("f8").error().message;
  EXPECT_TRUE(
      message.ends_with("tensor \"f8\" has type \"F8_E4M3\"; known are U8, I8, F16, BF16, "
                        "F32, I32, I64, F64"))
      << message;
  EXPECT_TRUE(file->require("w"));
  EXPECT_TRUE(file->require("x").error().message.ends_with("tensor \"x\" is not among its 3"));
}

TEST_F(Safetensors, RefusesDataThatIsNotAlignedWhenItIsAskedFor) {
  // The header has an odd length, so the data begins at an odd byte.
  std::string header = R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}})";
  if (header.size() % 2 == 0) header += ' ';
  const Result<SafetensorsFile> file = open(file_bytes(header, 4));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(file->find("w")->bytes.size(), 4u);
  EXPECT_NE(file->require("w").error().message.find("is not aligned to its type F32"),
            std::string::npos);
}

TEST_F(Safetensors, ShortensNamesInMessages) {
  const std::string name(1'000'000, 'n');
  const std::string message = header_error(fmt::format("{{\"{}\\n\":7}}", name), 0);
  EXPECT_LT(message.size(), 400u);
  EXPECT_EQ(quoted_name("a\nb\xff"), "\"a\\nb\\ufffd\"");
}

TEST_F(Safetensors, StopsAtDeepNesting) {
  const std::string deep(1'000'000, '[');
  EXPECT_EQ(header_error("{\"a\":" + deep, 0), "x.safetensors: \"a\" is a list and no object");
}

TEST(SafetensorsDType, NamesGoBothWays) {
  for (int i = 0; i < kDTypeCount; ++i) {
    const DType dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_safetensors_dtype(safetensors_dtype_name(dtype)), dtype);
  }
  EXPECT_EQ(safetensors_dtype_name(DType::kS8), "I8");
  EXPECT_EQ(safetensors_dtype_name(DType::kS64), "I64");
  EXPECT_EQ(parse_safetensors_dtype("bf16"), std::nullopt);
}

}  // namespace
}  // namespace gapless
