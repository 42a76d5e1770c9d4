// Post-norm layers with attention in both directions:
//
//   x   = LN(word[id] + place[first + i] + type[0])
//   a   = softmax(q k^T / sqrt(c)) v          over all tokens of the text
//   x   = LN(x + Wo a + bo)
//   x   = LN(x + W2 gelu(W1 x + b1) + b2)     gelu with erf
//   p_i = softmax(W x_i + b)[1]
//
// Backend::Attention is causal: a query sees the keys at its own position and before. All queries of a text
// get the position of its last token, so they see every key; no position enters the scores, because there is
// no RoPE. Sources: Devlin et al., arXiv 1810.04805; Conneau et al., arXiv 1911.02116.
#include "model/token_classifier.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/limits.h"
#include "formats/quants.h"
#include "model/sequence.h"

namespace coppice {

namespace {

using nlohmann::json;

constexpr int64_t kTileRows = 512;  // of the FFN, which bounds the workspace

int64_t WholeField(const json& config, const char* name, int64_t low, int64_t high,
                   const std::string& source) {
  const auto field = config.find(name);
  if (field == config.end() || !field->is_number_integer() || field->get<int64_t>() < low ||
      field->get<int64_t>() > high)
    throw Error("[model] {}: {} is no whole number from {} to {}", source, name, low, high);
  return field->get<int64_t>();
}

std::string TextField(const json& config, const char* name, const std::string& fallback) {
  const auto field = config.find(name);
  return field != config.end() && field->is_string() ? field->get<std::string>() : fallback;
}

// gelu(x) = x / 2 (1 + erf(x / sqrt 2)), in place. Backend::Gelu is the tanh form, which differs by up to
// 5e-4.
void GeluErf(MutableTensorView x) {
  constexpr float kInverseRoot2 = 0.70710678f;
  for (int64_t i = 0; i < x.rows; ++i) {
    for (float& value : x.Row<float>(i)) value *= 0.5f * (1.0f + std::erf(value * kInverseRoot2));
  }
}

}  // namespace

EncoderConfig EncoderConfigFrom(const json& config, const std::string& source) {
  constexpr int64_t kMostWidth = int64_t{1} << 16;
  const std::string type = TextField(config, "model_type", "");
  if (type != "bert" && type != "xlm-roberta" && type != "roberta")
    throw Error("[model] {}: a classifier of words is bert or xlm-roberta, not '{}'", source, type);
  if (TextField(config, "hidden_act", "gelu") != "gelu" ||
      TextField(config, "position_embedding_type", "absolute") != "absolute")
    throw Error("[model] {}: only gelu and absolute positions are supported", source);
  EncoderConfig c;
  c.roberta = type != "bert";
  c.layers = static_cast<int>(WholeField(config, "num_hidden_layers", 1, 1024, source));
  c.heads = static_cast<int>(WholeField(config, "num_attention_heads", 1, 1024, source));
  c.hidden = WholeField(config, "hidden_size", 1, kMostWidth, source);
  c.ffn = WholeField(config, "intermediate_size", 1, kMostWidth * 8, source);
  c.vocab = WholeField(config, "vocab_size", 1, limits::kMaxVocab, source);
  c.positions = WholeField(config, "max_position_embeddings", 3, int64_t{1} << 20, source);
  if (c.roberta) c.first_position = WholeField(config, "pad_token_id", 0, c.positions - 3, source) + 1;
  const auto eps = config.find("layer_norm_eps");
  if (eps != config.end() && eps->is_number()) c.eps = eps->get<float>();
  if (c.hidden % c.heads != 0)
    throw Error("[model] {}: hidden_size {} is no multiple of {} heads", source, c.hidden, c.heads);
  if (!(c.eps > 0 && c.eps < 1)) throw Error("[model] {}: layer_norm_eps is not between 0 and 1", source);
  return c;
}

class TokenClassifier::Loader {
 public:
  explicit Loader(TokenClassifier& to)
      : to_(to), store_(*to.folder_), prefix_(to.config_.roberta ? "roberta." : "bert.") {}

  void Load() {
    const EncoderConfig& c = to_.config_;
    const std::string embeddings = prefix_ + "embeddings.";
    to_.words_ = Matrix(embeddings + "word_embeddings.weight",
                        Rows(embeddings + "word_embeddings.weight", c.vocab), c.hidden);
    to_.config_.vocab = to_.words_.rows;
    to_.places_ = Matrix(embeddings + "position_embeddings.weight", c.positions, c.hidden);
    const std::string types = embeddings + "token_type_embeddings.weight";
    to_.types_ = Matrix(types, Rows(types, 1), c.hidden);
    to_.embedding_norm_ = LoadNorm(embeddings + "LayerNorm");
    for (int l = 0; l < c.layers; ++l)
      to_.blocks_.push_back(LoadBlock(fmt::format("{}encoder.layer.{}.", prefix_, l)));
    to_.head_ = LoadLinear("classifier", c.classes, c.hidden);
  }

