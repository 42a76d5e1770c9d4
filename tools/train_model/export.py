#!/usr/bin/env python3
"""Writes a checkpoint as GGUF files and as a Hugging Face folder.

    export.py WORK/checkpoint.pt WORK/tokenizer.model OUT     makes OUT/coppice-12-{f16,q8_0}.gguf and OUT/coppice-12/
"""

import argparse
import json
import pathlib
import shutil
import struct
import sys

import sentencepiece
import torch

import llama

ALIGNMENT = 32  # GGUF's default
F32, F16, Q8_0 = 0, 1, 8  # GGUF's tensor types
FILE_TYPES = {F16: 1, Q8_0: 7}  # general.file_type: what most tensors are
Q8_0_BLOCK = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # GGUF's value types
NORMAL, UNKNOWN, CONTROL, BYTE = 1, 2, 3, 6  # llama.cpp's token types
NAMES = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
         "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
         "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm"}


def gguf_name(name: str) -> str:
    fixed = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
             "lm_head.weight": "output.weight"}
    if name in fixed:
        return fixed[name]
    _, _, layer, *rest = name.split(".")
    return f"blk.{layer}.{NAMES['.'.join(rest[:-1])]}.weight"


def interleave(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rope turns halves in a Hugging Face checkpoint and neighbours in GGUF's llama architecture."""
    out, inner = weight.shape
    return weight.view(heads, 2, out // heads // 2, inner).transpose(1, 2).reshape(out, inner)


def text(s: str) -> bytes:
    raw = s.encode("utf-8")
    return struct.pack("<Q", len(raw)) + raw


def value(kind: int, v) -> bytes:
    if kind == STRING:
        return text(v)
    return struct.pack({UINT32: "<I", INT32: "<i", FLOAT32: "<f", BOOL: "<?"}[kind], v)


def array(kind: int, items: list) -> bytes:
    return struct.pack("<IQ", kind, len(items)) + b"".join(value(kind, v) for v in items)


def token_type(sp: sentencepiece.SentencePieceProcessor, i: int) -> int:
    return UNKNOWN if sp.is_unknown(i) else CONTROL if sp.is_control(i) else BYTE if sp.is_byte(i) else NORMAL


def q8_0(weight: torch.Tensor) -> bytes:
    """Blocks of 32 numbers: the scale in f16, which takes the largest to 127, then each divided by it as int8."""
    blocks = weight.float().reshape(-1, Q8_0_BLOCK)
    scale = (blocks.abs().amax(1, keepdim=True) / 127).half()
    inverse = torch.where(scale > 0, 1 / scale.float(), torch.zeros(()))
    numbers = (blocks * inverse).round().clamp(-127, 127).to(torch.int8)
    return torch.cat((scale.view(torch.uint8), numbers.view(torch.uint8)), 1).contiguous().numpy().tobytes()


def tensor_bytes(weight: torch.Tensor, kind: int) -> bytes:
    if kind == Q8_0:
        return q8_0(weight)
    return (weight.float() if kind == F32 else weight.half()).contiguous().numpy().tobytes()


def metadata(c: llama.Config, sp, matrix_kind: int) -> list[tuple[str, int, bytes]]:
    tokens = range(sp.vocab_size())
    plain = [("general.architecture", STRING, "llama"), ("general.name", STRING, "coppice-12"),
             ("general.file_type", UINT32, FILE_TYPES[matrix_kind]), ("llama.context_length", UINT32, c.context),
             ("llama.embedding_length", UINT32, c.hidden), ("llama.block_count", UINT32, c.layers),
             ("llama.feed_forward_length", UINT32, c.ffn),
             ("llama.attention.head_count", UINT32, c.heads), ("llama.attention.head_count_kv", UINT32, c.kv_heads),
             ("llama.attention.layer_norm_rms_epsilon", FLOAT32, c.eps), ("llama.rope.freq_base", FLOAT32, c.theta),
             ("llama.rope.dimension_count", UINT32, c.head_dim), ("llama.vocab_size", UINT32, c.vocab),
             ("tokenizer.ggml.model", STRING, "llama"), ("tokenizer.ggml.bos_token_id", UINT32, 1),
             ("tokenizer.ggml.eos_token_id", UINT32, 2), ("tokenizer.ggml.unknown_token_id", UINT32, 0),
             ("tokenizer.ggml.add_bos_token", BOOL, True), ("tokenizer.ggml.add_eos_token", BOOL, False)]
    pairs = [(key, kind, value(kind, v)) for key, kind, v in plain]
    pairs += [("tokenizer.ggml.tokens", ARRAY, array(STRING, [sp.id_to_piece(i) for i in tokens])),
              ("tokenizer.ggml.scores", ARRAY, array(FLOAT32, [sp.get_score(i) for i in tokens])),
              ("tokenizer.ggml.token_type", ARRAY, array(INT32, [token_type(sp, i) for i in tokens]))]
    return pairs


def write_gguf(path: pathlib.Path, weights: dict[str, torch.Tensor], c: llama.Config, sp, matrix_kind: int) -> None:
    """Matrices as `matrix_kind`, vectors in f32."""
    infos, blobs, at = b"", [], 0
    for name, w in weights.items():
        heads = {"q_proj": c.heads, "k_proj": c.kv_heads}.get(name.split(".")[-2])
        w = interleave(w, heads) if heads else w
        kind = F32 if w.dim() == 1 else matrix_kind
        raw = tensor_bytes(w, kind)
        infos += text(gguf_name(name)) + struct.pack("<I", w.dim()) + struct.pack(f"<{w.dim()}Q", *reversed(w.shape))
        infos += struct.pack("<IQ", kind, at)
        blobs.append(raw + bytes(-len(raw) % ALIGNMENT))
        at += len(blobs[-1])
    pairs = metadata(c, sp, matrix_kind)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(weights), len(pairs))
    head += b"".join(text(key) + struct.pack("<I", kind) + raw for key, kind, raw in pairs) + infos
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + b"".join(blobs))


