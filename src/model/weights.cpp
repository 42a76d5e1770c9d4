#include "model/weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "model/tensor_names.h"
#include "model/weights_reader.h"

namespace coppice {

namespace {

// The parameters of the experts that a row does not run.
int64_t IdleParameters(const ModelShape& s) {
  int64_t idle = 0;
  for (const LayerShape& layer : s.layers) {
    const MixtureShape& m = layer.mixture;
    idle += (m.experts - m.used) * m.width * s.hidden * (s.gated_ffn ? 3 : 2);
  }
  return idle;
}

}  // namespace

class WeightsLoader {
 public:
  WeightsLoader(std::shared_ptr<const TensorStore> store, ModelConfig& config)
      : store_(std::move(store)),
        config_(config),
        hf_(config.hf_names),
        names_(hf_ ? HfTensorNames(config, *store_) : GgufTensorNames(config)),
        weights_(new Weights()),
        read_(*store_, *weights_) {}

  std::shared_ptr<const Weights> Load() {
    const ModelShape& s = config_.shape;
    LoadEmbedding();
    const std::vector<LayerShape> layers = s.AllLayers();
    if (s.layer_embedding > 0) LoadLayerEmbeddings(std::ssize(layers));
    for (size_t l = 0; l < layers.size(); ++l) LoadLayer(static_cast<int>(l), layers[l]);
    weights_->final_norm = LoadNorm(names_.final_norm, s.hidden, config_.final_norm_offset);
    weights_->head_norm = HeadNormOf(weights_->final_norm);
    if (store_->Find(names_.head + ".weight") != nullptr) {
      weights_->head.weight = read_.Matrix(names_.head + ".weight", s.vocab, s.hidden);
    } else if (hf_ && !config_.tied_head) {
      read_.Fail(names_.head + ".weight", "is missing, and the config does not tie it to the embedding");
    } else {
      weights_->head.weight = weights_->embedding;  // GGUF files of tied models have no output.weight
      config_.tied_head = true;
    }
    LoadRopeFactors();
    LoadLongFactors();
    weights_->active_parameters = weights_->parameters - IdleParameters(s);
    weights_->store_ = std::move(store_);
    return std::shared_ptr<const Weights>(std::move(weights_));
  }

 private:
  Norm LoadNorm(const std::string& name) { return LoadNorm(name, config_.shape.hidden); }

  Norm LoadNorm(const std::string& name, int64_t size) { return LoadNorm(name, size, config_.norm_offset); }

  Norm LoadNorm(const std::string& name, int64_t size, double offset) {
    const bool has_bias = config_.norm == NormKind::kLayer;
    return {WithOffset(read_.Vector(name + ".weight", size, true), offset),
            has_bias ? read_.Vector(name + ".bias", size, true) : TensorView{}};
  }

  // Models with a factor on logits have no bias there.
  Norm HeadNormOf(const Norm& final_norm) {
    if (config_.logit_scale == 1) return final_norm;
    Tensor scaled(DType::kF32, 1, final_norm.weight.cols);
    CopyRows(final_norm.weight, scaled.mutable_view());
    for (float& w : scaled.mutable_view().Row<float>(0)) w *= static_cast<float>(config_.logit_scale);
    return {read_.Own(std::move(scaled)), final_norm.bias};
  }

  // RMS norms that the file has no weights for.
  Norm ConstantNorm(int64_t size, double value) {
    Tensor weight(DType::kF32, 1, size);
    std::ranges::fill(weight.mutable_view().Row<float>(0), static_cast<float>(value));
    return {read_.Own(std::move(weight)), {}};
  }

  TensorView WithOffset(const TensorView& weight, double offset) {
    if (offset == 0) return weight;
    Tensor moved(DType::kF32, 1, weight.cols);
    CopyRows(weight, moved.mutable_view());
    for (float& w : moved.mutable_view().Row<float>(0)) w += static_cast<float>(offset);
    return read_.Own(std::move(moved));
  }

