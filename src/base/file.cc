// SPDX-License-Identifier: Apache-2.0

#include "base/file.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <system_error>

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace gapless {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
static_assert(kBufferBytes >= OutputFile::kMaxReserve);

Error system_error(const std::string& path, const char* what, int error) {
  return fail(ErrorCode::kSystem, "{}: {}: {}", path, what, std::strerror(error));
}

struct FileDescriptor {
  int fd;
  ~FileDescriptor() {
    if (fd >= 0) ::close(fd);
  }
};

namespace fs = std::filesystem;

// What a path with symbolic links leads to.
struct LinkTarget {
  std::string path;            // without a link at its end
  bool is_descriptor = false;  // the way leads through /proc, as that of /dev/stdout
};

LinkTarget follow_links(std::string path) {
  constexpr int kMaxLinks = 40;
  for (int i = 0; i < kMaxLinks; ++i) {
    std::error_code error;
    const fs::path folder = fs::canonical(fs::absolute(path, error).parent_path(), error);
    if (!error && folder.native().starts_with("/proc/")) return {path, true};
    const fs::path target = fs::read_symlink(path, error);
    if (error) return {path, false};
    path =
        target.is_absolute() ? target.string() : (fs::path(path).parent_path() / target).string();
  }
  return {path, false};
}

}  // namespace

bool is_descriptor_path(const std::string& path) { return follow_links(path).is_descriptor; }

Result<MappedFile> MappedFile::open(const std::string& path) {
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return system_error(path, "cannot open", errno);
  struct stat info = {};
  if (::fstat(file.fd, &info) != 0) return system_error(path, "cannot stat", errno);
  if (S_ISDIR(info.st_mode)) return fail(ErrorCode::kInvalidInput, "{}: is a directory", path);

  MappedFile mapped;
  mapped.size_ = static_cast<size_t>(info.st_size);
  if (mapped.size_ == 0) return mapped;
  void* data = ::mmap(nullptr, mapped.size_, PROT_READ, MAP_SHARED, file.fd, 0);
  if (data == MAP_FAILED) {
    mapped.size_ = 0;
    return system_error(path, "cannot map", errno);
  }
  mapped.data_ = static_cast<const std::byte*>(data);
  return mapped;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

Result<OutputFile> OutputFile::create(const std::string& path) {
  const LinkTarget link = follow_links(path);
  OutputFile file;
  file.path_ = link.is_descriptor ? path : link.path;
  struct stat info = {};
  const bool exists = ::stat(path.c_str(), &info) == 0;
  if (exists && S_ISDIR(info.st_mode)) {
    return fail(ErrorCode::kInvalidInput, "{}: is a directory", path);
  }
  const bool direct = exists && (link.is_descriptor || !S_ISREG(info.st_mode));
  if (!direct) file.temporary_path_ = fmt::format("{}.tmp{}", file.path_, ::getpid());
  const std::string& target = direct ? path : file.temporary_path_;
  // A file that somebody has open keeps what it has: the shell's > has emptied it, >> has not.
  const int flags = O_WRONLY | O_CLOEXEC | (direct ? O_APPEND : O_CREAT | O_TRUNC);
  file.fd_ = ::open(target.c_str(), flags, 0644);
  if (file.fd_ < 0) {
    file.temporary_path_.clear();
    return system_error(path, "cannot create", errno);
  }
  file.buffer_ = std::make_unique_for_overwrite<char[]>(kBufferBytes);
  file.capacity_ = kBufferBytes;
  return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_path_(std::exchange(other.temporary_path_, {})),
      fd_(std::exchange(other.fd_, -1)),
      error_(other.error_),
      buffer_(std::move(other.buffer_)),
      capacity_(std::exchange(other.capacity_, 0)),
      used_(std::exchange(other.used_, 0)),
      flushed_(other.flushed_) {}

OutputFile::~OutputFile() {
  if (fd_ >= 0) ::close(fd_);
  if (!temporary_path_.empty()) ::unlink(temporary_path_.c_str());
}

void OutputFile::flush() {
  const char* data = buffer_.get();
  size_t left = used_;
  while (left > 0 && error_ == 0) {
    const ssize_t written = ::write(fd_, data, left);
    if (written < 0) {
      if (errno != EINTR) error_ = errno;
      continue;
    }
    data += written;
    left -= static_cast<size_t>(written);
  }
  flushed_ += used_;
  used_ = 0;
}

void OutputFile::append_slow(std::string_view text) {
  while (!text.empty()) {
    if (used_ == capacity_) flush();
    const size_t part = std::min(text.size(), capacity_ - used_);
    std::memcpy(buffer_.get() + used_, text.data(), part);
    used_ += part;
    text.remove_prefix(part);
  }
}

Result<void> OutputFile::commit() {
  flush();
  if (error_ != 0) return system_error(path_, "cannot write", error_);
  const int fd = std::exchange(fd_, -1);
  if (::close(fd) != 0) return system_error(path_, "cannot write", errno);
  if (temporary_path_.empty()) return {};
  if (::rename(temporary_path_.c_str(), path_.c_str()) != 0) {
    return system_error(path_, "cannot rename into place", errno);
  }
  temporary_path_.clear();
  return {};
}

Result<std::string> read_text_file(const std::string& path, size_t limit_bytes) {
  const FileDescriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) return system_error(path, "cannot open", errno);
  std::string text;
  char buffer[64 * 1024];
  while (true) {
    const ssize_t count = ::read(file.fd, buffer, sizeof(buffer));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return system_error(path, "cannot read", errno);
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > limit_bytes) {
      return fail(ErrorCode::kInvalidInput, "{}: larger than {} bytes", path, limit_bytes);
    }
  }
}

Result<void> write_text_file(const std::string& path, std::string_view text) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  file.append(text);
  return file.commit();
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return system_error(path, "cannot open", errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") names.push_back(name);
  }
  ::closedir(directory);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_directory(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Result<void> make_directories(const std::string& path) {
  for (size_t slash = path.find('/', 1);; slash = path.find('/', slash + 1)) {
    const std::string part = path.substr(0, slash);
    if (::mkdir(part.c_str(), 0755) != 0 && errno != EEXIST) {
      return system_error(part, "cannot create", errno);
    }
    if (slash == std::string::npos) break;
  }
  if (!is_directory(path)) return fail(ErrorCode::kSystem, "{}: is not a directory", path);
  return {};
}

}  // namespace gapless
