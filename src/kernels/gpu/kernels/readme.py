"""Prints README.md with the table of kernels below its last heading made anew; with --check, fails if that differs."""

import pathlib
import sys
import textwrap

import variants

PATH = pathlib.Path(__file__).parent / "README.md"
HEADING = "## Kernels\n\n"


def sizes(variant: variants.Variant) -> str:
    return ", ".join(f"{name} {value}" for name, value in variant.constants.items() if not isinstance(value, bool))


def table() -> str:
    entries = []
    for variant in variants.VARIANTS:
        warps = f"{variant.warps} {'warp' if variant.warps == 1 else 'warps'}"
        head = (f"**{variant.name}** (`{variant.function.split('.')[0]}.py`): grid {variant.grid}, {warps}, {sizes(variant)}"
                + (f"; {variant.note}" if variant.note else ""))
        arguments = textwrap.wrap(variant.arguments, 112, break_long_words=False)
        entries.append("\n".join(textwrap.wrap(head, 118)) + "\n\n" + "\n".join("    " + line for line in arguments) + "\n")
    return "\n".join(entries)


def main() -> int:
    old = PATH.read_text(encoding="utf-8")
    new = old[:old.index(HEADING) + len(HEADING)] + table()
    if "--check" not in sys.argv:
        print(new, end="")
        return 0
    if old == new:
        return 0
    print(f"{PATH} differs from variants.py: print it anew with readme.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
