// What a document cache tells its listener.
#include "engine/documents/document_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "engine/documents/document_cache.h"
#include "test_files.h"

namespace coppice::document_listener_test {
namespace {

using Ids = std::vector<int32_t>;

constexpr int kLayers = 4;
constexpr LayerPoint kAfterOne{1, true};

PrefixFormat Format() {
  return {.fingerprint = {5, 22},
          .cache_type = DType::kBF16,
          .key_widths = std::vector<int64_t>(kLayers, 16),
          .hidden = 24,
          .vocab = 1000};
}

Ids Text(int32_t text, int64_t tokens) {
  Ids ids;
  for (int32_t i = 0; i < tokens; ++i) ids.push_back((text * 131 + i * 7) % 1000);
  return ids;
}

std::shared_ptr<const PrefixState> StateOf(Ids tokens, const PrefixOwner& owner = {}) {
  const auto rows = static_cast<int64_t>(tokens.size());
  auto state = std::make_shared<PrefixState>();
  state->owner = owner;
  state->tokens = std::move(tokens);
  state->point = kAfterOne;
  for (int l = 0; l < LayersWithKeys(kAfterOne); ++l)
    state->layers.push_back({Tensor(DType::kBF16, rows, 16), Tensor(DType::kBF16, rows, 16)});
  state->hidden = Tensor(DType::kF32, rows, 24);
  return state;
}

class Listener final : public DocumentListener {
 public:
  void Hold(uint64_t id, HeldDocument document) noexcept override {
    EXPECT_TRUE(held.emplace(id, std::move(document)).second) << "two entries with the id " << id;
  }
  void Move(uint64_t id, bool in_memory) noexcept override {
    ASSERT_TRUE(held.contains(id));
    held[id].in_memory = in_memory;
    ++moves;
  }
  void Release(uint64_t id) noexcept override { EXPECT_EQ(held.erase(id), 1u); }

  std::map<Ids, bool> Documents() const {  // tokens, and whether they are in memory
    std::map<Ids, bool> documents;
    for (const auto& [id, document] : held) documents[document.tokens] = document.in_memory;
    return documents;
  }

  std::map<uint64_t, HeldDocument> held;
  int moves = 0;
};

const PrefixRules kRules{.point = kAfterOne};

TEST(DocumentListener, HearsOfWhatIsHeldAndLetGo) {
  auto listener = std::make_shared<Listener>();
  const auto one = StateOf(Text(1, 300), {3, 4});
  DocumentCache cache({.memory_bytes = 2 * one->bytes(), .listener = listener}, Format);
  cache.Put(one);
  ASSERT_EQ(listener->held.size(), 1u);
  const HeldDocument& document = listener->held.begin()->second;
  EXPECT_EQ(document.owner, (PrefixOwner{3, 4}));
  EXPECT_EQ(document.point, kAfterOne);
  EXPECT_TRUE(document.complete);
  EXPECT_TRUE(document.in_memory);
  cache.Put(one);
  EXPECT_EQ(listener->held.size(), 1u) << "it is there already";
  cache.Put(StateOf(Text(2, 300), {3, 4}));
  cache.Put(StateOf(Text(3, 300)));
  EXPECT_EQ(listener->Documents(), (std::map<Ids, bool>{{Text(2, 300), true}, {Text(3, 300), true}}))
      << "the oldest of the key that has the most left";
  cache.Put(StateOf(Text(3, 310)));
  EXPECT_EQ(listener->Documents().count(Text(3, 300)), 0u) << "its longer form took its place";
  cache.Erase(Text(3, 310));
  EXPECT_EQ(listener->Documents().count(Text(3, 310)), 0u);
}

TEST(DocumentListener, HearsOfFiles) {
  const TempFolder folder;
  const int64_t bytes = StateOf(Text(1, 300))->bytes();
  {
    auto listener = std::make_shared<Listener>();
    DocumentCache cache({.memory_bytes = bytes, .folder = folder.path(), .listener = listener}, Format);
    cache.Put(StateOf(Text(1, 300)));
    cache.Flush();
    cache.Put(StateOf(Text(2, 300)));
    EXPECT_EQ(listener->Documents(), (std::map<Ids, bool>{{Text(1, 300), false}, {Text(2, 300), true}}));
    cache.Flush();
    EXPECT_EQ(cache.Find(Text(1, 310), kRules).rows, 300);
    EXPECT_EQ(listener->Documents(), (std::map<Ids, bool>{{Text(1, 300), true}, {Text(2, 300), false}}));
    EXPECT_EQ(listener->moves, 3);
  }
  auto listener = std::make_shared<Listener>();
  DocumentCache cache({.memory_bytes = bytes, .folder = folder.path(), .listener = listener}, Format);
  EXPECT_EQ(listener->Documents(), (std::map<Ids, bool>{{Text(1, 300), false}, {Text(2, 300), false}}))
      << "what the folder held before";
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    std::filesystem::resize_file(file.path(), 100);
  EXPECT_EQ(cache.Find(Text(1, 310), kRules).rows, 0);
  EXPECT_EQ(listener->Documents().count(Text(1, 300)), 0u) << "its file cannot be read";
}

// They count in the folder's size only, so the cache must not let go what it never announced.
TEST(DocumentListener, HearsNothingOfFilesThatCannotBeUsed) {
  const TempFolder folder;
  {
    DocumentCache cache({.folder = folder.path()}, Format);
    cache.Put(StateOf(Text(1, 300)));
  }
  for (const auto& file : std::filesystem::directory_iterator(folder.path()))
    std::filesystem::resize_file(file.path(), 100);
  auto listener = std::make_shared<Listener>();
  { DocumentCache cache({.folder = folder.path(), .disk_bytes = 10, .listener = listener}, Format); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_TRUE(listener->held.empty());
}

}  // namespace
}  // namespace coppice::document_listener_test
