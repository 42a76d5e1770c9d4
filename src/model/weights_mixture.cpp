// The experts of a layer, in the forms in which files have them: all experts in one tensor, gate and up in
// one tensor too, or a tensor for each matrix of each expert.
#include <algorithm>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "model/weights_reader.h"

namespace coppice {

namespace {

// "" where a format has no such tensor. Names of stacked tensors are whole.
struct MixtureNames {
  std::string router, selection_bias;
  std::string gate = {}, up = {}, down = {}, gate_up = {};   // all experts
  std::string each_gate = {}, each_up = {}, each_down = {};  // one expert, whose number {} is
  std::string shared_gate = {}, shared_up = {}, shared_down = {};
  std::string shared_gate_up = {}, shared_router = {};
  // Gemma 4's
  std::string router_scale = {}, expert_scale = {}, expert_norm = {}, post_norm = {}, shared_post_norm = {};
  // Qwen3-VL's and gpt-oss's folders store the matrices of experts the other way round, as [inputs, outputs].
  WeightsReader::Order plain = WeightsReader::Order::kRows;
  bool alternate = false;  // the rows of gate_up: gate, up, gate, up, ...
};

MixtureNames GgufMixtureNames(const std::string& p, bool gemma4) {
  MixtureNames n{.router = p + "ffn_gate_inp",
                 .selection_bias = p + "exp_probs_b.bias",
                 .gate = p + "ffn_gate_exps.weight",
                 .up = p + "ffn_up_exps.weight",
                 .down = p + "ffn_down_exps.weight",
                 .gate_up = p + "ffn_gate_up_exps.weight",
                 .each_gate = p + "ffn_gate.{}",
                 .each_up = p + "ffn_up.{}",
                 .each_down = p + "ffn_down.{}",
                 .shared_gate = p + "ffn_gate_shexp",
                 .shared_up = p + "ffn_up_shexp",
                 .shared_down = p + "ffn_down_shexp",
                 .shared_router = p + "ffn_gate_inp_shexp.weight"};
  if (!gemma4) return n;
  n.shared_gate = p + "ffn_gate";
  n.shared_up = p + "ffn_up";
  n.shared_down = p + "ffn_down";
  n.router_scale = p + "ffn_gate_inp.scale";
  n.expert_scale = p + "ffn_down_exps.scale";
  n.expert_norm = p + "pre_ffw_norm_2.weight";
  n.post_norm = p + "post_ffw_norm_2.weight";
  n.shared_post_norm = p + "post_ffw_norm_1.weight";
  return n;
}

MixtureNames HfGemma4Names(const std::string& p) {
  return {.router = p + "router.proj",
          .selection_bias = p + "router.bias",
          .down = p + "experts.down_proj",
          .gate_up = p + "experts.gate_up_proj",
          .each_gate = p + "experts.{}.gate_proj",
          .each_up = p + "experts.{}.up_proj",
          .each_down = p + "experts.{}.down_proj",
          .shared_gate = p + "mlp.gate_proj",
          .shared_up = p + "mlp.up_proj",
          .shared_down = p + "mlp.down_proj",
          .router_scale = p + "router.scale",
          .expert_scale = p + "router.per_expert_scale",
          .expert_norm = p + "pre_feedforward_layernorm_2.weight",
          .post_norm = p + "post_feedforward_layernorm_2.weight",
          .shared_post_norm = p + "post_feedforward_layernorm_1.weight"};
}

MixtureNames HfLfm2Names(const std::string& p) {
  return {.router = p + "gate",
          .selection_bias = p + "expert_bias",
          .down = p + "experts.down_proj",
          .gate_up = p + "experts.gate_up_proj",
          .each_gate = p + "experts.{}.w1",
          .each_up = p + "experts.{}.w3",
          .each_down = p + "experts.{}.w2"};
}

// Without gates.
MixtureNames HfNemotronNames(const std::string& p) {
  return {.router = p + "gate",
          .selection_bias = p + "gate.e_score_correction_bias",
          .each_up = p + "experts.{}.up_proj",
          .each_down = p + "experts.{}.down_proj",
          .shared_up = p + "shared_experts.up_proj",
          .shared_down = p + "shared_experts.down_proj"};
}

// `layer` ends with a dot.
MixtureNames HfMixtureNames(const WeightsReader& read, const std::string& architecture,
                            const std::string& layer) {
  const auto first_of = [&](const std::vector<std::string>& names, const std::string& end) {
    for (const std::string& name : names) {
      if (read.Has(name + end)) return name;
    }
    return names.front();
  };
  if (architecture == "nemotron_h_moe") return HfNemotronNames(layer + "mixer.");
  if (architecture == "lfm2moe") return HfLfm2Names(layer + "feed_forward.");
  const std::string p = architecture == "granitemoe" || architecture == "granitehybrid" ||
                                read.Has(layer + "block_sparse_moe.gate.weight")
                            ? layer + "block_sparse_moe."
                            : layer + "mlp.";
  const bool numbered = read.Has(p + "experts.0.w1.weight");  // Mixtral's names
  MixtureNames n{.router = first_of({p + "gate", p + "router", p + "router.layer"}, ".weight"),
                 .selection_bias = p + "gate.e_score_correction_bias",
                 .down = first_of({p + "experts.down_proj", p + "output_linear.weight"}, ""),
                 .gate_up = first_of({p + "experts.gate_up_proj", p + "input_linear.weight"}, ""),
                 .each_gate = p + (numbered ? "experts.{}.w1" : "experts.{}.gate_proj"),
                 .each_up = p + (numbered ? "experts.{}.w3" : "experts.{}.up_proj"),
                 .each_down = p + (numbered ? "experts.{}.w2" : "experts.{}.down_proj"),
                 .plain = architecture == "gpt-oss"      ? WeightsReader::Order::kColumns
                          : architecture == "qwen3vlmoe" ? WeightsReader::Order::kEither
                                                         : WeightsReader::Order::kRows,
                 .alternate = architecture == "gpt-oss"};
  n.shared_gate = p + "shared_expert.gate_proj";
  n.shared_up = p + "shared_expert.up_proj";
  n.shared_down = first_of({p + "shared_expert.down_proj", layer + "shared_mlp.output_linear"}, ".weight");
  n.shared_gate_up = layer + "shared_mlp.input_linear";
  n.shared_router = p + "shared_expert_gate.weight";
  return n;
}

class MixtureLoader {
 public:
  MixtureLoader(WeightsReader& read, MixtureNames names, const ModelShape& model, const MixtureShape& shape)
      : read_(read), n_(std::move(names)), hidden_(model.hidden), gated_(model.gated_ffn), s_(shape) {}

