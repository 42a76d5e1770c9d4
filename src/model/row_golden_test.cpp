// A tiny model of each architecture against transformers' logits in fp64 (tools/make_row_goldens.py): from
// its folder and from the GGUF file of llama.cpp's converter, in prefill and in decode.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "formats/gguf.h"
#include "formats/hf_folder.h"
#include "formats/json.h"
#include "model/architectures.h"
#include "model/transformer.h"
#include "tests_support.h"

namespace coppice {
namespace {

namespace fs = std::filesystem;

const std::string kRows = COPPICE_SOURCE_DIR "/tests/data/rows/";

struct RowCase {
  std::string name;
  bool gguf;
  Arithmetic arithmetic;
};

std::vector<RowCase> RowCases() {
  std::vector<RowCase> cases;
  std::set<std::string> names;
  for (const fs::directory_entry& folder : fs::directory_iterator(kRows))
    names.insert(folder.path().filename().string());
  for (const std::string& name : names) {
    for (const Arithmetic& arithmetic : kArithmetics) {
      cases.push_back({name, false, arithmetic});
      if (fs::exists(kRows + name + "/model.gguf")) cases.push_back({name, true, arithmetic});
    }
  }
  return cases;
}

// A model's description and its file, before a backend has seen it.
struct RowFile {
  ModelConfig config;
  std::shared_ptr<const TensorStore> store;
};

RowFile OpenRow(const std::string& name, bool gguf) {
  if (gguf) {
    std::shared_ptr<const GgufFile> file = GgufFile::Open(kRows + name + "/model.gguf");
    ModelConfig config = ConfigFromGguf(file->metadata());
    return {std::move(config), std::move(file)};
  }
  std::shared_ptr<const HfFolder> folder = HfFolder::Open(kRows + name);
  ModelConfig config = ConfigFromHf(folder->config(), kRows + name);
  return {std::move(config), std::move(folder)};
}

class RowGolden : public testing::TestWithParam<RowCase> {
 protected:
  void SetUp() override {
    const Arithmetic& a = GetParam().arithmetic;
    backend_ = MakeBackendOrSkip(a.backend, {.threads = 2, .exact = a.exact});
    if (!backend_) GTEST_SKIP() << "this CPU lacks the ISA that COPPICE_ISA names";
    if (backend_->name() == "gpu") GTEST_SKIP() << "heads of 4 and 8, which its kernels lack";
  }

  Transformer Load() {
    RowFile file = OpenRow(GetParam().name, GetParam().gguf);
    most_ = GetParam().arithmetic.exact ? 1e-4 : 0.16;
    few_may_differ_ = !GetParam().arithmetic.exact && file.config.shape.HasMixtures();
    std::shared_ptr<const Weights> weights = Weights::Load(std::move(file.store), file.config);
    return {std::move(file.config), Weights::Place(std::move(weights), *backend_)};
  }

  // Inexact arithmetic rounds as with quantised weights: golden_test.cpp's bounds of those. A row of a
  // mixture may then take another expert, where two are nearly as good: few rows do.
  void ExpectRow(std::span<const float> got, const nlohmann::json& want) {
    ASSERT_EQ(got.size(), want.size());
    for (size_t i = 0; i < got.size(); ++i) {
      const double error = got[i] - want[i].get<double>();
      ++compared_;
      if (few_may_differ_ && std::abs(error) >= most_) {
        ++beyond_;
        continue;
      }
      ASSERT_LT(std::abs(error), most_) << "token " << i;
      squares_ += error * error;
    }
  }
  void ExpectSmallErrors() const {
    ASSERT_GT(compared_, 0);
    EXPECT_LE(static_cast<double>(beyond_), 0.1 * static_cast<double>(compared_));
    EXPECT_LT(std::sqrt(squares_ / static_cast<double>(compared_)), GetParam().arithmetic.exact ? 3e-5
                                                                    : few_may_differ_           ? 0.07
                                                                                                : 0.05);
  }

