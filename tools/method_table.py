#!/usr/bin/env python3
"""Measures every method on needle prompts, and writes the table of docs/methods.md.

    tools/method_table.py --source Isaac.Newton-Opticks.txt     # measures what is missing, then writes the table
    tools/method_table.py                                       # writes the table from what was measured

Each prompt is about 2,000 tokens of Newton's "Opticks" with eight facts hidden in it and a question about one of them
(tools/make_demo_prompt.py says where the text comes from); the stretch of the book, the facts and the depth of the one asked
for change from prompt to prompt. One `coppice compare` answers a prompt densely and with every method, in turn, after a round
that warms up; a method's times are divided by the dense ones of the same run, because machines drift. Results are kept
after each prompt, so that a run can be stopped at any time and goes on where it was. A method added to METHODS, or with
--also, is measured on all prompts without repeating the others; --again measures everything anew.
"""

import argparse
import hashlib
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

from make_demo_prompt import SOURCE_SHA256, Random, hide, make_facts, paragraphs

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "models/coppice-mini-f16.gguf"
RESULTS = ROOT / "docs/data/methods-coppice-mini.json"
PAGE = ROOT / "docs/methods.md"
BEGIN, END = "<!-- table: made by tools/method_table.py -->", "<!-- end of table -->"
CHARS = 6000  # of the book, cut at a sentence's end; about 2,000 tokens with the facts and the question
GENERATE = 8   # tokens: an answer has five digits and a full stop

# Settings that act on prompts of this length: min=0 where a preset would stand aside, and budgets that are smaller than
# the prompt. SlimInfer's are the preset's shares without its floor of 2,048 tokens.
SLIM = "sliminfer:keep=0.25/0.125/0.0625,min=0"
METHODS = [
    "lazyllm:min=0",
    "lazyllm:revive=none,min=0",
    "ftp",
    "ftp:choose=random",
    SLIM,
    SLIM.replace(",min", ",revive=none,min"),
    SLIM + "+ftp",
    "random:layers=4/6/8,keep=0.25/0.5/0.5",
    "static",
    "pyramidinfer",
    "random",
    f"selective:model={MODEL}",
    "gemfilter:keep=0.4",
    "streamingllm:recent=508",
    "h2o",
    "h2o:heavy=0,recent=0.4",
    "snapkv:cap=512",
    "snapkv:cap=512,kernel=15",
    "quest:budget=512",
    "minference:vertical=128,slash=256,min=0",
    "flexprefill:min_budget=256,min=0",
    "xattention:min=0",
    SLIM + "+xattention:min=0+ftp",
]


def make_prompt(raw: str, number: int) -> dict:
    """Prompt `number`: the same on every machine."""
    rng = Random(1000 + number)
    prose = paragraphs(raw)
    start = rng.below(len(prose))
    text = ""
    for paragraph in prose[start:] + prose[:start]:
        text += paragraph + "\n"
        if len(text) >= CHARS:
            break
    text = text[:max(m.end() for m in re.finditer(r"[a-z][.!?](?=[ \n])", text[:CHARS]))] + "\n"
    facts, subject, answer = make_facts(rng)
    depth = 0.02 + 0.96 * (number * 19 % 50) / 50  # 19 has no divisor in common with 50: fifty depths, mixed
    text = hide(text, facts, depth, rng)
    text += f"Question: What is t{subject[1:].removesuffix(' is')}?\nAnswer: {subject}"
    return {"prompt": number, "paragraph": start, "depth": round(depth, 4), "answer": answer, "text": text}


def known_methods(coppice: str) -> set[str]:
    listed = subprocess.run([coppice, "methods"], check=True, capture_output=True, text=True, cwd=ROOT).stdout
    return set(re.findall(r"^([a-z0-9]+): ", listed, re.MULTILINE))


