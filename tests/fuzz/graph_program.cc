// SPDX-License-Identifier: Apache-2.0

#include "graph_program.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>
#include <utility>

#include "graph/task_context.h"
#include "runtime/stream.h"

namespace gapless {
namespace {

constexpr std::array<int64_t, 4> kValues = {0, 1, -7, std::numeric_limits<int64_t>::max()};

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// What a kernel does to one buffer, and where it is.
struct Touched {
  Bytes read;
  Bytes written;
  std::byte* data = nullptr;
};

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
    known->second.data =
        context.data<std::byte>(i) - argument.view.offset * dtype_bytes(argument.view.dtype);
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

class Decoder {
 public:
  explicit Decoder(std::span<const uint8_t> bytes) : source_(bytes) {}
  FuzzProgram decode();

 private:
  void add_buffer();
  void add_task();
  void add_fill(uint32_t buffer);
  Argument argument();
  View hostile_view();
  View tile_view(const BufferPlan& buffer);
  View strided_view(const BufferPlan& buffer);

  Source source_;
  FuzzProgram program_;
  std::vector<BufferPlan> known_;  // buffers that will be accepted, by number
  size_t task_count_ = 0;
};

FuzzProgram Decoder::decode() {
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
  // No two tasks do the same, so that their order shows.
  task.scalars.push_back(Scalar::fixed(static_cast<int64_t>(task_count_)));
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

}  // namespace

// Strides of 0 add no bytes, however large the extent; where one extent is 0, the others may be
// any.
Bytes bytes_of(const View& view) {
  if (std::count(view.shape.begin(), view.shape.begin() + view.rank, 0) != 0) return {};
  Bytes bytes;
  std::vector<int64_t> elements = {view.offset};
  for (size_t dimension = 0; dimension < view.rank; ++dimension) {
    const int64_t stride = view.strides[dimension];
    const int64_t extent = view.shape[dimension];
    const size_t inner_count = elements.size();
    for (int64_t i = 1; stride != 0 && i < extent; ++i) {
      for (size_t j = 0; j < inner_count; ++j) elements.push_back(elements[j] + i * stride);
    }
    std::sort(elements.begin(), elements.end());
    elements.erase(std::unique(elements.begin(), elements.end()), elements.end());
  }
  const int64_t size = dtype_bytes(view.dtype);
  for (const int64_t element : elements) {
    for (int64_t byte = 0; byte < size; ++byte)
      bytes.set(static_cast<size_t>(element * size + byte));
  }
  return bytes;
}

void mix_3_kernel(TaskContext& context) { mix_kernel<3>(context); }
void mix_5_kernel(TaskContext& context) { mix_kernel<5>(context); }

FuzzProgram decode_program(std::span<const uint8_t> input) { return Decoder(input).decode(); }

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

}  // namespace gapless
