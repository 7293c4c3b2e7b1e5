// SPDX-License-Identifier: Apache-2.0
//
// The projections of Qwen3-14B for 1, 4 and 16 rows, against what this machine can read and
// compute and against oneDNN, all in the same rounds.
//
// A cell is a type of weights, a number of rows and a number of threads. One turn of a cell is a
// pass of the read ceiling, the four projections of a layer one after the other (as in a decode
// step: none finds its weights in a cache), another pass, and the peer. The ceiling of a turn is
// the mean of its two passes.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>

#include "base/check.h"
#include "base/half.h"
#include "bench/dnnl_peer.h"
#include "bench/kernel_bench_support.h"
#include "bench/measurement.h"
#include "kernels/elementwise.h"
#include "kernels/matmul_bench_run.h"

namespace gapless {
namespace {

constexpr int64_t kHidden = 5120;
constexpr int64_t kIntermediate = 17408;
constexpr int64_t kQkv = 7168;
constexpr size_t kGateUp = 2;
constexpr size_t kDown = 3;
constexpr Projection kLayer[] = {
    {"qkv", kHidden, kQkv, Interleave::kNone, DType::kF32, false},
    {"o", kHidden, kHidden, Interleave::kNone, DType::kF32, true},
    {"gate+up", kHidden, kIntermediate, Interleave::kPairs, DType::kBf16, false},
    {"down", kIntermediate, kHidden, Interleave::kNone, DType::kF32, true},
};
constexpr Projection kGateAlone = {"gate",      kHidden, kIntermediate, Interleave::kNone,
                                   DType::kF32, false};
constexpr int64_t kRowCounts[] = {1, 4, 16};
constexpr int kQuickPart = 8;  // --quick: a part of the columns
constexpr size_t kPeerBytes = size_t{512} << 20;

constexpr double kDownGoal = 0.90;
constexpr double kPeerGoal = 1.3;
constexpr double kFmaGoal = 0.75;

// Of the read ceiling; nothing where another limit is the goal.
std::optional<double> read_goal(DType dtype, int64_t m) {
  if (dtype == DType::kF16) return std::nullopt;
  if (m == 1) return 0.92;
  if (m == 4) return 0.88;
  return dtype == DType::kS8 ? std::optional<double>(0.75) : std::nullopt;
}

// The two-matmul form of gate and up: both sums are stored, then SiLU(gate) x up is.
struct TwoMatmuls {
  std::unique_ptr<MatmulRun> gate;
  std::unique_ptr<MatmulRun> up;
  std::vector<Bf16> output;
};

struct Cell {
  DType dtype = DType::kS8;
  int64_t m = 1;
  int thread_count = 1;
  std::vector<std::unique_ptr<MatmulRun>> runs;    // the layer, in its order
  std::vector<std::unique_ptr<DnnlMatmul>> peers;  // the same, or none
  TwoMatmuls two;
  // One value a round.
  Figure read{"GB/s", {}};
  Figure f32_peak{"GFLOP/s", {}};
  Figure peak{"GFLOP/s", {}};           // of the instruction that this level has for the type
  std::vector<std::vector<double>> ns;  // of each projection
  std::vector<std::vector<double>> peer_ns;
  // Gate and up, one right after the other: with packing, as they are, and as two matmuls.
  std::vector<double> packing_ns;
  std::vector<double> dual_ns;
  std::vector<double> two_ns;
};

struct Bench {
  CpuLevel level = CpuLevel::kPortable;
  std::unique_ptr<PinnedThreads> threads;
  std::unique_ptr<ReadCeiling> ceiling;
  std::unique_ptr<DnnlWeights> peer_memory;
  std::vector<std::unique_ptr<ProjectionWeights>> weights;
  std::vector<Cell> cells;
};

std::string cell_text(const Cell& cell) {
  return fmt::format("{}, m {}, {}", dtype_name(cell.dtype), cell.m,
                     threads_text(cell.thread_count));
}

// ---- Making the cells.

Result<const ProjectionWeights*> add_weights(Bench& bench, Projection projection, DType dtype,
                                             const BenchOptions& options) {
  if (options.quick) projection.n /= kQuickPart;
  // Two layers of s8 and one of 16 bits are 660 MB.
  const int copy_count = dtype == DType::kS8 && !options.quick ? 2 : 1;
  bench.weights.push_back(std::make_unique<ProjectionWeights>(
      GAPLESS_TRY(make_weights(*bench.threads, projection, dtype, copy_count))));
  return bench.weights.back().get();
}

Result<void> add_peers(Bench& bench, Cell& cell) {
  if (cell.dtype == DType::kF16) return {};
  std::vector<int> cores = bench.threads->cores();
  cores.resize(static_cast<size_t>(cell.thread_count));
  for (const std::unique_ptr<MatmulRun>& run : cell.runs) {
    std::unique_ptr<DnnlMatmul> peer =
        GAPLESS_TRY(make_dnnl_matmul({.weights = cell.dtype,
                                      .m = cell.m,
                                      .k = run->projection().k,
                                      .n = run->projection().columns(),
                                      .cores = cores,
                                      .memory = bench.peer_memory.get()}));
    if (peer == nullptr) return {};
    cell.peers.push_back(std::move(peer));
  }
  return {};
}

Result<Cell> make_cell(Bench& bench, const std::vector<const ProjectionWeights*>& layer, int64_t m,
                       int thread_count) {
  Cell cell;
  cell.dtype = layer.front()->dtype;
  cell.m = m;
  cell.thread_count = thread_count;
  for (const ProjectionWeights* weights : layer) {
    cell.runs.push_back(
        GAPLESS_TRY(MatmulRun::make(*bench.threads, bench.level, *weights, m, thread_count)));
  }
  cell.ns.resize(cell.runs.size());
  GAPLESS_TRY(add_peers(bench, cell));
  cell.peer_ns.resize(cell.peers.size());
  return cell;
}

Result<void> add_two_matmuls(Bench& bench, Cell& cell, const ProjectionWeights& gate,
                             const ProjectionWeights& up) {
  cell.two.gate =
      GAPLESS_TRY(MatmulRun::make(*bench.threads, bench.level, gate, cell.m, cell.thread_count));
  cell.two.up =
      GAPLESS_TRY(MatmulRun::make(*bench.threads, bench.level, up, cell.m, cell.thread_count));
  cell.two.output.resize(static_cast<size_t>(cell.m * gate.projection.n));
  return {};
}

Result<void> add_cells(Bench& bench, DType dtype, const BenchOptions& options) {
  std::vector<const ProjectionWeights*> layer;
  for (const Projection& projection : kLayer) {
    layer.push_back(GAPLESS_TRY(add_weights(bench, projection, dtype, options)));
  }
  const ProjectionWeights* gate = GAPLESS_TRY(add_weights(bench, kGateAlone, dtype, options));
  const ProjectionWeights* up = GAPLESS_TRY(add_weights(bench, kGateAlone, dtype, options));
  for (int thread_count = 1; thread_count <= bench.threads->count(); ++thread_count) {
    for (const int64_t m : kRowCounts) {
      Cell cell = GAPLESS_TRY(make_cell(bench, layer, m, thread_count));
      GAPLESS_TRY(add_two_matmuls(bench, cell, *gate, *up));
      bench.cells.push_back(std::move(cell));
    }
  }
  return {};
}

Result<void> add_f16_cells(Bench& bench, const BenchOptions& options) {
  const std::vector<const ProjectionWeights*> layer = {
      GAPLESS_TRY(add_weights(bench, kLayer[0], DType::kF16, options))};
  for (int thread_count = 1; thread_count <= bench.threads->count(); ++thread_count) {
    for (const int64_t m : {1, 16}) {
      bench.cells.push_back(GAPLESS_TRY(make_cell(bench, layer, m, thread_count)));
    }
  }
  return {};
}

Result<Bench> make_bench(const BenchOptions& options) {
  Bench bench;
  bench.level = GAPLESS_TRY(choose_cpu_level());
  const int thread_count = static_cast<int>(std::min<size_t>(usable_cores().size(), 2));
  bench.threads = GAPLESS_TRY(PinnedThreads::start(thread_count));
  bench.ceiling = std::make_unique<ReadCeiling>(GAPLESS_TRY(ReadCeiling::create(
      *bench.threads, {.level = bench.level, .repeat_count = options.quick ? 1 : 5})));
  bench.peer_memory = std::make_unique<DnnlWeights>(GAPLESS_TRY(make_dnnl_weights(kPeerBytes)));
  for (const DType dtype : {DType::kS8, DType::kBf16}) {
    GAPLESS_TRY(add_cells(bench, dtype, options));
  }
  GAPLESS_TRY(add_f16_cells(bench, options));
  return bench;
}

// ---- One turn.

double run_two_matmuls(Bench& bench, Cell& cell) {
  const double matmuls_ns = cell.two.gate->run() + cell.two.up->run();
  const int64_t n = cell.two.gate->projection().n;
  const int64_t parts = cell.thread_count;
  const int64_t columns = (n + parts - 1) / parts;
  return matmuls_ns + bench.threads->run_jobs(cell.thread_count, cell.m * parts, [&](int64_t job) {
    const int64_t begin = job % parts * columns;
    const int64_t offset = job / parts * n + begin;
    silu_multiply(bench.level, cell.two.gate->output_f32() + offset,
                  cell.two.up->output_f32() + offset, 1.0f, std::min(columns, n - begin),
                  DType::kBf16, cell.two.output.data() + offset);
  });
}

// The peer's threads are awake and have run once before they are timed, and sleep afterwards.
Result<void> run_peers(Cell& cell) {
  if (cell.peers.empty()) return {};
  cell.peers.front()->prepare();
  for (size_t i = 0; i < cell.peers.size(); ++i) {
    cell.peers[i]->run();
    cell.peer_ns[i].push_back(cell.peers[i]->run());
  }
  return wait_until_quiet();
}

void run_peaks(Bench& bench, Cell& cell) {
  const auto measure = [&bench, &cell](Arithmetic arithmetic) {
    return measure_compute(*bench.threads, cell.thread_count, bench.level, arithmetic);
  };
  const double f32 = measure(Arithmetic::kF32).value();
  cell.f32_peak.values.push_back(f32);
  double own = f32;
  if (cell.dtype == DType::kS8) own = measure(Arithmetic::kInt8).value_or(f32);
  if (cell.dtype == DType::kBf16) own = measure(Arithmetic::kBf16).value_or(f32);
  cell.peak.values.push_back(own);
}

Result<void> run_turn(Bench& bench, Cell& cell) {
  const int repeat_count = cell.thread_count > 1 ? 2 : 1;
  run_peaks(bench, cell);
  std::vector<double> ns(cell.runs.size());
  const double before = bench.ceiling->measure(cell.thread_count);
  for (int repeat = 0; repeat < repeat_count; ++repeat) {
    for (size_t i = 0; i < cell.runs.size(); ++i) ns[i] += cell.runs[i]->run() / repeat_count;
  }
  const double after = bench.ceiling->measure(cell.thread_count);
  cell.read.values.push_back(mean_of(before, after));
  for (size_t i = 0; i < ns.size(); ++i) cell.ns[i].push_back(ns[i]);
  if (cell.two.gate != nullptr) {
    const double pack_ns = cell.runs[kGateUp]->pack();
    cell.packing_ns.push_back(pack_ns + cell.runs[kGateUp]->run());
    cell.dual_ns.push_back(cell.runs[kGateUp]->run());
    cell.two_ns.push_back(run_two_matmuls(bench, cell));
  }
  GAPLESS_TRY(run_peers(cell));
  return {};
}

// ---- Rows.

// bytes (or operations) a nanosecond of each round
Figure rate(const std::string& unit, double amount, const std::vector<double>& ns) {
  Figure figure{unit, {}};
  for (const double one : ns) figure.values.push_back(amount / one);
  return figure;
}

Figure sum_ms(const std::vector<std::vector<double>>& ns) {
  Figure sum{"ms", std::vector<double>(ns.front().size())};
  for (const std::vector<double>& one : ns) {
    for (size_t i = 0; i < one.size(); ++i) sum.values[i] += one[i] * 1e-6;
  }
  return sum;
}

// What memory and arithmetic together allow, in GB/s of weights.
Figure roofline(const Cell& cell, const MatmulRun& run) {
  Figure limit{"GB/s", {}};
  for (size_t i = 0; i < cell.read.values.size(); ++i) {
    const double compute = cell.peak.values[i] * run.weight_bytes() / run.flops();
    limit.values.push_back(std::min(cell.read.values[i], compute));
  }
  return limit;
}

Row make_row(std::string group, std::string what, Figure figure) {
  Row row;
  row.group = std::move(group);
  row.what = std::move(what);
  row.figure = std::move(figure);
  return row;
}

Row projection_row(const Cell& cell, size_t index) {
  const MatmulRun& run = *cell.runs[index];
  const Figure bytes = rate("GB/s", run.weight_bytes(), cell.ns[index]);
  const Figure limit = roofline(cell, run);
  const std::string roofline_text =
      fmt::format("{:.2f} of the roofline, {}", ratio(bytes, limit), figure_text(limit));
  const std::string name = fmt::format("{} {}", run.projection().name, cell_text(cell));
  if (cell.dtype == DType::kBf16 && cell.m == 16) {
    const Figure operations = rate("GFLOP/s", run.flops(), cell.ns[index]);
    Row row = make_row("matmul", name, operations);
    compare(row, "f32 FMA peak", cell.f32_peak);
    row.note = fmt::format("{}, {:.2f} of the read ceiling; {}", figure_text(bytes),
                           ratio(bytes, cell.read), roofline_text);
    return expect_ratio_at_least(row, kFmaGoal);
  }
  Row row = make_row("matmul", name, bytes);
  compare(row, "read ceiling", cell.read);
  row.note = roofline_text;
  const std::optional<double> goal = read_goal(cell.dtype, cell.m);
  return goal ? expect_ratio_at_least(row, *goal) : row;
}

Row down_row(const Cell& cell) {
  const MatmulRun& down = *cell.runs[kDown];
  const MatmulRun& gate_up = *cell.runs[kGateUp];
  Row row = make_row("matmul down", "down, " + cell_text(cell),
                     rate("GB/s", down.weight_bytes(), cell.ns[kDown]));
  compare(row, "gate+up", rate("GB/s", gate_up.weight_bytes(), cell.ns[kGateUp]));
  return expect_ratio_at_least(row, kDownGoal);
}

Row packing_row(const Cell& cell) {
  const double bytes = cell.runs[kGateUp]->weight_bytes();
  Row row = make_row("matmul packing", "gate+up with packing its rows, " + cell_text(cell),
                     rate("GB/s", bytes, cell.packing_ns));
  return compare(row, "rows packed before", rate("GB/s", bytes, cell.dual_ns));
}

Row dual_row(const Cell& cell) {
  const double bytes = cell.runs[kGateUp]->weight_bytes();
  Row row = make_row("matmul dual output", "gate+up in one, " + cell_text(cell),
                     rate("GB/s", bytes, cell.dual_ns));
  compare(row, "two matmuls and SiLU", rate("GB/s", bytes, cell.two_ns));
  return expect_ratio_at_least(row, 1.0);
}

Row peer_row(const Cell& cell) {
  // Peer over ours, both as time: how many times faster ours is.
  Row row = make_row("matmul peer", cell.peers.front()->name() + ", a layer, " + cell_text(cell),
                     sum_ms(cell.peer_ns));
  compare(row, "ours", sum_ms(cell.ns));
  for (size_t i = 0; i < cell.peers.size(); ++i) {
    row.note += fmt::format("{}{} {:.2f}x", i == 0 ? "" : ", ", cell.runs[i]->projection().name,
                            ratio({"", cell.peer_ns[i]}, {"", cell.ns[i]}));
  }
  return expect_ratio_at_least(row, kPeerGoal);
}

void add_cell_rows(const Cell& cell, std::vector<Row>& rows) {
  for (size_t i = 0; i < cell.runs.size(); ++i) rows.push_back(projection_row(cell, i));
  if (cell.two.gate != nullptr) {
    rows.push_back(down_row(cell));
    rows.push_back(packing_row(cell));
    rows.push_back(dual_row(cell));
  }
  if (!cell.peers.empty()) rows.push_back(peer_row(cell));
}

void add_ceiling_rows(Bench& bench, const BenchOptions& options, std::vector<Row>& rows) {
  const int round_count = options.quick ? 1 : 5;
  for (int threads = 1; threads <= bench.threads->count(); ++threads) {
    Figure read{"GB/s", {}};
    for (int i = 0; i < round_count; ++i) read.values.push_back(bench.ceiling->measure(threads));
    Row row = make_row("ceiling", "read, " + threads_text(threads), read);
    row.note = form_text(bench.ceiling->form(threads)) +
               fmt::format("; {:.0f} % in huge pages", 100.0 * bench.ceiling->huge_share());
    rows.push_back(std::move(row));
    for (const CpuLevel level : usable_cpu_levels()) {
      for (const Arithmetic arithmetic : kAllArithmetic) {
        Figure peak{"GFLOP/s", {}};
        for (int i = 0; i < round_count; ++i) {
          const std::optional<double> one =
              measure_compute(*bench.threads, threads, level, arithmetic);
          if (one) peak.values.push_back(*one);
        }
        if (peak.values.empty()) continue;
        rows.push_back(make_row("ceiling",
                                fmt::format("{} at {}, {}", arithmetic_name(arithmetic),
                                            cpu_level_name(level), threads_text(threads)),
                                peak));
      }
    }
  }
}

Result<std::vector<Row>> measure(const BenchOptions& options) {
  Bench bench = GAPLESS_TRY(make_bench(options));
  fmt::print("matmul at level {}{}\n", cpu_level_name(bench.level),
             options.quick ? ", an eighth of the columns" : "");
  if (bench.cells.front().peers.empty()) {
    fmt::print("NOTE: built without oneDNN (libdnnl-dev): no peer is measured\n");
  }
  const int round_count = options.quick ? 1 : 9;
  for (int round = 0; round < round_count; ++round) {
    for (Cell& cell : bench.cells) {
      GAPLESS_TRY(run_turn(bench, cell));
      if (round > 0) continue;
      for (const std::unique_ptr<MatmulRun>& run : cell.runs) GAPLESS_TRY(run->check());
    }
  }
  print_core_share(*bench.threads);
  std::vector<Row> rows;
  add_ceiling_rows(bench, options, rows);
  for (const Cell& cell : bench.cells) add_cell_rows(cell, rows);
  return rows;
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) { return gapless::run_bench_program(argc, argv, gapless::measure); }
