// What replies are tested with: an exchange that keeps what is sent, and the events that it holds.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/http/http.h"

namespace coppice {

class Sent final : public Exchange {
 public:
  void Reply(HttpReply reply) override {
    status = reply.status;
    body = std::move(reply.body);
  }
  void StartPings(std::chrono::milliseconds) override {}
  void Send(std::string text) override { events += text; }
  void End() override {}
  bool Hold(int64_t bytes) override {
    held = bytes;
    return bytes <= room;
  }
  void OnGone(std::function<void()>) override {}
  void Note(LogNote) override {}

  std::string body;
  std::string events;
  int status = 0;
  int64_t held = 0;
  int64_t room = int64_t{1} << 40;
};

// The data of the server-sent events in a text, but for [DONE].
inline std::vector<nlohmann::ordered_json> DataOf(std::string_view events) {
  std::vector<nlohmann::ordered_json> data;
  constexpr std::string_view kData = "data: {";
  for (size_t at = events.find(kData); at != events.npos; at = events.find(kData, at + 1)) {
    const size_t begin = at + kData.size() - 1;
    data.push_back(nlohmann::ordered_json::parse(events.substr(begin, events.find('\n', begin) - begin)));
  }
  return data;
}

}  // namespace coppice
