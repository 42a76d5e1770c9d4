// For tests: an endpoint on a port of the loopback that answers each request with what a function says.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace coppice {

class FakeEndpoint {
 public:
  // Gets the head and the body of a request; returns the whole response.
  using Respond = std::function<std::string(const std::string& head, const std::string& body)>;

  explicit FakeEndpoint(Respond respond)
      : respond_(std::move(respond)), fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    (void)bind(fd_, reinterpret_cast<sockaddr*>(&address), size);
    (void)listen(fd_, 8);
    (void)getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeEndpoint() {
    stop_ = true;
    shutdown(fd_, SHUT_RDWR);
    thread_.join();
    close(fd_);
  }
  FakeEndpoint(const FakeEndpoint&) = delete;
  FakeEndpoint& operator=(const FakeEndpoint&) = delete;

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_) + "/v1"; }
  int requests() const { return requests_; }

  static std::string Response(int status, const std::string& body) {
    return "HTTP/1.1 " + std::to_string(status) +
           " X\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
           "\r\nConnection: close\r\n\r\n" + body;
  }

 private:
  void Serve() {
    while (!stop_) {
      const int client = accept(fd_, nullptr, nullptr);
      if (client < 0) return;
      ++requests_;
      std::string text;
      char part[4096];
      size_t head = std::string::npos, length = 0;
      while (head == std::string::npos || text.size() < head + 4 + length) {
        const ssize_t count = read(client, part, sizeof part);
        if (count <= 0) break;
        text.append(part, static_cast<size_t>(count));
        head = text.find("\r\n\r\n");
        const size_t field = text.find("Content-Length: ");
        if (field != std::string::npos) length = static_cast<size_t>(std::atoll(text.c_str() + field + 16));
      }
      if (head != std::string::npos) {
        const std::string reply = respond_(text.substr(0, head), text.substr(head + 4));
        (void)!write(client, reply.data(), reply.size());
      }
      close(client);
    }
  }

  Respond respond_;
  int fd_;
  int port_ = 0;
  std::atomic<bool> stop_ = false;
  std::atomic<int> requests_ = 0;
  std::thread thread_;
};

}  // namespace coppice
