// SPDX-License-Identifier: Apache-2.0

#include "cli/command.h"

#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <map>
#include <string>
#include <system_error>

#include "report/text_table.h"

namespace gapless {

CLI::Validator from_zero_on() {
  return CLI::Validator(
      [](const std::string& text) {
        double value = -1.0;
        const bool is_number = CLI::detail::lexical_cast(text, value);
        if (is_number && std::isfinite(value) && value >= 0.0) return std::string();
        return fmt::format("{} is not a number from 0 on", text);
      },
      "");
}

void add_tracr_option(CLI::App& command, bool& labels_by_key_order) {
  command.add_flag("--tracr-labels-by-key-order", labels_by_key_order,
                   "Old TraCR traces only: number the labels in the order of their keys in\n"
                   "metadata.json, as the old tracr_process did. Often the wrong names.");
}

Result<void> print(std::string_view text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if ((written && std::fflush(stdout) == 0) || errno == EPIPE) return {};
  return fail(ErrorCode::kSystem, "standard output: cannot write: {}", std::strerror(errno));
}

void print_note(std::string_view command, std::string_view kind, std::string_view text) {
  std::fflush(stdout);
  const std::string line = fmt::format("gapless {}: {}: {}\n", command, kind, printable(text));
  std::fwrite(line.data(), 1, line.size(), stderr);
}

Result<void> check_page_path(const std::string& page, std::initializer_list<std::string> traces) {
  const std::filesystem::path folder = std::filesystem::path(page).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder))
    return fail(ErrorCode::kInvalidInput, "{}: cannot create: {} is not a folder", page,
                folder.string());
  for (const std::string& trace : traces) {
    std::error_code error;
    const bool is_same = std::filesystem::equivalent(trace, page, error) && !error;
    if (is_same || (!page.empty() && std::filesystem::absolute(trace).lexically_normal() ==
                                         std::filesystem::absolute(page).lexically_normal()))
      return fail(ErrorCode::kUsage, "--html {}; would write over a trace", page);
  }
  return {};
}

Result<void> print_page_path(std::string_view command, const std::string& page, bool json) {
  if (json) {
    print_note(command, "note", fmt::format("the page is {}", page));
    return {};
  }
  std::string line = "\n";
  add_fact(line, "page", fmt::format("{}; it opens in a browser, from disk", printable(page)));
  return print(line);
}

void print_findings(std::string_view command, const Trace& trace) {
  constexpr uint64_t kShownPerCode = 8;
  std::map<std::string, uint64_t> count_of_code;
  for (const Finding& finding : trace.findings) {
    if (finding.severity == Severity::kInfo) continue;
    if (++count_of_code[finding.code] > kShownPerCode) continue;
    print_note(command, severity_name(finding.severity), finding.text);
  }
  for (const auto& [code, count] : count_of_code) {
    if (count <= kShownPerCode) continue;
    print_note(command, "warning",
               fmt::format("{} more of {}; `gapless info --json` lists them", count - kShownPerCode,
                           code));
  }
}

}  // namespace gapless
