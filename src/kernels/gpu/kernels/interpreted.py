"""Runs kernels in Triton's interpreter, on NumPy arrays, and compares results: what the tests of this folder share.

A bf16 array is an array of uint16 that holds the bits. The test environment sets TRITON_INTERPRET=1.
"""

import importlib
import os
import unittest

os.environ["TRITON_INTERPRET"] = "1"  # before any kernel is imported
os.environ.setdefault("TRITON_DEFAULT_FP_FUSION", "0")

import numpy as np  # noqa: E402
from triton.runtime import interpreter  # noqa: E402

import variants  # noqa: E402

DTYPES = {"f32": "float32", "f16": "float16", "bf16": "uint16", "i8": "int8", "u8": "uint8", "i32": "int32"}
LONG = os.environ.get("COPPICE_LONG") == "1"  # the whole list of cases, which takes minutes


class Dtype:
    def __init__(self, name: str):
        self.name = {"uint16": "bfloat16"}.get(name, name)

    def __str__(self) -> str:
        return "torch." + self.name


# One object a type for the whole run, because Triton remembers them by address.
TYPES = {name: Dtype(name) for name in DTYPES.values()}


class Pointer:
    """What the interpreter asks of a tensor: an address, a type, and copies to and from the host, which are none here."""

    def __init__(self, array: np.ndarray):
        self.array = array
        self.dtype = TYPES[array.dtype.name]

    def data_ptr(self) -> int:
        return self.array.ctypes.data

    def untyped_storage(self):
        return self

    def cpu(self):
        return self

    def new_empty(self, size: int, device: str):
        return self

    def set_(self, *_):
        pass

    def copy_(self, _):
        pass

    def storage_offset(self) -> int:
        return 0

    size = stride = storage_offset


def aligned(shape, dtype) -> np.ndarray:
    """Zeros at an address that is a multiple of 64."""
    count = int(np.prod(shape)) * np.dtype(dtype).itemsize
    raw = np.zeros(count + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start:start + count].view(dtype).reshape(shape)


def placed(array: np.ndarray) -> np.ndarray:
    copy = aligned(array.shape, array.dtype)
    copy[...] = array
    return copy


NULL = {kind: np.zeros(1, DTYPES[kind]) for kind in DTYPES}


def run(name: str, *arguments, **sizes) -> None:
    """Launches a variant over the grid that its table states. `sizes` names what the grid needs and no argument is. None
    stands for a null pointer. Holds the arguments to the types and the alignment of the table."""
    variant = next(v for v in variants.VARIANTS if v.name == name)
    parsed = variant.parsed()
    assert len(arguments) == len(parsed), f"{name} takes {len(parsed)} arguments"
    values = []
    for (argument, kind, is_aligned), value in zip(parsed, arguments):
        if kind.endswith("*"):
            array = NULL[kind[:-1]] if value is None else value
            assert array.dtype == DTYPES[kind[:-1]], f"{name}: {argument} is {array.dtype}, not {kind}"
            assert value is None or not is_aligned or array.ctypes.data % 16 == 0, f"{name}: {argument} is not aligned"
            values.append(Pointer(array))
        else:
            assert not is_aligned or value % 16 == 0, f"{name}: {argument} is {value}, no multiple of 16"
            values.append(float(value) if kind == "f32" else int(value))
            sizes.setdefault(argument, int(value))
    grid = eval(variant.grid.replace("/", "//"), {"cd": lambda a, b: -(-a // b)}, sizes)  # of variants.py alone
    grid = grid if isinstance(grid, tuple) else (grid,)
    module, function = variant.function.split(".")
    getattr(importlib.import_module(module), function)[grid](*values, **variant.constants)


def to_bf16(x: np.ndarray) -> np.ndarray:
    """Rounds to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32).astype(np.uint64)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def from_bf16(x: np.ndarray) -> np.ndarray:
    return (x.astype(np.uint32) << 16).view(np.float32)


def normal(rows: int, columns: int, seed: int, scale: float = 1) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, scale, (rows, columns)).astype(np.float32)


def rms(x: np.ndarray) -> np.ndarray:
    return np.sqrt(np.mean(np.square(x, dtype=np.float64), axis=1))


def bits(x: np.ndarray) -> bytes:
    return np.ascontiguousarray(x).tobytes()


def dot(_builder, a, b, sums, _precision, _imprecise):
    """tl.dot, summed in the order of k. The interpreter takes NumPy's matmul, whose bits of a row depend on the row's
    place in some of OpenBLAS's kernels (HASWELL and ZEN; OPENBLAS_CORETYPE chooses), as a tensor core's do not."""
    result = sums.data.copy()
    left, right = a.data.astype(result.dtype), b.data.astype(result.dtype)
    for k in range(left.shape[-1]):
        result += left[..., :, k, None] * right[..., None, k, :]
    return interpreter.TensorHandle(result, sums.dtype.scalar)


interpreter.InterpreterBuilder.create_dot = dot

WORST = {}  # by kind of comparison, the largest error of a row over its size


class Case(unittest.TestCase):
    def close(self, actual: np.ndarray, expected: np.ndarray, tolerance: float, what: str = "") -> None:
        """For each row, rms(actual - expected) <= tolerance * rms(expected), and no value is off by more than eight times
        that. A row that cancels to nearly zero is compared with the typical row instead."""
        self.assertEqual(actual.shape, expected.shape)
        off = actual.astype(np.float64) - expected
        self.assertTrue(np.all(np.isfinite(off)), f"{what}: not finite")
        size = np.maximum(rms(expected), np.mean(rms(expected)))
        ratio = float(np.max(rms(off) / np.maximum(size, 1e-300), initial=0))
        WORST[self.id()] = max(WORST.get(self.id(), 0), ratio)
        self.assertLessEqual(ratio, tolerance, what)
        self.assertTrue(np.all(np.abs(off) <= 8 * tolerance * size[:, None]), what)

    def same(self, a: np.ndarray, b: np.ndarray, what: str = "") -> None:
        self.assertEqual(a.shape, b.shape)
        self.assertEqual(bits(a), bits(b), what)

    @classmethod
    def tearDownClass(cls) -> None:
        for name, ratio in WORST.items():
            if name.startswith(f"{cls.__module__}.{cls.__qualname__}."):
                print(f"{name.split('.', 1)[1]}: largest error {ratio:.1e}")
