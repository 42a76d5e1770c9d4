#include "server/http/client_addresses.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice {
namespace {

using boost::asio::ip::make_address;

TEST(ClientAddresses, EachAddressHasItsOwnLimit) {
  ClientAddresses addresses(2);
  auto first = addresses.Add(make_address("192.0.2.1"));
  const auto second = addresses.Add(make_address("192.0.2.1"));
  EXPECT_TRUE(first && second);
  EXPECT_FALSE(addresses.Add(make_address("192.0.2.1")));
  EXPECT_FALSE(addresses.Add(make_address("::ffff:192.0.2.1")));
  EXPECT_TRUE(addresses.Add(make_address("192.0.2.2")));
  first.reset();
  EXPECT_TRUE(addresses.Add(make_address("192.0.2.1")));
}

TEST(ClientAddresses, NetworksOf64Bits) {
  ClientAddresses addresses(1);
  const auto held = addresses.Add(make_address("2001:db8:1:2::1"));
  EXPECT_TRUE(held);
  EXPECT_FALSE(addresses.Add(make_address("2001:db8:1:2:ffff::7")));
  EXPECT_TRUE(addresses.Add(make_address("2001:db8:1:3::1")));
}

TEST(ClientAddresses, ThisMachineHasNoLimit) {
  ClientAddresses addresses(1);
  std::vector<std::shared_ptr<void>> held;
  for (const char* address : {"127.0.0.1", "127.0.0.1", "127.0.0.9", "::1", "::1", "::ffff:127.0.0.1"}) {
    held.push_back(addresses.Add(make_address(address)));
    EXPECT_TRUE(held.back()) << address;
  }
}

}  // namespace
}  // namespace coppice