 private:
  [[noreturn]] void Fail(const std::string& name, const std::string& why) const {
    throw Error("[model] {}: tensor '{}' {}", store_.path(), name, why);
  }

  // The stored number of rows, at least `least`. LLMLingua-2 adds tokens to its vocabulary that config.json
  // may not count.
  int64_t Rows(const std::string& name, int64_t least) const {
    const StoredTensor* t = store_.Find(name);
    return t == nullptr ? least : std::max(least, t->view.rows);
  }

  TensorView Matrix(const std::string& name, int64_t rows, int64_t cols) const {
    const StoredTensor* t = store_.Find(name);
    if (t == nullptr) Fail(name, "is missing");
    if (t->view.rows != rows || t->view.cols != cols)
      Fail(name, fmt::format("is [{}, {}], config says [{}, {}]", t->view.rows, t->view.cols, rows, cols));
    return t->view;
  }

  TensorView Vector(const std::string& name, int64_t size) {
    const TensorView stored = Matrix(name, 1, size);
    if (stored.dtype == DType::kF32) return stored;
    Tensor converted(DType::kF32, 1, size);
    DequantizeRow(stored.dtype, stored.data, converted.mutable_view().Row<float>(0));
    to_.owned_.push_back(std::move(converted));
    return to_.owned_.back().view();
  }

  Norm LoadNorm(const std::string& name) {
    return {Vector(name + ".weight", to_.config_.hidden), Vector(name + ".bias", to_.config_.hidden)};
  }
  Linear LoadLinear(const std::string& name, int64_t outputs, int64_t inputs) {
    return {Matrix(name + ".weight", outputs, inputs), Vector(name + ".bias", outputs)};
  }
  Block LoadBlock(const std::string& name) {
    const int64_t d = to_.config_.hidden;
    const std::string attention = name + "attention.";
    return {.query = LoadLinear(attention + "self.query", d, d),
            .key = LoadLinear(attention + "self.key", d, d),
            .value = LoadLinear(attention + "self.value", d, d),
            .output = LoadLinear(attention + "output.dense", d, d),
            .up = LoadLinear(name + "intermediate.dense", to_.config_.ffn, d),
            .down = LoadLinear(name + "output.dense", d, to_.config_.ffn),
            .attention_norm = LoadNorm(attention + "output.LayerNorm"),
            .ffn_norm = LoadNorm(name + "output.LayerNorm")};
  }

  TokenClassifier& to_;
  const HfFolder& store_;
  std::string prefix_;
};

TokenClassifier::TokenClassifier(std::shared_ptr<const HfFolder> folder)
    : folder_(std::move(folder)),
      config_(EncoderConfigFrom(folder_->config(), folder_->path() + "/config.json")) {
  Loader(*this).Load();
}

// One call of Classify: the rows of all texts, one text behind the other.
class TokenClassifier::Pass {
 public:
  Pass(const TokenClassifier& of, std::span<const std::vector<int32_t>> texts, Backend& be)
      : of_(of), c_(of.config_), texts_(texts), be_(be) {
    for (const std::vector<int32_t>& text : texts) rows_ += std::ssize(text);
    x_ = Tensor(DType::kF32, rows_, c_.hidden);
    attended_ = Tensor(DType::kF32, rows_, c_.hidden);
  }

  void Embed() {
    std::vector<int32_t> ids, places;
    for (const std::vector<int32_t>& text : texts_) {
      COPPICE_CHECK(std::ssize(text) <= c_.longest());
      ids.insert(ids.end(), text.begin(), text.end());
      for (int64_t i = 0; i < std::ssize(text); ++i)
        places.push_back(static_cast<int32_t>(c_.first_position + i));
    }
    Tensor part(DType::kF32, rows_, c_.hidden);
    be_.Embed(of_.words_, ids, 1, x_.mutable_view());
    be_.Embed(of_.places_, places, 1, part.mutable_view());
    be_.Add(part.view(), x_.mutable_view());
    be_.Embed(of_.types_, std::vector<int32_t>(ids.size(), 0), 1, part.mutable_view());
    be_.Add(part.view(), x_.mutable_view());
    Normalize(of_.embedding_norm_, x_.mutable_view());
  }

