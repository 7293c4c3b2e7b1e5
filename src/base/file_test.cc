// SPDX-License-Identifier: Apache-2.0

#include "base/file.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <string>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/temporary_directory.h"

namespace gapless {
namespace {

std::string text_of(const std::string& path) {
  Result<std::string> text = read_text_file(path);
  return text ? *std::move(text) : "error: " + text.error().message;
}

size_t file_count(const TemporaryDirectory& directory) {
  return list_directory(directory.path())->size();
}

TEST(OutputFile, IsThereCompletelyAfterCommit) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out");
  Result<OutputFile> file = OutputFile::create(path);
  ASSERT_TRUE(file.has_value());
  file->append("hello ");
  file->append("world");
  EXPECT_EQ(file->bytes_written(), 11u);
  EXPECT_NE(::access(path.c_str(), F_OK), 0) << "not there before commit";
  ASSERT_TRUE(file->commit().has_value());
  EXPECT_EQ(text_of(path), "hello world");
  EXPECT_EQ(file_count(directory), 1u) << "the temporary file is gone";
}

TEST(OutputFile, LeavesNothingWithoutCommit) {
  const TemporaryDirectory directory;
  {
    Result<OutputFile> file = OutputFile::create(directory.path("out"));
    ASSERT_TRUE(file.has_value());
    file->append(std::string(3 << 20, 'x'));
    EXPECT_EQ(file_count(directory), 1u);
  }
  EXPECT_EQ(file_count(directory), 0u);
}

TEST(OutputFile, KeepsTheOldContentUntilCommit) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out");
  ASSERT_TRUE(write_text_file(path, "old").has_value());
  {
    Result<OutputFile> abandoned = OutputFile::create(path);
    ASSERT_TRUE(abandoned.has_value());
    abandoned->append("new");
  }
  EXPECT_EQ(text_of(path), "old");
  ASSERT_TRUE(write_text_file(path, "new").has_value());
  EXPECT_EQ(text_of(path), "new");
  EXPECT_EQ(file_count(directory), 1u);
}

TEST(OutputFile, AppendsMoreThanItsBuffer) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out");
  Result<OutputFile> file = OutputFile::create(path);
  ASSERT_TRUE(file.has_value());
  std::string expected;
  // Sizes around the 1 MiB buffer and its remainder.
  for (const size_t size : {size_t{1}, size_t{1} << 20, (size_t{1} << 20) - 1, size_t{3} << 20,
                            size_t{7}, (size_t{1} << 20) + 1, size_t{0}}) {
    const std::string part(size, static_cast<char>('a' + expected.size() % 26));
    file->append(part);
    expected += part;
    ASSERT_EQ(file->bytes_written(), expected.size());
  }
  ASSERT_TRUE(file->commit().has_value());
  EXPECT_TRUE(text_of(path) == expected);
}

TEST(OutputFile, EncodesInPlaceAcrossItsBufferEdge) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out");
  Result<OutputFile> file = OutputFile::create(path);
  ASSERT_TRUE(file.has_value());
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    const std::string part(OutputFile::kMaxReserve - static_cast<size_t>(i) * 100,
                           static_cast<char>('A' + i % 26));
    char* room = file->reserve(OutputFile::kMaxReserve);
    std::memcpy(room, part.data(), part.size());
    file->advance(part.size());
    file->append("|");
    expected += part + "|";
  }
  EXPECT_EQ(file->bytes_written(), expected.size());
  ASSERT_TRUE(file->commit().has_value());
  EXPECT_TRUE(text_of(path) == expected);
}

TEST(OutputFile, MovedFilesAreCommittedOnce) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("out");
  {
    Result<OutputFile> first = OutputFile::create(path);
    ASSERT_TRUE(first.has_value());
    first->append("before ");
    OutputFile second = *std::move(first);
    second.append("after");
    ASSERT_TRUE(second.commit().has_value());
  }
  EXPECT_EQ(text_of(path), "before after");
}

