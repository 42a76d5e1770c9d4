#include "server/access.h"

#include <algorithm>
#include <span>

#include "base/checksum.h"

namespace coppice {

bool EqualInConstantTime(std::string_view a, std::string_view b) {
  // volatile: the compiler may not leave the loop early.
  volatile unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    const char other = b.empty() ? '\0' : b[i % b.size()];
    difference = static_cast<unsigned char>(difference | static_cast<unsigned char>(a[i] ^ other));
  }
  return difference == 0;
}

std::string HostOf(std::string_view authority) {
  if (authority.starts_with('[')) return std::string(authority.substr(1, authority.find(']') - 1));
  return std::string(authority.substr(0, authority.find(':')));
}

namespace {

// The request's API key; empty if it has none.
std::string_view GivenKey(const HttpRequest& head) {
  const std::string_view authorization = head.Header("authorization");
  if (authorization.starts_with("Bearer ")) return authorization.substr(7);
  return head.Header("x-api-key");
}

bool IsThisMachine(const std::string& host) {
  return host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

bool Lists(const std::vector<std::string>& list, const std::string& name) {
  return std::ranges::any_of(list, [&](const std::string& one) { return one == "*" || one == name; });
}

}  // namespace

uint64_t HashOf(std::string_view text) {
  return std::max<uint64_t>(ChecksumOf(std::as_bytes(std::span(text))), 1);  // 0 means none
}

uint64_t Access::KeyOf(const HttpRequest& head) const { return HashOf(GivenKey(head)); }

uint64_t Access::ClientOf(const HttpRequest& head) const { return keys_.size() > 1 ? KeyOf(head) : 0; }

bool Access::IsKey(std::string_view given) const {
  bool found = false;
  for (const std::string& key : keys_) found |= EqualInConstantTime(given, key);  // all keys: no early exit
  return found;
}

std::optional<HttpFault> Access::Refuse(const HttpRequest& head) const {
  if (!keys_.empty()) {
    if (IsKey(GivenKey(head))) return std::nullopt;
    return HttpFault{401, "authentication_error", "Invalid API Key"};
  }
  const std::string& authority = head.Header("host");
  const std::string host = HostOf(authority);
  const bool is_here = authority.empty() || host == host_ || Lists(hosts_, host) || IsThisMachine(host);
  const std::string& origin = head.Header("origin");
  const size_t scheme = origin.find("://");
  // Browsers send Sec-Fetch-Site even without Origin; "none" means that the user typed the address.
  const std::string& fetched_by = head.Header("sec-fetch-site");
  const bool same_site =
      IsAllowedOrigin(origin) ||
      ((origin.empty() || (scheme != std::string::npos && origin.substr(scheme + 3) == authority)) &&
       (fetched_by.empty() || fetched_by == "same-origin" || fetched_by == "none"));
  if (is_here && same_site) return std::nullopt;
  return HttpFault{
      403, "permission_error",
      is_here
          ? "pages of this site may send requests only with an API key, or if the server lists the site"
          : "the Host header names another machine: that needs an API key, or a server that lists the name"};
}

bool Access::IsAllowedOrigin(const std::string& origin) const {
  if (origin.empty()) return false;
  const size_t scheme = origin.find("://");
  const bool local = scheme != origin.npos && IsThisMachine(HostOf(origin.substr(scheme + 3)));
  return Lists(origins_, origin) || (local && Lists(origins_, "localhost"));
}

HttpHeaders Access::CorsHeaders(const HttpRequest& head) const {
  const std::string& origin = head.Header("origin");
  if (!IsAllowedOrigin(origin)) return {};
  HttpHeaders headers = {{"Access-Control-Allow-Origin", origin},
                         {"Access-Control-Expose-Headers", "request-id, x-request-id"},
                         {"Vary", "Origin"}};
  // A proxy may know users by cookies. Only sites that are listed by name may send those.
  if (std::ranges::find(origins_, origin) != origins_.end())
    headers.emplace_back("Access-Control-Allow-Credentials", "true");
  return headers;
}

std::optional<HttpReply> Access::Preflight(const HttpRequest& head) const {
  if (head.method != "OPTIONS" || origins_.empty()) return std::nullopt;
  const std::string& wanted = head.Header("access-control-request-headers");
  HttpReply reply{.status = 200, .body = {}, .type = "text/plain; charset=utf-8"};
  if (!IsAllowedOrigin(head.Header("origin"))) return reply;
  reply.headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                   {"Access-Control-Allow-Headers", wanted.empty() ? "*" : wanted},
                   {"Access-Control-Max-Age", "600"}};
  return reply;
}

}  // namespace coppice
