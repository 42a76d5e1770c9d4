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
  // `host` is the name or address that the server listens on.
  Access(std::vector<std::string> keys, std::string host) : keys_(std::move(keys)), host_(std::move(host)) {}

  // Why the request may not be served; empty if it may. With keys, a request needs "Authorization: Bearer
  // KEY" or "X-Api-Key: KEY". Without keys, any page that a user of this machine opens in a browser could
  // send requests here, so requests are refused if their Host is not this machine (DNS rebinding), or if
  // their Origin or Sec-Fetch-Site says that another site's page sends them.
  std::optional<HttpFault> Refuse(const HttpRequest& head) const;
  // A hash of the key that the request gives.
  uint64_t KeyOf(const HttpRequest& head) const;
  // The same hash, to distinguish the clients of several keys; 0 if there is at most one key.
  uint64_t ClientOf(const HttpRequest& head) const;

 private:
  bool IsKey(std::string_view given) const;

  std::vector<std::string> keys_;
  std::string host_;
};

// The host of "127.0.0.1:8080", "[::1]:8080" or "localhost", without port and brackets.
std::string HostOf(std::string_view authority);

}  // namespace coppice
