// SPDX-License-Identifier: Apache-2.0

#include "base/input_stream.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include "base/check.h"

namespace gapless {

struct InputStream::State {
  std::string name;
  std::string damage;
  int fd = -1;                        // a file, or
  std::span<const std::byte> memory;  // what is left of the memory
  uint64_t position = 0;
  uint64_t size = 0;

  bool is_gzip = false;
  bool gzip_open = false;
  bool gzip_ended = false;    // the last member is complete
  bool source_ended = false;  // all compressed bytes were taken
  z_stream gzip = {};
  std::vector<unsigned char> compressed;

  ~State() {
    if (fd >= 0) ::close(fd);
    if (gzip_open) inflateEnd(&gzip);
  }

  Result<size_t> read_source(char* out, size_t size_wanted);
  Result<size_t> read_gzip(char* out, size_t size_wanted);
  Result<void> start();
};

Result<size_t> InputStream::State::read_source(char* out, size_t size_wanted) {
  size_t done = 0;
  if (fd < 0) {
    done = std::min(size_wanted, memory.size());
    if (done > 0) std::memcpy(out, memory.data(), done);
    memory = memory.subspan(done);
    position += done;
    return done;
  }
  while (done < size_wanted) {
    const ssize_t count = ::read(fd, out + done, size_wanted - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      return fail(ErrorCode::kSystem, "{}: cannot read: {}", name, std::strerror(errno));
    }
    if (count == 0) break;
    done += static_cast<size_t>(count);
  }
  position += done;
  return done;
}

// Looks at the first two bytes without taking them.
Result<void> InputStream::State::start() {
  compressed.resize(256 * 1024);
  if (fd < 0) {
    is_gzip = memory.size() >= 2 && memory[0] == std::byte{0x1f} && memory[1] == std::byte{0x8b};
  } else {
    unsigned char magic[2] = {};
    const ssize_t count = ::pread(fd, magic, 2, 0);
    is_gzip = count == 2 && magic[0] == 0x1f && magic[1] == 0x8b;
  }
  if (!is_gzip) return {};
  constexpr int kGzipOnly = 15 + 16;
  if (inflateInit2(&gzip, kGzipOnly) != Z_OK) {
    return fail(ErrorCode::kSystem, "{}: cannot start zlib", name);
  }
  gzip_open = true;
  return {};
}

Result<size_t> InputStream::State::read_gzip(char* out, size_t size_wanted) {
  size_t done = 0;
  while (done < size_wanted && damage.empty()) {
    if (gzip.avail_in == 0 && !source_ended) {
      const size_t count =
          GAPLESS_TRY(read_source(reinterpret_cast<char*>(compressed.data()), compressed.size()));
      gzip.next_in = compressed.data();
      gzip.avail_in = static_cast<uInt>(count);
      source_ended = count == 0;
    }
    if (source_ended && gzip_ended) break;
    if (gzip_ended) {  // several members one after another are one file
      inflateReset(&gzip);
      gzip_ended = false;
    }
    const size_t room = std::min<size_t>(size_wanted - done, std::numeric_limits<uInt>::max());
    gzip.next_out = reinterpret_cast<unsigned char*>(out + done);
    gzip.avail_out = static_cast<uInt>(room);
    const int status = inflate(&gzip, Z_NO_FLUSH);
    const size_t inflated = room - gzip.avail_out;
    done += inflated;
    if (status == Z_STREAM_END) {
      gzip_ended = true;
    } else if (source_ended && inflated == 0) {  // zlib holds nothing back any more
      damage = "the gzip data stops in the middle";
    } else if (status != Z_OK && status != Z_BUF_ERROR) {
      damage = fmt::format("the gzip data is damaged near byte {}", position - gzip.avail_in);
    }
  }
  return done;
}

InputStream::InputStream(std::unique_ptr<State> state) : state_(std::move(state)) {}
InputStream::InputStream(InputStream&&) noexcept = default;
InputStream& InputStream::operator=(InputStream&&) noexcept = default;
InputStream::~InputStream() = default;

Result<InputStream> InputStream::open_file(const std::string& path) {
  std::unique_ptr<State> state = std::make_unique<State>();
  state->name = path;
  state->fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (state->fd < 0) {
    return fail(ErrorCode::kSystem, "{}: cannot open: {}", path, std::strerror(errno));
  }
  struct stat info = {};
  if (::fstat(state->fd, &info) != 0) {
    return fail(ErrorCode::kSystem, "{}: cannot stat: {}", path, std::strerror(errno));
  }
  if (S_ISDIR(info.st_mode)) return fail(ErrorCode::kInvalidInput, "{}: is a directory", path);
  if (S_ISREG(info.st_mode)) state->size = static_cast<uint64_t>(info.st_size);
  GAPLESS_TRY(state->start());
  return InputStream(std::move(state));
}

InputStream InputStream::from_memory(std::span<const std::byte> bytes, std::string name) {
  std::unique_ptr<State> state = std::make_unique<State>();
  state->name = std::move(name);
  state->memory = bytes;
  state->size = bytes.size();
  const Result<void> started = state->start();
  GAPLESS_CHECK(started.has_value());
  return InputStream(std::move(state));
}

Result<size_t> InputStream::read(std::span<char> out) {
  if (state_->is_gzip) return state_->read_gzip(out.data(), out.size());
  return state_->read_source(out.data(), out.size());
}

uint64_t InputStream::source_position() const { return state_->position; }
uint64_t InputStream::source_size() const { return state_->size; }
const std::string& InputStream::damage() const { return state_->damage; }
const std::string& InputStream::name() const { return state_->name; }

}  // namespace gapless
