// SPDX-License-Identifier: Apache-2.0

#include "graph/memory_plan.h"

#include <algorithm>
#include <array>
#include <bit>
#include <numeric>
#include <span>
#include <utility>

#include "base/check.h"

namespace gapless {
namespace {

constexpr size_t kChunkTasks = 512;
constexpr size_t kWordBits = 64;
constexpr size_t kChunkWords = kChunkTasks / kWordBits;
using ChunkBits = std::array<uint64_t, kChunkWords>;

// A buffer that needs a place.
struct PlannedBuffer {
  uint32_t buffer = 0;  // of the graph
  int64_t bytes = 0;    // rounded up
  // The users that no other user directly follows or precedes: all of these before all of those
  // means every user before every user.
  std::vector<uint32_t> last_users;
  std::vector<uint32_t> first_users;
  uint32_t first_position = 0;  // of its users, in the topological order
  uint32_t last_position = 0;
};

// What a plan is made from.
struct Problem {
  const Graph* graph = nullptr;
  std::vector<uint32_t> order;
  std::vector<PlannedBuffer> buffers;
  int64_t sum_bytes = 0;
  int64_t floor_bytes = 0;
  uint32_t floor_task = 0;
};

// A square of bits: at(a, b) is whether all of buffer a comes before all of buffer b.
class PairBits {
 public:
  explicit PairBits(size_t count)
      : row_words_((count + kWordBits - 1) / kWordBits), words_(count * row_words_, ~uint64_t{0}) {}
  bool at(size_t a, size_t b) const {
    return (words_[a * row_words_ + b / kWordBits] >> (b % kWordBits) & 1) != 0;
  }
  void clear(size_t a, size_t b) {
    words_[a * row_words_ + b / kWordBits] &= ~(uint64_t{1} << (b % kWordBits));
  }

