// SPDX-License-Identifier: Apache-2.0
//
// libFuzzer target: any bytes as a program of buffers, scopes and tasks, some of them nonsense.
//
// The program goes to a GraphBuilder; the oracle is the set of bytes that each task declares. What
// was refused must leave no trace: a second builder, given only what was taken, must give the same
// graph. Tasks whose bytes conflict must be ordered, and for views that regions hold exactly there
// must be no other edge. Then the program is run in the order of its numbers, in a random legal
// order, as a replay in planned memory and through a stream with a window of four tasks: the
// caller's buffers must hold the same bytes each time.

#include <algorithm>
#include <array>
#include <bitset>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "graph/graph_builder.h"
#include "graph/graph_text.h"
#include "graph/memory_plan.h"
#include "graph/reduce_edges.h"
#include "graph/region.h"
#include "graph/task_context.h"
#include "graph/validate.h"
#include "runtime/replay.h"
#include "runtime/serial_run.h"
#include "runtime/stream.h"

namespace gapless {
namespace {

constexpr size_t kMaxBuffers = 8;
constexpr size_t kBufferBytes = 256;
constexpr size_t kMaxTasks = 56;       // that the input asks for; with fills no more than 64
constexpr size_t kMaxComparisons = 24;  // arguments that are compared with each other
constexpr int32_t kMaxRunBlocks = 8;    // more are not run: each call takes its time
constexpr std::array<int64_t, 4> kValues = {0, 1, -7, std::numeric_limits<int64_t>::max()};

using Bytes = std::bitset<kBufferBytes>;
using TaskBits = uint64_t;  // a bit a task

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The bytes of a view that was accepted. Strides of 0 add none, however large the extent.
Bytes bytes_of(const View& view) {
  Bytes bytes;
  std::vector<int64_t> elements = {view.offset};
  for (size_t dimension = 0; dimension < view.rank; ++dimension) {
    const int64_t stride = view.strides[dimension];
    const int64_t extent = view.shape[dimension];
    if (extent == 0) return {};
    const size_t inner_count = elements.size();
    for (int64_t i = 1; stride != 0 && i < extent; ++i) {
      for (size_t j = 0; j < inner_count; ++j) elements.push_back(elements[j] + i * stride);
    }
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  }
  const int64_t size = dtype_bytes(view.dtype);
  for (const int64_t element : elements) {
    for (int64_t byte = 0; byte < size; ++byte) bytes.set(static_cast<size_t>(element * size + byte));
  }
  return bytes;
}

// What a kernel does to one buffer, and where it is.
struct Touched {
  Bytes read;
  Bytes written;
  std::byte* data = nullptr;
};

// Every written byte depends on every byte that is only read and, where it is read too, on what was
// there. Blocks share the bytes out among them, so that their order does not count.
template <uint64_t kOdd>
void mix_kernel(TaskContext& context) {
  std::vector<std::pair<uint32_t, Touched>> buffers;  // in order of the arguments: as submitted
  for (int i = 0; i < context.argument_count(); ++i) {
    const Argument& argument = context.argument(i);
    const uint32_t id = argument.view.buffer.id;
    auto known = std::find_if(buffers.begin(), buffers.end(),
                              [id](const auto& entry) { return entry.first == id; });
    if (known == buffers.end()) known = buffers.insert(known, {id, {}});
    const Bytes bytes = bytes_of(argument.view);
    if (reads(argument.access)) known->second.read |= bytes;
    if (writes(argument.access)) known->second.written |= bytes;
    known->second.data = context.data<std::byte>(i) -
                         argument.view.offset * dtype_bytes(argument.view.dtype);
  }
  uint64_t digest = kOdd;
  for (int i = 0; i < context.scalar_count(); ++i) {
    digest = mix(digest + static_cast<uint64_t>(context.scalar(i)));
  }
  for (const auto& [id, touched] : buffers) {
    for (size_t byte = 0; byte < kBufferBytes; ++byte) {
      if (!touched.read[byte] || touched.written[byte]) continue;
      digest = mix(digest + std::to_integer<uint64_t>(touched.data[byte]) + 1);
    }
  }
  for (const auto& [id, touched] : buffers) {
    digest = mix(digest + 1);
    for (size_t byte = 0; byte < kBufferBytes; ++byte) {
      if (!touched.written[byte]) continue;
      if (static_cast<int32_t>(byte) % context.block_count() != context.block_index()) continue;
      const uint64_t old = std::to_integer<uint64_t>(touched.data[byte]);
      const uint64_t base = touched.read[byte] ? old * kOdd : 0;
      touched.data[byte] = static_cast<std::byte>(base + mix(digest + byte));
    }
  }
}

// The input, byte by byte; zeros after its end.
class Source {
 public:
  explicit Source(std::span<const uint8_t> bytes) : bytes_(bytes) {}
  bool is_empty() const { return bytes_.empty(); }
  uint8_t next() {
    if (bytes_.empty()) return 0;
    const uint8_t byte = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return byte;
  }
  int64_t below(int64_t limit) { return next() % limit; }
  // A number of any size: mostly near a power of two, of either sign.
  int64_t any() {
    const uint8_t shape = next();
    uint64_t value = (uint64_t{1} << shape % 64) + next() - 2;
    return static_cast<int64_t>(shape >= 128 ? ~value : value);
  }

