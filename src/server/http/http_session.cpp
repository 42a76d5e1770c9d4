#include "server/http/http_session.h"

#include <fmt/core.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "server/errors.h"
#include "server/http/http_head.h"
#include "server/http/http_text.h"

namespace coppice {

namespace http = boost::beast::http;
using std::chrono::milliseconds;

namespace {

constexpr uint32_t kMaxHeadBytes = 16 << 10;
constexpr size_t kBufferBytes = 64 << 10;  // the most that a client can send ahead
constexpr size_t kWatchBytes = 4096;
constexpr int64_t kSmallBody = 64 << 10;
constexpr size_t kLargestWrite = 256 << 10;  // so that a slow client still shows progress
constexpr milliseconds kLinger{2000};

// TCP keepalive finds a peer that vanished silently (a half-open connection, RFC 1122) within half a minute,
// unless data are in flight to it: TCP sends no probes then. TCP_USER_TIMEOUT would also end clients that
// read nothing (tcp(7)).
void FindDeadPeers(asio::ip::tcp::socket& socket) {
  const int fd = socket.native_handle();
  const auto set = [fd](int level, int name, unsigned value) {
    setsockopt(fd, level, name, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_NODELAY, 1);
}

// One more in `count`, for as long as it lives.
class Counted {
 public:
  explicit Counted(std::atomic<int>& count) : count_(&count) { ++count; }
  Counted(Counted&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
  Counted& operator=(Counted&&) = delete;
  ~Counted() {
    if (count_ != nullptr) --*count_;
  }

 private:
  std::atomic<int>* count_;
};

class SessionExchange final : public Exchange {
 public:
  SessionExchange(std::shared_ptr<HttpSession> session, uint64_t turn)
      : session_(std::move(session)), turn_(turn) {}

  void Reply(HttpReply reply) override {
    session_->Post(
        [turn = turn_, r = std::move(reply)](HttpSession& s) mutable { s.Reply(turn, std::move(r)); });
  }
  void StartPings(milliseconds ping) override {
    session_->Post([turn = turn_, ping](HttpSession& s) { s.StartPings(turn, ping); });
  }
  void Send(std::string events) override {
    session_->Post([turn = turn_, e = std::move(events)](HttpSession& s) { s.Send(turn, e); });
  }
  void End() override {
    session_->Post([turn = turn_](HttpSession& s) { s.End(turn); });
  }
  void OnGone(std::function<void()> callback) override {
    session_->Post(
        [turn = turn_, c = std::move(callback)](HttpSession& s) mutable { s.OnGone(turn, std::move(c)); });
  }

 private:
  std::shared_ptr<HttpSession> session_;
  uint64_t turn_;
};

}  // namespace

HttpSession::HttpSession(asio::ip::tcp::socket socket, HttpShared& shared)
    : socket_(std::move(socket)),
      shared_(shared),
      read_deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()),
      ping_timer_(socket_.get_executor()),
      buffer_(kBufferBytes) {
  ++shared_.connections;
}

HttpSession::~HttpSession() {
  ReleaseBody();
  if (busy_) --shared_.answering;
  --shared_.connections;
}

void HttpSession::Start() {
  Post([](HttpSession& self) {
    FindDeadPeers(self.socket_);
    self.ReadHead();
  });
}

void HttpSession::Arm(asio::steady_timer& timer, milliseconds limit) {
  timer.expires_after(limit);
  CloseAtDeadline(timer);
}

void HttpSession::CloseAtDeadline(asio::steady_timer& timer) {
  timer.async_wait([weak = weak_from_this()](error_code ec) {
    if (ec) return;
    if (const auto self = weak.lock()) self->Close();
  });
}

void HttpSession::ReadHead() {
  if (closed_) return;
  parser_.emplace();
  parser_->header_limit(kMaxHeadBytes);
  parser_->body_limit(static_cast<uint64_t>(shared_.options.max_body_bytes));
  Arm(read_deadline_, shared_.options.idle);
  http::async_read_header(socket_, buffer_, *parser_, [self = shared_from_this()](error_code ec, size_t) {
    self->Step([&] { self->OnHead(ec); });
  });
}

void HttpSession::OnHead(error_code ec) {
  if (closed_) return;
  read_deadline_.cancel();
  if (ec) return RefuseBadHttp(ec);
  keep_alive_ = parser_->keep_alive();
  http_1_0_ = parser_->get().version() < 11;
  HttpRequest request = HeadOf(parser_->get());
  head_only_ = request.method == "HEAD";
  std::optional<HttpReply> refusal;
  if (const auto fault = FaultOfHead(parser_->get())) {
    refusal = ErrorReply(*fault);
    keep_alive_ = false;
  } else {
    refusal = shared_.service.Refuse(request);
  }
  ReleaseBody();
  ++turn_;
  busy_ = true;
  started_ = stream_ = finished_ = false;
  ++shared_.answering;
  if (refusal) {
    // What comes next may be this request's body.
    if (!EndIsKnown(parser_->get(), parser_->is_done())) keep_alive_ = false;
    return Reply(turn_, std::move(*refusal));
  }
  if (!parser_->is_done() && request.Header("expect") == "100-continue") {
    Push("HTTP/1.1 100 Continue\r\n\r\n");
  }
  ReadBody(std::move(request));
}

// The memory of all bodies together is bounded. It is reserved as a body arrives, because a client can
// announce more than it sends. The last eighth is for small bodies: clients that send large ones must not
// keep others from asking anything.
bool HttpSession::ReserveBody() {
  const auto held = static_cast<int64_t>(parser_->get().body().size());
  const int64_t all = shared_.options.max_bodies_bytes;
  const int64_t limit = held <= kSmallBody ? all : all - all / 8;
  const int64_t more = held - reserved_;
  if (shared_.body_bytes.fetch_add(more) + more > limit) {
    shared_.body_bytes -= more;
    return false;
  }
  reserved_ = held;
  return true;
}

void HttpSession::ReleaseBody() { shared_.body_bytes -= std::exchange(reserved_, 0); }

void HttpSession::RefuseForMemory() {
  parser_->get().body() = {};
  keep_alive_ = false;
  Reply(turn_,
        ErrorReply({503, "unavailable_error", "too many bytes of requests are held; try again later"}));
}

void HttpSession::RefuseBadHttp(error_code ec) {
  if (ec == http::error::end_of_stream ||
      ec.category() != http::make_error_code(http::error::bad_field).category() ||
      ec == http::error::partial_message) {
    return Close();
  }
  HttpReply reply =
      ErrorReply({400, "invalid_request_error", fmt::format("this is not HTTP: {}", ec.message())});
  if (ec == http::error::body_limit) {
    reply = ErrorReply({413, "invalid_request_error",
                        fmt::format("the body is larger than {} bytes", shared_.options.max_body_bytes)});
  } else if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
    reply = ErrorReply(
        {431, "invalid_request_error", fmt::format("the header is larger than {} bytes", kMaxHeadBytes)});
  }
  keep_alive_ = false;
  if (!busy_) {
    ++turn_;
    busy_ = true;
    started_ = stream_ = finished_ = false;
    ++shared_.answering;
  }
  Reply(turn_, std::move(reply));
}

void HttpSession::ReadBody(HttpRequest request) {
  body_began_ = std::chrono::steady_clock::now();
  parser_->eager(true);
  ReadBodyPart(std::move(request));
}

void HttpSession::ReadBodyPart(HttpRequest request) {
  if (parser_->is_done()) return OnBody({}, std::move(request));
  const HttpOptions& options = shared_.options;
  const milliseconds earned(1000 * reserved_ / std::max<int64_t>(options.min_bytes_per_second, 1));
  read_deadline_.expires_at(body_began_ + std::min(options.idle + earned, options.timeout));
  CloseAtDeadline(read_deadline_);
  http::async_read_some(socket_, buffer_, *parser_,
                        [self = shared_from_this(), r = std::move(request)](error_code ec, size_t) mutable {
                          self->Step([&] {
                            if (ec || self->closed_) return self->OnBody(ec, std::move(r));
                            if (!self->ReserveBody()) return self->RefuseForMemory();
                            self->ReadBodyPart(std::move(r));
                          });
                        });
}

void HttpSession::OnBody(error_code ec, HttpRequest request) {
  if (closed_) return;
  read_deadline_.cancel();
  if (ec) return RefuseBadHttp(ec);
  request.body = std::move(parser_->get().body());
  Watch();
  Dispatch(std::move(request));
}

void HttpSession::Dispatch(HttpRequest request) {
  auto exchange = std::make_shared<SessionExchange>(shared_from_this(), turn_);
  cancelled_ = std::make_shared<std::atomic<bool>>(false);
  request.cancelled = cancelled_;
  HttpService& service = shared_.service;
  if (service.IsQuick(request)) return service.Handle(std::move(request), std::move(exchange));
  asio::post(*shared_.handlers, [&service, turn = turn_, self = shared_from_this(), r = std::move(request),
                                 e = std::move(exchange), counted = Counted(shared_.handling)]() mutable {
    if (*r.cancelled) return;
    try {
      service.Handle(std::move(r), std::move(e));
      // The body is gone; the answer may take long.
      self->Post([turn](HttpSession& s) {
        if (s.turn_ == turn) s.ReleaseBody();
      });
    } catch (const std::exception&) {  // no memory even to say so
      self->PostClose();
    }
  });
}

// While a request waits or computes, a pending read detects that the client disconnects. Data that the client
// sends ahead stay in the buffer; once the buffer is full, disconnects are no longer detected.
void HttpSession::Watch() {
  if (watching_ || closed_) return;
  const size_t room = std::min(kWatchBytes, buffer_.max_size() - buffer_.size());
  if (room == 0) return;
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(room), [self = shared_from_this()](error_code ec, size_t bytes) {
    self->Step([&] { self->OnWatch(ec, bytes); });
  });
}

