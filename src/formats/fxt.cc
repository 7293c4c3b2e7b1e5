// SPDX-License-Identifier: Apache-2.0

#include "formats/fxt.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/core.h>

#include "base/check.h"
#include "base/file.h"
#include "formats/slice_arrows.h"
#include "formats/slice_layout.h"

namespace gapless {
namespace {

constexpr uint64_t kMagicRecord = 0x0016547846040010;
constexpr uint64_t kTicksPerSecond = 1'000'000'000;

enum RecordType : uint64_t {
  kMetadataRecord = 0,
  kInitialization = 1,
  kStringRecord = 2,
  kThreadRecord = 3,
  kEventRecord = 4,
  kKernelObject = 7,
};
enum MetadataType : uint64_t { kProviderInfo = 1, kProviderSection = 2 };
enum ObjectType : uint64_t { kProcessObject = 1, kThreadObject = 2 };
enum EventType : uint64_t {
  kInstantEvent = 0,
  kCounterEvent = 1,
  kCompleteEvent = 4,
  kFlowBegin = 8,
  kFlowStep = 9,
  kFlowEnd = 10,
};
enum ArgumentType : uint64_t {
  kUint32Argument = 2,
  kUint64Argument = 4,
  kDoubleArgument = 5,
  kStringArgument = 6,
  kKoidArgument = 8,
};

constexpr size_t kMaxStringBytes = 32000;
constexpr uint32_t kMaxStringNumber = 0x7fff;
constexpr uint32_t kMaxThreadNumber = 0xff;
constexpr uint32_t kStringsPerEvent = 4;
constexpr size_t kMaxEventBytes = 16 * sizeof(uint64_t);
constexpr size_t kProgressSlices = 32 * 1024;
constexpr uint64_t kProviderNumber = 1;

// Texts that keep their number for the whole file: those of the enum, from 1.
constexpr std::string_view kFixedTexts[] = {"value",   "task", "args",
                                            "process", "flow", kUnknownKernel};
enum FixedText : uint64_t {
  kValueText = 1,
  kTaskText,
  kArgsText,
  kProcessText,
  kFlowText,
  kUnknownKernelText,
};

uint64_t argument_header(ArgumentType type, size_t words, uint64_t name) {
  return type | static_cast<uint64_t>(words) << 4 | name << 16;
}

size_t words_for(size_t bytes) { return (bytes + 7) / 8; }

// At most kMaxStringBytes, without cutting a character of UTF-8.
std::string_view shortened(std::string_view text) {
  if (text.size() <= kMaxStringBytes) return text;
  size_t size = kMaxStringBytes;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  return text.substr(0, size);
}

// One record under construction, in the memory of the file.
class RecordWriter {
 public:
  RecordWriter(OutputFile& file, size_t bytes) : file_(file), begin_(file.reserve(bytes)) {}

  void word(uint64_t value) {
    static_assert(std::endian::native == std::endian::little);
    std::memcpy(begin_ + used_, &value, sizeof(value));
    used_ += sizeof(value);
  }
  // Padded with zeros to whole words.
  void text(std::string_view text) {
    std::memset(begin_ + used_, 0, words_for(text.size()) * sizeof(uint64_t));
    std::memcpy(begin_ + used_, text.data(), text.size());
    used_ += words_for(text.size()) * sizeof(uint64_t);
  }
  // The header comes first but its size is known last.
  void finish(uint64_t header_without_size) {
    const uint64_t value = header_without_size | used_ / sizeof(uint64_t) << 4;
    std::memcpy(begin_, &value, sizeof(value));
    file_.advance(used_);
  }

 private:
  OutputFile& file_;
  char* begin_;
  size_t used_ = 0;
};

void write_string(OutputFile& file, uint32_t number, std::string_view text) {
  const std::string_view kept = shortened(text);
  RecordWriter record(file, kMaxStringBytes + 2 * sizeof(uint64_t));
  record.word(0);
  record.text(kept);
  record.finish(kStringRecord | uint64_t{number} << 16 | static_cast<uint64_t>(kept.size()) << 32);
}

class FxtWriter {
 public:
  FxtWriter(const Trace& trace, OutputFile& file, const Progress& progress)
      : trace_(trace),
        file_(file),
        progress_(progress),
        layout_(trace),
        arrows_(layout_),
        finder_(layout_),
        origin_ns_(time_range(trace).begin_ns),
        pids_(process_numbers(trace)),
        string_numbers_(trace.names.size() + layout_.rows.size()) {}

  void write() {
    write_preamble();
    write_processes();
    write_threads();
    write_slices();
    write_instants();
    write_counters();
    if (progress_) progress_(layout_.slice_count(), layout_.slice_count());
  }

 private:
  uint64_t rebased(int64_t time_ns) const {
    return static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(origin_ns_);
  }
  bool has_number(uint32_t row) const { return row < kMaxThreadNumber; }
  uint64_t pid_of(uint32_t row) const { return pids_[trace_.lanes[layout_.rows[row].lane].device]; }