 private:
  std::span<const uint8_t> bytes_;
};

struct BufferPlan {
  std::string name;
  BufferKind kind = BufferKind::kExternal;
  int64_t bytes = 0;
};

// A TaskSpec that owns what it points to. Buffers and tasks are numbers among those accepted.
struct TaskPlan {
  TaskSpec spec;
  std::vector<Argument> arguments;
  std::vector<Scalar> scalars;
  std::vector<uint64_t> after;
};

enum class Action { kBuffer, kBeginScope, kEndScope, kTask };
struct Operation {
  Action action = Action::kTask;
  size_t index = 0;        // of Program::buffers or Program::tasks
  bool is_closing = false;  // ends what the input left open
};

struct Program {
  std::vector<BufferPlan> buffers;
  std::vector<TaskPlan> tasks;
  std::vector<Operation> operations;
  int ring_count = 1;
  bool shadow = false;
};

class Decoder {
 public:
  explicit Decoder(std::span<const uint8_t> bytes) : source_(bytes) {}
  Program decode();

 private:
  void add_buffer();
  void add_task();
  void add_fill(uint32_t buffer);
  Argument argument();
  View hostile_view();
  View tile_view(const BufferPlan& buffer);
  View strided_view(const BufferPlan& buffer);

  Source source_;
  Program program_;
  std::vector<BufferPlan> known_;  // buffers that will be accepted, by number
  size_t task_count_ = 0;
};

Program Decoder::decode() {
  const uint8_t flags = source_.next();
  program_.ring_count = 1 + flags % kMaxStreamRings;
  program_.shadow = flags >= 192;
  int depth = 0;
  add_buffer();
  while (!source_.is_empty() && task_count_ < kMaxTasks) {
    switch (source_.next() % 16) {
      case 0:
      case 1:
        add_buffer();
        break;
      case 2:
        program_.operations.push_back({Action::kBeginScope});
        ++depth;
        break;
      case 3:
        program_.operations.push_back({Action::kEndScope});
        depth = std::max(depth - 1, 0);
        break;
      default:
        add_task();
    }
  }
  for (; depth > 0; --depth) program_.operations.push_back({Action::kEndScope, 0, true});
  return std::move(program_);
}

void Decoder::add_buffer() {
  if (program_.buffers.size() == 2 * kMaxBuffers || known_.size() == kMaxBuffers) return;
  const uint8_t form = source_.next();
  BufferPlan buffer;
  buffer.kind = static_cast<BufferKind>(form % 3);
  buffer.bytes = form < 128 ? 256 : source_.next();
  for (int64_t i = source_.below(4); i > 0; --i) {
    buffer.name.push_back(static_cast<char>(source_.next()));
  }
  const bool is_wrong = form % 32 == 31;
  if (is_wrong && form >= 128) buffer.kind = static_cast<BufferKind>(3 + source_.next() % 253);
  if (is_wrong && form < 128) buffer.bytes = -1 - std::abs(source_.any() / 2);
  program_.operations.push_back({Action::kBuffer, program_.buffers.size()});
  program_.buffers.push_back(buffer);
  if (is_wrong) return;
  known_.push_back(buffer);
  // Intermediates hold nothing at first, so that most are filled.
  const bool is_filled = buffer.kind == BufferKind::kIntermediate && form % 8 != 0;
  if (is_filled) add_fill(static_cast<uint32_t>(known_.size() - 1));
}

void Decoder::add_fill(uint32_t buffer) {
  TaskPlan task;
  task.spec.kernel = KernelId{0};
  task.arguments = {out(dense_view(BufferId{buffer}, DType::kU8, {known_[buffer].bytes}))};
  program_.operations.push_back({Action::kTask, program_.tasks.size()});
  program_.tasks.push_back(std::move(task));
}

void Decoder::add_task() {
  const uint8_t form = source_.next();
  TaskPlan task;
  TaskSpec& spec = task.spec;
  spec.kernel = KernelId{static_cast<uint16_t>(form % 16 < 14 ? form % 2 : form % 5)};
  for (int64_t i = form / 16 % 4; i >= 0; --i) task.arguments.push_back(argument());
  if (form >= 64) {
    const uint8_t more = source_.next();
    spec.core = static_cast<CoreKind>(more % 16 < 12 ? more % 4 : more % 5);
    if (more / 16 == 1) spec.block_count = static_cast<int32_t>(source_.any());
    if (more / 16 >= 8) spec.block_count = more / 16 - 7;
    spec.gang = more / 16 == 2 || more == 255;
  }
  if (form >= 128) {
    const uint8_t more = source_.next();
    if (more % 4 == 1) spec.predicate.value = &kValues[static_cast<size_t>(more / 4 % 4)];
    spec.predicate.comparison = static_cast<Comparison>(more / 16 % 7);
    spec.predicate.operand = more % 2;
    for (int64_t i = more % 8 == 2 ? source_.below(20) : 0; i > 0; --i) {
      task.scalars.push_back(i % 2 == 0 ? Scalar::read_from(&kValues[1]) : Scalar::fixed(i));
    }
    if (more % 16 == 4) spec.cost = {source_.any(), source_.any()};
    if (more == 12) task.arguments.resize(kMaxArguments + 1, task.arguments.front());
  }
  if (form >= 192) {
    for (int64_t i = source_.below(4); i > 0; --i) {
      const int64_t back = 1 + source_.below(16);
      task.after.push_back(static_cast<uint64_t>(static_cast<int64_t>(task_count_) - back));
    }
    if (form == 255) task.after.push_back(static_cast<uint64_t>(source_.any()));
  }
  ++task_count_;
  program_.operations.push_back({Action::kTask, program_.tasks.size()});
  program_.tasks.push_back(std::move(task));
}

Argument Decoder::argument() {
  const uint8_t form = source_.next();
  Argument argument;
  argument.access = static_cast<Access>(form % 3);
  if (known_.empty() || form >= 248) {
    argument.view = hostile_view();
    if (form == 255) argument.access = static_cast<Access>(source_.next());
    return argument;
  }
  const size_t number = static_cast<size_t>(form / 3) % known_.size();
  const BufferPlan& buffer = known_[number];
  argument.view = form >= 128 ? strided_view(buffer) : tile_view(buffer);
  argument.view.buffer = BufferId{static_cast<uint32_t>(number)};
  if (buffer.kind == BufferKind::kConstant && form < 240) argument.access = Access::kIn;
  return argument;
}

// Any numbers; one in a while is accepted nevertheless.
View Decoder::hostile_view() {
  View view;
  const uint8_t form = source_.next();
  view.buffer = BufferId{form < 128 ? form % 4u : static_cast<uint32_t>(source_.any())};
  view.dtype = static_cast<DType>(form % 16 == 0 ? source_.next() : form % kDTypeCount);
  view.rank = static_cast<uint8_t>(form % 32 == 1 ? source_.next() : form % 5);
  view.reserved = form % 64 == 2 ? 1 : 0;
  view.offset = form % 4 == 0 ? 0 : source_.any();
  for (size_t i = 0; i < kMaxRank; ++i) {
    view.shape[i] = static_cast<int32_t>(source_.any());
    view.strides[i] = form % 8 < 4 ? source_.below(3) - 1 : source_.any();
  }
  return view;
}

// A rectangle of the buffer seen as rows of 16 bytes.
View Decoder::tile_view(const BufferPlan& buffer) {
  const int64_t rows = buffer.bytes / 16;
  const View whole = dense_view({}, DType::kU8, {rows, 16});
  const uint8_t begin = source_.next();
  const uint8_t extent = source_.next();
  const int64_t row = rows == 0 ? 0 : begin / 16 % rows;
  return tile(whole, {.row = row,
                      .rows = std::min<int64_t>(1 + extent / 16, rows - row),
                      .column = begin % 16,
                      .columns = std::min(1 + extent % 16, 16 - begin % 16)});
}

// Dimensions around each other, dense, padded, turned round, broadcast or overlapping.
View Decoder::strided_view(const BufferPlan& buffer) {
  View view;
  const uint8_t form = source_.next();
  view.dtype = static_cast<DType>(form % kDTypeCount);
  view.rank = static_cast<uint8_t>(form / 8 % 5);
  const int64_t elements = buffer.bytes / dtype_bytes(view.dtype);
  int64_t extent = 1;
  int64_t first = 0;
  for (size_t i = view.rank; i-- > 0;) {
    const uint8_t bits = source_.next();
    const int64_t count = 1 + bits % 8;
    const int64_t choice = bits / 8 % 8;
    const int64_t strides[8] = {extent, extent, extent + 1, extent + 3, -extent, 0, 1, 5};
    const int64_t reach = (count - 1) * strides[choice];
    if (extent + std::abs(reach) > elements) continue;  // an extent of 0 in this dimension
    view.shape[i] = static_cast<int32_t>(count);
    view.strides[i] = strides[choice];
    extent += std::abs(reach);
    first += std::min<int64_t>(reach, 0);
  }
  for (size_t i = 0; i < view.rank && form < 240; ++i) view.shape[i] = std::max(view.shape[i], 1);
  if (form >= 200 && view.rank < kMaxRank) view.shape[view.rank] = 7;  // not used: of no effect
  view.offset = elements < extent ? 0 : source_.below(elements - extent + 1) - first;
  return view;
}

// Hands a program to a sink and notes what was accepted under which number.
class Feed {
 public:
  Feed(const Program& program, TaskSink& sink) : program_(program), sink_(sink) {
    // Room at once: sinks keep the addresses.
    memory_.reserve(program.buffers.size());
  }

