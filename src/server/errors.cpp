#include "server/errors.h"

#include <fmt/format.h>

namespace coppice {

namespace {

constexpr const char* kTooLong = "exceed_context_size_error";  // llama.cpp's

// https://docs.claude.com/en/api/errors; 503 says what Anthropic's own 529 does.
const char* AnthropicType(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

// Clients compact a conversation when they read these words.
std::string AnthropicMessage(const HttpFault& fault) {
  if (fault.type != kTooLong) return fault.message;
  return fmt::format("prompt is too long: {} tokens > {} maximum",
                     fault.more.value("n_prompt_tokens", int64_t{0}), fault.more.value("n_ctx", int64_t{0}));
}

}  // namespace

HttpError BadField(const std::string& field, const std::string& message) {
  return HttpError({400, "invalid_request_error", field + ": " + message, field});
}

HttpFault CancelledFault(bool server_stops) {
  if (server_stops) return {503, "unavailable_error", "the server is stopping"};
  return {499, "request_cancelled", "the client closed the connection"};
}

HttpFault NoRoomForReplies() {
  return {
      503, "unavailable_error",
      "this reply and those that others still read take too much memory: ask for less, or try again later"};
}

HttpFault PromptTooLong(std::string message, const std::string& field, int64_t tokens, int64_t context) {
  return {400,
          kTooLong,
          std::move(message),
          field,
          {{"code", "context_length_exceeded"}, {"n_prompt_tokens", tokens}, {"n_ctx", context}}};
}

ErrorForm ErrorFormFor(const HttpRequest& head) {
  constexpr std::string_view kMessages = "/v1/messages";
  const std::string_view path = head.path;
  const bool below =
      path.starts_with(kMessages) && (path.size() == kMessages.size() || path[kMessages.size()] == '/');
  if (!below && head.Header("anthropic-version").empty()) return {};
  return {ErrorApi::kAnthropic, head.id};
}

std::string ErrorBody(const HttpFault& fault, const ErrorForm& form) {
  if (form.api == ErrorApi::kAnthropic) {
    return DumpJson({{"type", "error"},
                     {"error", {{"type", AnthropicType(fault.status)}, {"message", AnthropicMessage(fault)}}},
                     {"request_id", form.request_id}});
  }
  nlohmann::ordered_json error = {{"message", fault.message}, {"type", fault.type}, {"param", nullptr}};
  if (!fault.param.empty()) error["param"] = fault.param;
  error["code"] = fault.status;
  error.update(fault.more);
  return DumpJson({{"error", error}});
}

HttpReply ErrorReply(const HttpFault& fault, const ErrorForm& form) {
  HttpReply reply{.status = fault.status, .body = ErrorBody(fault, form)};
  if (form.api == ErrorApi::kAnthropic) reply.last_events = "event: error\ndata: " + reply.body + "\n\n";
  if (fault.status == 401) reply.headers.emplace_back("WWW-Authenticate", "Bearer");
  const int64_t retry_after = fault.status == 503 ? 1 : fault.retry_after;
  if (!fault.allow.empty()) reply.headers.emplace_back("Allow", fault.allow);
  if (retry_after > 0) reply.headers.emplace_back("Retry-After", std::to_string(retry_after));
  return reply;
}

std::string DumpJson(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace coppice
