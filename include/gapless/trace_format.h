// SPDX-License-Identifier: Apache-2.0
//
// The bytes of a Gapless trace file: what the recorder writes and every reader expects.
//
// A file is a FileHeader and then chunks. A chunk is a 64-byte ChunkHeader and a payload: metadata
// entries, raw 16-byte records of one writer, drop counters, or columns of a finished trace. All
// numbers are little-endian. docs/trace-format.md describes every byte and why it is there.

#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace gapless {

inline constexpr char kFileMagic[8] = {'G', 'A', 'P', 'L', 'E', 'S', 'S', '\n'};
inline constexpr uint32_t kTraceVersion = 1;
inline constexpr uint32_t kByteOrderMark = 0x01020304;
inline constexpr uint32_t kChunkMagic = 0x4b484347;  // "GCHK"

// What one record says. The numbers are part of the file format: append, never renumber.
enum class RecordKind : uint8_t {
  kNone = 0,  // an empty slot: where the writer has not been yet
  kSpanBegin = 1,
  kSpanEnd = 2,
  kSwitch = 3,  // ends the lane's open switch span, begins the next; kNoName: only ends
  kInstant = 4,
  kCounter = 5,  // the value is in the kPayload record that follows
  kPayload = 6,  // eight raw bytes for the record before it; carries no time
  kFlowOut = 7,
  kFlowIn = 8,
  kEdge = 9,       // task `name | lane << 16` produces for task `value`; EdgeKind instead of ticks
  kTaskCost = 10,  // bytes of task `value` instead of ticks; the kPayload that follows: flops
  kTaskSubmit = 16,
  kTaskReady = 17,
  kTaskDispatch = 18,
  kTaskReceive = 19,
  kTaskStart = 20,  // also ends the task that still runs on this lane: one record a boundary
  kTaskEnd = 21,
  kTaskFinish = 22,
};

// The seven times of a task, in the order in which they happen: kTaskSubmit plus this number.
enum class TaskTime : uint8_t {
  kSubmit = 0,
  kReady = 1,
  kDispatch = 2,
  kReceive = 3,
  kStart = 4,
  kEnd = 5,
  kFinish = 6,  // the scheduler saw the end
};
inline constexpr int kTaskTimeCount = 7;

// Why a task waits for another.
enum class EdgeKind : uint8_t {
  kData = 0,      // it reads what the other wrote
  kOrder = 1,     // it overwrites what the other read or wrote, or somebody said so
  kLifetime = 2,  // it uses memory that the other's data occupied
};
inline constexpr int kEdgeKindCount = 3;

inline constexpr int kKindBits = 5;
inline constexpr uint64_t kKindMask = (1u << kKindBits) - 1;
// Bytes or flops of a task: what fits where ticks are. A larger number is taken as this one.
inline constexpr uint64_t kMaxTaskCost = (uint64_t{1} << (64 - kKindBits)) - 1;
inline constexpr uint32_t kNoValue = 0xffffffff;
inline constexpr uint16_t kNoName = 0xffff;
inline constexpr uint16_t kNoLane = 0xffff;

// One event. `head` is stored last: a record is there when its head is not zero.
struct Record {
  uint64_t head;   // raw clock ticks << kKindBits | RecordKind
  uint32_t value;  // task id, flow id or the user's number; kNoValue: none
  uint16_t name;
  uint16_t lane;
};
static_assert(sizeof(Record) == 16 && std::is_trivially_copyable_v<Record>);

// What a lane is a timeline of.
enum class LaneKind : uint8_t {
  kThread = 0,
  kOrchestrator = 1,
  kScheduler = 2,
  kWorker = 3,      // a CPU core that runs tasks
  kCubeCore = 4,    // Ascend AIC
  kVectorCore = 5,  // Ascend AIV
  kStream = 6,      // a queue of kernels on a device
  kSm = 7,          // a GPU multiprocessor
  kOther = 8,
};
inline constexpr int kLaneKindCount = 9;

// Where the ticks of a trace come from.
enum class ClockSource : uint8_t { kNanoseconds = 0, kTsc = 1, kCntvct = 2, kMonotonicRaw = 3 };

struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t byte_order;
  uint64_t first_chunk_offset;
  uint64_t stride_bytes;  // chunks lie at multiples of this after the first; 0: packed
  uint64_t reserved[3];
  uint32_t reserved_tail;
  uint32_t crc;  // of the bytes before it
};
static_assert(sizeof(FileHeader) == 64);

enum class ChunkType : uint16_t { kMetadata = 1, kRecords = 2, kDrops = 3, kColumns = 4 };
enum class ChunkEncoding : uint16_t { kPlain = 0, kZstd = 1 };
enum class ChunkState : uint16_t { kOpen = 0, kSealed = 1 };

// The first half is written once, when the chunk is made; the second half when it is sealed. A
// chunk whose second half is not valid is open: its payload is read up to the first empty slot.
struct ChunkHeader {
  uint32_t magic;
  ChunkType type;
  uint16_t reserved0;
  uint64_t allocated_bytes;  // from this header to the next
  uint32_t writer;           // records: which writer, so that its chunks can be joined
  uint32_t sequence;         // records: the writer's chunks in order
  uint32_t reserved1;
  uint32_t identity_crc;  // of the bytes before it

  uint64_t stored_bytes;  // payload in the file
  uint64_t raw_bytes;     // payload after decoding
  ChunkEncoding encoding;
  ChunkState state;
  uint32_t payload_crc;  // of the stored bytes
  uint32_t reserved2;
  uint32_t seal_crc;  // of the second half before it
};
static_assert(sizeof(ChunkHeader) == 64);

// Metadata is a sequence of entries, each a MetadataEntry and a body, padded to eight bytes.
enum class MetadataKind : uint16_t {
  kName = 1,      // id; body: text
  kLane = 2,      // id; body: LaneBody, then the name
  kDevice = 3,    // id; body: DeviceBody, then the name
  kAnchor = 4,    // body: AnchorBody
  kClock = 5,     // body: ClockBody
  kProperty = 6,  // body: key, zero byte, value
  kFinding = 7,   // body: FindingBody, then the code, zero byte, the text
  kEnd = 8,       // body: EndBody; the trace was closed properly
};

struct MetadataEntry {
  uint32_t entry_bytes;  // this header and the body, before padding
  MetadataKind kind;
  uint16_t reserved;
  uint32_t id;
  uint32_t crc;  // of the entry with this field zero
};
static_assert(sizeof(MetadataEntry) == 16);

struct LaneBody {
  int64_t number;  // thread id, channel, core number: what the lane is called outside
  uint32_t device;
  LaneKind kind;
  uint8_t meaning;  // SpanMeaning of src/trace/trace.h
  uint16_t reserved;
  uint64_t dropped_count;
};
static_assert(sizeof(LaneBody) == 24);

struct DeviceBody {
  int64_t number;  // process id or device number
};

struct AnchorBody {
  uint64_t ticks;
  int64_t time_ns;
};

struct ClockBody {
  ClockSource source;
  uint8_t invariant;  // 1: the counter runs at one rate on all cores
  uint16_t reserved0;
  uint32_t reserved1;
  uint64_t ticks_per_second;   // a first estimate; two anchors replace it
  int64_t wall_minus_time_ns;  // add to a trace time to get nanoseconds since 1970; 0: unknown
};
static_assert(sizeof(ClockBody) == 24);

struct FindingBody {
  uint8_t severity;  // Severity of src/trace/trace.h
  uint8_t reserved[3];
  uint32_t lane;  // 0xffffffff: the whole trace
  uint64_t count;
};
static_assert(sizeof(FindingBody) == 16);

struct EndBody {
  uint64_t file_bytes;
  uint64_t record_count;  // records or rows
};

// The payload of a columns chunk starts with this; the elements follow.
struct ColumnBlock {
  uint16_t table;
  uint16_t column;
  uint32_t element_bytes;
  uint64_t first_row;
  uint64_t row_count;
  uint64_t reserved;
};
static_assert(sizeof(ColumnBlock) == 32);

}  // namespace gapless