  // False when it was refused; a refusal says why.
  bool apply(const Operation& operation);
  const std::vector<BufferId>& buffers() const { return buffers_; }
  const std::vector<size_t>& tasks() const { return tasks_; }  // accepted, of Program::tasks
  // The caller's memory; intermediates have none.
  std::vector<std::vector<std::byte>>& memory() { return memory_; }

 private:
  bool add_buffer(const BufferPlan& plan);
  bool add_task(size_t index);

  const Program& program_;
  TaskSink& sink_;
  std::vector<BufferId> buffers_;
  std::vector<std::vector<std::byte>> memory_;  // by accepted buffer
  std::vector<size_t> tasks_;
  std::vector<TaskId> task_ids_;
};

template <typename T>
bool is_accepted(const Result<T>& result) {
  GAPLESS_CHECK(result.has_value() || !result.error().message.empty());
  return result.has_value();
}

bool Feed::apply(const Operation& operation) {
  switch (operation.action) {
    case Action::kBuffer:
      return add_buffer(program_.buffers[operation.index]);
    case Action::kBeginScope:
      sink_.begin_scope();
      return true;
    case Action::kEndScope:
      return is_accepted(sink_.end_scope());
    case Action::kTask:
      return add_task(operation.index);
  }
  return false;
}

bool Feed::add_buffer(const BufferPlan& plan) {
  std::vector<std::byte> memory;
  if (plan.kind != BufferKind::kIntermediate && plan.bytes > 0) {
    for (int64_t i = 0; i < plan.bytes; ++i) memory.push_back(static_cast<std::byte>(i * 37 + 1));
  }
  const Result<BufferId> added = sink_.add_buffer(
      {.name = plan.name, .kind = plan.kind, .bytes = plan.bytes, .data = memory.data()});
  if (!is_accepted(added)) return false;
  buffers_.push_back(*added);
  memory_.push_back(std::move(memory));
  return true;
}

bool Feed::add_task(size_t index) {
  const TaskPlan& plan = program_.tasks[index];
  std::vector<Argument> arguments = plan.arguments;
  for (Argument& argument : arguments) {
    const uint32_t number = argument.view.buffer.id;
    if (number < buffers_.size()) argument.view.buffer = buffers_[number];
  }
  std::vector<TaskId> after;
  for (const uint64_t number : plan.after) {
    after.push_back(number < task_ids_.size() ? task_ids_[number] : TaskId{});
  }
  TaskSpec spec = plan.spec;
  spec.arguments = arguments;
  spec.scalars = plan.scalars;
  spec.after = after;
  const Result<TaskId> added = sink_.add_task(spec);
  if (!is_accepted(added)) return false;
  task_ids_.push_back(*added);
  tasks_.push_back(index);
  return true;
}

template <typename Sink>
void add_kernels(Sink& sink) {
  GAPLESS_CHECK(sink.add_kernel("mix_3", mix_kernel<3>).has_value());
  GAPLESS_CHECK(sink.add_kernel("mix_5", mix_kernel<5>).has_value());
  GAPLESS_CHECK(sink.add_kernel("\"\n<none>", nullptr).has_value());
  GAPLESS_CHECK(!sink.add_kernel("mix_3", mix_kernel<5>).has_value());
}

// A graph with the memory that its buffers point to.
struct Recorded {
  Graph graph;
  std::vector<std::vector<std::byte>> memory;
  std::vector<bool> accepted;  // by operation
};

Recorded record(const Program& program) {
  GraphBuilder builder;
  add_kernels(builder);
  Feed feed(program, builder);
  Recorded recorded;
  for (const Operation& operation : program.operations) {
    if (operation.is_closing) GAPLESS_CHECK(!builder.finish().has_value());
    recorded.accepted.push_back(feed.apply(operation));
    GAPLESS_CHECK(builder.task_count() == feed.tasks().size());
  }
  Result<Graph> graph = builder.finish();
  GAPLESS_CHECK(graph.has_value());
  GAPLESS_CHECK(builder.task_count() == 0);
  recorded.graph = std::move(*graph);
  recorded.memory = std::move(feed.memory());
  return recorded;
}

// Only what was accepted, with all the edges that were found.
Recorded record_again(const Program& program, const std::vector<bool>& accepted) {
  GraphBuilder builder({.reduce_edges = false, .expected_tasks = 2});
  add_kernels(builder);
  Feed feed(program, builder);
  for (size_t i = 0; i < accepted.size(); ++i) {
    if (accepted[i]) GAPLESS_CHECK(feed.apply(program.operations[i]));
  }
  Result<Graph> graph = builder.finish();
  GAPLESS_CHECK(graph.has_value());
  return {std::move(*graph), std::move(feed.memory()), accepted};
}

// by task: those that a path leads from.
std::vector<TaskBits> closure_of(const Graph& graph) {
  const Result<std::vector<uint32_t>> order = topological_order(graph);
  GAPLESS_CHECK(order.has_value());
  GAPLESS_CHECK(order->size() == graph.task_count());
  std::vector<TaskBits> before(graph.task_count(), 0);
  for (const uint32_t task : *order) {
    for (const Edge& edge : graph.producers_of(task)) {
      before[task] |= before[edge.task] | TaskBits{1} << edge.task;
    }
  }
  return before;
}

bool has(TaskBits bits, uint32_t task) { return (bits >> task & 1) != 0; }

struct Footprint {
  std::array<Bytes, kMaxBuffers> read;
  std::array<Bytes, kMaxBuffers> written;
  std::bitset<kMaxBuffers> is_inexact;  // some view of the buffer is only known by its hull
};

std::vector<Footprint> footprints_of(const Graph& graph) {
  std::vector<Footprint> footprints(graph.task_count());
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    for (const Argument& argument : graph.arguments_of(task)) {
      const uint32_t buffer = argument.view.buffer.id;
      if (graph.buffers[buffer].kind == BufferKind::kConstant) continue;
      const Bytes bytes = bytes_of(argument.view);
      if (reads(argument.access)) footprints[task].read[buffer] |= bytes;
      if (writes(argument.access)) footprints[task].written[buffer] |= bytes;
      if (!region_of(argument.view).exact) footprints[task].is_inexact.set(buffer);
    }
  }
  return footprints;
}

struct Conflict {
  bool data = false;     // the later one reads what the earlier one wrote
  bool any = false;
  bool perhaps = false;  // both use a buffer of which one has a view that is not exact
};

Conflict conflict_of(const Footprint& earlier, const Footprint& later) {
  Conflict conflict;
  for (size_t buffer = 0; buffer < kMaxBuffers; ++buffer) {
    const Bytes& written = earlier.written[buffer];
    conflict.data |= (written & later.read[buffer]).any();
    conflict.any |=
        (later.written[buffer] & (earlier.read[buffer] | earlier.written[buffer])).any();
    conflict.perhaps |= earlier.is_inexact[buffer] || later.is_inexact[buffer];
  }
  conflict.any |= conflict.data;
  return conflict;
}

TaskBits explicit_edges(const Program& program, size_t task) {
  TaskBits bits = 0;
  for (const uint64_t before : program.tasks[task].after) bits |= TaskBits{1} << before;
  return bits;
}

std::vector<size_t> accepted_tasks(const Program& program, const std::vector<bool>& accepted) {
  std::vector<size_t> tasks;
  for (size_t i = 0; i < accepted.size(); ++i) {
    const Operation& operation = program.operations[i];
    if (accepted[i] && operation.action == Action::kTask) tasks.push_back(operation.index);
  }
  return tasks;
}

// All edges, before any is dropped: every conflict is ordered, and nothing else is.
void check_edges(const Program& program, const Recorded& all) {
  const Graph& graph = all.graph;
  const std::vector<Footprint> footprints = footprints_of(graph);
  const std::vector<TaskBits> before = closure_of(graph);
  const std::vector<size_t> tasks = accepted_tasks(program, all.accepted);
  for (uint32_t later = 0; later < graph.task_count(); ++later) {
    const TaskBits after = explicit_edges(program, tasks[later]);
    GAPLESS_CHECK((after & ~before[later]) == 0);
    GAPLESS_CHECK(before[later] >> later == 0);
    for (uint32_t earlier = 0; earlier < later; ++earlier) {
      if (!conflict_of(footprints[earlier], footprints[later]).any) continue;
      GAPLESS_CHECK(has(before[later], earlier));
    }
    for (const Edge& edge : graph.producers_of(later)) {
      const Conflict conflict = conflict_of(footprints[edge.task], footprints[later]);
      GAPLESS_CHECK(edge.kind != EdgeKind::kLifetime);
      GAPLESS_CHECK(conflict.any || conflict.perhaps || has(after, edge.task));
      GAPLESS_CHECK(edge.kind != EdgeKind::kData || conflict.data || conflict.perhaps);
    }
  }
}

// What each task reads comes from its last writer by an edge that says so.
void check_data_edges(const Graph& graph) {
  const std::vector<Footprint> footprints = footprints_of(graph);
  std::array<std::array<int, kBufferBytes>, kMaxBuffers> writer;
  for (std::array<int, kBufferBytes>& bytes : writer) bytes.fill(-1);
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    TaskBits data = 0;
    for (const Edge& edge : graph.producers_of(task)) {
      if (edge.kind == EdgeKind::kData) data |= TaskBits{1} << edge.task;
    }
    for (size_t buffer = 0; buffer < kMaxBuffers; ++buffer) {
      for (size_t byte = 0; byte < kBufferBytes; ++byte) {
        int& last = writer[buffer][byte];
        if (footprints[task].read[buffer][byte] && last >= 0) {
          GAPLESS_CHECK(has(data, static_cast<uint32_t>(last)));
        }
        if (footprints[task].written[buffer][byte]) last = static_cast<int>(task);
      }
    }
  }
}