  std::unique_ptr<Backend> backend_;
  double most_ = 0;  // the bound of each logit's error
  bool few_may_differ_ = false;
  double squares_ = 0;  // of the errors within the bound
  int64_t compared_ = 0;
  int64_t beyond_ = 0;
};

TEST_P(RowGolden, Prefill) {
  const Transformer model = Load();
  const nlohmann::json golden = ReadJsonFile(kRows + GetParam().name + "/logits.json");
  ASSERT_GE(golden["sequences"].size(), 3u);  // and a long one of layers with a state
  for (size_t s = 0; s < golden["sequences"].size(); ++s) {
    const auto tokens = golden["sequences"][s].get<std::vector<int32_t>>();
    const auto count = static_cast<int64_t>(tokens.size());
    for (const int64_t tile : {int64_t{512}, int64_t{5}}) {
      SequenceState sequence = model.NewSequence(count, count, *backend_);
      Workspace ws = model.NewWorkspace(tile, backend_->memory());
      TokenPolicy dense;
      Tensor logits;
      model.Prefill(tokens, {dense, sequence, ws, *backend_}, logits, true);
      for (size_t row = 0; row < tokens.size(); ++row)
        ExpectRow(logits.view().Row<float>(static_cast<int64_t>(row)), golden["logits"][s][row]);
    }
  }
  ExpectSmallErrors();
}

// Each of the last tokens is a step of its own, alone and together with another sequence.
TEST_P(RowGolden, Decode) {
  const Transformer model = Load();
  const nlohmann::json golden = ReadJsonFile(kRows + GetParam().name + "/logits.json");
  const auto tokens = golden["sequences"].back().get<std::vector<int32_t>>();
  const nlohmann::json& want = golden["logits"].back();
  ASSERT_GE(tokens.size(), 26u);
  const auto count = static_cast<int64_t>(tokens.size());
  // Keys of a long RoPE are those of a long prompt from its first token on.
  const size_t begin = tokens.size() - (KeysDependOnLength(model.config(), count) ? 9 : 23);
  const std::span<const int32_t> prompt(tokens.data(), begin);
  SequenceState alone = model.NewSequence(std::ssize(prompt), count, *backend_);
  SequenceState first = model.NewSequence(std::ssize(prompt), count, *backend_);
  SequenceState second = model.NewSequence(std::ssize(prompt), count, *backend_);
  Workspace ws = model.NewWorkspace(64, backend_->memory());
  TokenPolicy dense;
  Tensor logits;
  for (SequenceState* sequence : {&alone, &first, &second})
    model.Prefill(prompt, {dense, *sequence, ws, *backend_}, logits);
  ExpectRow(logits.view().Row<float>(0), want[begin - 1]);
  for (size_t at = begin; at < tokens.size(); ++at) {
    model.Decode(tokens[at], {dense, alone, ws, *backend_}, logits);
    ExpectRow(logits.view().Row<float>(0), want[at]);
    Tensor of_first;
    Tensor of_second;
    const Pass of_one{dense, first, ws, *backend_};
    const Pass of_other{dense, second, ws, *backend_};
    const std::span<const int32_t> token(&tokens[at], 1);
    DecodeStep one{token, of_one, of_first};
    DecodeStep other{token, of_other, of_second};
    DecodeStep* steps[] = {&one, &other};
    model.DecodeTogether(steps);
    ExpectRow(of_first.view().Row<float>(0), want[at]);
    ExpectRow(of_second.view().Row<float>(0), want[at]);
  }
  ExpectSmallErrors();
}

INSTANTIATE_TEST_SUITE_P(Rows, RowGolden, testing::ValuesIn(RowCases()), [](const auto& test) {
  const RowCase& c = test.param;
  return c.name + (c.gguf ? "_gguf_" : "_folder_") + c.arithmetic.name;
});

// No architecture of the table is without a golden model, here or in golden_test.cpp.
TEST(RowGoldens, CoverTheTable) {
  std::set<std::string> covered = {"bloom", "gemma3"};
  for (const fs::directory_entry& folder : fs::directory_iterator(kRows)) {
    const std::string name = folder.path().filename().string();
    covered.insert(OpenRow(name, false).config.shape.architecture);
  }
  for (const Architecture& row : Architectures()) EXPECT_TRUE(covered.contains(row.gguf)) << row.gguf;
}

}  // namespace
}  // namespace coppice