  void LoadEmbedding() {
    // TinyStories-656K and similar models tie the head to the embedding and store one tensor, under the
    // head's name.
    const std::string own = names_.embedding + ".weight";
    const std::string name =
        store_->Find(own) == nullptr && config_.tied_head ? names_.head + ".weight" : own;
    int64_t& vocab = config_.shape.vocab;
    if (vocab == 0) {
      const StoredTensor* t = store_->Find(name);
      if (t != nullptr) vocab = t->view.rows;
    }
    weights_->embedding = read_.Matrix(name, vocab, config_.shape.hidden);
    if (!names_.embedding_norm.empty()) weights_->embedding_norm = LoadNorm(names_.embedding_norm);
    if (config_.embedding_norm == EmbeddingNorm::kWeightless)
      weights_->embedding_norm = ConstantNorm(config_.shape.hidden, 1);
  }

  void LoadLayer(int l, const LayerShape& layer) {
    const ModelShape& s = config_.shape;
    const std::string p = fmt::format(fmt::runtime(names_.layer_prefix), l);
    LayerWeights w;
    const bool mixes = layer.mixer != MixerKind::kNone;
    if (config_.pre_norms && mixes) w.attention_norm = LoadNorm(p + names_.attention_norm);
    if (config_.pre_norms && layer.has_ffn()) w.ffn_norm = LoadNorm(p + names_.ffn_norm);
    if (layer.attends()) LoadAttention(p, layer, w);
    if (layer.has_state()) LoadRecurrent(read_, config_, p, layer, w);
    if (s.post_norms) {
      w.attention_post_norm = LoadNorm(p + names_.attention_post_norm);
      w.ffn_post_norm = LoadNorm(p + names_.ffn_post_norm);
    }
    if (layer.mixture.experts > 0) {
      w.mixture = LoadMixture(read_, config_, p, layer);
    } else if (layer.ffn > 0) {
      LoadGateAndUp(p, layer, w);
      w.down = read_.Map(p + names_.down, s.hidden, layer.ffn, config_.all_biases || config_.ffn_biases);
    }
    if (config_.gemma4_layers) LoadGemma4Parts(p, l, layer, w);
    weights_->layers.push_back(std::move(w));
  }

  void LoadAttention(const std::string& p, const LayerShape& layer, LayerWeights& w) {
    const int64_t hidden = config_.shape.hidden;
    const int64_t q_dim = layer.query_width();
    const int64_t kv_dim = layer.key_width();
    if (!names_.qkv.empty() && store_->Find(p + names_.qkv + ".weight") != nullptr) {
      LoadFused(p + names_.qkv, layer, w);
    } else if (names_.query.empty()) {
      read_.Fail(p + names_.qkv + ".weight", "is missing");
    } else {
      if (config_.gate_in_query) {
        LoadQueryAndGate(read_, p + names_.query, layer, hidden, config_.qkv_bias, w);
      } else {
        w.query = read_.Map(p + names_.query, q_dim, hidden, config_.qkv_bias);
      }
      if (layer.keys_of == kOwnKeys) LoadKeyAndValue(p, kv_dim, w);
    }
    w.output = read_.Map(p + names_.output, hidden, q_dim, config_.all_biases);
    if (layer.output_gate && !config_.gate_in_query)
      w.output_gate = read_.Map(p + names_.output_gate, q_dim, hidden, false);
    if (config_.sinks) w.sinks = read_.Vector(p + names_.sinks, layer.heads, true);
    if (config_.hf_query_norm != 0) {
      w.query_norm = ConstantNorm(layer.head_dim, config_.hf_query_norm);
      w.key_norm = ConstantNorm(layer.head_dim, 1);
    } else if (config_.head_norms) {
      w.query_norm = LoadNorm(p + names_.query_norm, config_.whole_norms ? q_dim : layer.head_dim);
      if (layer.keys_of == kOwnKeys)
        w.key_norm = LoadNorm(p + names_.key_norm, config_.whole_norms ? kv_dim : layer.head_dim);
    }
  }

