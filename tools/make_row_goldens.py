#!/usr/bin/env python3
"""Makes tests/data/rows: a tiny model with seeded random weights of each architecture, as a folder and as the GGUF file
that llama.cpp's converter makes of it, with its logits in fp64 by transformers. src/model/row_golden_test.cpp compares.

    python3 -m venv /tmp/tf && /tmp/tf/bin/pip install torch transformers==5.24.0 sentencepiece
    /tmp/tf/bin/python tools/make_row_goldens.py LLAMA_CPP [NAME...]

LLAMA_CPP is a checkout of llama.cpp (0c1e57098 made these), of which only conversion/ and gguf-py/ are read. Weights are
multiples of 1/512 or 1/128, which half precision holds, so both files hold what the logits were computed with. The sizes reach
what a small test easily misses: heads whose width is not hidden / heads, windows shorter than the sequences, positions
beyond the context of a scaled RoPE, layers without RoPE, norms and biases away from 1 and 0.
"""

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
}
# What llama.cpp's files cannot say: lists of layers without RoPE, truncate, windows of Mistral, Qwen2 and Qwen3,
# layers without a mixture, gpt-oss without biases, layers of Muse Glimmer with RoPE and no window. The converter does not know all tensors of FUSED_EXPERTS.
WITHOUT_GGUF = {"llama", "mistral", "qwen2", "qwen3_windows", "smollm3_lists", "qwen3_moe_dense", "qwen2_moe_windows",
                "granitemoe", "gpt_oss_plain", "muse_glimmer_lists"}
# Their folders have the tensors of transformers 5 in memory, the others those of published checkpoints.
FUSED_EXPERTS = {"qwen3_moe_dense", "granitemoe"}


def text_model(kind: str, more: dict) -> tuple[torch.nn.Module, transformers.PreTrainedConfig]:
    cls = getattr(transformers, kind)
    sizes = SIZES | more
    if not kind.endswith("ForConditionalGeneration"):
        config = cls.config_class(**sizes)
    else:
        vision = {"depth": 1, "hidden_size": 8, "intermediate_size": 8, "num_heads": 1, "out_hidden_size": 16,
                  "patch_size": 2, "num_position_embeddings": 4, "deepstack_visual_indexes": [0]}
        more = {}
        if "Muse" in kind:
            vision = {"num_hidden_layers": 1, "hidden_size": 8, "intermediate_size": 8, "num_attention_heads": 1,
                      "pos_emb_height": 2, "pos_emb_width": 2, "patch_size": 2, "max_position_embeddings": 4}
            more = {"out_hidden_size": 32, "projector_hidden_size": 8}
        config = cls.config_class(text_config=sizes, vision_config=vision, **more)
    return cls(config).eval(), config


def set_weights(model: torch.nn.Module) -> None:
    gpt_oss = type(model).__name__ == "GptOssForCausalLM"
    with torch.no_grad():
        for name, weight in model.named_parameters():
            is_norm = weight.dim() == 1 and (name.endswith("norm.weight") or "layernorm_" in name or "scale" in name)
            # gpt-oss's gates and ups reach their limit, and its sinks weigh as much as keys.
            is_wide = gpt_oss and ("experts.gate_up_proj" in name or name.endswith("sinks"))
            weight.normal_(1 if is_norm else 0, 0.3 if is_norm else 1.0 if is_wide else 0.2)
            steps = 128 if is_wide else 512
            weight.copy_((weight * steps).round() / steps)
        for name, buffer in model.named_buffers():
            if name.endswith("layer_scalar"):
                buffer.copy_((torch.randn(1) * 20 + 460).round() / 512)


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


def save_folder(model: torch.nn.Module, config: transformers.PreTrainedConfig, dropped: list, bytes_of: dict,
                out: pathlib.Path) -> None:
    tied = getattr(config, "tie_word_embeddings", False)  # Muse Glimmer's has no such key
    stored = model.state_dict()
    if out.name not in FUSED_EXPERTS:
        stored = core_model_loading.revert_weight_conversion(model, stored)
    if out.name == "qwen3_vl_moe":  # published folders have these as [inputs, outputs], and transformers reads both
        stored = {name: weight.transpose(1, 2) if ".experts." in name else weight for name, weight in stored.items()}
    weights = {name: weight.half().contiguous() for name, weight in stored.items()
               if not (tied and name == "lm_head.weight") and name + "_blocks" not in bytes_of} | bytes_of
    safetensors.torch.save_file(weights, out / "model.safetensors")
    settings = config.to_dict()
    for key in dropped:
        (settings.get("text_config") or settings).pop(key, None)
    if out.name == "gemma4_experts":  # the form of published folders
        del settings["per_layer_config"]
        settings |= {"global_head_dim": 16, "num_global_key_value_heads": 1}
    (out / "config.json").write_text(json.dumps(settings, indent=1, sort_keys=True) + "\n")


def save_gguf(llama: str, kind: str, config: transformers.PreTrainedConfig, folder: pathlib.Path) -> None:
    sys.path[:0] = [llama, llama + "/gguf-py"]
    import conversion
    import gguf
    cls = conversion.get_model_class(kind)
    # The converter reads a whole config.json.
    whole = folder / "whole"
    whole.mkdir()
    shutil.copy(folder / "model.safetensors", whole)
    (whole / "config.json").write_text(json.dumps(config.to_dict()))
    vocab = {str(i): i for i in range(config.get_text_config().vocab_size)}  # Gemma's converter counts it
    (whole / "tokenizer.json").write_text(json.dumps({"model": {"vocab": vocab}, "added_tokens": []}))
    for model in [cls, *cls.__mro__]:
        if "set_vocab" in vars(model):
            model.set_vocab = lambda self: None  # these models have no tokenizer
    cls(whole, gguf.LlamaFileType.MOSTLY_F16, folder / "model.gguf").write()
    shutil.rmtree(whole)


def logits_of(model: torch.nn.Module) -> list:
    model.double()
    model.set_experts_implementation("eager")  # the others have no fp64
    rows = []
    with torch.no_grad():
        for tokens in SEQUENCES:
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
        logits = logits_of(model)
        (out / "logits.json").write_text(json.dumps({"sequences": SEQUENCES, "logits": logits}) + "\n")


if __name__ == "__main__":
    main()