  MixtureWeights Load(const ModelConfig& config) {
    w_.router = {read_.Floats(n_.router + ".weight", s_.experts, hidden_),
                 read_.Vector(n_.router + ".bias", s_.experts, false)};
    if (config.router_bias && read_.Has(n_.selection_bias)) {
      if (config.router.kind != RouterKind::kSigmoidTopK)
        read_.Fail(n_.selection_bias, "is not supported for this architecture");
      w_.selection_bias = read_.Vector(n_.selection_bias, s_.experts, true);
    }
    if (gated_ && read_.Has(n_.gate_up)) {
      LoadFused();
    } else if (!n_.up.empty() && !read_.Has(Each(n_.each_up, 0) + ".weight")) {
      if (gated_) Split(n_.gate, s_.width, hidden_, w_.gate);
      Split(n_.up, s_.width, hidden_, w_.up);
      Split(n_.down, hidden_, s_.width, w_.down);
    } else {
      LoadEach();
    }
    if (s_.shared_width > 0) LoadShared();
    if (!n_.router_scale.empty()) LoadNorms();
    return std::move(w_);
  }

 private:
  static std::string Each(const std::string& name, int expert) {
    return fmt::format(fmt::runtime(name), expert);
  }

  // Half `part` of `parts` of the rows of each expert in `all`, with theirs of `biases` [experts, rows].
  void Slice(const TensorView& all, const TensorView& biases, int part, int parts,
             std::vector<Linear>& to) const {
    const int64_t of_expert = all.rows / s_.experts;
    const int64_t rows = of_expert / parts;
    for (int e = 0; e < s_.experts; ++e) {
      TensorView weight = all.Rows(e * of_expert + part * rows, rows);
      TensorView bias = biases.empty() ? biases : biases.Rows(e, 1).Cols(part * rows, rows);
      if (n_.alternate && parts > 1) {
        weight = {all.RowBytes(e * of_expert + part), all.dtype, rows, all.cols, parts * all.stride};
        bias = biases.empty() ? biases : read_.Own(EveryOther(biases.Row<float>(e), part, parts));
      }
      to.push_back({weight, bias});
    }
  }

  static Tensor EveryOther(std::span<const float> all, int first, int step) {
    Tensor some(DType::kF32, 1, std::ssize(all) / step);
    for (size_t i = 0; i < all.size() / static_cast<size_t>(step); ++i)
      some.mutable_view().Row<float>(0)[i] = all[i * static_cast<size_t>(step) + static_cast<size_t>(first)];
    return some;
  }

