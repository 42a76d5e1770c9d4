// A client of a server under test: a plain socket.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace coppice {

class Client {
 public:
  // `receive_buffer`: bytes that may wait unread; 0: what the system gives, which can be tens of megabytes.
  explicit Client(int port, int receive_buffer = 0) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    if (receive_buffer > 0) setsockopt(fd_, SOL_SOCKET, SO_RCVBUF, &receive_buffer, sizeof receive_buffer);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    timeval limit{20, 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  // Of a Unix socket.
  explicit Client(const std::string& path) : fd_(socket(AF_UNIX, SOCK_STREAM, 0)) {
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    std::memcpy(to.sun_path, path.data(), std::min(path.size(), sizeof to.sun_path - 1));
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { Leave(); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void Send(const std::string& text) { (void)!write(fd_, text.data(), text.size()); }
  void Get(const std::string& path) { Send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"); }
  // How many bytes came, up to `most`; 0 if the server closed.
  size_t Read(size_t most) {
    std::string part(most, '\0');
    const ssize_t count = read(fd_, part.data(), part.size());
    return count > 0 ? static_cast<size_t>(count) : 0;
  }
  // What comes until `end` has come, or the server closes.
  std::string Until(const std::string& end) {
    std::string text;
    char part[4096];
    while (text.find(end) == std::string::npos) {
      const ssize_t count = read(fd_, part, sizeof part);
      if (count <= 0) break;
      text.append(part, static_cast<size_t>(count));
    }
    return text;
  }
  void Leave(bool by_reset = false) {
    if (fd_ < 0) return;
    const linger how{1, 0};
    if (by_reset) setsockopt(fd_, SOL_SOCKET, SO_LINGER, &how, sizeof how);
    close(fd_);
    fd_ = -1;
  }

 private:
  int fd_;
  bool connected_ = false;
};

}  // namespace coppice
