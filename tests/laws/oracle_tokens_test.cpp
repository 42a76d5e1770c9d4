// C13 and C14 for the methods that drop tokens between layers, against the oracle that only masks them:
// LazyLLM in prefill and in every step, static pruning, PyramidInfer, UniPrefill, SDTP.
#include "oracle_tokens.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

#include "oracle_compass.h"
#include "oracle_support.h"

namespace coppice::oracle_tokens_test {
namespace {

class OracleTokens : public OracleTest {
 protected:
  static OracleCase Lazy(const std::vector<size_t>& layers, const std::vector<double>& keep, bool append) {
    return {.spec = fmt::format("lazyllm:layers={},keep={},revive_mask={},strict_memory=0,min=0",
                                fmt::join(layers, "/"), fmt::join(keep, "/"), append ? "append" : "causal"),
            .methods = [=] { return MethodsOf<oracle::LazyLlm>(layers, keep); },
            .stages = std::set<size_t>(layers.begin(), layers.end()),
            .append = append};
  }
  static OracleCase Static(size_t layer, double keep) {
    return {.spec = fmt::format("static:layer={},keep={},min=0", layer, keep),
            .methods = [=] { return MethodsOf<oracle::StaticPruning>(layer, keep); }};
  }
  static OracleCase Pyramid(double r, double recent) {
    return {.spec = fmt::format("pyramidinfer:r={},recent={},sink=4,distance_weight=1.2,min_context=8,min=0",
                                r, recent),
            .methods = [=] { return MethodsOf<oracle::PyramidInfer>(r, recent, 4, 1.2, 8); }};
  }
  static OracleCase Uni(const std::vector<size_t>& layers, double p, size_t block, size_t sink, size_t last) {
    return {.spec = fmt::format("uniprefill:layers={},p={},block={},sink={},last={},min=0",
                                fmt::join(layers, "/"), p, block, sink, last),
            .methods = [=] { return MethodsOf<oracle::UniPrefill>(layers, p, block, sink, last); }};
  }
  // Every two blocks in turn, so that half of the directions are half of the tokens.
  OracleText CompassText() const {
    return {Named("compass"), MakeCompass({.interleaved = interleaved(), .seed = 8}),
            CompassPrompt(256, 1, 2, 2, 1)};
  }
};

TEST_P(OracleTokens, RandomModelInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const OracleText text = RandomText(200, 3);
  for (const bool append : {true, false}) {
    const RunResult run = Compare(text, Lazy({2, 4}, {0.5, 0.5}, append));
    size_t revived = 0;
    for (const auto& step : run.revived) revived += step.size();
    EXPECT_GT(revived, 50u);
    Compare(text, Lazy({1, 3, 5}, {0.7, 0.3, 0.9}, append));
  }
  Compare(text, Static(4, 0.5));
  Compare(RandomText(200, 4), Pyramid(0.5, 0.2));
}

// A partial last block, tails of one block and of more, rows that are no longer a multiple of a block, and a
// choice at the last layer but one.
TEST_P(OracleTokens, UniPrefillInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const RunResult run = Compare(RandomText(200, 3), Uni({1, 3}, 0.6, 16, 10, 8));
  EXPECT_EQ(run.state.ledger.layers()[1].kv_rows, 200);
  EXPECT_LT(run.ffn[1].size(), 200u);  // before the FFN of the same layer
  EXPECT_EQ(run.kept[2], run.ffn[1]);
  EXPECT_LT(run.kept[4].size(), run.kept[2].size());
  Compare(RandomText(200, 4), Uni({1, 2, 4}, 0.8, 8, 0, 20));
  OracleCase with_ftp = Uni({2}, 0.5, 16, 10, 8);
  with_ftp.spec += "+ftp:eta=0.85,dense=1,first=10,last=8,min=0";
  with_ftp.methods = [] {
    auto methods = MethodsOf<oracle::UniPrefill>(std::vector<size_t>{2}, 0.5, 16, 10, 8);
    methods.push_back(std::make_unique<oracle::Ftp>(0.85, 1, 10, 8));
    return methods;
  };
  Compare(RandomText(200, 3), with_ftp);
}

// A safetensors file of fp32 tensors, put together as text.
class SafetensorsText {
 public:
  void Add(const std::string& name, const std::string& shape, const oracle::Matrix& values) {
    const size_t begin = data_.size();
    for (const oracle::Row& row : values) {
      for (const double x : row) {
        const auto stored = static_cast<float>(x);
        data_.append(reinterpret_cast<const char*>(&stored), sizeof(stored));
      }
    }
    head_ += fmt::format(R"("{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}},)", name, shape, begin,
                         data_.size());
  }
  std::string Bytes(const std::string& metadata) const {
    const std::string head = fmt::format(R"({{{}"__metadata__":{{{}}}}})", head_, metadata);
    const uint64_t size = head.size();
    return std::string(reinterpret_cast<const char*>(&size), sizeof(size)) + head + data_;
  }