void HttpSession::OnWatch(error_code ec, size_t bytes) {
  watching_ = false;
  if (closed_) return;
  if (ec == asio::error::operation_aborted)
    return ReadHead();  // OnFinished: the next request is here already
  if (ec) return Close();
  buffer_.commit(bytes);
  if (lingering_) buffer_.consume(buffer_.size());
  if (busy_ || lingering_) return Watch();
  ReadHead();
}

void HttpSession::WriteHead(const HttpReply& reply, bool stream) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: coppice\r\nDate: {}\r\nContent-Type: {}\r\n",
                                 reply.status, StatusText(reply.status), DateText(), reply.type);
  for (const auto& [name, value] : reply.headers) head += fmt::format("{}: {}\r\n", name, value);
  head += "X-Content-Type-Options: nosniff\r\n";
  if (stream) {
    // nginx holds events back until its buffer is full unless told not to.
    head += "Cache-Control: no-store\r\nX-Accel-Buffering: no\r\n";
    if (http_1_0_) keep_alive_ = false;
    if (!http_1_0_) head += "Transfer-Encoding: chunked\r\n";
  } else {
    head += fmt::format("Content-Length: {}\r\n", reply.body.size());
  }
  head += keep_alive_ ? (http_1_0_ ? "Connection: keep-alive\r\n" : "") : "Connection: close\r\n";
  started_ = true;
  stream_ = stream;
  Push(head + "\r\n");
}

