// SPDX-License-Identifier: Apache-2.0

#include "report/page.h"

#include <array>
#include <string>
#include <string_view>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "analysis/made_execution.h"
#include "base/file.h"
#include "base/temporary_directory.h"
#include "report/page_test_support.h"

namespace gapless {
namespace {

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string_view::npos; at = text.find(part, at + 1)) {
    ++count;
  }
  return count;
}

// The text of the element with data of this name; empty when there is none.
std::string element_of(const std::string& page, const std::string& id) {
  const std::string tag = "<script type=\"application/json\" id=\"" + id + "\">";
  EXPECT_LE(count_of(page, tag), 1u);
  const size_t at = page.find(tag);
  if (at == std::string::npos) return "";
  const size_t begin = at + tag.size();
  return page.substr(begin, page.find("</script>", begin) - begin);
}

PageInput input_of(const std::string& first) {
  return {.title = "title", .first = first, .second = "", .diff = ""};
}

constexpr std::array<std::string_view, 4> kMarks = {"<!--TITLE-->", "/*STYLE*/", "<!--DATA-->",
                                                    "/*SCRIPT*/"};

TEST(Page, HasEachPlaceholderOnceAndFillsItIn) {
  const std::string page = make_page(input_of("{}"));
  size_t marks_bytes = 0;
  for (const std::string_view mark : kMarks) {
    EXPECT_EQ(count_of(page_html(), mark), 1u) << mark;
    EXPECT_EQ(count_of(page, mark), count_of(page_style(), mark) + count_of(page_script(), mark))
        << mark;
    marks_bytes += mark.size();
  }
  EXPECT_EQ(count_of(page, "<title>title</title>"), 1u);
  EXPECT_FALSE(page_style().empty());
  EXPECT_FALSE(page_script().empty());
  EXPECT_EQ(count_of(page, page_style()), 1u);
  EXPECT_EQ(count_of(page, page_script()), 1u);
  const std::string_view data = "<script type=\"application/json\" id=\"first\">{}</script>\n";
  EXPECT_EQ(count_of(page, data), 1u);
  EXPECT_EQ(page.size(), page_html().size() - marks_bytes + std::string_view("title").size() +
                             page_style().size() + page_script().size() + data.size());
}

// A page that is opened from disk, on a machine without a network, must be whole.
TEST(Page, LoadsNothingFromElsewhere) {
  const std::string page = make_page(input_of("{}"));
  EXPECT_EQ(count_of(page, "http:"), count_of(page, "'http://www.w3.org/2000/svg'"));
  for (const std::string_view part : {"https:", "@import", " src=", "fetch(", "XMLHttpRequest",
                                      "import(", "\nimport ", "\nexport "}) {
    EXPECT_EQ(count_of(page, part), 0u) << part;
  }
  EXPECT_EQ(count_of(page, " href="), count_of(page, " href=\"data:"));
  EXPECT_EQ(count_of(page, "url("), count_of(page, "url(\"data:"));
}

TEST(Page, KeepsItsScriptAndStyleInTheirElements) {
  EXPECT_EQ(count_of(page_script(), "</script"), 0u);
  EXPECT_EQ(count_of(page_script(), "<!--"), 0u);
  EXPECT_EQ(count_of(page_style(), "</style"), 0u);
  const std::string page = make_page(input_of("{}"));
  EXPECT_EQ(count_of(page, "<script"),
            count_of(page_html(), "<script") + 1 + count_of(page_script(), "<script"));
}

TEST(Page, EscapesTheTitle) {
  PageInput input = input_of("{}");
  input.title = "a<b>&</title><script>";
  const std::string page = make_page(input);
  EXPECT_EQ(count_of(page, "<title>a&lt;b&gt;&amp;&lt;/title&gt;&lt;script&gt;</title>"), 1u);
}

TEST(Page, LetsNoTextOfATraceOutOfItsElement) {
  const nlohmann::json evil = {{"a</script><script>alert(1)</script>", "<!-- <script>"},
                               {"b", "<!--DATA--> /*SCRIPT*/ <!--TITLE--> $& \\1"}};
  const std::string page = make_page(
      {.title = "/*SCRIPT*/", .first = evil.dump(), .second = evil.dump(2), .diff = "[\"<\"]"});
  for (const std::string id : {"first", "second"}) {
    const std::string element = element_of(page, id);
    EXPECT_EQ(element.find('<'), std::string::npos);
    EXPECT_EQ(nlohmann::json::parse(element), evil);
  }
  EXPECT_EQ(element_of(page, "diff"), "[\"\\u003c\"]");
  EXPECT_EQ(count_of(page, "alert(1)"), 2u);
  EXPECT_EQ(count_of(page, page_script()), 1u);
}

TEST(Page, HoldsOneStepOrTwoAndTheirDifference) {
  const std::string one = make_page(input_of("{\"a\": 1}"));
  EXPECT_EQ(element_of(one, "first"), "{\"a\": 1}");
  EXPECT_EQ(one.find("id=\"second\">"), std::string::npos);
  EXPECT_EQ(one.find("id=\"diff\">"), std::string::npos);
  const std::string two = make_page(
      {.title = "t", .first = "{\"a\": 1}", .second = "{\"b\": 2}", .diff = "{\"c\": 3}"});
  EXPECT_EQ(element_of(two, "first"), "{\"a\": 1}");
  EXPECT_EQ(element_of(two, "second"), "{\"b\": 2}");
  EXPECT_EQ(element_of(two, "diff"), "{\"c\": 3}");
}

TEST(Page, HoldsATraceWhoseNamesAreMarkup) {
  MadeOptions options;
  options.kernels = {{.name = "</script><script>alert(1)</script>"}, {.name = "<!--"}};
  options.overheads.dispatch = {100, 200};
  const MadeExecution made = make_execution(options);
  const StepReport report = make_step_report(made.trace, "<made>.gapless").value();
  const std::string page = make_page(input_of(page_data_json(made.trace, report).value()));
  EXPECT_EQ(count_of(page, "<script>alert"), 0u);
  const ReadStep read = read_step(element_of(page, "first"));
  EXPECT_EQ(read.json["title"], "<made>.gapless");
  ASSERT_EQ(read.tasks.size(), report.tasks->task_count());
  size_t number = 0;
  for (uint32_t core = 0; core < report.tasks->core_count(); ++core) {
    for (const uint32_t task : report.tasks->tasks_of_core(core)) {
      const ReadTask& found = read.tasks[number++];
      EXPECT_EQ(found.start_ns, report.tasks->start_ns(task) - made.window.begin_ns);
      EXPECT_EQ(found.end_ns, report.tasks->end_ns(task) - made.window.begin_ns);
      EXPECT_EQ(read.json["kernels"][found.kernel], made.trace.names[report.tasks->kernel(task)]);
    }
  }
}

TEST(Page, IsWrittenCompletelyOrNotAtAll) {
  const TemporaryDirectory folder;
  const std::string path = folder.path() + "/page.html";
  const PageInput input = input_of("{}");
  ASSERT_TRUE(write_page(path, input).has_value());
  EXPECT_EQ(read_text_file(path).value(), make_page(input));
  const Result<void> failed = write_page(folder.path() + "/none/page.html", input);
  ASSERT_FALSE(failed.has_value());
  EXPECT_NE(failed.error().message.find("none/page.html"), std::string::npos);
}

}  // namespace
}  // namespace gapless
