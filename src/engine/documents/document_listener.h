// The interface through which a document cache tells what it holds and what it lets go.
#pragma once

#include <cstdint>
#include <vector>

#include "model/prefix.h"

namespace coppice {

// An entry of the cache.
struct HeldDocument {
  PrefixOwner owner = {};
  std::vector<int32_t> tokens = {};
  LayerPoint point = {};
  bool complete = true;    // false: of a cancelled prefill
  bool in_memory = false;  // false: only in a file
};

// The cache calls these with its lock held: they return at once and do not call the cache. It calls Move and
// Release only for entries that it told with Hold. Without memory to tell of an entry, it does not.
class DocumentListener {
 public:
  virtual ~DocumentListener() = default;
  // The cache holds this entry from now on. No two entries of a cache have the same `id`.
  virtual void Hold(uint64_t id, HeldDocument document) noexcept = 0;
  // The entry's states were read into memory, or are only in its file from now on.
  virtual void Move(uint64_t id, bool in_memory) noexcept = 0;
  // The cache no longer holds the entry.
  virtual void Release(uint64_t id) noexcept = 0;
};

}  // namespace coppice
