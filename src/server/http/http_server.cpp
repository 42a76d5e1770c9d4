#include <netdb.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "base/field_error.h"
#include "server/errors.h"
#include "server/http/http_session.h"

namespace coppice {

using asio::ip::tcp;
using StreamAcceptor = asio::basic_socket_acceptor<asio::generic::stream_protocol>;
using StreamEndpoint = asio::generic::stream_protocol::endpoint;
using std::chrono::milliseconds;

const std::string& HttpRequest::Header(const std::string& name) const {
  static const std::string none;
  const auto found = headers.find(name);
  return found == headers.end() ? none : found->second;
}

namespace {

constexpr milliseconds kRetry{100};         // until there are descriptors or memory again
constexpr milliseconds kHandlersEnd{1000};  // after their requests were cancelled

tcp::endpoint Resolve(const std::string& host, int port) {
  asio::io_context io;
  tcp::resolver resolver(io);
  error_code ec;
  const auto found = resolver.resolve(host, std::to_string(port), tcp::resolver::numeric_service, ec);
  if (ec || found.empty())
    throw FieldError("host", " {}: is no address of this machine: {}", host, ec.message());
  return found.begin()->endpoint();
}

// The client's address; of a Unix socket's client, this machine's.
asio::ip::address AddressOf(const StreamEndpoint& client) {
  const int family = client.protocol().family();
  if (family != AF_INET && family != AF_INET6) return asio::ip::address_v4::loopback();
  tcp::endpoint endpoint;
  std::memcpy(endpoint.data(), client.data(), std::min(client.size(), endpoint.capacity()));
  return endpoint.address();
}

bool SomeoneListensOn(const asio::local::stream_protocol::endpoint& where) {
  asio::io_context io;
  asio::local::stream_protocol::socket socket(io);
  error_code ec;
  socket.connect(where, ec);
  return !ec;
}

// Thousands of connections need as many descriptors; the soft limit is often 1024.
void RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

std::string UnixSocketPath(const std::string& host) {
  return host.starts_with("unix:") ? host.substr(5) : "";
}

void RemoveAbandonedSocket(const std::string& path) {
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0 && S_ISSOCK(info.st_mode) &&
      !SomeoneListensOn(asio::local::stream_protocol::endpoint(path)))
    unlink(path.c_str());
}

bool IsLocal(const std::string& host) {
  return !UnixSocketPath(host).empty() || Resolve(host, 0).address().is_loopback();
}

struct HttpServer::Impl {
  Impl(const HttpOptions& o, HttpService& service)
      : options(o),
        shared(options, service),
        io(std::max(options.threads, 1)),
        acceptor(io),
        retry(io),
        work(io.get_executor()) {}

  void Listen() {
    if (const std::string path = UnixSocketPath(options.host); !path.empty()) return ListenUnix(path);
    const auto fail = [&](const error_code& ec) {
      throw Error("cannot listen on {}:{}: {}", options.host, options.port, ec.message());
    };
    const tcp::endpoint where = Resolve(options.host, options.port);
    error_code ec;
    if (acceptor.open(where.protocol(), ec)) fail(ec);
    acceptor.set_option(tcp::acceptor::reuse_address(true), ec);  // connections of an earlier run linger
    if (acceptor.bind(where, ec)) fail(ec);
    if (acceptor.listen(asio::socket_base::max_listen_connections, ec)) fail(ec);
    tcp::endpoint bound;
    const StreamEndpoint local = acceptor.local_endpoint();
    std::memcpy(bound.data(), local.data(), std::min(local.size(), bound.capacity()));
    port = bound.port();
  }

  void ListenUnix(const std::string& path) {
    const auto fail = [&](const std::string& why) {
      throw Error("cannot listen on {}: {}", options.host, why);
    };
    if (path.size() >= sizeof(sockaddr_un::sun_path)) fail("the path is longer than 107 bytes");
    const asio::local::stream_protocol::endpoint where(path);
    RemoveAbandonedSocket(path);  // bind() refuses another kind of file
    error_code ec;
    if (acceptor.open(where.protocol(), ec) || acceptor.bind(where, ec)) fail(ec.message());
    unix_path = path;
    // Before listen(): nobody can connect until then.
    if (chmod(path.c_str(), 0660) != 0) fail(std::strerror(errno));
    if (acceptor.listen(asio::socket_base::max_listen_connections, ec)) fail(ec.message());
  }

  // The callback of an accept, or of the wait before the next. If Asio has no memory to queue it, Asio throws
  // out of run() and drops the callback; the destructor then notes that nothing is being accepted.
  class Once {
   public:
    Once(Impl* impl, void (Impl::*call)(error_code, StreamSocket*)) : impl_(impl), call_(call) {}
    Once(Once&& other) noexcept : impl_(std::exchange(other.impl_, nullptr)), call_(other.call_) {}
    Once& operator=(Once&&) = delete;
    ~Once() {
      if (impl_ != nullptr) impl_->accept_lost = true;
    }
    void operator()(error_code ec, StreamSocket socket) {
      (std::exchange(impl_, nullptr)->*call_)(ec, &socket);
    }
    void operator()(error_code ec) { (std::exchange(impl_, nullptr)->*call_)(ec, nullptr); }

   private:
    Impl* impl_;
    void (Impl::*call_)(error_code, StreamSocket*);
  };

