// Sockets, with a service that only pretends to compute: answers from other threads, streams, clients that
// leave.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "server/errors.h"
#include "server/http/http.h"
#include "server/http/http_test_client.h"

namespace coppice {
namespace {

using std::chrono::milliseconds;

// /quick answers at once; /later from a thread of its own; /stream sends events from one; /silent says
// nothing and notes when its client leaves; /works computes until it is cancelled, /goes-on until Finish();
// /throws and /throws/quickly fail; /slow waits before it refuses or accepts; /holds/N makes a reply of N MiB
// until ReplyToAll().
class Service final : public HttpService {
 public:
  ~Service() override { Join(); }
  std::optional<HttpReply> Refuse(const HttpRequest& head) override {
    if (head.path == "/slow") {
      ++refusing_;
      std::this_thread::sleep_for(milliseconds(200));
    }
    if (head.path == "/refused" || !head.Header("x-refused").empty())
      return ErrorReply({403, "permission_error", "no"});
    return std::nullopt;
  }
  bool IsQuick(const HttpRequest& head) override {
    return head.path.ends_with("/quick") || head.path.ends_with("quickly");
  }
  void Handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
    if (request.path == "/quick") return exchange->Reply({.status = 200, .body = "quick " + request.body});
    if (request.path == "/large/quick")
      return exchange->Reply({.status = 200, .body = std::string(20 << 20, 'x')});
    if (request.path.starts_with("/throws")) throw std::bad_alloc();
    if (request.path.starts_with("/holds/")) {
      const int64_t bytes = std::stoll(request.path.substr(7)) << 20;
      const bool held = exchange->Hold(1 << 20) && exchange->Hold(bytes);
      if (!held) return exchange->Reply(ErrorReply(NoRoomForReplies()));
      const std::lock_guard lock(mutex_);
      silent_.push_back(exchange);
      return;
    }
    if (request.path == "/works" || request.path == "/goes-on") {
      ++working_;
      while (!finish_ && !(request.path == "/works" && *request.cancelled))
        std::this_thread::sleep_for(milliseconds(1));
      --working_;
      return;
    }
    exchange->OnGone([this] { ++gone_; });
    exchange->Note(" noted=yes");
    if (request.path == "/silent") {
      const std::lock_guard lock(mutex_);
      silent_.push_back(exchange);
      return;
    }
    if (request.path == "/pings") exchange->StartPings(milliseconds(10));
    const std::lock_guard lock(mutex_);
    threads_.emplace_back([path = request.path, exchange] {
      if (path == "/later") return exchange->Reply({.status = 200, .body = "later"});
      if (path == "/pings") std::this_thread::sleep_for(milliseconds(100));
      for (int i = 0; i < 50; ++i) exchange->Send("data: " + std::string(200, 'x') + "\n\n");
      exchange->End();
    });
  }
  void Log(const HttpLogEntry& entry) override {
    const std::lock_guard lock(log_mutex_);
    log_.push_back(entry);
  }
  std::vector<HttpLogEntry> log() {
    const std::lock_guard lock(log_mutex_);
    return log_;
  }
  void Join() {
    const std::lock_guard lock(mutex_);
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    silent_.clear();
  }
  int gone() const { return gone_; }
  int refusing() const { return refusing_; }
  int working() const { return working_; }
  void Finish() { finish_ = true; }
  void ReplyToAll() {
    const std::lock_guard lock(mutex_);
    for (const auto& exchange : silent_) exchange->Reply({.status = 200, .body = "made"});
    silent_.clear();
  }
  size_t silent() {
    const std::lock_guard lock(mutex_);
    return silent_.size();
  }

 private:
  std::mutex log_mutex_;
  std::vector<HttpLogEntry> log_;
  std::mutex mutex_;
  std::vector<std::thread> threads_;
  std::vector<std::shared_ptr<Exchange>> silent_;
  std::atomic<int> gone_{0};
  std::atomic<int> refusing_{0};
  std::atomic<int> working_{0};
  std::atomic<bool> finish_{false};
};

void WaitUntil(const std::function<bool()>& what) {
  for (int i = 0; i < 10'000 && !what(); ++i) std::this_thread::sleep_for(milliseconds(1));
  ASSERT_TRUE(what());
}

class HttpServerTest : public testing::Test {
 protected:
  HttpServerTest() : server_(Options(), service_) {}
  ~HttpServerTest() override {
    server_.Stop(milliseconds(100));
    service_.Join();
  }
  static HttpOptions Options() {
    HttpOptions options;
    options.port = 0;
    return options;
  }
  Service service_;
  HttpServer server_;
};

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
  Service service;
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
  EXPECT_EQ(ask("GET /stream" + end, "\r\n0\r\n\r\n").note, " noted=yes");
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
  Service service_;
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
  Service service_;
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
    Service service;
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
  Service service;
  HttpOptions options;
  options.port = 0;
  HttpServer server(options, service);
  options.port = server.port();
  EXPECT_THROW(HttpServer(options, service), Error);
}

}  // namespace
}  // namespace coppice
