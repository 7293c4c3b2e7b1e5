// SPDX-License-Identifier: Apache-2.0
//
// RegionIndex: which of the regions of a buffer may overlap a given one.
//
// A buffer is seen as rows of its pitch, the largest stride at which a region of it repeats, and a
// region as a box of rows and columns. Boxes of like size, up to a factor of two in either
// direction, share a grid of cells as large as they are at most; a box lives in the one cell where
// it begins. A question visits the few cells of each grid in which a box that reaches it can begin,
// or all boxes of a grid where those are fewer. So tiles, rows and columns cost the same whether
// the buffer has ten or ten thousand. A buffer with few regions has one list and no cells.

#pragma once

#include <cstdint>
#include <vector>

#include "graph/region.h"
#include "graph/view.h"

namespace gapless {

class RegionIndex {
 public:
  // Enters a region, and appends to `found` the nodes of the buffer that may overlap it: all that
  // do, few that do not, each once, the node itself not. `node` is the caller's number: small, as
  // it is an index here, and not entered already.
  void insert(uint32_t node, BufferId id, const Region& region, std::vector<uint32_t>& found);
  void remove(uint32_t node);

  // Removes all regions of the buffer and appends their nodes.
  void remove_buffer(BufferId id, std::vector<uint32_t>& nodes);

  // Of a node that is entered.
  const Region& region(uint32_t node) const { return entries_[node].region; }

  uint64_t memory_bytes() const;

 private:
  static constexpr uint32_t kNone = 0xffffffff;

  // In bytes of the buffer, ends excluded. Without a pitch there is one row.
  struct Box {
    int64_t row_begin = 0;
    int64_t row_end = 0;
    int64_t column_begin = 0;
    int64_t column_end = 0;
  };

  // Of one grid, lasts included.
  struct Cells {
    int64_t row_first = 0;
    int64_t row_last = 0;
    int64_t column_first = 0;
    int64_t column_last = 0;
  };

  struct Entry {
    Region region;
    Box box;
    uint32_t grid = kNone;          // kNone: not entered
    uint32_t next_in_cell = kNone;  // in the chain of the bucket, whatever its cell
    uint32_t next_in_grid = kNone;
    uint32_t previous_in_grid = kNone;
  };

  // Boxes of one buffer whose height and width round up to the same powers of two.
  struct Grid {
    uint32_t buffer = kNone;  // a number of buffers_
    uint32_t next = kNone;    // of the same buffer
    uint32_t first_entry = kNone;
    uint32_t entry_count = 0;
    uint8_t row_bits = 0;
    uint8_t column_bits = 0;
    bool has_cells = false;  // false: the list is all there is
    int64_t height = 0;      // of the highest box since the grid was empty
    int64_t width = 0;
  };

  struct Buffer {
    BufferId id;
    uint32_t next = kNone;  // with the same index: a stale id and its successor
    uint32_t first_grid = kNone;
    uint32_t entry_count = 0;
    int32_t pitch_changes_left = 0;
    bool has_cells = false;
    int64_t pitch = 0;  // 0: no region repeats
  };

  uint32_t find_buffer(BufferId id) const;
  uint32_t add_buffer(BufferId id);
  void drop_buffer(uint32_t buffer);
  void list_nodes(const Buffer& buffer, std::vector<uint32_t>& nodes) const;

  static void set_box(Entry& entry, int64_t pitch);
  static bool boxes_meet(const Box& a, const Box& b);
  void find_in_grid(uint32_t number, const Box& box, std::vector<uint32_t>& found) const;
  void find_in_cells(uint32_t number, const Box& box, const Cells& cells,
                     std::vector<uint32_t>& found) const;
  uint32_t grid_for(uint32_t buffer, const Box& box);
  void drop_grid(uint32_t grid);

  size_t bucket_of(uint32_t grid, int64_t row, int64_t column) const;
  size_t bucket_of(const Entry& entry) const;
  void update_pitch(uint32_t number, const Region& region);
  void place(uint32_t node, uint32_t buffer);
  void enter_cell(uint32_t node);
  void leave_cell(uint32_t node);
  void take_out(uint32_t node);
  void place_all_again(uint32_t buffer);
  void grow_buckets();

  std::vector<Entry> entries_;  // by node
  std::vector<Grid> grids_;
  std::vector<Buffer> buffers_;
  std::vector<uint32_t> first_buffer_;  // by index of the id
  std::vector<uint32_t> buckets_;       // the first entry of each; a power of two, or none
  std::vector<uint32_t> moved_nodes_;
  uint32_t in_cells_count_ = 0;
  uint32_t free_grid_ = kNone;
  uint32_t free_buffer_ = kNone;
};

}  // namespace gapless
