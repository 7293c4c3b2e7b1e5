// SPDX-License-Identifier: Apache-2.0
//
// make_pages REPORT.html DIFF.html STREAMS.html: pages for the browser to test. Of the decode
// shape: 38,705 tasks on 72 cores that are narrow, and the same against 38,560 that are wide. Of a
// capture of streams: one of six passes of a model, as a profiler would have listed them.

#include <cstdio>
#include <filesystem>
#include <string>
#include <system_error>

#include "analysis/made_execution.h"
#include "analysis/synthetic_capture.h"
#include "formats/ascend_csv_writer.h"
#include "report/diff_report.h"
#include "report/page.h"
#include "report/page_data.h"
#include "report/step_report.h"
#include "report/task_trace.h"

namespace gapless {
namespace {

Result<void> make_decode_pages(const std::string& report_path, const std::string& diff_path) {
  const Trace narrow = make_execution(narrow_decode_options()).trace;
  const Trace wide = make_execution(wide_decode_options()).trace;
  const StepReport narrow_report = GAPLESS_TRY(make_step_report(narrow, "narrow.gapless"));
  const StepReport wide_report = GAPLESS_TRY(make_step_report(wide, "wide.gapless"));
  PageInput input;
  input.title = "narrow.gapless";
  input.first = GAPLESS_TRY(page_data_json(narrow, narrow_report));
  GAPLESS_TRY(write_page(report_path, input));
  input.second = GAPLESS_TRY(page_data_json(wide, wide_report));
  const ReportedTrace first = {narrow, narrow_report};
  const DiffReport diff = GAPLESS_TRY(make_diff_report(first, {wide, wide_report}));
  input.diff = diff_json(diff);
  return write_page(diff_path, input);
}

// Through a file, so that the passes are found as in any capture.
Result<Trace> read_made_capture(const std::string& csv_path) {
  CaptureOptions options;
  options.pass_count = 6;
  const SyntheticCapture capture = GAPLESS_TRY(make_synthetic_capture(options));
  GAPLESS_TRY(write_ascend_csv(capture.table, csv_path));
  return read_task_trace(csv_path);
}

Result<void> make_streams_page(const std::string& path) {
  const std::string csv_path = path + ".csv";
  const Result<Trace> trace = read_made_capture(csv_path);
  std::error_code ignored;
  std::filesystem::remove(csv_path, ignored);
  if (!trace) return trace.error();
  const StepReport report = GAPLESS_TRY(make_step_report(*trace, "capture.csv"));
  PageInput input;
  input.title = "capture.csv";
  input.first = GAPLESS_TRY(page_data_json(*trace, report));
  return write_page(path, input);
}

Result<void> make_pages(char** paths) {
  GAPLESS_TRY(make_decode_pages(paths[0], paths[1]));
  return make_streams_page(paths[2]);
}

}  // namespace
}  // namespace gapless

int main(int argument_count, char** arguments) {
  if (argument_count != 4) {
    std::fputs("usage: make_pages REPORT.html DIFF.html STREAMS.html\n", stderr);
    return 2;
  }
  const gapless::Result<void> made = gapless::make_pages(arguments + 1);
  if (made) return 0;
  std::fprintf(stderr, "make_pages: %s\n", made.error().message.c_str());
  return 1;
}
