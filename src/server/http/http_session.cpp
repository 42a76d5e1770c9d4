#include "server/http/http_session.h"

#include <fmt/core.h>
#include <malloc.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <boost/beast/http/error.hpp>
#include <boost/beast/http/read.hpp>
#include <utility>

#include "server/errors.h"
#include "server/http/http_head.h"

namespace coppice {

namespace http = boost::beast::http;
using std::chrono::milliseconds;

namespace {

constexpr uint32_t kMaxHeadBytes = 16 << 10;
constexpr size_t kBufferBytes = 64 << 10;                // the most that a client can send ahead
constexpr size_t kWatchBytes = 4096, kHeadBytes = 4096;  // of one read
constexpr milliseconds kLookAgain{100};
constexpr int64_t kSmallBody = 64 << 10;
constexpr int64_t kLargeBody = 1 << 20;

// TCP keepalive finds a peer that vanished silently (a half-open connection, RFC 1122) within half a minute,
// unless data are in flight to it: TCP sends no probes then. TCP_USER_TIMEOUT would also end clients that
// read nothing (tcp(7)).
void FindDeadPeers(StreamSocket& socket) {
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

// Increments `count` for the lifetime of the object.
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
  SessionExchange(std::shared_ptr<HttpSession> session, HttpShared& shared, uint64_t turn)
      : session_(std::move(session)), turn_(turn), held_(shared) {}

  void Reply(HttpReply reply) override {
    session_->Post([turn = turn_, r = std::move(reply), held = std::move(held_)](HttpSession& s) mutable {
      s.Reply(turn, std::move(r), std::move(held));
    });
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
  bool Hold(int64_t bytes) override { return held_.Set(bytes); }
  void OnGone(std::function<void()> callback) override {
    session_->Post(
        [turn = turn_, c = std::move(callback)](HttpSession& s) mutable { s.OnGone(turn, std::move(c)); });
  }

  void Note(LogNote note) override {
    session_->Post(
        [turn = turn_, n = std::move(note)](HttpSession& s) mutable { s.Note(turn, std::move(n)); });
  }

 private:
  std::shared_ptr<HttpSession> session_;
  uint64_t turn_;
  HeldBytes held_;
};

}  // namespace

HttpSession::HttpSession(StreamSocket socket, HttpShared& shared, std::shared_ptr<void> counted)
    : socket_(std::move(socket)),
      shared_(shared),
      counted_(std::move(counted)),
      read_deadline_(socket_.get_executor()),
      write_deadline_(socket_.get_executor()),
      ping_timer_(socket_.get_executor()),
      full_timer_(socket_.get_executor()),
      buffer_(kBufferBytes) {
  ++shared_.connections;
}

HttpSession::~HttpSession() {
  ReleaseBody();
  shared_.reply_bytes -= static_cast<int64_t>(unsent_bytes_);
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

// The time that a client at the minimum rate takes for `bytes` bytes.
milliseconds HttpSession::Earned(int64_t bytes) const {
  return milliseconds(1000 * bytes / std::max<int64_t>(shared_.options.min_bytes_per_second, 1));
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
  ParseHead();
}

// As http::async_read_header, but it sees the bytes: Beast joins a folded header's lines, and does not tell.
void HttpSession::ParseHead() {
  error_code ec;
  const auto bytes = buffer_.data();
  const size_t used = bytes.size() > 0 ? parser_->put(bytes, ec) : 0;
  const bool folded = IsFolded({static_cast<const char*>(bytes.data()), used});
  buffer_.consume(used);
  if (ec == http::error::need_more) ec = {};
  const size_t room = std::min(kHeadBytes, buffer_.max_size() - buffer_.size());
  if (!ec && !parser_->is_header_done() && room == 0) ec = http::error::buffer_overflow;
  if (ec || parser_->is_header_done()) return OnHead(ec, folded);
  socket_.async_read_some(buffer_.prepare(room), [self = shared_from_this()](error_code fault, size_t read) {
    self->Step([&] {
      if (self->closed_) return;
      if (fault) return self->OnHead(fault == asio::error::eof ? http::error::end_of_stream : fault, false);
      self->buffer_.commit(read);
      self->ParseHead();
    });
  });
}

void HttpSession::OnHead(error_code ec, bool folded) {
  if (closed_) return;
  read_deadline_.cancel();
  if (ec) return RefuseBadHttp(ec);
  keep_alive_ = parser_->keep_alive();
  http_1_0_ = parser_->get().version() < 11;
  HttpRequest request = HeadOf(parser_->get());
  head_only_ = request.method == "HEAD";
  BeginEntry(request.method, request.path);
  errors_ = ErrorFormFor(request);
  entry_.id = request.id;
  entry_.note.text = " request=" + request.id;
  more_headers_ = shared_.service.HeadersFor(request);
  std::optional<HttpReply> refusal;
  if (const auto fault = FaultOfHead(parser_->get(), folded)) {
    refusal = ErrorReply(*fault, errors_);
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
    return ReplyAtOnce(std::move(*refusal));
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
  ReplyAtOnce(ErrorReply({503, "unavailable_error", "too many bytes of requests are held; try again later"},
                         errors_));
}

void HttpSession::RefuseBadHttp(error_code ec) {
  if (ec == http::error::end_of_stream ||
      ec.category() != http::make_error_code(http::error::bad_field).category() ||
      ec == http::error::partial_message) {
    return Close();
  }
  HttpFault fault{400, "invalid_request_error", fmt::format("this is not HTTP: {}", ec.message())};
  if (ec == http::error::body_limit) {
    fault.status = 413;
    fault.message = fmt::format("the body is larger than {} bytes", shared_.options.max_body_bytes);
  } else if (ec == http::error::header_limit || ec == http::error::buffer_overflow) {
    fault.status = 431;
    fault.message = fmt::format("the header is larger than {} bytes", kMaxHeadBytes);
  }
  keep_alive_ = false;
  if (!busy_) {
    const HttpRequest head = HeadOf(parser_->get());  // the part that was read
    errors_ = ErrorFormFor(head);
    more_headers_ = shared_.service.HeadersFor(head);
    BeginEntry("", "");
    ++turn_;
    busy_ = true;
    started_ = stream_ = finished_ = false;
    ++shared_.answering;
  }
  ReplyAtOnce(ErrorReply(fault, errors_));
}

void HttpSession::ReadBody(HttpRequest request) {
  body_began_ = std::chrono::steady_clock::now();
  parser_->eager(true);
  ReadBodyPart(std::move(request));
}

void HttpSession::ReadBodyPart(HttpRequest request) {
  if (parser_->is_done()) return OnBody({}, std::move(request));
  const HttpOptions& options = shared_.options;
  const auto deadline = body_began_ + std::min(options.idle + Earned(reserved_), options.timeout);
  // To set a timer again cancels it, even if it has expired and its handler waits to run. Without this line,
  // many small reads could therefore escape the deadline.
  if (deadline <= std::chrono::steady_clock::now()) return Close();
  read_deadline_.expires_at(deadline);
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
  auto exchange = std::make_shared<SessionExchange>(shared_from_this(), shared_, turn_);
  cancelled_ = std::make_shared<std::atomic<bool>>(false);
  request.cancelled = cancelled_;
  HttpService& service = shared_.service;
  if (service.IsQuick(request)) return service.Handle(std::move(request), std::move(exchange));
  const bool large = reserved_ > kLargeBody;
  asio::post(*shared_.handlers,
             [&service, large, turn = turn_, self = shared_from_this(), r = std::move(request),
              e = std::move(exchange), counted = Counted(shared_.handling)]() mutable {
               if (*r.cancelled) return;
               try {
                 service.Handle(std::move(r), std::move(e));
                 // The body is freed; computing the answer may take long.
                 if (large) malloc_trim(0);  // else the C library keeps the memory of parsing
                 self->Post([turn](HttpSession& s) {
                   if (s.turn_ == turn) s.ReleaseBody();
                 });
               } catch (const std::exception&) {  // no memory even for an error reply
                 self->PostClose();
               }
             });
}

// While a request waits or computes, a pending read detects that the client disconnects. Data that the client
// sends ahead stay in the buffer.
void HttpSession::Watch() {
  if (watching_ || closed_) return;
  const size_t room = std::min(kWatchBytes, buffer_.max_size() - buffer_.size());
  if (room == 0) return WatchFullBuffer();
  watching_ = true;
  socket_.async_read_some(buffer_.prepare(room), [self = shared_from_this()](error_code ec, size_t bytes) {
    self->Step([&] { self->OnWatch(ec, bytes); });
  });
}

// No read fits into the buffer. The kernel still knows that the client has disconnected.
void HttpSession::WatchFullBuffer() {
  if (closed_ || !busy_) return;
  pollfd socket{socket_.native_handle(), POLLRDHUP, 0};
  if (poll(&socket, 1, 0) > 0) return ClientLeft();
  full_timer_.expires_after(kLookAgain);
  full_timer_.async_wait([weak = weak_from_this()](error_code ec) {
    const auto self = ec ? nullptr : weak.lock();
    if (self) self->Step([&] { self->WatchFullBuffer(); });
  });
}

// A client that has read the whole reply may close before the handler of the last write runs. Then
// OnFinished() closes the connection, or the write fails.
void HttpSession::ClientLeft() {
  client_left_ = true;
  if (!finished_ || !writing_) Close();
}

void HttpSession::OnWatch(error_code ec, size_t bytes) {
  watching_ = false;
  if (closed_) return;
  if (ec == asio::error::operation_aborted)
    return ReadHead();  // OnFinished: the next request is here already
  if (ec) return ClientLeft();
  buffer_.commit(bytes);
  if (lingering_) buffer_.consume(buffer_.size());
  if (busy_ || lingering_) return Watch();
  ReadHead();
}

void HttpSession::Close() {
  if (closed_) return;
  closed_ = true;
  if (busy_) LogRequest(false);
  error_code ignored;
  read_deadline_.cancel();
  write_deadline_.cancel();
  ping_timer_.cancel();
  full_timer_.cancel();
  socket_.close(ignored);
  if (cancelled_) *cancelled_ = true;
  const std::function<void()> gone = std::exchange(on_gone_, nullptr);
  if (gone && !finished_) gone();
}

}  // namespace coppice
