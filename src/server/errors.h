// Error replies in the form that the client's API has.
#pragma once

#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>

#include "server/http/http.h"

namespace coppice {

struct HttpFault {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param = {};  // the field at fault; "" where there is none
  nlohmann::ordered_json more = nlohmann::ordered_json::object();  // further members of the error object
  int64_t retry_after = 0;                                         // seconds; 0: does not say
  std::string allow = {};                                          // the Allow header of 405
};

// Thrown while a request is handled.
class HttpError : public std::runtime_error {
 public:
  explicit HttpError(HttpFault fault) : std::runtime_error(fault.message), fault_(std::move(fault)) {}
  const HttpFault& fault() const { return fault_; }

 private:
  HttpFault fault_;
};

// A field that is wrong: 400, its name first in the message.
HttpError BadField(const std::string& field, const std::string& message);

// Of a request that was cancelled: 503 if the server stops, else 499, which nobody reads but the metrics.
HttpFault CancelledFault(bool server_stops);

// Of a reply for which Exchange::Hold has no room.
HttpFault NoRoomForReplies();

// The API whose form an error has.
enum class ErrorApi { kOpenAi, kAnthropic };
struct ErrorForm {
  ErrorApi api = ErrorApi::kOpenAi;
  std::string request_id = {};  // Anthropic's form names it
};

// Anthropic's on the paths of its messages, whether they exist or not, and for clients that send its header
// anthropic-version.
ErrorForm ErrorFormFor(const HttpRequest& head);

// A prompt that is longer than the context.
HttpFault PromptTooLong(std::string message, const std::string& field, int64_t tokens, int64_t context);

// {"error": {"message", "type", "param", "code"}}, or Anthropic's {"type": "error", "error": {"type",
// "message"}, "request_id"}, in one line.
std::string ErrorBody(const HttpFault& fault, const ErrorForm& form = {});
HttpReply ErrorReply(const HttpFault& fault, const ErrorForm& form = {});

// JSON in one line; bytes that are no UTF-8 show as U+FFFD.
std::string DumpJson(const nlohmann::ordered_json& json);

}  // namespace coppice
