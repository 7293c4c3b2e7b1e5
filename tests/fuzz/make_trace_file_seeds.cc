// SPDX-License-Identifier: Apache-2.0
//
// Writes the seeds of trace_file_fuzz into a directory: small trace files of every shape.
//
// usage: make_trace_file_seeds DIRECTORY

#include <cstdio>
#include <string>

#include "base/file.h"
#include "trace/metadata_log.h"
#include "trace/raw_file_builder.h"
#include "trace/synthetic.h"
#include "trace/trace_file_writer.h"

namespace gapless {
namespace {

std::string sample_metadata() {
  ClockBody clock = {};
  clock.source = ClockSource::kTsc;
  clock.invariant = 1;
  clock.ticks_per_second = 2'000'000'000;
  FindingBody finding = {};
  finding.lane = 0;
  LaneBody core = {};
  core.kind = LaneKind::kWorker;
  return encode_device(0, 1, "p") + encode_clock(clock) + encode_anchor({0, 100}) +
         encode_anchor({1000, 700}) + encode_lane(0, LaneBody{}, "a") + encode_lane(1, core, "b") +
         encode_name(0, "x") + encode_name(1, "y") + encode_property("host", "h") +
         encode_finding(finding, "code", "text");
}

// One record of every kind.
std::string all_kinds(uint16_t lane, uint64_t ticks) {
  std::string records;
  for (const RecordKind kind : {RecordKind::kSwitch, RecordKind::kSpanBegin, RecordKind::kFlowOut,
                                RecordKind::kInstant, RecordKind::kFlowIn, RecordKind::kSpanEnd}) {
    records += encode_record({kind, ticks++, lane, 0, 7});
  }
  records += encode_counter({RecordKind::kCounter, ticks++, lane, 1}, 0.5);
  for (int time = 0; time < kTaskTimeCount; ++time) {
    records += encode_record({static_cast<RecordKind>(16 + time), ticks++, lane, 1, 7});
  }
  records += encode_edge(7, 7) + encode_cost(7, 1000, 2000);
  return records + encode_record({RecordKind::kSwitch, ticks, lane});
}

std::string record_file(uint64_t stride, bool sealed) {
  RawFileBuilder file(stride, stride == 0 ? 64 : 128);
  file.add_chunk({.type = ChunkType::kMetadata, .sealed = sealed}, sample_metadata());
  file.add_chunk({.type = ChunkType::kDrops, .sealed = sealed}, std::string("\1\0\0\0\0\0\0\0", 8));
  file.add_chunk({.writer = 1, .sequence = 1, .sealed = sealed}, all_kinds(0, 50));
  if (stride != 0) file.add_gap(stride);
  file.add_chunk({.writer = 2, .sequence = 0, .sealed = sealed}, all_kinds(1, 40));
  file.add_chunk({.writer = 1, .sequence = 0, .sealed = sealed}, all_kinds(0, 10));
  file.add_chunk({.type = ChunkType::kMetadata}, encode_end({file.bytes().size() + 96, 57}));
  return file.bytes();
}

Result<void> write_seeds(const std::string& directory) {
  GAPLESS_TRY(make_directories(directory));
  GAPLESS_TRY(write_text_file(directory + "/records_packed", record_file(0, true)));
  GAPLESS_TRY(write_text_file(directory + "/records_strided", record_file(1024, true)));
  GAPLESS_TRY(write_text_file(directory + "/records_open", record_file(1024, false)));
  GAPLESS_TRY(write_text_file(directory + "/header_only", RawFileBuilder().bytes()));
  Trace trace = make_synthetic_trace({.lane_count = 2,
                                      .spans_per_lane = 4,
                                      .nesting_depth = 2,
                                      .name_count = 2,
                                      .values = true,
                                      .categories = true,
                                      .args = true,
                                      .flow_count = 2,
                                      .counter_count = 2,
                                      .instant_count = 2,
                                      .task_lane_count = 1,
                                      .task_count = 3,
                                      .edges_per_task = 1});
  trace.tasks.bytes.assign(trace.tasks.size(), 1000);
  trace.tasks.flops.assign(trace.tasks.size(), kAbsent);
  GAPLESS_TRY(write_trace_file(trace, directory + "/columns"));
  GAPLESS_TRY(
      write_trace_file(trace, directory + "/columns_zstd", {.compress = true, .progress = {}}));
  return write_trace_file(Trace(), directory + "/columns_empty");
}

}  // namespace
}  // namespace gapless

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: make_trace_file_seeds DIRECTORY\n");
    return 2;
  }
  const gapless::Result<void> written = gapless::write_seeds(argv[1]);
  if (written) return 0;
  std::fprintf(stderr, "make_trace_file_seeds: error: %s\n", written.error().message.c_str());
  return 1;
}
