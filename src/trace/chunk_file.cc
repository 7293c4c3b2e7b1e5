// SPDX-License-Identifier: Apache-2.0

#include "trace/chunk_file.h"

#include <cerrno>
#include <cstring>
#include <new>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/crc32c.h"

namespace gapless {
namespace {

#ifndef MADV_POPULATE_WRITE
constexpr int MADV_POPULATE_WRITE = 23;  // Linux 5.14; older headers do not know it
#endif

// Writing zeros is how blocks are reserved and pages are made: four times as quick as
// posix_fallocate and a fault for each page, because the kernel takes large pages.
bool write_zeros(int fd, uint64_t offset, const char* zeros) {
  // Beyond this limit the system would send SIGXFSZ, which ends the program by default.
  rlimit limit = {};
  if (::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
      offset + ChunkFile::kChunkBytes > limit.rlim_cur) {
    return false;
  }
  uint64_t done = 0;
  while (done < ChunkFile::kChunkBytes) {
    const ssize_t count = ::pwrite(fd, zeros + done, ChunkFile::kChunkBytes - done,
                                   static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return false;
    done += static_cast<uint64_t>(count);
  }
  return true;
}

// Makes every page present and writable now, so that no store has to. False when a page cannot be
// had.
bool touch_pages(std::byte* memory) {
  if (::madvise(memory, ChunkFile::kChunkBytes, MADV_POPULATE_WRITE) == 0) return true;
  if (errno != EINVAL) return false;  // EINVAL: an older kernel, which does not know this
  constexpr size_t kSmallestPage = 4096;
  for (size_t i = 0; i < ChunkFile::kChunkBytes; i += kSmallestPage) {
    *reinterpret_cast<volatile char*>(memory + i) = 0;
  }
  return true;
}

}  // namespace

ChunkFile::~ChunkFile() { close(); }

std::string ChunkFile::create(const std::string& path) {
  struct stat info = {};
  if (::stat(path.c_str(), &info) == 0 && !S_ISREG(info.st_mode)) {
    return path + ": is not a plain file; a trace is mapped while it is recorded";
  }
  // A new inode: who still has the old file open or mapped keeps it whole.
  ::unlink(path.c_str());
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (fd_ < 0) return path + ": cannot create: " + std::strerror(errno);
  FileHeader header = {};
  std::memcpy(header.magic, kFileMagic, sizeof(kFileMagic));
  header.version = kTraceVersion;
  header.byte_order = kByteOrderMark;
  header.first_chunk_offset = kFirstChunkOffset;
  header.stride_bytes = kChunkBytes;
  header.crc = crc32c(&header, offsetof(FileHeader, crc));
  errno = ENOSPC;  // what a short write means
  if (::pwrite(fd_, &header, sizeof(header), 0) != ssize_t{sizeof(header)}) {
    std::string error = path + ": cannot write: " + std::strerror(errno);
    ::unlink(path.c_str());
    return error;
  }
  return {};
}

Chunk* ChunkFile::make_chunk() {
  const uint64_t offset = end_offset_.fetch_add(kChunkBytes, std::memory_order_relaxed);
  void* memory = MAP_FAILED;
  if (write_zeros(fd_, offset, zeros_.get())) {
    memory = ::mmap(nullptr, kChunkBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_,
                    static_cast<off_t>(offset));
  }
  Chunk* chunk = memory == MAP_FAILED ? nullptr : new (std::nothrow) Chunk;
  if (chunk != nullptr && !touch_pages(static_cast<std::byte*>(memory))) {
    delete chunk;
    chunk = nullptr;
  }
  if (chunk == nullptr) {
    if (memory != MAP_FAILED) ::munmap(memory, kChunkBytes);
    // Give the place back, unless another thread has the one behind it already.
    uint64_t end = offset + kChunkBytes;
    end_offset_.compare_exchange_strong(end, offset, std::memory_order_relaxed);
    return nullptr;
  }
  chunk->memory = static_cast<std::byte*>(memory);
  chunk->offset = offset;
  return chunk;
}

void ChunkFile::identify(Chunk& chunk, ChunkType type, uint32_t writer, uint32_t sequence) {
  ChunkHeader& header = chunk.header();
  header.type = type;
  header.allocated_bytes = kChunkBytes;
  header.writer = writer;
  header.sequence = sequence;
  header.magic = kChunkMagic;
  header.identity_crc = crc32c(&header, offsetof(ChunkHeader, identity_crc));
}

void ChunkFile::seal(Chunk& chunk, uint64_t bytes) {
  ChunkHeader& header = chunk.header();
  header.stored_bytes = bytes;
  header.raw_bytes = bytes;
  header.encoding = ChunkEncoding::kPlain;
  header.state = ChunkState::kSealed;
  header.payload_crc = crc32c(chunk.payload(), bytes);
  constexpr size_t kBegin = offsetof(ChunkHeader, stored_bytes);
  header.seal_crc = crc32c(&header.stored_bytes, offsetof(ChunkHeader, seal_crc) - kBegin);
}

size_t ChunkFile::count_records(const Chunk& chunk) {
  // Filled from the front: halve the range between a filled and an empty slot.
  size_t filled = 0;
  size_t empty = kRecordsPerChunk;
  while (filled < empty) {
    const size_t middle = filled + (empty - filled) / 2;
    const std::atomic_ref<uint64_t> head(chunk.records()[middle].head);
    if (head.load(std::memory_order_acquire) != 0) {
      filled = middle + 1;
    } else {
      empty = middle;
    }
  }
  return filled;
}

void ChunkFile::clear(Chunk& chunk) { std::memset(chunk.memory, 0, kChunkBytes); }

void ChunkFile::unmap(Chunk* chunk) {
  ::munmap(chunk->memory, kChunkBytes);
  delete chunk;
}

void ChunkFile::punch(const Chunk& chunk, uint64_t bytes) {
#ifdef FALLOC_FL_PUNCH_HOLE
  // Whole pages only, and not the one a late record could still go to.
  constexpr uint64_t kPage = 64 * 1024;
  const uint64_t used = (sizeof(ChunkHeader) + bytes) / kPage * kPage + kPage;
  if (used >= kChunkBytes) return;
  // A file system that cannot do this keeps the zeros.
  static_cast<void>(::fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                                static_cast<off_t>(chunk.offset + used),
                                static_cast<off_t>(kChunkBytes - used)));
#endif
}

uint64_t ChunkFile::shrink_to(uint64_t offset) {
  struct stat info = {};
  if (::fstat(fd_, &info) != 0) return offset;
  const uint64_t size = static_cast<uint64_t>(info.st_size);
  if (size <= offset || ::ftruncate(fd_, static_cast<off_t>(offset)) != 0) return size;
  return offset;
}

void ChunkFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace gapless
