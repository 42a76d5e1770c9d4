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
#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <mutex>
#include <string_view>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "base/limits.h"
#include "base/mmap.h"
#include "base/random.h"
#include "formats/printable.h"
#include "formats/quants.h"
#include "formats/safetensors.h"
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

struct SdtpFile::Storage {
  explicit Storage(const std::string& path) : file(path), parsed(ParseSafetensors(file.bytes(), path)) {}
  MappedFile file;
  ParsedSafetensors parsed;
};

// Everything in the file is hostile until it has passed here.
class SdtpFileReader {
 public:
  SdtpFileReader(const std::string& path, const ModelShape& shape, SdtpFile& file)
      : path_(path), shape_(shape), parsed_(file.storage_->parsed), file_(file) {
    for (const StoredTensor& tensor : parsed_.tensors) tensors_.emplace(tensor.name, &tensor);
  }

  void Read() {
    ReadLayers();
    file_.r_ = Number("r", 1e-6, 1);
    file_.first_ = Whole("first", Field("first"), 0, kManyTokens);
    file_.local_ = Number("local", 0, 1);
    Field("base_model");
    for (size_t s = 0; s < file_.layers_.size(); ++s) file_.predictors_.push_back(ReadPredictor(s));
    RefuseOthers();
  }

 private:
  const std::string& Field(const char* name) const {
    const auto it = parsed_.metadata.find(name);
    if (it == parsed_.metadata.end()) throw Error("[sdtp] {}: metadata has no '{}'", path_, name);
    return it->second;
  }

  int64_t Whole(const char* name, std::string_view text, int64_t low, int64_t high) const {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || value < low || value > high) {
      throw Error("[sdtp] {}: metadata {}: '{}' is not a whole number from {} to {}", path_, name,
                  Printable(text), low, high);
    }
    return value;
  }

  double Number(const char* name, double low, double high) const {
    const std::string& text = Field(name);
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    // A NaN fails both comparisons.
    if (error != std::errc() || end != text.data() + text.size() || !(value >= low && value <= high)) {
      throw Error("[sdtp] {}: metadata {}: '{}' is not a number from {} to {}", path_, name, Printable(text),
                  low, high);
    }
    return value;
  }

  void ReadLayers() {
    std::string_view rest = Field("layers");
    while (true) {
      const size_t comma = rest.find(',');
      const auto layer = static_cast<int>(Whole("layers", rest.substr(0, comma), 1, shape_.layers - 1));
      if (!file_.layers_.empty() && layer <= file_.layers_.back()) {
        throw Error("[sdtp] {}: metadata layers: '{}' does not ascend", path_, Printable(Field("layers")));
      }
      file_.layers_.push_back(layer);
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
    const auto stages = static_cast<int64_t>(file_.layers_.size());
    if (Whole("stages", Field("stages"), 1, limits::kMaxLayers) != stages) {
      throw Error("[sdtp] {}: metadata stages is {}, layers has {}", path_, Field("stages"), stages);
    }
  }

  SdtpPredictor ReadPredictor(size_t s) {
    const auto name = [s](const char* part) { return fmt::format("sdtp.{}.{}", s, part); };
    const int64_t d = shape_.hidden;
    SdtpPredictor predictor;
    predictor.norm_weight_ = Vector(name("ln.w"), d);
    predictor.norm_bias_ = Vector(name("ln.b"), d);
    predictor.fc1_weight_ = Matrix(name("fc1.w"), -1, d);
    const int64_t h = predictor.fc1_weight_.rows;
    predictor.fc1_bias_ = Vector(name("fc1.b"), h);
    predictor.fc2_weight_ = Matrix(name("fc2.w"), 2, h);
    predictor.fc2_bias_ = Vector(name("fc2.b"), 2);
    return predictor;
  }

  Tensor Vector(const std::string& name, int64_t size) {
    const TensorView stored = Find(name, {size});
    Tensor vector(DType::kF32, 1, size);
    DequantizeRow(stored.dtype, stored.data, vector.mutable_view().Row<float>(0));
    return vector;
  }

  // `rows` below 0: any number up to the limit.
  TensorView Matrix(const std::string& name, int64_t rows, int64_t cols) { return Find(name, {rows, cols}); }

  TensorView Find(const std::string& name, const std::vector<int64_t>& expected) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      const bool skipped = std::ranges::find(parsed_.skipped, name) != parsed_.skipped.end();
      throw Error("[sdtp] {}: tensor '{}' {}", path_, name,
                  skipped ? "is not F32, F16 or BF16" : "is missing");
    }
    const StoredTensor& stored = *found->second;
    const bool fits = stored.shape.size() == expected.size() &&
                      std::ranges::equal(stored.shape, expected, [](int64_t has, int64_t wanted) {
                        return wanted < 0 ? has >= 1 && has <= limits::kMaxHidden : has == wanted;
                      });
    if (!fits) {
      std::string wanted;
      for (const int64_t n : expected)
        wanted += (wanted.empty() ? "" : ", ") + (n < 0 ? "h" : fmt::format("{}", n));
      throw Error("[sdtp] {}: tensor '{}' is [{}], expected [{}]", path_, name, fmt::join(stored.shape, ", "),
                  wanted);
    }
    CheckFinite(name, stored.view);
    tensors_.erase(found);
    return stored.view;
  }

  void CheckFinite(const std::string& name, const TensorView& stored) {
    row_.resize(static_cast<size_t>(stored.cols));
    for (int64_t r = 0; r < stored.rows; ++r) {
      DequantizeRow(stored.dtype, stored.RowBytes(r), row_);
      // Over the exponent's bits, which vectorises: a file of a large model holds 42 M weights.
      constexpr uint32_t kExponent = 0x7F800000u;
      uint32_t strange = 0;
      for (const float value : row_) strange |= (std::bit_cast<uint32_t>(value) & kExponent) == kExponent;
      if (strange != 0) throw Error("[sdtp] {}: tensor '{}' holds a value that is not finite", path_, name);
    }
  }

  void RefuseOthers() const {
    if (tensors_.empty() && parsed_.skipped.empty()) return;
    const std::string_view other = tensors_.empty() ? parsed_.skipped.front() : tensors_.begin()->first;
    throw Error("[sdtp] {}: tensor '{}' belongs to none of the {} stages", path_, Printable(other),
                file_.layers_.size());
  }

  const std::string& path_;
  const ModelShape& shape_;
  const ParsedSafetensors& parsed_;
  SdtpFile& file_;
  std::map<std::string, const StoredTensor*, std::less<>> tensors_;  // not yet read
  std::vector<float> row_;
};

