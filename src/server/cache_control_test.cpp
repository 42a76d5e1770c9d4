// What requests say of how long their prompts are worth keeping.
#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "server/messages_form.h"
#include "server/parameters.h"

namespace coppice {
namespace {

using std::chrono::hours;
using std::chrono::minutes;
using std::chrono::seconds;

constexpr const char* kShort = R"("cache_control": {"type": "ephemeral"})";
constexpr const char* kLong = R"("cache_control": {"type": "ephemeral", "ttl": "1h"})";

seconds LifetimeOf(const std::string& more, const std::string& content = "\"Hi\"") {
  const std::string body =
      R"({"max_tokens": 1, "messages": [{"role": "user", "content": )" + content + "}]" + more + "}";
  return ParseParameters(ChatOfMessages(body).body, kChat, {}).cache_lifetime;
}

std::string Block(const std::string& more) { return R"([{"type": "text", "text": "x", )" + more + "}]"; }

TEST(CacheControl, InEveryPlace) {
  EXPECT_EQ(LifetimeOf(""), seconds(0));
  EXPECT_EQ(LifetimeOf("", Block(kShort)), minutes(5));
  EXPECT_EQ(LifetimeOf("", Block(R"("cache_control": {"type": "ephemeral", "ttl": "5m"})")), minutes(5));
  EXPECT_EQ(LifetimeOf("", Block(kLong)), hours(1));
  EXPECT_EQ(LifetimeOf(R"(, "system": )" + Block(kLong)), hours(1));
  EXPECT_EQ(LifetimeOf(std::string(", ") + kLong), hours(1));
  EXPECT_EQ(LifetimeOf(std::string(R"(, "tools": [{"name": "f", "input_schema": {"type": "object"}, )") +
                       kLong + "}]"),
            hours(1));
  const std::string result =
      R"([{"type": "tool_result", "tool_use_id": "a", "content": )" + Block(kLong) + "}]";
  EXPECT_EQ(LifetimeOf("", result), hours(1));
}

TEST(CacheControl, TheLongestCounts) {
  EXPECT_EQ(LifetimeOf(R"(, "system": )" + Block(kLong), Block(kShort)), hours(1));
  EXPECT_EQ(LifetimeOf(R"(, "system": )" + Block(kShort), Block(kLong)), hours(1));
}

TEST(CacheControl, WhatSaysNothing) {
  for (const char* value : {"null", "5", "\"1h\"", "[]", "{}", R"({"type": "eternal"})", R"({"ttl": "1h"})"})
    EXPECT_EQ(LifetimeOf("", Block(std::string(R"("cache_control": )") + value)), seconds(0)) << value;
  EXPECT_EQ(LifetimeOf("", Block(R"("cache_control": {"type": "ephemeral", "ttl": 7})")), minutes(5));
  // The arguments of a call are the model's.
  const std::string call =
      std::string(R"([{"type": "tool_use", "id": "a", "name": "f", "input": {)") + kLong + "}}]";
  const std::string body = R"({"max_tokens": 1, "messages": [{"role": "user", "content": "x"}, )"
                           R"({"role": "assistant", "content": )" +
                           call + "}]}";
  EXPECT_EQ(ParseParameters(ChatOfMessages(body).body, kChat, {}).cache_lifetime, seconds(0));
}

TEST(CacheControl, OnTheOtherRoutes) {
  const std::string chat = R"({"messages": [{"role": "user", "content": "x"}], )";
  EXPECT_EQ(ParseParameters(chat + kLong + "}", kChat, {}).cache_lifetime, hours(1));
  // As LiteLLM sends it: at parts of a message, at a message, at a tool.
  const std::string part = R"({"messages": [{"role": "user", "content": [{"type": "text", "text": "x", )";
  EXPECT_EQ(ParseParameters(part + kShort + "}]}]}", kChat, {}).cache_lifetime, minutes(5));
  const std::string message = R"({"messages": [{"role": "user", "content": "x", )";
  EXPECT_EQ(ParseParameters(message + kLong + "}]}", kChat, {}).cache_lifetime, hours(1));
  EXPECT_EQ(ParseParameters(message + kLong + "}], " + kShort + "}", kChat, {}).cache_lifetime, hours(1));
  const std::string tool = R"("tools": [{"type": "function", "function": {"name": "f"}, )";
  EXPECT_EQ(ParseParameters(chat + tool + kShort + "}]}", kChat, {}).cache_lifetime, minutes(5));
  const Parameters p =
      ParseParameters(chat + R"("prompt_cache_key": "one", "prompt_cache_retention": "24h"})", kChat, {});
  EXPECT_EQ(p.conversation, "one");
  EXPECT_TRUE(p.ignored.empty());
}

}  // namespace
}  // namespace coppice
