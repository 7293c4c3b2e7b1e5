// SPDX-License-Identifier: Apache-2.0
//
// A conversation as the text that Qwen3 was trained on. What Qwen3's own template does is written
// out here: no template language, and none of the template's surprises for the reader.
//
// Each turn is <|im_start|>ROLE\nCONTENT<|im_end|>\n. What an assistant thought (<think> ...
// </think>) is dropped from turns before the last question of the user, and kept after it. Lists of
// tools and calls of tools are not supported; answers of tools are.
//
// Contents are taken as they are: one that holds <|im_end|> ends its turn. Who passes on text of
// strangers must look for that first.

#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"

namespace gapless {

enum class ChatRole { kSystem, kUser, kAssistant, kTool };

struct ChatMessage {
  ChatRole role = ChatRole::kUser;
  std::string content;
  // Assistants: what was thought, when it is known apart. Else it is looked for in the content.
  std::optional<std::string> reasoning{};
};

struct ChatOptions {
  bool add_generation_prompt = true;  // ends with the start of the assistant's next turn
  bool enable_thinking = true;        // false: that turn starts with an empty thought
};

// "system", "user", "assistant" or "tool".
Result<ChatRole> parse_chat_role(std::string_view name);

// An error when there is no message.
Result<std::string> render_chat(std::span<const ChatMessage> messages, const ChatOptions& options);

}  // namespace gapless
