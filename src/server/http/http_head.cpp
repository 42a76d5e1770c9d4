#include "server/http/http_head.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string_view>

namespace coppice {

namespace http = boost::beast::http;

namespace {

// The headers that this server, or Beast, acts on.
constexpr http::field kSingle[] = {http::field::host,
                                   http::field::origin,
                                   http::field::content_length,
                                   http::field::content_encoding,
                                   http::field::transfer_encoding,
                                   http::field::authorization,
                                   http::field::expect};
constexpr std::string_view kSingleByName[] = {"X-Api-Key", "Sec-Fetch-Site"};

std::string_view View(boost::beast::string_view text) { return {text.data(), text.size()}; }

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c); });
  return lower;
}

std::string NewRequestId() {
  thread_local std::mt19937_64 random{std::random_device()()};
  return fmt::format("req_{:016x}", random());
}

bool AreDigits(std::string_view text) { return text.find_first_not_of("0123456789") == text.npos; }

// RFC 9110, section 7.2: uri-host [ ":" port ], here without percent-encoding, which no name needs.
bool IsAuthority(std::string_view text) {
  size_t end = 0;
  if (text.starts_with('[')) {
    end = text.find(']');
    if (end == text.npos ||
        text.substr(1, end - 1).find_first_not_of("0123456789abcdefABCDEF:.") != text.npos)
      return false;
    ++end;
  } else {
    const std::string_view name = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    end = std::min(text.find_first_not_of(name), text.size());
  }
  return end == text.size() || (text[end] == ':' && AreDigits(text.substr(end + 1)));
}

}  // namespace

HttpRequest HeadOf(const http::request_header<>& header) {
  HttpRequest request;
  request.id = NewRequestId();
  request.arrived = std::chrono::steady_clock::now();
  request.method = std::string(header.method_string());
  const std::string target(header.target());
  const size_t question = target.find('?');
  request.path = target.substr(0, question);
  if (question != std::string::npos) request.query = target.substr(question + 1);
  for (const auto& field : header) {
    // Of several with one name the first counts; FaultOfHead() refuses those for which it matters.
    request.headers.emplace(LowerCase(View(field.name_string())), std::string(field.value()));
  }
  return request;
}

bool IsFolded(std::string_view head) {
  return head.find("\n ") != head.npos || head.find("\n\t") != head.npos;
}

std::optional<HttpFault> FaultOfHead(const http::request_header<>& header, bool folded) {
  const auto bad = [](std::string message) {
    return HttpFault{400, "invalid_request_error", std::move(message)};
  };
  if (folded) return bad("a header is folded: it goes on in the next line");
  for (const http::field field : kSingle) {
    if (header.count(field) > 1) return bad(fmt::format("the header {} repeats", View(to_string(field))));
  }
  for (const std::string_view name : kSingleByName) {
    if (header.count({name.data(), name.size()}) > 1) return bad(fmt::format("the header {} repeats", name));
  }
  const bool is_1_0 = header.version() < 11;
  if (is_1_0 && header.count(http::field::transfer_encoding) > 0)
    return bad("Transfer-Encoding is not part of HTTP/1.0");
  // Proxies differ in how they read these two, and so in where they see the request's end.
  const auto encoding = header.find(http::field::transfer_encoding);
  if (encoding != header.end() && encoding->value().empty()) return bad("Transfer-Encoding is empty");
  const auto length = header.find(http::field::content_length);
  if (length != header.end() && (length->value().empty() || !AreDigits(View(length->value()))))
    return bad("Content-Length is not a number");
  const auto host = header.find(http::field::host);
  if (host == header.end()) {
    if (is_1_0) return std::nullopt;
    return bad("the header Host is missing");
  }
  if (!IsAuthority(View(host->value())))
    return bad("the header Host is not a name or an address with a port");
  return std::nullopt;
}

bool EndIsKnown(const http::request_header<>& header, bool body_is_read) {
  return body_is_read && header.count(http::field::transfer_encoding) == 0;
}

}  // namespace coppice
