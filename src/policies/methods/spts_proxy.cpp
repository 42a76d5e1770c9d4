// SPTS's proxies (arXiv 2601.13155, "low-rank transformation probing"). An FFN computes
//
//   F(x) = (silu(n W_g) * (n W_u)) W_d,   n = norm(x)
//
// and the proxy f is F with D of its channels, and each of the three pruned matrices W' ~ U V of rank r:
//
//   f(x) = (silu(n U_g V_g) * (n U_u V_u)) U_d V_d
//
// Its score ||f(x)|| predicts ||F(x)||. V_d comes from a truncated SVD, so its rows are orthonormal and
// ||a V_d|| = ||a||: the file has U_d alone, and a score costs 2 (2 d r + 3 D r) FLOPs per row.
//
// The file is one safetensors file, written by `coppice tune --ffn-proxies` or any program. For every layer l
// from the first one with a proxy to the model's last, with the model's hidden size d:
//
//   spts.{l}.norm.w    [d]      the FFN's norm
//   spts.{l}.norm.b    [d]      if the norm is a LayerNorm
//   spts.{l}.gate.in   [r, d]   U_g^T, if the FFN has a gate
//   spts.{l}.gate.out  [D, r]   V_g^T
//   spts.{l}.gate.b    [D]      if the FFN has biases
//   spts.{l}.up.in     [r, d]   U_u^T; up takes the tanh form of gelu if there is no gate
//   spts.{l}.up.out    [D, r]   V_u^T
//   spts.{l}.up.b      [D]      if the FFN has biases
//   spts.{l}.down      [r, D]   U_d^T
//   spts.{l}.down.b    [r]      if the FFN has biases: V_d b
//   spts.{l}.down.rest [1]      ||b - b V_d^T V_d||, which is the same for every row
//
// in F32, F16 or BF16, every value finite, and no other tensors. Metadata, all strings and all required:
//
//   layers       "32"       the model's number of layers
//   first_layer  "0"        the first layer with a proxy, below `layers`
//   channels     "512"      D, at most the FFN's channels
//   rank         "192"      r, at most d and D
//   norm         "rms"      or "layer"
//   eps          "1e-05"    of the norm, above 0
//   ffn          "gated"    or "plain"
//   biases       "none"     or "all"
//   base_model   "..."      the model that the proxies were made from; for people, not checked
//
// The weights are used directly from the mapped file, and packed once per call: a layout belongs to one
// backend and the file is shared by all.
#include "policies/methods/spts_proxy.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/limits.h"
#include "base/random.h"

namespace coppice {

namespace {

constexpr int64_t kProxyRows = 512;  // bounds the workspace; the result does not depend on it

double SquaredLength(std::span<const float> row) {
  double sum = 0;
  for (const float value : row) sum += double{value} * value;
  return sum;
}

}  // namespace

SptsProxy SptsProxy::OfSeed(uint64_t seed) {
  SptsProxy proxy;
  proxy.seed_ = seed;
  return proxy;
}

void SptsProxy::Score(const TensorView& x, Backend& be, std::span<float> norms,
                      const std::function<void()>& pause) const {
  if (seed_ > 0) {
    Random random(seed_);
    for (float& norm : norms) norm = static_cast<float>(random.Next() >> 40);
    return;
  }
  COPPICE_CHECK(x.cols == norm_weight_.cols() && static_cast<int64_t>(norms.size()) == x.rows);
  const int64_t rank = up_in_.rows;
  PackedMatrix in;  // gate's and up's, which read the same rows
  PackedMatrix gate_out;
  PackedMatrix up_out;
  PackedMatrix down;
  if (gated()) {
    be.PackParts(std::array{gate_in_, up_in_}, in);
    be.Pack(gate_out_, gate_out);
  } else {
    be.Pack(up_in_, in);
  }
  be.Pack(up_out_, up_out);
  be.Pack(down_, down);
  const int64_t tile = std::min(kProxyRows, x.rows);
  Tensor normed(DType::kF32, tile, x.cols, be.memory());
  Tensor narrow(DType::kF32, tile, in.outputs, be.memory());
  Tensor gate(DType::kF32, gated() ? tile : 0, up_out.outputs, be.memory());
  Tensor up(DType::kF32, tile, up_out.outputs, be.memory());
  Tensor out(DType::kF32, tile, rank);
  for (int64_t begin = 0; begin < x.rows; begin += tile) {
    const int64_t rows = std::min(tile, x.rows - begin);
    if (pause) pause();  // in Llama-3.1-8B the rows of 32k tokens are 122 GFLOP
    const MutableTensorView n = normed.mutable_view().Rows(0, rows);
    const MutableTensorView low = narrow.mutable_view().Rows(0, rows);
    const MutableTensorView u = up.mutable_view().Rows(0, rows);
    const MutableTensorView a = out.mutable_view().Rows(0, rows);
    if (norm_bias_.cols() > 0) {
      be.LayerNorm(x.Rows(begin, rows), norm_weight_.view(), norm_bias_.view(), norm_eps_, n);
    } else {
      be.RmsNorm(x.Rows(begin, rows), norm_weight_.view(), norm_eps_, n);
    }
    be.Product(n, in, {}, low);
    be.Product(low.Cols(low.cols - rank, rank), up_out, up_bias_.view(), u);
    if (gated()) {
      const MutableTensorView g = gate.mutable_view().Rows(0, rows);
      be.Product(low.Cols(0, rank), gate_out, gate_bias_.view(), g);
      be.GateMul(g, u, Activation::kSilu);
      be.Product(g, down, down_bias_.view(), a);
    } else {
      be.Gelu(u);
      be.Product(u, down, down_bias_.view(), a);
    }
    for (int64_t i = 0; i < rows; ++i) {
      const double squared = SquaredLength(a.Row<float>(i)) + down_rest_ * down_rest_;
      norms[static_cast<size_t>(begin + i)] = static_cast<float>(std::sqrt(squared));
    }
  }
}

// Everything in the file is hostile until it has passed here.
class SptsFileReader {
 public:
  SptsFileReader(const std::string& path, const ModelShape& shape, SptsFile& file)
      : reader_("spts", path, *file.storage_), path_(path), shape_(shape), file_(file) {}

