// SPDX-License-Identifier: Apache-2.0
//
// Nodes, readers and links live in three arrays and are numbered; what is dropped is reused. Links
// go both ways between nodes whose regions overlap and are made once, when the younger of the two
// is created. Nodes go in two ways: with their buffer, and then all their neighbours go as well; or
// in a sweep, which goes over all nodes and cuts the links to those that go.
//
// Accesses are counted, and a node knows when all of its bytes were last written. Who wrote them
// waited for all that came before, so that whoever comes after looks only at what is as young.

#include "graph/tensor_map.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

#include "base/check.h"
#include "graph/region_index.h"

namespace gapless {
namespace {

constexpr uint32_t kNone = 0xffffffff;
constexpr uint64_t kNobody = ~uint64_t{0};
constexpr size_t kFirstBucketCount = 64;
constexpr uint32_t kFirstReaderPrune = 16;
constexpr uint64_t kFirstSweep = 4096;
constexpr size_t kIdleNodes = 8;  // so many are worth the going over

// One distinct view. The key takes a cache line and what changes takes the next.
struct alignas(64) Node {
  View view;
  uint64_t writer = kNobody;      // at covered_time; of a node that covers this one: kNobody
  uint64_t covered_time = 0;      // of the last write to this node or to one that covers it
  uint32_t first_reader = kNone;  // the youngest
  uint32_t reader_count = 0;
  uint32_t first_link = kNone;
  uint32_t next_in_bucket = kNone;  // or the next free node
  uint32_t hash = 0;
  bool in_use = false;
  bool is_dead = false;  // about to be dropped: links to it are to be cut
};
static_assert(sizeof(Node) == 128);

struct Reader {
  uint64_t task = 0;
  uint64_t time = 0;
  uint32_t next = kNone;
};

struct Link {
  uint32_t node = kNone;  // whose bytes overlap those of the node that has the link
  uint32_t next = kNone;
  bool covers = false;  // all bytes of `node` are bytes of the node that has the link
};

__extension__ typedef unsigned __int128 Wide;  // NOLINT(modernize-use-using)

uint64_t multiply_fold(uint64_t a, uint64_t b) {
  const Wide product = static_cast<Wide>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Eight bytes of the view. Views come straight from their making: loads no wider than its stores
// need not wait until those have left the store buffer.
uint64_t word(const View& view, size_t i) {
  uint64_t value = 0;
  std::memcpy(&value, reinterpret_cast<const unsigned char*>(&view) + i * sizeof(value),
              sizeof(value));
  return value;
}

// Four products that do not wait for each other, and one more.
uint32_t hash_of(const View& view) {
  const uint64_t first =
      multiply_fold(word(view, 0) ^ 0x9e3779b97f4a7c15, word(view, 1) ^ 0xbf58476d1ce4e5b9);
  const uint64_t second =
      multiply_fold(word(view, 2) ^ 0x94d049bb133111eb, word(view, 3) ^ 0xd6e8feb86659fd93);
  const uint64_t third =
      multiply_fold(word(view, 4) ^ 0xa0761d6478bd642f, word(view, 5) ^ 0xe7037ed1a0b428db);
  const uint64_t fourth =
      multiply_fold(word(view, 6) ^ 0x8ebc6af09c88c6e3, word(view, 7) ^ 0x589965cc75374cc3);
  return static_cast<uint32_t>(
      multiply_fold(first ^ std::rotl(third, 23), second ^ std::rotl(fourth, 41)));
}

bool is_equal(const View& a, const View& b) {
  const uint64_t low = (word(a, 0) ^ word(b, 0)) | (word(a, 1) ^ word(b, 1)) |
                       (word(a, 2) ^ word(b, 2)) | (word(a, 3) ^ word(b, 3));
  const uint64_t high = (word(a, 4) ^ word(b, 4)) | (word(a, 5) ^ word(b, 5)) |
                        (word(a, 6) ^ word(b, 6)) | (word(a, 7) ^ word(b, 7));
  return (low | high) == 0;
}

}  // namespace

class TensorMap::Impl {
  // What an access of one argument asks a node.
  struct Question {
    uint64_t task = 0;
    uint64_t since = 0;  // what is older, the task waits for already
    Access access = Access::kIn;
  };

 public:
  Impl(IsLive is_live, const void* owner)
      : is_live_(is_live), owner_(owner), buckets_(kFirstBucketCount, kNone) {}

  void access(uint64_t task, std::span<const Argument> arguments, std::vector<Dependency>& found);
  void forget(BufferId buffer);
  TensorMapStats stats() const;

 private:
  void fetch(std::span<const Argument> arguments, std::span<uint32_t> hashes) const;
  uint32_t find_or_create(const View& view, uint32_t hash);
  uint32_t create(const View& view, uint32_t hash);
  void link_neighbours(uint32_t node, const Region& region);
  void add_link(uint32_t from, uint32_t to, bool covers);
  void drop(uint32_t number);
  void drop_links(Node& node);
  void grow_buckets();