def write_folder(folder: pathlib.Path, weights: dict[str, torch.Tensor], c: llama.Config, tokenizer: pathlib.Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    header, blobs, at = {"__metadata__": {"format": "pt"}}, [], 0
    for name, w in weights.items():
        raw = w.half().contiguous().numpy().tobytes()
        header[name] = {"dtype": "F16", "shape": list(w.shape), "data_offsets": [at, at + len(raw)]}
        blobs.append(raw)
        at += len(raw)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + b"".join(blobs))
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": c.hidden,
              "num_hidden_layers": c.layers, "num_attention_heads": c.heads, "num_key_value_heads": c.kv_heads,
              "head_dim": c.head_dim, "intermediate_size": c.ffn, "vocab_size": c.vocab, "rms_norm_eps": c.eps,
              "rope_theta": c.theta, "max_position_embeddings": c.context, "tie_word_embeddings": False, "hidden_act": "silu",
              "torch_dtype": "float16", "bos_token_id": 1, "eos_token_id": 2}
    (folder / "config.json").write_text(json.dumps(config, indent=1) + "\n")
    shutil.copy(tokenizer, folder / "tokenizer.model")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("tokenizer", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    args = parser.parse_args()
    state = torch.load(args.checkpoint, map_location="cpu")
    weights = state.get("model", state)
    too_large = [n for n, w in weights.items() if not torch.isfinite(w.half()).all()]
    if too_large:
        sys.exit(f"{args.checkpoint}: beyond float16: {', '.join(too_large)}")
    config, sp = llama.Config(), sentencepiece.SentencePieceProcessor(model_file=str(args.tokenizer))
    args.out.mkdir(parents=True, exist_ok=True)
    write_gguf(args.out / "coppice-12-f16.gguf", weights, config, sp, F16)
    write_gguf(args.out / "coppice-12-q8_0.gguf", weights, config, sp, Q8_0)
    write_folder(args.out / "coppice-12", weights, config, args.tokenizer)
    return 0


if __name__ == "__main__":
    sys.exit(main())
