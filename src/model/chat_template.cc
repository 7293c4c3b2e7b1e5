// SPDX-License-Identifier: Apache-2.0

#include "model/chat_template.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>

namespace gapless {
namespace {

constexpr std::string_view kTurnStart = "<|im_start|>";
constexpr std::string_view kTurnEnd = "<|im_end|>\n";
constexpr std::string_view kThoughtStart = "<think>";
constexpr std::string_view kThoughtEnd = "</think>";
constexpr std::string_view kResponseStart = "<tool_response>";
constexpr std::string_view kResponseEnd = "</tool_response>";

constexpr std::array<std::pair<std::string_view, ChatRole>, 4> kRoles{{
    {"system", ChatRole::kSystem},
    {"user", ChatRole::kUser},
    {"assistant", ChatRole::kAssistant},
    {"tool", ChatRole::kTool},
}};

std::string_view trim_front(std::string_view text) {
  return text.substr(std::min(text.find_first_not_of('\n'), text.size()));
}

std::string_view trim_back(std::string_view text) {
  return text.substr(0, text.find_last_not_of('\n') + 1);
}

struct AssistantTurn {
  std::string_view thought;
  std::string_view content;
};

// The thought is what lies before the first </think>, behind the last <think> there; the content
// what lies behind the last </think>.
AssistantTurn split_turn(const ChatMessage& message) {
  const std::string_view whole = message.content;
  if (message.reasoning) return {*message.reasoning, whole};
  const size_t first_end = whole.find(kThoughtEnd);
  if (first_end == std::string_view::npos) return {"", whole};
  std::string_view thought = trim_back(whole.substr(0, first_end));
  const size_t start = thought.rfind(kThoughtStart);
  if (start != std::string_view::npos) thought.remove_prefix(start + kThoughtStart.size());
  const size_t content = whole.rfind(kThoughtEnd) + kThoughtEnd.size();
  return {trim_front(thought), trim_front(whole.substr(content))};
}

bool is_question(const ChatMessage& message) {
  const std::string_view content = message.content;
  return message.role == ChatRole::kUser &&
         !(content.starts_with(kResponseStart) && content.ends_with(kResponseEnd));
}

// The index of the user's last question; of the last message when there is none.
size_t last_question(std::span<const ChatMessage> messages) {
  for (size_t i = messages.size(); i-- > 0;) {
    if (is_question(messages[i])) return i;
  }
  return messages.size() - 1;
}

void append_turn(std::string& out, std::string_view role, std::string_view content) {
  out += kTurnStart;
  out += role;
  out += '\n';
  out += content;
  out += kTurnEnd;
}

struct Place {
  bool is_last;
  bool is_after_question;
};

void append_assistant(std::string& out, const ChatMessage& message, Place place) {
  const AssistantTurn turn = split_turn(message);
  if (!place.is_after_question || (!place.is_last && turn.thought.empty())) {
    append_turn(out, "assistant", turn.content);
    return;
  }
  std::string content(kThoughtStart);
  content += '\n';
  content += trim_back(trim_front(turn.thought));
  content += '\n';
  content += kThoughtEnd;
  content += "\n\n";
  content += trim_front(turn.content);
  append_turn(out, "assistant", content);
}

// Answers of tools that follow each other are one turn of the user.
void append_tool(std::string& out, std::span<const ChatMessage> messages, size_t index) {
  const auto is_tool = [&](size_t i) {
    return i < messages.size() && messages[i].role == ChatRole::kTool;
  };
  if (index == 0 || !is_tool(index - 1)) {
    out += kTurnStart;
    out += "user";
  }
  out += '\n';
  out += kResponseStart;
  out += '\n';
  out += messages[index].content;
  out += '\n';
  out += kResponseEnd;
  if (!is_tool(index + 1)) out += kTurnEnd;
}

}  // namespace

Result<ChatRole> parse_chat_role(std::string_view name) {
  for (const auto& [known, role] : kRoles) {
    if (name == known) return role;
  }
  return fail(ErrorCode::kInvalidInput,
              "a message of role \"{}\"; known are system, user, assistant and tool", name);
}

Result<std::string> render_chat(std::span<const ChatMessage> messages, const ChatOptions& options) {
  if (messages.empty()) return fail(ErrorCode::kInvalidInput, "a chat without messages");
  const size_t question = last_question(messages);
  std::string out;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    switch (message.role) {
      case ChatRole::kSystem:
        append_turn(out, "system", message.content);
        break;
      case ChatRole::kUser:
        append_turn(out, "user", message.content);
        break;
      case ChatRole::kAssistant:
        append_assistant(out, message, {i + 1 == messages.size(), i > question});
        break;
      case ChatRole::kTool:
        append_tool(out, messages, i);
        break;
    }
  }
  if (!options.add_generation_prompt) return out;
  out += kTurnStart;
  out += "assistant\n";
  if (!options.enable_thinking) out += "<think>\n\n</think>\n\n";
  return out;
}

}  // namespace gapless