  void collect_all(const Node& node, Access access, uint64_t task,
                   std::vector<Dependency>& found) const;
  void collect(const Node& node, const Question& question, std::vector<Dependency>& found) const;
  void collect_readers(const Node& node, const Question& question,
                       std::vector<Dependency>& found) const;
  void enter_read(Node& node, uint64_t task);
  void enter_write(Node& node, uint64_t task);
  void drop_readers(Node& node);

  bool may_be_awaited(uint64_t task) const { return task != kNobody && is_live_(owner_, task); }
  void prune_readers(Node& node);
  void cut_dead_links(Node& node);
  void sweep();
  static bool is_empty(const Node& node) {
    return node.writer == kNobody && node.first_reader == kNone;
  }
  void drop_idle_nodes();

  IsLive is_live_ = nullptr;
  const void* owner_ = nullptr;
  std::vector<Node> nodes_;
  std::vector<Reader> readers_;
  std::vector<Link> links_;
  std::vector<uint32_t> buckets_;  // the first node of each; a power of two
  RegionIndex index_;
  std::vector<uint32_t> found_nodes_;
  std::vector<uint32_t> idle_nodes_;  // of one access: empty before it covered them
  uint32_t free_node_ = kNone;
  uint32_t free_reader_ = kNone;
  uint32_t free_link_ = kNone;
  uint64_t now_ = 0;  // counts accesses
  uint64_t node_count_ = 0;
  uint64_t created_count_ = 0;
  uint64_t compared_count_ = 0;
  uint64_t swept_count_ = 0;
  uint64_t sweep_at_ = kFirstSweep;
};

// ---- Nodes.

// Several arguments wait for memory together rather than one after the other.
void TensorMap::Impl::fetch(std::span<const Argument> arguments, std::span<uint32_t> hashes) const {
  const size_t mask = buckets_.size() - 1;
  for (size_t i = 0; i < arguments.size(); ++i) {
    hashes[i] = hash_of(arguments[i].view);
    __builtin_prefetch(&buckets_[hashes[i] & mask]);
  }
  if (arguments.size() == 1) return;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const uint32_t node = buckets_[hashes[i] & mask];
    if (node == kNone) continue;
    __builtin_prefetch(&nodes_[node].view);
    __builtin_prefetch(&nodes_[node].writer);
  }
}

uint32_t TensorMap::Impl::find_or_create(const View& view, uint32_t hash) {
  uint32_t node = buckets_[hash & (buckets_.size() - 1)];
  while (node != kNone && !is_equal(view, nodes_[node].view)) node = nodes_[node].next_in_bucket;
  return node != kNone ? node : create(view, hash);
}

// kNone when the view touches no byte.
uint32_t TensorMap::Impl::create(const View& view, uint32_t hash) {
  const Region region = region_of(view);
  if (region.begin == region.end) return kNone;
  if (node_count_ == buckets_.size()) grow_buckets();
  uint32_t number = free_node_;
  if (number == kNone) {
    number = static_cast<uint32_t>(nodes_.size());
    nodes_.emplace_back();
  } else {
    free_node_ = nodes_[number].next_in_bucket;
  }
  Node& node = nodes_[number];
  uint32_t& first = buckets_[hash & (buckets_.size() - 1)];
  node.view = view;
  node.writer = kNobody;
  node.covered_time = 0;
  node.hash = hash;
  node.in_use = true;
  node.next_in_bucket = first;
  first = number;
  ++node_count_;
  ++created_count_;
  link_neighbours(number, region);
  return number;
}

void TensorMap::Impl::link_neighbours(uint32_t node, const Region& region) {
  found_nodes_.clear();
  index_.insert(node, nodes_[node].view.buffer, region, found_nodes_);
  for (const uint32_t other : found_nodes_) {
    const Region& other_region = index_.region(other);
    ++compared_count_;
    if (!overlaps(region, other_region)) continue;
    const bool is_covered = covers(other_region, region);
    add_link(node, other, covers(region, other_region));
    add_link(other, node, is_covered);
    if (!is_covered) continue;
    nodes_[node].covered_time = std::max(nodes_[node].covered_time, nodes_[other].covered_time);
  }
}

void TensorMap::Impl::add_link(uint32_t from, uint32_t to, bool covers) {
  uint32_t link = free_link_;
  if (link == kNone) {
    link = static_cast<uint32_t>(links_.size());
    links_.emplace_back();
  } else {
    free_link_ = links_[link].next;
  }
  links_[link] = {to, nodes_[from].first_link, covers};
  nodes_[from].first_link = link;
}

void TensorMap::Impl::drop_links(Node& node) {
  while (node.first_link != kNone) {
    Link& link = links_[node.first_link];
    const uint32_t next = link.next;
    link.next = free_link_;
    free_link_ = node.first_link;
    node.first_link = next;
  }
}

// The caller sees to the index and to the links of others.
void TensorMap::Impl::drop(uint32_t number) {
  Node& node = nodes_[number];
  uint32_t* to = &buckets_[node.hash & (buckets_.size() - 1)];
  while (*to != number) to = &nodes_[*to].next_in_bucket;
  *to = node.next_in_bucket;
  drop_readers(node);
  drop_links(node);
  node.in_use = false;
  node.is_dead = false;
  node.next_in_bucket = free_node_;
  free_node_ = number;
  --node_count_;
}

void TensorMap::Impl::grow_buckets() {
  buckets_.assign(buckets_.size() * 2, kNone);
  for (uint32_t number = 0; number < nodes_.size(); ++number) {
    Node& node = nodes_[number];
    if (!node.in_use) continue;
    uint32_t& first = buckets_[node.hash & (buckets_.size() - 1)];
    node.next_in_bucket = first;
    first = number;
  }
}

void TensorMap::Impl::forget(BufferId buffer) {
  found_nodes_.clear();
  index_.remove_buffer(buffer, found_nodes_);
  for (const uint32_t node : found_nodes_) drop(node);
}

// ---- Accesses.

void TensorMap::Impl::collect_readers(const Node& node, const Question& question,
                                      std::vector<Dependency>& found) const {
  for (uint32_t number = node.first_reader; number != kNone; number = readers_[number].next) {
    const Reader& reader = readers_[number];
    if (reader.time < question.since) return;
    if (reader.task != question.task) found.push_back({reader.task, EdgeKind::kOrder});
  }
}

// Readers waited for the writer, so that who waits for them need not wait for it.
void TensorMap::Impl::collect(const Node& node, const Question& question,
                              std::vector<Dependency>& found) const {
  const bool has_writer =
      node.writer != kNobody && node.writer != question.task && node.covered_time >= question.since;
  if (reads(question.access)) {
    if (has_writer) found.push_back({node.writer, EdgeKind::kData});
    if (writes(question.access)) collect_readers(node, question, found);
    return;
  }
  if (node.first_reader != kNone && readers_[node.first_reader].time >= question.since) {
    return collect_readers(node, question, found);
  }
  if (has_writer) found.push_back({node.writer, EdgeKind::kOrder});
}

void TensorMap::Impl::collect_all(const Node& node, Access access, uint64_t task,
                                  std::vector<Dependency>& found) const {
  const Question question{task, node.covered_time, access};
  collect(node, question, found);
  for (uint32_t link = node.first_link; link != kNone; link = links_[link].next) {
    collect(nodes_[links_[link].node], question, found);
  }
}

void TensorMap::Impl::drop_readers(Node& node) {
  while (node.first_reader != kNone) {
    Reader& reader = readers_[node.first_reader];
    const uint32_t next = reader.next;
    reader.next = free_reader_;
    free_reader_ = node.first_reader;
    node.first_reader = next;
  }
  node.reader_count = 0;
}

void TensorMap::Impl::enter_read(Node& node, uint64_t task) {
  if (node.first_reader != kNone && readers_[node.first_reader].task == task) {
    readers_[node.first_reader].time = now_;
    return;
  }
  // Before the task is among them: whether it is live is for its owner to say later.
  const bool is_many = is_live_ != nullptr && node.reader_count >= kFirstReaderPrune;
  if (is_many && std::has_single_bit(node.reader_count)) prune_readers(node);
  uint32_t reader = free_reader_;
  if (reader == kNone) {
    reader = static_cast<uint32_t>(readers_.size());
    readers_.emplace_back();
  } else {
    free_reader_ = readers_[reader].next;
  }
  readers_[reader] = {task, now_, node.first_reader};
  node.first_reader = reader;
  ++node.reader_count;
}

// Whoever comes after waits for this task, and so for all that the covered nodes remember.
void TensorMap::Impl::enter_write(Node& node, uint64_t task) {
  node.writer = task;
  node.covered_time = now_;
  drop_readers(node);
  for (uint32_t link = node.first_link; link != kNone; link = links_[link].next) {
    if (!links_[link].covers) continue;
    Node& covered = nodes_[links_[link].node];
    if (is_empty(covered)) idle_nodes_.push_back(links_[link].node);
    covered.writer = kNobody;
    covered.covered_time = now_;
    drop_readers(covered);
  }
}

void TensorMap::Impl::access(uint64_t task, std::span<const Argument> arguments,
                             std::vector<Dependency>& found) {
  GAPLESS_CHECK(arguments.size() <= static_cast<size_t>(kMaxArguments));
  if (is_live_ != nullptr && node_count_ >= sweep_at_) sweep();
  ++now_;
  std::array<uint32_t, kMaxArguments> hashes;
  std::array<uint32_t, kMaxArguments> numbers;
  fetch(arguments, hashes);
  for (size_t i = 0; i < arguments.size(); ++i) {
    numbers[i] = find_or_create(arguments[i].view, hashes[i]);
    if (numbers[i] == kNone) continue;
    collect_all(nodes_[numbers[i]], arguments[i].access, task, found);
  }
  idle_nodes_.clear();
  // Reads go in first: what the task writes itself stands for what it reads there.
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (numbers[i] == kNone || writes(arguments[i].access)) continue;
    enter_read(nodes_[numbers[i]], task);
  }
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (numbers[i] == kNone || !writes(arguments[i].access)) continue;
    enter_write(nodes_[numbers[i]], task);
  }
  if (idle_nodes_.size() >= kIdleNodes) drop_idle_nodes();
}

