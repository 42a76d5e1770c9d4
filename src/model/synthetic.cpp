#include "model/synthetic.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "base/fnv.h"
#include "base/random.h"
#include "formats/gguf_writer.h"
#include "formats/quants.h"
#include "tensor/tensor.h"

namespace coppice {

namespace {

// llama.cpp's `general.file_type` for a file whose matrices have one type; some readers refuse a file without
// it.
uint32_t GgufFileType(DType type) {
  switch (type) {
    case DType::kF32:
      return 0;
    case DType::kF16:
      return 1;
    case DType::kQ4_0:
      return 2;
    case DType::kQ4_1:
      return 3;
    case DType::kQ8_0:
      return 7;
    case DType::kQ5_0:
      return 8;
    case DType::kQ5_1:
      return 9;
    case DType::kQ2_K:
      return 10;
    case DType::kQ3_K:
      return 11;
    case DType::kQ4_K:
      return 14;
    case DType::kQ5_K:
      return 16;
    case DType::kQ6_K:
      return 18;
    case DType::kIQ4_NL:
      return 25;
    case DType::kIQ4_XS:
      return 30;
    case DType::kIQ2_XXS:
      return 19;
    case DType::kIQ2_XS:
      return 20;
    case DType::kIQ2_S:
      return 28;
    case DType::kIQ3_XXS:
      return 23;
    case DType::kIQ3_S:
      return 26;
    case DType::kMXFP4:
      return 38;
    case DType::kBF16:
      return 32;
  }
  COPPICE_CHECK(false);
}

class SyntheticStore final : public TensorStore {
 public:
  explicit SyntheticStore(const SyntheticModel& model) : path_(model.shape_name + " (random weights)") {
    const ThreadPool pool(UsableCores());
    for (const SyntheticModel::TensorPlan& plan : model.Tensors()) {
      int64_t rows = 1;
      for (size_t i = 0; i + 1 < plan.shape.size(); ++i) rows *= plan.shape[i];
      Tensor tensor(plan.type, rows, plan.shape.back());
      FillSynthetic(plan, {tensor.mutable_view().data, static_cast<size_t>(tensor.bytes())}, pool);
      owned_.push_back(std::move(tensor));
      index_[plan.name] = tensors_.size();
      tensors_.push_back({plan.name, plan.shape, owned_.back().view()});
    }
  }
  const std::string& path() const override { return path_; }
  const std::vector<StoredTensor>& tensors() const override { return tensors_; }
  const StoredTensor* Find(std::string_view name) const override {
    const auto it = index_.find(name);
    return it == index_.end() ? nullptr : &tensors_[it->second];
  }

