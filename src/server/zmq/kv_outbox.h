// The sockets of KV events: one that publishes, one that repeats what was published.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>
#include <zmq.hpp>

#include "server/kv_events.h"

namespace coppice {

// For one thread at a time. Sending never waits.
class KvOutbox {
 public:
  // Listens at once. Throws Error that names the endpoint.
  explicit KvOutbox(const KvEventsOptions& options);

  // Sends the events in as many messages as their size needs; nothing for none.
  void Publish(std::vector<nlohmann::json> events);
  // An empty message: a subscriber that has lost count learns the number.
  void PublishNothing() { Send(nlohmann::json::array()); }
  // Waits for something to read from the sockets or from `wake`, an eventfd, at most for `limit`; if that is
  // below 0, as long as it takes.
  void Wait(int wake, std::chrono::milliseconds limit);
  // Reads what subscribers have sent. Returns true if one of them has subscribed.
  bool ReadSubscriptions();
  // Answers the requests for messages that were sent before.
  void AnswerReplays();
  std::string endpoint() const { return published_.get(zmq::sockopt::last_endpoint); }

 private:
  struct Sent {
    int64_t number = 0;
    zmq::message_t payload;
  };

  // The files of ipc sockets, which libzmq leaves behind.
  struct Files {
    ~Files();
    std::vector<std::string> paths;
  };

  void Listen(zmq::socket_t& socket, const std::string& endpoint);
  void Send(const nlohmann::json& events);
  void Keep(int64_t number, zmq::message_t& payload);
  bool AnswerReplay();

  const KvEventsOptions options_;
  Files files_;
  zmq::context_t context_{1};
  zmq::socket_t published_;
  zmq::socket_t replays_;  // has no handle without a replay endpoint
  int64_t next_ = 0;       // the number of the next message
  std::deque<Sent> kept_;  // for replays, oldest first
  size_t kept_bytes_ = 0;
};

}  // namespace coppice
