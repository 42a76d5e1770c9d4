// A model whose keys depend on the length of the prompt (phi3 with short and long factors of RoPE).
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "test_files.h"

namespace coppice {
namespace {

const std::string kPhi = COPPICE_SOURCE_DIR "/tests/data/rows/phi3_long";  // 16 tokens with the short factors

std::unique_ptr<Engine> LoadPhi(int64_t context, bool documents) {
  EngineOptions options;
  options.backend = "reference";
  options.context = context;
  if (documents) options.documents = DocumentCacheOptions{.memory_bytes = 1 << 20};
  return Engine::Load(kPhi, options);
}

// A long prompt that took over a short one's keys would attend with keys of other frequencies.
TEST(LongRope, NoPromptTakesOverKeysOfAnotherLength) {
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 28; ++i) text.push_back(2 + (7 * i) % 27);
  Request first;
  first.tokens.assign(text.begin(), text.begin() + 12);
  first.max_tokens = 4;
  Request second = first;
  second.tokens = text;
  const std::unique_ptr<Engine> with = LoadPhi(0, true);
  with->Generate(first);
  const Answer reused = with->Generate(second);
  EXPECT_EQ(reused.tokens, LoadPhi(0, false)->Generate(second).tokens);
  EXPECT_EQ(with->documents(), nullptr);
  // Where no prompt can be long, the cache works.
  EXPECT_NE(LoadPhi(16, true)->documents(), nullptr);
}

// Keys in a folder, which an engine with a short context wrote, are no other engine's.
TEST(LongRope, ALongContextReadsNoFilesOfAShortOne) {
  const TempFolder folder;
  std::vector<int32_t> text;
  for (int32_t i = 0; i < 28; ++i) text.push_back(2 + (7 * i) % 27);
  Request first;
  first.tokens.assign(text.begin(), text.begin() + 12);
  first.max_tokens = 4;
  Request second = first;
  second.tokens = text;
  const auto load = [&](int64_t context) {
    EngineOptions options;
    options.backend = "reference";
    options.context = context;
    options.documents = DocumentCacheOptions{
        .memory_bytes = 1 << 20, .folder = folder.path(), .least_new = 1, .least_written = 1};
    return Engine::Load(kPhi, options);
  };
  {
    const std::unique_ptr<Engine> with_short = load(16);
    with_short->Generate(first);
    with_short->documents()->Flush();
    EXPECT_FALSE(std::filesystem::is_empty(folder.path()));
  }
  const std::unique_ptr<Engine> with = load(0);
  EXPECT_EQ(with->documents(), nullptr);
  EXPECT_EQ(with->Generate(second).tokens, LoadPhi(0, false)->Generate(second).tokens);
}

}  // namespace
}  // namespace coppice
