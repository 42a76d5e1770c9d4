#include "server/zmq/kv_outbox.h"

#include <endian.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <utility>

#include "base/error.h"
#include "server/http/http.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr size_t kMostKeptBytes = size_t{64} << 20;
constexpr size_t kMessageTokens = size_t{1} << 17;  // about half a megabyte; a longer document gets its own
constexpr int64_t kMostReceived = 1024;  // bytes of a subscription or a request; more ends a connection
constexpr int kMostAtOnce = 64;          // received messages that are handled before others get a turn

zmq::message_t NumberFrame(int64_t number) {
  const uint64_t bytes = htobe64(static_cast<uint64_t>(number));
  return zmq::message_t(&bytes, sizeof(bytes));
}

zmq::message_t CopyOf(zmq::message_t& message) {
  zmq::message_t copy;
  copy.copy(message);  // both refer to the same bytes
  return copy;
}

// The process's mask for new files. libzmq makes a socket's file in bind() and listens at once, so a later
// chmod() would come after the first clients.
class Umask {
 public:
  explicit Umask(mode_t mask) : before_(umask(mask)) {}
  ~Umask() { umask(before_); }
  Umask(const Umask&) = delete;
  Umask& operator=(const Umask&) = delete;

 private:
  const mode_t before_;
};

// libzmq removes any file at the path before it binds (4.3.4, ipc_listener_t::set_local_address), also a
// socket on which another server listens.
void FreeIpcPath(const std::string& endpoint, const std::string& path) {
  RemoveAbandonedSocket(path);
  std::error_code unknown;
  if (std::filesystem::exists(std::filesystem::symlink_status(path, unknown)))
    throw Error("[kv_events] {}: cannot listen: the file is in use, or is no socket", endpoint);
}

double SecondsNow() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

KvOutbox::Files::~Files() {
  for (const std::string& path : paths) unlink(path.c_str());
}

void KvOutbox::Listen(zmq::socket_t& socket, const std::string& endpoint) {
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::maxmsgsize, kMostReceived);
  socket.set(zmq::sockopt::ipv6, endpoint.find('[') != std::string::npos);
  socket.set(zmq::sockopt::tcp_keepalive, 1);
  const std::string path = IpcPath(endpoint);
  if (!path.empty()) FreeIpcPath(endpoint, path);
  const Umask group_may_connect(0117);
  try {
    socket.bind(endpoint);
  } catch (const zmq::error_t& error) {
    throw Error("[kv_events] {}: cannot listen: {}", endpoint, error.what());
  }
  if (!path.empty()) files_.paths.push_back(path);
}

// An XPUB socket is a PUB socket that shows subscriptions.
KvOutbox::KvOutbox(const KvEventsOptions& options)
    : options_(options), published_(context_, zmq::socket_type::xpub) {
  published_.set(zmq::sockopt::xpub_verbose, true);  // also those for a topic that another subscriber has
  published_.set(zmq::sockopt::sndhwm, options.most_unread);
  Listen(published_, options.endpoint);
  if (options.replay.empty()) return;
  replays_ = zmq::socket_t(context_, zmq::socket_type::router);
  replays_.set(zmq::sockopt::sndhwm, static_cast<int>(2 * options.most_kept));
  Listen(replays_, options.replay);
}

void KvOutbox::Publish(std::vector<json> events) {
  json message = json::array();
  size_t tokens = 0;
  for (json& event : events) {
    const size_t more = event.contains("token_ids") ? event["token_ids"].size() : 0;
    if (tokens + more > kMessageTokens && !message.empty()) {
      Send(std::exchange(message, json::array()));
      tokens = 0;
    }
    tokens += more;
    message.push_back(std::move(event));
  }
  if (!message.empty()) Send(message);
}

void KvOutbox::Send(const json& events) {
  const std::vector<uint8_t> bytes = json::to_msgpack(json::array({SecondsNow(), events, 0}));
  zmq::message_t payload(bytes.data(), bytes.size());
  const int64_t number = next_++;
  if (replays_) Keep(number, payload);
  const auto how = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
  zmq::message_t topic(options_.topic.data(), options_.topic.size());
  published_.send(topic, how);
  zmq::message_t frame = NumberFrame(number);
  published_.send(frame, how);
  published_.send(payload, zmq::send_flags::dontwait);
}

void KvOutbox::Keep(int64_t number, zmq::message_t& payload) {
  kept_bytes_ += payload.size();
  kept_.push_back({number, CopyOf(payload)});
  while (std::ssize(kept_) > options_.most_kept || (kept_bytes_ > kMostKeptBytes && kept_.size() > 1)) {
    kept_bytes_ -= kept_.front().payload.size();
    kept_.pop_front();
  }
}

void KvOutbox::Wait(int wake, std::chrono::milliseconds limit) {
  std::vector<zmq::pollitem_t> items = {{published_.handle(), 0, ZMQ_POLLIN, 0},
                                        {nullptr, wake, ZMQ_POLLIN, 0}};
  if (replays_) items.push_back({replays_.handle(), 0, ZMQ_POLLIN, 0});
  try {
    zmq::poll(items, limit);
  } catch (const zmq::error_t& error) {
    if (error.num() != EINTR) throw;
  }
  uint64_t count = 0;
  if ((items[1].revents & ZMQ_POLLIN) != 0 && read(wake, &count, sizeof(count)) < 0 && errno != EAGAIN)
    throw Error("[kv_events] {}: cannot read an eventfd: {}", options_.endpoint, std::strerror(errno));
}

// A subscription is one frame: 1, then the topic's beginning. Others are ignored.
bool KvOutbox::ReadSubscriptions() {
  bool any = false;
  zmq::message_t frame;
  for (int i = 0; i < kMostAtOnce && published_.recv(frame, zmq::recv_flags::dontwait); ++i)
    any |= frame.size() > 0 && *frame.data<uint8_t>() == 1;
  return any;
}

void KvOutbox::AnswerReplays() {
  for (int i = 0; i < kMostAtOnce && replays_ && AnswerReplay(); ++i) {
  }
}

// The form of vLLM 0.26: [client, "", number] asks for everything from this number on. Each message comes
// back as [client, "", topic, number, payload], and at the end [client, "", "", -1, ""]. Before 0.26 replies
// had no topic; vllm-router 0.1.17 ignores those.
bool KvOutbox::AnswerReplay() {
  std::vector<zmq::message_t> frames;
  do {
    zmq::message_t frame;
    if (!replays_.recv(frame, zmq::recv_flags::dontwait)) return false;
    if (frames.size() < 4) frames.push_back(std::move(frame));
  } while (replays_.get(zmq::sockopt::rcvmore));
  if (frames.size() != 3 || frames[1].size() != 0 || frames[2].size() != sizeof(uint64_t)) return true;
  uint64_t bytes = 0;
  std::memcpy(&bytes, frames[2].data(), sizeof(bytes));
  const auto from = static_cast<int64_t>(be64toh(bytes));
  const auto reply = [&](const std::string& topic, int64_t number, zmq::message_t payload) {
    const auto how = zmq::send_flags::sndmore | zmq::send_flags::dontwait;
    replays_.send(CopyOf(frames[0]), how);
    replays_.send(zmq::message_t(), how);
    replays_.send(zmq::message_t(topic), how);
    replays_.send(NumberFrame(number), how);
    replays_.send(std::move(payload), zmq::send_flags::dontwait);
  };
  for (Sent& sent : kept_) {
    if (sent.number >= from) reply(options_.topic, sent.number, CopyOf(sent.payload));
  }
  reply("", -1, {});
  return true;
}

}  // namespace coppice
