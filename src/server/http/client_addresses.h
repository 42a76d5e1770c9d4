// Counts the connections of each client address.
#pragma once

#include <array>
#include <boost/asio/ip/address.hpp>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

namespace coppice {

// Thread-safe.
class ClientAddresses {
 public:
  explicit ClientAddresses(int most) : most_(most) {}  // per address, at least 1
  ClientAddresses(const ClientAddresses&) = delete;
  ClientAddresses& operator=(const ClientAddresses&) = delete;

  // Counts a connection while the returned object lives; it must not outlive this one. Returns null if the
  // address is at its limit. Addresses of this machine have no limit, because a reverse proxy connects
  // from there for everybody. An IPv6 client counts by its network of 64 bits, in which it can take any
  // address.
  std::shared_ptr<void> Add(const boost::asio::ip::address& address);

 private:
  using Network = std::array<uint8_t, 9>;  // 4 or 6, then the first bytes of the address
  struct Connection;

  const int most_;
  std::mutex mutex_;
  std::map<Network, int> counts_;  // none is 0
};

}  // namespace coppice
