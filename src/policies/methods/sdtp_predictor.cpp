// SDTP's file of predictors: one safetensors file, written by any program. For stage s = 0, 1, ..., with the
// model's hidden size d and any width h (usually d / 4):
//
//   sdtp.{s}.ln.w   [d]       LayerNorm over the hidden state that enters the stage's layer, eps 1e-5
//   sdtp.{s}.ln.b   [d]
//   sdtp.{s}.fc1.w  [h, d]    followed by gelu, the tanh form
//   sdtp.{s}.fc1.b  [h]
//   sdtp.{s}.fc2.w  [2, h]    output 0 votes for keeping the token, output 1 for dropping it
//   sdtp.{s}.fc2.b  [2]
//
// in F32, F16 or BF16, every value finite, and no other tensors. Metadata, all strings and all required:
//
//   layers      "4,7,10"  the stages' layers, strictly ascending, in [1, L - 1]
//   r           "0.9"     tokens that stay at stage s: r^(s+1) of the prompt, 0 < r <= 1
//   stages      "3"       the number of layers
//   first       "4"       positions at the front that always stay
//   local       "0.1"     share of the prompt at its end that always stays, 0 to 1
//   base_model  "..."     the model that the predictors were trained for; for people, not checked
//
// The weights are used directly from the mapped file. A run costs 2 n (d h + 2 h) FLOPs per stage.
#include "policies/methods/sdtp_predictor.h"

#include <fmt/core.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/random.h"
#include "formats/printable.h"
#include "policies/method_info.h"
#include "policies/presets.h"

namespace coppice {

namespace {
constexpr float kNormEps = 1e-5f;
constexpr int64_t kTileRows = 512;  // bounds the workspace; the result does not depend on it
}  // namespace

SdtpPredictor SdtpPredictor::OfSeed(uint64_t seed) {
  SdtpPredictor predictor;
  predictor.seed_ = seed;
  return predictor;
}

void SdtpPredictor::Score(const TensorView& x, Backend& be, std::span<float> scores) const {
  if (seed_ > 0) {
    Random random(seed_);
    for (float& score : scores) score = static_cast<float>(random.Next() >> 40);
    return;
  }
  COPPICE_CHECK(x.cols == norm_weight_.cols() && static_cast<int64_t>(scores.size()) == x.rows);
  PackedMatrix fc1;
  PackedMatrix fc2;
  be.Pack(fc1_weight_, fc1);
  be.Pack(fc2_weight_, fc2);
  const int64_t tile = std::min(kTileRows, x.rows);
  Tensor normed(DType::kF32, tile, x.cols, be.memory());
  Tensor wide(DType::kF32, tile, fc1.outputs, be.memory());
  Tensor pi(DType::kF32, tile, 2);
  for (int64_t begin = 0; begin < x.rows; begin += tile) {
    const int64_t rows = std::min(tile, x.rows - begin);
    const MutableTensorView norm = normed.mutable_view().Rows(0, rows);
    const MutableTensorView inner = wide.mutable_view().Rows(0, rows);
    const MutableTensorView out = pi.mutable_view().Rows(0, rows);
    be.LayerNorm(x.Rows(begin, rows), norm_weight_.view(), norm_bias_.view(), kNormEps, norm);
    be.Product(norm, fc1, fc1_bias_.view(), inner);
    be.Gelu(inner);
    be.Product(inner, fc2, fc2_bias_.view(), out);
    for (int64_t i = 0; i < rows; ++i) {
      const std::span<float> row = out.Row<float>(i);
      scores[static_cast<size_t>(begin + i)] = row[0] - row[1];
    }
  }
}

// Everything in the file is hostile until it has passed here.
class SdtpFileReader {
 public:
  SdtpFileReader(const std::string& path, const ModelShape& shape, SdtpFile& file)
      : reader_("sdtp", path, *file.storage_), path_(path), shape_(shape), file_(file) {}

  void Read() {
    ReadLayers();
    file_.r_ = reader_.Number("r", 1e-6, 1);
    file_.first_ = reader_.Whole("first", 0, kManyTokens);
    file_.local_ = reader_.Number("local", 0, 1);
    reader_.Field("base_model");
    for (size_t s = 0; s < file_.layers_.size(); ++s) file_.predictors_.push_back(ReadPredictor(s));
    reader_.RefuseOthers(fmt::format("the {} stages", file_.layers_.size()));
  }

 private:
  void ReadLayers() {
    std::string_view rest = reader_.Field("layers");
    while (true) {
      const size_t comma = rest.find(',');
      const auto layer =
          static_cast<int>(reader_.Whole("layers", rest.substr(0, comma), 1, shape_.layer_count() - 1));
      if (!file_.layers_.empty() && layer <= file_.layers_.back()) {
        throw Error("[sdtp] {}: metadata layers: '{}' does not ascend", path_,
                    Printable(reader_.Field("layers")));
      }
      file_.layers_.push_back(layer);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    const auto stages = static_cast<int64_t>(file_.layers_.size());
    if (reader_.Whole("stages", 1, limits::kMaxLayers) != stages) {
      throw Error("[sdtp] {}: metadata stages is {}, layers has {}", path_, reader_.Field("stages"), stages);
    }
  }

  SdtpPredictor ReadPredictor(size_t s) {
    const auto name = [s](const char* part) { return fmt::format("sdtp.{}.{}", s, part); };
    const int64_t d = shape_.hidden;
    SdtpPredictor predictor;
    predictor.norm_weight_ = reader_.Vector(name("ln.w"), d);
    predictor.norm_bias_ = reader_.Vector(name("ln.b"), d);
    predictor.fc1_weight_ = reader_.Matrix(name("fc1.w"), -1, d);
    const int64_t h = predictor.fc1_weight_.rows;
    predictor.fc1_bias_ = reader_.Vector(name("fc1.b"), h);
    predictor.fc2_weight_ = reader_.Matrix(name("fc2.w"), 2, h);
    predictor.fc2_bias_ = reader_.Vector(name("fc2.b"), 2);
    return predictor;
  }

  SideFileReader reader_;
  const std::string& path_;
  const ModelShape& shape_;
  SdtpFile& file_;
};

SdtpFile::SdtpFile(const std::string& path, const ModelShape& shape)
    : storage_(std::make_unique<SideFile>(path)) {
  SdtpFileReader(path, shape, *this).Read();
}

std::shared_ptr<const SdtpFile> SdtpFile::OfNoFile(const ModelShape& shape) {
  const SdtpPaperSetting paper;
  SdtpFile file;
  file.layers_ = SdtpLayers(shape, std::min(paper.stages, shape.layer_count() - 1));
  file.r_ = paper.r;
  file.first_ = paper.first;
  file.local_ = paper.local;
  for (const int layer : file.layers_)
    file.predictors_.push_back(SdtpPredictor::OfSeed(static_cast<uint64_t>(layer) + 1));
  return std::make_shared<const SdtpFile>(std::move(file));
}

std::shared_ptr<const SdtpFile> OpenSdtpFile(const std::string& path, const ModelShape& shape) {
  return OpenOnce<SdtpFile>(path, shape);
}

}  // namespace coppice
