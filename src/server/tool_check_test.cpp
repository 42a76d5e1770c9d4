// The checks of a reply's calls: what is said of faults, and that many calls cost no more than one reply may.
#include "server/tool_check.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

using nlohmann::ordered_json;

ordered_json Tools(ordered_json parameters) {
  ordered_json tool = {{"type", "function"}, {"function", {{"name", "f"}}}};
  tool["function"]["parameters"] = std::move(parameters);
  return ordered_json::array({std::move(tool)});
}

TEST(CallChecks, SayWhatDoesNotFit) {
  CallChecks checks;
  const ordered_json tools = Tools({{"type", "object"}, {"required", {"a"}}});
  EXPECT_TRUE(checks.Errors(tools, {"f", R"({"a": 1})"}, 0).empty());
  EXPECT_TRUE(checks.Errors(tools, {"other", "{}"}, 0).empty());
  const ordered_json errors = checks.Errors(tools, {"f", "{}"}, 3);
  ASSERT_EQ(errors.size(), 1u);
  EXPECT_EQ(errors[0]["tool_call"], 3);
  EXPECT_EQ(errors[0]["message"], "the member \"a\" is missing");
}

// They run on the thread that samples for all.
TEST(CallChecks, OfAReplyEndSoon) {
  ordered_json level = {{"type", "string"}};
  for (int i = 0; i < 6; ++i) {
    ordered_json kinds = ordered_json::array();
    for (int k = 0; k < 8; ++k) kinds.push_back(level);
    level = {{"anyOf", std::move(kinds)}};
  }
  const ordered_json tools = Tools(std::move(level));
  CallChecks checks;
  ordered_json last;
  for (size_t i = 0; i < 100; ++i) last = checks.Errors(tools, {"f", "{}"}, i);
  ASSERT_EQ(last.size(), 1u);
  EXPECT_TRUE(last[0]["message"].get<std::string>().starts_with("not checked: ")) << last;
}

}  // namespace
}  // namespace coppice
