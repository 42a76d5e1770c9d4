#!/usr/bin/env python3
"""Makes src/formats/iq_grid_codes.h: the grids of IQ2_XXS, IQ2_XS, IQ2_S, IQ3_XXS and IQ3_S, constants of GGUF.

    pip install gguf==0.19.0
    tools/make_iq_grids.py            # writes the file
    tools/make_iq_grids.py --check    # fails if the file differs from what it would write

An entry of a grid holds the magnitudes of eight or four neighbouring values. There are few magnitudes, so the file has
their places, 2 or 3 bits each; src/formats/iq_grids.cpp makes the bytes.
"""

import importlib.metadata
import pathlib
import sys

from gguf import quants

VERSION = "0.19.0"
OUT = pathlib.Path(__file__).resolve().parent.parent / "src/formats/iq_grid_codes.h"
TYPES = ["IQ2_XXS", "IQ2_XS", "IQ2_S", "IQ3_XXS", "IQ3_S"]
HEAD = f"""// Written by tools/make_iq_grids.py from the package gguf {VERSION} (gguf/quants.py, MIT license). Do not edit.
//
// Value i of an entry is kLevels[(entry >> bits * i) & mask]: eight values of 2 bits (IQ2), four of 3 (IQ3).
#pragma once

#include <cstdint>

namespace coppice {{

// clang-format off
"""
PER_LINE = 13


def table(name: str, c_type: str, values: list[str]) -> str:
    lines = [", ".join(values[i:i + PER_LINE]) for i in range(0, len(values), PER_LINE)]
    return f"inline constexpr {c_type} {name}[{len(values)}] = {{\n  " + ",\n  ".join(lines) + "};\n"


def grid(type_name: str) -> str:
    of_type = getattr(quants, type_name)
    of_type.init_grid()
    levels = list(of_type.grid_map)
    bits = 2 if len(levels) <= 4 else 3
    entries = []
    for row in of_type.grid.reshape(of_type.grid_shape):
        entry = sum(levels.index(value) << bits * i for i, value in enumerate(row))
        assert entry < 1 << 16
        entries.append(f"{entry:#x}")
    return (table(f"kLevels{type_name}", "uint8_t", [str(level) for level in levels]) +
            table(f"kCodes{type_name}", "uint16_t", entries))


def main() -> int:
    found = importlib.metadata.version("gguf")
    assert found == VERSION, f"gguf {found}, expected {VERSION}"
    text = HEAD + "\n".join(grid(name) for name in TYPES) + "// clang-format on\n\n}  // namespace coppice\n"
    if sys.argv[1:] == ["--check"]:
        same = OUT.read_text(encoding="utf-8") == text
        print(f"{OUT} is {'that of' if same else 'not that of'} gguf {VERSION}")
        return 0 if same else 1
    OUT.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
