#include "policies/methods/spts_proxy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <thread>

#include "base/check.h"
#include "policies/method_test_support.h"
#include "policies/methods/spts_test_file.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
constexpr int64_t kProxyHidden = 16;
constexpr int64_t kChannels = 10;
constexpr int64_t kRank = 6;

ModelShape SmallGated(bool gated = true) {
  ModelShape s = Llama8B();
  s.hidden = kProxyHidden;
  s.layers.assign(3, {.ffn = 48});
  s.gated_ffn = gated;
  return s;
}

// A model whose FFN has a gate, or BLOOM's: a LayerNorm, no gate, and biases.
SptsTestFile Good(bool gated = true, int first = 0) {
  return SptsTestFile(SmallGated(gated), kChannels, kRank, first, !gated);
}

class SptsProxies : public testing::Test {
 protected:
  std::string Write(const SptsTestFile& file) { return folder_.Write("p.safetensors", file.Bytes()); }
  std::shared_ptr<const SptsFile> Open(const SptsTestFile& file, bool gated = true) {
    return std::make_shared<const SptsFile>(Write(file), SmallGated(gated));
  }
  std::string Refusal(const SptsTestFile& file, bool gated = true) {
    const std::string path = Write(file);
    const std::string message = ErrorOf([&] { SptsFile(path, SmallGated(gated)); });
    EXPECT_THAT(message, AllOf(HasSubstr("[spts] "), HasSubstr(path)));
    return message;
  }
  TempFolder folder_;
};

Tensor ProxyHidden(int64_t rows, int64_t cols = kProxyHidden) {
  Tensor x(DType::kF32, rows, cols);
  const std::vector<float> values = SideTestFile::Values(rows * cols, 99);
  std::copy(values.begin(), values.end(), reinterpret_cast<float*>(x.mutable_view().data));
  return x;
}

std::vector<float> Scores(const SptsProxy& proxy, const TensorView& x, Backend& be) {
  std::vector<float> norms(static_cast<size_t>(x.rows));
  proxy.Score(x, be, norms);
  return norms;
}

using Vector = std::vector<double>;

// The file's equations in double, from its numbers alone.
struct Oracle {
  SptsTestFile& file;
  int layer;

  bool Has(const std::string& part) const {
    const std::string name = fmt::format("spts.{}.{}", layer, part);
    return std::any_of(file.tensors.begin(), file.tensors.end(),
                       [&](const auto& t) { return t.name == name; });
  }
  double At(const std::string& part, size_t i) const {
    return file.Find(fmt::format("spts.{}.{}", layer, part)).values[i];
  }
  // x w^T + b, with w [x's channels below, outputs above].
  Vector Map(const Vector& x, const std::string& weight, size_t outputs, const std::string& bias) const {
    Vector y(outputs);
    for (size_t o = 0; o < outputs; ++o) {
      y[o] = Has(bias) ? At(bias, o) : 0;
      for (size_t i = 0; i < x.size(); ++i) y[o] += At(weight, o * x.size() + i) * x[i];
    }
    return y;
  }
  double Norm(std::span<const float> row) const {
    const bool layer_norm = Has("norm.b");
    const auto d = static_cast<double>(row.size());
    double mean = 0, square = 0;
    for (const float v : row) mean += layer_norm ? v / d : 0;
    for (const float v : row) square += (v - mean) * (v - mean) / d;
    Vector n;
    for (size_t i = 0; i < row.size(); ++i) {
      n.push_back((row[i] - mean) / std::sqrt(square + 1e-5) * At("norm.w", i) +
                  (layer_norm ? At("norm.b", i) : 0));
    }
    Vector z = Map(Map(n, "up.in", kRank, ""), "up.out", kChannels, "up.b");
    if (Has("gate.in")) {
      const Vector g = Map(Map(n, "gate.in", kRank, ""), "gate.out", kChannels, "gate.b");
      for (size_t j = 0; j < z.size(); ++j) z[j] *= g[j] / (1 + std::exp(-g[j]));
    } else {
      for (double& u : z) u = 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
    }
    double sum = Has("down.rest") ? At("down.rest", 0) * At("down.rest", 0) : 0;
    for (const double a : Map(z, "down", kRank, "down.b")) sum += a * a;
    return std::sqrt(sum);
  }
};

