// Checksums of files and models with XXH3 (libxxhash), which reads faster than memory can be copied (17 GB/s
// against 10 on one Zen 4 core; docs/document-cache.md). XXH3 detects damage and distinguishes contents; it
// does not protect against deliberate forgery.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace coppice {

uint64_t ChecksumOf(std::span<const std::byte> bytes);

// A 128-bit hash of all data added. Different contents have different fingerprints, except for accidental
// collisions.
struct Fingerprint {
  uint64_t low = 0;
  uint64_t high = 0;
  friend bool operator==(const Fingerprint&, const Fingerprint&) = default;
};

class Fingerprinter {
 public:
  Fingerprinter();
  ~Fingerprinter();
  Fingerprinter(const Fingerprinter&) = delete;
  Fingerprinter& operator=(const Fingerprinter&) = delete;

  void Add(std::span<const std::byte> bytes);
  // Adds the length first, so that "ab", "c" and "a", "bc" differ.
  void Add(std::string_view text);
  void Add(int64_t number);
  void Add(double number);
  Fingerprint Result() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace coppice
