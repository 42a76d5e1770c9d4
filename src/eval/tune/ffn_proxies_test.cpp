#include "eval/tune/ffn_proxies.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/agreement.h"
#include "base/mmap.h"
#include "eval/tune/ffn_sample.h"
#include "eval/tune/one_layer_model.h"
#include "formats/quants.h"
#include "formats/safetensors.h"
#include "policies/methods/spts_proxy.h"
#include "policies/methods/spts_test_file.h"
#include "policies/presets.h"
#include "test_files.h"

namespace coppice::ffn_proxies_test {
namespace {

using testing::HasSubstr;
using Row = std::vector<double>;

std::vector<int32_t> Irregular(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(1 + (i * i + i / 7) % 300);
  return tokens;
}

std::unique_ptr<Engine> Tiny(int64_t context = 512) {
  return Engine::FromShape("tiny:f32", {.threads = 1, .exact = true, .context = context});
}

// BLOOM: a LayerNorm, no gate, biases everywhere.
std::unique_ptr<Engine> TinyBloom(const TempFolder& folder) {
  const std::string parity = SharedPath("data/parity/");
  folder.Copy(parity + "tiny_bloom_config.json", "config.json");
  folder.Copy(parity + "tiny_bloom.safetensors", "model.safetensors");
  return Engine::Load(folder.path(), {.threads = 1, .exact = true});
}

// A layer's FFN in double, by plain loops over dequantised weights.
struct Oracle {
  Oracle(const Engine& engine, size_t layer)
      : config(engine.model().config()), w(engine.model().weights().layers[layer]) {}

  Row Map(const Row& x, const Linear& linear) const {
    Row y(static_cast<size_t>(linear.weight.rows));
    std::vector<float> row(x.size());
    for (size_t o = 0; o < y.size(); ++o) {
      DequantizeRow(linear.weight.dtype, linear.weight.RowBytes(static_cast<int64_t>(o)), row);
      y[o] = linear.bias.empty() ? 0 : linear.bias.Row<float>(0)[o];
      for (size_t i = 0; i < x.size(); ++i) y[o] += x[i] * row[i];
    }
    return y;
  }
  Row Normed(std::span<const float> x) const {
    const bool layer_norm = config.norm == NormKind::kLayer;
    const auto d = static_cast<double>(x.size());
    double mean = 0, square = 0;
    for (const float v : x) mean += layer_norm ? v / d : 0;
    for (const float v : x) square += (v - mean) * (v - mean) / d;
    Row n;
    for (size_t i = 0; i < x.size(); ++i) {
      n.push_back((x[i] - mean) / std::sqrt(square + config.norm_eps) * w.ffn_norm.weight.Row<float>(0)[i] +
                  (layer_norm ? w.ffn_norm.bias.Row<float>(0)[i] : 0));
    }
    return n;
  }
  Row Inner(std::span<const float> x) const {
    const Row n = Normed(x);
    Row z = Map(n, w.up);
    if (w.gate.weight.empty()) {
      for (double& u : z) u = 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
      return z;
    }
    const Row g = Map(n, w.gate);
    for (size_t j = 0; j < z.size(); ++j) z[j] *= g[j] / (1 + std::exp(-g[j]));
    return z;
  }
  float Norm(std::span<const float> x) const {
    double sum = 0;
    for (const double y : Map(Inner(x), w.down)) sum += y * y;
    return static_cast<float>(std::sqrt(sum));
  }
  std::vector<float> Norms(const TensorView& x) const {
    std::vector<float> norms;
    for (int64_t i = 0; i < x.rows; ++i) norms.push_back(Norm(x.Row<float>(i)));
    return norms;
  }
  // The channels of the largest mean of the largest fifth of |z|.
  std::set<int> Largest(const TensorView& x, size_t count) const {
    std::vector<Row> z;
    for (int64_t i = 0; i < x.rows; ++i) z.push_back(Inner(x.Row<float>(i)));
    std::vector<std::pair<double, int>> importance;
    for (size_t j = 0; j < z[0].size(); ++j) {
      Row values;
      for (const Row& row : z) values.push_back(std::abs(row[j]));
      std::sort(values.rbegin(), values.rend());
      double sum = 0;
      const size_t most = (values.size() + 4) / 5;
      for (size_t i = 0; i < most; ++i) sum += values[i];
      importance.emplace_back(-sum, static_cast<int>(j));
    }
    std::sort(importance.begin(), importance.end());
    std::set<int> largest;
    for (size_t i = 0; i < count; ++i) largest.insert(importance[i].second);
    return largest;
  }

