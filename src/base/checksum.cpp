#include "base/checksum.h"

#include <xxhash.h>

#include <new>

namespace coppice {

uint64_t ChecksumOf(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

struct Fingerprinter::State {
  XXH3_state_t* xxh = XXH3_createState();
  State() {
    if (xxh == nullptr) throw std::bad_alloc();
    XXH3_128bits_reset(xxh);
  }
  ~State() { XXH3_freeState(xxh); }
};

Fingerprinter::Fingerprinter() : state_(std::make_unique<State>()) {}
Fingerprinter::~Fingerprinter() = default;

void Fingerprinter::Add(std::span<const std::byte> bytes) {
  XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size());
}

void Fingerprinter::Add(std::string_view text) {
  Add(static_cast<int64_t>(text.size()));
  Add(std::as_bytes(std::span(text)));
}

void Fingerprinter::Add(int64_t number) { Add(std::as_bytes(std::span(&number, 1))); }
void Fingerprinter::Add(double number) { Add(std::as_bytes(std::span(&number, 1))); }

Fingerprint Fingerprinter::Result() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.low64, hash.high64};
}

}  // namespace coppice
