#!/usr/bin/env python3
"""Makes tests/data/rows: a tiny model with seeded random weights of each architecture, as a folder and as the GGUF file
that llama.cpp's converter makes of it, with its logits in fp64 by transformers. src/model/row_golden_test.cpp compares.

    python3 -m venv /tmp/tf && /tmp/tf/bin/pip install torch transformers==5.24.0 sentencepiece
    /tmp/tf/bin/python tools/make_row_goldens.py LLAMA_CPP [NAME...]

LLAMA_CPP is a checkout of llama.cpp (0c1e57098 made these), of which only conversion/ and gguf-py/ are read. Weights
are multiples of 1/512 or 1/128, which half precision holds, so both files hold what the logits were computed with. The
sizes reach what a small test easily misses: heads whose width is not hidden / heads, windows shorter than the
sequences, positions beyond the context of a scaled RoPE, layers without RoPE, norms and biases away from 1 and 0, more
value heads than key heads, three chunks of a scan.
"""

import contextlib
import json
import pathlib
import shutil
import sys

import safetensors.torch
import torch
import transformers
from transformers import core_model_loading

VERSION = "5.24.0"
OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/rows"
SEQUENCES = [[2], [2, 5, 17, 3], [2] + [(7 * i * i + 3 * i) % 29 for i in range(25)]]
# For layers with a state: into a third chunk of 64.
LONG = [2] + [(7 * i * i + 3 * i + i // 29) % 29 for i in range(134)]
SIZES = {"vocab_size": 29, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 3,
         "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64, "pad_token_id": 0,
         "eos_token_id": 1, "bos_token_id": 2}
KINDS = ["sliding_attention", "full_attention", "sliding_attention", "full_attention"]


def yarn(**more) -> dict:
    return {"rope_type": "yarn", "rope_theta": 100.0, "factor": 4.0, "original_max_position_embeddings": 8} | more


EXPERTS = {"num_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 12}
MULTIPLIERS = {"embedding_multiplier": 3.0, "residual_multiplier": 0.4, "attention_multiplier": 0.3,
               "logits_scaling": 2.5}
# Heads and windows of every layer but the second and fourth.
GPT_OSS = {"num_hidden_layers": 4, "num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 8, "sliding_window": 5}
# A number of layers that is not a multiple of 4; logits that reach the cap.
MUSE = {"num_hidden_layers": 5, "head_dim": 8, "sliding_window": 5, "final_logit_softcapping": 1.5,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}
# Twice as many value heads as key heads; RoPE turns a part of 16 dims.
QWEN3_5 = {"head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 8,
           "linear_value_head_dim": 8, "max_position_embeddings": 256}
LFM2 = {"num_hidden_layers": 5, "layer_types": ["conv", "conv", "full_attention", "conv", "full_attention"]}
LFM2_MOE = LFM2 | EXPERTS | {"num_dense_layers": 2}
MAMBA_KINDS = ["linear_attention", "linear_attention", "full_attention", "linear_attention"]
GRANITE_HYBRID = MULTIPLIERS | {
    "num_hidden_layers": 4, "layer_types": MAMBA_KINDS, "mamba_n_heads": 4, "mamba_d_state": 5, "mamba_chunk_size": 16,
    "shared_intermediate_size": 20, "max_position_embeddings": 256}
# A width of its layers with a state that is not a multiple of the model's.
NEMOTRON_H = {"num_hidden_layers": None, "head_dim": 8, "mamba_num_heads": 6, "mamba_head_dim": 4, "n_groups": 2,
              "ssm_state_size": 8, "chunk_size": 32, "max_position_embeddings": 256}
NEMOTRON_H_MOE = {"n_routed_experts": 6, "num_experts_per_tok": 3, "moe_intermediate_size": 12,
                  "moe_shared_expert_intermediate_size": 20}
GEMMA4 = {"head_dim": 8, "global_head_dim": 16, "sliding_window": 5}
# Name: the class, its config beside SIZES, and the keys that config.json leaves to the class.
ROWS = {
    "llama": ("LlamaForCausalLM", {"attention_bias": True, "mlp_bias": True, "rope_parameters": yarn(
        mscale=0.8, mscale_all_dim=0.5, truncate=False, beta_fast=2.0, beta_slow=0.3)},
        ["rms_norm_eps", "hidden_act", "tie_word_embeddings"]),
    "mistral": ("MistralForCausalLM", {"head_dim": 8, "sliding_window": 5}, ["rms_norm_eps"]),
    "qwen2": ("Qwen2ForCausalLM", {"num_hidden_layers": 4, "use_sliding_window": True, "sliding_window": 5,
                                   "layer_types": KINDS, "max_window_layers": 1}, ["rms_norm_eps"]),
    "qwen3": ("Qwen3ForCausalLM", {"head_dim": 8, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
              ["rms_norm_eps"]),
    "qwen3_windows": ("Qwen3ForCausalLM", {"head_dim": 8, "use_sliding_window": True, "sliding_window": 5,
                                           "max_window_layers": 1, "tie_word_embeddings": True,
                                           "rope_parameters": yarn()}, ["layer_types"]),
    "qwen3_vl": ("Qwen3VLForConditionalGeneration", {"head_dim": 8, "rope_parameters": {
        "rope_type": "default", "rope_theta": 50.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
        ["rms_norm_eps", "hidden_act"]),
    "smollm3": ("SmolLM3ForCausalLM", {"num_hidden_layers": 5, "rope_parameters": {
        "rope_type": "default", "rope_theta": 50.0}}, ["no_rope_layers", "layer_types"]),
    "smollm3_lists": ("SmolLM3ForCausalLM", {"no_rope_layers": [1, 0, 1], "use_sliding_window": True,
                                             "sliding_window": 5, "attention_bias": True}, ["layer_types"]),
    "olmo2": ("Olmo2ForCausalLM", {}, []),
    "olmo3": ("Olmo3ForCausalLM", {"num_hidden_layers": 5, "sliding_window": 5, "rope_parameters": {
        "full_attention": yarn(attention_factor=1.1),
        "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}}}, ["layer_types"]),
    "granite": ("GraniteForCausalLM", MULTIPLIERS, ["rms_norm_eps"]),
    "ministral3": ("Ministral3ForCausalLM", {"head_dim": 8, "rope_parameters": yarn(
        mscale=1.0, mscale_all_dim=0.7, llama_4_scaling_beta=0.3)}, []),
    "phi3": ("Phi3ForCausalLM", {"hidden_size": 32, "sliding_window": 7, "rope_parameters": {
        "rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 0.5}}, ["hidden_act"]),
    "phi3_long": ("Phi3ForCausalLM", {"hidden_size": 32, "original_max_position_embeddings": 16, "rope_parameters": {
        "rope_type": "longrope", "rope_theta": 100.0, "partial_rotary_factor": 0.75,
        "short_factor": [1.0, 1.3, 1.7], "long_factor": [1.1, 2.5, 4.5]}}, []),
    "mixtral": ("MixtralForCausalLM", {"num_local_experts": 5, "num_experts_per_tok": 2, "head_dim": 8},
                ["rms_norm_eps"]),
    "qwen3_moe": ("Qwen3MoeForCausalLM", EXPERTS | {"head_dim": 8, "norm_topk_prob": True}, ["rms_norm_eps"]),
    "qwen3_moe_dense": ("Qwen3MoeForCausalLM", EXPERTS | {
        "num_hidden_layers": 5, "decoder_sparse_step": 2, "mlp_only_layers": [3], "use_sliding_window": True,
        "sliding_window": 5}, ["norm_topk_prob", "rms_norm_eps"]),
    "qwen3_vl_moe": ("Qwen3VLMoeForConditionalGeneration", EXPERTS | {"head_dim": 8, "rope_parameters": {
        "rope_type": "default", "rope_theta": 50.0, "mrope_section": [2, 1, 1], "mrope_interleaved": True}},
        ["rms_norm_eps", "decoder_sparse_step"]),
    "qwen2_moe": ("Qwen2MoeForCausalLM", EXPERTS | {"shared_expert_intermediate_size": 20}, ["norm_topk_prob"]),
    "qwen2_moe_windows": ("Qwen2MoeForCausalLM", EXPERTS | {
        "num_hidden_layers": 5, "shared_expert_intermediate_size": 20, "norm_topk_prob": True, "qkv_bias": False,
        "use_sliding_window": True, "sliding_window": 5, "max_window_layers": 3, "mlp_only_layers": [0]},
        ["layer_types"]),
    "olmoe": ("OlmoeForCausalLM", {"num_experts": 5, "num_experts_per_tok": 3}, []),
    "granitemoe": ("GraniteMoeForCausalLM", MULTIPLIERS | {"num_local_experts": 5, "num_experts_per_tok": 3}, []),
    "granitemoe_shared": ("GraniteMoeSharedForCausalLM", MULTIPLIERS | {
        "num_local_experts": 4, "num_experts_per_tok": 2, "shared_intermediate_size": 20}, ["rms_norm_eps"]),
    "gpt_oss": ("GptOssForCausalLM", GPT_OSS | {"rope_parameters": yarn(truncate=True)},
                ["swiglu_alpha", "swiglu_limit", "hidden_act", "layer_types"]),
    "gpt_oss_plain": ("GptOssForCausalLM", GPT_OSS | {"attention_bias": False}, ["rope_parameters"]),
    "gpt_oss_mxfp4": ("GptOssForCausalLM", GPT_OSS | {
        "hidden_size": 64, "intermediate_size": 32, "rope_parameters": yarn(truncate=True),
        "quantization_config": {"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}}, []),
    "muse_glimmer": ("MuseGlimmerForConditionalGeneration", MUSE | {
        "qk_scale_factor": 1.7, "rms_norm_eps": 3e-3, "output_multiplier": 1.3},
        ["layer_types", "layer_rope_theta", "post_norm_eps"]),
    "muse_glimmer_lists": ("MuseGlimmerForConditionalGeneration", MUSE | {
        "layer_types": ["full_attention"] + KINDS, "layer_rope_theta": [50.0, 50.0, 0, 0, 50.0], "attention_bias": True,
        "post_norm_eps": 0.02, "rope_parameters": yarn()}, ["output_multiplier", "qk_scale_factor"]),
    # Two layers that attend the keys of others, and FFNs of twice the width there; a softcap that logits reach.
    "gemma4": ("Gemma4ForCausalLM", GEMMA4 | {
        "num_hidden_layers": 6, "num_kv_shared_layers": 2, "use_double_wide_mlp": True, "final_logit_softcapping": 1.5,
        "hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 29, "layer_types": KINDS + KINDS[:2]},
        ["rms_norm_eps"]),
    "gemma4_experts": ("Gemma4ForCausalLM", GEMMA4 | {
        "num_hidden_layers": 7, "attention_k_eq_v": True, "num_global_key_value_heads": 1, "enable_moe_block": True,
        "num_experts": 6, "top_k_experts": 3, "moe_intermediate_size": 12, "hidden_size_per_layer_input": 0},
        ["rms_norm_eps", "rope_parameters", "layer_types"]),
    "qwen3_5": ("Qwen3_5ForCausalLM", QWEN3_5 | {
        "num_hidden_layers": 6, "full_attention_interval": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "partial_rotary_factor": 0.5}},
        ["rms_norm_eps", "hidden_act", "linear_conv_kernel_dim"]),
    # As published: a text_config, tensors under model.language_model, a layer that predicts one token more.
    "qwen3_5_nested": ("Qwen3_5ForConditionalGeneration", QWEN3_5 | {
        "num_hidden_layers": 5, "tie_word_embeddings": True, "linear_num_value_heads": 6, "mtp_num_hidden_layers": 1,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0, "mrope_section": [1, 1, 0],
                            "mrope_interleaved": True}}, ["layer_types", "rms_norm_eps"]),
    "qwen3_5_moe": ("Qwen3_5MoeForCausalLM", QWEN3_5 | EXPERTS | {
        "num_hidden_layers": 4, "intermediate_size": None, "shared_expert_intermediate_size": 20},
        ["layer_types", "rope_parameters"]),
    # Values wider than keys, which llama.cpp lacks, and an epsilon that the length of q and k must not take.
    "qwen3_5_wide": ("Qwen3_5ForCausalLM", QWEN3_5 | {
        "linear_value_head_dim": 12, "linear_conv_kernel_dim": 3, "attention_bias": True, "rms_norm_eps": 0.05,
        "layer_types": ["full_attention", "linear_attention", "linear_attention"]}, []),
    "lfm2": ("Lfm2ForCausalLM", LFM2 | {  # FFNs of 28: of 30 two thirds, times 1.3, up to a multiple of 4
        "intermediate_size": 30, "block_ffn_dim_multiplier": 1.3, "block_multiple_of": 4},
        ["norm_eps", "tie_word_embeddings", "conv_L_cache", "block_auto_adjust_ff_dim", "rope_parameters"]),
    "lfm2_lists": ("Lfm2ForCausalLM", {
        "num_hidden_layers": 4, "full_attn_idxs": [0, 2], "block_auto_adjust_ff_dim": False, "conv_L_cache": 4,
        "tie_word_embeddings": False, "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}},
        ["layer_types"]),
    "lfm2_moe": ("Lfm2MoeForCausalLM", LFM2_MOE, ["norm_topk_prob", "use_expert_bias", "routed_scaling_factor"]),
    "lfm2_moe_scaled": ("Lfm2MoeForCausalLM", LFM2_MOE | {"routed_scaling_factor": 1.7}, ["num_dense_layers"]),
    "lfm2_moe_plain": ("Lfm2MoeForCausalLM", LFM2_MOE | {
        "num_dense_layers": 1, "norm_topk_prob": False, "use_expert_bias": False}, []),
    "granitehybrid": ("GraniteMoeHybridForCausalLM", GRANITE_HYBRID | {
        "intermediate_size": 20, "num_local_experts": 0, "num_experts_per_tok": 0, "position_embedding_type": "nope",
        "tie_word_embeddings": True}, ["time_step_limit", "rms_norm_eps", "mamba_n_groups", "mamba_d_conv"]),
    "granitehybrid_moe": ("GraniteMoeHybridForCausalLM", GRANITE_HYBRID | {
        "intermediate_size": 12, "num_local_experts": 5, "num_experts_per_tok": 3, "mamba_n_groups": 2},
        ["position_embedding_type", "mamba_d_head", "mamba_expand"]),
    "granitehybrid_rope": ("GraniteMoeHybridForCausalLM", GRANITE_HYBRID | {
        "num_local_experts": 0, "position_embedding_type": "rope", "mamba_expand": 3, "mamba_n_heads": 6,
        "mamba_n_groups": 3, "mamba_conv_bias": False, "mamba_d_conv": 3,
        "rope_parameters": {"rope_type": "default", "rope_theta": 50.0}}, []),
    "nemotron_h": ("NemotronHForCausalLM", NEMOTRON_H | {
        "layers_block_type": ["linear_attention", "mlp", "linear_attention", "full_attention", "mlp"]},
        ["mlp_hidden_act", "layer_norm_epsilon", "use_conv_bias", "conv_kernel"]),
    "nemotron_h_moe": ("NemotronHForCausalLM", NEMOTRON_H | NEMOTRON_H_MOE | {
        "layers_block_type": ["linear_attention", "moe", "full_attention", "moe", "linear_attention"],
        "routed_scaling_factor": 1.7, "n_groups": 3}, ["norm_topk_prob", "n_group", "topk_group"]),
    # Both kinds of FFN, first a block without a mixer; plain sums of experts, and no bias of the convolution.
    "nemotron_h_both": ("NemotronHForCausalLM", NEMOTRON_H | NEMOTRON_H_MOE | {
        "layers_block_type": ["mlp", "full_attention", "moe", "linear_attention", "moe"], "norm_topk_prob": False,
        "use_conv_bias": False, "conv_kernel": 3}, []),
}
# What llama.cpp's files cannot say: lists of layers without RoPE, truncate, windows of Mistral, Qwen2 and Qwen3, layers
# without a mixture, gpt-oss without biases, layers of Muse Glimmer with RoPE and no window, values wider than the keys
# of Qwen3.5, a factor or plain sums of LFM2's experts, RoPE beside Mamba-2, both kinds of FFN in one Nemotron-H. The
# converter does not know all tensors of FUSED_EXPERTS.
WITHOUT_GGUF = {"llama", "mistral", "qwen2", "qwen3_windows", "smollm3_lists", "qwen3_moe_dense", "qwen2_moe_windows",
                "granitemoe", "gpt_oss_plain", "muse_glimmer_lists", "qwen3_5_wide", "lfm2_moe_scaled",
                "lfm2_moe_plain", "granitehybrid_rope", "nemotron_h_both"}
# Their folders have the tensors of transformers 5 in memory, the others those of published checkpoints.
FUSED_EXPERTS = {"qwen3_moe_dense", "granitemoe", "qwen3_5_moe"}
AS_TRANSFORMERS = {"granitehybrid_moe", "granitehybrid_rope", "nemotron_h_moe", "nemotron_h_both"}  # so is their config.json
EXPERT_BIASES = ("expert_bias", "e_score_correction_bias")
# What folders have in fp32. The converter takes e to the power of A_log in its own type, and half would not hold it.
FP32 = ("A_log", *EXPERT_BIASES)
# Norms that multiply by 1 + their weight.
ZERO_CENTRED = {"Qwen3_5RMSNorm", "Qwen3_5MoeRMSNorm"}
# The mean and the spread of what layers with a state have: decays away from 0 and 1, taps that all count.
STATE_WEIGHTS = {"A_log": (-0.5, 0.8), "dt_bias": (-0.5, 0.8), "D": (1.0, 0.5), "conv1d.weight": (0.0, 0.5),
                 "conv.conv.weight": (0.0, 0.5)}


def text_model(kind: str, more: dict) -> tuple[torch.nn.Module, transformers.PreTrainedConfig]:
    cls = getattr(transformers, kind)
    sizes = {key: value for key, value in (SIZES | more).items() if value is not None}
    if not kind.endswith("ForConditionalGeneration"):
        config = cls.config_class(**sizes)
    else:
        vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "out_hidden_size": 16,
                  "patch_size": 2, "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}
        more = {key: sizes[key] for key in ["tie_word_embeddings"] if key in sizes}
        if "Muse" in kind:
            vision = {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1,
                      "pos_emb_height": 2, "pos_emb_width": 2, "patch_size": 2, "max_position_embeddings": 4}
            more = {"out_hidden_size": 32, "projector_hidden_size": 8}
        config = cls.config_class(text_config=sizes, vision_config=vision, **more)
    return cls(config).eval(), config


def spread_of(name: str) -> tuple | None:
    return next((spread for end, spread in STATE_WEIGHTS.items() if name.endswith("." + end)), None)


def set_weights(model: torch.nn.Module) -> None:
    gpt_oss = type(model).__name__ == "GptOssForCausalLM"
    zero_centred = {name + ".weight" for name, module in model.named_modules()
                    if type(module).__name__ in ZERO_CENTRED}
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_norm = weight.dim() == 1 and (name.endswith(("norm.weight", "norm_f.weight")) or "layernorm_" in name
                                             or "scale" in name)
            # gpt-oss's gates and ups reach their limit, and its sinks weigh as much as keys.
            is_wide = gpt_oss and ("experts.gate_up_proj" in name or name.endswith("sinks"))
            mean, spread = (1, 0.3) if is_norm else (0, 1.0 if is_wide else 0.2)
            mean, spread = spread_of(name) or (0 if name in zero_centred else mean, spread)
            weight.normal_(mean, spread)
            steps = 128 if is_wide else 512
            weight.copy_((weight * steps).round() / steps)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.copy_((torch.randn(1) * 20 + 460).round() / 512)
            elif name.endswith(EXPERT_BIASES):
                buffer.copy_((torch.randn(len(buffer)) * 100).round() / 512)


E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


def set_mxfp4(model: torch.nn.Module) -> dict:
    """Sets the experts' matrices to random MXFP4 values. The tensors of published folders that store them."""
    stored = {}
    for name, weight in model.named_parameters():
        if not name.endswith(("experts.gate_up_proj", "experts.down_proj")):
            continue
        experts, inputs, outputs = weight.shape
        codes = torch.randint(0, 16, (experts, outputs, inputs // 32, 32))
        scales = torch.randint(121, 125, (experts, outputs, inputs // 32))
        values = E2M1[codes] * torch.exp2(scales - 127.0).unsqueeze(-1)
        with torch.no_grad():
            weight.copy_(values.reshape(experts, outputs, inputs).transpose(1, 2))
        stored[name + "_blocks"] = (codes[..., 0::2] + 16 * codes[..., 1::2]).to(torch.uint8)
        stored[name + "_scales"] = scales.to(torch.uint8)
    return stored


def prediction_layer(stored: dict, prefix: str, attention: int) -> dict:
    """The tensors of a layer that predicts one token more, which no prefill runs: those of a layer with attention."""
    layer = f"{prefix}layers.{attention}."
    tensors = {"mtp.layers.0." + name.removeprefix(layer): weight.clone() for name, weight in stored.items()
               if name.startswith(layer)}
    norm = stored[prefix + "norm.weight"]
    tensors["mtp.fc.weight"] = (torch.randn(len(norm), 2 * len(norm)) * 100).round() / 512
    for name in ["norm", "pre_fc_norm_embedding", "pre_fc_norm_hidden"]:
        tensors[f"mtp.{name}.weight"] = norm.clone()
    return tensors


def published(config: transformers.PreTrainedConfig, name: str) -> dict:
    """config.json as published folders have it, where transformers writes other keys."""
    settings = config.to_dict()
    if name.startswith("granitehybrid"):
        settings["layer_types"] = ["mamba" if kind == "linear_attention" else "attention" for kind in MAMBA_KINDS]
    if name == "nemotron_h":
        layers = settings.pop("layers_block_type")
        settings |= {"hybrid_override_pattern": config.hybrid_override_pattern, "num_hidden_layers": len(layers)}
        for key in [key for key in settings if key.startswith(("moe_", "mtp_", "n_routed", "n_shared", "num_experts"))]:
            del settings[key]
    if name == "lfm2_lists":
        settings["block_ff_dim"] = settings.pop("intermediate_size")
        settings["tie_embedding"] = settings.pop("tie_word_embeddings")
    if name == "gemma4_experts":
        del settings["per_layer_config"]
        settings |= {"global_head_dim": 16, "num_global_key_value_heads": 1}
    return settings


def save_folder(model: torch.nn.Module, config: transformers.PreTrainedConfig, dropped: list, bytes_of: dict,
                out: pathlib.Path) -> None:
    tied = getattr(config, "tie_word_embeddings", False)  # Muse Glimmer's has no such key
    stored = model.state_dict()
    if out.name not in FUSED_EXPERTS:
        stored = core_model_loading.revert_weight_conversion(model, stored)
    if out.name == "qwen3_vl_moe":  # published folders have these as [inputs, outputs], and transformers reads both
        stored = {name: weight.transpose(1, 2) if ".experts." in name else weight for name, weight in stored.items()}
    text = config.get_text_config()
    if getattr(text, "mtp_num_hidden_layers", 0):
        attention = text.layer_types.index("full_attention")
        stored = stored | prediction_layer(stored, "model.language_model.", attention)
    weights = {name: weight.to(torch.float32 if name.endswith(FP32) else torch.float16).contiguous()
               for name, weight in stored.items()
               if not (tied and name == "lm_head.weight") and name + "_blocks" not in bytes_of} | bytes_of
    safetensors.torch.save_file(weights, out / "model.safetensors")
    settings = published(config, out.name)
    if out.name in AS_TRANSFORMERS:
        settings = json.loads(config.to_json_string(use_diff=False))
    for key in dropped:
        (settings.get("text_config") or settings).pop(key, None)
    (out / "config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def save_gguf(llama: str, kind: str, config: transformers.PreTrainedConfig, folder: pathlib.Path) -> None:
    sys.path[:0] = [llama, llama + "/gguf-py"]
    import conversion
    import gguf
    cls = conversion.get_model_class(kind)
    cls.no_mtp = not getattr(config.get_text_config(), "mtp_num_hidden_layers", 0)
    # The converter reads a whole config.json.
    whole = folder / "whole"
    whole.mkdir()
    shutil.copy(folder / "model.safetensors", whole)
    settings = published(config, folder.name)
    (whole / "config.json").write_text(json.dumps(settings))
    more = {}
    if folder.name.startswith("nemotron_h"):  # by transformers' class it takes all for mixtures with heads of 64
        more = {"hparams": settings | {"mamba_d_head": config.mamba_head_dim}}
    vocab = {str(i): i for i in range(config.get_text_config().vocab_size)}  # Gemma's converter counts it
    (whole / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": []}))
    for model in [cls, *cls.__mro__]:
        if "set_vocab" in vars(model):
            model.set_vocab = lambda self: None  # these models have no tokenizer
    cls(whole, gguf.LlamaFileType.MOSTLY_F16, folder / "model.gguf", **more).write()
    shutil.rmtree(whole)


@contextlib.contextmanager
def only_fp64():
    """Inside, transformers computes in fp64 what it has in fp32 whatever the weights' type: norms, softmax, scans."""
    names = {"float32": torch.float32, "float": torch.float}
    cast = torch.Tensor.float
    for name in names:
        setattr(torch, name, torch.float64)
    torch.Tensor.float = torch.Tensor.double
    try:
        yield
    finally:
        for name, dtype in names.items():
            setattr(torch, name, dtype)
        torch.Tensor.float = cast


def logits_of(model: torch.nn.Module, sequences: list) -> list:
    model.double()
    model.set_experts_implementation("eager")  # the others have no fp64
    rows = []
    with torch.no_grad():
        for tokens in sequences:
            logits = model(input_ids=torch.tensor([tokens])).logits[0]
            rows.append([[round(value, 7) for value in row] for row in logits.tolist()])
    return rows


def main() -> None:
    if transformers.__version__ != VERSION:
        sys.exit(f"needs transformers {VERSION}, not {transformers.__version__}")
    for i, (name, (kind, more, dropped)) in enumerate(ROWS.items()):
        if sys.argv[2:] and name not in sys.argv[2:]:
            continue
        torch.manual_seed(100 + i)
        model, config = text_model(kind, more)
        config.architectures = [kind]
        set_weights(model)
        bytes_of = set_mxfp4(model) if "mxfp4" in name else {}
        out = OUT / name
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        save_folder(model, config, dropped, bytes_of, out)
        if name not in WITHOUT_GGUF:
            save_gguf(sys.argv[1], kind, config, out)
        has_state = any(key.endswith("A_log") for key, _ in model.named_parameters())
        sequences = SEQUENCES + [LONG] * has_state
        # Rounding grows in a state, so no part may be in fp32 there.
        with only_fp64() if has_state else contextlib.nullcontext():
            logits = logits_of(model, sequences)
        (out / "logits.json").write_text(json.dumps({"sequences": sequences, "logits": logits}) + "\n")


if __name__ == "__main__":
    main()