void HttpSession::Reply(uint64_t turn, HttpReply reply) {
  if (!IsOpen(turn)) return;
  if (started_) {
    Send(turn, "data: " + reply.body + "\n\n");
    return End(turn);
  }
  finished_ = true;
  WriteHead(reply, false);
  if (!head_only_ && !reply.body.empty()) Push(std::move(reply.body));
  Finish();
}

void HttpSession::StartPings(uint64_t turn, milliseconds ping) {
  if (!IsOpen(turn) || ping.count() <= 0) return;
  ping_ = ping;
  ArmPing();
}

void HttpSession::ArmPing() {
  quiet_ = true;
  ping_timer_.expires_after(ping_);
  ping_timer_.async_wait([weak = weak_from_this(), turn = turn_](error_code ec) {
    const auto self = ec ? nullptr : weak.lock();
    if (!self || !self->IsOpen(turn)) return;
    self->Step([&] {
      if (self->quiet_) self->Send(turn, ":\n\n");
      if (self->IsOpen(turn)) self->ArmPing();
    });
  });
}

void HttpSession::Send(uint64_t turn, const std::string& events) {
  if (!IsOpen(turn) || events.empty()) return;
  if (!started_) WriteHead({.status = 200, .body = {}, .type = "text/event-stream; charset=utf-8"}, true);
  Push(http_1_0_ ? events : fmt::format("{:x}\r\n{}\r\n", events.size(), events));
  // A client that asks for more than it reads must not fill the memory.
  if (unsent_bytes_ > static_cast<size_t>(shared_.options.max_unsent_bytes)) Close();
}

