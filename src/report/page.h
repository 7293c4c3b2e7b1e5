// SPDX-License-Identifier: Apache-2.0
//
// The report page: one HTML file that needs nothing else and no network. The files of web/ are
// compiled into the program; the data of one step, or of two and their difference, is put in.

#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gapless {

struct PageInput {
  std::string title;   // of the browser's tab
  std::string first;   // page_data_json()
  std::string second;  // empty: one step
  std::string diff;    // diff_json(); empty: one step
};
// The document. Texts of traces cannot break out of it: "<" is escaped in all data.
std::string make_page(const PageInput& input);
// Through an OutputFile: it is there completely or not at all.
Result<void> write_page(const std::string& path, const PageInput& input);

// The files of web/, as the build took them in.
std::string_view page_html();
std::string_view page_style();
std::string_view page_script();

}  // namespace gapless
