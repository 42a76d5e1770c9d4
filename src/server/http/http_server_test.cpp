// Sockets: answers from other threads, streams, clients that leave, and the server's end.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/http/http.h"
#include "server/http/http_test_client.h"
#include "server/http/http_test_service.h"

namespace coppice {
namespace {

TEST_F(HttpServerTest, AnswersFromEveryThread) {
  Client client(server_.port());
  ASSERT_TRUE(client.connected());
  client.Get("/quick");
  EXPECT_NE(client.Until("quick ").find("HTTP/1.1 200 OK"), std::string::npos);
  client.Get("/later");  // on the same connection
  EXPECT_NE(client.Until("later").find("HTTP/1.1 200 OK"), std::string::npos);
  client.Get("/stream");
  const std::string stream = client.Until("\r\n0\r\n\r\n");
  EXPECT_NE(stream.find("text/event-stream"), std::string::npos);
  EXPECT_EQ(stream.substr(stream.size() - 5), "0\r\n\r\n");
  client.Get("/pings");
  EXPECT_NE(client.Until("\r\n0\r\n\r\n").find(":\n\n"), std::string::npos);
  client.Get("/refused");
  EXPECT_NE(client.Until("}}").find("HTTP/1.1 403"), std::string::npos);
}

TEST(UnixSocket, IsServedAndRemoved) {
  char folder[] = "/tmp/coppice-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string path = std::string(folder) + "/http.sock";
  const HttpOptions options{.host = "unix:" + path};
  EXPECT_TRUE(IsLocal(options.host));
  PretendingService service;
  for (int run = 0; run < 2; ++run) {
    HttpServer server(options, service);
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0660u);
    Client client(path);
    ASSERT_TRUE(client.connected());
    client.Get("/quick");
    EXPECT_NE(client.Until("quick ").find("HTTP/1.1 200 OK"), std::string::npos);
    EXPECT_THROW(HttpServer(options, service), Error);  // someone listens there
    client.Get("/quick");
    EXPECT_NE(client.Until("quick ").find("HTTP/1.1 200 OK"), std::string::npos);
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
  EXPECT_THROW(HttpServer({.host = "unix:" + std::string(200, 'x')}, service), Error);
  // What a killed server left is replaced, another kind of file is not.
  const int left = socket(AF_UNIX, SOCK_STREAM, 0);
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  path.copy(name.sun_path, sizeof name.sun_path - 1);
  ASSERT_EQ(bind(left, reinterpret_cast<const sockaddr*>(&name), sizeof name), 0);
  close(left);
  HttpServer(options, service).Stop(milliseconds(0));
  fclose(fopen(path.c_str(), "w"));
  EXPECT_THROW(HttpServer(options, service), Error);
  EXPECT_EQ(unlink(path.c_str()), 0);
  rmdir(folder);
}

TEST_F(HttpServerTest, ClientsThatLeaveAreNoticed) {
  for (const bool by_reset : {false, true}) {
    const int before = service_.gone();
    Client client(server_.port());
    client.Get("/silent");
    WaitUntil([&] { return service_.silent() == 1; });
    std::this_thread::sleep_for(milliseconds(20));
    EXPECT_EQ(service_.gone(), before);
    client.Leave(by_reset);
    WaitUntil([&] { return service_.gone() == before + 1; });
    service_.Join();  // a handler that could still answer keeps the connection's memory
    WaitUntil([&] { return server_.connections() == 0; });
  }
}

TEST_F(HttpServerTest, ClientsThatLeaveAfterSendingAheadAreNoticed) {
  Client client(server_.port());
  client.Get("/silent");
  WaitUntil([&] { return service_.silent() == 1; });
  // More than the server reads ahead, and less than the sockets hold.
  client.Send(std::string(128 << 10, 'x'));
  std::this_thread::sleep_for(milliseconds(50));
  client.Leave(false);
  WaitUntil([&] { return service_.gone() == 1; });
}

// Their clients are not kept waiting for an answer that nobody will give.
TEST_F(HttpServerTest, HandlersThatThrowEndTheirConnectionAlone) {
  Client client(server_.port());
  client.Get("/later");
  EXPECT_NE(client.Until("later").find("200 OK"), std::string::npos);
  for (const char* path : {"/throws", "/throws/quickly"}) {
    Client broken(server_.port());
    broken.Get(path);
    const auto start = std::chrono::steady_clock::now();
    EXPECT_EQ(broken.Until("never"), "");
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5)) << path;
  }
  client.Get("/later");
  EXPECT_NE(client.Until("later").find("200 OK"), std::string::npos);
  client.Leave();
  WaitUntil([&] { return server_.connections() == 0; });
}

