// The experts of a layer, in the forms in which files have them: all experts in one tensor, gate and up in
// one tensor too, or a tensor for each matrix of each expert.
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
  // Qwen3-VL's folders store the matrices of experts the other way round, as [inputs, outputs].
  bool may_be_turned = false;
};

MixtureNames GgufMixtureNames(const std::string& p) {
  return {.router = p + "ffn_gate_inp",
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
  const std::string p = architecture == "granitemoe" || read.Has(layer + "block_sparse_moe.gate.weight")
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
                 .may_be_turned = architecture == "qwen3vlmoe"};
  n.shared_gate = p + "shared_expert.gate_proj";
  n.shared_up = p + "shared_expert.up_proj";
  n.shared_down = first_of({p + "shared_expert.down_proj", layer + "shared_mlp.output_linear"}, ".weight");
  n.shared_gate_up = layer + "shared_mlp.input_linear";
  n.shared_router = p + "shared_expert_gate.weight";
  return n;
}

class MixtureLoader {
 public:
  MixtureLoader(WeightsReader& read, MixtureNames names, int64_t hidden, const MixtureShape& shape)
      : read_(read), n_(std::move(names)), hidden_(hidden), s_(shape) {}

  MixtureWeights Load(RouterKind kind) {
    w_.router = {read_.Floats(n_.router + ".weight", s_.experts, hidden_),
                 read_.Vector(n_.router + ".bias", s_.experts, false)};
    if (read_.Has(n_.selection_bias)) {
      if (kind != RouterKind::kSigmoidTopK)
        read_.Fail(n_.selection_bias, "is not supported for this architecture");
      w_.selection_bias = read_.Vector(n_.selection_bias, s_.experts, true);
    }
    if (read_.Has(n_.gate_up)) {
      LoadFused();
    } else if (!n_.gate.empty() && !read_.Has(Each(n_.each_gate, 0) + ".weight")) {
      Split(n_.gate, s_.width, hidden_, w_.gate);
      Split(n_.up, s_.width, hidden_, w_.up);
      Split(n_.down, hidden_, s_.width, w_.down);
    } else {
      LoadEach();
    }
    if (s_.shared_width > 0) LoadShared();
    return std::move(w_);
  }

 private:
  static std::string Each(const std::string& name, int expert) {
    return fmt::format(fmt::runtime(name), expert);
  }

  // Rows [begin, begin + rows) of every expert's `of_expert` rows in `all`.
  void Slice(const TensorView& all, const TensorView& bias, int64_t of_expert, int64_t begin, int64_t rows,
             std::vector<Linear>& to) const {
    for (int e = 0; e < s_.experts; ++e) {
      to.push_back(
          {all.Rows(e * of_expert + begin, rows), bias.empty() ? bias : bias.Rows(e, 1).Cols(begin, rows)});
    }
  }

  // The biases [experts, rows] of a stacked tensor, or an empty view.
  TensorView Biases(const std::string& weight, int64_t rows) {
    constexpr std::string_view kEnd = ".weight";
    if (!weight.ends_with(kEnd)) return {};
    const std::string name = weight.substr(0, weight.size() - kEnd.size()) + ".bias";
    return read_.Has(name) ? read_.Floats(name, s_.experts, rows) : TensorView();
  }

  void Split(const std::string& name, int64_t rows, int64_t cols, std::vector<Linear>& to) {
    const TensorView all = read_.Stacked(name, s_.experts, rows, cols, n_.may_be_turned);
    Slice(all, Biases(name, rows), rows, 0, rows, to);
  }

  void LoadFused() {
    const TensorView both = read_.Stacked(n_.gate_up, s_.experts, 2 * s_.width, hidden_, n_.may_be_turned);
    const TensorView bias = Biases(n_.gate_up, 2 * s_.width);
    Slice(both, bias, 2 * s_.width, 0, s_.width, w_.gate);
    Slice(both, bias, 2 * s_.width, s_.width, s_.width, w_.up);
    Split(n_.down, hidden_, s_.width, w_.down);
  }

  void LoadEach() {
    for (int e = 0; e < s_.experts; ++e) {
      w_.gate.push_back(read_.Map(Each(n_.each_gate, e), s_.width, hidden_, false));
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
      w_.shared_gate = read_.Map(n_.shared_gate, width, hidden_, false);
      w_.shared_up = read_.Map(n_.shared_up, width, hidden_, false);
    }
    w_.shared_down = read_.Map(n_.shared_down, hidden_, width, false);
    if (s_.shared_gate) w_.shared_router = {read_.Floats(n_.shared_router, 1, hidden_), {}};
  }

  WeightsReader& read_;
  MixtureNames n_;
  int64_t hidden_;
  const MixtureShape& s_;
  MixtureWeights w_;
};

}  // namespace

MixtureWeights LoadMixture(WeightsReader& read, const ModelConfig& config, const std::string& prefix,
                           const LayerShape& layer) {
  MixtureNames names =
      config.hf_names ? HfMixtureNames(read, config.shape.architecture, prefix) : GgufMixtureNames(prefix);
  return MixtureLoader(read, std::move(names), config.shape.hidden, layer.mixture).Load(config.router.kind);
}

}  // namespace coppice
