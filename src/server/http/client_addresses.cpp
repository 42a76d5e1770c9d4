#include "server/http/client_addresses.h"

#include <algorithm>

namespace coppice {

namespace {

boost::asio::ip::address Unmapped(const boost::asio::ip::address& address) {
  if (!address.is_v6() || !address.to_v6().is_v4_mapped()) return address;
  return boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, address.to_v6());
}

}  // namespace

struct ClientAddresses::Connection {
  Connection(ClientAddresses& all, const Network& network) : addresses(all), of(network) {}
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;
  ~Connection() {
    if (!is_counted) return;
    const std::lock_guard lock(addresses.mutex_);
    const auto count = addresses.counts_.find(of);
    if (--count->second == 0) addresses.counts_.erase(count);
  }

  ClientAddresses& addresses;
  const Network of;
  bool is_counted = false;
};

std::shared_ptr<void> ClientAddresses::Add(const boost::asio::ip::address& address) {
  const boost::asio::ip::address plain = Unmapped(address);
  Network network{};
  if (plain.is_v4()) {
    const auto bytes = plain.to_v4().to_bytes();
    network[0] = 4;
    std::copy(bytes.begin(), bytes.end(), network.begin() + 1);
  } else {
    const auto bytes = plain.to_v6().to_bytes();
    network[0] = 6;
    std::copy_n(bytes.begin(), network.size() - 1, network.begin() + 1);
  }
  auto connection = std::make_shared<Connection>(*this, network);
  if (plain.is_loopback()) return connection;
  const std::lock_guard lock(mutex_);
  int& count = counts_[network];
  if (count >= most_) return nullptr;
  ++count;
  connection->is_counted = true;
  return connection;
}

}  // namespace coppice
