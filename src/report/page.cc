// SPDX-License-Identifier: Apache-2.0

#include "report/page.h"

#include <array>

#include "base/file.h"

namespace gapless {
namespace {

// Text of a trace as text of the document, between tags.
std::string html_escaped(std::string_view text) {
  std::string out;
  for (const char letter : text) {
    switch (letter) {
      case '&':
        out += "&amp;";
        break;
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      default:
        out += letter;
        break;
    }
  }
  return out;
}

// In JSON a "<" can stand in strings only, where the escape means the same. Without it no text can
// end the element that it is in, or begin a comment.
void append_data(std::string& out, std::string_view id, std::string_view json) {
  out += "<script type=\"application/json\" id=\"";
  out += id;
  out += "\">";
  size_t begin = 0;
  for (size_t at = json.find('<'); at != std::string_view::npos; at = json.find('<', begin)) {
    out += json.substr(begin, at - begin);
    out += "\\u003c";
    begin = at + 1;
  }
  out += json.substr(begin);
  out += "</script>\n";
}

std::string data_elements(const PageInput& input) {
  std::string out;
  out.reserve(input.first.size() + input.second.size() + input.diff.size() + 1024);
  append_data(out, "first", input.first);
  if (!input.second.empty()) append_data(out, "second", input.second);
  if (!input.diff.empty()) append_data(out, "diff", input.diff);
  return out;
}

struct Placeholder {
  std::string_view mark;
  std::string_view text;
};

}  // namespace

// Marks are looked for in the files of web/ alone: what is put in may hold any text.
std::string make_page(const PageInput& input) {
  const std::string title = html_escaped(input.title);
  const std::string data = data_elements(input);
  const std::string_view html = page_html();
  const std::array<Placeholder, 4> placeholders = {{{"<!--TITLE-->", title},
                                                    {"/*STYLE*/", page_style()},
                                                    {"<!--DATA-->", data},
                                                    {"/*SCRIPT*/", page_script()}}};
  std::string out;
  out.reserve(html.size() + title.size() + page_style().size() + page_script().size() +
              data.size());
  size_t begin = 0;
  while (true) {
    const Placeholder* next = nullptr;
    size_t next_at = std::string_view::npos;
    for (const Placeholder& placeholder : placeholders) {
      const size_t at = html.find(placeholder.mark, begin);
      if (at < next_at) {
        next = &placeholder;
        next_at = at;
      }
    }
    out += html.substr(begin, next_at == std::string_view::npos ? next_at : next_at - begin);
    if (next == nullptr) return out;
    out += next->text;
    begin = next_at + next->mark.size();
  }
}

Result<void> write_page(const std::string& path, const PageInput& input) {
  return write_text_file(path, make_page(input));
}

}  // namespace gapless