  void Run(const Block& block, const RunControl& control) {
    Attend(block, control);
    PackedMatrix packed;
    be_.Pack(block.output.weight, packed);
    be_.ProductInto(attended_.view(), packed, block.output.bias, ProductEnd::kAdd, x_.mutable_view());
    Normalize(block.attention_norm, x_.mutable_view());
    control.Pause();
    PackedMatrix up, down;
    be_.Pack(block.up.weight, up);
    be_.Pack(block.down.weight, down);
    for (int64_t begin = 0; begin < rows_; begin += kTileRows) {
      const int64_t rows = std::min(kTileRows, rows_ - begin);
      Tensor wide(DType::kF32, rows, c_.ffn);
      be_.Product(x_.view().Rows(begin, rows), up, block.up.bias, wide.mutable_view());
      GeluErf(wide.mutable_view());
      be_.ProductInto(wide.view(), down, block.down.bias, ProductEnd::kAdd,
                      x_.mutable_view().Rows(begin, rows));
      control.Pause();
    }
    Normalize(block.ffn_norm, x_.mutable_view());
  }

  std::vector<std::vector<float>> Probabilities() {
    PackedMatrix head;
    be_.Pack(of_.head_.weight, head);
    Tensor logits(DType::kF32, rows_, c_.classes);
    be_.Product(x_.view(), head, of_.head_.bias, logits.mutable_view());
    std::vector<std::vector<float>> all;
    int64_t row = 0;
    for (const std::vector<int32_t>& text : texts_) {
      all.emplace_back();
      for (size_t i = 0; i < text.size(); ++i) {
        const std::span<const float> logit = logits.view().Row<float>(row++);
        all.back().push_back(1 / (1 + std::exp(logit[0] - logit[1])));
      }
    }
    return all;
  }

  double Flops() const {
    const auto d = static_cast<double>(c_.hidden);
    double attention = 0;
    for (const std::vector<int32_t>& text : texts_)
      attention += 4 * d * static_cast<double>(text.size()) * static_cast<double>(text.size());
    return c_.layers *
           (static_cast<double>(rows_) * (8 * d * d + 4 * d * static_cast<double>(c_.ffn)) + attention);
  }

 private:
  void Normalize(const Norm& norm, MutableTensorView x) {
    be_.LayerNorm(x, norm.weight, norm.bias, c_.eps, x);
  }

  Tensor Project(const Linear& linear) {
    PackedMatrix packed;
    be_.Pack(linear.weight, packed);
    Tensor y(DType::kF32, rows_, linear.weight.rows);
    be_.Product(x_.view(), packed, linear.bias, y.mutable_view());
    return y;
  }

  // In the type that Attention reads.
  Tensor InCache(const Tensor& x) {
    Tensor y(be_.cache_dtype(), rows_, c_.hidden);
    be_.Convert(x.view(), y.mutable_view());
    return y;
  }

  void Attend(const Block& block, const RunControl& control) {
    const Tensor queries = Project(block.query);
    const Tensor keys = InCache(Project(block.key)), values = InCache(Project(block.value));
    const auto head_dim = static_cast<int>(c_.hidden / c_.heads);
    const AttentionShape shape{.heads = c_.heads,
                               .kv_heads = c_.heads,
                               .head_dim = head_dim,
                               .scale = 1 / std::sqrt(static_cast<float>(head_dim))};
    int64_t begin = 0;
    for (const std::vector<int32_t>& text : texts_) {
      const int64_t n = std::ssize(text);
      if (n == 0) continue;
      const std::vector<int32_t> last(text.size(), static_cast<int32_t>(n - 1));
      std::vector<int32_t> places(text.size());
      std::iota(places.begin(), places.end(), 0);
      be_.Attention({shape, queries.view().Rows(begin, n), keys.view().Rows(begin, n),
                     values.view().Rows(begin, n), last, places},
                    attended_.mutable_view().Rows(begin, n));
      begin += n;
      control.Pause();
    }
  }

  const TokenClassifier& of_;
  const EncoderConfig& c_;
  std::span<const std::vector<int32_t>> texts_;
  Backend& be_;
  int64_t rows_ = 0;
  Tensor x_;         // [rows, hidden] fp32
  Tensor attended_;  // [rows, hidden] fp32
};

TokenClassifier::Classes TokenClassifier::Classify(std::span<const std::vector<int32_t>> texts,
                                                   const RunControl& control, Backend& be) const {
  ModelShape shape;
  shape.architecture = config_.roberta ? "xlm-roberta" : "bert";
  shape.layers = {{.head_dim = static_cast<int>(config_.hidden / config_.heads)}};
  CheckCacheType(shape, be.cache_dtype());
  Pass pass(*this, texts, be);
  const bool any = std::any_of(texts.begin(), texts.end(), [](const auto& text) { return !text.empty(); });
  if (!any) return {std::vector<std::vector<float>>(texts.size()), 0};
  pass.Embed();
  for (size_t l = 0; l < blocks_.size(); ++l) {
    pass.Run(blocks_[l], control);
    control.Tick(static_cast<double>(l + 1));
  }
  return {pass.Probabilities(), pass.Flops()};
}

}  // namespace coppice