TEST_F(HttpServerTest, ManyClientsAtOnce) {
  std::atomic<int> whole{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (int i = 0; i < 12; ++i) {
        Client client(server_.port());
        const int kind = (c + i) % 4;
        client.Get(kind == 0 ? "/quick" : kind == 1 ? "/later" : "/stream");
        if (kind == 3) {  // leaves in the middle of its stream
          client.Until("data: ");
          client.Leave(i % 2 == 0);
          ++whole;
          continue;
        }
        const std::string end = kind == 0 ? "quick" : kind == 1 ? "later" : "\r\n0\r\n\r\n";
        whole += client.Until(end).find(end) != std::string::npos;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(whole, 96);
  WaitUntil([&] { return server_.connections() == 0; });
}

TEST_F(HttpServerTest, StopsWhileClientsWait) {
  std::vector<std::unique_ptr<Client>> clients;
  for (int i = 0; i < 5; ++i) {
    clients.push_back(std::make_unique<Client>(server_.port()));
    clients.back()->Get(i % 2 == 0 ? "/silent" : "/quick");
  }
  WaitUntil([&] { return server_.connections() == 5; });
  server_.Stop(milliseconds(50));
  for (const auto& client : clients) client->Until("never");  // closed, not held
  EXPECT_FALSE(Client(server_.port()).connected());
}

TEST_F(HttpServerTest, EveryRequestIsLogged) {
  const auto ask = [&](const std::string& text, const std::string& until) {
    const size_t before = service_.log().size();
    Client client(server_.port());
    client.Send(text);
    if (!until.empty()) client.Until(until);
    if (until.empty()) WaitUntil([&] { return service_.silent() == 1; });
    client.Leave();
    WaitUntil([&] { return service_.log().size() == before + 1; });
    return service_.log().back();
  };
  const std::string end = " HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const HttpLogEntry quick = ask("GET /quick?secret" + end, "quick ");
  EXPECT_EQ(quick.method + quick.path, "GET/quick");  // what follows ? may be content
  EXPECT_EQ(quick.status, 200);
  EXPECT_GT(quick.sent, 100);
  EXPECT_TRUE(quick.whole);
  // Their clients leave at once, which the server may see before it learns that its last write is done.
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(ask("GET /quick" + end, "quick ").whole) << i;
  EXPECT_THAT(ask("GET /stream" + end, "\r\n0\r\n\r\n").note.text,
              testing::MatchesRegex(" request=req_[0-9a-f]+ noted=yes"));
  EXPECT_EQ(ask("GET /refused" + end, "}}").status, 403);
  EXPECT_EQ(ask("nonsense\r\n\r\n", "}}").status, 400);
  const HttpLogEntry left = ask("GET /silent" + end, "");
  EXPECT_EQ(left.status, 0);
  EXPECT_FALSE(left.whole);
}

// What follows a request whose end a proxy may see elsewhere is never taken for the next request.
TEST_F(HttpServerTest, NothingIsSmuggled) {
  const std::string next = "GET /quick HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string post = "POST /later HTTP/1.1\r\nHost: localhost\r\n";
  for (const std::string& head :
       {post + "X-Refused: 1\r\nTransfer-Encoding: gzip\r\n\r\n",
        post + "X-Refused: 1\r\nContent-Length: 70\r\n\r\n", post + "Host: evil.example\r\n\r\n",
        post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: gzip\r\n\r\n",
        post + "Transfer-Encoding:\r\n\r\n", post + "Transfer-Encoding: \t \r\nContent-Length: 0\r\n\r\n",
        post + "Content-Length: 0, 0\r\n\r\n", post + "Content-Length: 0x0\r\n\r\n",
        post + "Content-Length:\r\n\r\n", post + "Content-Length: -0\r\n\r\n",
        post + "Content-Encoding: identity\r\nContent-Encoding: gzip\r\n\r\n",
        post + "Origin: http://localhost\r\nOrigin: http://evil.example\r\n\r\n",
        post + "X-Api-Key: a\r\nX-Api-Key: b\r\n\r\n",
        post + "Sec-Fetch-Site: none\r\nsec-fetch-site: cross-site\r\n\r\n",
        std::string("POST /later HTTP/1.1\r\n\r\n"),
        std::string("POST /later HTTP/1.1\r\nHost: localhost:80@evil.example\r\n\r\n"),
        std::string("POST /later HTTP/1.1\r\nHost: a b\r\n\r\n"),
        std::string("POST /later HTTP/1.1\r\nHost: [::1\r\n\r\n"),
        std::string("POST /later HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: "
                    "chunked\r\n\r\n0\r\n\r\n")}) {
    Client client(server_.port());
    client.Send(head + next);
    const std::string replies = client.Until("never");  // it closes
    EXPECT_TRUE(replies.starts_with("HTTP/1.1 40")) << head << replies;
    EXPECT_EQ(replies.find("quick"), std::string::npos) << head << replies;
  }
}

TEST_F(HttpServerTest, SoundHeadsAreServed) {
  for (const char* host :
       {"localhost", "localhost:80", "[::1]:80", "a-b_c.example.", "127.0.0.1", "localhost:", ""}) {
    Client client(server_.port());
    client.Send(std::string("GET /quick HTTP/1.1\r\nHost: ") + host + "\r\nAccept: a\r\nAccept: b\r\n\r\n");
    EXPECT_NE(client.Until("quick ").find("200 OK"), std::string::npos) << host;
  }
  Client old(server_.port());
  old.Send("GET /quick HTTP/1.0\r\n\r\n");
  EXPECT_NE(old.Until("quick ").find("200 OK"), std::string::npos);
}

// A handler ends when its request is cancelled, because its client left or the server stops.
TEST_F(HttpServerTest, HandlersAreToldThatTheirRequestIsCancelled) {
  {
    Client client(server_.port());
    client.Get("/works");
    WaitUntil([&] { return service_.working() == 1; });
  }
  WaitUntil([&] { return service_.working() == 0; });
  Client client(server_.port());
  client.Get("/works");
  WaitUntil([&] { return service_.working() == 1; });
  EXPECT_TRUE(server_.Stop(milliseconds(0)));
  EXPECT_EQ(service_.working(), 0);
}

// One that goes on holds up neither Stop() nor, later, the destructor for longer than it takes.
TEST_F(HttpServerTest, StopDoesNotWaitForAHandlerThatGoesOn) {
  Client client(server_.port());
  client.Get("/goes-on");
  WaitUntil([&] { return service_.working() == 1; });
  EXPECT_FALSE(server_.Stop(milliseconds(0)));
  EXPECT_EQ(service_.working(), 1);
  service_.Finish();
  WaitUntil([&] { return service_.working() == 0; });
  EXPECT_TRUE(server_.Stop(milliseconds(0)));
}

// Its handlers have ended by then; what it holds must go before that on which its socket rests.
TEST(HttpServer, ARequestThatComesWhileItStops) {
  for (int i = 0; i < 3; ++i) {
    PretendingService service;
    HttpOptions options;
    options.port = 0;
    HttpServer server(options, service);
    Client client(server.port());
    client.Get("/slow");
    WaitUntil([&] { return service.refusing() == 1; });
    server.Stop(milliseconds(0));
  }
}

TEST(HttpServer, OnePortHasOneServer) {
  PretendingService service;
  HttpOptions options;
  options.port = 0;
  HttpServer server(options, service);
  options.port = server.port();
  EXPECT_THROW(HttpServer(options, service), Error);
}

}  // namespace
}  // namespace coppice
