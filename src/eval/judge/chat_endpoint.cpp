#include "eval/judge/chat_endpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <exception>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/field_error.h"
#include "formats/printable.h"

namespace coppice {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

constexpr uint64_t kMostAnswerBytes = uint64_t{16} << 20;
constexpr std::chrono::milliseconds kConnectWithin{10'000};
constexpr std::chrono::milliseconds kLookForCancel{50};

struct Reply {
  unsigned status = 0;
  std::string body;
};

asio::awaitable<Reply> Post(EndpointUrl to, http::request<http::string_body> request,
                            std::chrono::milliseconds timeout) {
  const auto executor = co_await asio::this_coro::executor;
  asio::ip::tcp::resolver resolver(executor);
  beast::tcp_stream stream(executor);
  const auto addresses = co_await resolver.async_resolve(to.host, to.port, asio::use_awaitable);
  stream.expires_after(kConnectWithin);
  co_await stream.async_connect(addresses, asio::use_awaitable);
  stream.expires_after(timeout);
  co_await http::async_write(stream, request, asio::use_awaitable);
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kMostAnswerBytes);
  co_await http::async_read(stream, buffer, parser, asio::use_awaitable);
  co_return Reply{parser.get().result_int(), std::move(parser.get().body())};
}

// Throws boost::system::system_error, and Cancelled.
Reply Exchange(const EndpointUrl& to, const http::request<http::string_body>& request,
               std::chrono::milliseconds timeout, const std::atomic<bool>* cancelled) {
  asio::io_context context(1);
  Reply reply;
  std::exception_ptr failure;
  asio::co_spawn(context, Post(to, request, timeout), [&](std::exception_ptr error, Reply got) {
    failure = error;
    reply = std::move(got);
  });
  while (!context.stopped()) {
    if (cancelled != nullptr && *cancelled) throw Cancelled();
    context.run_for(kLookForCancel);
  }
  if (failure) std::rethrow_exception(failure);
  return reply;
}

void Sleep(std::chrono::milliseconds time, const std::atomic<bool>* cancelled) {
  const auto end = std::chrono::steady_clock::now() + time;
  while (std::chrono::steady_clock::now() < end) {
    if (cancelled != nullptr && *cancelled) throw Cancelled();
    std::this_thread::sleep_for(std::min(time, kLookForCancel));
  }
}

// choices[0].message.content, or nothing.
std::string ContentOf(const std::string& body, bool& found) {
  const nlohmann::json json = nlohmann::json::parse(body, nullptr, false);
  const nlohmann::json::json_pointer content("/choices/0/message/content");
  found = !json.is_discarded() && json.contains(content) && json[content].is_string();
  return found ? json[content].get<std::string>() : "";
}

// The start of a body, as part of an error.
std::string Excerpt(const std::string& body) {
  constexpr size_t kMost = 200;
  return body.empty() ? "an empty answer" : Printable(body.substr(0, kMost));
}

}  // namespace

EndpointUrl ParseEndpointUrl(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    throw FieldError(
        "judge",
        " {}: this program speaks no TLS: let a proxy add it (socat TCP-LISTEN:8443,fork,bind=127.0.0.1 "
        "OPENSSL:HOST:443) and name http://127.0.0.1:8443",
        Printable(url));
  }
  const auto refuse = [&] {
    throw FieldError("judge", " {}: is no address of the form http://HOST:PORT/v1", Printable(url));
  };
  if (!url.starts_with(kScheme)) refuse();
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  EndpointUrl parts{.host = {}, .port = "80", .path = std::string(rest.substr(slash))};
  while (parts.path.ends_with('/')) parts.path.pop_back();
  rest = rest.substr(0, slash);
  const bool bracketed = rest.starts_with('[');  // IPv6
  const size_t host_end = bracketed ? rest.find(']') : std::min(rest.rfind(':'), rest.size());
  if (host_end == std::string_view::npos) refuse();
  parts.host = rest.substr(bracketed ? 1 : 0, host_end - (bracketed ? 1 : 0));
  rest = rest.substr(host_end + (bracketed ? 1 : 0));
  if (rest.starts_with(':')) parts.port = rest.substr(1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool port = !parts.port.empty() && parts.port.size() <= 5 &&
                    std::all_of(parts.port.begin(), parts.port.end(), is_digit);
  const auto is_plain = [](char c) { return c > ' ' && c < 0x7F && c != '@' && c != '?' && c != '#'; };
  const bool plain = std::all_of(parts.host.begin(), parts.host.end(), is_plain) &&
                     std::all_of(parts.path.begin(), parts.path.end(), is_plain);
  if (parts.host.empty() || !port || !plain) refuse();
  return parts;
}

std::string AskChat(const ChatEndpoint& endpoint, std::string_view system, std::string_view question,
                    int64_t max_tokens, const std::atomic<bool>* cancelled) {
  const EndpointUrl to = ParseEndpointUrl(endpoint.url);
  const nlohmann::json body = {
      {"model", endpoint.model},
      {"temperature", 0},
      {"max_tokens", max_tokens},
      {"messages", {{{"role", "system"}, {"content", system}}, {{"role", "user"}, {"content", question}}}}};
  http::request<http::string_body> request(http::verb::post, to.path + "/chat/completions", 11);
  request.set(http::field::host, to.host);
  request.set(http::field::content_type, "application/json");
  request.set(http::field::connection, "close");
  if (!endpoint.key.empty()) request.set(http::field::authorization, "Bearer " + endpoint.key);
  request.body() = body.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  request.prepare_payload();
  std::string failure;
  std::chrono::milliseconds pause = endpoint.pause;
  for (int tried = 0; tried < endpoint.tries; ++tried) {
    if (tried > 0) {
      Sleep(pause, cancelled);
      pause *= 2;
    }
    try {
      const Reply reply = Exchange(to, request, endpoint.timeout, cancelled);
      bool found = false;
      std::string content = ContentOf(reply.body, found);
      if (reply.status == 200 && found) return content;
      failure = fmt::format("status {}: {}", reply.status, Excerpt(reply.body));
      if (reply.status != 429 && reply.status < 500) break;
    } catch (const boost::system::system_error& error) {
      failure = error.code().message();
    }
  }
  throw Error("[judge] {}: {}", Printable(endpoint.url), failure);
}

}  // namespace coppice
