#!/usr/bin/env python3
"""Writes src/eval/metrics/lower_data.cpp: what Python's str.lower() does to single characters.

    tools/gen_lower_ranges.py > src/eval/metrics/lower_data.cpp

The metrics of the evaluation suite are defined by Python programs, so their letters are Python's. Runs of characters at
equal distances that move by the same amount become one row.
"""

import sys
import unicodedata


def main() -> int:
    moves = [(c, ord(chr(c).lower()) - c) for c in range(0x110000)
             if len(chr(c).lower()) == 1 and chr(c).lower() != chr(c)]
    rows = []  # [first, last, step, delta]
    for code, delta in moves:
        if rows and rows[-1][3] == delta:
            first, last, step, _ = rows[-1]
            if (step == 0 and code - last <= 2) or code - last == step:
                rows[-1][1:3] = [code, code - last]
                continue
        rows.append([code, code, 0, delta])
    print("// Made by tools/gen_lower_ranges.py; do not edit.")
    print('#include "eval/metrics/python_text.h"\n')
    print("namespace coppice {\n")
    print(f"// Unicode {unicodedata.unidata_version}.")
    print("const std::vector<LowerRange>& LowerRanges() {")
    print("  static const std::vector<LowerRange> ranges = {")
    for first, last, step, delta in rows:
        print(f"      {{0x{first:X}, 0x{last:X}, {step or 1}, {delta}}},")
    print("  };\n  return ranges;\n}\n\n}  // namespace coppice")
    return 0


if __name__ == "__main__":
    sys.exit(main())