 private:
  std::string head_;
  std::string data_;
};

// A side file of low-rank FFNs for layers 0 to 5 of the tiny model, and the same in the oracle.
struct SptsProxies {
  std::map<size_t, oracle::FfnProxy> layers;
  std::string bytes;

  explicit SptsProxies(uint64_t seed) {
    TestRandom random(seed);
    SafetensorsText file;
    for (size_t l = 0; l < 6; ++l) {
      const auto add = [&](const char* part, size_t rows, size_t cols, double mean, double scale) {
        oracle::Matrix values(rows, oracle::Row(cols));
        for (oracle::Row& row : values) {
          for (double& x : row) x = static_cast<float>(mean + scale * random.Uniform());
        }
        const bool vector = std::string_view(part) == "norm.w";
        file.Add(fmt::format("spts.{}.{}", l, part),
                 vector ? std::to_string(cols) : fmt::format("{},{}", rows, cols), values);
        return values;
      };
      oracle::FfnProxy& proxy = layers[l];
      proxy.norm = add("norm.w", 1, 64, 1, 0.3)[0];
      proxy.gate_in = add("gate.in", 8, 64, 0, 0.3);
      proxy.gate_out = add("gate.out", 24, 8, 0, 0.5);
      proxy.up_in = add("up.in", 8, 64, 0, 0.3);
      proxy.up_out = add("up.out", 24, 8, 0, 0.5);
      proxy.down = add("down", 8, 24, 0, 0.5);
    }
    bytes =
        file.Bytes(R"("layers":"6","first_layer":"0","channels":"24","rank":"8","norm":"rms","eps":"1e-05",)"
                   R"("ffn":"gated","biases":"none","base_model":"tiny")");
  }
};

// Layers that skip in one stage and in all, with proxies and without, and more candidates than budget in the
// last.
TEST_P(OracleTokens, SptsInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const TempFolder folder;
  const SptsProxies proxies(7);
  const std::string path = folder.Write("spts.safetensors", proxies.bytes);
  for (const bool with_proxies : {true, false}) {
    const auto by_layer = with_proxies ? proxies.layers : std::map<size_t, oracle::FfnProxy>{};
    const auto spts = [&](size_t begin, const std::vector<size_t>& ends, const std::vector<size_t>& keep,
                          size_t drop) {
      const std::vector<size_t> gone(ends.size(), drop);
      return OracleCase{
          .spec = fmt::format("spts:proxy={},begin={},layers={},keep={},drop={},min=0",
                              with_proxies ? path : "none", begin, fmt::join(ends, "/"), fmt::join(keep, "/"),
                              drop),
          .methods = [=] { return MethodsOf<oracle::Spts>(begin, ends, keep, gone, by_layer); }};
    };
    const RunResult run = Compare(RandomText(200, 3), spts(1, {2, 3}, {120, 70}, 30));
    EXPECT_EQ(run.state.layers[0].cache.rows(), 200 + kOracleSteps);
    EXPECT_EQ(run.state.layers[1].cache.rows(), 120 + kOracleSteps);
    EXPECT_EQ(run.state.layers[5].cache.rows(), 70 + kOracleSteps);
    EXPECT_EQ(run.kept[3].size(), 170u);
    EXPECT_EQ(run.kept[4].size(), 140u);
    Compare(RandomText(200, 4), spts(0, {1, 4}, {150, 40}, 200));
    Compare(RandomText(41, 3), spts(2, {3}, {20}, 5));
  }
}

