#include "model/tensor_names.h"

namespace coppice {

namespace {

// A block has one norm, whatever it is.
TensorNames NemotronNames() {
  return {"backbone.embeddings",
          "",
          "backbone.norm_f",
          "lm_head",
          "backbone.layers.{}.",
          "norm",
          "mixer.q_proj",
          "mixer.k_proj",
          "mixer.v_proj",
          "",
          "mixer.o_proj",
          "norm",
          "",
          "mixer.up_proj",
          "mixer.down_proj"};
}

// What stands before the names of a text model's tensors; folders with several models have more before them.
std::string HfPrefix(const TensorStore& store) {
  for (const char* prefix : {"model.", "model.language_model.", "language_model.model.", ""}) {
    if (store.Find(std::string(prefix) + "embed_tokens.weight") != nullptr ||
        store.Find(std::string(prefix) + "norm.weight") != nullptr ||
        store.Find(std::string(prefix) + "embedding_norm.weight") != nullptr)
      return prefix;
  }
  return "model.";
}

}  // namespace

TensorNames GgufTensorNames(const ModelConfig& c) {
  TensorNames n{"token_embd",  "token_embd_norm", "output_norm", "output", "blk.{}.",
                "attn_norm",   "attn_q",          "attn_k",      "attn_v", "attn_qkv",
                "attn_output", "ffn_norm",        "ffn_gate",    "ffn_up", "ffn_down"};
  if (c.embedding_norm != EmbeddingNorm::kStored) n.embedding_norm.clear();
  if (c.names == NameStyle::kLfm2) n.final_norm = "token_embd_norm";
  n.gate_up = "ffn_up";
  n.ffn_norm = c.gguf_ffn_norm;
  n.sinks = "attn_sinks.weight";
  n.output_gate = "attn_gate";
  n.layer_scale = "layer_output_scale.weight";
  n.layer_table = "per_layer_token_embd.weight";
  n.layer_projection = "per_layer_model_proj.weight";
  n.layer_norm = "per_layer_proj_norm";
  n.embedding_gate = "inp_gate";
  n.embedding_output = "proj";
  n.embedding_post_norm = "post_norm";
  n.query_norm = "attn_q_norm";
  n.key_norm = "attn_k_norm";
  n.attention_post_norm = "post_attention_norm";
  n.ffn_post_norm = "post_ffw_norm";
  return n;
}

TensorNames HfTensorNames(const ModelConfig& c, const TensorStore& store) {
  if (c.shape.alibi) {
    // bigscience/bloom names its tensors without the prefix "transformer." of the smaller checkpoints.
    const std::string p = store.Find("word_embeddings.weight") != nullptr ? "" : "transformer.";
    return {p + "word_embeddings",
            p + "word_embeddings_layernorm",
            p + "ln_f",
            "lm_head",
            p + "h.{}.",
            "input_layernorm",
            "",
            "",
            "",
            "self_attention.query_key_value",
            "self_attention.dense",
            "post_attention_layernorm",
            "",
            "mlp.dense_h_to_4h",
            "mlp.dense_4h_to_h"};
  }
  if (c.names == NameStyle::kNemotron) return NemotronNames();
  const std::string p = HfPrefix(store);
  const bool nested = store.Find("language_model.lm_head.weight") != nullptr;
  TensorNames n{p + "embed_tokens", "",
                p + "norm",         nested ? "language_model.lm_head" : "lm_head",
                p + "layers.{}.",   "input_layernorm",
                "self_attn.q_proj", "self_attn.k_proj",
                "self_attn.v_proj", "",
                "self_attn.o_proj", "post_attention_layernorm",
                "mlp.gate_proj",    "mlp.up_proj",
                "mlp.down_proj"};
  if (c.fused_hf) {
    n.qkv = "self_attn.qkv_proj";
    n.gate_up = "mlp.gate_up_proj";
  }
  n.sinks = "self_attn.sinks";
  n.output_gate = "self_attn.gate_proj";
  n.layer_scale = "layer_scalar";
  n.layer_table = p + "embed_tokens_per_layer.weight";
  n.layer_projection = p + "per_layer_model_projection.weight";
  n.layer_norm = p + "per_layer_projection_norm";
  n.embedding_gate = "per_layer_input_gate";
  n.embedding_output = "per_layer_projection";
  n.embedding_post_norm = "post_per_layer_input_norm";
  n.query_norm = "self_attn.q_norm";
  n.key_norm = "self_attn.k_norm";
  if (c.names == NameStyle::kLfm2) {
    n.final_norm = p + "embedding_norm";
    n.attention_norm = "operator_norm";
    n.ffn_norm = "ffn_norm";
    n.output = "self_attn.out_proj";
    n.query_norm = "self_attn.q_layernorm";
    n.key_norm = "self_attn.k_layernorm";
    n.gate = "feed_forward.w1";
    n.up = "feed_forward.w3";
    n.down = "feed_forward.w2";
  }
  if (c.shape.architecture == "granitehybrid") {
    n.gate_up = "shared_mlp.input_linear";
    n.down = "shared_mlp.output_linear";
  }
  if (c.shape.post_norms) {  // the norm that other models have before the FFN is here after the attention
    n.attention_post_norm = "post_attention_layernorm";
    n.ffn_norm = "pre_feedforward_layernorm";
    n.ffn_post_norm = "post_feedforward_layernorm";
  }
  return n;
}

}  // namespace coppice
