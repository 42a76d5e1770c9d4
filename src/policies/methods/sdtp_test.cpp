#include "policies/methods/sdtp.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <memory>
#include <numeric>

#include "policies/method_test_support.h"
#include "policies/methods/sdtp_test_file.h"
#include "policy_scene.h"
#include "shape_edit.h"

namespace coppice {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using Rows = std::vector<int32_t>;
constexpr int64_t kHidden = 16;

ModelShape SmallShape() {
  ModelShape s = Llama8B();
  s.hidden = kHidden;
  return s;
}

// Files of predictors in a folder of the test.
class Sdtp : public testing::Test {
 protected:
  std::string Write(const SdtpTestFile& file) { return folder_.Write("p.safetensors", file.Bytes()); }
  std::shared_ptr<const SdtpFile> Open(const SdtpTestFile& file) {
    return std::make_shared<const SdtpFile>(Write(file), SmallShape());
  }
  std::string Refusal(const SdtpTestFile& file) {
    const std::string path = Write(file);
    const std::string message = ErrorOf([&] { SdtpFile(path, SmallShape()); });
    EXPECT_THAT(message, AllOf(HasSubstr("[sdtp] "), HasSubstr(path)));
    return message;
  }
  TempFolder folder_;
};

Tensor Hidden(int64_t rows, int64_t cols = kHidden) {
  Tensor x(DType::kF32, rows, cols);
  const std::vector<float> values = SdtpTestFile::Values(rows * cols, 99);
  std::copy(values.begin(), values.end(), reinterpret_cast<float*>(x.mutable_view().data));
  return x;
}

// Equation (1) in double, from the numbers of the file alone.
double PredictorOracle(SdtpTestFile& file, int stage, std::span<const float> x) {
  const auto at = [&](const char* part, size_t i) {
    return static_cast<double>(file.Find(fmt::format("sdtp.{}.{}", stage, part)).values[i]);
  };
  const size_t d = x.size();
  const size_t h = file.Find(fmt::format("sdtp.{}.fc1.b", stage)).values.size();
  double mean = 0, variance = 0;
  for (const float v : x) mean += v / static_cast<double>(d);
  for (const float v : x) variance += (v - mean) * (v - mean) / static_cast<double>(d);
  double pi[2] = {at("fc2.b", 0), at("fc2.b", 1)};
  for (size_t j = 0; j < h; ++j) {
    double u = at("fc1.b", j);
    for (size_t i = 0; i < d; ++i) {
      u += at("fc1.w", j * d + i) *
           ((x[i] - mean) / std::sqrt(variance + 1e-5) * at("ln.w", i) + at("ln.b", i));
    }
    const double gelu = 0.5 * u * (1 + std::tanh(std::sqrt(2 / M_PI) * (u + 0.044715 * u * u * u)));
    for (size_t o = 0; o < 2; ++o) pi[o] += at("fc2.w", o * h + j) * gelu;
  }
  return pi[0] - pi[1];
}

TEST_F(Sdtp, PredictorAgainstTheEquations) {
  SdtpTestFile file({4, 7}, kHidden, 5);
  const auto opened = Open(file);
  const Tensor x = Hidden(1100);  // three tiles, the last partial
  std::vector<float> score(1100);
  for (const char* name : {"reference", "cpu"}) {
    const auto be = MakeBackend(name, {.threads = 2, .exact = true});
    for (int stage = 0; stage < 2; ++stage) {
      opened->predictors()[static_cast<size_t>(stage)].Score(x.view(), *be, score);
      for (int64_t i = 0; i < 1100; i += 7) {
        ASSERT_NEAR(score[static_cast<size_t>(i)], PredictorOracle(file, stage, x.view().Row<float>(i)), 2e-5)
            << name;
      }
    }
  }
}

// T-SD7: a row's score is a function of the row: not of its tile, its place or the other rows.
TEST_F(Sdtp, PredictorIsAFunctionOfTheRow) {
  const auto opened = Open(SdtpTestFile({4}, kHidden, 5));
  const Tensor x = Hidden(600);
  for (const char* name : {"reference", "cpu"}) {
    const auto be = MakeBackend(name, {.threads = 2});
    std::vector<float> all(600), one(1), some(90);
    opened->predictors()[0].Score(x.view(), *be, all);
    for (const int64_t row : {0, 1, 511, 512, 599}) {
      opened->predictors()[0].Score(x.view().Rows(row, 1), *be, one);
      EXPECT_EQ(one[0], all[static_cast<size_t>(row)]) << name;
    }
    opened->predictors()[0].Score(x.view().Rows(500, 90), *be, some);
    EXPECT_TRUE(std::equal(some.begin(), some.end(), all.begin() + 500)) << name;
  }
}

TEST_F(Sdtp, HalfFloatsAreReadToo) {
  SdtpTestFile file({4}, kHidden, 5);
  const Tensor x = Hidden(3);
  const auto be = MakeBackend("reference", {});
  std::vector<float> full(3), half(3);
  Open(file)->predictors()[0].Score(x.view(), *be, full);
  for (SdtpTestFile::Tensor& tensor : file.tensors) {  // two bf16 values in the place of one float
    std::vector<float> packed((tensor.values.size() + 1) / 2);
    for (size_t i = 0; i < tensor.values.size(); ++i) {
      const BF16 bits = ToBF16(tensor.values[i]);
      std::memcpy(reinterpret_cast<char*>(packed.data()) + 2 * i, &bits, 2);
    }
    if (tensor.values.size() % 2 != 0) continue;  // fc1.b has five: it stays F32
    tensor.dtype = "BF16";
    tensor.values = packed;
  }
  Open(file)->predictors()[0].Score(x.view(), *be, half);
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(half[i], full[i], 0.02);
}

// ---- The choice.

TokenSet Ask(SdtpPolicy& policy, int layer, const Rows& positions, int64_t prompt, const Tensor& hidden) {
  Scene scene(positions, prompt, layer);
  scene.seen.hidden = hidden.view();
  return policy.BeforeLayer(scene.seen, *scene.be);
}

Rows Count(int64_t n) {
  Rows rows(static_cast<size_t>(n));
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}

// T-SD1 to T-SD3 and the counts for 1,000 tokens, over all ten stages.
TEST_F(Sdtp, WorkedExampleOfTheCounts) {
  const std::vector<int> layers = {4, 7, 10, 13, 16, 19, 22, 25, 28, 31};
  const int64_t counts[] = {900, 810, 729, 656, 590, 531, 478, 430, 387, 349};
  SdtpPolicy policy({.layers = layers}, Open(SdtpTestFile(layers, kHidden, 4)));
  Rows there = Count(1000);
  for (size_t s = 0; s < layers.size(); ++s) {
    const Tensor x = Hidden(static_cast<int64_t>(there.size()));
    EXPECT_TRUE(Ask(policy, layers[s] - 1, there, 1000, x).IsAll());
    const TokenSet kept = Ask(policy, layers[s], there, 1000, x);
    ASSERT_EQ(kept.size(), counts[s]) << s;
    Rows next;
    for (const int32_t row : kept.ToRows()) next.push_back(there[static_cast<size_t>(row)]);
    EXPECT_TRUE(std::includes(there.begin(), there.end(), next.begin(), next.end()));
    EXPECT_EQ(next[3], 3);
    EXPECT_EQ(next[next.size() - 100], 900);
    there = next;
  }
}

TEST_F(Sdtp, ProtectedOnesCountInsideAndWin) {
  const std::vector<int> layers = {4, 7, 10, 13, 16, 19, 22, 25, 28, 31};
  const SdtpTestFile file(layers, kHidden, 4);
  SdtpPolicy policy({.layers = layers}, Open(file));
  EXPECT_EQ(Ask(policy, 31, Count(40), 40, Hidden(40)).size(), 14);  // r^10 40, of which 4 + 4 are protected
  SdtpPolicy wide({.layers = layers, .first = 10, .local = 0.25}, Open(file));
  const TokenSet kept = Ask(wide, 31, Count(40), 40, Hidden(40));
  EXPECT_EQ(kept, TokenSet::None(40).UnionFirst(10).UnionLast(10));  // 20 > 14
  SdtpPolicy least({.layers = layers, .r = 1e-6, .first = 0, .local = 0}, Open(file));
  for (const int64_t n : {1, 2, 7}) {  // C11; the last token stays
    EXPECT_EQ(Ask(least, 4, Count(n), n, Hidden(n)), TokenSet::None(n).UnionLast(1));
  }
  // local is a share of the prompt, by position, rounded up: of 21 tokens 3, of which two are there.
  SdtpPolicy few({.layers = layers, .r = 1e-6, .first = 4, .local = 0.1}, Open(file));
  EXPECT_EQ(Ask(few, 4, {1, 3, 4, 5, 17, 18, 20}, 21, Hidden(7)).ToRows(), (Rows{0, 1, 5, 6}));
}

// Every second token entered the model, at its own position: budgets and the local tenth are of these.
TEST_F(Sdtp, CountsAreOfWhatEntered) {
  const std::vector<int> layers = {4, 7, 10, 13, 16, 19, 22, 25, 28, 31};
  SdtpPolicy policy({.layers = layers}, Open(SdtpTestFile(layers, kHidden, 4)));
  Rows entered;
  for (int32_t p = 1; p < 2000; p += 2) entered.push_back(p);
  const int64_t counts[] = {900, 810, 729, 656, 590, 531, 478, 430, 387, 349};
  Rows there = entered;
  for (size_t s = 0; s < layers.size(); ++s) {
    const Tensor x = Hidden(static_cast<int64_t>(there.size()));
    Scene scene(there, 2000, layers[s]);
    scene.seen.hidden = x.view();
    scene.seen.entered = entered;
    Rows next;
    for (const int32_t row : policy.BeforeLayer(scene.seen, *scene.be).ToRows())
      next.push_back(there[static_cast<size_t>(row)]);
    ASSERT_EQ(static_cast<int64_t>(next.size()), counts[s]) << s;
    EXPECT_EQ(next[next.size() - 100], 1801);
    there = next;
  }
}

TEST_F(Sdtp, TheBestScoresStayAndTiesGoToTheEarlier) {
  const SdtpTestFile file({4}, kHidden, 4);
  const auto be = MakeBackend("reference", {});
  const auto scorer = Open(file);
  Tensor x = Hidden(20);
  std::vector<float> score(20);
  scorer->predictors()[0].Score(x.view(), *be, score);
  SdtpPolicy half({.layers = {4}, .r = 0.5, .first = 2, .local = 0.1}, Open(file));
  std::vector<float> rank = score;
  for (const size_t i : {0, 1, 18, 19}) rank[i] = 1e9f;
  EXPECT_EQ(Ask(half, 4, Count(20), 20, x), be->TopK(TensorView(rank.data(), DType::kF32, 1, 20), 10));
  for (int64_t i = 0; i < 20; ++i) std::fill_n(x.mutable_view().Row<float>(i).begin(), kHidden, 0.5f);
  EXPECT_EQ(Ask(half, 4, Count(20), 20, x), TokenSet::None(20).UnionFirst(8).UnionLast(2));
  std::fill_n(x.mutable_view().Row<float>(3).begin(), kHidden, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(Ask(half, 4, Count(20), 20, x), TokenSet::Of({0, 1, 2, 4, 5, 6, 7, 8, 18, 19}, 20));
}

// T-SD4, T-SD6: r = 1 is dense; nothing is ever observed, parked or asked in decode.
TEST_F(Sdtp, DenseWhereItShouldBe) {
  const SdtpTestFile file({1, 31}, kHidden, 4);
  SdtpPolicy whole({.layers = {1, 31}, .r = 1}, Open(file));
  SdtpPolicy policy({.layers = {31}, .r = 0.5}, Open(file));  // the file's second predictor, the first stage
  for (int layer = 0; layer < 32; ++layer) {
    EXPECT_TRUE(Ask(whole, layer, Count(50), 50, Hidden(50)).IsAll());
    EXPECT_EQ(Ask(policy, layer, Count(50), 50, Hidden(50)).size(), layer == 31 ? 25 : 50);
    for (const Phase phase : {Phase::kPrefill, Phase::kDecode})
      EXPECT_TRUE(policy.NeedsAt(phase, layer).empty());
    EXPECT_EQ(policy.AttendsAt(layer), DecodePoint::kNone);
  }
  EXPECT_FALSE(policy.Facts().parks);
}

// ---- The file.

TEST_F(Sdtp, MetadataIsHostileUntilRead) {
  const std::tuple<const char*, const char*, const char*> bad[] = {
      {"layers", "", "metadata layers: '' is not a whole number from 1 to 31"},
      {"layers", "4,", "metadata layers: ''"},
      {"layers", "0,7", "metadata layers: '0'"},
      {"layers", "4,32", "metadata layers: '32'"},
      {"layers", "4,7x", "metadata layers: '7x'"},
      {"layers", "4,99999999999999999999", "metadata layers: '99999999999999999999'"},
      {"layers", "7,4", "metadata layers: '7,4' does not ascend"},
      {"layers", "4,4", "does not ascend"},
      {"layers", "4", "metadata stages is 2, layers has 1"},
      {"stages", "3", "metadata stages is 3, layers has 2"},
      {"stages", "two", "metadata stages: 'two'"},
      {"r", "0", "metadata r: '0' is not a number from 1e-06 to 1"},
      {"r", "1.01", "metadata r: '1.01'"},
      {"r", "-0.5", "metadata r: '-0.5'"},
      {"r", "nan", "metadata r: 'nan'"},
      {"r", "inf", "metadata r: 'inf'"},
      {"r", "0.9 ", "metadata r: '0.9 '"},
      {"r", "1e999", "metadata r: '1e999'"},
      {"first", "-1", "metadata first: '-1'"},
      {"first", "4.5", "metadata first: '4.5'"},
      {"local", "1.5", "metadata local: '1.5'"},
      {"local", "NaN", "metadata local: 'NaN'"},
  };
  EXPECT_EQ(Open(SdtpTestFile({4, 7}, kHidden, 5))->layers(), (std::vector<int>{4, 7}));
  for (const auto& [field, value, part] : bad) {
    SdtpTestFile file({4, 7}, kHidden, 5);
    file.metadata[field] = value;
    EXPECT_THAT(Refusal(file), HasSubstr(part));
  }
  for (const char* field : {"layers", "r", "stages", "first", "local", "base_model"}) {
    SdtpTestFile file({4, 7}, kHidden, 5);
    file.metadata.erase(field);
    EXPECT_THAT(Refusal(file), HasSubstr(fmt::format("metadata has no '{}'", field)));
  }
}

TEST_F(Sdtp, TensorsAreHostileUntilRead) {
  const auto with = [&](const char* name, std::vector<int64_t> shape, size_t values) {
    SdtpTestFile file({4, 7}, kHidden, 5);
    file.Find(name).shape = std::move(shape);
    file.Find(name).values.resize(values);
    return Refusal(file);
  };
  EXPECT_THAT(with("sdtp.0.ln.w", {17}, 17), HasSubstr("tensor 'sdtp.0.ln.w' is [17], expected [16]"));
  EXPECT_THAT(with("sdtp.1.ln.b", {1, 16}, 16), HasSubstr("tensor 'sdtp.1.ln.b' is [1, 16], expected [16]"));
  EXPECT_THAT(with("sdtp.0.fc1.w", {16, 5}, 80), HasSubstr("'sdtp.0.fc1.w' is [16, 5], expected [h, 16]"));
  EXPECT_THAT(with("sdtp.0.fc1.w", {0, 16}, 0), HasSubstr("'sdtp.0.fc1.w' is [0, 16], expected [h, 16]"));
  EXPECT_THAT(with("sdtp.0.fc1.w", {80}, 80), HasSubstr("'sdtp.0.fc1.w' is [80], expected [h, 16]"));
  EXPECT_THAT(with("sdtp.0.fc1.w", {6, 16}, 96), HasSubstr("'sdtp.0.fc1.b' is [5], expected [6]"));
  EXPECT_THAT(with("sdtp.1.fc2.w", {1, 5}, 5), HasSubstr("'sdtp.1.fc2.w' is [1, 5], expected [2, 5]"));
  EXPECT_THAT(with("sdtp.1.fc2.b", {}, 1), HasSubstr("'sdtp.1.fc2.b' is [], expected [2]"));
  for (const float x : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    for (const char* name :
         {"sdtp.0.ln.w", "sdtp.1.ln.b", "sdtp.0.fc1.w", "sdtp.1.fc1.b", "sdtp.1.fc2.w", "sdtp.0.fc2.b"}) {
      SdtpTestFile file({4, 7}, kHidden, 5);
      file.Find(name).values.back() = x;
      EXPECT_THAT(Refusal(file),
                  HasSubstr(fmt::format("tensor '{}' holds a value that is not finite", name)));
    }
  }
  SdtpTestFile file({4, 7}, kHidden, 5);
  file.tensors.pop_back();
  EXPECT_THAT(Refusal(file), HasSubstr("tensor 'sdtp.1.fc2.b' is missing"));
  file = SdtpTestFile({4, 7}, kHidden, 5);
  file.Find("sdtp.0.fc1.b").dtype = "I32";
  EXPECT_THAT(Refusal(file), HasSubstr("tensor 'sdtp.0.fc1.b' is not F32, F16 or BF16"));
  file = SdtpTestFile({4, 7}, kHidden, 5);
  file.tensors.push_back({"sdtp.2.ln.w", {1}, {1}});
  EXPECT_THAT(Refusal(file), HasSubstr("tensor 'sdtp.2.ln.w' belongs to none of the 2 stages"));
  file.tensors.back() = {"ids", {1}, {1}, "I32"};
  EXPECT_THAT(Refusal(file), HasSubstr("tensor 'ids' belongs to none of the 2 stages"));
  ModelShape other = SmallShape();
  other.hidden = 32;
  const std::string path = Write(SdtpTestFile({4, 7}, kHidden, 5));
  EXPECT_THAT(ErrorOf([&] { SdtpFile(path, other); }), HasSubstr("'sdtp.0.ln.w' is [16], expected [32]"));
}

TEST_F(Sdtp, BrokenFiles) {
  const std::string good = SdtpTestFile({4, 7}, kHidden, 5).Bytes();
  for (size_t length = 0; length < good.size(); length += 41) {
    const std::string path = folder_.Write("cut.safetensors", good.substr(0, length));
    EXPECT_THAT(ErrorOf([&] { SdtpFile(path, SmallShape()); }), HasSubstr(path)) << length;
  }
  EXPECT_THAT(ErrorOf([&] { SdtpFile(folder_.Path("absent"), SmallShape()); }),
              HasSubstr("absent: cannot open"));
  EXPECT_THAT(ErrorOf([&] { SdtpFile(folder_.path(), SmallShape()); }), HasSubstr("not a regular file"));
}

// ---- The method.

TEST_F(Sdtp, SettingsNameEverything) {
  const MethodInfo method = SdtpMethod();
  const std::string path = Write(SdtpTestFile({4, 7, 10, 13, 16, 19, 22, 25, 28, 31}, kHidden, 4));
  const std::string all = "4/7/10/13/16/19/22/25/28/31";
  EXPECT_EQ(
      SettingsOf(method, "sdtp:file=" + path, SmallShape()),
      "sdtp:file=" + path + ",preset=file,stages=10,layers=" + all + ",r=0.9,first=4,local=0.1,min=1024");
  EXPECT_THAT(SettingsOf(method, "sdtp:r=.8,first=0,local=0.25,layers=7/31,min=0,file=" + path, SmallShape()),
              HasSubstr(",preset=file,stages=2,layers=7/31,r=0.8,first=0,local=0.25,min=0"));
  EXPECT_THAT(SettingsOf(method, "sdtp:stages=4,file=" + path, SmallShape()),
              HasSubstr(",stages=4,layers=4/13/22/31,"));
  EXPECT_THAT(ErrorOf([&] { MakeMethod(method, "sdtp:preset=low,stages=4,file=" + path, SmallShape()); }),
              HasSubstr("stages=4 but 5 layers: 4/10/13/19/25"));
  const std::string low = folder_.Write("low", SdtpTestFile({4, 9, 14, 19, 24}, kHidden, 4).Bytes());
  EXPECT_THAT(SettingsOf(method, "sdtp:preset=low,file=" + low, SmallShape()),
              HasSubstr("preset=low,stages=5,layers=4/9/14/19/24,"));
  // With the file that the trainer makes by default, every preset and number of stages works, at the nearest
  // layers that the file has.
  EXPECT_THAT(SettingsOf(method, "sdtp:preset=low,file=" + path, SmallShape()),
              HasSubstr("preset=low,stages=5,layers=4/10/13/19/25,"));
  EXPECT_THAT(SettingsOf(method, "sdtp:stages=5,file=" + path, SmallShape()),
              HasSubstr("preset=file,stages=5,layers=4/10/19/25/31,"));
  EXPECT_THAT(SettingsOf(method, "sdtp:stages=9,file=" + path, SmallShape()),
              HasSubstr("stages=9,layers=4/7/10/13/19/22/25/28/31,"));
  for (int stages = 1; stages <= 10; ++stages) {
    EXPECT_THAT(SettingsOf(method, fmt::format("sdtp:stages={},file={}", stages, path), SmallShape()),
                HasSubstr(fmt::format("stages={},layers=4", stages)));
  }
  ModelShape windowed = SmallShape();
  SetInAll(windowed, &LayerShape::window, 1500);
  EXPECT_EQ(MakeMethod(method, "sdtp:file=" + path, windowed, 1500).reason, "");
  EXPECT_THAT(MakeMethod(method, "sdtp:file=" + path, windowed, 1501).reason,
              HasSubstr("sliding window of 1500"));
  EXPECT_EQ(MakeMethod(method, "sdtp:file=" + path, SmallShape(), 1023).reason,
            "1023 prompt tokens are below its break-even of 1024");
  SdtpTestFile other({4, 7}, kHidden, 4);
  other.metadata["r"] = "0.75";
  other.metadata["first"] = "9";
  other.metadata["local"] = "0.5";
  const std::string mine = folder_.Write("mine", other.Bytes());
  EXPECT_THAT(SettingsOf(method, "sdtp:file=" + mine, SmallShape()), HasSubstr(",r=0.75,first=9,local=0.5,"));
}

// The file is read within the time to the first token. The second content here would be refused, if it were
// read.
TEST_F(Sdtp, AFileIsReadOnceUntilItChanges) {
  const MethodInfo method = SdtpMethod();
  SdtpTestFile file({4, 7}, kHidden, 5);
  const std::string path = Write(file);
  const std::string spec = "sdtp:file=" + path;
  const auto before = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
  std::filesystem::last_write_time(path, before);
  EXPECT_EQ(ErrorOf([&] { MakeMethod(method, spec, SmallShape()); }), "no error");
  file.metadata["r"] = "1.1";
  ASSERT_EQ(Write(file), path);
  std::filesystem::last_write_time(path, before);
  EXPECT_EQ(ErrorOf([&] { MakeMethod(method, spec, SmallShape()); }), "no error");
  ModelShape deeper = SmallShape();
  deeper.layers.emplace_back();
  EXPECT_THAT(ErrorOf([&] { MakeMethod(method, spec, deeper); }), HasSubstr("metadata r: '1.1'"));
  std::filesystem::last_write_time(path, before + std::chrono::seconds(1));
  EXPECT_THAT(ErrorOf([&] { MakeMethod(method, spec, SmallShape()); }), HasSubstr("metadata r: '1.1'"));
  file.metadata["r"] = "0.90";  // another size
  Write(file);
  std::filesystem::last_write_time(path, before);
  EXPECT_EQ(ErrorOf([&] { MakeMethod(method, spec, SmallShape()); }), "no error");
}

TEST_F(Sdtp, AFileThatWasJustWrittenIsReadAgain) {
  const MethodInfo method = SdtpMethod();
  SdtpTestFile file({4, 7}, kHidden, 5);
  const std::string spec = "sdtp:file=" + Write(file);
  EXPECT_EQ(ErrorOf([&] { MakeMethod(method, spec, SmallShape()); }), "no error");
  file.metadata["r"] = "1.1";
  Write(file);
  EXPECT_THAT(ErrorOf([&] { MakeMethod(method, spec, SmallShape()); }), HasSubstr("metadata r: '1.1'"));
}

TEST_F(Sdtp, Refuses) {
  const MethodInfo method = SdtpMethod();
  EXPECT_THAT(RefusalOf(method, "sdtp", SmallShape()),
              AllOf(HasSubstr("file= is missing"), HasSubstr("docs/methods.md")));
  EXPECT_THAT(RefusalOf(method, "sdtp:file=/nowhere/x", SmallShape()), HasSubstr("/nowhere/x: cannot open"));
  const std::string file = "sdtp:file=" + Write(SdtpTestFile({4, 7, 10}, kHidden, 4)) + ",";
  const std::pair<const char*, const char*> bad[] = {
      {"layers=4/8", "no predictor for layer 8; it has 4/7/10"},
      {"layers=7/4", "layers=7/4 must ascend"},
      {"layers=none", "layers=none"},
      {"layers=4/7,stages=3", "stages=3 but 2 layers: 4/7"},
      {"stages=4", "4 stages, at layers 4/13/22/31, need as many predictors; the file has those of 4/7/10"},
      {"stages=0", "stages=0"},
      {"preset=low",
       "5 stages, at layers 4/9/14/19/24, need as many predictors; the file has those of 4/7/10"},
      {"preset=high", "it can be file, low"},
      {"r=0", "r=0"},
      {"r=2", "r=2"},
      {"first=-1", "first=-1"},
      {"local=1.1", "local=1.1"},
      {"min=x", "min=x"},
      {"keep=1", "unknown key 'keep'"},
  };
  for (const auto& [keys, part] : bad)
    EXPECT_THAT(RefusalOf(method, file + keys, SmallShape()), HasSubstr(part)) << keys;
}

}  // namespace
}  // namespace coppice