TEST(OutputFile, SaysWhyItCannotBeMade) {
  const TemporaryDirectory directory;
  const Result<OutputFile> missing = OutputFile::create(directory.path("no/such/out"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kSystem);
  EXPECT_EQ(missing.error().message,
            directory.path("no/such/out") + ": cannot create: No such file or directory");

  const Result<OutputFile> is_directory = OutputFile::create(directory.path());
  ASSERT_FALSE(is_directory.has_value());
  EXPECT_EQ(is_directory.error().message, directory.path() + ": is a directory");
}

TEST(OutputFile, APlaceWhereNobodyMayWriteIsAnError) {
  const Result<OutputFile> file = OutputFile::create("/proc/gapless-out");  // not even root may
  ASSERT_FALSE(file.has_value());
  EXPECT_EQ(file.error().code, ErrorCode::kSystem);
  EXPECT_TRUE(file.error().message.starts_with("/proc/gapless-out: cannot create: "));
}

TEST(OutputFile, AFullDeviceIsReportedAtCommit) {
  if (::access("/dev/full", W_OK) != 0) GTEST_SKIP() << "no /dev/full";
  for (const size_t size : {size_t{1}, size_t{5} << 20}) {
    Result<OutputFile> file = OutputFile::create("/dev/full");
    ASSERT_TRUE(file.has_value());
    file->append(std::string(size, 'x'));
    const Result<void> committed = file->commit();
    ASSERT_FALSE(committed.has_value()) << size << " bytes";
    EXPECT_EQ(committed.error().code, ErrorCode::kSystem);
    EXPECT_EQ(committed.error().message, "/dev/full: cannot write: No space left on device");
  }
  struct stat info = {};
  ASSERT_EQ(::stat("/dev/full", &info), 0);
  EXPECT_TRUE(S_ISCHR(info.st_mode)) << "the device was written to, not replaced";
}

// As /dev/stdout leads to a plain file when a shell sends it there: a rename would put a file in
// the place of the link.
TEST(OutputFile, WritesToADescriptorThroughItsLink) {
  const TemporaryDirectory directory;
  const std::string plain = directory.path("plain");
  const std::string link = directory.path("link");
  const int fd = ::open(plain.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
  ASSERT_GE(fd, 0);
  ASSERT_EQ(::write(fd, "old ", 4), 4);
  std::filesystem::create_symlink("/proc/self/fd/" + std::to_string(fd), link);
  ASSERT_TRUE(write_text_file(link, "new"));
  ::close(fd);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_EQ(read_text_file(plain).value(), "old new");
}

TEST(OutputFile, ReplacesTheFileThatALinkLeadsTo) {
  const TemporaryDirectory directory;
  std::filesystem::create_directory(directory.path("folder"));
  const std::string plain = directory.path("folder/plain");
  ASSERT_TRUE(write_text_file(plain, "old"));
  std::filesystem::create_symlink("folder/plain", directory.path("first"));
  std::filesystem::create_symlink(directory.path("first"), directory.path("second"));
  ASSERT_TRUE(write_text_file(directory.path("second"), "new"));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.path("first")));
  EXPECT_TRUE(std::filesystem::is_symlink(directory.path("second")));
  EXPECT_EQ(read_text_file(plain).value(), "new");
}

TEST(OutputFile, WritesStraightIntoAPipe) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  const std::string path = "/dev/fd/" + std::to_string(ends[1]);
  ASSERT_TRUE(write_text_file(path, "through the pipe").has_value());
  char buffer[64];
  const ssize_t count = ::read(ends[0], buffer, sizeof(buffer));
  EXPECT_EQ(std::string(buffer, static_cast<size_t>(std::max<ssize_t>(count, 0))),
            "through the pipe");
  ::close(ends[0]);
  ::close(ends[1]);
}

TEST(MappedFile, HasTheBytesOfTheFile) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("in");
  const std::string text(100'000, 'y');
  ASSERT_TRUE(write_text_file(path, text).has_value());
  Result<MappedFile> file = MappedFile::open(path);
  ASSERT_TRUE(file.has_value());
  ASSERT_EQ(file->bytes().size(), text.size());
  EXPECT_EQ(std::memcmp(file->bytes().data(), text.data(), text.size()), 0);

  MappedFile moved = *std::move(file);
  EXPECT_EQ(moved.bytes().size(), text.size());
  ASSERT_EQ(::unlink(path.c_str()), 0);
  EXPECT_EQ(moved.bytes()[99'999], std::byte{'y'}) << "stays mapped when the file is removed";
}

TEST(MappedFile, EmptyIsValidAndMissingIsNot) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(write_text_file(directory.path("empty"), "").has_value());
  const Result<MappedFile> empty = MappedFile::open(directory.path("empty"));
  ASSERT_TRUE(empty.has_value());
  EXPECT_TRUE(empty->bytes().empty());

  const Result<MappedFile> missing = MappedFile::open(directory.path("missing"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().message,
            directory.path("missing") + ": cannot open: No such file or directory");
  const Result<MappedFile> folder = MappedFile::open(directory.path());
  ASSERT_FALSE(folder.has_value());
  EXPECT_EQ(folder.error().message, directory.path() + ": is a directory");
}

TEST(ReadTextFile, HoldsItsLimit) {
  const TemporaryDirectory directory;
  const std::string path = directory.path("in");
  ASSERT_TRUE(write_text_file(path, std::string(1000, 'z')).has_value());
  EXPECT_TRUE(read_text_file(path, 1000).has_value());
  const Result<std::string> larger = read_text_file(path, 999);
  ASSERT_FALSE(larger.has_value());
  EXPECT_EQ(larger.error().message, path + ": larger than 999 bytes");
  EXPECT_FALSE(read_text_file(directory.path()).has_value()) << "a directory has no text";
}

TEST(Directories, AreMadeWithTheirParentsAndListedInOrder) {
  const TemporaryDirectory directory;
  ASSERT_TRUE(make_directories(directory.path("a/b//c/")).has_value());
  ASSERT_TRUE(make_directories(directory.path("a/b/c")).has_value()) << "again is fine";
  EXPECT_TRUE(is_directory(directory.path("a/b/c")));
  ASSERT_TRUE(write_text_file(directory.path("a/z"), "").has_value());
  ASSERT_TRUE(write_text_file(directory.path("a/.hidden"), "").has_value());
  EXPECT_EQ(*list_directory(directory.path("a")), (std::vector<std::string>{".hidden", "b", "z"}));

  EXPECT_FALSE(is_directory(directory.path("a/z")));
  const Result<void> on_file = make_directories(directory.path("a/z"));
  ASSERT_FALSE(on_file.has_value());
  EXPECT_EQ(on_file.error().message, directory.path("a/z") + ": is not a directory");
  EXPECT_FALSE(make_directories(directory.path("a/z/below")).has_value());
  EXPECT_FALSE(list_directory(directory.path("missing")).has_value());
}

}  // namespace
}  // namespace gapless
