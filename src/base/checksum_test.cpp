#include "base/checksum.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice {
namespace {

TEST(Checksum, EveryBitCounts) {
  std::vector<std::byte> bytes(1000, std::byte{7});
  const uint64_t before = ChecksumOf(bytes);
  for (const size_t at : {size_t{0}, size_t{511}, size_t{999}}) {
    for (int bit = 0; bit < 8; ++bit) {
      bytes[at] ^= static_cast<std::byte>(1 << bit);
      EXPECT_NE(ChecksumOf(bytes), before) << at << " " << bit;
      bytes[at] ^= static_cast<std::byte>(1 << bit);
    }
  }
  EXPECT_EQ(ChecksumOf(bytes), before);
}

// Files store these values, so they must not change with the version of libxxhash.
TEST(Checksum, IsXxh3) {
  EXPECT_EQ(ChecksumOf({}), 0x2d06800538d394c2u);
  EXPECT_EQ(Fingerprinter().Result(), (Fingerprint{0x6001c324468d497f, 0x99aa06d3014798d8}));
}

TEST(Checksum, FingerprintsTellPartsApart) {
  const auto of = [](std::vector<std::string_view> parts) {
    Fingerprinter print;
    for (const std::string_view part : parts) print.Add(part);
    return print.Result();
  };
  EXPECT_EQ(of({"ab", "c"}), of({"ab", "c"}));
  EXPECT_NE(of({"ab", "c"}), of({"a", "bc"}));
  EXPECT_NE(of({"ab"}), of({"ab", ""}));
}

}  // namespace
}  // namespace coppice
