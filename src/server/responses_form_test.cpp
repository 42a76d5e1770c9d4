#include "server/responses_form.h"

#include <gtest/gtest.h>

#include <set>

#include "server/errors.h"

namespace coppice {
namespace {

// A text as an item before a call made an error of the JSON library, which clients got as a 500.
TEST(ResponsesForm, ItemsAreObjects) {
  for (const char* item : {"\"text\"", "3", "null", "[]", "true"}) {
    const std::string body = std::string(R"({"input": [)") + item +
                             R"(, {"type": "function_call", "name": "f", "call_id": "1"}]})";
    try {
      ChatOfResponses(body);
      FAIL() << item;
    } catch (const HttpError& error) {
      EXPECT_EQ(error.fault().status, 400);
      EXPECT_EQ(error.fault().message, "input: has an item that is no object") << item;
    }
  }
}

// A name that stands for two functions would call the wrong one.
TEST(ResponsesForm, FunctionsOfNamespacesHaveNamesOfTheirOwn) {
  const ChatForm chat = ChatOfResponses(R"({"input": "x", "tools": [{"type": "function", "name": "f"},
      {"type": "function", "name": "ns__f"},
      {"type": "namespace", "name": "ns", "tools": [{"type": "function", "name": "f"}]}]})");
  std::set<std::string> names;
  const nlohmann::json body = nlohmann::json::parse(chat.body);
  for (const nlohmann::json& tool : body["tools"]) names.insert(tool["function"]["name"].get<std::string>());
  EXPECT_EQ(names.size(), 3u);
  ASSERT_EQ(chat.functions.size(), 1u);
  EXPECT_EQ(chat.functions.begin()->second.name, "f");
  EXPECT_FALSE(chat.functions.contains("ns__f"));
}

}  // namespace
}  // namespace coppice