void HttpSession::End(uint64_t turn) {
  if (!IsOpen(turn)) return;
  if (!started_) WriteHead({.status = 200, .body = {}, .type = "text/event-stream; charset=utf-8"}, true);
  finished_ = true;
  if (!http_1_0_) Push("0\r\n\r\n");
  Finish();
}

void HttpSession::OnGone(uint64_t turn, std::function<void()> callback) {
  if (turn != turn_ || closed_ || !busy_) return callback();
  if (!finished_) on_gone_ = std::move(callback);
}

void HttpSession::Push(std::string bytes) {
  quiet_ = false;
  unsent_bytes_ += bytes.size();
  unsent_.push_back(std::move(bytes));
  if (!writing_) Write();
}

void HttpSession::Write() {
  if (closed_) return;
  writing_ = true;
  Arm(write_deadline_, shared_.options.timeout);
  const std::string& front = unsent_.front();
  const size_t size = std::min(front.size() - sent_of_first_, kLargestWrite);
  socket_.async_write_some(
      asio::buffer(front.data() + sent_of_first_, size),
      [self = shared_from_this()](error_code ec, size_t n) { self->Step([&] { self->OnWrite(ec, n); }); });
}

void HttpSession::OnWrite(error_code ec, size_t bytes) {
  writing_ = false;
  if (closed_) return;
  write_deadline_.cancel();
  if (ec) return Close();
  unsent_bytes_ -= bytes;
  sent_of_first_ += bytes;
  if (sent_of_first_ == unsent_.front().size()) {
    unsent_.pop_front();
    sent_of_first_ = 0;
  }
  if (!unsent_.empty()) return Write();
  if (finished_) OnFinished();
}

void HttpSession::Finish() {
  on_gone_ = nullptr;
  ping_timer_.cancel();
  if (!writing_ && unsent_.empty()) OnFinished();
}

void HttpSession::OnFinished() {
  if (!busy_) return;
  busy_ = false;
  --shared_.answering;
  ReleaseBody();
  if (!keep_alive_) return Linger();
  Arm(read_deadline_, shared_.options.idle);
  if (!watching_) return ReadHead();
  if (buffer_.size() > 0) socket_.cancel();
}

// Closing a socket that has unread bytes resets the connection, and the client would lose the answer.
void HttpSession::Linger() {
  error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  lingering_ = true;
  buffer_.consume(buffer_.size());
  Arm(read_deadline_, kLinger);
  Watch();
}

void HttpSession::Close() {
  if (closed_) return;
  closed_ = true;
  error_code ignored;
  read_deadline_.cancel();
  write_deadline_.cancel();
  ping_timer_.cancel();
  socket_.close(ignored);
  if (cancelled_) *cancelled_ = true;
  const std::function<void()> gone = std::exchange(on_gone_, nullptr);
  if (gone && !finished_) gone();
}

}  // namespace coppice
