#include "eval/judge/chat_endpoint.h"

#include <fmt/core.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address_v6.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <charconv>
#include <exception>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "base/error.h"
#include "base/field_error.h"
#include "formats/json.h"
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
  const auto addresses =
      co_await resolver.async_resolve(to.host, std::to_string(to.port), asio::use_awaitable);
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

// choices[0].message.content.
std::optional<std::string> ContentOf(const std::string& body) {
  static const nlohmann::json::json_pointer content("/choices/0/message/content");
  try {
    const nlohmann::json json = ParseJson(body, "the answer");
    if (json.contains(content) && json[content].is_string()) return json[content].get<std::string>();
  } catch (const Error&) {  // no JSON, or more than the limits allow
  }
  return std::nullopt;
}

// The start of a body, as part of an error. Endpoints quote a wrong key: it is not shown.
std::string Excerpt(std::string body, const std::string& key) {
  if (body.empty()) return "an empty answer";
  for (size_t at = key.empty() ? std::string::npos : body.find(key); at != std::string::npos;
       at = body.find(key, at + 3))
    body.replace(at, key.size(), "***");
  return Printable(body);
}

// `url` for a message: without a login before the host, and without a query.
std::string WithoutSecrets(std::string_view url) {
  const size_t slashes = url.find("://");
  const size_t begin = slashes == std::string_view::npos ? 0 : slashes + 3;
  std::string shown(url.substr(0, begin));
  std::string_view rest = url.substr(begin);
  // A password may hold any character, so everything before the last @ goes.
  const size_t login = rest.rfind('@');
  if (login != std::string_view::npos) {
    shown += "***";
    rest = rest.substr(login);
  }
  const size_t query = rest.find('?');
  shown += rest.substr(0, query);
  return Printable(query == std::string_view::npos ? shown : shown + "?***");
}

// Takes the host, without the brackets of an IPv6 address, from the front of `rest`; empty if there is none.
std::string TakeHost(std::string_view& rest) {
  std::string host;
  if (rest.starts_with('[')) {
    const size_t end = rest.find(']');
    if (end == std::string_view::npos) return "";
    host = rest.substr(1, end - 1);
    rest = rest.substr(end + 1);
    boost::system::error_code wrong;
    asio::ip::make_address_v6(host, wrong);
    return wrong ? "" : host;
  }
  host = rest.substr(0, rest.find(':'));
  rest = rest.substr(host.size());
  return host;
}

// ":8080" or nothing, which is 80; 0 for anything else.
uint16_t PortOf(std::string_view text) {
  if (text.empty()) return 80;
  uint16_t port = 0;
  const char* const end = text.data() + text.size();
  const auto [at, wrong] = std::from_chars(text.data() + 1, end, port);
  return text.front() == ':' && wrong == std::errc() && at == end ? port : 0;
}

}  // namespace

std::string EndpointUrl::Host() const {
  const std::string name = host.find(':') == std::string::npos ? host : "[" + host + "]";
  return port == 80 ? name : fmt::format("{}:{}", name, port);
}

EndpointUrl ParseEndpointUrl(std::string_view url) {
  constexpr std::string_view kScheme = "http://";
  if (url.starts_with("https://")) {
    throw FieldError(
        "judge",
        " {}: this program speaks no TLS: let a proxy add it (socat TCP-LISTEN:8443,fork,bind=127.0.0.1 "
        "OPENSSL:HOST:443) and name http://127.0.0.1:8443",
        WithoutSecrets(url));
  }
  const auto refuse = [&] {
    throw FieldError("judge", " {}: is no address of the form http://HOST:PORT/v1", WithoutSecrets(url));
  };
  if (!url.starts_with(kScheme)) refuse();
  std::string_view rest = url.substr(kScheme.size());
  const size_t slash = std::min(rest.find('/'), rest.size());
  EndpointUrl parts;
  parts.path = rest.substr(slash);
  while (parts.path.ends_with('/')) parts.path.pop_back();
  rest = rest.substr(0, slash);
  parts.host = TakeHost(rest);
  parts.port = PortOf(rest);
  const auto is_plain = [](char c) {
    return c > ' ' && c < 0x7F && std::string_view("@?#[]\\").find(c) == std::string_view::npos;
  };
  const bool plain = std::all_of(parts.host.begin(), parts.host.end(), is_plain) &&
                     std::all_of(parts.path.begin(), parts.path.end(), is_plain);
  if (parts.host.empty() || parts.port == 0 || !plain) refuse();
  return parts;
}

void Check(const ChatEndpoint& endpoint) {
  ParseEndpointUrl(endpoint.url);
  // A line end in a key would begin a header of its own.
  const auto fits = [](char c) { return c > ' ' && c < 0x7F; };
  if (!std::all_of(endpoint.key.begin(), endpoint.key.end(), fits))
    throw FieldError("judge_key_env",
                     ": the key has a space, a line end or another character that no "
                     "bearer token has");
}

std::string AskChat(const ChatEndpoint& endpoint, std::string_view system, std::string_view question,
                    int64_t max_tokens, const std::atomic<bool>* cancelled) {
  Check(endpoint);
  const EndpointUrl to = ParseEndpointUrl(endpoint.url);
  const nlohmann::json body = {
      {"model", endpoint.model},
      {"temperature", 0},
      {"max_tokens", max_tokens},
      {"messages", {{{"role", "system"}, {"content", system}}, {{"role", "user"}, {"content", question}}}}};
  http::request<http::string_body> request(http::verb::post, to.path + "/chat/completions", 11);
  request.set(http::field::host, to.Host());
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
      if (const std::optional<std::string> content = ContentOf(reply.body); reply.status == 200 && content)
        return *content;
      failure = fmt::format("status {}: {}", reply.status, Excerpt(reply.body, endpoint.key));
      if (reply.status != 429 && reply.status < 500) break;
    } catch (const boost::system::system_error& error) {
      failure = error.code().message();
    }
  }
  throw Error("[judge] {}: {}", Printable(endpoint.url), failure);
}

}  // namespace coppice