// Of the edges those are left that no longer path implies, and no order is lost.
void check_reduced(const Graph& all, const Graph& reduced) {
  const std::vector<TaskBits> before = closure_of(all);
  GAPLESS_CHECK(closure_of(reduced) == before);
  for (uint32_t task = 0; task < all.task_count(); ++task) {
    TaskBits implied = 0;
    for (const Edge& edge : all.producers_of(task)) implied |= before[edge.task];
    std::vector<Edge> needed;
    for (const Edge& edge : all.producers_of(task)) {
      if (!has(implied, edge.task)) needed.push_back(edge);
    }
    GAPLESS_CHECK(std::ranges::equal(needed, reduced.producers_of(task)));
  }
}

void check_regions(const Graph& graph) {
  const size_t count = std::min(graph.arguments.size(), kMaxComparisons);
  std::vector<Region> regions;
  std::vector<Bytes> bytes;
  for (size_t i = 0; i < count; ++i) {
    regions.push_back(region_of(graph.arguments[i].view));
    bytes.push_back(bytes_of(graph.arguments[i].view));
    const size_t byte_total = static_cast<size_t>(byte_count(regions[i]));
    GAPLESS_CHECK(regions[i].exact ? byte_total == bytes[i].count() : byte_total >= bytes[i].count());
  }
  for (size_t i = 0; i < count; ++i) {
    for (size_t j = 0; j < count; ++j) {
      const bool is_exact = regions[i].exact && regions[j].exact;
      const bool meet = (bytes[i] & bytes[j]).any();
      GAPLESS_CHECK(is_exact ? overlaps(regions[i], regions[j]) == meet
                             : overlaps(regions[i], regions[j]) || !meet);
      GAPLESS_CHECK(!covers(regions[i], regions[j]) || (bytes[j] & ~bytes[i]).none());
    }
  }
}

