#!/usr/bin/env python3
"""Measures right answers of an exported model with the program itself: densely and with each method, by length and depth.

    measure.py MODEL.gguf --work WORK --results R.json     goes on where it stopped; ends with the table

Every prompt is made of a book, of words and of numbers that training never saw: one fact to be found and eight of the same
form to be confused with it. An answer is right when all five digits are. Methods prune at 0.3, 0.6 and 0.9 of the depth. The
random controls drop at the same layers, one as many tokens as LazyLLM, one as SlimInfer (whose blocks are a little less).
"""

import argparse
import json
import math
import pathlib
import random
import subprocess
import sys
import tempfile

import corpus
import facts

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
DISTRACTORS = 8
GENERATE = 8  # tokens: a space, five digits, a full stop
CHARS_PER_TOKEN = {"newton": 2.92, "twain": 3.0}  # of the bundled tokenizer, facts and question included


def methods(layers: int, sdtp: str = "") -> dict[str, str]:
    """Names and specs. SDTP's ten stages are those that `coppice train sdtp` takes for twelve layers."""
    at = "/".join(str(int(layers * share + 0.5)) for share in (0.3, 0.6, 0.9))
    return {
        "dense": "none",
        "lazyllm": f"lazyllm:layers={at},min=0",
        "lazyllm, no revival": f"lazyllm:layers={at},revive=none,min=0",
        "sliminfer": f"sliminfer:layers={at},keep=0.25/0.125/0.0625,min=0",
        "sliminfer, no revival": f"sliminfer:layers={at},keep=0.25/0.125/0.0625,revive=none,min=0",
        "random, as lazyllm": f"random:layers={at},keep=0.5/0.5/0.5,min=0",
        "random, as sliminfer": f"random:layers={at},keep=0.25/0.5/0.5,min=0",
        "sdtp": f"sdtp:file={sdtp},min=0",
        "random, as sdtp": f"random:layers={'/'.join(map(str, range(2, 12)))},keep={'/'.join(['0.9'] * 10)},min=0",
    }


def answer(args: argparse.Namespace, prompt: str, spec: str) -> dict:
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="ascii", newline="\n") as file:
        file.write(prompt)
        file.flush()
        command = [args.coppice, "run", "-m", str(args.model), "-f", file.name, "-n", str(GENERATE), "--temp", "0", "--json",
                   "-t", str(args.threads), "--prune", spec]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout)


def measure(args: argparse.Namespace, results: dict) -> None:
    book = corpus.books(args.work / "packages")[args.book]
    chosen = {name: spec for name, spec in methods(args.layers, args.sdtp).items() if not args.only or name in args.only}
    for number in range(args.prompts):
        for length in args.lengths:
            rng = random.Random(f"{args.book} {length} {number}")
            depth = 0.02 + 0.96 * (number * 19 % 50) / 50  # 19 and 50 share no divisor: fifty depths, mixed
            prompt, wanted = facts.test_prompt(book, int(length * CHARS_PER_TOKEN[args.book]), depth, DISTRACTORS, rng)
            key = f"{args.book} {length} {number}"
            kept = results.setdefault(key, {"length": length, "depth": round(depth, 3), "answer": wanted, "right": {}})
            for name, spec in chosen.items():
                if name not in kept["right"]:
                    run = answer(args, prompt, spec)
                    kept["tokens"] = run["prompt_tokens"]
                    kept["right"][name] = run["text"].strip().startswith(wanted)
                    if not kept["right"][name]:
                        kept.setdefault("said", {})[name] = run["text"].strip()
            args.results.write_text(json.dumps(results, indent=0) + "\n", encoding="utf-8")


def wilson(right: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share (Wilson 1927), in per cent."""
    z = 1.959964
    middle, spread = right + z * z / 2, z * math.sqrt(right * (of - right) / of + z * z / 4)
    return 100 * (middle - spread) / (of + z * z), 100 * (middle + spread) / (of + z * z)


def cell(right: list[bool]) -> str:
    if not right:
        return ""
    low, high = wilson(sum(right), len(right))
    return f"{sum(right)} of {len(right)} ({low:.0f} to {high:.0f} %)"


def table(results: dict) -> str:
    names = [n for n in methods(1) if any(n in r["right"] for r in results.values())]
    lines = ["| book, tokens | " + " | ".join(names) + " |", "|---|" + "--:|" * len(names)]
    for row in dict.fromkeys(tuple(key.split(" ")[:2]) for key in results):
        runs = [r for key, r in results.items() if tuple(key.split(" ")[:2]) == row]
        cells = []
        for name in names:
            cells.append(cell([r["right"][name] for r in runs if name in r["right"]]))
        low, high = min(r["tokens"] for r in runs), max(r["tokens"] for r in runs)
        lines.append(f"| {row[0]}, {low:,} to {high:,} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="train.py's folder")
    parser.add_argument("--results", type=pathlib.Path, required=True)
    parser.add_argument("--coppice", default=str(ROOT / "build/coppice"))
    parser.add_argument("--book", choices=["newton", "twain"], default="newton")
    parser.add_argument("--lengths", type=int, nargs="+", default=[2048, 8192, 16384])
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--sdtp", help="SDTP's predictors", default=str(ROOT / "models/coppice-12-sdtp.safetensors"))
    parser.add_argument("--layers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--only", nargs="+", help="these methods")
    args = parser.parse_args()
    results = json.loads(args.results.read_text(encoding="utf-8")) if args.results.exists() else {}
    measure(args, results)
    print(table(results))
    return 0


if __name__ == "__main__":
    sys.exit(main())
