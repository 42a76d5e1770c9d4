#include "server/kv_blocks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

namespace coppice {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::IsEmpty;
using Ids = std::vector<int32_t>;

Ids Text(int32_t text, int64_t tokens) {
  Ids ids;
  for (int32_t i = 0; i < tokens; ++i) ids.push_back((text * 131 + i * 7) % 1000);
  return ids;
}

std::shared_ptr<const HeldDocument> Document(Ids tokens) {
  return std::make_shared<const HeldDocument>(HeldDocument{.tokens = std::move(tokens), .point = {4, false}});
}

// What a router knows after the events: by medium, the chain of blocks that leads to each hash.
class Router {
 public:
  void Read(const std::vector<json>& events) {
    for (const json& event : events) {
      const std::string type = event["type"];
      if (type == "AllBlocksCleared") {
        held_.clear();
        continue;
      }
      auto& held = held_[event["medium"]];
      const auto hashes = event["block_hashes"].get<std::vector<uint64_t>>();
      if (type == "BlockRemoved") {
        for (const uint64_t hash : hashes) EXPECT_EQ(held.erase(hash), 1u) << "removed, but not held";
        continue;
      }
      ASSERT_EQ(type, "BlockStored");
      Ids chain;
      if (!event["parent_block_hash"].is_null()) {
        const auto parent = held.find(event["parent_block_hash"].get<uint64_t>());
        ASSERT_NE(parent, held.end()) << "the parent is not held";
        chain = parent->second;
      }
      const auto tokens = event["token_ids"].get<Ids>();
      ASSERT_EQ(tokens.size(), hashes.size() * kBlockTokens);
      for (size_t i = 0; i < hashes.size(); ++i) {
        const auto from = tokens.begin() + static_cast<ptrdiff_t>(i * kBlockTokens);
        chain.insert(chain.end(), from, from + kBlockTokens);
        held[hashes[i]] = chain;
      }
    }
  }

  std::set<Ids> Beginnings(const std::string& medium) const {
    std::set<Ids> beginnings;
    if (const auto held = held_.find(medium); held != held_.end()) {
      for (const auto& [hash, chain] : held->second) beginnings.insert(chain);
    }
    return beginnings;
  }

 private:
  std::map<std::string, std::map<uint64_t, Ids>> held_;
};

TEST(KvBlocks, AHashStandsForABeginning) {
  const Ids text = Text(1, 70);
  const std::vector<uint64_t> hashes = BlockHashes(text);
  EXPECT_EQ(hashes.size(), 4u) << "the 6 tokens behind the last whole block have none";
  EXPECT_EQ(std::set<uint64_t>(hashes.begin(), hashes.end()).size(), 4u);
  EXPECT_EQ(BlockHashes(std::span(text).first(32)),
            std::vector<uint64_t>(hashes.begin(), hashes.begin() + 2));
  Ids other = text;
  other[0] = 999;
  const std::vector<uint64_t> others = BlockHashes(other);
  for (size_t i = 0; i < hashes.size(); ++i) EXPECT_NE(hashes[i], others[i]) << "block " << i;
  // Servers of one model must agree, also those of another build.
  EXPECT_EQ(hashes.front(), 0x6c9d71a64959b94fu);
  EXPECT_THAT(BlockHashes(Text(1, 15)), IsEmpty());
}

TEST(KvBlocks, EventsHaveTheFieldsOfVllm) {
  BlockLedger ledger;
  const Ids text = Text(1, 40);
  ledger.Hold(1, Document(text), true);
  const std::vector<uint64_t> hashes = BlockHashes(text);
  EXPECT_THAT(ledger.Take(), ElementsAre(json{{"type", "BlockStored"},
                                              {"block_hashes", hashes},
                                              {"parent_block_hash", nullptr},
                                              {"token_ids", Ids(text.begin(), text.begin() + 32)},
                                              {"block_size", 16},
                                              {"lora_id", nullptr},
                                              {"medium", "GPU"},
                                              {"lora_name", nullptr}}));
  EXPECT_THAT(ledger.Take(), IsEmpty());
  ledger.Release(1);
  EXPECT_THAT(ledger.Take(),
              ElementsAre(json{{"type", "BlockRemoved"}, {"block_hashes", hashes}, {"medium", "GPU"}}));
}

TEST(KvBlocks, OnlyNewBlocksAreStored) {
  BlockLedger ledger;
  const Ids text = Text(1, 64);
  ledger.Hold(1, Document({text.begin(), text.begin() + 33}), true);
  ledger.Take();
  ledger.Hold(2, Document(text), true);
  const std::vector<json> events = ledger.Take();
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0]["parent_block_hash"], BlockHashes(text)[1]);
  EXPECT_EQ(events[0]["token_ids"], json(Ids(text.begin() + 32, text.end())));
  ledger.Release(1);
  EXPECT_THAT(ledger.Take(), IsEmpty()) << "the longer document still holds them";
  EXPECT_EQ(ledger.blocks(), 4);
}

