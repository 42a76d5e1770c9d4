// What connections may hold: bytes of replies and of bodies, with clients that read and send slowly.
#include "server/http/http_session.h"

#include <gtest/gtest.h>

#include "server/http/http_test_service.h"

namespace coppice {
namespace {

class ReplyBudgetTest : public testing::Test {
 protected:
  static HttpOptions Options() {
    HttpOptions options;
    options.port = 0;
    options.max_replies_bytes = 30 << 20;
    options.timeout = milliseconds(500);
    options.min_bytes_per_second = 64 << 20;
    return options;
  }
  PretendingService service_;
  HttpServer server_{Options(), service_};
};

// One reply of 20 MiB waits for its client, most of it in this process; a second one does not fit beside it.
TEST_F(ReplyBudgetTest, RepliesThatNobodyReads) {
  Client slow(server_.port(), 64 << 10);
  slow.Get("/large/quick");
  slow.Until("HTTP/1.1 200 OK");
  Client other(server_.port());
  other.Get("/large/quick");
  EXPECT_NE(other.Until("}}").find("HTTP/1.1 503"), std::string::npos);
  other.Get("/quick");
  EXPECT_NE(other.Until("quick ").find("HTTP/1.1 200"), std::string::npos);
  WaitUntil([&] { return server_.connections() == 1; });  // the slow one is disconnected
  other.Get("/large/quick");
  EXPECT_NE(other.Until("xxx").find("HTTP/1.1 200"), std::string::npos);
}

// A reply counts while it is made: no more than it needs, and no longer than until it is sent or its client
// leaves.
TEST_F(ReplyBudgetTest, RepliesThatAreMade) {
  const auto ask = [&](Client& client, const char* path) {
    const size_t silent = service_.silent();
    client.Get(path);
    WaitUntil([&] { return service_.silent() > silent; });
  };
  const auto status = [&](const char* path) {
    Client client(server_.port());
    client.Get(path);
    return client.Until("\r\n\r\n").substr(9, 3);
  };
  EXPECT_EQ(status("/holds/31"), "503");  // more than all replies together may take
  Client first(server_.port());
  ask(first, "/holds/20");
  EXPECT_EQ(status("/holds/20"), "503");
  EXPECT_EQ(status("/large/quick"), "503");
  Client second(server_.port());
  ask(second, "/holds/9");
  EXPECT_EQ(status("/holds/2"), "503");
  service_.ReplyToAll();
  EXPECT_NE(first.Until("made").find("HTTP/1.1 200"), std::string::npos);
  Client third(server_.port());
  ask(third, "/holds/29");
  service_.Join();  // the reply is given up
  Client fourth(server_.port());
  ask(fourth, "/holds/29");
  service_.ReplyToAll();
}

// Errors and short answers get through, however much others hold.
TEST_F(ReplyBudgetTest, SmallRepliesThatAreMadeAlwaysFit) {
  Client large(server_.port());
  large.Get("/holds/30");
  WaitUntil([&] { return service_.silent() == 1; });
  Client small(server_.port());
  small.Get("/holds/small");
  WaitUntil([&] { return service_.silent() == 2; });
  service_.ReplyToAll();
  EXPECT_NE(small.Until("made").find("HTTP/1.1 200"), std::string::npos);
  EXPECT_NE(large.Until("made").find("HTTP/1.1 200"), std::string::npos);
}

// A reply that was granted its bytes is sent: between its making and its sending, no other reply gets them.
TEST(ReplyBudget, AGrantedReplyIsSent) {
  HttpOptions options;
  options.port = 0;
  options.threads = 1;  // it cannot send the first reply before the second one asks
  options.max_replies_bytes = 30 << 20;
  PretendingService service;
  HttpServer server(options, service);
  Client first(server.port(), 64 << 10);
  first.Get("/holds/20");
  WaitUntil([&] { return service.silent() == 1; });
  Client second(server.port());
  second.Get("/hands-over/quick");
  EXPECT_NE(second.Until("no room").find("no room"), std::string::npos);
  EXPECT_NE(first.Until("xxx").find("HTTP/1.1 200"), std::string::npos);
  server.Stop(milliseconds(0));
}

// A reply that does not fit takes no room from one that does, not even while it asks.
TEST(ReplyBudget, RefusedBytesHoldUpNobody) {
  HttpOptions options;
  options.max_replies_bytes = 30 << 20;
  PretendingService service;
  HttpShared shared(options, service);
  std::atomic<bool> done{false};
  std::thread other([&] {
    HeldBytes held(shared);
    while (!done) EXPECT_FALSE(held.Set(31 << 20));
  });
  HeldBytes held(shared);
  int refused = 0;
  for (int i = 0; i < 200'000; ++i) {
    refused += !held.Set(20 << 20);
    held.Set(0);
  }
  done = true;
  other.join();
  EXPECT_EQ(refused, 0);
  EXPECT_EQ(shared.reply_bytes, 0);
}

// To read a little every now and then is not enough.
TEST_F(ReplyBudgetTest, ClientsThatReadTooSlowly) {
  Client client(server_.port(), 64 << 10);
  client.Get("/large/quick");
  client.Until("HTTP/1.1 200 OK");  // the connection counts from here on
  std::atomic<bool> done{false};
  size_t read = 0;
  std::thread reader([&] {
    for (size_t got = 1; got > 0; read += got) {
      got = client.Read(16 << 10);
      if (!done) std::this_thread::sleep_for(milliseconds(10));
    }
  });
  WaitUntil([&] { return server_.connections() == 0; });
  done = true;
  reader.join();
  EXPECT_LT(read, size_t{20} << 20);
}

class BodyBudgetTest : public testing::Test {
 protected:
  ~BodyBudgetTest() override {
    server_.Stop(milliseconds(100));
    service_.Join();  // what it holds of requests needs the server
  }
  static HttpOptions Options() {
    HttpOptions options;
    options.port = 0;
    options.max_body_bytes = 1 << 20;
    options.max_bodies_bytes = 1 << 20;
    options.idle = milliseconds(1000);
    options.min_bytes_per_second = 4 << 20;
    return options;
  }
  std::string Ask(const std::string& body) {
    Client client(server_.port());
    client.Send(Head(body.size()) + body);
    return client.Until("\r\n\r\n").substr(0, 12);
  }
  void ServesSoon(const std::string& body) {
    bool served = false;
    WaitUntil([&] { return served = served || Ask(body) == "HTTP/1.1 200"; });
  }
  static std::string Head(size_t length) {
    return "POST /quick HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(length) +
           "\r\n\r\n";
  }
  PretendingService service_;
  HttpServer server_{Options(), service_};
};

// What a client announces takes nothing from others.
TEST_F(BodyBudgetTest, OnlyWhatCameCounts) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 4; ++i) {
    clients.push_back(std::make_unique<Client>(server_.port()));
    clients.back()->Send(Head(1 << 20));
    clients.back()->Send(
        "POST /silent HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n");
  }
  EXPECT_EQ(Ask(std::string(800 << 10, 'x')), "HTTP/1.1 200");
}

// An answer that takes long holds no body.
TEST_F(BodyBudgetTest, ABodyCountsUntilItWasHandled) {
  Client client(server_.port());
  const std::string body(700 << 10, 'x');
  client.Send("POST /silent HTTP/1.1\r\nHost: localhost\r\nContent-Length: " + std::to_string(body.size()) +
              "\r\n\r\n" + body);
  WaitUntil([&] { return service_.silent() == 1; });
  ServesSoon(body);
}

// A slow client is disconnected, and what it sent is given back; meanwhile small bodies pass.
TEST_F(BodyBudgetTest, SlowClientsDoNotFillIt) {
  Client slow(server_.port());
  slow.Send(Head(1 << 20) + std::string(900 << 10, 'x'));
  EXPECT_EQ(Ask(std::string(1 << 10, 'x')), "HTTP/1.1 200");
  EXPECT_EQ(slow.Until("never").substr(0, 12), "HTTP/1.1 503");  // beyond seven eighths
  Client slower(server_.port());
  slower.Send(Head(1 << 20) + std::string(600 << 10, 'x'));
  EXPECT_EQ(slower.Until("never"), "");
  ServesSoon(std::string(800 << 10, 'x'));
}

}  // namespace
}  // namespace coppice
