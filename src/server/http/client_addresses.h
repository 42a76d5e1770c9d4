// How many connections each client address has.
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
  explicit ClientAddresses(int most) : most_(most) {}  // of one address, 1 at least
  ClientAddresses(const ClientAddresses&) = delete;
  ClientAddresses& operator=(const ClientAddresses&) = delete;

  // Counts a connection for as long as the result lives, which must not outlive this object. Null if the
  // address has the most already. Addresses of this machine have no limit, because a reverse proxy connects
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
