// A client of an OpenAI-compatible endpoint: one question, one answer. It connects only to the address that
// the user names.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace coppice {

// The parts of "http://host:port/path"; the path has no slash at its end.
struct EndpointUrl {
  std::string host;   // without the brackets of an IPv6 address
  uint16_t port = 0;  // 80 if the address names none
  std::string path;   // "/v1"; may be empty

  std::string Host() const;  // as the header Host has it: "judge", "judge:8080", "[::1]:8080"
};
// Throws FieldError of `judge` for anything else. https is refused, because this program links no TLS; the
// message says what to do. No message quotes a login or a query, because they may hold a password.
EndpointUrl ParseEndpointUrl(std::string_view url);

struct ChatEndpoint {
  std::string url = {};    // as the user gave it
  std::string model = {};  // sent as "model"
  std::string key = {};    // sent as a bearer token unless empty; no error quotes it
  std::chrono::milliseconds timeout = std::chrono::minutes(10);  // of one try
  int tries = 3;  // if the connection fails, or the server answers 429 or 5xx
  std::chrono::milliseconds pause = std::chrono::seconds(2);  // before the next try, doubled each time
};

// Throws FieldError of `judge` for the address, and of `judge_key_env` for a key that no header can hold.
void Check(const ChatEndpoint& endpoint);

// The answer to a system prompt and a question, at temperature 0. Throws Error, naming the address, if the
// endpoint gives no answer, FieldError as Check does, and Cancelled once `cancelled` (may be null) is set.
std::string AskChat(const ChatEndpoint& endpoint, std::string_view system, std::string_view question,
                    int64_t max_tokens, const std::atomic<bool>* cancelled);

}  // namespace coppice
