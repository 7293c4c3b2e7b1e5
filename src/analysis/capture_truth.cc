// SPDX-License-Identifier: Apache-2.0

#include "analysis/capture_truth.h"

#include <cstddef>
#include <iterator>
#include <string_view>
#include <vector>

#include <fmt/format.h>

namespace gapless {
namespace {

void append_pass(const MadePass& pass, std::string& out) {
  fmt::format_to(
      std::back_inserter(out),
      "    {{\"device\": {}, \"index\": {}, \"phase\": \"{}\", \"dummy\": {}, "
      "\"cut_at_start\": {}, \"cut_at_end\": {},\n"
      "     \"tokens\": {}, \"sequences\": {}, \"drafts\": {}, \"context_chunks\": {},\n",
      pass.device, pass.index, pass_phase_name(pass.shape.phase), pass.shape.is_dummy,
      pass.is_cut_at_start, pass.is_cut_at_end, pass.shape.tokens, pass.shape.sequences,
      pass.shape.draft_count, pass.shape.context_chunks);
  fmt::format_to(std::back_inserter(out),
                 "     \"rows\": {}, \"first_row\": {}, \"last_row\": {}, \"anchors\": {}, "
                 "\"draft_anchors\": {}, \"collectives\": {},\n"
                 "     \"begin_ns\": {}, \"end_ns\": {}, \"wall_ns\": {}, \"union_ns\": {}, "
                 "\"sum_ns\": {}, \"compute_ns\": {}, \"collective_ns\": {}}}",
                 pass.row_count, pass.first_row, pass.last_row, pass.anchor_count,
                 pass.draft_anchor_count, pass.collective_count, pass.begin_ns, pass.end_ns,
                 pass.wall_ns(), pass.union_ns, pass.sum_ns(), pass.compute_ns, pass.collective_ns);
}

template <typename Number>
void append_array(std::string_view name, const std::vector<Number>& numbers, std::string& out) {
  fmt::format_to(std::back_inserter(out), "  \"{}\": [", name);
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0) out += ',';
    fmt::format_to(std::back_inserter(out), "{}", numbers[i]);
  }
  out += ']';
}

}  // namespace

std::string capture_truth_json(const SyntheticCapture& capture) {
  std::string out = "{\n  \"passes\": [\n";
  for (size_t i = 0; i < capture.passes.size(); ++i) {
    if (i > 0) out += ",\n";
    append_pass(capture.passes[i], out);
  }
  out += "\n  ],\n";
  append_array("row_starts_ns", capture.table.start_ns, out);
  out += ",\n";
  append_array("row_passes", capture.pass_of_row, out);
  out += "\n}\n";
  return out;
}

}  // namespace gapless
