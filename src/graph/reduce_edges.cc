// SPDX-License-Identifier: Apache-2.0

#include "graph/reduce_edges.h"

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "base/check.h"

namespace gapless {
namespace {

// Tasks are called by their positions in a topological order here: a path only ever leads to
// larger ones.
class EdgeReducer {
 public:
  EdgeReducer(const Graph& graph, std::vector<uint32_t> order, uint64_t budget);
  std::vector<GraphEdge> reduce();
  uint64_t dropped_count() const { return dropped_count_; }

 private:
  struct Producer {
    uint32_t position = 0;
    EdgeKind kind = EdgeKind::kData;
  };

  void search(uint32_t consumer, std::span<const Producer> producers);
  void drop_met(uint32_t consumer);
  std::span<Producer> kept(uint32_t position) {
    return {producers_.data() + begin_[position], end_[position] - begin_[position]};
  }

  uint64_t budget_;
  std::vector<uint32_t> order_;
  std::vector<Producer> producers_;  // smallest position first
  std::vector<size_t> begin_;
  std::vector<size_t> end_;        // shrinks as producers are dropped
  std::vector<uint32_t> met_for_;  // the last consumer whose search met this task
  std::vector<uint32_t> feeds_;    // the last consumer that this task was seen to be a producer of
  std::vector<uint32_t> to_visit_;
  uint64_t dropped_count_ = 0;
};

EdgeReducer::EdgeReducer(const Graph& graph, std::vector<uint32_t> order, uint64_t budget)
    : budget_(budget),
      order_(std::move(order)),
      met_for_(order_.size(), kNoIndex),
      feeds_(order_.size(), kNoIndex) {
  std::vector<uint32_t> position_of(order_.size());
  for (uint32_t i = 0; i < order_.size(); ++i) position_of[order_[i]] = i;
  producers_.reserve(graph.producers.size());
  for (const uint32_t task : order_) {
    begin_.push_back(producers_.size());
    for (const Edge& edge : graph.producers_of(task)) {
      producers_.push_back({position_of[edge.task], edge.kind});
    }
    end_.push_back(producers_.size());
    std::sort(producers_.begin() + static_cast<std::ptrdiff_t>(begin_.back()), producers_.end(),
              [](const Producer& a, const Producer& b) { return a.position < b.position; });
  }
}

// Meets all that lies strictly before some producer and not before the smallest. Largest first:
// the latest producer is the likeliest to imply the others.
void EdgeReducer::search(uint32_t consumer, std::span<const Producer> producers) {
  const uint32_t smallest = producers.front().position;
  size_t left = producers.size() - 1;  // the largest cannot be implied
  uint64_t steps = 0;
  to_visit_.clear();
  for (const Producer& producer : producers) {
    feeds_[producer.position] = consumer;
    to_visit_.push_back(producer.position);
  }
  while (!to_visit_.empty() && left > 0 && steps < budget_) {
    const std::span<const Producer> before = kept(to_visit_.back());
    to_visit_.pop_back();
    ++steps;
    for (size_t i = before.size(); i-- > 0 && before[i].position >= smallest; ++steps) {
      const uint32_t position = before[i].position;
      if (met_for_[position] == consumer) continue;
      met_for_[position] = consumer;
      if (feeds_[position] == consumer) {
        --left;  // it is on the list anyway
      } else {
        to_visit_.push_back(position);
      }
    }
  }
}

void EdgeReducer::drop_met(uint32_t consumer) {
  const std::span<Producer> producers = kept(consumer);
  size_t kept_count = 0;
  for (const Producer& producer : producers) {
    if (met_for_[producer.position] != consumer) producers[kept_count++] = producer;
  }
  dropped_count_ += producers.size() - kept_count;
  end_[consumer] = begin_[consumer] + kept_count;
}

std::vector<GraphEdge> EdgeReducer::reduce() {
  std::vector<GraphEdge> edges;
  edges.reserve(producers_.size());
  for (uint32_t consumer = 0; consumer < order_.size(); ++consumer) {
    if (kept(consumer).size() >= 2) {
      search(consumer, kept(consumer));
      drop_met(consumer);
    }
    for (const Producer& producer : kept(consumer)) {
      edges.push_back({order_[producer.position], order_[consumer], producer.kind});
    }
  }
  return edges;
}

}  // namespace

uint64_t reduce_edges(Graph& graph, uint64_t budget) {
  Result<std::vector<uint32_t>> order = topological_order(graph);
  GAPLESS_CHECK(order.has_value());
  EdgeReducer reducer(graph, std::move(*order), budget);
  std::vector<GraphEdge> edges = reducer.reduce();
  const Result<void> set = set_edges(graph, std::move(edges));
  GAPLESS_CHECK(set.has_value());
  return reducer.dropped_count();
}

}  // namespace gapless
