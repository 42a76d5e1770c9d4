"""Reads a GGUF file: its metadata, and its tensors as float32 arrays.

The layout follows the GGUF specification, version 2 and 3, little-endian. Quantised types store blocks of
32 weights:

    Q8_0   f16 d, 32 x i8                w_i = d q_i
    Q4_0   f16 d, 16 bytes               w_i = d (q_i - 8)
    Q4_1   f16 d, f16 m, 16 bytes        w_i = d q_i + m

A byte of a 4-bit block holds weight i in its low half and weight i + 16 in its high half.
"""

import mmap
import struct

import numpy as np

# Type number of a metadata value -> struct format. 8 is a string, 9 an array.
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9

# Type number of a tensor -> (name, weights in a block, bytes of a block).
TYPES = {0: ("F32", 1, 4), 1: ("F16", 1, 2), 2: ("Q4_0", 32, 18), 3: ("Q4_1", 32, 20), 8: ("Q8_0", 32, 34),
         30: ("BF16", 1, 2)}


class Cursor:
    """Reads values one after another."""

    def __init__(self, data):
        self.data, self.at = data, 0

    def scalar(self, kind):
        (value,) = struct.unpack_from("<" + kind, self.data, self.at)
        self.at += struct.calcsize("<" + kind)
        return value

    def string(self):
        """GGUF does not promise UTF-8 inside a vocabulary, so strings stay bytes."""
        size = self.scalar("Q")
        self.at += size
        return bytes(self.data[self.at - size:self.at])

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind != ARRAY:
            return self.scalar(SCALARS[kind])
        of, count = self.scalar("I"), self.scalar("Q")
        if of in SCALARS:
            values = struct.unpack_from(f"<{count}{SCALARS[of]}", self.data, self.at)
            self.at += struct.calcsize(f"<{count}{SCALARS[of]}")
            return list(values)
        return [self.value(of) for _ in range(count)]


class Gguf:
    """`metadata` maps keys to values. `tensor(name)` gives a float32 array, rows first."""

    def __init__(self, path):
        self.path = path
        with open(path, "rb") as file:
            self.data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        read = Cursor(self.data)
        if read.data[:4] != b"GGUF":
            raise ValueError(f"{path} is no GGUF file")
        read.at = 4
        version, tensors, pairs = read.scalar("I"), read.scalar("Q"), read.scalar("Q")
        if version not in (2, 3):
            raise ValueError(f"{path}: GGUF version {version} is not supported")
        self.metadata = {}
        for _ in range(pairs):
            key = read.string().decode()
            self.metadata[key] = read.value(read.scalar("I"))
        self.places = {}
        for _ in range(tensors):
            name = read.string().decode()
            sizes = [read.scalar("Q") for _ in range(read.scalar("I"))]
            kind, offset = read.scalar("I"), read.scalar("Q")
            self.places[name] = (sizes[::-1], kind, offset)  # GGUF names the fastest dimension first
        step = self.metadata.get("general.alignment", 32)
        self.begin = (read.at + step - 1) // step * step

    def text(self, key):
        return self.metadata[key].decode()

    def __contains__(self, name):
        return name in self.places

    def tensor(self, name):
        shape, kind, offset = self.places[name]
        if kind not in TYPES:
            raise ValueError(f"{self.path}: tensor {name} has type {kind}, which the oracle does not read")
        _, per_block, block_bytes = TYPES[kind]
        count = int(np.prod(shape))
        raw = np.frombuffer(self.data, np.uint8, count // per_block * block_bytes, self.begin + offset)
        return dequantize(raw.reshape(-1, block_bytes), TYPES[kind][0]).reshape(shape)


def halves(bytes_of_f16):
    return np.ascontiguousarray(bytes_of_f16).view("<f2").astype(np.float32)


def dequantize(blocks, kind):
    """[blocks, weights in a block] from [blocks, bytes in a block]; the file head has the formulas."""
    if kind == "F32":
        return blocks.view("<f4").astype(np.float32)
    if kind == "F16":
        return halves(blocks)
    if kind == "BF16":
        return (blocks.view("<u2").astype(np.uint32) << 16).view(np.float32)
    if kind == "Q8_0":
        return halves(blocks[:, :2]) * np.ascontiguousarray(blocks[:, 2:]).view(np.int8).astype(np.float32)
    nibbles = blocks[:, -16:]
    q = np.concatenate([nibbles & 15, nibbles >> 4], axis=1).astype(np.float32)
    if kind == "Q4_0":
        return halves(blocks[:, :2]) * (q - 8)
    if kind == "Q4_1":
        return halves(blocks[:, :2]) * q + halves(blocks[:, 2:4])
    raise ValueError(kind)
