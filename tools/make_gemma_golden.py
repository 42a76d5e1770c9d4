#!/usr/bin/env python3
"""Makes tests/data/gemma3: a tiny Gemma 3 with seeded random weights, and its logits in fp64 by transformers. The tests
of src/model/golden_test.cpp compare with them.

    python3 -m venv /tmp/gemma && /tmp/gemma/bin/pip install torch transformers
    /tmp/gemma/bin/python tools/make_gemma_golden.py

The model has what a real one has and a small test easily misses: a window shorter than the sequences in four of six
layers, another base of RoPE there, linear scaling in the others, heads whose width is not hidden / heads, and a query
scale that is not that width's.
"""

import json
import pathlib

import safetensors.torch
import torch
import transformers

OUT = pathlib.Path(__file__).resolve().parent.parent / "tests/data/gemma3"
SEQUENCES = [[2], [2, 5, 17, 3], [2] + [(7 * i * i + 3 * i) % 37 for i in range(23)]]


def config() -> transformers.Gemma3TextConfig:
    kinds = ["sliding_attention", "sliding_attention", "full_attention"] * 2
    return transformers.Gemma3TextConfig(
        vocab_size=37, hidden_size=24, intermediate_size=40, num_hidden_layers=6, num_attention_heads=4,
        num_key_value_heads=2, head_dim=8, max_position_embeddings=64, sliding_window=5, layer_types=kinds,
        query_pre_attn_scalar=12, rms_norm_eps=1e-6, pad_token_id=0, eos_token_id=1, bos_token_id=2,
        rope_parameters={"full_attention": {"rope_type": "linear", "factor": 4.0, "rope_theta": 5000.0},
                         "sliding_attention": {"rope_type": "default", "rope_theta": 100.0}})


def main() -> None:
    torch.manual_seed(3)
    model = transformers.Gemma3ForCausalLM(config()).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(0, 0.3 if name.endswith("norm.weight") else 0.1 if "embed" in name else 0.2)
    OUT.mkdir(parents=True, exist_ok=True)
    weights = {name: weight.float().contiguous() for name, weight in model.state_dict().items()
               if name != "lm_head.weight"}  # tied
    safetensors.torch.save_file(weights, OUT / "model.safetensors")
    (OUT / "config.json").write_text(json.dumps(model.config.to_dict(), indent=1, sort_keys=True) + "\n")
    model.double()
    model.model.embed_tokens.embed_scale = model.model.embed_tokens.embed_scale.double()
    logits = []
    with torch.no_grad():
        for tokens in SEQUENCES:
            rows = model(torch.tensor([tokens])).logits[0]
            logits.append([[round(value, 7) for value in row] for row in rows.tolist()])
    (OUT / "logits.json").write_text(json.dumps({"sequences": SEQUENCES, "logits": logits}) + "\n")


if __name__ == "__main__":
    main()
