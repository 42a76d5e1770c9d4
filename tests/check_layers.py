"""Fails when an include of the project points up in the order of layers (ARCHITECTURE.md)."""

import pathlib
import re
import sys

LAYERS = ["base", "tensor", "comm", "formats", "kernels", "text", "grammar", "trace", "kv", "policies", "model", "engine", "train", "eval", "server", "apps"]
# Finer than the order: what a folder may not see although it lies below.
FORBIDDEN = {("policies", "kv"), ("policies", "text"), ("kv", "text"), ("model", "text"), ("policies", "trace"),
             ("model", "grammar"), ("policies", "grammar"), ("kv", "grammar")}
# The layer sees the seam and nothing else of the methods.
ONLY = {("model", "policies"): {"policies/policy.h"}}
# Within text: a room may see these others.
TEXT_ROOMS = {"unicode": set(), "jinja": {"unicode"}, "tokenizer": {"unicode"}}


def violations(source_root: pathlib.Path) -> list[str]:
    found = []
    for path in sorted(source_root.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".cu", ".cuh", ".inl"}:
            continue
        folder = path.relative_to(source_root).parts[0]
        is_test = "test" in path.stem or path.stem.endswith("_support")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            match = re.match(r'\s*#include "([^"]+)"', line)
            if not match:
                continue
            target = match.group(1).split("/")[0]
            where = f"{path}:{number}: {folder} includes {match.group(1)}"
            if target not in LAYERS:
                if not is_test:
                    found.append(f"{where}: includes are written from src/")
                continue
            if LAYERS.index(target) > LAYERS.index(folder):
                found.append(f"{where}: points up")
            if (folder, target) in FORBIDDEN:
                found.append(f"{where}: {folder} must not know {target}")
            if folder == target == "text" and not is_test:
                room, seen = path.parent.name, match.group(1).split("/")[1]
                if seen != room and seen not in TEXT_ROOMS[room]:
                    found.append(f"{where}: text/{room} must not know text/{seen}")
            allowed = ONLY.get((folder, target))
            if allowed is not None and match.group(1) not in allowed and not is_test:
                found.append(f"{where}: only {', '.join(sorted(allowed))}")
    return found


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    assert (root / "base").is_dir(), f"{root} is not the source tree"
    problems = violations(root)
    print("\n".join(problems) if problems else "includes point down")
    sys.exit(1 if problems else 0)
