#!/usr/bin/env python3
"""Blocks of bytes and the values that the gguf package reads from them, for src/formats/quants_test.cpp; of types
with a grid also the hash of the grid's bytes.

Needs numpy and gguf 0.19.0. Usage: make_quant_golden.py OUT.json
"""
import json
import sys

import numpy as np
from gguf import GGMLQuantizationType, quants

# Bytes of a block, blocks.
BLOCKS = {"IQ4_NL": (18, 4), "IQ4_XS": (136, 3), "MXFP4": (17, 8), "IQ2_XXS": (66, 3), "IQ2_XS": (74, 3),
          "IQ2_S": (82, 3), "IQ3_XXS": (98, 3), "IQ3_S": (110, 3)}


def bytes_of(name: str, random: np.random.Generator) -> np.ndarray:
    size, count = BLOCKS[name]
    blocks = random.integers(0, 256, (count, size), dtype=np.uint8)
    if name == "MXFP4":  # scales at both ends and in the middle; larger ones overflow
        blocks[:, 0] = [0, 1, 2, 3, 100, 127, 128, 251]
    else:  # finite fp16 factors, one of them subnormal
        factors = random.uniform(-1, 1, count).astype(np.float16)
        factors[0] = np.float16(3e-6)
        if name.startswith(("IQ2", "IQ3")):
            factors[1] = np.float16(-65504)
        blocks[:, :2] = factors.view(np.uint8).reshape(count, 2)
    return blocks


def fnv1a(data: bytes) -> int:
    value = 0xCBF29CE484222325
    for byte in data:
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def main() -> None:
    random = np.random.default_rng(47)
    out = {}
    for name in BLOCKS:
        blocks = bytes_of(name, random)
        values = quants.dequantize(blocks, GGMLQuantizationType[name]).astype(np.float32)
        out[name] = {"bytes": blocks.ravel().tolist(), "bits": values.ravel().view(np.uint32).tolist()}
        of_type = getattr(quants, name, None)
        if of_type is not None and of_type.grid is not None:
            out[name]["grid_fnv1a"] = fnv1a(of_type.grid.astype(np.uint8).tobytes())
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(out, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
