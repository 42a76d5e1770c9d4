"""A model with mixtures of experts, made of a dense one: its experts are copies of its FFN with noise, its router is
random."""

import pathlib
import struct

import numpy as np

from gguf_weights import Gguf

U32, F32, STRING, ARRAY = 4, 6, 8, 9  # types of values
EXPERTS, USED = 6, 2


def text_of(text):
    return struct.pack("<Q", len(text)) + text


def value_of(value, key):
    """The value with its type, as GGUF stores it."""
    if isinstance(value, bytes):
        return struct.pack("<I", STRING) + text_of(value)
    if isinstance(value, list) and isinstance(value[0], bytes):
        return struct.pack("<IIQ", ARRAY, STRING, len(value)) + b"".join(map(text_of, value))
    if isinstance(value, list):
        kind, form = (F32, "f") if isinstance(value[0], float) else (5, "i")
        return struct.pack(f"<IIQ{len(value)}{form}", ARRAY, kind, len(value), *value)
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    return struct.pack("<If", F32, value) if isinstance(value, float) else struct.pack("<II", U32, value)


def write_gguf(path, metadata, tensors):
    """`tensors`: {name: float32 array}."""
    head = struct.pack("<4sIQQ", b"GGUF", 3, len(tensors), len(metadata))
    head += b"".join(text_of(key.encode()) + value_of(value, key) for key, value in metadata.items())
    offset, data = 0, []
    for name, values in tensors.items():
        bytes_of = np.ascontiguousarray(values, "<f4").tobytes()
        sizes = values.shape[::-1]
        head += text_of(name.encode()) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, 0, offset)
        data.append(bytes_of + bytes(-len(bytes_of) % 32))
        offset += len(data[-1])
    pathlib.Path(path).write_bytes(head + bytes(-len(head) % 32) + b"".join(data))


def write_mixture(source, target, architecture, seed):
    """`source` is a Llama. The architecture is llama (Mixtral) or qwen2moe, which has a shared expert and biases."""
    file, random = Gguf(source), np.random.default_rng(seed)
    metadata = {key.replace("llama.", architecture + ".", 1) if key.startswith("llama.") else key: value
                for key, value in file.metadata.items() if key != "general.alignment"}
    metadata["general.architecture"] = architecture.encode()
    of = architecture + "."
    metadata[of + "expert_count"], metadata[of + "expert_used_count"] = EXPERTS, USED
    if architecture == "qwen2moe":
        metadata[of + "expert_feed_forward_length"] = metadata[of + "feed_forward_length"]
    tensors = {}
    for name in file.places:
        values = file.tensor(name)
        noisy = lambda share: values * (1 + share * random.standard_normal(values.shape, np.float32))
        stem = name.removesuffix(".weight")
        if stem.endswith((".ffn_gate", ".ffn_up", ".ffn_down")):
            tensors[stem + "_exps.weight"] = np.stack([noisy(0.5) for _ in range(EXPERTS)])
            if architecture == "qwen2moe":
                tensors[stem + "_shexp.weight"] = noisy(0.5)
            continue
        tensors[name] = values
        if stem.endswith(".ffn_norm"):
            router = random.standard_normal((EXPERTS, len(values)), np.float32) * 2 / len(values) ** 0.5
            tensors[stem.replace("ffn_norm", "ffn_gate_inp.weight")] = router
            if architecture == "qwen2moe":
                tensors[stem.replace("ffn_norm", "ffn_gate_inp_shexp.weight")] = router[0] / 2
        if architecture == "qwen2moe" and stem.endswith((".attn_q", ".attn_k", ".attn_v")):
            tensors[stem + ".bias"] = random.standard_normal(len(values), np.float32) / 10
    write_gguf(target, metadata, tensors)
