// SPDX-License-Identifier: Apache-2.0
//
// Writes Chrome trace-event JSON. What comes with every event of a name or a row is made into text
// once; an event is then three copies and two numbers, encoded in place in the output's buffer.
// "otherData" stands first, so that a file that is cut short still tells where its times begin.

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <zlib.h>

#include "base/decimal.h"
#include "base/file.h"
#include "base/json_scanner.h"
#include "base/json_text.h"
#include "formats/chrome_json.h"
#include "formats/slice_layout.h"

namespace gapless {
namespace {

constexpr uint32_t kProgressSlices = 10'000;  // about a MiB of text
constexpr size_t kNumbersBytes = 256;         // room for the numbers and keys of one event

char* put(char* out, std::string_view text) { return std::copy(text.begin(), text.end(), out); }

// The same three calls as OutputFile, through gzip.
class GzipOutput {
 public:
  explicit GzipOutput(OutputFile& file) : file_(file), buffer_(new char[kBufferBytes]) {}
  ~GzipOutput() { deflateEnd(&gzip_); }
  GzipOutput(const GzipOutput&) = delete;
  GzipOutput& operator=(const GzipOutput&) = delete;

  bool start() {
    constexpr int kGzip = 15 + 16;
    constexpr int kLevel = 3;  // speed before size
    return deflateInit2(&gzip_, kLevel, Z_DEFLATED, kGzip, 9, Z_DEFAULT_STRATEGY) == Z_OK;
  }
  void append(std::string_view text) {
    while (!text.empty()) {
      if (used_ == kBufferBytes) compress(Z_NO_FLUSH);
      const size_t part = std::min(text.size(), kBufferBytes - used_);
      std::memcpy(buffer_.get() + used_, text.data(), part);
      used_ += part;
      text.remove_prefix(part);
    }
  }
  char* reserve(size_t bytes) {
    if (bytes > kBufferBytes - used_) compress(Z_NO_FLUSH);
    return buffer_.get() + used_;
  }
  void advance(size_t bytes) { used_ += bytes; }
  void finish() { compress(Z_FINISH); }

 private:
  static constexpr size_t kBufferBytes = 256 * 1024;

  void compress(int flush) {
    gzip_.next_in = reinterpret_cast<unsigned char*>(buffer_.get());
    gzip_.avail_in = static_cast<uInt>(used_);
    do {
      constexpr size_t kRoom = OutputFile::kMaxReserve;
      gzip_.next_out = reinterpret_cast<unsigned char*>(file_.reserve(kRoom));
      gzip_.avail_out = static_cast<uInt>(kRoom);
      deflate(&gzip_, flush);
      file_.advance(kRoom - gzip_.avail_out);
    } while (gzip_.avail_out == 0);
    used_ = 0;
  }

  OutputFile& file_;
  std::unique_ptr<char[]> buffer_;
  size_t used_ = 0;
  z_stream gzip_ = {};
};

// Names as text for the file. Those that repeat are made once and kept; arguments, which mostly do
// not, are looked at once and copied from where they are.
class EncodedTexts {
 public:
  explicit EncodedTexts(const NameTable& names)
      : names_(names), string_of_(names.size(), kNoIndex), args_(names.size(), Args::kUnknown) {}

  // With its quotes.
  std::string_view string(uint32_t id) {
    if (string_of_[id] == kNoIndex) {
      string_of_[id] = static_cast<uint32_t>(strings_.size());
      append_json_string(strings_.emplace_back(), names_[id]);
    }
    return strings_[string_of_[id]];
  }

  // The members of a JSON object, without its braces; empty when it has none. What is no such
  // object becomes a member. Valid until the next call.
  std::string_view members(uint32_t id) {
    const std::string_view text = names_[id];
    if (args_[id] == Args::kUnknown) args_[id] = look_at(text);
    if (args_[id] == Args::kEmpty) return {};
    if (args_[id] == Args::kObject) return text.substr(1, text.size() - 2);
    scratch_ = "\"args\":";
    append_json_string(scratch_, text);
    return scratch_;
  }

