#include "model/config_shape.h"

#include <algorithm>
#include <vector>

#include "base/limits.h"

namespace coppice {

void ApplyArchitecture(const Architecture& row, ModelConfig& c) {
  c.shape.architecture = row.gguf;
  c.shape.gated_ffn = row.ffn != FfnKind::kGelu && row.ffn != FfnKind::kReluSquared;
  c.shape.alibi = row.alibi;
  c.shape.post_norms = row.post_norms;
  c.norm = row.norm;
  c.ffn = row.ffn;
  c.qkv_bias = row.qkv_bias;
  c.all_biases = row.all_biases;
  c.embedding_norm = row.embedding_norm;
  c.head_norms = row.head_norm != HeadNorm::kNone;
  c.whole_norms = row.head_norm == HeadNorm::kWholeWidth;
  c.pre_norms = row.pre_norms;
  c.sinks = row.sinks;
  c.gemma4_layers = row.gemma4_layers;
  c.post_norm_eps = row.post_norm_eps;
  c.gguf_ffn_norm = row.gguf_ffn_norm;
  c.fused_hf = row.fused;
  c.names = row.names;
}

void ReadShape(const KeyReader& read, const ShapeKeys& keys, std::optional<int64_t> default_ffn,
               ModelConfig& c) {
  ModelShape& s = c.shape;
  const auto count = static_cast<int>(read.Count(keys.layers, limits::kMaxLayers));
  s.hidden = read.Count(keys.hidden, limits::kMaxHidden);
  const std::vector<int64_t> heads = read.Counts(keys.heads, limits::kMaxHeads, count);
  const std::vector<int64_t> kv_heads = read.Counts(keys.kv_heads, limits::kMaxHeads, count, heads);
  std::vector<int64_t> even;  // the heads share the hidden size
  for (const int64_t h : heads) even.push_back(std::max<int64_t>(1, s.hidden / h));
  const bool has_head_dim = read.Has(keys.head_dim);
  const std::vector<int64_t> head_dim = read.Counts(keys.head_dim, limits::kMaxHeadDim, count, even);
  std::vector<int64_t> usual_ffn;
  if (default_ffn) usual_ffn.assign(heads.size(), *default_ffn * s.hidden);
  const std::vector<int64_t> ffn = read.Counts(keys.ffn, limits::kMaxHidden, count, usual_ffn);
  for (size_t l = 0; l < heads.size(); ++l) {
    if (heads[l] % kv_heads[l] != 0) {
      Refuse(read.path, keys.kv_heads,
             fmt::format("= {} does not divide {} = {}", kv_heads[l], keys.heads, heads[l]));
    }
    if (!has_head_dim && s.hidden % heads[l] != 0) {
      Refuse(read.path, keys.heads,
             fmt::format("= {} does not divide {} = {}", heads[l], keys.hidden, s.hidden));
    }
    s.layers.push_back({.heads = static_cast<int>(heads[l]),
                        .kv_heads = static_cast<int>(kv_heads[l]),
                        .head_dim = static_cast<int>(head_dim[l]),
                        .rope = s.alibi ? kNoRope : 0,
                        .ffn = ffn[l]});
  }
  c.context = read.Count(keys.context, limits::kMaxContext, 2048);
  c.norm_eps = read.Positive(keys.eps, 1e-5);
}

void RefuseSoftcap(const KeyReader& read, const std::string& key) {
  const double cap = read.number(key).value_or(0);
  if (cap != 0) Refuse(read.path, key, fmt::format("= {} is not supported", cap));
}

void SetOutputGates(const Architecture& row, ModelConfig& c) {
  c.gate_in_query = row.output_gate == OutputGate::kInQuery;
  for (LayerShape& layer : c.shape.layers) layer.output_gate = row.output_gate != OutputGate::kNone;
}

double ReadMultiplier(const KeyReader& read, const std::string& key) {
  constexpr double kMost = 1e6;  // far from what fp32 holds, also squared; models have 0.1 to 12
  const double value = read.Positive(key, 1);
  if (value > kMost || value < 1 / kMost)
    Refuse(read.path, key, fmt::format("= {} is not from {:g} to {:g}", value, 1 / kMost, kMost));
  return value;
}

void ReadMultipliers(const KeyReader& read, const MultiplierKeys& keys, ModelConfig& c) {
  const double residual = ReadMultiplier(read, keys.residual);
  // x + r f(norm(x)) for every layer is r times u + f(norm(u)) with u = x / r, and norm(u) is norm(x) where
  // the norm's epsilon shrinks with the square: so the layer needs no multiplier. No architecture with
  // multipliers has norms elsewhere.
  c.embedding_scale = ReadMultiplier(read, keys.embedding) / residual;
  c.norm_eps /= residual * residual;
  if (read.number(keys.attention)) c.attention_scale = ReadMultiplier(read, keys.attention);
  c.logit_scale = 1 / ReadMultiplier(read, keys.logits);
}

void ReadLogits(const KeyReader& read, const LogitKeys& keys, ModelConfig& c) {
  const auto required = [&](const std::string& key) {
    if (!read.number(key)) Refuse(read.path, key, "is missing");
    return ReadMultiplier(read, key);
  };
  c.logit_scale = required(keys.scale);
  if (!keys.may_lack_cap || read.number(keys.cap).value_or(0) != 0) c.logit_cap = required(keys.cap);
}

}  // namespace coppice
