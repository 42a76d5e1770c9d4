"""Prints README.md: README.head.md, then the table of kernels. With a path, fails if that file says something else."""

import pathlib
import sys

import variants


def constants(variant: variants.Variant) -> str:
    return ", ".join(f"{name} {value}" for name, value in variant.constants.items() if not isinstance(value, bool))


def table() -> str:
    lines = []
    for variant in variants.VARIANTS:
        lines.append(f"**{variant.name}** ({variant.function.split('.')[0]}.py), grid {variant.grid}, {variant.warps} "
                     f"{'warp' if variant.warps == 1 else 'warps'}, {constants(variant)}"
                     + (f"; {variant.note}" if variant.note else ""))
        lines.append(f"\n    {variant.arguments}\n")
    return "\n".join(lines)


def main() -> int:
    text = (pathlib.Path(__file__).parent / "README.head.md").read_text() + table()
    if len(sys.argv) == 1:
        print(text, end="")
        return 0
    if pathlib.Path(sys.argv[1]).read_text() == text:
        return 0
    print(f"{sys.argv[1]} differs from variants.py: print it anew with readme.py")
    return 1


if __name__ == "__main__":
    sys.exit(main())