// ---- Forgetting what is done.

// Nodes that were covered twice with nobody in between know nothing. Kept, they would have to be
// gone over at every access of what covers them.
void TensorMap::Impl::drop_idle_nodes() {
  found_nodes_.clear();
  // Another argument of the same task may have used it meanwhile; several may have covered it.
  for (const uint32_t number : idle_nodes_) nodes_[number].is_dead = is_empty(nodes_[number]);
  for (const uint32_t number : idle_nodes_) {
    if (!nodes_[number].is_dead) continue;
    for (uint32_t link = nodes_[number].first_link; link != kNone; link = links_[link].next) {
      found_nodes_.push_back(links_[link].node);
    }
  }
  std::sort(found_nodes_.begin(), found_nodes_.end());
  found_nodes_.erase(std::unique(found_nodes_.begin(), found_nodes_.end()), found_nodes_.end());
  for (const uint32_t number : found_nodes_) cut_dead_links(nodes_[number]);
  for (const uint32_t number : idle_nodes_) {
    if (!nodes_[number].is_dead) continue;
    index_.remove(number);
    drop(number);
    ++swept_count_;
  }
}

void TensorMap::Impl::prune_readers(Node& node) {
  uint32_t* to = &node.first_reader;
  while (*to != kNone) {
    const uint32_t number = *to;
    Reader& reader = readers_[number];
    if (may_be_awaited(reader.task)) {
      to = &reader.next;
      continue;
    }
    *to = reader.next;
    reader.next = free_reader_;
    free_reader_ = number;
    --node.reader_count;
  }
}

