// SPDX-License-Identifier: Apache-2.0

#include "formats/paraver.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <functional>
#include <initializer_list>
#include <limits>
#include <queue>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/core.h>

#include "base/decimal.h"
#include "base/file.h"
#include "formats/slice_arrows.h"
#include "formats/slice_layout.h"

namespace gapless {
namespace {

constexpr uint64_t kSliceEvent = 90;
constexpr uint64_t kValueEvent = 91;
constexpr uint64_t kTaskEvent = 92;
constexpr uint64_t kInstantEvent = 93;
constexpr uint64_t kFirstCounterEvent = 1001;
constexpr uint64_t kRunning = 1;

constexpr size_t kMaxRecordBytes = 512;
constexpr size_t kProgressSlices = 32 * 1024;

// Where the rows of the layout are in Paraver: numbers from 1.
struct ThreadPlace {
  uint32_t cpu;
  uint32_t task;
  uint32_t thread;
};

struct Places {
  std::vector<ThreadPlace> of_row;
  std::vector<uint32_t> rows_by_cpu;
  std::vector<uint32_t> device_of_task;  // from 0
  std::vector<uint32_t> thread_counts;   // by task, from 0
};

Places place_rows(const SliceLayout& layout) {
  const Trace& trace = layout.trace;
  Places places;
  places.of_row.resize(layout.rows.size());
  for (uint32_t device = 0; device < trace.devices.size(); ++device) {
    uint32_t thread_count = 0;
    for (uint32_t row = 0; row < layout.rows.size(); ++row) {
      if (trace.lanes[layout.rows[row].lane].device != device) continue;
      const uint32_t task = static_cast<uint32_t>(places.device_of_task.size() + 1);
      places.rows_by_cpu.push_back(row);
      const uint32_t cpu = static_cast<uint32_t>(places.rows_by_cpu.size());
      places.of_row[row] = {cpu, task, ++thread_count};
    }
    if (thread_count == 0) continue;
    places.device_of_task.push_back(device);
    places.thread_counts.push_back(thread_count);
  }
  return places;
}

// Names are lines in Paraver's files.
std::string one_line(std::string_view text) {
  std::string line(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return line;
}

// One hop of an arrow.
struct Communication {
  int64_t send_ns;
  int64_t receive_ns;
  uint32_t send_row;
  uint32_t receive_row;
  uint32_t arrow;
};

std::vector<Communication> find_communications(const SliceLayout& layout) {
  const SliceArrows arrows(layout);
  if (arrows.empty()) return {};
  struct Tail {
    uint32_t slice = kNoIndex;
    uint32_t row = 0;
  };
  std::vector<Tail> tails(arrows.arrow_count() + 1);
  std::vector<Communication> communications;
  RowFinder finder(layout);
  layout.visit_in_time([&](uint32_t slice, int64_t begin_ns, int64_t) {
    const uint32_t row = finder.row_of_next(layout.lane(slice), slice);
    for (const ArrowPoint& point : arrows.points_of(slice)) {
      const Tail tail = std::exchange(tails[point.arrow], {slice, row});
      if (tail.slice == kNoIndex) continue;
      const int64_t send_ns = std::min(layout.end_ns(tail.slice), begin_ns);
      communications.push_back({send_ns, begin_ns, tail.row, row, point.arrow});
    }
  });
  std::stable_sort(
      communications.begin(), communications.end(),
      [](const Communication& a, const Communication& b) { return a.send_ns < b.send_ns; });
  return communications;
}

// A line of numbers with colons between, encoded in the memory of the file.
class Line {
 public:
  Line(OutputFile& file, char kind) : file_(file), begin_(file.reserve(kMaxRecordBytes)) {
    begin_[0] = kind;
    end_ = begin_ + 1;
  }
  Line& number(uint64_t value) {
    *end_++ = ':';
    end_ = write_unsigned(end_, value);
    return *this;
  }
  Line& integer(int64_t value) {
    *end_++ = ':';
    end_ = write_integer(end_, value);
    return *this;
  }
  Line& place(const ThreadPlace& place) {
    constexpr uint64_t kApplication = 1;
    return number(place.cpu).number(kApplication).number(place.task).number(place.thread);
  }
  void finish() {
    *end_++ = '\n';
    file_.advance(static_cast<size_t>(end_ - begin_));
  }

 private:
  OutputFile& file_;
  char* begin_;
  char* end_;
};

class ParaverWriter {
 public:
  ParaverWriter(const Trace& trace, const Progress& progress)
      : trace_(trace),
        progress_(progress),
        layout_(trace),
        finder_(layout_),
        places_(place_rows(layout_)),
        range_(time_range(trace)),
        counter_types_(trace.names.size()) {}

  void write_records(OutputFile& file);
  void write_names(OutputFile& file) const;
  void write_rows(OutputFile& file) const;

 private:
  uint64_t rebased(int64_t time_ns) const {
    return static_cast<uint64_t>(time_ns) - static_cast<uint64_t>(range_.begin_ns);
  }
  // 0 is "none". The number after all names is a task of an unknown kernel.
  uint64_t name_value(uint32_t name) const {
    return name == kNoIndex ? trace_.names.size() + 1 : uint64_t{name} + 1;
  }

  void write_header(OutputFile& file) const;
  void append_values(OutputFile& file,
                     std::initializer_list<const std::vector<uint32_t>*> columns) const;
  void number_counters();
  void begin_slice(OutputFile& file, uint32_t slice, int64_t begin_ns, int64_t end_ns);
  void end_slices_until(OutputFile& file, int64_t time_ns);
  void write_points_until(OutputFile& file, int64_t time_ns);
  void write_instant(OutputFile& file, size_t index) const;
  void write_counter(OutputFile& file, size_t index) const;
  void write_communication(OutputFile& file, const Communication& communication) const;

  struct PendingEnd {
    int64_t end_ns;
    uint32_t row;
    bool operator>(const PendingEnd& other) const {
      return end_ns != other.end_ns ? end_ns > other.end_ns : row > other.row;
    }
  };

  const Trace& trace_;
  const Progress& progress_;
  const SliceLayout layout_;
  RowFinder finder_;
  const Places places_;
  const TimeRange range_;
  std::vector<uint64_t> counter_types_;  // by name; 0: no counter
  std::vector<uint32_t> counter_names_;  // by type, from kFirstCounterEvent
  std::vector<Communication> communications_;

  // The state of write_records: what is open, and the points that come next.
  std::priority_queue<PendingEnd, std::vector<PendingEnd>, std::greater<>> ends_;
  std::vector<std::vector<uint64_t>> open_names_;  // by row, innermost last
  size_t next_instant_ = 0;
  size_t next_counter_ = 0;
  size_t next_communication_ = 0;
};

void ParaverWriter::write_header(OutputFile& file) const {
  const int64_t wall_minus_time_ns = trace_.clock.wall_minus_time_ns;
  const std::time_t seconds =
      wall_minus_time_ns == 0 ? 0 : (range_.begin_ns + wall_minus_time_ns) / 1'000'000'000;
  const std::string date = fmt::format("{:%d/%m/%Y at %H:%M}", fmt::gmtime(seconds));
  std::string tasks;
  for (const uint32_t thread_count : places_.thread_counts) {
    tasks += fmt::format("{}{}:1", tasks.empty() ? "" : ",", thread_count);
  }
  // Paraver wants a CPU and a thread even where nothing happened.
  if (tasks.empty()) tasks = "1:1";
  file.append(fmt::format("#Paraver ({}):{}_ns:1({}):1:{}({})\n", date, rebased(range_.end_ns),
                          std::max<size_t>(1, places_.rows_by_cpu.size()),
                          std::max<size_t>(1, places_.device_of_task.size()), tasks));
}

void ParaverWriter::number_counters() {
  for (const uint32_t name : trace_.counters.name) {
    if (counter_types_[name] != 0) continue;
    counter_types_[name] = kFirstCounterEvent + counter_names_.size();
    counter_names_.push_back(name);
  }
}

void ParaverWriter::write_records(OutputFile& file) {
  number_counters();
  communications_ = find_communications(layout_);
  open_names_.resize(layout_.rows.size());
  write_header(file);
  size_t done_count = 0;
  layout_.visit_in_time([&](uint32_t slice, int64_t begin_ns, int64_t end_ns) {
    end_slices_until(file, begin_ns);
    write_points_until(file, begin_ns);
    begin_slice(file, slice, begin_ns, end_ns);
    if (++done_count % kProgressSlices == 0 && progress_) {
      progress_(done_count, layout_.slice_count());
    }
  });
  end_slices_until(file, std::numeric_limits<int64_t>::max());
  write_points_until(file, std::numeric_limits<int64_t>::max());
  if (progress_) progress_(layout_.slice_count(), layout_.slice_count());
}

void ParaverWriter::begin_slice(OutputFile& file, uint32_t slice, int64_t begin_ns,
                                int64_t end_ns) {
  const uint32_t row = finder_.row_of_next(layout_.lane(slice), slice);
  const ThreadPlace& place = places_.of_row[row];
  const uint64_t begin = rebased(begin_ns);
  if (open_names_[row].empty()) {
    Line(file, '1').place(place).number(begin).number(rebased(end_ns)).number(kRunning).finish();
  }
  open_names_[row].push_back(name_value(layout_.name(slice)));
  ends_.push({end_ns, row});
  Line line(file, '2');
  line.place(place).number(begin).number(kSliceEvent).number(open_names_[row].back());
  if (layout_.value(slice) != kNoValue) line.number(kValueEvent).number(layout_.value(slice));
  if (layout_.is_task(slice)) {
    line.number(kTaskEvent).number(trace_.tasks.id[layout_.task(slice)]);
  }
  line.finish();
}

void ParaverWriter::end_slices_until(OutputFile& file, int64_t time_ns) {
  while (!ends_.empty() && ends_.top().end_ns <= time_ns) {
    const PendingEnd end = ends_.top();
    ends_.pop();
    write_points_until(file, end.end_ns);
    std::vector<uint64_t>& names = open_names_[end.row];
    names.pop_back();
    Line(file, '2')
        .place(places_.of_row[end.row])
        .number(rebased(end.end_ns))
        .number(kSliceEvent)
        .number(names.empty() ? 0 : names.back())
        .finish();
  }
}

// Instants, counters and communications, each in order of time already.
void ParaverWriter::write_points_until(OutputFile& file, int64_t time_ns) {
  constexpr int64_t kNever = std::numeric_limits<int64_t>::max();
  for (;;) {
    const int64_t instant_ns =
        next_instant_ < trace_.instants.size() ? trace_.instants.time_ns[next_instant_] : kNever;
    const int64_t counter_ns =
        next_counter_ < trace_.counters.size() ? trace_.counters.time_ns[next_counter_] : kNever;
    const int64_t communication_ns = next_communication_ < communications_.size()
                                         ? communications_[next_communication_].send_ns
                                         : kNever;
    const int64_t first_ns = std::min({instant_ns, counter_ns, communication_ns});
    if (first_ns == kNever || first_ns > time_ns) return;
    if (first_ns == instant_ns) {
      write_instant(file, next_instant_++);
    } else if (first_ns == counter_ns) {
      write_counter(file, next_counter_++);
    } else {
      write_communication(file, communications_[next_communication_++]);
    }
  }
}

void ParaverWriter::write_instant(OutputFile& file, size_t index) const {
  const InstantColumns& instants = trace_.instants;
  Line line(file, '2');
  line.place(places_.of_row[finder_.first_row(instants.lane[index])]);
  line.number(rebased(instants.time_ns[index]));
  line.number(kInstantEvent).number(name_value(instants.name[index]));
  if (instants.value[index] != kNoValue) line.number(kValueEvent).number(instants.value[index]);
  line.finish();
}

void ParaverWriter::write_counter(OutputFile& file, size_t index) const {
  const CounterColumns& counters = trace_.counters;
  Line(file, '2')
      .place(places_.of_row[finder_.first_row(counters.lane[index])])
      .number(rebased(counters.time_ns[index]))
      .number(counter_types_[counters.name[index]])
      .integer(std::llround(counters.value[index]))
      .finish();
}

void ParaverWriter::write_communication(OutputFile& file,
                                        const Communication& communication) const {
  const uint64_t send = rebased(communication.send_ns);
  const uint64_t receive = rebased(communication.receive_ns);
  Line(file, '3')
      .place(places_.of_row[communication.send_row])
      .number(send)
      .number(send)
      .place(places_.of_row[communication.receive_row])
      .number(receive)
      .number(receive)
      .number(0)
      .number(communication.arrow)
      .finish();
}

void append_event_type(OutputFile& file, uint64_t type, std::string_view label) {
  file.append(fmt::format("\nEVENT_TYPE\n0    {}    {}\n", type, one_line(label)));
}

// The names in the columns as values of an event type.
void ParaverWriter::append_values(
    OutputFile& file, std::initializer_list<const std::vector<uint32_t>*> columns) const {
  std::vector<bool> is_used(trace_.names.size());
  for (const std::vector<uint32_t>* column : columns) {
    for (const uint32_t name : *column) {
      if (name != kNoIndex) is_used[name] = true;
    }
  }
  file.append("VALUES\n0    End\n");
  for (uint32_t name = 0; name < is_used.size(); ++name) {
    if (!is_used[name]) continue;
    file.append(fmt::format("{}    {}\n", name_value(name), one_line(trace_.names[name])));
  }
}

void ParaverWriter::write_names(OutputFile& file) const {
  file.append(fmt::format("# Written by Gapless. Time 0 is {} ns on the clock of the trace.\n\n",
                          range_.begin_ns));
  file.append(
      "DEFAULT_OPTIONS\n\nLEVEL               THREAD\nUNITS               NANOSEC\n"
      "LOOK_BACK           100\nSPEED               1\nFLAG_ICONS          ENABLED\n"
      "NUM_OF_STATE_COLORS 1000\nYMAX_SCALE          37\n\n"
      "DEFAULT_SEMANTIC\n\nTHREAD_FUNC         State As Is\n\n"
      "STATES\n0    Idle\n1    Running\n\n"
      "STATES_COLOR\n0    {117,195,255}\n1    {0,0,255}\n");
  append_event_type(file, kSliceEvent, "Innermost slice");
  append_values(file, {&trace_.spans.name, &trace_.tasks.kernel});
  if (trace_.tasks.size() != 0) {
    file.append(fmt::format("{}    {}\n", name_value(kNoIndex), kUnknownKernel));
  }
  append_event_type(file, kValueEvent, "Value of the slice");
  append_event_type(file, kTaskEvent, "Task");
  if (trace_.instants.size() != 0) {
    append_event_type(file, kInstantEvent, "Instant");
    append_values(file, {&trace_.instants.name});
  }
  for (const uint32_t name : counter_names_) {
    append_event_type(file, counter_types_[name], trace_.names[name]);
  }
}

void ParaverWriter::write_rows(OutputFile& file) const {
  std::string names;
  for (const uint32_t row : places_.rows_by_cpu) {
    names += one_line(row_name(trace_, layout_.rows[row])) + '\n';
  }
  std::string tasks;
  for (const uint32_t device : places_.device_of_task) {
    tasks += one_line(trace_.devices[device].name) + '\n';
  }
  size_t row_count = places_.rows_by_cpu.size();
  size_t task_count = places_.device_of_task.size();
  if (row_count == 0) {
    names = "empty\n";
    tasks = "empty\n";
    row_count = task_count = 1;
  }
  file.append(fmt::format("LEVEL CPU SIZE {}\n{}\n", row_count, names));
  file.append("LEVEL NODE SIZE 1\nnode\n\nLEVEL APPL SIZE 1\ntrace\n\n");
  file.append(fmt::format("LEVEL TASK SIZE {}\n{}\n", task_count, tasks));
  file.append(fmt::format("LEVEL THREAD SIZE {}\n{}", row_count, names));
}

}  // namespace

Result<void> write_paraver(const Trace& trace, const std::string& path,
                           const WriteOptions& options) {
  constexpr std::string_view kExtension = ".prv";
  const std::string stem =
      path.ends_with(kExtension) ? path.substr(0, path.size() - kExtension.size()) : path;
  OutputFile records = GAPLESS_TRY(OutputFile::create(path));
  OutputFile names = GAPLESS_TRY(OutputFile::create(stem + ".pcf"));
  OutputFile rows = GAPLESS_TRY(OutputFile::create(stem + ".row"));
  ParaverWriter writer(trace, options.progress);
  writer.write_records(records);
  writer.write_names(names);
  writer.write_rows(rows);
  GAPLESS_TRY(names.commit());
  GAPLESS_TRY(rows.commit());
  return records.commit();
}

}  // namespace gapless
