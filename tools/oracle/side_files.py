"""Side files of methods: safetensors with metadata, read and written with NumPy alone."""

import json
import struct

import numpy as np


def read_side_file(path):
    """Metadata, and tensors by name in float64, of type F32, F16 or BF16."""
    with open(path, "rb") as file:
        (size,) = struct.unpack("<Q", file.read(8))
        header, data = json.loads(file.read(size)), file.read()
    metadata, tensors = header.pop("__metadata__"), {}
    for name, about in header.items():
        raw = data[slice(*about["data_offsets"])]
        if about["dtype"] == "BF16":  # the upper half of a float32
            flat = (np.frombuffer(raw, "<u2").astype("<u4") << 16).view("<f4")
        else:
            flat = np.frombuffer(raw, {"F32": "<f4", "F16": "<f2"}[about["dtype"]])
        tensors[name] = flat.reshape(about["shape"]).astype(np.float64)
    return metadata, tensors


def write_side_file(path, metadata, tensors):
    """Writes `tensors`, arrays by name, as F32."""
    header, end = {"__metadata__": metadata}, 0
    for name, tensor in tensors.items():
        header[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": [end, end + 4 * tensor.size]}
        end += 4 * tensor.size
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for tensor in tensors.values():
            file.write(tensor.astype("<f4").tobytes())