def compare(coppice: str, prompt: str, methods: list[str]) -> list[dict]:
    """The accounts of the dense run and of each method, in this order."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="ascii", newline="\n") as file:
        file.write(prompt)
        file.flush()
        command = [coppice, "compare", "-m", MODEL, "-f", file.name, "-n", str(GENERATE), "-r", "1", "--json"]
        for method in methods:
            command += ["--prune", method]
        return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, cwd=ROOT).stdout)


def account(run: dict, dense: dict, answer: str) -> dict:
    """What the table needs of one run."""
    prune = run["prune"]
    layers = len(prune["kept_per_layer"])
    found = {
        "right": run["text"].strip().startswith(answer),
        "text": run["text"].strip(),
        "kept": sum(prune["kept_per_layer"]) / (run["prompt_tokens"] * layers),
        "ffn": sum(prune["ffn_rows_per_layer"]) / sum(dense["prune"]["ffn_rows_per_layer"]),
        "density": sum(prune["attention_density_per_layer"]) / layers,
        "flops": prune["flops"] / prune["flops_dense"],
        "kv": prune["kv_bytes"] / prune["kv_bytes_dense"],
        "parked": prune["aux_bytes"] / prune["kv_bytes_dense"],
        "revived": prune["revived"],
        "ttft": run["ttft_ms"] / dense["ttft_ms"],
        "decode": run["decode_tokens_per_second"] / dense["decode_tokens_per_second"],
    }
    if not prune["active"] and run is not dense:
        found["stood_aside"] = prune.get("reason", "")
    return {key: round(value, 4) if isinstance(value, float) else value for key, value in found.items()}


def measure(args: argparse.Namespace, results: dict) -> None:
    raw = args.source.read_bytes()
    if hashlib.sha256(raw).hexdigest() != SOURCE_SHA256:
        sys.exit(f"{args.source}: not the text that the prompts are made of")
    there = known_methods(args.coppice)
    wanted = []
    for method in METHODS + args.also:
        if all(part.split(":")[0] in there for part in method.split("+")):
            wanted.append(method)
        else:
            print(f"{method}: the program does not know it, left out", file=sys.stderr)
    runs = {run["prompt"]: run for run in results["prompts"]}
    for number in range(args.prompts):
        prompt = make_prompt(raw.decode("utf-8"), number)
        text = prompt.pop("text")
        kept = runs.setdefault(number, prompt | {"methods": {}})
        missing = [method for method in wanted if method not in kept["methods"]]
        if not missing:
            continue
        dense, *others = compare(args.coppice, text, missing)
        kept.update(tokens=dense["prompt_tokens"], dense_ttft_ms=round(dense["ttft_ms"], 1),
                    dense_tokens_per_second=round(dense["decode_tokens_per_second"], 1))
        if not 1500 <= kept["tokens"] <= 2500:
            sys.exit(f"prompt {number} has {kept['tokens']} tokens")
        kept["methods"]["none"] = account(dense, dense, prompt["answer"])
        for method, run in zip(missing, others):
            kept["methods"][method] = account(run, dense, prompt["answer"])
        results["device"] = {key: dense[key] for key in ("backend", "isa", "threads")}
        results["prompts"] = [runs[n] for n in sorted(runs)]
        save(args.results, results)
        print(f"prompt {number}: {kept['tokens']} tokens, right: "
              + ", ".join(method for method in kept["methods"] if kept["methods"][method]["right"]))


def save(path: pathlib.Path, results: dict) -> None:
    """A line for each prompt, so that differences can be read."""
    head = {key: value for key, value in results.items() if key != "prompts"}
    lines = ",\n".join(json.dumps(run) for run in results["prompts"])
    partial = path.with_suffix(".partial")
    partial.write_text(f"{json.dumps(head)[:-1]}, \"prompts\": [\n{lines}\n]}}\n", encoding="utf-8", newline="\n")
    partial.replace(path)


def percent(values: list[float]) -> str:
    return f"{100 * statistics.fmean(values):.0f} %"


def spread(values: list[float]) -> str:
    """Median, and the middle eight tenths."""
    ordered = sorted(values)
    tenth = len(ordered) // 10
    return f"{statistics.median(ordered):.2f} ({ordered[tenth]:.2f} to {ordered[-1 - tenth]:.2f})"


def row(method: str, runs: list[dict]) -> str:
    of = lambda key: [run[key] for run in runs]
    name = "dense" if method == "none" else f"`{method}`"
    if any("stood_aside" in run for run in runs):
        name += " (stood aside)"
    kv = percent(of("kv")) + (f" + {percent(of('parked'))}" if any(of("parked")) else "")
    right = f"{sum(of('right'))} of {len(runs)}"
    return (f"| {name} | {percent(of('kept'))} | {percent(of('ffn'))} | {percent(of('density'))} | {percent(of('flops'))} | "
            f"{spread(of('ttft'))} | {statistics.median(of('decode')):.2f} | {kv} | {right} |")


def table(results: dict) -> str:
    runs = results["prompts"]
    measured = list(dict.fromkeys(method for run in runs for method in run["methods"]))
    order = ["none"] + [m for m in METHODS if m in measured] + [m for m in measured if m not in METHODS + ["none"]]
    tokens = [run["tokens"] for run in runs]
    device = results["device"]
    lines = [f"{len(runs)} prompts of {min(tokens):,} to {max(tokens):,} tokens, {GENERATE} tokens generated, greedy; backend "
             f"{device['backend']} ({device['isa']}), {device['threads']} threads; dense TTFT "
             f"{statistics.median(run['dense_ttft_ms'] for run in runs):.0f} ms and "
             f"{statistics.median(run['dense_tokens_per_second'] for run in runs):.0f} tokens/s in the median.", "",
             "| method | kept | FFN rows | attention density | FLOPs | TTFT | tokens/s | KV + parked | right |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|"]
    lines += [row(m, [run["methods"][m] for run in runs if m in run["methods"]]) for m in order]
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=pathlib.Path, help="Isaac.Newton-Opticks.txt; without it nothing is measured")
    parser.add_argument("--coppice", default=str(ROOT / "build/coppice"), help="the program (build/coppice)")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--also", action="append", default=[], metavar="SPEC", help="one more method; may be repeated")
    parser.add_argument("--again", action="store_true", help="forget what was measured")
    parser.add_argument("--results", type=pathlib.Path, default=RESULTS)
    parser.add_argument("--table", type=pathlib.Path, default=PAGE, help="the page whose table is replaced (docs/methods.md)")
    args = parser.parse_args()
    results = {"model": MODEL, "generated_tokens": GENERATE, "prompts": []}
    if args.results.exists() and not args.again:
        results = json.loads(args.results.read_text(encoding="utf-8"))
    if args.source:
        measure(args, results)
    if not results["prompts"]:
        sys.exit("nothing was measured yet: give --source")
    page = args.table.read_text(encoding="utf-8")
    before, rest = page.split(BEGIN)
    after = rest.split(END)[1]
    args.table.write_text(f"{before}{BEGIN}\n{table(results)}\n{END}{after}", encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
