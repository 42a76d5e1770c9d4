// The sockets: what a subscriber gets, and what it cannot do to the server.
#include "server/kv_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <zmq.hpp>
#include <zmq_addon.hpp>

#include "base/error.h"
#include "server/kv_blocks.h"
#include "test_files.h"

namespace coppice {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using Ids = std::vector<int32_t>;

constexpr std::chrono::milliseconds kPatience{5000};

HeldDocument Document(int32_t text, int64_t tokens, bool in_memory = true) {
  HeldDocument document{.point = {4, false}, .in_memory = in_memory};
  for (int32_t i = 0; i < tokens; ++i) document.tokens.push_back((text * 131 + i * 7) % 1000);
  return document;
}

bool ServesAll(const HeldDocument&) { return true; }

struct Message {
  std::string topic;
  int64_t number = -2;  // -2: nothing came
  json payload;
};

int64_t NumberOf(const zmq::message_t& frame) {
  uint64_t number = 0;
  for (size_t i = 0; i < frame.size(); ++i) number = number << 8 | frame.data<uint8_t>()[i];
  return static_cast<int64_t>(number);
}

class Subscriber {
 public:
  static constexpr bool kSmallBuffers = true;
  explicit Subscriber(const std::string& endpoint, const std::string& topic = "",
                      bool small_buffers = false) {
    socket_.set(zmq::sockopt::linger, 0);
    if (small_buffers) {
      socket_.set(zmq::sockopt::rcvhwm, 1);
      socket_.set(zmq::sockopt::rcvbuf, 4096);
    }
    socket_.set(zmq::sockopt::subscribe, topic);
    socket_.connect(endpoint);
  }
  Message Next(std::chrono::milliseconds limit = kPatience) {
    socket_.set(zmq::sockopt::rcvtimeo, static_cast<int>(limit.count()));
    std::vector<zmq::message_t> frames;
    if (!zmq::recv_multipart(socket_, std::back_inserter(frames))) return {};
    EXPECT_EQ(frames.size(), 3u);
    EXPECT_EQ(frames[1].size(), 8u);
    return {frames[0].to_string(), NumberOf(frames[1]),
            json::from_msgpack(frames[2].data<uint8_t>(), frames[2].data<uint8_t>() + frames[2].size())};
  }
  // Skips messages without events.
  json Events() {
    for (;;) {
      const Message message = Next();
      if (message.number == -2) return "nothing came";
      if (!message.payload[1].empty()) return message.payload[1];
    }
  }