 private:
  enum class Args : uint8_t { kUnknown, kEmpty, kObject, kOther };

  static Args look_at(std::string_view text) {
    JsonCursor cursor{text.data(), text.data() + text.size()};
    JsonValue value;
    const bool is_value = cursor.read_value(value) == JsonStatus::kOk && cursor.at == cursor.end;
    if (!is_value || value.kind != JsonKind::kObject || value.text.size() != text.size()) {
      return Args::kOther;
    }
    if (value.is_lenient || value.is_too_deep) return Args::kOther;
    if (text.find_first_not_of(" \t\r\n", 1) == text.size() - 1) return Args::kEmpty;
    for (size_t i = 0; i < text.size();) {
      const size_t bytes = utf8_sequence_bytes(text.substr(i));
      if (bytes == 0) return Args::kOther;
      i += bytes;
    }
    return Args::kObject;
  }

  const NameTable& names_;
  std::vector<uint32_t> string_of_;  // by name
  std::deque<std::string> strings_;
  std::vector<Args> args_;  // by name
  std::string scratch_;
};

// Numbers for viewers: what a thing is called outside when that is unique and positive for all of
// them, otherwise 1, 2, 3, ...
std::vector<int64_t> viewer_numbers(const std::vector<int64_t>& outside) {
  constexpr int64_t kLargest = std::numeric_limits<int32_t>::max() / 2;
  std::unordered_set<int64_t> seen;
  bool is_usable = true;
  for (const int64_t number : outside) {
    is_usable = is_usable && number > 0 && number <= kLargest && seen.insert(number).second;
  }
  std::vector<int64_t> numbers = outside;
  for (size_t i = 0; i < numbers.size() && !is_usable; ++i) {
    numbers[i] = static_cast<int64_t>(i) + 1;
  }
  return numbers;
}

// Where a slice is drawn.
struct Row {
  int64_t process;
  int64_t thread;
  std::string place;  // ,"pid":1,"tid":2,"ts":
};

template <typename Output>
class ChromeJsonEncoder {
 public:
  ChromeJsonEncoder(const Trace& trace, Output& output, const Progress& progress)
      : trace_(trace),
        output_(output),
        progress_(progress),
        layout_(trace),
        texts_(trace.names),
        unknown_kernel_(fmt::format("\"{}\"", kChromeUnknownKernel)),
        origin_ns_(time_range(trace).begin_ns) {}

  void write();

 private:
  void number_rows();
  void write_start();
  void write_metadata();
  void write_row_metadata(size_t row);
  void write_slice_head(uint32_t slice);
  void write_slices();
  void write_slice(uint32_t slice, std::string_view place, int64_t begin_ns, int64_t end_ns);
  char* put_task_args(char* out, uint32_t task) const;
  void write_instants();
  void write_counters();
  void write_flows();
  void write_edges();
  void index_slices();
  void write_arrow_point(std::string_view head, uint64_t id, uint32_t row, int64_t time_ns,
                         std::string_view tail);

  uint64_t since_origin(int64_t time_ns) const {
    return static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(origin_ns_);
  }
  char* put_time(char* out, int64_t time_ns) const {
    return write_microseconds(out, static_cast<int64_t>(since_origin(time_ns)));
  }
  void advance_to(const char* end, const char* begin) {
    output_.advance(static_cast<size_t>(end - begin));
  }
  // The first moment at which viewers no longer hold the slice to be open, less one.
  int64_t clamp_into(int64_t time_ns, int64_t begin_ns, int64_t end_ns) const {
    return std::max(begin_ns, std::min(time_ns, end_ns > begin_ns ? end_ns - 1 : end_ns));
  }