SdtpFile::SdtpFile(const std::string& path, const ModelShape& shape)
    : storage_(std::make_unique<Storage>(path)) {
  SdtpFileReader(path, shape, *this).Read();
}
SdtpFile::SdtpFile() = default;
std::shared_ptr<const SdtpFile> SdtpFile::OfNoFile(const ModelShape& shape) {
  const SdtpPaperSetting paper;
  SdtpFile file;
  file.layers_ = SdtpLayers(shape, std::min(paper.stages, shape.layers - 1));
  file.r_ = paper.r;
  file.first_ = paper.first;
  file.local_ = paper.local;
  for (const int layer : file.layers_)
    file.predictors_.push_back(SdtpPredictor::OfSeed(static_cast<uint64_t>(layer) + 1));
  return std::make_shared<const SdtpFile>(std::move(file));
}
SdtpFile::~SdtpFile() = default;
SdtpFile::SdtpFile(SdtpFile&&) noexcept = default;
SdtpFile& SdtpFile::operator=(SdtpFile&&) noexcept = default;

namespace {

using FileTime = std::filesystem::file_time_type;

struct OpenFile {
  std::string path;
  int64_t hidden;
  int layers;
  std::uintmax_t size;
  FileTime changed;
  std::shared_ptr<const SdtpFile> file;
};

// A file that changes twice within the resolution of its time may keep size and time.
bool MayChangeUnseen(FileTime changed) { return FileTime::clock::now() - changed < std::chrono::seconds(2); }

}  // namespace

std::shared_ptr<const SdtpFile> OpenSdtpFile(const std::string& path, const ModelShape& shape) {
  constexpr size_t kMostFiles = 4;
  static std::mutex mutex;
  static std::vector<OpenFile> files;  // the latest last
  std::error_code no_size;
  std::error_code no_time;
  const std::uintmax_t size = std::filesystem::file_size(path, no_size);
  const FileTime changed = std::filesystem::last_write_time(path, no_time);
  if (no_size || no_time || MayChangeUnseen(changed)) return std::make_shared<const SdtpFile>(path, shape);
  const std::lock_guard lock(mutex);
  for (const OpenFile& f : files) {
    if (f.path == path && f.hidden == shape.hidden && f.layers == shape.layers && f.size == size &&
        f.changed == changed) {
      return f.file;
    }
  }
  auto file = std::make_shared<const SdtpFile>(path, shape);
  std::erase_if(files, [&](const OpenFile& f) { return f.path == path; });
  if (files.size() == kMostFiles) files.erase(files.begin());
  files.push_back({path, shape.hidden, shape.layers, size, changed, file});
  return file;
}

}  // namespace coppice