  const ModelConfig& config;
  const LayerWeights& w;
};

std::vector<float> Scores(const SptsProxy& proxy, const TensorView& x) {
  const auto be = MakeBackend("reference", {});
  std::vector<float> norms(static_cast<size_t>(x.rows));
  proxy.Score(x, *be, norms);
  return norms;
}

std::vector<int32_t> DemoTokens(const Engine& engine) {
  const MappedFile text(std::string(COPPICE_SOURCE_DIR) + "/models/demo-document.txt");
  return engine.tokenizer()->Encode({reinterpret_cast<const char*>(text.bytes().data()), text.size()}, {});
}

// The proof that proxies predict: on rows that did not calibrate, against the FFNs in double, and beside
// proxies of the same sizes that know nothing.
TEST(FfnProxies, PredictWhereRandomOnesDoNot) {
  const auto engine = Engine::Load(std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf",
                                   {.threads = 1, .context = 1024});
  const ModelShape& shape = engine->model().config().shape;
  const std::vector<int32_t> tokens = DemoTokens(*engine);
  const TempFolder folder;
  const std::string path = folder.Path("p.safetensors");
  double last = 0;
  const FfnProxyResult made = MakeFfnProxies(
      *engine, tokens, path, {.rank = 64, .tokens = 800, .model = "a test", .progress = [&](double share) {
                                EXPECT_GE(share, last);
                                last = share;
                              }});
  EXPECT_EQ(last, 1);
  EXPECT_EQ(made.channels, SptsProxySizeFor(shape).channels);
  EXPECT_EQ(made.rank, 64);
  EXPECT_EQ(made.calibrated, 800);
  EXPECT_EQ(made.held_out, 200);
  ASSERT_EQ(std::ssize(made.layers), shape.layer_count());

  const SptsTestFile noise(shape, made.channels, made.rank);
  const SptsFile random(folder.Write("r.safetensors", noise.Bytes()), shape);
  const SptsFile file(path, shape);
  const FfnSample sample = SampleFfnInputs(*engine, tokens, 800, {}, nullptr);
  double sum = 0, random_sum = 0, count = 0;
  for (int l = 0; l < shape.layer_count(); l += 3) {  // the oracle is slow
    const TensorView held_out = sample.HeldOut(static_cast<size_t>(l));
    const std::vector<float> norms = Oracle(*engine, static_cast<size_t>(l)).Norms(held_out);
    const FfnProxyAgreement& layer = made.layers[static_cast<size_t>(l)];
    // The result is in the engine's arithmetic, which may round to bf16.
    EXPECT_NEAR(layer.rho, SpearmanRho(Scores(file.proxy(l), held_out), norms), 0.02) << l;
    EXPECT_GT(layer.rho, 0.3) << l;
    EXPECT_GT(layer.overlap, 0.5) << l;
    ++count;
    sum += layer.rho;
    random_sum += SpearmanRho(Scores(random.proxy(l), held_out), norms);
  }
  EXPECT_GT(sum / count, 0.7);
  EXPECT_LT(std::abs(random_sum / count), 0.3);
}

// With every channel and the full rank, f is F.
TEST(FfnProxies, WithoutCompressionTheProxyIsTheFfn) {
  const TempFolder bloom;
  for (const bool gated : {true, false}) {
    if (!gated) COPPICE_NEEDS_SHARED("data/parity/tiny_bloom.safetensors");
    const std::unique_ptr<Engine> engine = gated ? Tiny() : TinyBloom(bloom);
    const ModelShape& shape = engine->model().config().shape;
    ASSERT_EQ(shape.gated_ffn, gated);
    std::vector<int32_t> tokens = Irregular(400);
    for (int32_t& token : tokens) token = static_cast<int32_t>(token % shape.vocab);
    const TempFolder folder;
    const std::string path = folder.Path("p.safetensors");
    const FfnProxyResult made = MakeFfnProxies(
        *engine, tokens, path,
        {.channels = shape.layer(0).ffn, .rank = shape.hidden, .tokens = 200, .type = DType::kF32});
    const SptsFile file(path, shape);
    const FfnSample sample = SampleFfnInputs(*engine, tokens, 200, {}, nullptr);
    for (int l = 0; l < shape.layer_count(); ++l) {
      const auto layer = static_cast<size_t>(l);
      EXPECT_GT(made.layers[layer].rho, 0.999);
      const std::vector<float> norms = Oracle(*engine, layer).Norms(sample.HeldOut(layer));
      const std::vector<float> scores = Scores(file.proxy(l), sample.HeldOut(layer));
      for (size_t i = 0; i < norms.size(); ++i) EXPECT_NEAR(scores[i], norms[i], 2e-4 * norms[i]) << l;
    }
  }
}

// The bias of down in the directions that the proxy has, and the length of the rest, make up the bias.
TEST(FfnProxies, TheRestOfABiasIsALength) {
  COPPICE_NEEDS_SHARED("data/parity/tiny_bloom.safetensors");
  const TempFolder folder;
  const auto engine = TinyBloom(folder);
  const ModelShape& shape = engine->model().config().shape;
  std::vector<int32_t> tokens = Irregular(300);
  for (int32_t& token : tokens) token = static_cast<int32_t>(token % shape.vocab);
  const std::string path = folder.Path("p.st");
  MakeFfnProxies(*engine, tokens, path, {.rank = 4, .tokens = 200});
  const MappedFile mapped(path);
  const ParsedSafetensors parsed = ParseSafetensors(mapped.bytes(), path);
  const auto squared = [](const TensorView& row) {
    double sum = 0;
    for (const float value : row.Row<float>(0)) sum += double{value} * value;
    return sum;
  };
  for (int l = 0; l < shape.layer_count(); ++l) {
    const auto find = [&](const char* part) {
      const std::string name = fmt::format("spts.{}.{}", l, part);
      const auto found = std::ranges::find(parsed.tensors, name, &StoredTensor::name);
      return found == parsed.tensors.end() ? throw Error("{} is missing", name) : squared(found->view);
    };
    EXPECT_GT(find("down.rest"), 0);
    const double whole = squared(Oracle(*engine, static_cast<size_t>(l)).w.down.bias);
    EXPECT_NEAR(find("down.b") + find("down.rest"), whole, 1e-4 * whole);
  }
}

// At full rank, gate.out gate.in is the pruned matrix itself, so its rows name their channels.
TEST(FfnProxies, TheChannelsOfTheLargestValuesStay) {
  const auto engine = Tiny();
  const std::vector<int32_t> tokens = Irregular(1000);
  const TempFolder folder;
  const std::string path = folder.Path("p.safetensors");
  constexpr int64_t kChannels = 24;
  MakeFfnProxies(*engine, tokens, path,
                 {.channels = kChannels, .rank = kChannels, .tokens = 300, .type = DType::kF32});
  const FfnSample sample = SampleFfnInputs(*engine, tokens, 300, {}, nullptr);
  const MappedFile mapped(path);
  const ParsedSafetensors parsed = ParseSafetensors(mapped.bytes(), path);
  const auto find = [&](const std::string& name) {
    for (const StoredTensor& t : parsed.tensors)
      if (t.name == name) return t.view;
    throw Error("{} is missing", name);
  };
  for (const size_t layer : {0, 3}) {
    const Oracle oracle(*engine, layer);
    const std::set<int> expected =
        oracle.Largest(sample.layers[layer].view().Rows(0, sample.calibrated), kChannels);
    const TensorView out = find(fmt::format("spts.{}.gate.out", layer));
    const TensorView in = find(fmt::format("spts.{}.gate.in", layer));
    std::set<int> found;
    for (int64_t j = 0; j < kChannels; ++j) {
      for (int channel = 0; channel < oracle.w.gate.weight.rows; ++channel) {
        double error = 0;
        for (size_t i = 0; i < static_cast<size_t>(in.cols); ++i) {
          double value = -oracle.w.gate.weight.Row<float>(channel)[i];
          for (int64_t k = 0; k < kChannels; ++k)
            value += double{out.Row<float>(j)[static_cast<size_t>(k)]} * in.Row<float>(k)[i];
          error += value * value;
        }
        if (error < 1e-8) found.insert(channel);
      }
    }
    EXPECT_EQ(found, expected);
  }
}

// BF16 costs no agreement, so files have it.
TEST(FfnProxies, HalfTheBytesPredictAsWell) {
  const auto engine = Engine::Load(std::string(COPPICE_SOURCE_DIR) + "/models/coppice-mini-f16.gguf",
                                   {.threads = 1, .context = 600});
  const std::vector<int32_t> tokens = DemoTokens(*engine);
  const TempFolder folder;
  const auto make = [&](DType type) {
    return MakeFfnProxies(*engine, tokens, folder.Path("p"), {.tokens = 400, .type = type}).layers;
  };
  const auto half = make(DType::kBF16);
  const auto full = make(DType::kF32);
  for (size_t l = 0; l < half.size(); ++l) EXPECT_NEAR(half[l].rho, full[l].rho, 0.02);
}

// ---- The sample.

TEST(FfnSample, RowsAreTheLayersInputs) {
  const auto engine = Tiny(400);
  const std::vector<int32_t> tokens = Irregular(1500);
  // Twice as many tokens as 300 + 75 are two pieces of 400.
  const FfnSample sample = SampleFfnInputs(*engine, tokens, 300, {}, nullptr);
  EXPECT_EQ(sample.calibrated, 300);
  ASSERT_EQ(std::ssize(sample.layers), engine->model().config().shape.layer_count());
  ASSERT_EQ(sample.layers[0].rows(), 300 + 2 * 37);
  // The second piece: the text's last tokens behind its first one. Its rows are those of a run of its own.
  std::vector<int32_t> piece(tokens.end() - 400, tokens.end());
  piece.front() = tokens.front();
  const FfnSample alone = SampleFfnInputs(*engine, piece, 150, {}, nullptr);
  ASSERT_EQ(alone.calibrated, 150);
  for (size_t l = 0; l < sample.layers.size(); ++l) {
    for (int64_t i = 0; i < 150; ++i) {
      const auto of = sample.layers[l].view().Row<float>(150 + i);
      ASSERT_TRUE(std::ranges::equal(of, alone.layers[l].view().Row<float>(i))) << l << " " << i;
    }
    for (int64_t i = 0; i < 37; ++i) {
      ASSERT_TRUE(std::ranges::equal(sample.HeldOut(l).Row<float>(37 + i), alone.HeldOut(l).Row<float>(i)));
    }
  }
}

TEST(FfnSample, HeldOutRowsDidNotCalibrate) {
  const auto engine = Tiny();
  const FfnSample sample = SampleFfnInputs(*engine, Irregular(300), 10000, {}, nullptr);
  EXPECT_EQ(sample.calibrated, 240);  // all of the first four fifths
  for (const size_t l : {0, 3}) {
    const TensorView held_out = sample.HeldOut(l);
    EXPECT_EQ(held_out.rows, 60);
    for (int64_t i = 0; i < held_out.rows; ++i) {
      for (int64_t j = 0; j < sample.calibrated; ++j) {
        EXPECT_FALSE(std::ranges::equal(held_out.Row<float>(i), sample.layers[l].view().Row<float>(j)));
      }
    }
  }
}

TEST(FfnProxies, Refuses) {
  const auto engine = Tiny();
  const TempFolder folder;
  const auto refusal = [&](const FfnProxyOptions& options, size_t tokens = 300) {
    return ErrorOf([&] { MakeFfnProxies(*engine, Irregular(tokens), folder.Path("p"), options); });
  };
  EXPECT_THAT(refusal({}, 255),
              HasSubstr("the reference text has 255 tokens; proxies of FFNs need at least 256"));
  EXPECT_THAT(refusal({.channels = 193}), HasSubstr("a proxy of 193 channels: the model's FFNs have 192"));
  EXPECT_THAT(refusal({.rank = 33}), HasSubstr("a proxy of rank 33: matrices of 32 channels"));
  EXPECT_THAT(refusal({.channels = 100, .rank = 65}), HasSubstr("hidden size of 64 have rank 64 at most"));
  EXPECT_EQ(folder.CountFiles(), 0u);
  const TempFolder other;
  WriteOneLayerModel(other.Path("one.gguf"));
  const auto one = Engine::Load(other.Path("one.gguf"), {.threads = 1});
  EXPECT_THAT(ErrorOf([&] { MakeFfnProxies(*one, Irregular(300), folder.Path("p"), {}); }),
              HasSubstr("one layer"));
  std::atomic<bool> cancelled = false;
  FfnProxyOptions options{.cancelled = &cancelled,
                          .progress = [&](double share) { cancelled = share > 0.6; }};
  EXPECT_THROW(MakeFfnProxies(*engine, Irregular(300), folder.Path("p"), options), Cancelled);
  EXPECT_EQ(folder.CountFiles(), 0u);
  EXPECT_THAT(ErrorOf([&] { MakeFfnProxies(*engine, Irregular(300), folder.Path("no/p"), {}); }),
              HasSubstr("no/p"));
}

}  // namespace
}  // namespace coppice::ffn_proxies_test
