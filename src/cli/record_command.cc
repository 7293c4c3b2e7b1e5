// SPDX-License-Identifier: Apache-2.0
//
// gapless record -- PROGRAM: runs an instrumented program with the recorder on and collects its
// trace. Each process leaves a file in a temporary directory beside OUT; one file is renamed,
// several become one trace. What we say goes to standard error: standard output is the program's.

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "cli/child_process.h"
#include "cli/command.h"
#include "cli/progress_bar.h"
#include "formats/format.h"
#include "report/recordings.h"

namespace gapless {
namespace {

namespace fs = std::filesystem;

struct RecordArguments {
  std::string output = "trace.gapless";
  std::string policy;
  uint64_t capacity_mib = 0;
  std::vector<std::string> command;
};

// A directory of our own, removed with what is in it unless keep() was called.
class TemporaryDirectory {
 public:
  static Result<TemporaryDirectory> create_beside(const std::string& output) {
    std::error_code error;
    if (fs::is_directory(output, error)) {
      return fail(ErrorCode::kInvalidInput, "{}: is a directory; name a file with -o", output);
    }
    // Absolute, because the program may change its directory.
    const fs::path parent = fs::absolute(output, error).parent_path();
    std::string path = (parent / ".gapless-record-XXXXXX").string();
    if (::mkdtemp(path.data()) == nullptr) {
      return fail(ErrorCode::kSystem, "{}: cannot write there: {}", parent.string(),
                  std::strerror(errno));
    }
    return TemporaryDirectory(path);
  }
  TemporaryDirectory(TemporaryDirectory&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryDirectory& operator=(TemporaryDirectory&&) = delete;
  ~TemporaryDirectory() {
    std::error_code error;
    if (!path_.empty()) fs::remove_all(path_, error);
  }
  const std::string& path() const { return path_; }
  void keep() { path_.clear(); }

 private:
  explicit TemporaryDirectory(std::string path) : path_(std::move(path)) {}
  std::string path_;
};

std::vector<EnvironmentVariable> recorder_environment(const RecordArguments& arguments,
                                                      const std::string& directory) {
  std::vector<EnvironmentVariable> environment = {
      {"GAPLESS_TRACE_FILE", directory + "/%p.gapless"}};
  if (!arguments.policy.empty()) environment.push_back({"GAPLESS_TRACE_POLICY", arguments.policy});
  if (arguments.capacity_mib > 0) {
    environment.push_back({"GAPLESS_TRACE_CAPACITY_MIB", std::to_string(arguments.capacity_mib)});
  }
  return environment;
}

Result<std::vector<std::string>> recorded_files(const std::string& directory) {
  std::vector<std::string> files;
  for (const std::string& name : GAPLESS_TRY(list_directory(directory))) {
    if (name.ends_with(".gapless")) files.push_back(directory + "/" + name);
  }
  return files;
}

// Several processes, one trace; returns of how many. A file that cannot be read is named and left
// where it is.
Result<size_t> merge_files(const std::vector<std::string>& files, const std::string& output,
                           TemporaryDirectory& directory) {
  std::vector<Trace> traces;
  bool all_read = true;
  for (const std::string& file : files) {
    ProgressBar bar("reading", ProgressUnit::kBytes);
    Result<Trace> trace = read_trace(file, {.progress = bar.callback()});
    bar.erase();
    if (trace) {
      traces.push_back(std::move(*trace));
      continue;
    }
    all_read = false;
    print_note("record", "warning", trace.error().message);
  }
  if (!all_read) directory.keep();
  if (traces.empty()) {
    return fail(ErrorCode::kInvalidInput, "none of the traces of {} processes can be read",
                files.size());
  }
  const size_t trace_count = traces.size();
  ProgressBar bar("writing", ProgressUnit::kUnknown);
  const Result<void> written = write_trace(merge_recordings(std::move(traces)), output,
                                           Format::kGapless, {.progress = bar.callback()});
  if (!written) return written.error();
  return trace_count;
}

// Returns how many processes are in the trace.
Result<size_t> collect(const std::vector<std::string>& files, const std::string& output,
                       TemporaryDirectory& directory) {
  if (files.size() > 1) return merge_files(files, output, directory);
  std::error_code error;
  fs::rename(files[0], output, error);
  if (!error) return size_t{1};
  const std::string kept = files[0];
  directory.keep();
  return fail(ErrorCode::kSystem, "{}: cannot rename the trace to it: {}; it is in {}", output,
              error.message(), kept);
}

void report_exit(const std::string& program, const ProgramExit& ended) {
  if (ended.status == 0) return;
  const std::string how = ended.signal != 0 ? fmt::format("was ended by signal {} ({})",
                                                          ended.signal, ::strsignal(ended.signal))
                                            : fmt::format("exited with status {}", ended.status);
  print_note("record", "note", fmt::format("{} {}", program, how));
}

Result<int> run_record(const RecordArguments& arguments) {
  TemporaryDirectory directory = GAPLESS_TRY(TemporaryDirectory::create_beside(arguments.output));
  const ProgramExit ended = GAPLESS_TRY(
      run_program(arguments.command, recorder_environment(arguments, directory.path())));
  const std::string& program = arguments.command[0];
  report_exit(program, ended);
  const std::vector<std::string> files = GAPLESS_TRY(recorded_files(directory.path()));
  if (files.empty()) {
    print_note("record", "error",
               fmt::format("{} recorded nothing: it must include <gapless/trace.h>, be linked with "
                           "gapless::trace and record at least one event",
                           program));
    return ended.status != 0 ? ended.status : 1;
  }
  const size_t processes = GAPLESS_TRY(collect(files, arguments.output, directory));
  std::error_code error;
  print_note("record", "trace",
             fmt::format("{} ({} {}, {})", arguments.output, processes,
                         processes == 1 ? "process" : "processes",
                         format_bytes(fs::file_size(arguments.output, error))));
  print_note("record", "next", fmt::format("gapless info {}", arguments.output));
  return ended.status;
}

}  // namespace

RunCommand define_record(CLI::App& command) {
  const auto arguments = std::make_shared<RecordArguments>();
  command
      .add_option("-o,--output", arguments->output, "Where the trace goes (default trace.gapless)")
      ->type_name("PATH");
  command
      .add_option(
          "--policy", arguments->policy,
          "When the memory is full: grow takes more, newest keeps\nthe newest events, oldest keeps "
          "the oldest. What is\nlost is counted")
      ->check(CLI::IsMember({"grow", "newest", "oldest"}))
      ->option_text("POLICY");
  command
      .add_option("--capacity", arguments->capacity_mib,
                  "MiB that each thread may hold with newest and oldest\n(default 16)")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 20).description(""))
      ->type_name("MIB");
  command.add_option("PROGRAM", arguments->command, "The program and its arguments")
      ->required()
      ->option_text(" ");
  command.footer(
      "The program must be instrumented: include <gapless/trace.h> and link gapless::trace.\n"
      "Ctrl-C goes to the program; its trace is collected all the same. The exit status is the\n"
      "program's (128 + n when signal n ended it), or 1 when nothing was recorded.\n"
      "\n"
      "Examples:\n"
      "  gapless record -- ./decode --steps 10\n"
      "  gapless record -o run.gapless --policy newest --capacity 64 -- ./server");
  return [arguments] { return run_record(*arguments); };
}

}  // namespace gapless
