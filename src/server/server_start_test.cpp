// Requests that come while the server starts: its threads run before its constructor has ended.
#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "server/http/http_test_client.h"
#include "server/server.h"
#include "test_files.h"

namespace coppice {
namespace {

// /metrics counts the connections of the HTTP server, which the constructor has not stored yet when the first
// threads answer. 64 threads take milliseconds to start.
TEST(ServerStart, MetricsAreAnsweredFromTheFirstRequestOn) {
  const TempFolder folder;
  for (int i = 0; i < 20; ++i) {
    ServerOptions options;
    options.http.host = "unix:" + folder.Path("http.sock");
    options.http.threads = 64;
    std::atomic<int> answered{0};
    std::vector<std::thread> clients;
    for (int c = 0; c < 2; ++c) {
      clients.emplace_back([&] {
        for (int tries = 0; tries < 20'000; ++tries) {
          Client client(folder.Path("http.sock"));
          if (!client.connected()) {
            std::this_thread::sleep_for(std::chrono::microseconds(200));
            continue;
          }
          client.Get("/metrics");
          answered += client.Until("coppice_connections ").starts_with("HTTP/1.1 200 OK");
          return;
        }
      });
    }
    Server server(std::move(options));
    server.Listen(0);
    for (std::thread& client : clients) client.join();
    EXPECT_EQ(answered, 2);
  }
}

}  // namespace
}  // namespace coppice
