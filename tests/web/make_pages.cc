// SPDX-License-Identifier: Apache-2.0
//
// make_pages REPORT.html DIFF.html: pages of the decode shape, for the browser to test: 38,705
// tasks on 72 cores that are narrow, and the same against 38,560 that are wide.

#include <cstdio>
#include <string>

#include "analysis/made_execution.h"
#include "report/diff_report.h"
#include "report/page.h"
#include "report/page_data.h"
#include "report/step_report.h"

namespace gapless {
namespace {

Result<void> make_pages(const std::string& report_path, const std::string& diff_path) {
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

}  // namespace
}  // namespace gapless

int main(int argument_count, char** arguments) {
  if (argument_count != 3) {
    std::fputs("usage: make_pages REPORT.html DIFF.html\n", stderr);
    return 2;
  }
  const gapless::Result<void> made = gapless::make_pages(arguments[1], arguments[2]);
  if (made) return 0;
  std::fprintf(stderr, "make_pages: %s\n", made.error().message.c_str());
  return 1;
}