  // The number of a text. Keys are those of `names`, then the rows for their names.
  uint64_t string_number(uint32_t key) {
    if (string_numbers_[key] == 0) [[unlikely]]
      define_string(key);
    return string_numbers_[key];
  }
  uint32_t row_key(uint32_t row) const { return static_cast<uint32_t>(trace_.names.size()) + row; }
  void define_string(uint32_t key);
  void make_room_for_strings();

  // Writes the words every event begins with; returns its header as far as it is known.
  uint64_t begin_event(RecordWriter& record, EventType type, uint32_t row, int64_t time_ns);

  void write_preamble();
  void write_processes();
  void write_threads();
  void write_slices();
  void write_slice(uint32_t row, uint32_t slice, int64_t begin_ns, int64_t end_ns);
  void write_arrow_point(uint32_t row, const ArrowPoint& point, int64_t time_ns);
  void write_instants();
  void write_counters();

  const Trace& trace_;
  OutputFile& file_;
  const Progress& progress_;
  const SliceLayout layout_;
  const SliceArrows arrows_;
  RowFinder finder_;
  const int64_t origin_ns_;
  const std::vector<uint32_t> pids_;
  std::vector<uint64_t> tids_;             // by row
  std::vector<uint16_t> string_numbers_;   // by key; 0: not defined now
  std::vector<uint32_t> defined_strings_;  // keys
};

void FxtWriter::define_string(uint32_t key) {
  const uint32_t number =
      static_cast<uint32_t>(std::size(kFixedTexts) + defined_strings_.size() + 1);
  GAPLESS_CHECK(number <= kMaxStringNumber);
  const uint32_t name_count = static_cast<uint32_t>(trace_.names.size());
  if (key < name_count) {
    write_string(file_, number, trace_.names[key]);
  } else {
    write_string(file_, number, row_name(trace_, layout_.rows[key - name_count]));
  }
  string_numbers_[key] = static_cast<uint16_t>(number);
  defined_strings_.push_back(key);
}

// Before an event, so that none of its texts is forgotten while it is put together.
void FxtWriter::make_room_for_strings() {
  const size_t used = std::size(kFixedTexts) + defined_strings_.size();
  if (used + kStringsPerEvent <= kMaxStringNumber) [[likely]]
    return;
  for (const uint32_t key : defined_strings_) string_numbers_[key] = 0;
  defined_strings_.clear();
}

void FxtWriter::write_preamble() {
  RecordWriter magic(file_, kMaxEventBytes);
  magic.word(kMagicRecord);
  magic.finish(kMagicRecord);
  const std::string name = fmt::format("gapless: time 0 is {} ns", origin_ns_);
  RecordWriter provider(file_, kMaxEventBytes);
  provider.word(0);
  provider.text(name);
  provider.finish(kMetadataRecord | kProviderInfo << 16 | kProviderNumber << 20 |
                  static_cast<uint64_t>(name.size()) << 52);
  RecordWriter section(file_, kMaxEventBytes);
  section.word(0);
  section.finish(kMetadataRecord | kProviderSection << 16 | kProviderNumber << 20);
  RecordWriter initialization(file_, kMaxEventBytes);
  initialization.word(0);
  initialization.word(kTicksPerSecond);
  initialization.finish(kInitialization);
  for (uint32_t i = 0; i < std::size(kFixedTexts); ++i) write_string(file_, i + 1, kFixedTexts[i]);
}

void FxtWriter::write_processes() {
  for (size_t device = 0; device < trace_.devices.size(); ++device) {
    // The last number, which is given out again after it: devices need no number of their own.
    write_string(file_, kMaxStringNumber, trace_.devices[device].name);
    RecordWriter record(file_, kMaxEventBytes);
    record.word(0);
    record.word(pids_[device]);
    record.finish(kKernelObject | kProcessObject << 16 | uint64_t{kMaxStringNumber} << 24);
  }
}

// Numbers of threads are those of the rows, from 1, less those of processes: a thread with the
// number of its process is drawn as the main thread, before all others.
void FxtWriter::write_threads() {
  uint64_t tid = 0;
  for (uint32_t row = 0; row < layout_.rows.size(); ++row) {
    do {
      ++tid;
    } while (std::find(pids_.begin(), pids_.end(), tid) != pids_.end());
    tids_.push_back(tid);
    make_room_for_strings();
    const uint64_t name = string_number(row_key(row));
    RecordWriter object(file_, kMaxEventBytes);
    object.word(0);
    object.word(tid);
    object.word(argument_header(kKoidArgument, 2, kProcessText));
    object.word(pid_of(row));
    object.finish(kKernelObject | kThreadObject << 16 | name << 24 | uint64_t{1} << 40);
    if (!has_number(row)) continue;
    RecordWriter record(file_, kMaxEventBytes);
    record.word(0);
    record.word(pid_of(row));
    record.word(tid);
    record.finish(kThreadRecord | uint64_t{row + 1} << 16);
  }
}

uint64_t FxtWriter::begin_event(RecordWriter& record, EventType type, uint32_t row,
                                int64_t time_ns) {
  record.word(0);
  record.word(rebased(time_ns));
  if (has_number(row)) return kEventRecord | type << 16 | uint64_t{row + 1} << 24;
  record.word(pid_of(row));
  record.word(tids_[row]);
  return kEventRecord | type << 16;
}

void FxtWriter::write_slices() {
  size_t done_count = 0;
  layout_.visit_in_time([&](uint32_t slice, int64_t begin_ns, int64_t end_ns) {
    const uint32_t row = finder_.row_of_next(layout_.lane(slice), slice);
    write_slice(row, slice, begin_ns, end_ns);
    for (const ArrowPoint& point : arrows_.points_of(slice)) {
      write_arrow_point(row, point, begin_ns);
    }
    if (++done_count % kProgressSlices == 0 && progress_) {
      progress_(done_count, layout_.slice_count());
    }
  });
}

void FxtWriter::write_slice(uint32_t row, uint32_t slice, int64_t begin_ns, int64_t end_ns) {
  make_room_for_strings();
  const bool is_task = layout_.is_task(slice);
  const SpanColumns& spans = trace_.spans;
  const bool has_category =
      !is_task && !spans.category.empty() && spans.category[slice] != kNoIndex;
  const bool has_args = !is_task && !spans.args.empty() && spans.args[slice] != kNoIndex;
  const uint32_t name_key = layout_.name(slice);
  const uint64_t name =
      name_key == kNoIndex ? uint64_t{kUnknownKernelText} : string_number(name_key);
  const uint64_t category = has_category ? string_number(spans.category[slice]) : 0;
  const uint64_t args = has_args ? string_number(spans.args[slice]) : 0;

  RecordWriter record(file_, kMaxEventBytes);
  uint64_t head = begin_event(record, kCompleteEvent, row, begin_ns);
  uint64_t argument_count = 0;
  if (is_task) {
    record.word(argument_header(kUint64Argument, 2, kTaskText));
    record.word(trace_.tasks.id[layout_.task(slice)]);
    ++argument_count;
  } else if (spans.value[slice] != kNoValue) {
    record.word(argument_header(kUint32Argument, 1, kValueText) | uint64_t{spans.value[slice]}
                                                                      << 32);
    ++argument_count;
  }
  if (has_args) {
    record.word(argument_header(kStringArgument, 1, kArgsText) | args << 32);
    ++argument_count;
  }
  record.word(rebased(end_ns));
  record.finish(head | argument_count << 20 | category << 32 | name << 48);
}

void FxtWriter::write_arrow_point(uint32_t row, const ArrowPoint& point, int64_t time_ns) {
  const EventType type = point.phase == FlowPhase::kOut  ? kFlowBegin
                         : point.phase == FlowPhase::kIn ? kFlowEnd
                                                         : kFlowStep;
  RecordWriter record(file_, kMaxEventBytes);
  const uint64_t head = begin_event(record, type, row, time_ns);
  record.word(point.arrow);
  record.finish(head | kFlowText << 32 | kFlowText << 48);
}

void FxtWriter::write_instants() {
  const InstantColumns& instants = trace_.instants;
  for (size_t i = 0; i < instants.size(); ++i) {
    make_room_for_strings();
    const uint64_t name = string_number(instants.name[i]);
    RecordWriter record(file_, kMaxEventBytes);
    const uint32_t row = finder_.first_row(instants.lane[i]);
    uint64_t head = begin_event(record, kInstantEvent, row, instants.time_ns[i]);
    if (instants.value[i] != kNoValue) {
      record.word(argument_header(kUint32Argument, 1, kValueText) | uint64_t{instants.value[i]}
                                                                        << 32);
      head |= uint64_t{1} << 20;
    }
    record.finish(head | name << 48);
  }
}

void FxtWriter::write_counters() {
  const CounterColumns& counters = trace_.counters;
  for (size_t i = 0; i < counters.size(); ++i) {
    make_room_for_strings();
    const uint32_t row = finder_.first_row(counters.lane[i]);
    const uint64_t lane_name = string_number(row_key(row));
    const uint64_t counter_name = string_number(counters.name[i]);
    RecordWriter record(file_, kMaxEventBytes);
    const uint64_t head = begin_event(record, kCounterEvent, row, counters.time_ns[i]);
    record.word(argument_header(kDoubleArgument, 2, counter_name));
    record.word(std::bit_cast<uint64_t>(counters.value[i]));
    record.word(row);  // the number of the counter: one for each lane
    record.finish(head | uint64_t{1} << 20 | lane_name << 48);
  }
}

}  // namespace

Result<void> write_fxt(const Trace& trace, const std::string& path, const WriteOptions& options) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  FxtWriter(trace, file, options.progress).write();
  return file.commit();
}

}  // namespace gapless
