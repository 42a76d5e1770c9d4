// What the document cache holds, in blocks of tokens, as the KV events that routers read (docs/scale-out.md).
//
// The events are vLLM's (vllm/distributed/kv_events.py there): a prompt is cut into blocks of 16 tokens. A
// block's hash covers its tokens and all before them, so a block stands for a beginning of prompts. A router
// looks up how many of a request's first blocks a server has announced.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/documents/document_listener.h"

namespace coppice {

inline constexpr int64_t kBlockTokens = 16;  // vLLM's default, which routers assume

// The hashes of a prompt's whole blocks; those of equal beginnings are equal, in every process. They do not
// depend on the model: a router keeps an index for each model.
std::vector<uint64_t> BlockHashes(std::span<const int32_t> tokens);

// Counts which blocks are held, by how many documents and where, because documents share blocks. Hold, Move
// and Release add to the events that Take() returns.
class BlockLedger {
 public:
  // Holding an id again has no effect.
  void Hold(uint64_t id, std::shared_ptr<const HeldDocument> document, bool in_memory);
  void Move(uint64_t id, bool in_memory);  // neither of these two has an effect for an id that is not held
  void Release(uint64_t id);

  // The events since the last call, those of stored blocks first. Each is an object with its "type".
  std::vector<nlohmann::json> Take();
  // AllBlocksCleared, and then every block that is held. Discards what Take() would have returned.
  std::vector<nlohmann::json> Everything();
  // The number of different blocks held, in memory and in files.
  int64_t blocks() const { return static_cast<int64_t>(counts_[0].size() + counts_[1].size()); }

 private:
  struct Held {
    std::shared_ptr<const HeldDocument> document;
    std::vector<uint64_t> hashes;  // of its blocks
    bool in_memory = false;
  };

  void Store(const Held& held);
  void Drop(const Held& held);

  std::map<uint64_t, Held> documents_;
  std::unordered_map<uint64_t, int64_t> counts_[2];  // by whether in memory: how many documents hold a block
  std::vector<nlohmann::json> stored_;
  std::vector<uint64_t> dropped_[2];  // no document held them when this was noted; may repeat
};

}  // namespace coppice