// The tasks that use a buffer.
std::vector<TaskBits> users_of(const Graph& graph) {
  std::vector<TaskBits> users(graph.buffers.size(), 0);
  for (uint32_t task = 0; task < graph.task_count(); ++task) {
    for (const Argument& argument : graph.arguments_of(task)) {
      users[argument.view.buffer.id] |= TaskBits{1} << task;
    }
  }
  return users;
}

// The graph has the plan's edges.
void check_plan(const Graph& graph, const MemoryPlan& plan) {
  const std::vector<TaskBits> before = closure_of(graph);
  const std::vector<TaskBits> users = users_of(graph);
  const auto all_before = [&](TaskBits first, TaskBits second) {
    for (uint32_t task = 0; task < graph.task_count(); ++task) {
      if (has(second, task) && (first & ~before[task]) != 0) return false;
    }
    return true;
  };
  GAPLESS_CHECK(plan.floor_bytes <= plan.peak_bytes);
  GAPLESS_CHECK(plan.peak_bytes <= plan.sum_bytes);
  for (size_t a = 0; a < graph.buffers.size(); ++a) {
    const bool is_planned = graph.buffers[a].kind == BufferKind::kIntermediate;
    GAPLESS_CHECK(is_planned == (plan.offsets[a] >= 0));
    if (!is_planned || users[a] == 0) continue;
    GAPLESS_CHECK(plan.offsets[a] % 64 == 0);
    GAPLESS_CHECK(plan.offsets[a] + graph.buffers[a].bytes <= plan.peak_bytes);
    for (size_t b = 0; b < a; ++b) {
      if (plan.offsets[b] < 0 || users[b] == 0) continue;
      if (graph.buffers[a].bytes == 0 || graph.buffers[b].bytes == 0) continue;
      if (plan.offsets[a] >= plan.offsets[b] + graph.buffers[b].bytes) continue;
      if (plan.offsets[b] >= plan.offsets[a] + graph.buffers[a].bytes) continue;
      GAPLESS_CHECK(all_before(users[a], users[b]) || all_before(users[b], users[a]));
    }
  }
}