// What FTP spared leaves and comes back like any other token.
TEST_P(OracleTokens, LazyLlmWithFtpInFp32) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  for (const bool append : {true, false}) {
    OracleCase both = Lazy({2, 4}, {0.5, 0.5}, append);
    both.spec += "+ftp:eta=0.85,dense=1,first=10,last=8,min=0";
    both.methods = [] {
      auto methods = MethodsOf<oracle::LazyLlm>(std::vector<size_t>{2, 4}, std::vector<double>{0.5, 0.5});
      methods.push_back(std::make_unique<oracle::Ftp>(0.85, 1, 10, 8));
      return methods;
    };
    const RunResult run = Compare(RandomText(200, 3), both);
    EXPECT_LT(run.ffn[2].size(), run.kept[2].size());
  }
}

TEST_P(OracleTokens, TurningCompass) {
  for (const bool append : {true, false}) {
    const RunResult run = Compare(CompassText(), Lazy({2, 4}, {0.5, 0.5}, append));
    for (size_t step = 0; step < 5; ++step) EXPECT_GE(run.revived[step].size(), 32u) << step;
  }
  Compare(CompassText(), Static(4, 0.5));
}

// A side file of predictors, and the same in the oracle.
struct SdtpPredictors {
  std::vector<oracle::Predictor> stages;
  std::string bytes;

  SdtpPredictors(const std::vector<size_t>& layers, double r, uint64_t seed) {
    TestRandom random(seed);
    SafetensorsText file;
    const auto add = [&](const std::string& name, size_t rows, size_t cols, double mean, double scale) {
      oracle::Matrix values(rows, oracle::Row(cols));
      for (oracle::Row& row : values) {
        for (double& x : row) x = static_cast<float>(mean + scale * random.Uniform());
      }
      const bool matrix = name.find("fc") != std::string::npos && name.back() == 'w';
      file.Add(name, matrix ? fmt::format("{},{}", rows, cols) : std::to_string(cols), values);
      return values;
    };
    for (size_t s = 0; s < layers.size(); ++s) {
      const std::string p = fmt::format("sdtp.{}.", s);
      oracle::Predictor predictor;
      predictor.ln_w = add(p + "ln.w", 1, 64, 1, 0.1)[0];
      predictor.ln_b = add(p + "ln.b", 1, 64, 0, 0.1)[0];
      predictor.fc1_w = add(p + "fc1.w", 16, 64, 0, 0.2);
      predictor.fc1_b = add(p + "fc1.b", 1, 16, 0, 0.1)[0];
      predictor.fc2_w = add(p + "fc2.w", 2, 16, 0, 0.5);
      predictor.fc2_b = add(p + "fc2.b", 1, 2, 0, 0.1)[0];
      stages.push_back(std::move(predictor));
    }
    bytes = file.Bytes(fmt::format(R"("layers":"{}","r":"{}","stages":"{}","first":"4",)"
                                   R"("local":"0.1","base_model":"tiny")",
                                   fmt::join(layers, ","), r, layers.size()));
  }
};

TEST_P(OracleTokens, SdtpMaskingIsRemoval) {
  if (!arithmetic().exact) GTEST_SKIP() << "sets are only compared where scores are exact, or far apart";
  const TempFolder folder;
  const std::vector<size_t> layers = {1, 2, 4};
  const SdtpPredictors predictors(layers, 0.7, 11);
  const std::string path = folder.Write("sdtp.safetensors", predictors.bytes);
  const auto stages = predictors.stages;
  for (const int64_t tokens : {200, 41}) {
    OracleCase c{.spec = fmt::format("sdtp:file={},layers=1/2/4,r=0.7,first=4,local=0.1,min=0", path),
                 .methods = [=] { return MethodsOf<oracle::Sdtp>(layers, stages, 0.7, 4, 0.1); }};
    const RunResult run = Compare(RandomText(tokens, 3), c);
    EXPECT_LT(run.ffn[4].size(), static_cast<size_t>(tokens) / 2);
  }
}

COPPICE_ORACLE_ON_BACKENDS(OracleTokens);

}  // namespace
}  // namespace coppice::oracle_tokens_test