 private:
  zmq::context_t context_;
  zmq::socket_t socket_{context_, zmq::socket_type::sub};
};

TEST(KvEvents, ASubscriberGetsWhatIsHeldAndThenWhatChanges) {
  KvEvents events({.endpoint = "tcp://127.0.0.1:0", .topic = "kv@here@m"});
  events.Hold(1, Document(1, 40));
  events.Start(ServesAll);
  Subscriber subscriber(events.endpoint(), "kv@");
  // Numbers begin at 0 or 1: the first message may have gone to nobody.
  const Message empty = subscriber.Next();
  EXPECT_THAT(empty.number, testing::AllOf(testing::Ge(0), testing::Le(1)));
  EXPECT_TRUE(empty.payload[1].empty());
  const Message all = subscriber.Next();
  EXPECT_EQ(all.topic, "kv@here@m");
  EXPECT_EQ(all.number, empty.number + 1);
  ASSERT_EQ(all.payload.size(), 3u);
  EXPECT_TRUE(all.payload[0].is_number_float());
  EXPECT_EQ(all.payload[2], 0);
  ASSERT_EQ(all.payload[1].size(), 2u);
  EXPECT_EQ(all.payload[1][0], json({{"type", "AllBlocksCleared"}}));
  EXPECT_EQ(all.payload[1][1]["block_hashes"], json(BlockHashes(Document(1, 40).tokens)));

  events.Hold(2, Document(2, 16));
  const Message stored = subscriber.Next();
  EXPECT_EQ(stored.number, all.number + 1);
  EXPECT_EQ(stored.payload[1][0]["token_ids"], json(Document(2, 16).tokens));
  events.Move(2, false);
  EXPECT_EQ(subscriber.Events()[0]["medium"], "DISK");
  events.Release(1);
  const json removed = subscriber.Events()[0];
  EXPECT_EQ(removed["type"], "BlockRemoved");
  EXPECT_EQ(removed["block_hashes"], json(BlockHashes(Document(1, 40).tokens)));
  EXPECT_EQ(subscriber.Next(std::chrono::milliseconds(100)).number, -2) << "nothing else changed";
}

TEST(KvEvents, DocumentsThatServeNobodyAreNotAnnounced) {
  KvEvents events({.endpoint = "tcp://127.0.0.1:0"});
  events.Start([](const HeldDocument& document) {
    if (document.owner.key == 9) throw Error("a method that cannot be asked");
    return document.owner.salt == 0;
  });
  Subscriber subscriber(events.endpoint());
  EXPECT_EQ(subscriber.Events(), json::array({{{"type", "AllBlocksCleared"}}}));
  HeldDocument salted = Document(1, 40);
  salted.owner.salt = 5;
  events.Hold(1, salted);
  HeldDocument unknown = Document(2, 40);
  unknown.owner.key = 9;
  events.Hold(2, unknown);
  events.Hold(3, Document(3, 40));
  EXPECT_EQ(subscriber.Events()[0]["block_hashes"], json(BlockHashes(Document(3, 40).tokens)));
  events.Release(1);
  events.Move(1, true);
  EXPECT_EQ(subscriber.Next(std::chrono::milliseconds(100)).number, -2);
}

// A router that starts later, and one whose server was replaced at the same address.
TEST(KvEvents, EachSubscriptionGetsEverything) {
  std::string endpoint;
  std::unique_ptr<Subscriber> first;
  {
    KvEvents events({.endpoint = "tcp://127.0.0.1:0"});
    endpoint = events.endpoint();
    events.Start(ServesAll);
    first = std::make_unique<Subscriber>(endpoint);
    EXPECT_EQ(first->Events().size(), 1u);
    events.Hold(1, Document(1, 40));
    EXPECT_EQ(first->Events()[0]["type"], "BlockStored");
    Subscriber second(endpoint);
    EXPECT_EQ(second.Events().size(), 2u);
    EXPECT_EQ(first->Events().size(), 2u) << "all subscribers get it again";
  }
  KvEvents events({.endpoint = endpoint});
  events.Start(ServesAll);
  EXPECT_EQ(first->Events(), json::array({{{"type", "AllBlocksCleared"}}})) << "the new server holds nothing";
}

// As vLLM's subscribers ask: an empty frame and the first number that they lack.
std::vector<Message> Replayed(const std::string& endpoint, const std::vector<std::string>& request,
                              int patience_ms = 5000) {
  zmq::context_t context;
  zmq::socket_t socket(context, zmq::socket_type::dealer);
  socket.set(zmq::sockopt::linger, 0);
  socket.set(zmq::sockopt::rcvtimeo, patience_ms);
  socket.connect(endpoint);
  std::vector<zmq::const_buffer> parts;
  for (const std::string& part : request) parts.push_back(zmq::buffer(part));
  zmq::send_multipart(socket, parts);
  std::vector<Message> messages;
  std::vector<zmq::message_t> frames;
  while (zmq::recv_multipart(socket, std::back_inserter(frames))) {
    EXPECT_EQ(frames.size(), 4u);
    const auto* data = frames[3].data<uint8_t>();
    messages.push_back({frames[1].to_string(), NumberOf(frames[2]),
                        frames[3].size() == 0 ? json() : json::from_msgpack(data, data + frames[3].size())});
    if (messages.back().number == -1) break;
    frames.clear();
  }
  return messages;
}

TEST(KvEvents, ReplayGivesWhatWasSentBefore) {
  const std::string replay = "ipc://" + testing::TempDir() + "kv_replay.sock";
  KvEvents events({.endpoint = "tcp://127.0.0.1:0", .replay = replay, .topic = "t", .most_kept = 3});
  events.Start(ServesAll);
  Subscriber subscriber(events.endpoint());
  EXPECT_EQ(subscriber.Events().size(), 1u);
  int64_t last = 0;
  for (uint64_t id = 1; id <= 4; ++id) {
    events.Hold(id, Document(static_cast<int32_t>(id), 16));
    last = subscriber.Next().number;
  }
  const auto number = [](int64_t from) {
    std::string bytes;
    for (int shift = 56; shift >= 0; shift -= 8) bytes += static_cast<char>(from >> shift);
    return bytes;
  };
  const std::vector<Message> two = Replayed(replay, {"", number(last - 1)});
  ASSERT_EQ(two.size(), 3u);
  EXPECT_EQ(two[0].topic, "t");
  EXPECT_EQ(two[0].number, last - 1);
  EXPECT_EQ(two[1].payload[1][0]["token_ids"], json(Document(4, 16).tokens));
  EXPECT_EQ(two[2].number, -1);
  EXPECT_EQ(Replayed(replay, {"", number(0)}).size(), 4u) << "three are kept";
  EXPECT_EQ(Replayed(replay, {"", number(last + 1)}).size(), 1u);
  for (const std::vector<std::string>& bad :
       {std::vector<std::string>{"", "short"}, {"not empty", number(0)}, {"", number(0), "", "", ""}, {""}})
    EXPECT_TRUE(Replayed(replay, bad, 100).empty());
  EXPECT_EQ(Replayed(replay, {"", number(last)}).size(), 2u) << "and the next is answered";
}

// A subscriber that does not read loses messages, and another one, beside it, none.
TEST(KvEvents, ASubscriberThatDoesNotReadDelaysNothing) {
  KvEvents events({.endpoint = "tcp://127.0.0.1:0", .most_unread = 10});
  events.Start(ServesAll);
  Subscriber stuck(events.endpoint(), "", Subscriber::kSmallBuffers);
  EXPECT_EQ(stuck.Events().size(), 1u);
  Subscriber reader(events.endpoint());
  EXPECT_EQ(reader.Events().size(), 1u);
  // 10 MB of messages: more than the sockets of one connection hold (tcp(7): 4 MiB to send).
  constexpr uint64_t kDocuments = 700;
  int64_t last = -1;
  for (uint64_t id = 1; id <= kDocuments; ++id) {
    events.Hold(id, Document(static_cast<int32_t>(id), 4096));
    const Message message = reader.Next();
    ASSERT_NE(message.number, -2) << id;
    ASSERT_TRUE(last < 0 || message.number == last + 1) << "the reader lost a message";
    last = message.number;
  }
  uint64_t received = 0;
  while (stuck.Next(std::chrono::milliseconds(500)).number != -2) ++received;
  EXPECT_GT(received, 0u);
  EXPECT_LT(received, kDocuments - 10) << "all of it waited for the subscriber";
  events.Hold(kDocuments + 1, Document(5000, 16));
  EXPECT_EQ(reader.Next().number, last + 1);
  EXPECT_EQ(stuck.Next().number, last + 1) << "once it reads, it gets what comes";
}

// What is no subscription and no request ends a connection or is ignored, and the next subscriber is served.
TEST(KvEvents, NonsenseIsIgnored) {
  KvEvents events({.endpoint = "tcp://127.0.0.1:0"});
  events.Start(ServesAll);
  zmq::context_t context;
  for (const size_t size : {size_t{0}, size_t{1}, size_t{900}, size_t{100'000}}) {
    zmq::socket_t other(context, zmq::socket_type::xsub);
    other.set(zmq::sockopt::linger, 100);
    other.connect(events.endpoint());
    std::string bytes(size, 'x');
    other.send(zmq::buffer(bytes));
  }
  Subscriber subscriber(events.endpoint());
  EXPECT_EQ(subscriber.Events()[0]["type"], "AllBlocksCleared");
}

std::string RefusalOf(const std::string& endpoint, bool open = false) {
  try {
    CheckEndpoint("kv_events", endpoint, open);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(KvEvents, Endpoints) {
  for (const char* good :
       {"tcp://127.0.0.1:5557", "tcp://localhost:0", "tcp://[::1]:5557", "ipc:///run/x/kv.sock"})
    EXPECT_EQ(RefusalOf(good), "accepted") << good;
  for (const char* exposed : {"tcp://0.0.0.0:5557", "tcp://*:5557", "tcp://[::]:5557", "tcp://192.0.2.1:1"}) {
    EXPECT_THAT(RefusalOf(exposed), HasSubstr("kv_events_open")) << exposed;
    EXPECT_EQ(RefusalOf(exposed, true), "accepted") << exposed;
  }
  for (const char* bad :
       {"", "tcp://", "tcp://:5557", "tcp://127.0.0.1", "tcp://127.0.0.1:", "tcp://127.0.0.1:x",
        "tcp://127.0.0.1:65536", "tcp://127.0.0.1:-1", "127.0.0.1:5557", "udp://127.0.0.1:1", "inproc://x",
        "ipc://", "ipc://relative", "tcp://127.0.0.1;127.0.0.1:5557", "tcp://no such host.:1",
        "pgm://eth0;239.192.1.1:5555"})
    EXPECT_THAT(RefusalOf(bad, true), HasSubstr("kv_events")) << bad;
  EXPECT_EQ(RefusalOf("ipc:///" + std::string(106, 'x')), "accepted");
  EXPECT_THAT(RefusalOf("ipc:///" + std::string(107, 'x')), HasSubstr("longer than 107 bytes"));
}

std::string ListeningError(const std::string& endpoint) {
  try {
    KvEvents({.endpoint = endpoint});
  } catch (const Error& error) {
    return error.what();
  }
  return "listens";
}

TEST(KvEvents, AnIpcSocketTakesTheGroupAndNoOtherFile) {
  const TempFolder folder;
  const std::string path = folder.Path("kv.sock");
  const std::string endpoint = "ipc://" + path;
  {
    KvEvents events({.endpoint = endpoint});
    events.Start(ServesAll);
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0660u);
    EXPECT_THAT(ListeningError(endpoint), HasSubstr("in use"));
    EXPECT_EQ(Subscriber(endpoint).Events().size(), 1u) << "the first still listens";
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // What a killed server left.
  const int left = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  ASSERT_EQ(bind(left, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  close(left);
  EXPECT_EQ(ListeningError(endpoint), "listens");
  std::ofstream(path) << "a model";
  EXPECT_THAT(ListeningError(endpoint), HasSubstr("is no socket"));
  EXPECT_EQ(std::filesystem::file_size(path), 7u);
}

// The thread tells of its error and sends everything anew.
TEST(KvEvents, ErrorsAreToldAndMended) {
  std::atomic<int> calls{0};
  std::promise<std::string> told;
  KvEvents events({.endpoint = "tcp://127.0.0.1:0",
                   .on_error = [&](const std::string& error) { told.set_value(error); }});
  events.Start([&](const HeldDocument&) {
    if (calls++ == 0) throw std::bad_alloc();
    return true;
  });
  Subscriber subscriber(events.endpoint());
  EXPECT_EQ(subscriber.Events().size(), 1u);
  events.Hold(1, Document(1, 40));
  std::future<std::string> error = told.get_future();
  ASSERT_EQ(error.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(error.get(), "[kv_events] std::bad_alloc");
  EXPECT_EQ(subscriber.Events().back()["block_hashes"], json(BlockHashes(Document(1, 40).tokens)));
}

TEST(KvEvents, AnAddressInUseIsNamed) {
  KvEvents first({.endpoint = "tcp://127.0.0.1:0"});
  try {
    KvEvents second({.endpoint = first.endpoint()});
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr(first.endpoint()));
  }
  EXPECT_THROW(KvEvents({.endpoint = "tcp://127.0.0.1:0", .topic = std::string(300, 'x')}), Error);
}

}  // namespace
}  // namespace coppice
