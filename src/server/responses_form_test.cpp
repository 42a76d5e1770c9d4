#include "server/responses_form.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace coppice
