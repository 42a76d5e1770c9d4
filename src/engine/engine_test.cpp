// The engine from its interface: requests that cannot be served, weights that are not numbers, cancelling.
#include "engine/engine.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"
#include "formats/gguf_writer.h"
#include "model/synthetic.h"
#include "tests_support.h"
#include "tiny_model.h"

namespace coppice {
namespace {

using Fill = std::function<void(const std::string& name, std::span<float>)>;

// A small fp32 Llama file whose tensors `change` may touch.
std::string WriteModel(const TempFolder& dir, const Fill& change,
                       const std::function<void(GgufWriter&)>& add_metadata = nullptr) {
  const SyntheticModel model = ParseShape("tiny:f32");
  const ModelShape& s = model.config.shape;
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  writer.Add("llama.context_length", uint32_t{512});
  writer.Add("llama.embedding_length", static_cast<uint32_t>(s.hidden));
  writer.Add("llama.block_count", static_cast<uint32_t>(s.layer_count()));
  writer.Add("llama.feed_forward_length", static_cast<uint32_t>(s.layer(0).ffn));
  writer.Add("llama.attention.head_count", static_cast<uint32_t>(s.layer(0).heads));
  writer.Add("llama.attention.head_count_kv", static_cast<uint32_t>(s.layer(0).kv_heads));
  writer.Add("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  if (add_metadata) add_metadata(writer);
  static const ThreadPool pool(1);
  for (const SyntheticModel::TensorPlan& plan : model.Tensors()) {
    writer.AddTensor(plan.name, plan.type, plan.shape, [plan, &change](std::span<std::byte> bytes) {
      FillSynthetic(plan, bytes, pool);
      if (change) change(plan.name, {reinterpret_cast<float*>(bytes.data()), bytes.size() / sizeof(float)});
    });
  }
  const std::string path = dir.path() + "/model.gguf";
  writer.Write(path);
  return path;
}

EngineOptions ReferenceOptions() { return {.backend = "reference"}; }

Request Greedy(std::vector<int32_t> tokens, int64_t count) {
  Request request;
  request.tokens = std::move(tokens);
  request.max_tokens = count;
  request.sampling.temperature = 0;
  return request;
}

TEST(Engine, Row12NanInWeightsIsAnErrorOfTheRequest) {
  const TempFolder dir;
  const std::string path = WriteModel(dir, [](const std::string& name, std::span<float> values) {
    if (name == "blk.2.ffn_down.weight") values[100] = std::numeric_limits<float>::quiet_NaN();
  });
  const std::unique_ptr<Engine> engine = Engine::Load(path, ReferenceOptions());  // it loads
  EXPECT_THAT(ErrorOf([&] {
                engine->Generate(Greedy({1, 2, 3}, 4));
              }),
              testing::HasSubstr("no logit is finite"));
  EXPECT_THAT(ErrorOf([&] {
                EngineOptions checking = ReferenceOptions();
                checking.check_tensors = true;
                Engine::Load(path, checking);
              }),
              testing::AllOf(testing::HasSubstr(path),
                             testing::HasSubstr("blk.2.ffn_down.weight: 1 values are NaN")));
}

TEST(Engine, Row12AllZeroNormStillAnswers) {
  const TempFolder dir;
  const std::string path = WriteModel(dir, [](const std::string& name, std::span<float> values) {
    if (name == "output_norm.weight") std::fill(values.begin(), values.end(), 0.0f);
  });
  const std::unique_ptr<Engine> engine = Engine::Load(path, ReferenceOptions());
  EXPECT_EQ(engine->Generate(Greedy({1, 2, 3}, 4)).tokens,
            (std::vector<int32_t>{0, 0, 0, 0}));  // all logits equal
  EXPECT_EQ(CheckTensors(engine->store()).front().text, "output_norm.weight: all values are zero");
  EXPECT_TRUE(CheckTensors(engine->store()).front().finite);
}

// XGen is Llama's architecture with GPT-2's kind of tokenizer.
TEST(Engine, XgenIsLlamaWithAByteLevelTokenizer) {
  const TempFolder dir;
  const std::string path = WriteModel(dir, nullptr, [](GgufWriter& writer) {
    std::vector<std::string> tokens;
    int stand_in = 256;  // GPT-2 writes bytes that are not printable as the characters from U+0100 on
    for (int byte = 0; byte < 256; ++byte) {
      const bool printable = (byte >= 33 && byte <= 126) || (byte >= 161 && byte <= 172) || byte >= 174;
      const int code = printable ? byte : stand_in++;
      if (code < 128) {
        tokens.emplace_back(1, static_cast<char>(code));
      } else {
        tokens.push_back({static_cast<char>(0xc0 | (code >> 6)), static_cast<char>(0x80 | (code & 0x3f))});
      }
    }
    tokens.insert(tokens.end(), {"he", "ll", "hell", "hello", "<|endoftext|>"});
    std::vector<int32_t> types(tokens.size(), 1);
    types.back() = 3;
    while (tokens.size() < 320) {
      tokens.push_back("<unused" + std::to_string(tokens.size()) + ">");
      types.push_back(5);
    }
    writer.Add("general.name", "xgen");
    writer.Add("tokenizer.ggml.model", "gpt2");
    writer.Add("tokenizer.ggml.tokens", tokens);
    writer.Add("tokenizer.ggml.token_type", types);
    writer.Add("tokenizer.ggml.merges", std::vector<std::string>{"h e", "l l", "he ll", "hell o"});
    writer.Add("tokenizer.ggml.eos_token_id", uint32_t{260});
  });
  const std::unique_ptr<Engine> engine = Engine::Load(path, ReferenceOptions());
  ASSERT_NE(engine->tokenizer(), nullptr);
  const std::vector<int32_t> tokens = engine->tokenizer()->Encode("hello hello");
  EXPECT_EQ(tokens, (std::vector<int32_t>{259, 32, 259}));
  EXPECT_EQ(engine->tokenizer()->Decode(tokens), "hello hello");
  EXPECT_EQ(engine->Generate(Greedy(tokens, 3)).tokens.size(), 3u);
}

TEST(Engine, RefusesRequestsAndStaysUsable) {
  const TempFolder dir;
  const std::unique_ptr<Engine> engine = Engine::Load(WriteModel(dir, nullptr), ReferenceOptions());
  const std::vector<int32_t> before = engine->Generate(Greedy({1, 2, 3}, 8)).tokens;
  EXPECT_EQ(before.size(), 8u);
  const auto refused = [&](const Request& request, const char* part) {
    EXPECT_THAT(ErrorOf([&] { engine->Generate(request); }), testing::HasSubstr(part));
  };
  refused(Greedy({}, 1), "empty");
  refused(Greedy({1, -1}, 1), "-1");
  refused(Greedy({1, 320}, 1), "320");
  refused(Greedy(std::vector<int32_t>(513, 1), 1), "513 tokens");
  refused(Greedy({1}, -2), "max_tokens");
  Request spec = Greedy({1, 2}, 1);
  spec.prune = "ftp:dense=99";
  refused(spec, "dense=99");
  Request protection = Greedy({1, 2}, 1);
  protection.protection.first = -1;
  refused(protection, "protect_first");
  EXPECT_EQ(engine->Generate(Greedy({1, 2, 3}, 8)).tokens, before);
}

TEST(Engine, Row21ContextEdges) {
  const TempFolder dir;
  EngineOptions options = ReferenceOptions();
  options.context = 8;
  const std::unique_ptr<Engine> engine = Engine::Load(WriteModel(dir, nullptr), options);
  EXPECT_EQ(engine->Generate(Greedy({1, 2, 3, 4, 5, 6, 7}, 5)).tokens.size(), 1u);
  const Answer full = engine->Generate(Greedy({1, 2, 3, 4, 5, 6, 7, 8}, 5));
  EXPECT_TRUE(full.tokens.empty());
  EXPECT_EQ(full.finish_reason, "length");
  EXPECT_THROW(engine->Generate(Greedy({1, 2, 3, 4, 5, 6, 7, 8, 9}, 5)), Error);
}

TEST(Engine, ProgressRisesToTheEndAndCancellingStops) {
  const TempFolder dir;
  EngineOptions options = ReferenceOptions();
  options.tile_rows = 16;
  const std::unique_ptr<Engine> engine = Engine::Load(WriteModel(dir, nullptr), options);
  Request request = Greedy(std::vector<int32_t>(100, 3), 3);
  std::vector<double> seen;
  request.progress = [&](double done) { seen.push_back(done); };
  const std::vector<int32_t> tokens = engine->Generate(request).tokens;
  EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
  EXPECT_EQ(seen.front(), 0);
  EXPECT_EQ(seen.back(), 4);
  EXPECT_GT(seen.size(), 40u);

  std::atomic<bool> cancelled{false};
  request.cancelled = &cancelled;
  request.progress = [&](double done) { cancelled = done > 1.2; };
  EXPECT_THROW(engine->Generate(request), Cancelled);
  request.cancelled = nullptr;
  request.progress = nullptr;
  EXPECT_EQ(engine->Generate(request).tokens, tokens);

  int count = 0;
  request.on_token = [&](int32_t) { return ++count < 2; };
  const Answer stopped = engine->Generate(request);
  EXPECT_EQ(stopped.tokens.size(), 2u);
  EXPECT_EQ(stopped.finish_reason, "cancelled");
}

TEST(Engine, ForcedTokensTakeThePlaceOfLikelyOnes) {
  const TempFolder dir;
  const std::unique_ptr<Engine> engine = Engine::Load(WriteModel(dir, nullptr), ReferenceOptions());
  std::vector<std::vector<float>> seen;
  Request request = Greedy({1, 2, 3}, 4);
  request.on_logits = [&](std::span<const float> logits) { seen.emplace_back(logits.begin(), logits.end()); };
  const std::vector<int32_t> free = engine->Generate(request).tokens;
  ASSERT_EQ(seen.size(), 4u);
  const auto likeliest = [](const std::vector<float>& logits) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  };
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(likeliest(seen[i]), free[i]);

  // Two forced tokens, then what is likely behind them: as if they had been in the prompt.
  request.forced = {free[0] == 7 ? 8 : 7, 9};
  const std::vector<int32_t> forced = engine->Generate(request).tokens;
  ASSERT_EQ(forced.size(), 4u);
  EXPECT_EQ(forced[0], request.forced[0]);
  EXPECT_EQ(forced[1], 9);
  EXPECT_EQ(seen[4], seen[0]) << "what the first token is chosen from does not depend on it";
  EXPECT_EQ(forced[2], engine->Generate(Greedy({1, 2, 3, forced[0], 9}, 1)).tokens.at(0));
  request.forced = {-1};
  EXPECT_THAT(ErrorOf([&] { engine->Generate(request); }), testing::HasSubstr("forced token -1"));
}

struct Computed {
  std::vector<float> logits;  // of every token of the answer
  int64_t packings;           // up to the first token
};

Computed Compute(Engine& engine, Request request) {
  Computed computed;
  request.on_logits = [&](std::span<const float> row) {
    computed.logits.insert(computed.logits.end(), row.begin(), row.end());
  };
  computed.packings = engine.Generate(request).prefill_times.calls[static_cast<size_t>(OpKind::kPack)];
  return computed;
}

// Prompts of few rows (whose weights are otherwise packed on the fly), of one tile and of several; methods
// that pack keys alone, that run the first layers alone, and that take tokens back in decode steps.
std::vector<Request> PromptsOfAllKinds() {
  std::vector<Request> requests;
  for (const int64_t tokens : {200, 1, 3, 64, 65, 300})
    requests.push_back(Greedy(RandomPrompt(tokens, 320), 2));
  for (const char* prune : {"spts:begin=1,layers=1/2,keep=80/60,drop=40,min=0", "none",
                            "gemfilter:layer=1,keep=0.5,min=0", "lazyllm:layers=1/2,keep=0.5/0.3,min=0"}) {
    requests.push_back(Greedy(RandomPrompt(250, 320, 9), 4));
    requests.back().prune = prune;
  }
  return requests;
}

TEST(Engine, KeptPackedWeightsChangeNoBit) {
  for (const char* shape : {"tiny:q4_0", "tiny:q8_0", "tiny:bf16", "tiny:f32"}) {
    EngineOptions options{.backend = "cpu", .threads = 2, .tile_rows = 128, .time_operations = true};
    const std::unique_ptr<Engine> anew = Engine::FromShape(shape, options);
    options.packed_bytes = int64_t{1} << 30;
    const std::unique_ptr<Engine> keeping = Engine::FromShape(shape, options);
    Compute(*keeping, Greedy({1}, 1));
    options.packed_bytes = keeping->packed_bytes() / 2;
    const std::unique_ptr<Engine> keeping_some = Engine::FromShape(shape, options);
    for (const Request& request : PromptsOfAllKinds()) {
      SCOPED_TRACE(std::string(shape) + ", " + request.prune + ", " + std::to_string(request.tokens.size()));
      const Computed expected = Compute(*anew, request);
      EXPECT_GT(expected.packings, 0);
      EXPECT_EQ(Compute(*keeping, request).logits, expected.logits);
      const int64_t bytes = keeping->packed_bytes();
      const Computed again = Compute(*keeping, request);
      EXPECT_EQ(again.logits, expected.logits);
      EXPECT_EQ(again.packings, 0);
      EXPECT_EQ(keeping->packed_bytes(), bytes);
      EXPECT_EQ(Compute(*keeping_some, request).logits, expected.logits);
      const Computed some = Compute(*keeping_some, request);
      EXPECT_EQ(some.logits, expected.logits);
      EXPECT_LT(some.packings, expected.packings);
      EXPECT_GT(some.packings, 0);
    }
    EXPECT_EQ(anew->packed_bytes(), 0);
    EXPECT_GT(keeping_some->packed_bytes(), 0);
    EXPECT_LE(keeping_some->packed_bytes(), options.packed_bytes);
  }
}

// The prompt's are Transformer::Score's to the bit, and asking changes no token.
TEST(Engine, LogProbs) {
  const TempFolder dir;
  for (const char* backend : {"reference", "cpu"}) {
    EngineOptions options = ReferenceOptions();
    options.backend = backend;
    options.threads = 2;
    options.context = 302;
    const std::unique_ptr<Engine> engine = Engine::Load(WriteModel(dir, nullptr), options);
    const ModelShape& shape = engine->model().config().shape;
    std::vector<int32_t> prompt;
    for (int i = 0; i < 300; ++i) prompt.push_back(static_cast<int32_t>((i * 37 + 11) % shape.vocab));
    const std::unique_ptr<Backend> be = MakeBackend(backend, {.threads = 1});
    Workspace ws = engine->model().NewWorkspace(64);
    const TextScore score = engine->model().Score(prompt, ws, *be);

    Request request = Greedy(prompt, 5);
    const std::vector<int32_t> plain = engine->Generate(request).tokens;
    std::vector<TokenLogProbs> told;
    request.on_log_probs = [&](const TokenLogProbs& token) { told.push_back(token); };
    request.top_log_probs = 3;
    EXPECT_EQ(engine->Generate(request).tokens, plain);
    ASSERT_EQ(told.size(), plain.size());
    request.prompt_log_probs = true;
    told.clear();
    EXPECT_EQ(engine->Generate(request).tokens, plain);
    ASSERT_EQ(told.size(), prompt.size() - 1 + plain.size());
    for (size_t i = 0; i < told.size(); ++i) {
      const bool is_prompt = i + 1 < prompt.size();
      EXPECT_EQ(told[i].token.id, is_prompt ? prompt[i + 1] : plain[i + 1 - prompt.size()]);
      const double expected = is_prompt ? score.log_probabilities[i + 1] : told[i].top[0].value;  // greedy
      EXPECT_EQ(told[i].token.value, expected) << i;
      EXPECT_EQ(told[i].top.size(), 3u);
    }
    // Those of the prompt are not told: the answer's have the same bits.
    const std::vector<TokenLogProbs> all = std::exchange(told, {});
    request.tell_prompt_log_probs = false;
    EXPECT_EQ(engine->Generate(request).tokens, plain);
    ASSERT_EQ(told.size(), plain.size());
    for (size_t i = 0; i < told.size(); ++i)
      EXPECT_EQ(told[i].token.value, all[prompt.size() - 1 + i].token.value);
    request.tell_prompt_log_probs = true;
    // A full context has a next token, too.
    request.tokens.resize(302, 1);
    told.clear();
    EXPECT_TRUE(engine->Generate(request).tokens.empty());
    EXPECT_EQ(told.size(), 302u);
    request.prune = "random:keep=0.5,min=0";
    EXPECT_THROW(engine->Generate(request), Error);
  }
}

TEST(Engine, Row13WrongShapesNameTheTensor) {
  const TempFolder dir;
  GgufWriter writer;
  writer.Add("general.architecture", "llama");
  for (const char* key : {"embedding_length", "feed_forward_length"})
    writer.Add(std::string("llama.") + key, uint32_t{8});
  writer.Add("llama.block_count", uint32_t{1});
  writer.Add("llama.attention.head_count", uint32_t{2});
  writer.AddTensor("token_embd.weight", DType::kF32, {4, 8},
                   [](std::span<std::byte> b) { std::memset(b.data(), 0, b.size()); });
  writer.AddTensor("blk.0.attn_norm.weight", DType::kF32, {9},
                   [](std::span<std::byte> b) { std::memset(b.data(), 0, b.size()); });
  const std::string path = dir.path() + "/x.gguf";
  writer.Write(path);
  EXPECT_EQ(ErrorOf([&] { Engine::Load(path, ReferenceOptions()); }),
            "[model] " + path + ": tensor 'blk.0.attn_norm.weight' is [9], config says [8]");
}

TEST(Engine, RefusesUnknownBackendAndFile) {
  EXPECT_THROW(Engine::Load("/nonexistent", ReferenceOptions()), Error);
  EXPECT_THROW(Engine::FromShape("tiny", {.backend = "tpu"}), Error);
}

}  // namespace
}  // namespace coppice