TEST_F(SptsProxies, AgainstTheEquations) {
  const Tensor x = ProxyHidden(1100);  // three tiles, the last partial
  for (const bool gated : {true, false}) {
    SptsTestFile file = Good(gated, 1);
    const auto opened = Open(file, gated);
    EXPECT_EQ(opened->first_layer(), 1);
    EXPECT_EQ(opened->channels(), kChannels);
    EXPECT_EQ(opened->rank(), kRank);
    for (const char* name : {"reference", "cpu"}) {
      const auto be = MakeBackend(name, {.threads = 2, .exact = true});
      for (int layer = 1; layer < 3; ++layer) {
        const std::vector<float> norms = Scores(opened->proxy(layer), x.view(), *be);
        for (int64_t i = 0; i < 1100; i += 7) {
          const double expected = Oracle{file, layer}.Norm(x.view().Row<float>(i));
          ASSERT_NEAR(norms[static_cast<size_t>(i)], expected, 1e-4 * expected + 1e-6) << name << gated;
        }
      }
    }
  }
}

TEST_F(SptsProxies, ANormIsAFunctionOfTheRow) {
  const Tensor x = ProxyHidden(600);
  for (const bool gated : {true, false}) {
    const auto opened = Open(Good(gated), gated);
    for (const char* name : {"reference", "cpu"}) {
      const auto be = MakeBackend(name, {.threads = 2});
      const SptsProxy& proxy = opened->proxy(2);
      const std::vector<float> all = Scores(proxy, x.view(), *be);
      EXPECT_GT(*std::max_element(all.begin(), all.end()), 1.2f * *std::min_element(all.begin(), all.end()));
      for (const int64_t row : {0, 1, 511, 512, 599}) {
        EXPECT_EQ(Scores(proxy, x.view().Rows(row, 1), *be)[0], all[static_cast<size_t>(row)]) << name;
      }
      const std::vector<float> some = Scores(proxy, x.view().Rows(500, 90), *be);
      EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 500)) << name;
      EXPECT_TRUE(Scores(proxy, x.view().Rows(0, 0), *be).empty());
    }
  }
}

