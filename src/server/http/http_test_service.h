// A service for tests of sockets, which only pretends to compute.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/errors.h"
#include "server/http/http.h"
#include "server/http/http_test_client.h"

namespace coppice {

using std::chrono::milliseconds;

// /quick answers at once; /later from a thread of its own; /stream sends events from one; /silent says
// nothing and notes when its client leaves; /works computes until it is cancelled, /goes-on until Finish();
// /throws and /throws/quickly fail; /slow waits before it refuses or accepts; /holds/N makes a reply of N MiB
// until ReplyToAll(), and /holds/small one of 256 KiB; /hands-over/quick replies 20 MiB to all of them and
// then tells whether a reply of its own of 20 MiB would fit.
class PretendingService final : public HttpService {
 public:
  ~PretendingService() override { Join(); }
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
    if (request.path == "/hands-over/quick") {
      ReplyToAll(std::string(20 << 20, 'x'));
      return exchange->Reply({.status = 200, .body = exchange->Hold(20 << 20) ? "it fits" : "no room"});
    }
    if (request.path.starts_with("/holds/")) {
      const bool is_small = request.path == "/holds/small";
      const int64_t bytes = is_small ? 256 << 10 : std::stoll(request.path.substr(7)) << 20;
      const bool held = (is_small || exchange->Hold(1 << 20)) && exchange->Hold(bytes);
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
    exchange->Note(LogNote::Of("noted", "yes"));
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
  void ReplyToAll(const std::string& body = "made") {
    const std::lock_guard lock(mutex_);
    for (const auto& exchange : silent_) exchange->Reply({.status = 200, .body = body});
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

inline void WaitUntil(const std::function<bool()>& what) {
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
  PretendingService service_;
  HttpServer server_;
};

}  // namespace coppice
