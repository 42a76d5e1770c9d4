#include "model/config.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <vector>

#include "base/limits.h"
#include "model/architectures.h"
#include "model/config_gemma4.h"
#include "model/config_keys.h"
#include "model/config_mixture.h"
#include "model/config_recurrent.h"
#include "model/config_rope.h"
#include "model/config_shape.h"

namespace coppice {

namespace {

// What other architectures do, and this one's layer does not: a file with such a key is not what it says.
void RefuseOthers(const GgufMetadata& m, const std::string& prefix, const Architecture& row) {
  for (const auto& [key, neutral] : {std::pair{"embedding_scale", 1.0}, std::pair{"residual_scale", 1.0},
                                     std::pair{"logit_scale", 1.0}, std::pair{"attention.clamp_kqv", 0.0}}) {
    if (row.multipliers && neutral == 1) continue;
    if (row.capped_logits && key == std::string_view("logit_scale")) continue;
    const double value = m.Number(prefix + key).value_or(neutral);
    if (value != neutral)
      Refuse(m.path(), prefix + key, fmt::format("= {} is not supported for this architecture", value));
  }
  if (!m.Bool(prefix + "attention.causal").value_or(true))
    Refuse(m.path(), prefix + "attention.causal", "= false is not supported");
}

// llama.cpp's files of Nemotron-H have the epsilon of RMS norms under the other name.
std::string GgufEpsKey(const GgufMetadata& m, const std::string& prefix, const Architecture& row) {
  const std::string rms = prefix + "attention.layer_norm_rms_epsilon";
  const bool other = row.norm == NormKind::kLayer || (row.one_mixer && !m.Has(rms));
  return other ? prefix + "attention.layer_norm_epsilon" : rms;
}

}  // namespace

ModelConfig ConfigFromGguf(const GgufMetadata& m) {
  const std::optional<std::string> given = m.String("general.architecture");
  if (!given) Refuse(m.path(), "general.architecture", "is missing");
  const std::string& name = *given;
  const Architecture& row = ArchitectureOfGguf(name, m.path(), "general.architecture");
  ModelConfig c;
  ApplyArchitecture(row, c);
  c.shape.name = m.String("general.name").value_or("");
  const std::string p = name + ".";
  const KeyReader read{m.path(), [&](const std::string& k) { return m.Integer(k); },
                       [&](const std::string& k) { return m.Number(k); },
                       [&](const std::string& k) { return m.IsArray(k) ? m.Integers(k) : std::nullopt; }};
  // A layer without heads of keys has a state instead, and one without a width has no FFN, which
  // ReadGgufMixers sees to.
  KeyReader of_shape = read;
  of_shape.list = [&](const std::string& k) {
    std::optional<std::vector<int64_t>> values = read.list(k);
    const bool may_lack = (row.state != MixerKind::kAttention && k == p + "attention.head_count_kv") ||
                          (row.one_mixer && k == p + "feed_forward_length");
    if (!may_lack || !values || values->empty()) return values;
    std::ranges::replace(*values, 0, std::max<int64_t>(1, std::ranges::max(*values)));
    return values;
  };
  RefuseOthers(m, p, row);
  ReadShape(of_shape,
            {p + "block_count", p + "embedding_length", GgufFfnKey(m, p, row.mixture),
             p + "attention.head_count", p + "attention.head_count_kv", p + "attention.key_length",
             p + "vocab_size", p + "context_length", GgufEpsKey(m, p, row)},
            std::nullopt, c);
  ReadGgufMixture(m, read, p, row.mixture, c);
  ReadGgufPositions(m, read, p, row.positions, c);
  SetOutputGates(row, c);
  ReadGgufMixers(m, read, p, row, c);
  if (row.gemma4_layers) ReadGgufGemma4(read, p, c);
  RefuseSoftcap(read, p + "attn_logit_softcapping");
  const std::string cap = p + "final_logit_softcapping";
  if (row.gemma4_layers) {
    // ReadGgufGemma4 has read it
  } else if (row.capped_logits) {
    ReadLogits(read, {p + "logit_scale", cap, /*may_lack_cap=*/true}, c);
  } else {
    RefuseSoftcap(read, cap);
  }
  if (row.scaled_embedding) c.embedding_scale = std::sqrt(static_cast<double>(c.shape.hidden));
  const std::string scale = p + "attention.scale";
  if (row.multipliers) {
    ReadMultipliers(read, {p + "embedding_scale", p + "residual_scale", scale, p + "logit_scale"}, c);
  } else if (read.number(scale)) {
    c.attention_scale = read.Positive(scale, 1);
  } else if (name == "gemma3" && c.shape.layer_count() == 62) {
    // The 27b model alone divides by sqrt(hidden / heads), and only its depth tells, as in llama.cpp.
    c.attention_scale = 1 / std::sqrt(static_cast<double>(c.shape.hidden) / c.shape.layer(0).heads);
  }
  return c;
}

bool KeysDependOnLength(const ModelConfig& c, int64_t context) {
  return std::ranges::any_of(c.ropes, [&](const RopeConfig& rope) {
    return rope.scaling == RopeConfig::Scaling::kLongRope && rope.short_factors != rope.long_factors &&
           context > rope.original_context;
  });
}

Activation ActivationOf(FfnKind ffn) {
  switch (ffn) {
    case FfnKind::kGeGlu:
      return Activation::kGelu;
    case FfnKind::kSwiGluOai:
      return Activation::kSwiGluOai;
    case FfnKind::kReluSquared:
      return Activation::kRelu;
    case FfnKind::kSwiGlu:
    case FfnKind::kGelu:
      break;
  }
  return Activation::kSilu;
}

float AttentionScale(const ModelConfig& c, const LayerShape& layer) {
  if (c.attention_scale > 0) return static_cast<float>(c.attention_scale);
  return 1 / std::sqrt(static_cast<float>(layer.head_dim));
}

std::vector<float> AlibiSlopes(int heads) {
  // Press et al. 2022 (ALiBi): a geometric sequence that starts at 2^(-8/n). If n is not a power of two: the
  // sequence of the next lower power, then every second element of that of the next higher power.
  const auto sequence = [](int n, int i) { return std::pow(2.0, -8.0 * (i + 1) / n); };
  int power = 1;
  while (2 * power <= heads) power *= 2;
  std::vector<float> slopes;
  for (int h = 0; h < heads; ++h) {
    slopes.push_back(
        static_cast<float>(h < power ? sequence(power, h) : sequence(2 * power, 2 * (h - power))));
  }
  return slopes;
}

}  // namespace coppice
