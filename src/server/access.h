// Access control: API keys, and the Host and Origin headers that a browser sends.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/errors.h"
#include "server/http/http.h"

namespace coppice {

// The time depends only on the lengths, so it does not tell where the texts differ.
bool EqualInConstantTime(std::string_view a, std::string_view b);

// A hash that is never 0.
uint64_t HashOf(std::string_view text);

class Access {
 public:
  // `host` is the name or address that the server listens on; `hosts` are further names that a request's Host
  // may give without a key ("*": any). `origins` are the sites whose pages may send requests and read the
  // answers ("https://example.org"; "localhost": of this machine, at any port; "*": any).
  Access(std::vector<std::string> keys, std::string host, std::vector<std::string> hosts = {},
         std::vector<std::string> origins = {})
      : keys_(std::move(keys)),
        host_(std::move(host)),
        hosts_(std::move(hosts)),
        origins_(std::move(origins)) {}

  // Why the request may not be served; empty if it may. With keys, a request needs "Authorization: Bearer
  // KEY" or "X-Api-Key: KEY". Without keys, any page that a user of this machine opens in a browser could
  // send requests here, so requests are refused if their Host is not this machine (DNS rebinding), or if
  // their Origin or Sec-Fetch-Site says that another site's page sends them.
  std::optional<HttpFault> Refuse(const HttpRequest& head) const;
  // The CORS headers of every reply to a request; none unless its Origin is one of `origins`.
  HttpHeaders CorsHeaders(const HttpRequest& head) const;
  // The reply to the request that a browser sends ahead to ask whether a page may send another one; the CORS
  // headers, which it also gets, say so.
  std::optional<HttpReply> Preflight(const HttpRequest& head) const;
  // A hash of the key that the request gives.
  uint64_t KeyOf(const HttpRequest& head) const;
  // The same hash, to distinguish the clients of several keys; 0 if there is at most one key.
  uint64_t ClientOf(const HttpRequest& head) const;

 private:
  bool IsKey(std::string_view given) const;
  bool IsAllowedOrigin(const std::string& origin) const;

  std::vector<std::string> keys_;
  std::string host_;
  std::vector<std::string> hosts_;
  std::vector<std::string> origins_;
};

// The host of "127.0.0.1:8080", "[::1]:8080" or "localhost", without port and brackets.
std::string HostOf(std::string_view authority);

}  // namespace coppice
