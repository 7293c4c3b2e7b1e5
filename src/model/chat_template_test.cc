// SPDX-License-Identifier: Apache-2.0
//
// The expected texts are what the template in Qwen3's tokenizer_config.json makes of the messages.

#include "model/chat_template.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace gapless {
namespace {

using Messages = std::vector<ChatMessage>;

constexpr ChatOptions kNoPrompt{.add_generation_prompt = false};

std::string render(const Messages& messages, const ChatOptions& options = {}) {
  const Result<std::string> text = render_chat(messages, options);
  EXPECT_TRUE(text.has_value());
  return text ? *text : "";
}

ChatMessage system(std::string text) { return {ChatRole::kSystem, std::move(text)}; }
ChatMessage user(std::string text) { return {ChatRole::kUser, std::move(text)}; }
ChatMessage assistant(std::string text) { return {ChatRole::kAssistant, std::move(text)}; }
ChatMessage tool(std::string text) { return {ChatRole::kTool, std::move(text)}; }

TEST(ChatTemplate, AQuestionIsFollowedByTheStartOfTheAnswer) {
  EXPECT_EQ(render({user("Hi")}),
            "<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n");
  EXPECT_EQ(render({user("Hi")}, kNoPrompt), "<|im_start|>user\nHi<|im_end|>\n");
}

TEST(ChatTemplate, WithoutThinkingTheAnswerStartsWithAnEmptyThought) {
  EXPECT_EQ(render({user("Hi")}, {.enable_thinking = false}),
            "<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n");
  EXPECT_EQ(render({user("Hi")}, {.add_generation_prompt = false, .enable_thinking = false}),
            "<|im_start|>user\nHi<|im_end|>\n")
      << "without an answer there is no thought";
}

TEST(ChatTemplate, SystemMessagesAreTurns) {
  EXPECT_EQ(render({system("Be brief."), user("Hi"), system("In French.")}, kNoPrompt),
            "<|im_start|>system\nBe brief.<|im_end|>\n"
            "<|im_start|>user\nHi<|im_end|>\n"
            "<|im_start|>system\nIn French.<|im_end|>\n");
  EXPECT_EQ(render({system("Be brief.")}, kNoPrompt), "<|im_start|>system\nBe brief.<|im_end|>\n");
}

TEST(ChatTemplate, ThoughtsBeforeTheLastQuestionAreDropped) {
  EXPECT_EQ(render({user("1+1?"), assistant("<think>\neasy\n</think>\n\n2"), user("2+2?")}),
            "<|im_start|>user\n1+1?<|im_end|>\n"
            "<|im_start|>assistant\n2<|im_end|>\n"
            "<|im_start|>user\n2+2?<|im_end|>\n"
            "<|im_start|>assistant\n");
  const ChatMessage apart{ChatRole::kAssistant, "\n2", "easy"};
  EXPECT_EQ(render({user("1+1?"), apart, user("2+2?")}, kNoPrompt),
            "<|im_start|>user\n1+1?<|im_end|>\n"
            "<|im_start|>assistant\n\n2<|im_end|>\n"
            "<|im_start|>user\n2+2?<|im_end|>\n")
      << "the content is left alone when the thought is given apart";
}

TEST(ChatTemplate, TheLastAnswerKeepsItsThought) {
  EXPECT_EQ(render({user("1+1?"), assistant("<think>\n\neasy\n\n</think>\n\n\n2\n")}, kNoPrompt),
            "<|im_start|>user\n1+1?<|im_end|>\n"
            "<|im_start|>assistant\n<think>\neasy\n</think>\n\n2\n<|im_end|>\n");
  EXPECT_EQ(render({user("1+1?"), assistant("\n2")}, kNoPrompt),
            "<|im_start|>user\n1+1?<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\n2<|im_end|>\n")
      << "an empty one when there was none";
  const ChatMessage apart{ChatRole::kAssistant, "\n</think>2", "\neasy\n"};
  EXPECT_EQ(render({user("1+1?"), apart}, kNoPrompt),
            "<|im_start|>user\n1+1?<|im_end|>\n"
            "<|im_start|>assistant\n<think>\neasy\n</think>\n\n</think>2<|im_end|>\n");
}

TEST(ChatTemplate, AnswersBetweenTheLastQuestionAndTheEndKeepWhatTheyThought) {
  EXPECT_EQ(render({user("q"), assistant("<think>a</think>b"), assistant("c"), assistant("d")},
                   kNoPrompt),
            "<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n<think>\na\n</think>\n\nb<|im_end|>\n"
            "<|im_start|>assistant\nc<|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\nd<|im_end|>\n");
}

TEST(ChatTemplate, OfSeveralThoughtsTheFirstIsKeptAndTheContentIsBehindTheLast) {
  EXPECT_EQ(render({user("q"), assistant("x<think>y<think>a\n</think>b</think>\nc")}, kNoPrompt),
            "<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n<think>\na\n</think>\n\nc<|im_end|>\n");
}

TEST(ChatTemplate, AnswersOfToolsAreOneTurnOfTheUser) {
  EXPECT_EQ(render({user("q"), assistant("<think>t</think>call"), tool("1"), tool("2"),
                    assistant("done")},
                   kNoPrompt),
            "<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n<think>\nt\n</think>\n\ncall<|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n1\n</tool_response>"
            "\n<tool_response>\n2\n</tool_response><|im_end|>\n"
            "<|im_start|>assistant\n<think>\n\n</think>\n\ndone<|im_end|>\n");
}

TEST(ChatTemplate, AToolsAnswerWrittenByTheUserIsNoQuestion) {
  EXPECT_EQ(render({user("q"), assistant("<think>t</think>call"),
                    user("<tool_response>\n1\n</tool_response>")},
                   kNoPrompt),
            "<|im_start|>user\nq<|im_end|>\n"
            "<|im_start|>assistant\n<think>\nt\n</think>\n\ncall<|im_end|>\n"
            "<|im_start|>user\n<tool_response>\n1\n</tool_response><|im_end|>\n");
}

TEST(ChatTemplate, WithoutAQuestionNoThoughtIsKept) {
  EXPECT_EQ(render({assistant("<think>t</think>a"), assistant("b")}, kNoPrompt),
            "<|im_start|>assistant\na<|im_end|>\n"
            "<|im_start|>assistant\nb<|im_end|>\n");
}

TEST(ChatTemplate, AChatNeedsAMessage) {
  const Result<std::string> text = render_chat({}, {});
  ASSERT_FALSE(text.has_value());
  EXPECT_EQ(text.error().message, "a chat without messages");
}

TEST(ChatTemplate, KnowsTheNamesOfTheRoles) {
  EXPECT_EQ(*parse_chat_role("system"), ChatRole::kSystem);
  EXPECT_EQ(*parse_chat_role("user"), ChatRole::kUser);
  EXPECT_EQ(*parse_chat_role("assistant"), ChatRole::kAssistant);
  EXPECT_EQ(*parse_chat_role("tool"), ChatRole::kTool);
  const Result<ChatRole> role = parse_chat_role("developer");
  ASSERT_FALSE(role.has_value());
  EXPECT_EQ(role.error().message,
            "a message of role \"developer\"; known are system, user, assistant and tool");
}

}  // namespace
}  // namespace gapless
