// The writing half of a connection: heads, whole replies, streams with pings, and the end of a reply.
#include <fmt/core.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/errors.h"
#include "server/http/http_session.h"
#include "server/http/http_text.h"

namespace coppice {

using std::chrono::milliseconds;

namespace {

constexpr size_t kLargestWrite = 256 << 10;  // so that a slow client still shows progress
// A reply that always fits. Its client can be the next one; errors and short answers must get through.
constexpr int64_t kSmallReply = 256 << 10;
constexpr milliseconds kLinger{2000};

}  // namespace

void HttpSession::WriteHead(const HttpReply& reply, bool stream) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nServer: coppice\r\nDate: {}\r\nContent-Type: {}\r\n",
                                 reply.status, StatusText(reply.status), DateText(), reply.type);
  for (const HttpHeaders* headers : {&reply.headers, &std::as_const(more_headers_)}) {
    for (const auto& [name, value] : *headers) head += fmt::format("{}: {}\r\n", name, value);
  }
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
  entry_.status = reply.status;
  stream_ = stream;
  Push(head + "\r\n");
}

// Not by adding and taking back: others would be refused in between, for bytes that nobody gets.
bool HeldBytes::Set(int64_t bytes) {
  const int64_t more = bytes - bytes_;
  int64_t all = shared_->reply_bytes;
  do {
    if (more > 0 && bytes > kSmallReply && all + more > shared_->options.max_replies_bytes) return false;
  } while (!shared_->reply_bytes.compare_exchange_weak(all, all + more));
  bytes_ = bytes;
  return true;
}

// What `held` counts becomes the count of unsent bytes without a gap, in which another reply could take the
// room that this one was granted.
void HttpSession::Reply(uint64_t turn, HttpReply reply, HeldBytes held) {
  if (!IsOpen(turn)) return;
  if (started_) {
    held.Set(0);  // only an error, which is small, comes after a ping
    Send(turn, reply.last_events.empty() ? "data: " + reply.body + "\n\n" : reply.last_events);
    return End(turn);
  }
  // Replies that nobody reads must not fill the memory. One always fits.
  const auto size = static_cast<int64_t>(reply.body.size());
  const int64_t others = shared_.reply_bytes - held.bytes();
  if (size > std::max(kSmallReply, held.bytes()) && others > 0 &&
      others + size > shared_.options.max_replies_bytes) {
    reply = ErrorReply(
        {503, "unavailable_error", "too many bytes of replies wait to be read; try again later"}, errors_);
  }
  finished_ = true;
  WriteHead(reply, false);
  if (!head_only_ && !reply.body.empty()) Push(std::move(reply.body), held.Take());
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
  if (unsent_bytes_ > static_cast<size_t>(shared_.options.max_unsent_bytes) ||
      (unsent_bytes_ > kLargestWrite && shared_.reply_bytes > shared_.options.max_replies_bytes)) {
    Close();
  }
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

// `counted`: of these bytes, or of the reply that they were made from, those in shared_.reply_bytes already.
void HttpSession::Push(std::string bytes, int64_t counted) {
  quiet_ = false;
  if (unsent_.empty()) {
    unsent_since_ = std::chrono::steady_clock::now();
    sent_since_ = 0;
  }
  unsent_bytes_ += bytes.size();
  shared_.reply_bytes += static_cast<int64_t>(bytes.size()) - counted;
  unsent_.push_back(std::move(bytes));
  if (!writing_) Write();
}

void HttpSession::Write() {
  if (closed_) return;
  writing_ = true;
  // A client must read something within the time limit, and all of it at the least rate.
  const auto now = std::chrono::steady_clock::now();
  const auto limit = shared_.options.timeout;
  const auto deadline = std::min(now, unsent_since_ + Earned(sent_since_)) + limit;
  // To set a timer again cancels it, even if it has expired and its handler waits to run. Without this line,
  // many small writes could therefore escape the deadline.
  if (deadline <= now) return Close();
  write_deadline_.expires_at(deadline);
  CloseAtDeadline(write_deadline_);
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
  shared_.reply_bytes -= static_cast<int64_t>(bytes);
  sent_since_ += static_cast<int64_t>(bytes);
  entry_.sent += static_cast<int64_t>(bytes);
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
  LogRequest(true);
  --shared_.answering;
  ReleaseBody();
  if (client_left_) return Close();  // Asio does not report the end of a stream twice: a read would wait
  if (!keep_alive_) return Linger();
  Arm(read_deadline_, shared_.options.idle);
  if (!watching_) return ReadHead();
  if (buffer_.size() > 0) socket_.cancel();
}

void HttpSession::BeginEntry(std::string method, std::string path) {
  entry_ = {};
  entry_.method = std::move(method);
  entry_.path = std::move(path);
  entry_began_ = std::chrono::steady_clock::now();
}

void HttpSession::Note(uint64_t turn, LogNote note) {
  if (turn != turn_ || !busy_) return;
  entry_.note.text += note.text;
  std::ranges::move(note.fields, std::back_inserter(entry_.note.fields));
}

void HttpSession::LogRequest(bool whole) {
  entry_.whole = whole;
  entry_.took = std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - entry_began_);
  shared_.service.Log(entry_);
}

// Closing a socket that has unread bytes resets the connection, and the client would lose the answer.
void HttpSession::Linger() {
  error_code ignored;
  socket_.shutdown(StreamSocket::shutdown_send, ignored);
  lingering_ = true;
  buffer_.consume(buffer_.size());
  Arm(read_deadline_, kLinger);
  Watch();
}

}  // namespace coppice
