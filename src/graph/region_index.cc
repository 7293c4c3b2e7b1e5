// SPDX-License-Identifier: Apache-2.0

#include "graph/region_index.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "base/check.h"

namespace gapless {
namespace {

// Up to here going over a list costs no more than cells do.
constexpr uint32_t kPlainListCount = 8;
// Each change of the pitch places all boxes again; a buffer whose strides keep growing must not
// make that quadratic.
constexpr int32_t kPitchChanges = 8;
constexpr size_t kFirstBucketCount = 64;

uint8_t bits_for(int64_t extent) {
  return static_cast<uint8_t>(std::bit_width(static_cast<uint64_t>(extent - 1)));
}

}  // namespace

// ---- Buffers.

uint32_t RegionIndex::find_buffer(BufferId id) const {
  if (id.index() >= first_buffer_.size()) return kNone;
  uint32_t buffer = first_buffer_[id.index()];
  while (buffer != kNone && buffers_[buffer].id != id) buffer = buffers_[buffer].next;
  return buffer;
}

uint32_t RegionIndex::add_buffer(BufferId id) {
  if (id.index() >= first_buffer_.size()) {
    first_buffer_.resize(std::max<size_t>(id.index() + 1, first_buffer_.size() * 2), kNone);
  }
  uint32_t buffer = free_buffer_;
  if (buffer == kNone) {
    buffer = static_cast<uint32_t>(buffers_.size());
    buffers_.emplace_back();
  } else {
    free_buffer_ = buffers_[buffer].next;
  }
  uint32_t& first = first_buffer_[id.index()];
  buffers_[buffer] = {.id = id, .next = first, .pitch_changes_left = kPitchChanges};
  first = buffer;
  return buffer;
}

void RegionIndex::drop_buffer(uint32_t buffer) {
  uint32_t* link = &first_buffer_[buffers_[buffer].id.index()];
  while (*link != buffer) link = &buffers_[*link].next;
  *link = buffers_[buffer].next;
  buffers_[buffer].next = free_buffer_;
  free_buffer_ = buffer;
}

void RegionIndex::list_nodes(const Buffer& buffer, std::vector<uint32_t>& nodes) const {
  for (uint32_t grid = buffer.first_grid; grid != kNone; grid = grids_[grid].next) {
    uint32_t node = grids_[grid].first_entry;
    for (; node != kNone; node = entries_[node].next_in_grid) nodes.push_back(node);
  }
}

// ---- Boxes and grids.

void RegionIndex::set_box(Entry& entry, int64_t pitch) {
  const Region& region = entry.region;
  Box& box = entry.box;
  if (pitch == 0) {
    box.row_begin = 0;
    box.row_end = 1;
    box.column_begin = region.begin;
    box.column_end = region.end;
    return;
  }
  box.row_begin = region.begin / pitch;
  box.row_end = (region.end - 1) / pitch + 1;
  const int64_t column = region.begin - box.row_begin * pitch;
  int64_t width = region.end - region.begin;
  if (region.level_count > 0 && region.levels[0].stride == pitch) {
    width -= pitch * (region.levels[0].count - 1);
  }
  // What goes over the end of a row is in all columns.
  const bool is_in_row = column + width <= pitch;
  box.column_begin = is_in_row ? column : 0;
  box.column_end = is_in_row ? column + width : pitch;
}

bool RegionIndex::boxes_meet(const Box& a, const Box& b) {
  return a.row_begin < b.row_end && b.row_begin < a.row_end && a.column_begin < b.column_end &&
         b.column_begin < a.column_end;
}

uint32_t RegionIndex::grid_for(uint32_t buffer, const Box& box) {
  Buffer& owner = buffers_[buffer];
  const uint8_t row_bits = owner.has_cells ? bits_for(box.row_end - box.row_begin) : 0;
  const uint8_t column_bits = owner.has_cells ? bits_for(box.column_end - box.column_begin) : 0;
  uint32_t grid = owner.first_grid;
  for (; grid != kNone; grid = grids_[grid].next) {
    if (grids_[grid].row_bits == row_bits && grids_[grid].column_bits == column_bits) return grid;
  }
  grid = free_grid_;
  if (grid == kNone) {
    grid = static_cast<uint32_t>(grids_.size());
    grids_.emplace_back();
  } else {
    free_grid_ = grids_[grid].next;
  }
  grids_[grid] = {.buffer = buffer,
                  .next = owner.first_grid,
                  .row_bits = row_bits,
                  .column_bits = column_bits,
                  .has_cells = owner.has_cells};
  owner.first_grid = grid;
  return grid;
}

void RegionIndex::drop_grid(uint32_t grid) {
  uint32_t* link = &buffers_[grids_[grid].buffer].first_grid;
  while (*link != grid) link = &grids_[*link].next;
  *link = grids_[grid].next;
  grids_[grid].next = free_grid_;
  free_grid_ = grid;
}

// ---- Cells.

size_t RegionIndex::bucket_of(uint32_t grid, int64_t row, int64_t column) const {
  uint64_t mixed = static_cast<uint64_t>(row) * 0x9e3779b97f4a7c15 + static_cast<uint64_t>(column);
  mixed = (mixed ^ (uint64_t{grid} << 32)) * 0xd6e8feb86659fd93;
  return static_cast<size_t>(mixed >> 32) & (buckets_.size() - 1);
}

size_t RegionIndex::bucket_of(const Entry& entry) const {
  const Grid& grid = grids_[entry.grid];
  return bucket_of(entry.grid, entry.box.row_begin >> grid.row_bits,
                   entry.box.column_begin >> grid.column_bits);
}

void RegionIndex::grow_buckets() {
  buckets_.assign(std::max(kFirstBucketCount, buckets_.size() * 2), kNone);
  for (uint32_t node = 0; node < entries_.size(); ++node) {
    const Entry& entry = entries_[node];
    if (entry.grid == kNone || !grids_[entry.grid].has_cells) continue;
    enter_cell(node);
  }
}

void RegionIndex::enter_cell(uint32_t node) {
  uint32_t& first = buckets_[bucket_of(entries_[node])];
  entries_[node].next_in_cell = first;
  first = node;
}

void RegionIndex::leave_cell(uint32_t node) {
  uint32_t* link = &buckets_[bucket_of(entries_[node])];
  while (*link != node) link = &entries_[*link].next_in_cell;
  *link = entries_[node].next_in_cell;
  --in_cells_count_;
}

// Enters a node whose region and box are known.
void RegionIndex::place(uint32_t node, uint32_t buffer) {
  Entry& entry = entries_[node];
  entry.grid = grid_for(buffer, entry.box);
  Grid& grid = grids_[entry.grid];
  grid.height = std::max(grid.height, entry.box.row_end - entry.box.row_begin);
  grid.width = std::max(grid.width, entry.box.column_end - entry.box.column_begin);
  ++grid.entry_count;
  entry.previous_in_grid = kNone;
  entry.next_in_grid = grid.first_entry;
  if (grid.first_entry != kNone) entries_[grid.first_entry].previous_in_grid = node;
  grid.first_entry = node;
  if (!grid.has_cells) return;
  if (++in_cells_count_ > buckets_.size()) return grow_buckets();
  enter_cell(node);
}

void RegionIndex::take_out(uint32_t node) {
  Entry& entry = entries_[node];
  Grid& grid = grids_[entry.grid];
  if (grid.has_cells) leave_cell(node);
  if (entry.next_in_grid != kNone) {
    entries_[entry.next_in_grid].previous_in_grid = entry.previous_in_grid;
  }
  if (entry.previous_in_grid != kNone) {
    entries_[entry.previous_in_grid].next_in_grid = entry.next_in_grid;
  } else {
    grid.first_entry = entry.next_in_grid;
  }
  if (--grid.entry_count == 0) drop_grid(entry.grid);
  entry.grid = kNone;
}

void RegionIndex::place_all_again(uint32_t buffer) {
  moved_nodes_.clear();
  list_nodes(buffers_[buffer], moved_nodes_);
  for (const uint32_t node : moved_nodes_) take_out(node);
  Buffer& owner = buffers_[buffer];
  owner.has_cells = owner.entry_count > kPlainListCount;
  for (const uint32_t node : moved_nodes_) {
    set_box(entries_[node], owner.pitch);
    place(node, buffer);
  }
}

// ---- Questions.

void RegionIndex::find_in_cells(uint32_t number, const Box& box, const Cells& cells,
                                std::vector<uint32_t>& found) const {
  const Grid& grid = grids_[number];
  for (int64_t row = cells.row_first; row <= cells.row_last; ++row) {
    for (int64_t column = cells.column_first; column <= cells.column_last; ++column) {
      uint32_t node = buckets_[bucket_of(number, row, column)];
      for (; node != kNone; node = entries_[node].next_in_cell) {
        const Entry& entry = entries_[node];
        // Another cell in the same bucket has its own turn.
        if (entry.grid != number) continue;
        if (entry.box.row_begin >> grid.row_bits != row) continue;
        if (entry.box.column_begin >> grid.column_bits != column) continue;
        if (boxes_meet(entry.box, box)) found.push_back(node);
      }
    }
  }
}

void RegionIndex::find_in_grid(uint32_t number, const Box& box,
                               std::vector<uint32_t>& found) const {
  const Grid& grid = grids_[number];
  if (grid.has_cells) {
    // Boxes that reach the asked one begin at most their own extent before it.
    const Cells cells = {
        .row_first = std::max(int64_t{0}, box.row_begin - grid.height + 1) >> grid.row_bits,
        .row_last = (box.row_end - 1) >> grid.row_bits,
        .column_first = std::max(int64_t{0}, box.column_begin - grid.width + 1) >> grid.column_bits,
        .column_last = (box.column_end - 1) >> grid.column_bits};
    const int64_t row_count = cells.row_last - cells.row_first + 1;
    const int64_t column_count = cells.column_last - cells.column_first + 1;
    const int64_t entry_count = grid.entry_count;
    // One after the other, as the product of two long ways may not fit.
    if (row_count < entry_count && column_count < entry_count &&
        row_count * column_count < entry_count) {
      return find_in_cells(number, box, cells, found);
    }
  }
  for (uint32_t node = grid.first_entry; node != kNone; node = entries_[node].next_in_grid) {
    if (boxes_meet(entries_[node].box, box)) found.push_back(node);
  }
}

// ---- What others call.

// Before a region is entered that counts already: a larger pitch, or too many for a list.
void RegionIndex::update_pitch(uint32_t number, const Region& region) {
  Buffer& buffer = buffers_[number];
  const int64_t stride = region.level_count == 0 ? 0 : region.levels[0].stride;
  const bool is_larger = stride > buffer.pitch && buffer.pitch_changes_left > 0;
  if (is_larger) {
    buffer.pitch = stride;
    --buffer.pitch_changes_left;
  }
  const bool is_long = !buffer.has_cells && buffer.entry_count > kPlainListCount;
  if (is_larger || is_long) place_all_again(number);
}

void RegionIndex::insert(uint32_t node, BufferId id, const Region& region,
                         std::vector<uint32_t>& found) {
  GAPLESS_CHECK(region.begin >= 0);
  GAPLESS_CHECK(region.begin < region.end);
  if (node >= entries_.size()) entries_.resize(node + 1);
  GAPLESS_CHECK(entries_[node].grid == kNone);
  uint32_t number = find_buffer(id);
  if (number == kNone) number = add_buffer(id);
  ++buffers_[number].entry_count;
  update_pitch(number, region);
  Entry& entry = entries_[node];
  entry.region = region;
  set_box(entry, buffers_[number].pitch);
  for (uint32_t grid = buffers_[number].first_grid; grid != kNone; grid = grids_[grid].next) {
    find_in_grid(grid, entry.box, found);
  }
  place(node, number);
}

void RegionIndex::remove(uint32_t node) {
  const uint32_t buffer = grids_[entries_[node].grid].buffer;
  take_out(node);
  if (--buffers_[buffer].entry_count == 0) drop_buffer(buffer);
}

void RegionIndex::remove_buffer(BufferId id, std::vector<uint32_t>& nodes) {
  const uint32_t buffer = find_buffer(id);
  if (buffer == kNone) return;
  const size_t before = nodes.size();
  list_nodes(buffers_[buffer], nodes);
  if (buffers_[buffer].has_cells) {
    for (size_t i = before; i < nodes.size(); ++i) leave_cell(nodes[i]);
  }
  for (size_t i = before; i < nodes.size(); ++i) entries_[nodes[i]].grid = kNone;
  while (buffers_[buffer].first_grid != kNone) drop_grid(buffers_[buffer].first_grid);
  drop_buffer(buffer);
}

uint64_t RegionIndex::memory_bytes() const {
  return entries_.capacity() * sizeof(Entry) + grids_.capacity() * sizeof(Grid) +
         buffers_.capacity() * sizeof(Buffer) +
         (first_buffer_.capacity() + buckets_.capacity() + moved_nodes_.capacity()) *
             sizeof(uint32_t);
}

}  // namespace gapless