 private:
  size_t row_words_;
  std::vector<uint64_t> words_;
};

// Calls visit(chunk, reached) for each 512 of the sources; bit i of reached[task] says that the
// i-th source of the chunk comes before the task.
template <typename Visit>
void for_each_chunk(const Problem& problem, std::span<const uint32_t> sources, Visit visit) {
  const Graph& graph = *problem.graph;
  std::vector<ChunkBits> reached(graph.task_count());
  std::vector<uint32_t> bit_of(graph.task_count(), kNoIndex);
  for (size_t begin = 0; begin < sources.size(); begin += kChunkTasks) {
    const std::span<const uint32_t> chunk =
        sources.subspan(begin, std::min(kChunkTasks, sources.size() - begin));
    for (uint32_t i = 0; i < chunk.size(); ++i) bit_of[chunk[i]] = i;
    for (const uint32_t task : problem.order) {
      ChunkBits bits = {};
      for (const Edge& edge : graph.producers_of(task)) {
        const ChunkBits& from = reached[edge.task];
        for (size_t word = 0; word < kChunkWords; ++word) bits[word] |= from[word];
        const uint32_t bit = bit_of[edge.task];
        if (bit != kNoIndex) bits[bit / kWordBits] |= uint64_t{1} << (bit % kWordBits);
      }
      reached[task] = bits;
    }
    visit(chunk, std::span<const ChunkBits>(reached));
    for (const uint32_t task : chunk) bit_of[task] = kNoIndex;
  }
}

// The tasks that are among the last users of some buffer, neighbours of one buffer together.
std::vector<uint32_t> distinct_last_users(const Problem& problem) {
  std::vector<uint32_t> sources;
  std::vector<bool> is_source(problem.graph->task_count(), false);
  for (const PlannedBuffer& buffer : problem.buffers) {
    for (const uint32_t task : buffer.last_users) {
      if (is_source[task]) continue;
      is_source[task] = true;
      sources.push_back(task);
    }
  }
  return sources;
}

// The sources of a chunk that come before all of these tasks.
ChunkBits before_all(std::span<const uint32_t> tasks, std::span<const ChunkBits> reached) {
  ChunkBits all;
  all.fill(~uint64_t{0});
  for (const uint32_t task : tasks) {
    for (size_t word = 0; word < kChunkWords; ++word) all[word] &= reached[task][word];
  }
  return all;
}

// The bits of those tasks that are sources of the chunk.
ChunkBits bits_of(std::span<const uint32_t> tasks, const std::vector<uint32_t>& bit_of) {
  ChunkBits bits = {};
  for (const uint32_t task : tasks) {
    const uint32_t bit = bit_of[task];
    if (bit != kNoIndex) bits[bit / kWordBits] |= uint64_t{1} << (bit % kWordBits);
  }
  return bits;
}

// Clears in the row of buffer a the buffers that some of the needed sources do not come before.
void clear_unordered(PairBits& before, size_t a, const ChunkBits& needed,
                     const std::vector<ChunkBits>& first_reached) {
  for (size_t word = 0; word < kChunkWords; ++word) {
    if (needed[word] == 0) continue;
    for (size_t b = 0; b < first_reached.size(); ++b) {
      if ((needed[word] & ~first_reached[b][word]) != 0) before.clear(a, b);
    }
  }
}

PairBits find_order(const Problem& problem) {
  const std::vector<PlannedBuffer>& buffers = problem.buffers;
  PairBits before(buffers.size());
  std::vector<uint32_t> bit_of(problem.graph->task_count(), kNoIndex);
  std::vector<ChunkBits> first_reached(buffers.size());
  const auto visit = [&](std::span<const uint32_t> chunk, std::span<const ChunkBits> reached) {
    for (uint32_t i = 0; i < chunk.size(); ++i) bit_of[chunk[i]] = i;
    for (size_t b = 0; b < buffers.size(); ++b) {
      first_reached[b] = before_all(buffers[b].first_users, reached);
    }
    for (size_t a = 0; a < buffers.size(); ++a) {
      clear_unordered(before, a, bits_of(buffers[a].last_users, bit_of), first_reached);
    }
    for (const uint32_t task : chunk) bit_of[task] = kNoIndex;
  };
  for_each_chunk(problem, distinct_last_users(problem), visit);
  return before;
}

// Keeps of the users those that have no direct neighbour among them.
template <typename NeighboursOf>
std::vector<uint32_t> without_neighbours(std::span<const uint32_t> users,
                                         const std::vector<uint32_t>& user_of, uint32_t buffer,
                                         NeighboursOf neighbours_of) {
  std::vector<uint32_t> kept;
  for (const uint32_t task : users) {
    const std::span<const Edge> edges = neighbours_of(task);
    if (std::none_of(edges.begin(), edges.end(),
                     [&](const Edge& edge) { return user_of[edge.task] == buffer; })) {
      kept.push_back(task);
    }
  }
  return kept;
}

// Rounds up; false when that is beyond 64 bits.
bool round_up(int64_t bytes, int64_t alignment, int64_t* rounded) {
  if (__builtin_add_overflow(bytes, alignment - 1, rounded)) return false;
  *rounded &= -alignment;
  return true;
}

// Tasks by buffer that use it, each once, as positions in the topological order, smallest first.
std::vector<std::vector<uint32_t>> users_by_buffer(const Problem& problem) {
  const Graph& graph = *problem.graph;
  std::vector<std::vector<uint32_t>> users(graph.buffers.size());
  for (uint32_t position = 0; position < problem.order.size(); ++position) {
    for (const Argument& argument : graph.arguments_of(problem.order[position])) {
      const uint32_t buffer = argument.view.buffer.index();
      if (graph.buffers[buffer].kind != BufferKind::kIntermediate) continue;
      if (graph.buffers[buffer].bytes == 0) continue;
      if (users[buffer].empty() || users[buffer].back() != position) {
        users[buffer].push_back(position);
      }
    }
  }
  return users;
}

// The sum cannot overflow: that of all buffers does not.
void find_floor(Problem& problem) {
  std::vector<int64_t> needed(problem.order.size(), 0);
  const std::vector<std::vector<uint32_t>> users = users_by_buffer(problem);
  for (const PlannedBuffer& buffer : problem.buffers) {
    for (const uint32_t position : users[buffer.buffer]) needed[position] += buffer.bytes;
  }
  for (uint32_t position = 0; position < needed.size(); ++position) {
    if (needed[position] <= problem.floor_bytes) continue;
    problem.floor_bytes = needed[position];
    problem.floor_task = problem.order[position];
  }
}

Result<Problem> make_problem(const Graph& graph, const MemoryPlanOptions& options) {
  Problem problem;
  problem.graph = &graph;
  problem.order = GAPLESS_TRY(topological_order(graph));
  std::vector<std::vector<uint32_t>> users = users_by_buffer(problem);
  std::vector<uint32_t> user_of(graph.task_count(), kNoIndex);
  for (uint32_t buffer = 0; buffer < users.size(); ++buffer) {
    if (users[buffer].empty()) continue;
    PlannedBuffer planned;
    planned.buffer = buffer;
    planned.first_position = users[buffer].front();
    planned.last_position = users[buffer].back();
    for (uint32_t& user : users[buffer]) user = problem.order[user];
    for (const uint32_t task : users[buffer]) user_of[task] = buffer;
    planned.first_users = without_neighbours(
        users[buffer], user_of, buffer, [&](uint32_t task) { return graph.producers_of(task); });
    planned.last_users = without_neighbours(
        users[buffer], user_of, buffer, [&](uint32_t task) { return graph.successors_of(task); });
    if (!round_up(graph.buffers[buffer].bytes, options.alignment, &planned.bytes) ||
        __builtin_add_overflow(problem.sum_bytes, planned.bytes, &problem.sum_bytes)) {
      return fail(ErrorCode::kInvalidInput,
                  "buffer '{}' of {} bytes: the intermediates have more than 2^63 bytes together",
                  graph.buffers[buffer].name, graph.buffers[buffer].bytes);
    }
    problem.buffers.push_back(std::move(planned));
  }
  if (problem.buffers.size() > kMaxPlannedBuffers) {
    return fail(ErrorCode::kInvalidInput,
                "{} intermediates are in use, more than the {} that can be planned",
                problem.buffers.size(), kMaxPlannedBuffers);
  }
  find_floor(problem);
  return problem;
}

struct Placement {
  std::vector<int64_t> offsets;  // by planned buffer
  int64_t peak_bytes = 0;
};

// Places buffers one after another, each at the lowest offset where it meets none that it may not
// share with.
class Arena {
 public:
  explicit Arena(const Problem& problem) : buffers_(problem.buffers) {
    placement_.offsets.resize(buffers_.size(), 0);
    placed_.reserve(buffers_.size());
  }