// A longer document takes the place of its beginning, in whichever order the cache says so.
TEST(KvBlocks, AReplacedDocumentIsNotRemoved) {
  BlockLedger ledger;
  const Ids text = Text(1, 64);
  ledger.Hold(1, Document({text.begin(), text.begin() + 32}), true);
  ledger.Take();
  ledger.Release(1);
  ledger.Hold(2, Document(text), true);
  Router router;
  router.Read(ledger.Take());
  EXPECT_EQ(router.Beginnings("GPU").size(), 4u);
}

TEST(KvBlocks, ADocumentMovesToItsFile) {
  BlockLedger ledger;
  Router router;
  ledger.Hold(1, Document(Text(1, 48)), true);
  router.Read(ledger.Take());
  ledger.Move(1, false);
  ledger.Move(2, false);  // is not held
  router.Read(ledger.Take());
  EXPECT_THAT(router.Beginnings("GPU"), IsEmpty());
  EXPECT_EQ(router.Beginnings("DISK").size(), 3u);
}

// Whatever happens, and however often events are taken: what a router knows is what is held.
TEST(KvBlocks, ARouterKnowsWhatIsHeld) {
  std::mt19937 random(7);
  const auto below = [&](size_t n) { return static_cast<int32_t>(random() % n); };
  for (int round = 0; round < 50; ++round) {
    BlockLedger ledger;
    Router router;
    std::map<uint64_t, std::pair<Ids, bool>> truth;
    for (uint64_t step = 1; step <= 200; ++step) {
      if (truth.empty() || below(3) == 0) {
        Ids tokens = Text(below(3), below(100));  // three stems, so that most beginnings are shared
        const Ids rest = Text(10 + below(4), below(60));
        tokens.insert(tokens.end(), rest.begin(), rest.end());
        const bool in_memory = below(2) == 0;
        ledger.Hold(step, Document(tokens), in_memory);
        truth[step] = {tokens, in_memory};
      } else {
        const auto some = std::next(truth.begin(), below(truth.size()));
        if (below(2) == 0) {
          some->second.second = !some->second.second;
          ledger.Move(some->first, some->second.second);
        } else {
          ledger.Release(some->first);
          truth.erase(some);
        }
      }
      if (below(4) != 0) continue;
      router.Read(below(10) == 0 ? ledger.Everything() : ledger.Take());
      std::set<Ids> expected[2];
      for (const auto& [id, held] : truth) {
        for (size_t end = kBlockTokens; end <= held.first.size(); end += kBlockTokens)
          expected[held.second].insert(
              Ids(held.first.begin(), held.first.begin() + static_cast<ptrdiff_t>(end)));
      }
      ASSERT_EQ(router.Beginnings("GPU"), expected[true]) << "round " << round << ", step " << step;
      ASSERT_EQ(router.Beginnings("DISK"), expected[false]) << "round " << round << ", step " << step;
      ASSERT_EQ(ledger.blocks(), static_cast<int64_t>(expected[0].size() + expected[1].size()));
    }
  }
}

}  // namespace
}  // namespace coppice