  // The biases [experts, rows] of a stacked tensor, or an empty view.
  TensorView Biases(const std::string& weight, int64_t rows) {
    constexpr std::string_view kEnd = ".weight";
    const bool has_end = weight.ends_with(kEnd);
    const std::string name =
        has_end ? weight.substr(0, weight.size() - kEnd.size()) + ".bias" : weight + "_bias";
    return read_.Has(name) ? read_.Floats(name, s_.experts, rows) : TensorView();
  }

  void Split(const std::string& name, int64_t rows, int64_t cols, std::vector<Linear>& to) {
    Slice(read_.Stacked(name, s_.experts, rows, cols, n_.plain), Biases(name, rows), 0, 1, to);
  }

  void LoadFused() {
    const TensorView both = read_.Stacked(n_.gate_up, s_.experts, 2 * s_.width, hidden_, n_.plain);
    const TensorView biases = Biases(n_.gate_up, 2 * s_.width);
    Slice(both, biases, 0, 2, w_.gate);
    Slice(both, biases, 1, 2, w_.up);
    Split(n_.down, hidden_, s_.width, w_.down);
  }

  void LoadEach() {
    for (int e = 0; e < s_.experts; ++e) {
      if (gated_) w_.gate.push_back(read_.Map(Each(n_.each_gate, e), s_.width, hidden_, false));
      w_.up.push_back(read_.Map(Each(n_.each_up, e), s_.width, hidden_, false));
      w_.down.push_back(read_.Map(Each(n_.each_down, e), hidden_, s_.width, false));
    }
  }

  void LoadShared() {
    const int64_t width = s_.shared_width;
    if (!n_.shared_gate_up.empty() && read_.Has(n_.shared_gate_up + ".weight")) {
      const TensorView both = read_.Matrix(n_.shared_gate_up + ".weight", 2 * width, hidden_);
      w_.shared_gate = {both.Rows(0, width), {}};
      w_.shared_up = {both.Rows(width, width), {}};
    } else {
      if (gated_) w_.shared_gate = read_.Map(n_.shared_gate, width, hidden_, false);
      w_.shared_up = read_.Map(n_.shared_up, width, hidden_, false);
    }
    w_.shared_down = read_.Map(n_.shared_down, hidden_, width, false);
    if (s_.shared_gate) w_.shared_router = {read_.Floats(n_.shared_router, 1, hidden_), {}};
  }

  // The router's input is norm(x) scale / sqrt(d): the factors go into its matrix.
  void LoadNorms() {
    Tensor ones(DType::kF32, 1, hidden_);
    std::ranges::fill(ones.mutable_view().Row<float>(0), 1.0f);
    w_.router_norm = {read_.Own(std::move(ones)), {}};
    const TensorView scale = read_.Vector(n_.router_scale, hidden_, true);
    Tensor router(DType::kF32, s_.experts, hidden_);
    const float root = std::sqrt(static_cast<float>(hidden_));
    for (int64_t e = 0; e < s_.experts; ++e) {
      for (size_t i = 0; i < static_cast<size_t>(hidden_); ++i) {
        router.mutable_view().Row<float>(e)[i] =
            w_.router.weight.Row<float>(e)[i] * scale.Row<float>(0)[i] / root;
      }
    }
    w_.router.weight = read_.Own(std::move(router));
    w_.expert_scale = read_.Vector(n_.expert_scale, s_.experts, true);
    w_.expert_norm = {read_.Vector(n_.expert_norm, hidden_, true), {}};
    w_.post_norm = {read_.Vector(n_.post_norm, hidden_, true), {}};
    w_.shared_post_norm = {read_.Vector(n_.shared_post_norm, hidden_, true), {}};
  }

  WeightsReader& read_;
  MixtureNames n_;
  int64_t hidden_;
  bool gated_;
  const MixtureShape& s_;
  MixtureWeights w_;
};

}  // namespace

MixtureWeights LoadMixture(WeightsReader& read, const ModelConfig& config, const std::string& prefix,
                           const LayerShape& layer) {
  const bool gemma4 = config.gemma4_layers;
  MixtureNames names = !config.hf_names ? GgufMixtureNames(prefix, gemma4)
                       : gemma4         ? HfGemma4Names(prefix)
                                        : HfMixtureNames(read, config.shape.architecture, prefix);
  return MixtureLoader(read, std::move(names), config.shape, layer.mixture).Load(config);
}

}  // namespace coppice