void check_plans(const Graph& graph) {
  const Result<MemoryPlan> plan = plan_memory(graph);
  GAPLESS_CHECK(plan.has_value());
  GAPLESS_CHECK(plan->lifetime_edges.empty());
  check_plan(graph, *plan);
  const int64_t scarce = (plan->floor_bytes + plan->peak_bytes) / 2 / 64 * 64;
  const Result<MemoryPlan> smaller =
      plan_memory(graph, {.arena_bytes = std::max<int64_t>(scarce, 64), .may_add_edges = true});
  if (!is_accepted(smaller)) return;
  GAPLESS_CHECK(smaller->peak_bytes <= std::max<int64_t>(scarce, 64));
  Graph with_edges = graph;
  GAPLESS_CHECK(add_lifetime_edges(with_edges, *smaller).has_value());
  check_plan(with_edges, *smaller);
}

void print(const Graph& graph, const Program& program) {
  GAPLESS_CHECK(!graph_text(graph, true).empty());
  GAPLESS_CHECK(!graph_dot(graph).empty());
  const DeviceLimits limits = {.any_cores = program.ring_count - 1,
                               .vector_cores = program.shadow ? 2 : 0,
                               .clusters = program.shadow ? 1 : 0,
                               .scope_tasks = 8,
                               .arena_bytes = 600};
  static_cast<void>(is_accepted(validate(graph, limits)));
}