  // Where a layer of Gemma 4 has no matrix of values, keys are values too.
  void LoadKeyAndValue(const std::string& p, int64_t width, LayerWeights& w) {
    const int64_t hidden = config_.shape.hidden;
    w.key = read_.Map(p + names_.key, width, hidden, config_.qkv_bias);
    const bool same = config_.gemma4_layers && store_->Find(p + names_.value + ".weight") == nullptr;
    w.value = same ? w.key : read_.Map(p + names_.value, width, hidden, config_.qkv_bias);
  }

  // The tensors that hold all layers' parts, in slices of p columns or rows.
  void LoadLayerEmbeddings(int64_t layers) {
    const ModelShape& s = config_.shape;
    layer_table_ = read_.Matrix(names_.layer_table, s.vocab, layers * s.layer_embedding);
    layer_projection_ = read_.Matrix(names_.layer_projection, layers * s.layer_embedding, s.hidden);
    layer_norm_ = LoadNorm(names_.layer_norm, s.layer_embedding);
    const int64_t block = Info(layer_table_.dtype).block_elements;
    if (s.layer_embedding % block != 0)
      read_.Fail(names_.layer_table,
                 fmt::format("has blocks of {} values, and layers of {}", block, s.layer_embedding));
  }

  void LoadGemma4Parts(const std::string& p, int l, const LayerShape& layer, LayerWeights& w) {
    const int64_t hidden = config_.shape.hidden;
    if (layer.keys_of == kOwnKeys) w.value_norm = ConstantNorm(layer.head_dim, 1);
    if (const TensorView scale = read_.Vector(p + names_.layer_scale, 1, false); !scale.empty()) {
      w.scale = scale.Row<float>(0)[0];
      if (!std::isfinite(w.scale)) read_.Fail(p + names_.layer_scale, fmt::format("holds {}", w.scale));
    }
    const int64_t width = config_.shape.layer_embedding;
    if (width == 0) return;
    w.own_embedding = {.tokens = weights_->embedding,
                       .table = layer_table_.Cols(l * width, width),
                       .projection = {layer_projection_.Rows(l * width, width), {}},
                       .norm = layer_norm_,
                       .gate = read_.Map(p + names_.embedding_gate, width, hidden, false),
                       .output = read_.Map(p + names_.embedding_output, hidden, width, false),
                       .post_norm = LoadNorm(p + names_.embedding_post_norm)};
  }

  void LoadGateAndUp(const std::string& p, const LayerShape& layer, LayerWeights& w) {
    const int64_t hidden = config_.shape.hidden;
    const bool biases = config_.all_biases || config_.ffn_biases;
    const bool gated = config_.shape.gated_ffn;
    if (gated && !names_.gate_up.empty() && store_->Find(p + names_.gate + ".weight") == nullptr &&
        store_->Find(p + names_.gate_up + ".weight") != nullptr) {
      const Linear both = read_.Map(p + names_.gate_up, 2 * layer.ffn, hidden, biases);
      const auto half = [&](int64_t begin) -> Linear {
        return {both.weight.Rows(begin, layer.ffn),
                both.bias.empty() ? both.bias : both.bias.Cols(begin, layer.ffn)};
      };
      w.gate = half(0);
      w.up = half(layer.ffn);
      return;
    }
    if (gated) w.gate = read_.Map(p + names_.gate, layer.ffn, hidden, biases);
    w.up = read_.Map(p + names_.up, layer.ffn, hidden, biases);
  }

