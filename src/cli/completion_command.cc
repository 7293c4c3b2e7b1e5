// SPDX-License-Identifier: Apache-2.0
//
// gapless completion bash: the script that completes this very program.

#include <memory>
#include <string>

#include "cli/command.h"
#include "cli/completion.h"

namespace gapless {

RunCommand define_completion(CLI::App& command) {
  const auto shell = std::make_shared<std::string>();
  command.add_option("SHELL", *shell, "The shell to complete in")
      ->required()
      ->check(CLI::IsMember({"bash"}))
      ->option_text("(bash)");
  command.footer(
      "Examples:\n"
      "  source <(gapless completion bash)        for this terminal\n"
      "  gapless completion bash > ~/.local/share/bash-completion/completions/gapless");
  return [shell, &command]() -> Result<int> {
    const Result<void> printed = print(bash_completion(*command.get_parent()));
    if (!printed) return printed.error();
    return 0;
  };
}

}  // namespace gapless
