#!/usr/bin/env python3
"""Makes src/model/hf_defaults.h: what transformers' classes take for a key that a config.json does not have.

    python3 -m venv /tmp/tf && /tmp/tf/bin/pip install transformers==5.24.0
    /tmp/tf/bin/python tools/make_hf_defaults.py            # writes the file
    /tmp/tf/bin/python tools/make_hf_defaults.py --check    # fails if the file differs from what it would write

Keys that a forward pass does not read (token ids, dropout, caches) are left out. A test of src/model/config_test.cpp
fails if the reader asks for less than all the others. Where the classes make a value of others, as rope_parameters, the
reader does, and the file says null.
"""

import json
import pathlib
import sys

import transformers

VERSION = "5.24.0"
ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "src/model/hf_defaults.h"
CLASSES = ["LlamaConfig", "MistralConfig", "Ministral3Config", "Qwen2Config", "Qwen3Config", "Qwen3VLTextConfig",
           "SmolLM3Config", "Olmo2Config", "Olmo3Config", "GraniteConfig", "Phi3Config", "Gemma3TextConfig",
           "BloomConfig", "MixtralConfig", "Qwen3MoeConfig", "Qwen3VLMoeTextConfig", "Qwen2MoeConfig", "OlmoeConfig",
           "GraniteMoeConfig", "GraniteMoeSharedConfig", "GptOssConfig", "MuseGlimmerTextConfig",
           "Gemma4TextConfig", "Qwen3_5TextConfig", "Qwen3_5MoeTextConfig", "Lfm2Config", "Lfm2MoeConfig",
           "GraniteMoeHybridConfig", "NemotronHConfig"]
# What no forward pass of a decoder reads, or only in training.
HARMLESS = {"use_cache", "initializer_range", "pretraining_tp", "attention_dropout", "hidden_dropout", "resid_pdrop",
            "embd_pdrop", "output_router_logits", "router_aux_loss_coef", "router_jitter_noise",
            "pad_token_id", "bos_token_id", "eos_token_id", "slow_but_exact", "chunk_size", "mamba_chunk_size",
            "use_mamba_kernels", "mamba_ssm_cache_dtype", "num_logits_to_keep", "rescale_prenorm_residual",
            "residual_in_fp32", "time_step_max", "time_step_floor", "moe_shared_expert_overlap"}


def defaults(name: str) -> dict:
    cls = getattr(transformers, name)
    base = set(transformers.PreTrainedConfig.__dataclass_fields__) - {"tie_word_embeddings"}
    values = {}
    for key, field in cls.__dataclass_fields__.items():
        if key in base or key in HARMLESS or key.startswith("_"):
            continue
        value = getattr(cls, key, None)
        if not isinstance(value, (bool, int, float, str)) or callable(value):
            value = field.default if isinstance(field.default, (bool, int, float, str)) else None
        values[key] = value
    if hasattr(cls(), "rope_parameters"):
        theta = cls.default_theta
        values["rope_theta"] = theta["global"] if isinstance(theta, dict) else theta
        if isinstance(theta, dict):
            values["rope_local_base_freq"] = theta["local"]
        values.setdefault("rope_parameters", None)
        rope = cls().rope_parameters
        ropes = [rope] + [of_kind for of_kind in rope.values() if isinstance(of_kind, dict)]
        if any(of_kind.get("rope_type", "default") != "default" for of_kind in ropes):
            values["rope_parameters"] = rope
        elif rope.get("partial_rotary_factor", 1.0) != 1.0:  # also for rope_parameters that lack it
            values["partial_rotary_factor"] = rope["partial_rotary_factor"]
    return values


def text() -> str:
    lines = ["// Written by tools/make_hf_defaults.py from transformers " + VERSION + "; not to be changed by hand.",
             "#pragma once", "", "namespace coppice {", "",
             "// By model_type: the values that transformers' class of a config.json has for the keys that are missing.",
             'inline constexpr char kHfDefaults[] = R"json({']
    entries = {getattr(transformers, name).model_type: defaults(name) for name in CLASSES}
    for i, (kind, values) in enumerate(entries.items()):
        lines.append(f' "{kind}": {{')
        items = [f'  {json.dumps(key)}: {json.dumps(value)}' for key, value in sorted(values.items())]
        for j, item in enumerate(items):
            end = "," if j + 1 < len(items) else ""
            if len(item) > 100:  # rope_parameters
                key, value = item.split(": ", 1)
                lines.append(key + ":")
                item = value
                parts = item.split(", ")
                row = "   "
                for k, part in enumerate(parts):
                    part += ", " if k + 1 < len(parts) else ""
                    if len(row) + len(part) > 100:
                        lines.append(row.rstrip())
                        row = "   "
                    row += part
                item = row
            lines.append(item + end)
        lines.append(" }" + ("," if i + 1 < len(entries) else ""))
    return "\n".join(lines + ['})json";', "", "}  // namespace coppice", ""])


def main() -> None:
    if transformers.__version__ != VERSION:
        sys.exit(f"needs transformers {VERSION}, not {transformers.__version__}")
    if "--check" in sys.argv[1:]:
        if OUT.read_text() != text():
            sys.exit(f"{OUT} is not what transformers {VERSION} says")
        return
    OUT.write_text(text())


if __name__ == "__main__":
    main()
