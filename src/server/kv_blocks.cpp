#include "server/kv_blocks.h"

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "base/checksum.h"

namespace coppice {

namespace {

using nlohmann::json;

// Routers know tiers by these names, and prefer the first. A server's own memory is where it computes.
const char* MediumOf(bool in_memory) { return in_memory ? "GPU" : "DISK"; }

}  // namespace

std::vector<uint64_t> BlockHashes(std::span<const int32_t> tokens) {
  struct {
    uint64_t parent = 0;
    int32_t tokens[kBlockTokens];
  } block;
  static_assert(sizeof(block) == sizeof(uint64_t) + kBlockTokens * sizeof(int32_t));  // no padding
  std::vector<uint64_t> hashes;
  hashes.reserve(tokens.size() / kBlockTokens);
  for (; std::ssize(tokens) >= kBlockTokens; tokens = tokens.subspan(kBlockTokens)) {
    std::copy_n(tokens.begin(), kBlockTokens, block.tokens);
    block.parent = ChecksumOf(std::as_bytes(std::span(&block, 1)));
    hashes.push_back(block.parent);
  }
  return hashes;
}

void BlockLedger::Hold(uint64_t id, std::shared_ptr<const HeldDocument> document, bool in_memory) {
  const auto [place, is_new] = documents_.try_emplace(id);
  if (!is_new) return;
  place->second = {document, BlockHashes(document->tokens), in_memory};
  Store(place->second);
}

void BlockLedger::Move(uint64_t id, bool in_memory) {
  const auto found = documents_.find(id);
  if (found == documents_.end() || found->second.in_memory == in_memory) return;
  Drop(found->second);
  found->second.in_memory = in_memory;
  Store(found->second);
}

void BlockLedger::Release(uint64_t id) {
  const auto found = documents_.find(id);
  if (found == documents_.end()) return;
  Drop(found->second);
  documents_.erase(found);
}

// Announces the blocks that no other document holds there. They are the document's last ones, because a
// document that holds a block holds all blocks before it. So one event names them, with the block before them
// as their parent.
void BlockLedger::Store(const Held& held) {
  std::unordered_map<uint64_t, int64_t>& counts = counts_[held.in_memory];
  const std::vector<uint64_t>& hashes = held.hashes;
  size_t first = 0;
  while (first < hashes.size() && counts.contains(hashes[first])) ++first;
  for (const uint64_t hash : hashes) ++counts[hash];
  if (first == hashes.size()) return;
  const auto from = static_cast<ptrdiff_t>(first);
  const std::span<const int32_t> tokens(held.document->tokens);
  stored_.push_back(
      {{"type", "BlockStored"},
       {"block_hashes", std::vector<uint64_t>(hashes.begin() + from, hashes.end())},
       {"parent_block_hash", first == 0 ? json() : json(hashes[first - 1])},
       {"token_ids", tokens.subspan(first * kBlockTokens, (hashes.size() - first) * kBlockTokens)},
       {"block_size", kBlockTokens},
       {"lora_id", nullptr},
       {"medium", MediumOf(held.in_memory)},
       {"lora_name", nullptr}});
}

void BlockLedger::Drop(const Held& held) {
  std::unordered_map<uint64_t, int64_t>& counts = counts_[held.in_memory];
  for (const uint64_t hash : held.hashes) {
    const auto count = counts.find(hash);
    if (--count->second > 0) continue;
    counts.erase(count);
    dropped_[held.in_memory].push_back(hash);
  }
}

std::vector<json> BlockLedger::Take() {
  std::vector<json> events = std::exchange(stored_, {});
  for (const bool in_memory : {true, false}) {
    std::vector<uint64_t> gone = std::exchange(dropped_[in_memory], {});
    std::unordered_set<uint64_t> seen;
    std::erase_if(
        gone, [&](uint64_t hash) { return counts_[in_memory].contains(hash) || !seen.insert(hash).second; });
    if (gone.empty()) continue;
    events.push_back({{"type", "BlockRemoved"}, {"block_hashes", gone}, {"medium", MediumOf(in_memory)}});
  }
  return events;
}

std::vector<json> BlockLedger::Everything() {
  for (const bool in_memory : {true, false}) {
    counts_[in_memory].clear();
    dropped_[in_memory].clear();
  }
  stored_.assign(1, {{"type", "AllBlocksCleared"}});
  for (const auto& [id, held] : documents_) Store(held);
  return std::exchange(stored_, {});
}

}  // namespace coppice