  // Each accept starts the next one and must not end without it, or the server would accept no further
  // client. If there is no memory for the next, this thread waits until there is.
  void Accept() noexcept {
    while (!stopping) {
      accept_lost = false;  // also what a failed attempt below noted
      try {
        const std::lock_guard lock(accepting);
        if (stopping) return;
        acceptor.async_accept(asio::make_strand(io), Once(this, &Impl::OnAccept));
        return;
      } catch (const std::exception&) {
        std::this_thread::sleep_for(kRetry);
      }
    }
  }

  void OnAccept(error_code ec, StreamSocket* socket) noexcept {
    if (stopping) return;
    try {
      if (ec) {  // mostly out of descriptors: other connections must close first
        const std::lock_guard lock(accepting);
        retry.expires_after(kRetry);
        retry.async_wait(Once(this, &Impl::OnRetry));
        return;
      }
      error_code gone;
      const StreamEndpoint client = socket->remote_endpoint(gone);
      std::shared_ptr<void> counted = gone ? nullptr : shared.addresses.Add(AddressOf(client));
      if (counted && shared.connections < options.max_connections) {
        Welcome(std::move(*socket), std::move(counted));
      } else {
        TurnAway(*socket);
      }
    } catch (const std::exception&) {  // out of memory: it is closed, and others are accepted
    }
    Accept();
  }

  void OnRetry(error_code stopped, StreamSocket* /*none*/) noexcept {
    if (!stopped) Accept();
  }

  void Welcome(StreamSocket socket, std::shared_ptr<void> counted) {
    auto session = std::make_shared<HttpSession>(std::move(socket), shared, std::move(counted));
    Remember(session);
    session->Start();
  }

  static void TurnAway(StreamSocket& socket) {
    const HttpReply reply = ErrorReply({503, "unavailable_error", "too many connections; try again later"});
    const std::string text = fmt::format(
        "HTTP/1.1 503 Service Unavailable\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: "
        "close\r\n\r\n{}",
        reply.type, reply.body.size(), reply.body);
    error_code ignored;
    socket.non_blocking(true, ignored);
    socket.write_some(asio::buffer(text), ignored);
  }

  void Remember(const std::shared_ptr<HttpSession>& session) {
    const std::lock_guard lock(mutex);
    if (sessions.size() >= 2 * static_cast<size_t>(shared.connections) + 16) {
      std::erase_if(sessions, [](const auto& weak) { return weak.expired(); });
    }
    sessions.push_back(session);
  }

  void Run() {
    try {
      for (int i = 0; i < std::max(options.threads, 1); ++i) threads.emplace_back([this] { Serve(); });
    } catch (const std::system_error& error) {
      Stop(milliseconds(0));
      throw FieldError("threads_http", " {}: the system starts no more threads: {}", options.threads,
                       error.what());
    }
  }

  // Connections handle running out of memory themselves. Asio may still throw where it queues a callback.
  void Serve() {
    while (true) {
      try {
        io.run();
        return;
      } catch (const std::exception&) {
        if (accept_lost.exchange(false)) Accept();
      }
    }
  }

  bool Stop(milliseconds grace) {
    if (threads.empty()) return true;
    stopping = true;
    {
      const std::lock_guard lock(accepting);
      error_code ignored;
      acceptor.close(ignored);
      if (!unix_path.empty()) unlink(unix_path.c_str());
      retry.cancel();
    }
    WaitWhile(shared.answering, grace);
    {
      const std::lock_guard lock(mutex);
      for (const auto& weak : sessions) {
        if (const auto session = weak.lock()) session->PostClose();
      }
    }
    WaitWhile(shared.handling, kHandlersEnd);
    if (shared.handling > 0) return false;
    Join();
    return true;
  }

  static void WaitWhile(const std::atomic<int>& count, milliseconds limit) {
    const auto end = std::chrono::steady_clock::now() + limit;
    while (count > 0 && std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(milliseconds(5));
  }

  void Join() {
    shared.handlers->join();
    WaitWhile(shared.connections, milliseconds(500));
    io.stop();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
    shared.handlers
        .reset();  // a request that came after join() holds its connection, which needs `io` to end
  }

  const HttpOptions options;
  HttpShared shared;
  asio::io_context io;
  // Not on a strand: where Asio has no memory to queue a strand's work, that strand never runs again.
  std::mutex accepting;  // of the next two
  StreamAcceptor acceptor;
  asio::steady_timer retry;
  // Without it run() would return for good when Asio drops the only callback there is.
  asio::executor_work_guard<asio::io_context::executor_type> work;
  std::vector<std::thread> threads;
  std::atomic<bool> stopping{false};
  std::atomic<bool> accept_lost{false};  // no accept is under way, and none will start
  std::mutex mutex;
  std::vector<std::weak_ptr<HttpSession>> sessions;
  int port = 0;
  std::string unix_path;  // empty for TCP
};

HttpServer::HttpServer(const HttpOptions& options, HttpService& service)
    : impl_(std::make_unique<Impl>(options, service)) {
  RaiseDescriptorLimit();
  impl_->Listen();
  impl_->Accept();
  impl_->Run();
}

HttpServer::~HttpServer() {
  if (!Stop(milliseconds(0))) impl_->Join();
}

int HttpServer::port() const { return impl_->port; }
int HttpServer::connections() const { return impl_->shared.connections; }
int HttpServer::answering() const { return impl_->shared.answering; }
void HttpServer::WaitForReplies(milliseconds limit) const {
  const auto deadline = std::chrono::steady_clock::now() + limit;
  while (answering() > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(milliseconds(20));
}
bool HttpServer::Stop(milliseconds grace) { return impl_->Stop(grace); }

}  // namespace coppice
