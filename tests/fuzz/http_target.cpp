// Bytes sent to a server with a bundled model, over loopback. A second request follows, so that the server
// answers both or closes the connection.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <chrono>
#include <thread>

#include "engine/engine.h"
#include "fuzz/fuzz_support.h"
#include "fuzz/fuzz_target.h"
#include "server/server.h"

namespace coppice {
namespace {

constexpr std::string_view kLast = "GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";

std::string Post(const std::string& path, const std::string& body, const std::string& head = "") {
  return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\n" + head +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::vector<std::string> Seeds() {
  std::vector<std::string> seeds = {
      Post("/v1/completions", R"({"prompt":"a","max_tokens":1})"),
      Post("/v1/completions", R"({"prompt":[1,2],"stream":true,"max_tokens":2,"logprobs":1,"echo":true})"),
      Post("/tokenize", R"({"content":"a b","with_pieces":true})"),
      Post("/detokenize", R"({"tokens":[1,2]})"),
      Post("/slots/0?action=erase", "{}"),
      "POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
      "10\r\n{\"content\":\"ab\"}\r\n0\r\n\r\n"};
  for (const char* path : {"/", "/props", "/v1/models", "/metrics", "/slots", "/methods", "/tokenizer_info"})
    seeds.push_back("GET " + std::string(path) + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
  return seeds;
}

std::unique_ptr<Server> Start() {
  ServerOptions options;
  options.http.max_body_bytes = 1 << 20;
  options.defaults.max_tokens = 2;
  options.defaults.ignore_eos = true;
  auto server = std::make_unique<Server>(options);
  server->Listen(0);
  server->Serve(Engine::Load(COPPICE_SOURCE_DIR "/models/coppice-mini-f16.gguf",
                             {.threads = 1, .context = 64, .documents = DocumentCacheOptions{}}));
  return server;
}

// A connection to the server, with half a second for each transfer. On a busy machine a connection may fail
// for want of time or of free ports, so it is tried for some seconds.
int Connect(int port) {
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<uint16_t>(port));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const timeval limit{0, 500'000};
  for (int attempt = 0; attempt < 50; ++attempt) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
    if (connect(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0) return fd;
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
  abort();  // the server is deaf
}

// The status of the first reply, 0 if there is none within half a second.
int FirstStatus(int port, std::string_view input) {
  const int fd = Connect(port);
  const std::string text = std::string(input) + std::string(kLast);
  (void)!send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  std::string reply;
  char part[16384];
  for (ssize_t count = 0; (count = recv(fd, part, sizeof part, 0)) > 0;)
    if (reply.size() < 16) reply.append(part, static_cast<size_t>(count));
  close(fd);
  return reply.size() > 12 && reply.starts_with("HTTP/1.") ? std::atoi(reply.c_str() + 9) : 0;
}

bool Run(std::string_view input) {
  static const std::unique_ptr<Server> server = Start();
  const int status = FirstStatus(server->port(), input);
  if (status == 500) abort();  // a fault of the server's own
  return status == 200;
}

}  // namespace

FuzzTarget HttpTarget() {
  return {"http",
          Seeds,
          {"GET ",
           "POST ",
           "HEAD ",
           "OPTIONS ",
           " HTTP/1.1\r\n",
           " HTTP/1.0\r\n",
           "Host: localhost\r\n",
           "Content-Length: ",
           "Transfer-Encoding: chunked\r\n",
           "Expect: 100-continue\r\n",
           "Connection: close\r\n",
           "Origin: http://localhost\r\n",
           "Sec-Fetch-Site: cross-site\r\n",
           "Authorization: Bearer x\r\n",
           "Content-Encoding: gzip\r\n",
           "\r\n\r\n",
           "0\r\n\r\n",
           "/slots/0?action=save",
           "/v1/chat/completions",
           "\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]",
           "\"stream\":true"},
          Run};
}

}  // namespace coppice