// Jobs of a server share the file; each has a backend of its own.
TEST_F(SptsProxies, ThreadsShareAFile) {
  const auto opened = Open(Good());
  const Tensor x = ProxyHidden(700);
  const auto be = MakeBackend("cpu", {.threads = 1});
  const std::vector<float> alone = Scores(opened->proxy(0), x.view(), *be);
  std::vector<float> got[2];
  std::vector<std::thread> threads;
  for (auto& norms : got) {
    threads.emplace_back([&] {
      const auto own = MakeBackend("cpu", {.threads = 1});
      for (int i = 0; i < 5; ++i) norms = Scores(opened->proxy(0), x.view(), *own);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& norms : got) EXPECT_EQ(norms, alone);
}

TEST_F(SptsProxies, HalfFloatsAreReadToo) {
  SptsTestFile file = Good();
  const Tensor x = ProxyHidden(3);
  const auto be = MakeBackend("reference", {});
  const std::vector<float> full = Scores(Open(file)->proxy(0), x.view(), *be);
  for (SideTestFile::Tensor& tensor : file.tensors) {  // two bf16 values in the place of one float
    std::vector<float> packed(tensor.values.size() / 2);
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const BF16 bits = ToBF16(tensor.values[i]);
      std::memcpy(reinterpret_cast<char*>(packed.data()) + 2 * i, &bits, 2);
    }
    tensor.dtype = "BF16";
    tensor.values = packed;
  }
  const std::vector<float> half = Scores(Open(file)->proxy(0), x.view(), *be);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(half[i], full[i], 0.02 * full[i]);
  EXPECT_NE(half, full);
}

TEST_F(SptsProxies, RandomProxiesNeedNoWeights) {
  const auto random = SptsFile::OfNoFile(Llama8B());
  EXPECT_EQ(random->first_layer(), 0);
  const auto be = MakeBackend("reference", {});
  const Tensor x = ProxyHidden(50);
  const std::vector<float> norms = Scores(random->proxy(31), x.view(), *be);
  EXPECT_EQ(norms, Scores(random->proxy(31), x.view(), *be));
  EXPECT_NE(norms, Scores(random->proxy(30), x.view(), *be));
  EXPECT_NE(norms[0], norms[1]);
  EXPECT_THROW(random->proxy(32), CheckFailure);
  EXPECT_THROW(Open(Good(true, 1))->proxy(0), CheckFailure);
}

// ---- The file.

TEST_F(SptsProxies, MetadataIsHostileUntilRead) {
  const std::tuple<const char*, const char*, const char*> bad[] = {
      {"layers", "", "metadata layers: '' is not a whole number"},
      {"layers", "4", "metadata layers: 4, but the model has 3"},
      {"first_layer", "3", "metadata first_layer: '3' is not a whole number from 0 to 2"},
      {"first_layer", "-1", "metadata first_layer: '-1'"},
      {"first_layer", "1", "tensor 'spts.0.down' belongs to none of the layers 1 to 2"},
      {"channels", "0", "metadata channels: '0' is not a whole number from 1 to 48"},
      {"channels", "49", "metadata channels: '49'"},
      {"channels", "11", "tensor 'spts.0.gate.out' is [10, 6], expected [11, 6]"},
      {"rank", "0", "metadata rank: '0' is not a whole number from 1 to 10"},
      {"rank", "11", "metadata rank: '11'"},
      {"rank", "5x", "metadata rank: '5x'"},
      {"rank", "5", "tensor 'spts.0.gate.in' is [6, 16], expected [5, 16]"},
      {"norm", "batch", "metadata norm: 'batch' is none of rms, layer"},
      {"norm", "layer", "tensor 'spts.0.norm.b' is missing"},
      {"eps", "0", "metadata eps: '0' is not a number from 1e-20 to 1"},
      {"eps", "nan", "metadata eps: 'nan'"},
      {"eps", "2", "metadata eps: '2'"},
      {"ffn", "", "metadata ffn: '' is none of plain, gated"},
      {"ffn", "plain", "metadata ffn is plain, the model's FFN has a gate"},
      {"biases", "some", "metadata biases: 'some' is none of none, all"},
      {"biases", "all", "tensor 'spts.0.gate.b' is missing"},
  };
  for (const auto& [field, value, part] : bad) {
    SptsTestFile file = Good();
    file.metadata[field] = value;
    EXPECT_THAT(Refusal(file), HasSubstr(part)) << field;
  }
  std::vector<std::string> fields;
  for (const auto& [field, value] : Good().metadata) fields.push_back(field);
  ASSERT_EQ(fields.size(), 9u);
  for (const std::string& field : fields) {
    SptsTestFile file = Good();
    file.metadata.erase(field);
    EXPECT_THAT(Refusal(file), HasSubstr(fmt::format("metadata has no '{}'", field)));
  }
  SptsTestFile plain = Good(false);
  plain.metadata["biases"] = "none";
  EXPECT_THAT(Refusal(plain, false), HasSubstr("belongs to none of the layers 0 to 2"));
  plain = Good(false);
  plain.metadata["ffn"] = "gated";
  EXPECT_THAT(Refusal(plain, false), HasSubstr("metadata ffn is gated, the model's FFN has no gate"));
}

TEST_F(SptsProxies, TensorsAreHostileUntilRead) {
  for (const bool gated : {true, false}) {
    const SptsTestFile good = Good(gated);
    for (size_t t = 0; t < good.tensors.size(); ++t) {
      const std::string name = good.tensors[t].name;
      SptsTestFile file = good;
      file.tensors.erase(file.tensors.begin() + static_cast<std::ptrdiff_t>(t));
      EXPECT_THAT(Refusal(file, gated), HasSubstr(fmt::format("tensor '{}' is missing", name)));
      file = good;
      file.tensors[t].shape.push_back(1);
      EXPECT_THAT(Refusal(file, gated), HasSubstr(fmt::format("tensor '{}' is [", name)));
      file = good;
      file.tensors[t].shape[0] += 1;
      file.tensors[t].values.resize(file.tensors[t].values.size() * 2);
      file.tensors[t].values.resize(static_cast<size_t>(
          file.tensors[t].shape[0] * (file.tensors[t].shape.size() > 1 ? file.tensors[t].shape[1] : 1)));
      EXPECT_THAT(Refusal(file, gated), HasSubstr(fmt::format("tensor '{}' is [", name)));
      file = good;
      file.tensors[t].dtype = "I32";
      EXPECT_THAT(Refusal(file, gated), HasSubstr(fmt::format("tensor '{}' is not F32, F16 or BF16", name)));
      for (const float x :
           {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
        file = good;
        file.tensors[t].values.back() = x;
        EXPECT_THAT(Refusal(file, gated),
                    HasSubstr(fmt::format("tensor '{}' holds a value that is not finite", name)));
      }
    }
  }
  SptsTestFile file = Good();
  file.tensors.push_back({"spts.3.norm.w", {1}, {1}});
  EXPECT_THAT(Refusal(file), HasSubstr("tensor 'spts.3.norm.w' belongs to none of the layers 0 to 2"));
  file.tensors.back() = {"ids", {1}, {1}, "I32"};
  EXPECT_THAT(Refusal(file), HasSubstr("tensor 'ids' belongs to none of the layers 0 to 2"));
  ModelShape other = SmallGated();
  other.hidden = 32;
  const std::string path = Write(Good());
  EXPECT_THAT(ErrorOf([&] { SptsFile(path, other); }), HasSubstr("'spts.0.norm.w' is [16], expected [32]"));
}

TEST_F(SptsProxies, BrokenFiles) {
  const std::string good = Good().Bytes();
  for (size_t length = 0; length < good.size(); length += 41) {
    const std::string path = folder_.Write("cut.safetensors", good.substr(0, length));
    EXPECT_THAT(ErrorOf([&] { SptsFile(path, SmallGated()); }), HasSubstr(path)) << length;
  }
  EXPECT_THAT(ErrorOf([&] { SptsFile(folder_.Path("absent"), SmallGated()); }),
              HasSubstr("absent: cannot open"));
  EXPECT_THAT(ErrorOf([&] { SptsFile(folder_.path(), SmallGated()); }), HasSubstr("not a regular file"));
}

// The second content here would be refused, if it were read.
TEST_F(SptsProxies, AFileIsReadOnceUntilItChanges) {
  SptsTestFile file = Good();
  const std::string path = Write(file);
  const auto before = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(path, before);
  const auto first = OpenSptsFile(path, SmallGated());
  file.metadata["eps"] = "2e-05";
  ASSERT_EQ(Write(file), path);
  std::filesystem::last_write_time(path, before);
  EXPECT_EQ(OpenSptsFile(path, SmallGated()), first);
  ModelShape wider = SmallGated();
  ModelShape narrower = SmallGated();
  wider.hidden = 9;
  narrower.layers[1].ffn = 9;
  for (const ModelShape& other : {wider, narrower}) {
    EXPECT_THAT(ErrorOf([&] { OpenSptsFile(path, other); }), HasSubstr(path));
  }
  EXPECT_THAT(ErrorOf([&] { OpenSptsFile(path, SmallGated(false)); }), HasSubstr("has no gate"));
  std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
  EXPECT_NE(OpenSptsFile(path, SmallGated()), first);
  Write(Good());  // just now
  EXPECT_NE(OpenSptsFile(path, SmallGated()), OpenSptsFile(path, SmallGated()));
}

}  // namespace
}  // namespace coppice