  // Files store q, k and v one after the other, so views can split them. Hugging Face's BLOOM interleaves
  // them by head ([heads, 3, head_dim] rows), so they are copied.
  void LoadFused(const std::string& name, const LayerShape& layer, LayerWeights& w) {
    const int64_t q_dim = layer.query_width();
    const int64_t kv_dim = layer.key_width();
    const int64_t rows = q_dim + 2 * kv_dim;
    const TensorView fused = read_.Matrix(name + ".weight", rows, config_.shape.hidden);
    const TensorView bias = read_.Vector(name + ".bias", rows, config_.qkv_bias);
    const bool by_head = hf_ && !config_.fused_hf;
    const auto part = [&](int index, int64_t begin, int64_t count) -> Linear {
      if (!by_head) return {fused.Rows(begin, count), bias.empty() ? bias : bias.Cols(begin, count)};
      Tensor weight(fused.dtype, count, fused.cols);
      Tensor part_bias(DType::kF32, 1, count);
      const int64_t c = layer.head_dim;
      for (int64_t i = 0; i < count; ++i) {
        const int64_t row = (i / c * 3 + index) * c + i % c;
        std::memcpy(weight.mutable_view().RowBytes(i), fused.RowBytes(row),
                    static_cast<size_t>(BytesOf(fused.dtype, fused.cols)));
        if (!bias.empty())
          part_bias.mutable_view().Row<float>(0)[static_cast<size_t>(i)] =
              bias.Row<float>(0)[static_cast<size_t>(row)];
      }
      const TensorView owned = read_.Own(std::move(weight));
      return {owned, bias.empty() ? TensorView{} : read_.Own(std::move(part_bias))};
    };
    if (by_head && q_dim != kv_dim)
      read_.Fail(name + ".weight", "is fused and grouped-query at once, which is not supported");
    w.query = part(0, 0, q_dim);
    w.key = part(1, q_dim, kv_dim);
    w.value = part(2, q_dim + kv_dim, kv_dim);
  }

  // Phi 3's, in GGUF. A file with none has RoPE without scaling.
  void LoadLongFactors() {
    if (hf_ || config_.ropes.empty()) return;
    RopeConfig& rope = config_.ropes.front();
    if (rope.scaling != RopeConfig::Scaling::kLongRope) return;
    const bool has = store_->Find("rope_factors_long.weight") != nullptr ||
                     store_->Find("rope_factors_short.weight") != nullptr;
    if (!has) rope.scaling = RopeConfig::Scaling::kNone;
    for (const auto& [name, to] : {std::pair{"rope_factors_long.weight", &rope.long_factors},
                                   std::pair{"rope_factors_short.weight", &rope.short_factors}}) {
      const TensorView factors = read_.Vector(name, rope.dims / 2, has);
      if (factors.empty()) continue;
      for (const float f : factors.Row<float>(0)) {
        if (!std::isfinite(f) || f <= 0) read_.Fail(name, fmt::format("holds {}", f));
        to->push_back(f);
      }
    }
  }

  void LoadRopeFactors() {
    const std::vector<RopeConfig>& ropes = config_.ropes;
    const int dims = ropes.empty() ? 0 : ropes.front().dims;
    const TensorView factors = read_.Vector("rope_freqs.weight", dims / 2, false);
    if (factors.empty()) return;
    if (!config_.window_ropes &&
        !std::ranges::all_of(ropes, [&](const RopeConfig& r) { return r.dims == dims; }))
      read_.Fail("rope_freqs.weight", "is for heads of one size, but the layers' heads differ");
    for (const float f : factors.Row<float>(0)) {
      if (!std::isfinite(f) || f <= 0) read_.Fail("rope_freqs.weight", fmt::format("holds {}", f));
      weights_->rope_factors.push_back(f);
    }
  }

  std::shared_ptr<const TensorStore> store_;
  ModelConfig& config_;
  bool hf_;
  TensorNames names_;
  std::unique_ptr<Weights> weights_;
  WeightsReader read_;
  TensorView layer_table_;       // [vocab, layers p]
  TensorView layer_projection_;  // [layers p, d]
  Norm layer_norm_;              // [1, p]
};

std::shared_ptr<const Weights> Weights::Load(std::shared_ptr<const TensorStore> store, ModelConfig& config) {
  return WeightsLoader(std::move(store), config).Load();
}

}  // namespace coppice