  template <typename MayShare>
  int64_t lowest_offset(uint32_t buffer, MayShare may_share) const {
    int64_t offset = 0;
    for (const uint32_t other : placed_) {
      // What lies further up lies higher still, and the gap here is wide enough.
      if (placement_.offsets[other] - offset >= buffers_[buffer].bytes) break;
      const int64_t end = placement_.offsets[other] + buffers_[other].bytes;
      if (end > offset && !may_share(buffer, other)) offset = end;
    }
    return offset;
  }

  void place(uint32_t buffer, int64_t offset) {
    const auto offset_less = [this](uint32_t a, uint32_t b) {
      return placement_.offsets[a] < placement_.offsets[b];
    };
    placement_.offsets[buffer] = offset;
    placement_.peak_bytes = std::max(placement_.peak_bytes, offset + buffers_[buffer].bytes);
    placed_.insert(std::upper_bound(placed_.begin(), placed_.end(), buffer, offset_less), buffer);
  }

  const Placement& placement() const { return placement_; }

 private:
  const std::vector<PlannedBuffer>& buffers_;
  Placement placement_;
  std::vector<uint32_t> placed_;  // lowest offset first
};

template <typename MayShare>
Placement place_all(const Problem& problem, std::span<const uint32_t> turns, MayShare may_share) {
  Arena arena(problem);
  for (const uint32_t buffer : turns) arena.place(buffer, arena.lowest_offset(buffer, may_share));
  return arena.placement();
}

std::vector<uint32_t> turns_by_size(const Problem& problem) {
  std::vector<uint32_t> turns(problem.buffers.size());
  std::iota(turns.begin(), turns.end(), 0);
  std::stable_sort(turns.begin(), turns.end(), [&](uint32_t a, uint32_t b) {
    return problem.buffers[a].bytes > problem.buffers[b].bytes;
  });
  return turns;
}

std::vector<uint32_t> turns_by_first_use(const Problem& problem) {
  std::vector<uint32_t> turns(problem.buffers.size());
  std::iota(turns.begin(), turns.end(), 0);
  std::stable_sort(turns.begin(), turns.end(), [&](uint32_t a, uint32_t b) {
    return problem.buffers[a].first_position < problem.buffers[b].first_position;
  });
  return turns;
}

// Places along one legal order of the tasks. First only what would lie beyond the arena shares by
// that order, which costs the fewest edges. When that does not fit, as an allocator would that
// frees after the last use; then the largest first, which leaves fewer gaps. The smallest counts.
template <typename MayShare>
Placement place_along_order(const Problem& problem, int64_t arena_bytes, MayShare may_share) {
  const std::vector<PlannedBuffer>& buffers = problem.buffers;
  const auto may_share_in_time = [&](uint32_t a, uint32_t b) {
    return buffers[a].last_position < buffers[b].first_position ||
           buffers[b].last_position < buffers[a].first_position;
  };
  Arena arena(problem);
  for (const uint32_t buffer : turns_by_size(problem)) {
    int64_t offset = arena.lowest_offset(buffer, may_share);
    if (offset + buffers[buffer].bytes > arena_bytes) {
      offset = arena.lowest_offset(buffer, may_share_in_time);
    }
    arena.place(buffer, offset);
  }
  Placement best = arena.placement();
  for (const std::vector<uint32_t>& turns : {turns_by_first_use(problem), turns_by_size(problem)}) {
    if (best.peak_bytes <= arena_bytes) break;
    Placement other = place_all(problem, turns, may_share_in_time);
    if (other.peak_bytes < best.peak_bytes) best = std::move(other);
  }
  return best;
}

// A stretch of the arena and the buffer that has used it last.
struct Occupied {
  int64_t begin = 0;
  int64_t end = 0;
  uint32_t buffer = 0;
};

// Pairs (a, b) where b is the next after a to use some byte: with these in order, all are.
std::vector<std::pair<uint32_t, uint32_t>> immediate_reuses(const Problem& problem,
                                                            const Placement& placement) {
  std::vector<std::pair<uint32_t, uint32_t>> reuses;
  std::vector<Occupied> occupied;
  std::vector<Occupied> next;
  for (const uint32_t buffer : turns_by_first_use(problem)) {
    const int64_t begin = placement.offsets[buffer];
    const int64_t end = begin + problem.buffers[buffer].bytes;
    const size_t first_reuse = reuses.size();
    next.clear();
    for (const Occupied& old : occupied) {
      if (old.end <= begin || old.begin >= end) {
        next.push_back(old);
        continue;
      }
      reuses.emplace_back(old.buffer, buffer);
      if (old.begin < begin) next.push_back({old.begin, begin, old.buffer});
      if (old.end > end) next.push_back({end, old.end, old.buffer});
    }
    next.push_back({begin, end, buffer});
    occupied.swap(next);
    // A buffer that was cut in two is met twice.
    const auto first = reuses.begin() + static_cast<std::ptrdiff_t>(first_reuse);
    std::sort(first, reuses.end());
    reuses.erase(std::unique(first, reuses.end()), reuses.end());
  }
  return reuses;
}

// Of these edges the ones that no path of the graph stands for.
std::vector<GraphEdge> not_implied(const Problem& problem, std::vector<GraphEdge> edges) {
  std::sort(edges.begin(), edges.end(), [](const GraphEdge& a, const GraphEdge& b) {
    return std::pair(a.producer, a.consumer) < std::pair(b.producer, b.consumer);
  });
  edges.erase(std::unique(edges.begin(), edges.end(),
                          [](const GraphEdge& a, const GraphEdge& b) {
                            return a.producer == b.producer && a.consumer == b.consumer;
                          }),
              edges.end());
  std::vector<uint32_t> sources;
  for (const GraphEdge& edge : edges) {
    if (sources.empty() || sources.back() != edge.producer) sources.push_back(edge.producer);
  }
  std::vector<GraphEdge> needed;
  size_t next = 0;  // edges lie in the order of the sources
  const auto visit = [&](std::span<const uint32_t> chunk, std::span<const ChunkBits> reached) {
    for (size_t bit = 0; bit < chunk.size(); ++bit) {
      for (; next < edges.size() && edges[next].producer == chunk[bit]; ++next) {
        const ChunkBits& bits = reached[edges[next].consumer];
        const bool implied = (bits[bit / kWordBits] >> (bit % kWordBits) & 1) != 0;
        if (!implied) needed.push_back(edges[next]);
      }
    }
  };
  for_each_chunk(problem, sources, visit);
  return needed;
}

std::vector<GraphEdge> find_lifetime_edges(const Problem& problem, const Placement& placement,
                                           const PairBits& before) {
  std::vector<GraphEdge> edges;
  for (const auto& [a, b] : immediate_reuses(problem, placement)) {
    if (before.at(a, b)) continue;
    for (const uint32_t last : problem.buffers[a].last_users) {
      for (const uint32_t first : problem.buffers[b].first_users) {
        edges.push_back({last, first, EdgeKind::kLifetime});
      }
    }
  }
  return not_implied(problem, std::move(edges));
}

Error too_small_error(const Problem& problem, const MemoryPlanOptions& options,
                      int64_t peak_bytes) {
  const Graph& graph = *problem.graph;
  if (problem.floor_bytes > options.arena_bytes) {
    return fail(ErrorCode::kInvalidInput,
                "{} needs {} bytes of intermediates at once, but the arena has {} bytes",
                task_text(graph, problem.floor_task), problem.floor_bytes, options.arena_bytes);
  }
  return fail(ErrorCode::kInvalidInput,
              "the intermediates need {} bytes{}, but the arena has {} bytes; {} needs {} of them "
              "at once",
              peak_bytes, options.may_add_edges ? " even with lifetime edges" : "",
              options.arena_bytes, task_text(graph, problem.floor_task), problem.floor_bytes);
}

}  // namespace

Result<MemoryPlan> plan_memory(const Graph& graph, const MemoryPlanOptions& options) {
  if (options.alignment < 1 || !std::has_single_bit(static_cast<uint64_t>(options.alignment))) {
    return fail(ErrorCode::kInvalidInput, "an alignment of {} bytes is not a power of two",
                options.alignment);
  }
  if (options.arena_bytes < 0) {
    return fail(ErrorCode::kInvalidInput, "an arena of {} bytes", options.arena_bytes);
  }
  const Problem problem = GAPLESS_TRY(make_problem(graph, options));
  const PairBits before = find_order(problem);
  const auto may_share = [&](uint32_t a, uint32_t b) { return before.at(a, b) || before.at(b, a); };
  Placement placement = place_all(problem, turns_by_size(problem), may_share);
  MemoryPlan plan;
  if (options.arena_bytes > 0 && placement.peak_bytes > options.arena_bytes) {
    if (options.may_add_edges) {
      placement = place_along_order(problem, options.arena_bytes, may_share);
    }
    if (placement.peak_bytes > options.arena_bytes) {
      return too_small_error(problem, options, placement.peak_bytes);
    }
    plan.lifetime_edges = find_lifetime_edges(problem, placement, before);
  }
  plan.peak_bytes = placement.peak_bytes;
  plan.sum_bytes = problem.sum_bytes;
  plan.floor_bytes = problem.floor_bytes;
  for (const GraphBuffer& buffer : graph.buffers) {
    plan.offsets.push_back(buffer.kind == BufferKind::kIntermediate ? 0 : -1);
  }
  for (size_t i = 0; i < problem.buffers.size(); ++i) {
    plan.offsets[problem.buffers[i].buffer] = placement.offsets[i];
  }
  return plan;
}

Result<void> add_lifetime_edges(Graph& graph, const MemoryPlan& plan) {
  if (plan.lifetime_edges.empty()) return {};
  std::vector<GraphEdge> edges = edges_of(graph);
  edges.insert(edges.end(), plan.lifetime_edges.begin(), plan.lifetime_edges.end());
  return set_edges(graph, std::move(edges));
}

}  // namespace gapless