void TensorMap::Impl::cut_dead_links(Node& node) {
  uint32_t* to = &node.first_link;
  while (*to != kNone) {
    const uint32_t number = *to;
    Link& link = links_[number];
    if (!nodes_[link.node].is_dead) {
      to = &link.next;
      continue;
    }
    *to = link.next;
    link.next = free_link_;
    free_link_ = number;
  }
}

void TensorMap::Impl::sweep() {
  for (Node& node : nodes_) {
    if (!node.in_use) continue;
    prune_readers(node);
    node.is_dead = node.first_reader == kNone && !may_be_awaited(node.writer);
  }
  for (Node& node : nodes_) {
    if (node.in_use && !node.is_dead) cut_dead_links(node);
  }
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (!nodes_[i].is_dead) continue;
    index_.remove(static_cast<uint32_t>(i));
    drop(static_cast<uint32_t>(i));
    ++swept_count_;
  }
  sweep_at_ = std::max(kFirstSweep, 2 * node_count_);
}

TensorMapStats TensorMap::Impl::stats() const {
  TensorMapStats stats;
  stats.node_count = node_count_;
  stats.created_count = created_count_;
  stats.compared_count = compared_count_;
  stats.swept_count = swept_count_;
  stats.memory_bytes = sizeof(Impl) + index_.memory_bytes() + nodes_.capacity() * sizeof(Node) +
                       readers_.capacity() * sizeof(Reader) + links_.capacity() * sizeof(Link) +
                       (buckets_.capacity() + found_nodes_.capacity()) * sizeof(uint32_t);
  return stats;
}

// ---- The class that others see.

TensorMap::TensorMap(IsLive is_live, const void* owner)
    : impl_(std::make_unique<Impl>(is_live, owner)) {}
TensorMap::~TensorMap() = default;
TensorMap::TensorMap(TensorMap&&) noexcept = default;
TensorMap& TensorMap::operator=(TensorMap&&) noexcept = default;

void TensorMap::access(uint64_t task, std::span<const Argument> arguments,
                       std::vector<Dependency>& found) {
  impl_->access(task, arguments, found);
}

void TensorMap::forget(BufferId buffer) { impl_->forget(buffer); }

TensorMapStats TensorMap::stats() const { return impl_->stats(); }

}  // namespace gapless
