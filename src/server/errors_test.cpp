#include "server/errors.h"

#include <gtest/gtest.h>

namespace coppice {
namespace {

using nlohmann::json;

ErrorApi ApiFor(const std::string& path, const HttpRequest& head = {}) {
  HttpRequest request = head;
  request.path = path;
  return ErrorFormFor(request).api;
}

TEST(Errors, TheClientsApiDecidesTheForm) {
  for (const char* path : {"/v1/messages", "/v1/messages/", "/v1/messages/count_tokens", "/v1/messages/x/y"})
    EXPECT_EQ(ApiFor(path), ErrorApi::kAnthropic) << path;
  for (const char* path : {"/v1/messagesx", "/v1", "/", "", "/v1/models", "/v1/chat/completions"})
    EXPECT_EQ(ApiFor(path), ErrorApi::kOpenAi) << path;
  HttpRequest sends;
  sends.headers["anthropic-version"] = "2023-06-01";
  EXPECT_EQ(ApiFor("/v1/models", sends), ErrorApi::kAnthropic);
}

TEST(Errors, AnthropicsForm) {
  const std::pair<int, const char*> types[] = {{400, "invalid_request_error"},
                                               {401, "authentication_error"},
                                               {403, "permission_error"},
                                               {404, "not_found_error"},
                                               {405, "invalid_request_error"},
                                               {413, "request_too_large"},
                                               {429, "rate_limit_error"},
                                               {431, "invalid_request_error"},
                                               {500, "api_error"},
                                               {501, "api_error"},
                                               {503, "overloaded_error"},
                                               {504, "timeout_error"}};
  for (const auto& [status, type] : types) {
    HttpFault fault{status, "other", "why", "field"};
    fault.retry_after = 7;
    const HttpReply reply = ErrorReply(fault, {ErrorApi::kAnthropic, "req_1"});
    EXPECT_EQ(
        json::parse(reply.body),
        json({{"type", "error"}, {"error", {{"type", type}, {"message", "why"}}}, {"request_id", "req_1"}}));
    EXPECT_EQ(reply.last_events, "event: error\ndata: " + reply.body + "\n\n");
    EXPECT_EQ(reply.status, status);
    const std::string seconds = status == 503 ? "1" : "7";
    EXPECT_EQ(reply.headers.back(), std::pair(std::string("Retry-After"), seconds));
  }
}

TEST(Errors, APromptThatIsTooLong) {
  const HttpFault fault = PromptTooLong("too many tokens", "messages", 5000, 4096);
  EXPECT_EQ(json::parse(ErrorBody(fault, {ErrorApi::kAnthropic, "r"}))["error"],
            json({{"type", "invalid_request_error"},
                  {"message", "prompt is too long: 5000 tokens > 4096 maximum"}}));
  EXPECT_EQ(json::parse(ErrorBody(fault))["error"], json({{"message", "too many tokens"},
                                                          {"type", "exceed_context_size_error"},
                                                          {"param", "messages"},
                                                          {"code", "context_length_exceeded"},
                                                          {"n_prompt_tokens", 5000},
                                                          {"n_ctx", 4096}}));
  EXPECT_TRUE(ErrorReply(fault).last_events.empty());
}

}  // namespace
}  // namespace coppice