 private:
  std::string path_;
  std::vector<Tensor> owned_;
  std::vector<StoredTensor> tensors_;
  std::map<std::string, size_t, std::less<>> index_;
};

constexpr const char* kRopeFactors = "rope_freqs.weight";

// As llama.cpp's converter stores them: the router and biases in fp32, all experts in one tensor.
void AddExperts(const std::string& p, int64_t hidden, const MixtureShape& m, DType type, bool biases,
                std::vector<SyntheticModel::TensorPlan>& plans) {
  if (biases) {
    plans.push_back({p + "ffn_gate_inp.bias", {m.experts}, DType::kF32});
    plans.push_back({p + "ffn_gate_exps.bias", {m.experts, m.width}, DType::kF32});
    plans.push_back({p + "ffn_up_exps.bias", {m.experts, m.width}, DType::kF32});
    plans.push_back({p + "ffn_down_exps.bias", {m.experts, hidden}, DType::kF32});
  }
  plans.push_back({p + "ffn_gate_inp.weight", {m.experts, hidden}, DType::kF32});
  plans.push_back({p + "ffn_gate_exps.weight", {m.experts, m.width, hidden}, type});
  plans.push_back({p + "ffn_up_exps.weight", {m.experts, m.width, hidden}, type});
  plans.push_back({p + "ffn_down_exps.weight", {m.experts, hidden, m.width}, type});
}

// Of a gated delta rule, as llama.cpp's converter stores it.
void AddStateTensors(const std::string& p, int64_t hidden, const RecurrentShape& s, DType type,
                     std::vector<SyntheticModel::TensorPlan>& plans) {
  plans.push_back({p + "attn_qkv.weight", {s.channels, hidden}, type});
  plans.push_back({p + "attn_gate.weight", {s.value_width(), hidden}, type});
  plans.push_back({p + "ssm_alpha.weight", {s.value_heads, hidden}, type});
  plans.push_back({p + "ssm_beta.weight", {s.value_heads, hidden}, type});
  plans.push_back({p + "ssm_conv1d.weight", {s.channels, s.taps}, DType::kF32});
  plans.push_back({p + "ssm_a", {s.value_heads}, DType::kF32});
  plans.push_back({p + "ssm_dt.bias", {s.value_heads}, DType::kF32});
  plans.push_back({p + "ssm_norm.weight", {s.value_dim}, DType::kF32});
  plans.push_back({p + "ssm_out.weight", {hidden, s.value_width()}, type});
}

// As llama.cpp's converter stores them: a shared expert beside the others.
void AddSharedExpert(const std::string& p, int64_t hidden, const MixtureShape& m, DType type,
                     std::vector<SyntheticModel::TensorPlan>& plans) {
  if (m.shared_width == 0) return;
  plans.push_back({p + "ffn_gate_shexp.weight", {m.shared_width, hidden}, type});
  plans.push_back({p + "ffn_up_shexp.weight", {m.shared_width, hidden}, type});
  plans.push_back({p + "ffn_down_shexp.weight", {hidden, m.shared_width}, type});
  if (m.shared_gate) plans.push_back({p + "ffn_gate_inp_shexp.weight", {1, hidden}, DType::kF32});
}

// Of all layers in one tensor each, and the factors of Gemma 4's ropes in layers without a window.
void AddLayerEmbeddings(const ModelShape& s, DType type, std::vector<SyntheticModel::TensorPlan>& plans) {
  const int64_t width = std::ssize(s.AllLayers()) * s.layer_embedding;
  plans.push_back({"per_layer_token_embd.weight", {s.vocab, width}, type});
  plans.push_back({"per_layer_model_proj.weight", {width, s.hidden}, type});
  plans.push_back({"per_layer_proj_norm.weight", {s.layer_embedding}, DType::kF32});
  plans.push_back({kRopeFactors, {s.layer(0).head_dim}, DType::kF32});
}

}  // namespace

std::vector<SyntheticModel::TensorPlan> SyntheticModel::Tensors() const {
  const ModelShape& s = config.shape;
  const bool bloom = config.all_biases;
  std::vector<TensorPlan> plans;
  const auto matrix = [&](const std::string& name, int64_t rows, int64_t cols) {
    plans.push_back({name + ".weight", {rows, cols}, other_type()});
  };
  const auto vector = [&](const std::string& name, int64_t size) {
    plans.push_back({name, {size}, DType::kF32});
  };
  const auto norm = [&](const std::string& name) {
    vector(name + ".weight", s.hidden);
    if (bloom) vector(name + ".bias", s.hidden);
  };
  const auto extra_norms = [&](const std::string& p, const LayerShape& layer) {
    if (config.head_norms) vector(p + "attn_q_norm.weight", layer.head_dim);
    if (config.head_norms && layer.keys_of == kOwnKeys) vector(p + "attn_k_norm.weight", layer.head_dim);
    if (s.post_norms) norm(p + "post_attention_norm");
    if (s.post_norms) norm(p + "post_ffw_norm");
  };
  const auto add_ffn = [&](const std::string& p, const LayerShape& layer) {
    norm(p + config.gguf_ffn_norm);
    if (layer.mixture.experts > 0) {
      AddExperts(p, s.hidden, layer.mixture, type, /*biases=*/config.sinks, plans);
      return AddSharedExpert(p, s.hidden, layer.mixture, other_type(), plans);
    }
    if (s.gated_ffn) matrix(p + "ffn_gate", layer.ffn, s.hidden);
    matrix(p + "ffn_up", layer.ffn, s.hidden);
    if (bloom) vector(p + "ffn_up.bias", layer.ffn);
    matrix(p + "ffn_down", s.hidden, layer.ffn);
    if (bloom) vector(p + "ffn_down.bias", s.hidden);
  };
  matrix("token_embd", s.vocab, s.hidden);
  if (config.embedding_norm == EmbeddingNorm::kStored) norm("token_embd_norm");
  const std::vector<LayerShape> layers = s.AllLayers();
  if (s.layer_embedding > 0) AddLayerEmbeddings(s, other_type(), plans);
  for (size_t l = 0; l < layers.size(); ++l) {
    const std::string p = fmt::format("blk.{}.", l);
    const LayerShape& layer = layers[l];
    const int64_t q = layer.query_width();
    const int64_t kv = layer.key_width();
    norm(p + "attn_norm");
    if (!layer.attends()) {
      AddStateTensors(p, s.hidden, layer.recurrent, other_type(), plans);
      add_ffn(p, layer);
      continue;
    }
    if (bloom) {
      matrix(p + "attn_qkv", q + 2 * kv, s.hidden);
      vector(p + "attn_qkv.bias", q + 2 * kv);
    } else {
      matrix(p + "attn_q", config.gate_in_query ? 2 * q : q, s.hidden);
      if (layer.keys_of == kOwnKeys) matrix(p + "attn_k", kv, s.hidden);
      if (layer.keys_of == kOwnKeys) matrix(p + "attn_v", kv, s.hidden);
      if (config.qkv_bias) {
        vector(p + "attn_q.bias", q);
        vector(p + "attn_k.bias", kv);
        vector(p + "attn_v.bias", kv);
      }
    }
    matrix(p + "attn_output", s.hidden, q);
    if (layer.output_gate && !config.gate_in_query) matrix(p + "attn_gate", q, s.hidden);
    if (bloom || config.sinks) vector(p + "attn_output.bias", s.hidden);
    if (config.sinks) vector(p + "attn_sinks.weight", layer.heads);
    extra_norms(p, layer);
    if (s.layer_embedding > 0) {
      matrix(p + "inp_gate", s.layer_embedding, s.hidden);
      matrix(p + "proj", s.hidden, s.layer_embedding);
      norm(p + "post_norm");
      vector(p + "layer_output_scale.weight", 1);
    }
    add_ffn(p, layer);
  }
  norm("output_norm");
  if (!config.tied_head) matrix("output", s.vocab, s.hidden);
  return plans;
}

void FillSynthetic(const SyntheticModel::TensorPlan& plan, std::span<std::byte> bytes,
                   const ThreadPool& pool) {
  const int64_t cols = plan.shape.back();
  const int64_t row_bytes = BytesOf(plan.type, cols);
  const auto rows = static_cast<int64_t>(bytes.size()) / row_bytes;
  const uint64_t seed = Fnv1a(plan.name);
  const bool is_bias = plan.name.ends_with(".bias");
  const bool is_rate = plan.name.ends_with("ssm_a");
  const bool is_norm = plan.shape.size() == 1 && !is_bias;
  // Uniform with variance 1 / inputs, so that the layers do not scale activations up or down.
  const float scale = std::sqrt(3.0f / static_cast<float>(cols)) * 0x1p-31f;
  pool.For(rows, 16, [&](int64_t begin, int64_t end, int) {
    std::vector<float> row(static_cast<size_t>(cols));
    for (int64_t r = begin; r < end; ++r) {
      for (int64_t c = 0; c < cols; ++c) {
        const auto bits =
            static_cast<int32_t>(Random::Mix(seed + static_cast<uint64_t>(r * cols + c) * Random::kStep));
        row[static_cast<size_t>(c)] = is_rate   ? -0.1f
                                      : is_norm ? 1.0f
                                      : is_bias ? 0.0f
                                                : scale * static_cast<float>(bits);
        if (plan.name == kRopeFactors && c >= cols / 4)
          row[static_cast<size_t>(c)] = 1e30f;  // they do not turn
      }
      QuantizeRow(plan.type, row, bytes.data() + r * row_bytes);
    }
  });
}

std::shared_ptr<const TensorStore> MakeSyntheticStore(const SyntheticModel& model) {
  return std::make_shared<SyntheticStore>(model);
}

// A byte-level BPE vocabulary of the 256 bytes in GPT-2's alphabet: it tokenises any text, one token per
// byte. Every engine that reads GGUF supports this kind. Some need at least one merge, so it merges two
// spaces.
void AddTokenizer(int64_t vocab, GgufWriter& writer) {
  std::vector<std::string> tokens = {"<unk>", "<s>", "</s>"};
  std::vector<int32_t> types(tokens.size(), 3);  // control
  int shifted = 0;
  for (int b = 0; b < 256; ++b) {
    const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
    const int code = printable ? b : 256 + shifted++;
    std::string utf8;
    if (code < 128) {
      utf8 = static_cast<char>(code);
    } else {
      utf8 = {static_cast<char>(0xc0 | code >> 6), static_cast<char>(0x80 | (code & 0x3f))};
    }
    tokens.push_back(std::move(utf8));
    types.push_back(1);  // normal
  }
  const std::string space = "\u0120";
  tokens.push_back(space + space);
  types.push_back(1);
  while (static_cast<int64_t>(tokens.size()) < vocab) {
    tokens.push_back(fmt::format("<filler_{}>", tokens.size()));
    types.push_back(5);  // unused
  }
  writer.Add("tokenizer.ggml.model", "gpt2");
  writer.Add("tokenizer.ggml.pre", "llama-bpe");
  writer.Add("tokenizer.ggml.tokens", tokens);
  writer.Add("tokenizer.ggml.token_type", types);
  writer.Add("tokenizer.ggml.merges", std::vector<std::string>{space + " " + space});
  writer.Add("tokenizer.ggml.bos_token_id", uint32_t{1});
  writer.Add("tokenizer.ggml.eos_token_id", uint32_t{2});
  writer.Add("tokenizer.ggml.unknown_token_id", uint32_t{0});
}

// What the layers of Gemma 4 differ in.
void AddGemma4Keys(const ModelConfig& c, const std::string& p, GgufWriter& writer) {
  std::vector<int32_t> widths;
  std::vector<bool> windowed;
  for (const LayerShape& layer : c.shape.AllLayers()) {
    widths.push_back(static_cast<int32_t>(layer.ffn));
    windowed.push_back(layer.window > 0);
  }
  writer.Add(p + "feed_forward_length", widths);
  writer.Add(p + "attention.sliding_window_pattern", windowed);
  const auto size = static_cast<uint32_t>(c.shape.layer(0).head_dim);
  for (const char* of : {"key", "value"}) {
    writer.Add(fmt::format("{}attention.{}_length", p, of), 2 * size);
    writer.Add(fmt::format("{}attention.{}_length_swa", p, of), size);
  }
  writer.Add(p + "rope.dimension_count_swa", size);
  writer.Add(p + "rope.freq_base_swa", static_cast<float>(c.ropes[1].base));
  writer.Add(p + "attention.shared_kv_layers", static_cast<uint32_t>(c.shape.tail.size()));
  writer.Add(p + "embedding_length_per_layer_input", static_cast<uint32_t>(c.shape.layer_embedding));
}

// What the layers that do not attend have.
void AddStateKeys(const ModelShape& s, const std::string& p, GgufWriter& writer) {
  std::vector<bool> recurrent;
  for (const LayerShape& layer : s.layers) recurrent.push_back(!layer.attends());
  const RecurrentShape& state = s.layer(0).recurrent;
  writer.Add(p + "attention.recurrent_layers", recurrent);
  writer.Add(p + "full_attention_interval", uint32_t{4});
  writer.Add(p + "ssm.conv_kernel", static_cast<uint32_t>(state.taps));
  writer.Add(p + "ssm.state_size", static_cast<uint32_t>(state.key_dim));
  writer.Add(p + "ssm.group_count", static_cast<uint32_t>(state.key_heads));
  writer.Add(p + "ssm.time_step_rank", static_cast<uint32_t>(state.value_heads));
  writer.Add(p + "ssm.inner_size", static_cast<uint32_t>(state.value_width()));
  writer.Add(p + "rope.dimension_sections", std::vector<int32_t>{11, 11, 10, 0});
}

void WriteSyntheticGguf(const SyntheticModel& model, const std::string& path,
                        const std::atomic<bool>* cancelled) {
  const ModelConfig& c = model.config;
  const ModelShape& s = c.shape;
  // The layers of a known shape that attend differ in their windows alone.
  const LayerShape& layer = s.FirstAttending();
  const std::string p = s.architecture + ".";
  GgufWriter writer;
  const auto count = [&](const std::string& key, int64_t value) {
    writer.Add(p + key, static_cast<uint32_t>(value));
  };
  writer.Add("general.architecture", s.architecture);
  writer.Add("general.name", model.shape_name + " (random weights)");
  writer.Add("general.file_type", GgufFileType(model.type));
  writer.Add("general.quantization_version", uint32_t{2});
  count("context_length", c.context);
  count("embedding_length", s.hidden);
  count("block_count", std::ssize(s.AllLayers()));
  if (layer.ffn > 0 && s.tail.empty()) count("feed_forward_length", layer.ffn);
  if (layer.mixture.experts > 0) {
    count("expert_count", layer.mixture.experts);
    count("expert_used_count", layer.mixture.used);
    count("expert_feed_forward_length", layer.mixture.width);
    if (layer.mixture.shared_width > 0)
      count("expert_shared_feed_forward_length", layer.mixture.shared_width);
  }
  if (s.HasStates()) AddStateKeys(s, p, writer);
  count("attention.head_count", layer.heads);
  count("attention.head_count_kv", layer.kv_heads);
  count("vocab_size", s.vocab);
  if (!s.tail.empty()) {
    AddGemma4Keys(c, p, writer);
  } else if (layer.query_width() != s.hidden) {
    count("attention.key_length", layer.head_dim);
    count("attention.value_length", layer.head_dim);
  }
  if (s.NarrowestWindow() > 0) count("attention.sliding_window", s.NarrowestWindow());
  const bool rms = c.norm == NormKind::kRms;
  writer.Add(p + (rms ? "attention.layer_norm_rms_epsilon" : "attention.layer_norm_epsilon"),
             static_cast<float>(c.norm_eps));
  if (!c.shape.alibi) {
    const RopeConfig& rope = c.ropes.front();
    count("rope.dimension_count", rope.dims);
    writer.Add(p + "rope.freq_base", static_cast<float>(rope.base));
    if (rope.scaling == RopeConfig::Scaling::kYarn) {
      writer.Add(p + "rope.scaling.type", "yarn");
      writer.Add(p + "rope.scaling.factor", static_cast<float>(rope.factor));
      count("rope.scaling.original_context_length", rope.original_context);
    }
  }
  if (c.logit_cap > 0) {
    if (c.logit_scale != 1) writer.Add(p + "logit_scale", static_cast<float>(c.logit_scale));
    writer.Add(p + "final_logit_softcapping", static_cast<float>(c.logit_cap));
  }
  AddTokenizer(s.vocab, writer);

  const ThreadPool pool(UsableCores());
  for (const SyntheticModel::TensorPlan& plan : model.Tensors()) {
    writer.AddTensor(plan.name, plan.type, plan.shape, [&pool, plan, cancelled](std::span<std::byte> bytes) {
      if (cancelled != nullptr && *cancelled) throw Cancelled();
      FillSynthetic(plan, bytes, pool);
    });
  }
  writer.Write(path);
}

}  // namespace coppice
