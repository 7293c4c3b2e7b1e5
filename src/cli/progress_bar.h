// SPDX-License-Identifier: Apache-2.0
//
// A progress bar on standard error: only on a terminal, only for what takes longer than a second,
// and gone when the work is done. And a line that says what is being done, where nobody can tell
// how far it has come.

#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/file.h"

namespace gapless {

// Readers count bytes of the source. Writers count bytes or rows, so their rate has no unit and is
// not shown.
enum class ProgressUnit { kBytes, kUnknown };

struct ProgressState {
  std::string_view what;  // "reading"
  ProgressUnit unit = ProgressUnit::kUnknown;
  uint64_t done = 0;
  uint64_t total = 0;  // 0: not known
  double elapsed_s = 0;
  size_t width = 80;  // columns of the terminal
};

// "reading  [#####-----]  50 %  120.0 MB/s  ETA 3 s", one column shorter than the terminal or less.
std::string render_progress(const ProgressState& state);

class ProgressBar {
 public:
  ProgressBar(std::string what, ProgressUnit unit);
  ProgressBar(const ProgressBar&) = delete;
  ProgressBar& operator=(const ProgressBar&) = delete;
  ~ProgressBar() { erase(); }

  // For ReadOptions and WriteOptions; the bar must outlive it. Empty when there is no terminal.
  Progress callback();
  void erase();

 private:
  using Clock = std::chrono::steady_clock;
  void update(uint64_t done, uint64_t total);

  std::string what_;
  ProgressUnit unit_;
  Clock::time_point begin_ = Clock::now();
  Clock::time_point next_draw_ = begin_ + std::chrono::seconds(1);
  bool is_drawn_ = false;
};

class StatusLine {
 public:
  StatusLine() = default;
  StatusLine(const StatusLine&) = delete;
  StatusLine& operator=(const StatusLine&) = delete;
  ~StatusLine() { show(""); }

  // Instead of what was there; an empty text erases it.
  void show(std::string_view what);

 private:
  bool is_drawn_ = false;
};

}  // namespace gapless
