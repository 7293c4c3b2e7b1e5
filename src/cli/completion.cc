// SPDX-License-Identifier: Apache-2.0

#include "cli/completion.h"

#include <string_view>
#include <vector>

#include <fmt/core.h>

namespace gapless {
namespace {

// The script around the tables. `verb` is the first word that is not an option, or the first two
// when the first is one of the commands that have commands of their own ({1}); "--to=x" comes from
// bash as three words.
constexpr std::string_view kScriptBegin =
    R"(# bash completion for {0}; made by `{0} completion bash`.
_{0}() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} verb= rest= i
  local options= values= files=yes
  COMPREPLY=()
  if [[ $word == '=' ]]; then
    word=
  elif [[ $before == '=' ]]; then
    before=${{COMP_WORDS[COMP_CWORD-2]}}
  fi
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${{COMP_WORDS[i]}} == -- ]] && rest=$i && break
    [[ ${{COMP_WORDS[i]}} == -* ]] && continue
    [[ -z $verb || ' {1} ' == *" $verb "* ]] && verb=${{verb:+$verb }}${{COMP_WORDS[i]}}
  done
  if [[ -n $rest ]]; then
    ((COMP_CWORD == rest + 1)) && COMPREPLY=($(compgen -c -- "$word"))
    return
  fi
  case $verb in
)";

constexpr std::string_view kScriptEnd = R"(  esac
  if [[ -n $values ]]; then
    COMPREPLY=($(compgen -W "$values" -- "$word"))
  elif [[ $word == -* ]]; then
    COMPREPLY=($(compgen -W "$options" -- "$word"))
  fi
  [[ -z $files ]] && compopt +o default 2>/dev/null
}}
complete -o default -F _{0} {0}
)";

void append_word(std::string& words, std::string_view word) {
  if (!words.empty()) words += ' ';
  words += word;
}

// "-o|--output", as a pattern of case.
std::string pattern_of(const CLI::Option& option) {
  std::string pattern;
  for (const std::string& name : option.get_snames()) pattern += "-" + name + "|";
  for (const std::string& name : option.get_lnames()) pattern += "--" + name + "|";
  pattern.pop_back();
  return pattern;
}

// The fixed set of an option, which CLI11 shows as "{a,b}" in its type; empty: none.
std::string values_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t begin = type.find('{');
  const size_t end = type.find('}', begin);
  if (begin == std::string::npos || end == std::string::npos) return "";
  std::string values = type.substr(begin + 1, end - begin - 1);
  for (char& c : values) {
    if (c == ',') c = ' ';
  }
  return values;
}

bool takes_path(const CLI::Option& option) {
  return option.get_type_name().find("PATH") != std::string::npos;
}

// What follows an option: a fixed set, a file, or something only the user knows.
std::string after_option(const CLI::Option& option) {
  if (!option.nonpositional() || option.get_items_expected_max() == 0) return "";
  const std::string values = values_of(option);
  if (!values.empty()) return fmt::format("{}) values='{}' ;;\n", pattern_of(option), values);
  if (takes_path(option)) return fmt::format("{}) word= ;;\n", pattern_of(option));
  return fmt::format("{}) files= word= ;;\n", pattern_of(option));
}

// One branch of the case over verbs. `values` are what may stand where no option is expected.
std::string verb_branch(const CLI::App& app, std::string_view pattern, std::string values) {
  std::string options;
  std::string cases;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) append_word(options, "--" + name);
    if (option->get_positional() && values.empty()) values = values_of(*option);
    const std::string following = after_option(*option);
    if (!following.empty()) cases += "        " + following;
  }
  std::string text = fmt::format("    {})\n      options='{}'\n", pattern, options);
  if (!values.empty()) {
    text += fmt::format("      [[ $word != -* ]] && values='{}' files=\n", values);
  }
  if (!cases.empty()) text += fmt::format("      case $before in\n{}      esac\n", cases);
  return text + "      ;;\n";
}

}  // namespace

std::string bash_completion(const CLI::App& app) {
  std::string verbs;
  std::string groups;
  std::string branches;
  for (const CLI::App* command : app.get_subcommands({})) {
    append_word(verbs, command->get_name());
    std::string inner_verbs;
    for (const CLI::App* inner : command->get_subcommands({})) {
      append_word(inner_verbs, inner->get_name());
      const std::string pattern = fmt::format("'{} {}'", command->get_name(), inner->get_name());
      branches += verb_branch(*inner, pattern, "");
    }
    if (!inner_verbs.empty()) append_word(groups, command->get_name());
    branches += verb_branch(*command, command->get_name(), inner_verbs);
  }
  return fmt::format(kScriptBegin, app.get_name(), groups) + verb_branch(app, "''", verbs) +
         branches + fmt::format(kScriptEnd, app.get_name());
}

}  // namespace gapless
