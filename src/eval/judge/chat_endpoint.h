// A client of an OpenAI-compatible endpoint: one question, one answer. The only place of this program that
// opens a connection, and only to the address that the user names.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// The parts of "http://host:port/path"; the path has no slash at its end.
struct EndpointUrl {
  std::string host;
  std::string port;  // "80" if the address names none
  std::string path;  // "/v1"; may be empty
};
// Throws FieldError of `judge` for anything else. https is refused, because this program links no TLS; the
// message says what to do.
EndpointUrl ParseEndpointUrl(std::string_view url);

struct ChatEndpoint {
  std::string url = {};    // as the user gave it
  std::string model = {};  // sent as "model"
  std::string key = {};    // sent as a bearer token unless empty; no error quotes it
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of one try
  int tries = 3;  // if the connection fails, or the server answers 429 or 5xx
  std::chrono::milliseconds pause = std::chrono::seconds(2);  // before the next try, doubled each time
};

// The answer to a system prompt and a question, at temperature 0. Throws Error, naming the address, if the
// endpoint gives no answer, and Cancelled once `cancelled` (may be null) is set.
std::string AskChat(const ChatEndpoint& endpoint, std::string_view system, std::string_view question,
                    int64_t max_tokens, const std::atomic<bool>* cancelled);

}  // namespace coppice
