// SPDX-License-Identifier: Apache-2.0

#include "model/safetensors_writer.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <random>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "base/temporary_directory.h"
#include "base/test_effort.h"
#include "model/safetensors.h"
#include "tests/golden_test_support.h"

namespace gapless {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(SafetensorsWriter, WritesTheSameBytesAsTheReferenceLibrary) {
  // Method: the file was written by Python's safetensors; written again by us it must not change.
  const std::string source = golden_folder("bf16-gqa4") + "/model-00001-of-00002.safetensors";
  const Result<SafetensorsFile> file = SafetensorsFile::open(source);
  ASSERT_TRUE(file) << file.error().message;
  std::vector<TensorSpec> specs;
  for (const StoredTensor& tensor : file->tensors()) {
    specs.push_back({tensor.name, *tensor.dtype, tensor.shape});
  }
  const TemporaryDirectory directory;
  const std::string copy = directory.path("copy.safetensors");
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(copy, specs, file->metadata());
  ASSERT_TRUE(writer) << writer.error().message;
  for (const StoredTensor& tensor : file->tensors()) {
    ASSERT_TRUE(writer->append(tensor.name, tensor.bytes));
  }
  ASSERT_TRUE(writer->commit());
  EXPECT_TRUE(read_text_file(copy).value() == read_text_file(source).value());
}

TEST(SafetensorsWriter, ReadsBackAsWrittenInAnyPieces) {
  std::mt19937 random(11);
  const TemporaryDirectory directory;
  const std::string path = directory.path("random.safetensors");
  const uint32_t rounds = test_effort(60);
  for (uint32_t round = 0; round < rounds; ++round) {
    std::vector<TensorSpec> specs;
    std::vector<std::string> data;
    for (int i = kDTypeCount - 1; i >= 0; --i) {  // DType goes from narrow to wide elements
      const DType dtype = static_cast<DType>(i);
      std::vector<int64_t> shape(random() % 4);
      for (int64_t& size : shape) size = random() % 6;
      specs.push_back({fmt::format("tensor \"{}\" \u00e9", i), dtype, shape});
      data.emplace_back(static_cast<size_t>(tensor_bytes(shape, dtype).value()), '\0');
      for (char& c : data.back()) c = static_cast<char>(random());
    }
    const std::map<std::string, std::string> metadata = {{"format", "pt"}, {"a\nb", "\"c\""}};
    Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, specs, metadata);
    ASSERT_TRUE(writer) << writer.error().message;
    for (size_t i = 0; i < specs.size(); ++i) {
      for (std::string_view rest = data[i]; !rest.empty();) {
        const size_t part = std::min<size_t>(rest.size(), 1 + random() % 40);
        ASSERT_TRUE(writer->append(specs[i].name, bytes_of(rest.substr(0, part))));
        rest.remove_prefix(part);
      }
    }
    ASSERT_TRUE(writer->commit());

    const Result<SafetensorsFile> file = SafetensorsFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ(file->metadata(), metadata);
    EXPECT_EQ(file->tensors().size(), specs.size());
    for (size_t i = 0; i < specs.size(); ++i) {
      const Result<const StoredTensor*> tensor = file->require(specs[i].name);
      ASSERT_TRUE(tensor) << tensor.error().message;
      EXPECT_EQ((*tensor)->dtype, specs[i].dtype);
      EXPECT_EQ((*tensor)->shape, specs[i].shape);
      EXPECT_EQ(text_of((*tensor)->bytes), data[i]);
    }
  }
}

TEST(SafetensorsWriter, WritesAFileWithoutTensors) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("empty.safetensors");
  Result<SafetensorsWriter> writer = SafetensorsWriter::create(path, {});
  ASSERT_TRUE(writer);
  ASSERT_TRUE(writer->commit());
  EXPECT_EQ(std::filesystem::file_size(path), 16u) << "the header is padded to 8 bytes";
  const Result<SafetensorsFile> file = SafetensorsFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_TRUE(file->tensors().empty());
}

TEST(SafetensorsWriter, LeavesNothingBehindWithoutCommit) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("x.safetensors");
  {
    Result<SafetensorsWriter> writer =
        SafetensorsWriter::create(path, {{"a", DType::kU8, {4}}, {"b", DType::kU8, {2}}});
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->append("a", bytes_of("123")));
    EXPECT_EQ(writer->commit().error().message,
              path + ": tensor \"a\" has 3 of its 4 bytes, 1 more follow");
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SafetensorsWriter, RefusesDataThatWasNotAnnounced) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("x.safetensors");
  Result<SafetensorsWriter> writer =
      SafetensorsWriter::create(path, {{"a", DType::kU8, {2}}, {"b", DType::kU8, {2}}});
  ASSERT_TRUE(writer);
  EXPECT_EQ(writer->append("b", bytes_of("1")).error().message,
            path + ": data for tensor \"b\" while \"a\" has 0 of its 2 bytes");
  EXPECT_EQ(writer->append("a", bytes_of("123")).error().message,
            path + ": tensor \"a\" takes 2 bytes; 0 were written and 3 more were given");
  EXPECT_TRUE(writer->append("a", bytes_of("12")));
  EXPECT_TRUE(writer->append("b", bytes_of("34")));
  EXPECT_EQ(writer->append("b", bytes_of("5")).error().message,
            path + ": 1 bytes for tensor \"b\" after all data was written");
  EXPECT_TRUE(writer->commit());
  EXPECT_TRUE(SafetensorsFile::open(path)) << "refused data was not written";
}

std::string create_error(const std::vector<TensorSpec>& tensors) {
  const TemporaryDirectory directory;
  const Result<SafetensorsWriter> writer = SafetensorsWriter::create(directory.path("x"), tensors);
  if (writer) return "(no error)";
  return writer.error().message.substr(directory.path("").size());
}

TEST(SafetensorsWriter, RefusesTensorsThatTheFormatCannotHold) {
  EXPECT_EQ(create_error({{"a", DType::kU8, {1}}, {"a", DType::kU8, {1}}}),
            "x: tensor \"a\" is given twice");
  EXPECT_EQ(create_error({{"__metadata__", DType::kU8, {1}}}),
            "x: no tensor can be named __metadata__");
  EXPECT_EQ(create_error({{"\xff", DType::kU8, {1}}}), "x: the name of tensor 0 is not UTF-8");
  EXPECT_EQ(create_error({{"a", DType::kU8, {-1}}}),
            "x: tensor \"a\" of shape [-1]: a size is negative, or all are too large");
  EXPECT_EQ(create_error({{"a", DType::kF64, {int64_t{1} << 61}}}),
            "x: tensor \"a\" of shape [2305843009213693952]: a size is negative, or all are too "
            "large");
  EXPECT_EQ(create_error({{"a", DType::kU8, {INT64_MAX}}, {"b", DType::kU8, {1}}}),
            "x: tensor \"b\" of shape [1]: a size is negative, or all are too large");
  EXPECT_EQ(create_error({{"a", DType::kU8, std::vector<int64_t>(17, 1)}}),
            "x: tensor \"a\" has 17 dimensions; at most 16 are known");
  EXPECT_EQ(create_error({{"a", DType::kU8, {3}}, {"b", DType::kF32, {1}}}),
            "x: tensor \"b\" of type f32 would begin at byte 3, which is not a multiple of 4; give "
            "the tensors with wider elements first");
}

}  // namespace
}  // namespace gapless
