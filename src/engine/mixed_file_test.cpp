// A GGUF file with lists of the layers' sizes, from the engine's interface.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/engine.h"
#include "formats/gguf_writer.h"
#include "mixed_model.h"
#include "tests_support.h"

namespace coppice {
namespace {

constexpr const char* kMethod = "sliminfer:layers=2/3,keep=128/64,block=16,last=1,min=0";

struct Lists {
  std::vector<int32_t> heads, kv_heads, head_dim, ffn, window;
};

Lists ListsOf(const ModelShape& shape) {
  Lists lists;
  for (const LayerShape& layer : shape.layers) {
    lists.heads.push_back(layer.heads);
    lists.kv_heads.push_back(layer.kv_heads);
    lists.head_dim.push_back(layer.head_dim);
    lists.ffn.push_back(static_cast<int32_t>(layer.ffn));
    lists.window.push_back(layer.window);
  }
  return lists;
}

// With lists even if all entries are equal, or with the first entries alone.
std::string WriteLlama(const std::string& path, const TinyModel& model, bool lists) {
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("llama.context_length", uint32_t{4096});
  writer.Add("llama.embedding_length", static_cast<uint32_t>(model.config.shape.hidden));
  writer.Add("llama.block_count", static_cast<uint32_t>(model.config.shape.layer_count()));
  const Lists all = ListsOf(model.config.shape);
  for (const auto& [key, values] :
       std::vector<std::pair<std::string, std::vector<int32_t>>>{{"attention.head_count", all.heads},
                                                                 {"attention.head_count_kv", all.kv_heads},
                                                                 {"attention.key_length", all.head_dim},
                                                                 {"feed_forward_length", all.ffn},
                                                                 {"attention.sliding_window", all.window}}) {
    if (lists) {
      writer.Add("llama." + key, values);
    } else {
      writer.Add("llama." + key, static_cast<uint32_t>(values.front()));
    }
  }
  for (const StoredTensor& t : model.store->tensors()) {
    writer.AddTensor(t.name, DType::kF32, t.shape, [view = t.view](std::span<std::byte> bytes) {
      std::memcpy(bytes.data(), view.data, bytes.size());
    });
  }
  writer.Write(path);
  return path;
}

struct Told {
  Answer answer;
  std::vector<std::vector<float>> logits;
};

Told Tell(Engine& engine, std::vector<int32_t> tokens, const std::string& prune) {
  Told told;
  Request request;
  request.tokens = std::move(tokens);
  request.max_tokens = 4;
  request.sampling.temperature = 0;
  request.prune = prune;
  request.on_logits = [&](std::span<const float> logits) {
    told.logits.emplace_back(logits.begin(), logits.end());
  };
  told.answer = engine.Generate(request);
  return told;
}

class MixedFile : public testing::Test {
 protected:
  void SetUp() override {
    if (!MakeBackendOrSkip("cpu", {})) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
  }
  TempFolder dir_;
};

TEST_F(MixedFile, AListOfEqualValuesIsTheValue) {
  const TinyModel model = MakeTiny({});
  const std::vector<int32_t> prompt = RandomPrompt(300, 50);
  const auto one = Engine::Load(WriteLlama(dir_.Path("one.gguf"), model, false), {.threads = 2});
  const auto list = Engine::Load(WriteLlama(dir_.Path("list.gguf"), model, true), {.threads = 2});
  EXPECT_EQ(one->model().config().shape.layers, list->model().config().shape.layers);
  EXPECT_EQ(Tell(*one, prompt, kMethod).logits, Tell(*list, prompt, kMethod).logits);
}

// A document that one engine read comes back from its folder in another engine.
TEST_F(MixedFile, DocumentsComeBackFromTheirFolder) {
  TinyModel model = MakeMixed(true);
  for (LayerShape& layer : model.config.shape.layers) layer.window *= 50;
  const std::string path = WriteLlama(dir_.Path("mixed.gguf"), model, true);
  const std::vector<int32_t> document = RandomPrompt(400, 50);
  const auto question = [&](uint64_t seed) {
    std::vector<int32_t> tokens = document;
    const std::vector<int32_t> more = RandomPrompt(30, 50, seed);
    tokens.insert(tokens.end(), more.begin(), more.end());
    return tokens;
  };
  EngineOptions with{.threads = 2, .tile_rows = 64};
  for (const std::string prune : {"none", kMethod}) {
    SCOPED_TRACE(prune);
    with.documents =
        DocumentCacheOptions{.memory_bytes = 64 << 20, .folder = dir_.Path("cache-" + prune.substr(0, 4))};
    const auto plain = Engine::Load(path, {.threads = 2, .tile_rows = 64});
    const Lists read = ListsOf(plain->model().config().shape);
    EXPECT_EQ(read.kv_heads, ListsOf(model.config.shape).kv_heads);
    EXPECT_EQ(read.window, ListsOf(model.config.shape).window);
    {
      const auto first = Engine::Load(path, with);
      const Told told = Tell(*first, question(1), prune);
      EXPECT_EQ(told.answer.cached_tokens(), 0);
      EXPECT_EQ(told.logits, Tell(*plain, question(1), prune).logits);
      EXPECT_EQ(told.answer.prune_active, prune != "none") << told.answer.prune_reason;
      int64_t row = 0;
      for (const LayerShape& layer : model.config.shape.layers) row += 2 * 2 * layer.key_width();
      EXPECT_EQ(told.answer.ledger.kv_bytes_dense, row * (430 + 3));
    }
    const auto second = Engine::Load(path, with);
    const Told again = Tell(*second, question(2), prune);
    EXPECT_EQ(again.answer.cached_tokens(), 400);
    EXPECT_EQ(again.logits, Tell(*plain, question(2), prune).logits);
  }
}

}  // namespace
}  // namespace coppice
