#!/usr/bin/env python3
"""Blocks of bytes and the values that the gguf package reads from them, for src/formats/quants_test.cpp.

Needs numpy and gguf 0.19.0. Usage: make_quant_golden.py OUT.json
"""
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType, quants

BLOCKS = {"IQ4_NL": (18, 4), "IQ4_XS": (136, 3), "MXFP4": (17, 8)}  # bytes of a block, blocks


def bytes_of(name: str, random: np.random.Generator) -> np.ndarray:
    size, count = BLOCKS[name]
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    if name == "MXFP4":  # scales at both ends and in the middle; larger ones overflow
        blocks[:, 0] = [0, 1, 2, 3, 100, 127, 128, 251]
    else:  # finite fp16 factors, one of them subnormal
        factors = random.uniform(-1, 1, count).astype(np.float16)
        factors[0] = np.float16(3e-6)
        blocks[:, :2] = factors.view(np.uint8).reshape(count, 2)
    return blocks


def main() -> None:
    random = np.random.default_rng(47)
    out = {}
    for name in BLOCKS:
        blocks = bytes_of(name, random)
        values = quants.dequantize(blocks, GGMLQuantizationType[name]).astype(np.float32)
        out[name] = {"bytes": blocks.ravel().tolist(), "bits": values.ravel().view(np.uint32).tolist()}
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(out, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