  void Read() {
    const int64_t layers = reader_.Whole("layers", 1, limits::kMaxLayers);
    if (layers != shape_.layer_count()) {
      throw Error("[spts] {}: metadata layers: {}, but the model has {}", path_, layers,
                  shape_.layer_count());
    }
    if (shape_.HasMixtures())
      throw Error("[spts] {}: the model has mixtures of experts, which no low-rank FFN predicts", path_);
    if (shape_.NarrowestFfn() == 0)
      throw Error("[spts] {}: layers of the model have no FFN that a proxy could predict", path_);
    file_.first_layer_ = static_cast<int>(reader_.Whole("first_layer", 0, shape_.layer_count() - 1));
    file_.channels_ = reader_.Whole("channels", 1, shape_.NarrowestFfn());
    file_.rank_ = reader_.Whole("rank", 1, std::min(shape_.hidden, file_.channels_));
    layer_norm_ = reader_.Choice("norm", {"rms", "layer"}) == 1;
    eps_ = static_cast<float>(reader_.Number("eps", 1e-20, 1));
    if ((reader_.Choice("ffn", {"plain", "gated"}) == 1) != shape_.gated_ffn) {
      throw Error("[spts] {}: metadata ffn is {}, the model's FFN has {} gate", path_, reader_.Field("ffn"),
                  shape_.gated_ffn ? "a" : "no");
    }
    biases_ = reader_.Choice("biases", {"none", "all"}) == 1;
    reader_.Field("base_model");
    for (int l = file_.first_layer_; l < shape_.layer_count(); ++l) file_.proxies_.push_back(ReadProxy(l));
    reader_.RefuseOthers(fmt::format("the layers {} to {}", file_.first_layer_, shape_.layer_count() - 1));
  }

 private:
  SptsProxy ReadProxy(int layer) {
    const auto name = [layer](const char* part) { return fmt::format("spts.{}.{}", layer, part); };
    const int64_t d = shape_.hidden;
    const int64_t channels = file_.channels_;
    const int64_t rank = file_.rank_;
    SptsProxy proxy;
    proxy.norm_eps_ = eps_;
    proxy.norm_weight_ = reader_.Vector(name("norm.w"), d);
    if (layer_norm_) proxy.norm_bias_ = reader_.Vector(name("norm.b"), d);
    if (shape_.gated_ffn) {
      proxy.gate_in_ = reader_.Matrix(name("gate.in"), rank, d);
      proxy.gate_out_ = reader_.Matrix(name("gate.out"), channels, rank);
      if (biases_) proxy.gate_bias_ = reader_.Vector(name("gate.b"), channels);
    }
    proxy.up_in_ = reader_.Matrix(name("up.in"), rank, d);
    proxy.up_out_ = reader_.Matrix(name("up.out"), channels, rank);
    proxy.down_ = reader_.Matrix(name("down"), rank, channels);
    if (biases_) {
      proxy.up_bias_ = reader_.Vector(name("up.b"), channels);
      proxy.down_bias_ = reader_.Vector(name("down.b"), rank);
      const Tensor rest = reader_.Vector(name("down.rest"), 1);
      proxy.down_rest_ = rest.view().Row<float>(0)[0];
    }
    return proxy;
  }

  SideFileReader reader_;
  const std::string& path_;
  const ModelShape& shape_;
  SptsFile& file_;
  bool layer_norm_ = false;
  float eps_ = 0;
  bool biases_ = false;
};

SptsFile::SptsFile(const std::string& path, const ModelShape& shape)
    : storage_(std::make_unique<SideFile>(path)) {
  SptsFileReader(path, shape, *this).Read();
}

std::shared_ptr<const SptsFile> SptsFile::OfNoFile(const ModelShape& shape) {
  SptsFile file;
  for (int l = 0; l < shape.layer_count(); ++l)
    file.proxies_.push_back(SptsProxy::OfSeed(static_cast<uint64_t>(l) + 1));
  return std::make_shared<const SptsFile>(std::move(file));
}

const SptsProxy& SptsFile::proxy(int layer) const {
  COPPICE_CHECK(layer >= first_layer_ && layer - first_layer_ < std::ssize(proxies_));
  return proxies_[static_cast<size_t>(layer - first_layer_)];
}

std::shared_ptr<const SptsFile> OpenSptsFile(const std::string& path, const ModelShape& shape) {
  return OpenOnce<SptsFile>(path, shape);
}

}  // namespace coppice
