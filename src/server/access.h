// Who may ask: keys, and what a browser says of where a request comes from.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/errors.h"
#include "server/http.h"

namespace coppice {

// The time depends on the lengths alone.
bool EqualInConstantTime(std::string_view a, std::string_view b);

class Access {
 public:
  // `host` is what the server listens on.
  Access(std::vector<std::string> keys, std::string host) : keys_(std::move(keys)), host_(std::move(host)) {}

  // Why the request may not be served, or nothing. With keys: "Authorization: Bearer KEY" or "X-Api-Key: KEY".
  // Without: any page that a user of this machine opens in a browser could send requests here, so those whose Host
  // is not this machine (DNS rebinding) or whose Origin is another site are refused.
  std::optional<HttpFault> Refuse(const HttpRequest& head) const;

 private:
  bool HasKey(const HttpRequest& head) const;

  std::vector<std::string> keys_;
  std::string host_;
};

// Of "127.0.0.1:8080", "[::1]:8080", "localhost": the part before the port, without brackets.
std::string HostOf(std::string_view authority);

}  // namespace coppice
