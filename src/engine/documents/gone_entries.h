// What the document cache remembers of the entries that it let go: enough to tell a client why a prompt of
// its own is no longer there, and to know a prompt that goes on one of them for a conversation's.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>

#include "model/prefix.h"

namespace coppice {

enum class Gone {
  kMemory,   // memory was full, and the entry had no file
  kDisk,     // the folder was full
  kErased,   // a client erased it
  kDamaged,  // its file could not be read
};

// The last entries that went. Not thread-safe. Allocates nothing: it notes entries when memory is full.
class GoneEntries {
 public:
  void Note(const PrefixOwner& owner, std::span<const int32_t> tokens, Gone why) noexcept;

  struct Match {
    Gone why;
    int64_t tokens;  // that the entry had
  };
  // The longest one that was a beginning of `tokens`, perhaps with another end (WithoutAnswerHead), and had
  // more than `above` tokens.
  std::optional<Match> Longest(std::span<const int32_t> tokens, int64_t above,
                               const PrefixOwner& owner) const;

 private:
  struct Entry {
    PrefixOwner owner = {};
    int64_t tokens = 0;
    size_t beginning = 0;   // of these, what WithoutAnswerHead leaves
    uint64_t checksum = 0;  // of the beginning
    Gone why = Gone::kMemory;
  };
  // Each costs a later search one checksum of its tokens, at most.
  std::array<Entry, 64> entries_ = {};
  size_t next_ = 0;
};

}  // namespace coppice
