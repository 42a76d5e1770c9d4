#!/usr/bin/env python3
"""Dense prefill of Llama-3.1-8B's shape by PyTorch, in bf16 with its flash attention: seconds to the last token's logits.

    gpu_pytorch.py [--tokens N,...] [--rounds N]

Weights are random. The layers are written out, so nothing but PyTorch is needed. Prints JSON; exits with 77 where there is
no PyTorch or no GPU.
"""

import argparse
import json
import sys
import time

LAYERS, HIDDEN, FFN, HEADS, KV_HEADS, HEAD_DIM, VOCAB = 32, 4096, 14336, 32, 8, 128, 128256


def norm(torch, x):
    return x * torch.rsqrt(x.float().square().mean(-1, keepdim=True) + 1e-5).to(x.dtype)


def rotate(torch, x, cos, sin):
    low, high = x.chunk(2, -1)
    return torch.cat((low * cos - high * sin, high * cos + low * sin), -1)


def prefill(torch, layers, head, x, cos, sin):
    attention = torch.nn.functional.scaled_dot_product_attention
    for qkv, output, gate_up, down in layers:
        q, k, v = (norm(torch, x) @ qkv).split((HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM), -1)
        q, k, v = (t.view(1, -1, t.shape[-1] // HEAD_DIM, HEAD_DIM).transpose(1, 2) for t in (q, k, v))
        mixed = attention(rotate(torch, q, cos, sin), rotate(torch, k, cos, sin), v, is_causal=True, enable_gqa=True)
        x = x + mixed.transpose(1, 2).reshape(x.shape[0], -1) @ output
        gate, up = (norm(torch, x) @ gate_up).chunk(2, -1)
        x = x + (torch.nn.functional.silu(gate) * up) @ down
    return norm(torch, x[-1:]) @ head


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", default="4096,16384,32768")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    try:
        import torch
    except ImportError:
        print("gpu_pytorch: no PyTorch", file=sys.stderr)
        return 77
    if not torch.cuda.is_available():
        print("gpu_pytorch: PyTorch sees no GPU", file=sys.stderr)
        return 77

    def weight(rows, columns):
        return torch.randn(rows, columns, device="cuda", dtype=torch.bfloat16) / rows**0.5

    layers = [(weight(HIDDEN, (HEADS + 2 * KV_HEADS) * HEAD_DIM), weight(HEADS * HEAD_DIM, HIDDEN), weight(HIDDEN, 2 * FFN),
               weight(FFN, HIDDEN)) for _ in range(LAYERS)]
    head = weight(HIDDEN, VOCAB)
    frequencies = 500000.0 ** (-torch.arange(0, HEAD_DIM, 2, device="cuda") / HEAD_DIM)
    seconds = {}
    with torch.inference_mode(), torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
        for tokens in map(int, options.tokens.split(",")):
            x = torch.randn(tokens, HIDDEN, device="cuda", dtype=torch.bfloat16)
            angles = torch.arange(tokens, device="cuda")[:, None] * frequencies
            cos, sin = angles.cos().bfloat16(), angles.sin().bfloat16()
            samples = []
            for _ in range(options.rounds + 1):  # the first one warms up
                torch.cuda.synchronize()
                begin = time.perf_counter()
                prefill(torch, layers, head, x, cos, sin)
                torch.cuda.synchronize()
                samples.append(time.perf_counter() - begin)
            seconds[tokens] = samples[1:]
    print(json.dumps({"torch": torch.__version__, "device": torch.cuda.get_device_name(), "seconds": seconds}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