  const Trace& trace_;
  Output& output_;
  const Progress& progress_;
  SliceLayout layout_;
  EncodedTexts texts_;
  std::string unknown_kernel_;
  int64_t origin_ns_;
  std::vector<Row> rows_;               // by row of the layout
  std::vector<uint32_t> row_of_lane_;   // the lane itself
  std::vector<uint32_t> row_of_slice_;  // only when there are arrows
  std::vector<uint32_t> task_numbers_;  // by row of tasks: its place among those written
  uint64_t slices_done_ = 0;
};

template <typename Output>
void ChromeJsonEncoder<Output>::number_rows() {
  std::vector<int64_t> outside;
  for (const Device& device : trace_.devices) outside.push_back(device.number);
  const std::vector<int64_t> processes = viewer_numbers(outside);
  outside.clear();
  for (const Lane& lane : trace_.lanes) outside.push_back(lane.number);
  const std::vector<int64_t> threads = viewer_numbers(outside);
  int64_t next_thread = 0;
  for (const int64_t thread : threads) next_thread = std::max(next_thread, thread);

  row_of_lane_.resize(trace_.lanes.size());
  for (const SliceRow& slice_row : layout_.rows) {
    Row row;
    row.process = processes[trace_.lanes[slice_row.lane].device];
    row.thread = slice_row.sub_lane == 0 ? threads[slice_row.lane] : ++next_thread;
    row.place = fmt::format(",\"pid\":{},\"tid\":{},\"ts\":", row.process, row.thread);
    if (slice_row.sub_lane == 0) {
      row_of_lane_[slice_row.lane] = static_cast<uint32_t>(rows_.size());
    }
    rows_.push_back(std::move(row));
  }

  task_numbers_.resize(trace_.tasks.size(), kNoIndex);
  uint32_t task_number = 0;
  for (const uint32_t slice : layout_.drawn_tasks) {
    task_numbers_[layout_.task(slice)] = task_number++;
  }
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_start() {
  std::string text = fmt::format("{{\"otherData\":{{\"{}\":\"{}\"", kChromeOriginKey, origin_ns_);
  if (trace_.clock.wall_minus_time_ns != 0) {
    text += fmt::format(",\"{}\":\"{}\"", kChromeWallKey, trace_.clock.wall_minus_time_ns);
  }
  for (const Property& property : trace_.properties) {
    if (property.key == kChromeLeftOutKey) continue;
    text += ',';
    append_json_string(text, property.key);
    text += ':';
    append_json_string(text, property.value);
  }
  const size_t tasks_left_out =
      static_cast<size_t>(std::count(task_numbers_.begin(), task_numbers_.end(), kNoIndex));
  const auto is_left_out = [this](uint32_t task) { return task_numbers_[task] == kNoIndex; };
  size_t edges_left_out = 0;
  for (size_t edge = 0; edge < trace_.edges.size(); ++edge) {
    const bool left_out =
        is_left_out(trace_.edges.producer[edge]) || is_left_out(trace_.edges.consumer[edge]);
    edges_left_out += left_out ? 1 : 0;
  }
  if (tasks_left_out > 0) {
    text += fmt::format(",\"{}\":\"{} tasks without a start, an end or a lane, {} edges\"",
                        kChromeLeftOutKey, tasks_left_out, edges_left_out);
  }
  text += "},\n\"displayTimeUnit\":\"ns\",\n\"traceEvents\":[";
  output_.append(text);
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_row_metadata(size_t row) {
  const SliceRow& slice_row = layout_.rows[row];
  const Lane& lane = trace_.lanes[slice_row.lane];
  const std::string head = fmt::format("\"ph\":\"M\",\"pid\":{},\"tid\":{},\"args\":{{",
                                       rows_[row].process, rows_[row].thread);
  std::string text = ",\n{\"name\":\"thread_name\"," + head + "\"name\":";
  append_json_string(text, row_name(trace_, slice_row));
  if (slice_row.sub_lane != 0) {
    text += fmt::format(",\"gapless\":{{\"main\":{}}}", rows_[row_of_lane_[slice_row.lane]].thread);
  } else {
    text += fmt::format(",\"gapless\":{{\"kind\":{},\"number\":{},\"meaning\":{},\"dropped\":{}}}",
                        static_cast<int>(lane.kind), lane.number, static_cast<int>(lane.meaning),
                        lane.dropped_count);
  }
  text += fmt::format("}}}},\n{{\"name\":\"thread_sort_index\",{}\"sort_index\":{}}}}}", head, row);
  output_.append(text);
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_metadata() {
  std::vector<int64_t> outside;
  for (const Device& device : trace_.devices) outside.push_back(device.number);
  const std::vector<int64_t> processes = viewer_numbers(outside);
  for (size_t device = 0; device < trace_.devices.size(); ++device) {
    const std::string head =
        fmt::format("\"ph\":\"M\",\"pid\":{},\"tid\":0,\"args\":{{", processes[device]);
    std::string text = device == 0 ? "\n" : ",\n";
    text += "{\"name\":\"process_name\"," + head + "\"name\":";
    append_json_string(text, trace_.devices[device].name);
    text += fmt::format(",\"gapless\":{{\"number\":{}}}}}}},\n", trace_.devices[device].number);
    text += fmt::format("{{\"name\":\"process_sort_index\",{}\"sort_index\":{}}}}}", head, device);
    output_.append(text);
  }
  for (size_t row = 0; row < rows_.size(); ++row) write_row_metadata(row);
}

// The times of a task besides its start and end, which are those of the slice.
template <typename Output>
char* ChromeJsonEncoder<Output>::put_task_args(char* out, uint32_t task) const {
  out = put(out, ",\"args\":{\"task\":");
  out = write_unsigned(out, trace_.tasks.id[task]);
  const int64_t start_ns = trace_.tasks.at(TaskTime::kStart)[task];
  for (int i = 0; i < kTaskTimeCount; ++i) {
    const TaskTime time = static_cast<TaskTime>(i);
    const int64_t time_ns = trace_.tasks.at(time)[task];
    const bool is_drawn_so =
        time == TaskTime::kStart || (time == TaskTime::kEnd && time_ns >= start_ns);
    if (time_ns == kAbsent || is_drawn_so) continue;
    out = put(out, ",\"");
    out = put(out, task_time_name(time));
    out = put(out, "\":");
    out = put_time(out, time_ns);
  }
  return put(out, "}");
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_slice_head(uint32_t slice) {
  const uint32_t name = layout_.name(slice);
  output_.append(",\n{\"ph\":\"X\",\"name\":");
  output_.append(name == kNoIndex ? unknown_kernel_ : texts_.string(name));
  if (layout_.is_task(slice)) return output_.append(",\"cat\":\"task\"");
  const std::vector<uint32_t>& categories = trace_.spans.category;
  if (categories.empty() || categories[slice] == kNoIndex) return;
  output_.append(",\"cat\":");
  output_.append(texts_.string(categories[slice]));
}

// In order of time: going row by row would read every column in strides, four times slower.
template <typename Output>
void ChromeJsonEncoder<Output>::write_slices() {
  RowFinder finder(layout_);
  layout_.visit_in_time([&](uint32_t slice, int64_t begin_ns, int64_t end_ns) {
    const uint32_t row = finder.row_of_next(layout_.lane(slice), slice);
    write_slice(slice, rows_[row].place, begin_ns, end_ns);
    if (++slices_done_ % kProgressSlices == 0 && progress_) {
      progress_(slices_done_, layout_.slice_count());
    }
  });
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_slice(uint32_t slice, std::string_view place,
                                            int64_t begin_ns, int64_t end_ns) {
  const std::vector<uint32_t>& all_args = trace_.spans.args;
  write_slice_head(slice);
  const bool is_task = layout_.is_task(slice);
  const bool has_args = !is_task && !all_args.empty() && all_args[slice] != kNoIndex;
  const std::string_view members = has_args ? texts_.members(all_args[slice]) : "";
  const uint32_t value = layout_.value(slice);

  char* const begin = output_.reserve(2 * kNumbersBytes);
  char* out = put_time(put(begin, place), begin_ns);
  const uint64_t duration = static_cast<uint64_t>(end_ns) - static_cast<uint64_t>(begin_ns);
  out = write_microseconds(put(out, ",\"dur\":"), static_cast<int64_t>(duration));
  if (is_task) out = put_task_args(out, layout_.task(slice));
  if (value != kNoValue || !members.empty()) out = put(out, ",\"args\":{");
  if (value != kNoValue) out = write_unsigned(put(out, "\"value\":"), value);
  if (value != kNoValue && !members.empty()) *out++ = ',';
  if (value != kNoValue && members.empty()) *out++ = '}';
  if (members.empty()) *out++ = '}';
  advance_to(out, begin);
  if (!members.empty()) {
    output_.append(members);
    output_.append("}}");
  }
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_instants() {
  const InstantColumns& instants = trace_.instants;
  for (size_t i = 0; i < instants.size(); ++i) {
    output_.append(",\n{\"ph\":\"i\",\"s\":\"t\",\"name\":");
    output_.append(texts_.string(instants.name[i]));
    char* const begin = output_.reserve(kNumbersBytes);
    char* out = put(begin, rows_[row_of_lane_[instants.lane[i]]].place);
    out = put_time(out, instants.time_ns[i]);
    if (instants.value[i] != kNoValue) {
      out = put(out, ",\"args\":{\"value\":");
      out = write_unsigned(out, instants.value[i]);
      *out++ = '}';
    }
    *out++ = '}';
    advance_to(out, begin);
  }
}

// Viewers know counters by process and name. Where several lanes of a process count under one name,
// an id keeps them apart; as a string, because Perfetto passes numbers over.
template <typename Output>
void ChromeJsonEncoder<Output>::write_counters() {
  const CounterColumns& counters = trace_.counters;
  const auto key_of = [&](size_t i) {
    return uint64_t{trace_.lanes[counters.lane[i]].device} << 32 | counters.name[i];
  };
  std::unordered_map<uint64_t, uint32_t> lane_of;  // kNoIndex: several
  for (size_t i = 0; i < counters.size(); ++i) {
    const auto [entry, inserted] = lane_of.try_emplace(key_of(i), counters.lane[i]);
    if (entry->second != counters.lane[i]) entry->second = kNoIndex;
  }
  for (size_t i = 0; i < counters.size(); ++i) {
    const Row& row = rows_[row_of_lane_[counters.lane[i]]];
    output_.append(",\n{\"ph\":\"C\",\"name\":");
    output_.append(texts_.string(counters.name[i]));
    char* const begin = output_.reserve(kNumbersBytes);
    char* out = begin;
    if (lane_of.find(key_of(i))->second == kNoIndex) {
      out = put(write_integer(put(out, ",\"id\":\""), row.thread), "\"");
    }
    out = put_time(put(out, row.place), counters.time_ns[i]);
    out = write_json_number(put(out, ",\"args\":{\"value\":"), counters.value[i]);
    advance_to(put(out, "}}"), begin);
  }
}

template <typename Output>
void ChromeJsonEncoder<Output>::index_slices() {
  row_of_slice_.resize(trace_.spans.size() + trace_.tasks.size(), kNoIndex);
  for (uint32_t row = 0; row < layout_.rows.size(); ++row) {
    for (const uint32_t slice : layout_.rows[row].slices) row_of_slice_[slice] = row;
  }
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_arrow_point(std::string_view head, uint64_t id, uint32_t row,
                                                  int64_t time_ns, std::string_view tail) {
  constexpr uint64_t kLargestExactDouble = uint64_t{1} << 53;
  char* const begin = output_.reserve(2 * kNumbersBytes);
  char* out = put(begin, head);
  if (id <= kLargestExactDouble) {
    out = write_unsigned(out, id);
  } else {
    out = put(out, "\"0x");
    out = std::to_chars(out, out + 16, id, 16).ptr;
    *out++ = '"';
  }
  out = put_time(put(out, rows_[row].place), time_ns);
  advance_to(put(put(out, tail), "}"), begin);
}

template <typename Output>
void ChromeJsonEncoder<Output>::write_flows() {
  constexpr std::string_view kHeads[] = {
      ",\n{\"ph\":\"s\",\"name\":\"flow\",\"cat\":\"flow\",\"id\":",
      ",\n{\"ph\":\"t\",\"bp\":\"e\",\"name\":\"flow\",\"cat\":\"flow\",\"id\":",
      ",\n{\"ph\":\"f\",\"bp\":\"e\",\"name\":\"flow\",\"cat\":\"flow\",\"id\":"};
  const FlowColumns& flows = trace_.flows;
  for (size_t i = 0; i < flows.size(); ++i) {
    const uint32_t span = flows.span[i];
    uint32_t row = row_of_lane_[flows.lane[i]];
    int64_t time_ns = flows.time_ns[i];
    if (span != kNoIndex) {
      time_ns = clamp_into(time_ns, trace_.spans.begin_ns[span], trace_.spans.end_ns[span]);
      row = row_of_slice_[span];
    }
    // Moved so that viewers tie it to its span; readers of ours move it back.
    char tail[64];
    char* tail_end = tail;
    if (time_ns != flows.time_ns[i]) {
      tail_end = put(tail, ",\"args\":{\"later_ns\":");
      tail_end = put(write_integer(tail_end, flows.time_ns[i] - time_ns), "}");
    }
    write_arrow_point(kHeads[flows.phase[i]], flows.id[i], row, time_ns, {tail, tail_end});
  }
}

// Edges between tasks as arrows of their own category, so that their ids stand for themselves.
template <typename Output>
void ChromeJsonEncoder<Output>::write_edges() {
  const EdgeColumns& edges = trace_.edges;
  for (size_t i = 0; i < edges.size(); ++i) {
    const uint32_t producer = edges.producer[i];
    const uint32_t consumer = edges.consumer[i];
    if (task_numbers_[producer] == kNoIndex || task_numbers_[consumer] == kNoIndex) continue;
    const uint32_t from = layout_.span_count + producer;
    const uint32_t to = layout_.span_count + consumer;
    char tail[96];
    char* tail_end = put(tail, ",\"args\":{\"producer\":");
    tail_end = write_unsigned(tail_end, task_numbers_[producer]);
    tail_end = write_unsigned(put(tail_end, ",\"consumer\":"), task_numbers_[consumer]);
    tail_end = put(write_unsigned(put(tail_end, ",\"kind\":"), edges.kind[i]), "}");
    const int64_t end_ns = layout_.end_ns(from);
    write_arrow_point(",\n{\"ph\":\"s\",\"name\":\"edge\",\"cat\":\"edge\",\"id\":", i,
                      row_of_slice_[from], clamp_into(end_ns, layout_.begin_ns(from), end_ns),
                      {tail, tail_end});
    write_arrow_point(",\n{\"ph\":\"f\",\"bp\":\"e\",\"name\":\"edge\",\"cat\":\"edge\",\"id\":", i,
                      row_of_slice_[to], layout_.begin_ns(to), {});
  }
}

template <typename Output>
void ChromeJsonEncoder<Output>::write() {
  number_rows();
  write_start();
  write_metadata();
  write_slices();
  write_instants();
  write_counters();
  if (trace_.flows.size() + trace_.edges.size() > 0) index_slices();
  write_flows();
  write_edges();
  output_.append("\n]}\n");
}

}  // namespace

Result<void> write_chrome_json(const Trace& trace, const std::string& path,
                               const WriteOptions& options) {
  OutputFile file = GAPLESS_TRY(OutputFile::create(path));
  if (!options.compress) {
    ChromeJsonEncoder<OutputFile> encoder(trace, file, options.progress);
    encoder.write();
    return file.commit();
  }
  GzipOutput gzip(file);
  if (!gzip.start()) return fail(ErrorCode::kSystem, "{}: cannot start zlib", path);
  ChromeJsonEncoder<GzipOutput> encoder(trace, gzip, options.progress);
  encoder.write();
  gzip.finish();
  return file.commit();
}

}  // namespace gapless
