// SPDX-License-Identifier: Apache-2.0

#include "cli/program.h"

#include <cctype>
#include <csignal>
#include <cstdio>
#include <iterator>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/nearest_name.h"
#include "gapless_commit.h"  // generated: the commit that is being built

namespace gapless {
namespace {

constexpr int kExitFailed = 1;
constexpr int kExitUsage = 2;

struct CommandEntry {
  const char* name;
  const char* summary;
  RunCommand (*define)(CLI::App& command);
};

constexpr CommandEntry kCommands[] = {
    {"profile", "Run decode steps of a model, check and record them, say what they took",
     define_profile},
    {"generate", "Write text with a model", define_generate},
    {"check", "Compare a model's A8W8 form with what it was made from", define_check},
    {"quantize", "Write a checkpoint with int8 weights", define_quantize},
    {"bench", "Time decode steps over batches, contexts and types", define_bench},
    {"report", "Say where the core time of a step went, and what would change it", define_report},
    {"diff", "Say why one step takes longer than another", define_diff},
    {"whatif", "Replay a step with something changed", define_whatif},
    {"calibrate", "Fit a simulated device to a recorded trace", define_calibrate},
    {"passes", "Find the forward passes of a capture", define_passes},
    {"align", "Hold a model of a forward pass against what was measured", define_align},
    {"info", "Say what a trace holds", define_info},
    {"convert", "Turn a trace into another format, for Perfetto or Paraver", define_convert},
    {"record", "Run an instrumented program and collect its trace", define_record},
    {"plan", "Say how a kernel's work would be cut, and what it would take", define_plan},
    {"synth", "Make up a capture whose forward passes are known", define_synth},
    {"completion", "Print the script that completes gapless in a shell", define_completion},
};

// A list of arguments that takes all the rest is a program to run: it stands behind "--". Lists of
// files do not.
struct HelpFormatter : CLI::Formatter {
  std::string make_option_usage(const CLI::Option* option) const override {
    const bool takes_rest = option->get_expected_max() > 1 && option->get_type_name() != "PATH";
    return (takes_rest ? "-- " : "") + CLI::Formatter::make_option_usage(option);
  }
};

std::string version_text() {
  const std::string commit = GAPLESS_COMMIT;
  return fmt::format("gapless {}\nbuild     {}\ncompiler  {}\ncommit    {}\n", GAPLESS_VERSION,
                     GAPLESS_BUILD_TYPE, GAPLESS_COMPILER, commit.empty() ? "unknown" : commit);
}

int report_error(const std::string& where, const Error& error) {
  std::fflush(stdout);
  const std::string line = fmt::format("{}: error: {}\n", where, error.message);
  std::fwrite(line.data(), 1, line.size(), stderr);
  if (error.code != ErrorCode::kUsage) return kExitFailed;
  const std::string hint = fmt::format("try `{} --help`\n", where);
  std::fwrite(hint.data(), 1, hint.size(), stderr);
  return kExitUsage;
}

// The command that was named, also one within another, or the program itself.
const CLI::App& selected(const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app : selected(*commands.front());
}

std::string full_name(const CLI::App& app) {
  const std::vector<CLI::App*> commands = app.get_subcommands();
  return commands.empty() ? app.get_name() : app.get_name() + " " + full_name(*commands.front());
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({})) names.push_back(command->get_name());
  return names;
}

std::string suggestion(const std::string& typed, const std::vector<std::string>& names) {
  const std::optional<std::string> nearest = nearest_name(typed, names);
  return nearest ? fmt::format("; did you mean {}?", *nearest) : "";
}

Error unknown_option(const CLI::App& command, const std::string& typed) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  const std::string name = typed.substr(0, typed.find('='));
  const std::string hint =
      command.get_name() == "record" ? "; an option of the program goes behind `-- PROGRAM`" : "";
  return fail(ErrorCode::kUsage, "unknown option {}{}{}", name, suggestion(name, names), hint);
}

Error unknown_command(const CLI::App& app, const std::string& typed) {
  return fail(ErrorCode::kUsage, "unknown command {}{}", typed,
              suggestion(typed, command_names(app)));
}

// What the parser could not place tells more than its first complaint does.
Error usage_error(const CLI::App& app, const CLI::ParseError& problem) {
  const CLI::App& command = selected(app);
  std::vector<std::string> unplaced = app.remaining(true);
  std::erase(unplaced, "--");
  for (const std::string& word : unplaced) {
    if (word.size() > 1 && word[0] == '-') return unknown_option(command, word);
  }
  const bool needs_command = !command_names(command).empty();
  if (!unplaced.empty() && needs_command) return unknown_command(command, unplaced.front());
  if (!unplaced.empty()) {
    return fail(ErrorCode::kUsage, "unexpected argument {}", unplaced.front());
  }
  if (needs_command) return fail(ErrorCode::kUsage, "no command given");
  std::string message = problem.what();
  // Sentences of the parser begin with a capital; names of options and arguments stay.
  const bool is_sentence = message.size() > 1 && std::islower(message[1]) != 0;
  if (is_sentence) message[0] = static_cast<char>(std::tolower(message[0]));
  return Error{ErrorCode::kUsage, message};
}

int print_and_exit(const std::string& where, const std::string& text) {
  const Result<void> printed = print(text);
  return printed ? 0 : report_error(where, printed.error());
}

int parse_and_run(int argument_count, char** arguments) {
  CLI::App app("Records what every core does, and says where the time went.", "gapless");
  app.require_subcommand(1);
  app.formatter(std::make_shared<HelpFormatter>());
  app.set_help_flag("-h,--help", "Print this help");
  app.set_version_flag("--version", version_text(), "Version, build type, compiler and commit");
  app.get_formatter()->column_width(31);
  app.get_formatter()->label("Positionals", "Arguments");
  app.get_formatter()->label("SUBCOMMAND", "COMMAND");
  app.footer(
      "Examples:\n"
      "  gapless profile                           a decode layer of Qwen3-14B on these cores\n"
      "  gapless generate DIR -p 'Hello'           writes text with a checkpoint\n"
      "  gapless record -- ./program               runs it and writes trace.gapless\n"
      "  gapless info trace.gapless                what is in it\n"
      "  gapless convert trace.gapless --to json   for ui.perfetto.dev\n"
      "\n"
      "`gapless COMMAND --help` tells more.");
  std::vector<RunCommand> run_command;
  for (const CommandEntry& entry : kCommands) {
    CLI::App& command = *app.add_subcommand(entry.name, entry.summary);
    command.group("Commands");
    run_command.push_back(entry.define(command));
  }

  try {
    app.parse(argument_count, arguments);
  } catch (const CLI::CallForHelp&) {
    return print_and_exit(full_name(app), app.help());
  } catch (const CLI::CallForVersion&) {
    return print_and_exit(full_name(app), version_text());
  } catch (const CLI::ParseError& problem) {
    return report_error(full_name(app), usage_error(app, problem));
  }
  for (size_t i = 0; i < std::size(kCommands); ++i) {
    if (!app.got_subcommand(kCommands[i].name)) continue;
    const Result<int> status = run_command[i]();
    return status ? *status : report_error(full_name(app), status.error());
  }
  return kExitUsage;  // not reached: the parser insists on a command
}

}  // namespace

int run_gapless(int argument_count, char** arguments) {
  // Writing to a pipe that nobody reads returns an error instead of ending us.
  std::signal(SIGPIPE, SIG_IGN);
  return parse_and_run(argument_count, arguments);
}

}  // namespace gapless
