#!/usr/bin/env python3
"""Makes the figure and the tables of docs/quality.md from runs of `coppice eval`.

    tools/quality_docs.py RESULTS...     # folders of coppice eval -o: adds their rows to docs/data/quality-smollm2.json
    tools/quality_docs.py                # makes the same again from the kept rows

A new row replaces the kept one of the same task, length and setting; dense's row stays. Every share of dense is of the
same run's dense.

Writes docs/quality-smollm2.svg (answers kept over the speed-up, a panel for each length) and the tables of
docs/quality.md between the comments BEGIN and END. Tasks count that dense does at 80 % and more.
"""

import argparse
import json
import math
import pathlib
import re

from performance_report import ROOT, line, markdown, svg, text

DATA, FIGURE, PAGE = ROOT / "docs/data/quality-smollm2.json", ROOT / "docs/quality-smollm2.svg", ROOT / "docs/quality.md"
BEGIN, END = "<!-- tables: made by tools/quality_docs.py -->", "<!-- end of tables -->"
LEAST = 80  # percent
KEPT_FIELDS = ["task", "length", "prune", "n", "score", "score_interval", "ttft_ms", "speed_up", "flops_ratio", "kl"]
COPPICE = "coppice:keep=0.12/0.06/0.03,layers=8/15/24"
# --prune, name on the page, colour, and whether its point is hollow: the paper's setting, a default or a control.
ARMS = [
    ("none", "dense", "--c5", False),
    ("lazyllm:min=0", "LazyLLM, the paper's", "--c1", True),
    ("lazyllm:keep=0.5,layers=15/21/27,widen=8,min=0", "LazyLLM, tuned", "--c1", False),
    ("sliminfer:keep=0.25/0.125/0.0625,min=0", "SlimInfer, the paper's", "--c2", True),
    ("sliminfer:keep=0.7/0.35/0.3,layers=15/19/27,score=mass,min=0", "SlimInfer, tuned", "--c2", False),
    ("ftp", "FTP, the paper's", "--c3", True),
    ("ftp:dense=21,eta=0.5,fill=mean", "FTP, tuned", "--c3", False),
    ("sdtp:file=FILE,min=0", "SDTP, the paper's", "--c4", True),
    ("sdtp:file=FILE,r=0.85,min=0", "SDTP, r=0.85", "--c4", False),
    ("uniprefill", "UniPrefill, the paper's", "--c6", True),
    ("fastkv", "FastKV, the paper's", "--c7", True),
    ("gemfilter", "GemFilter, the paper's", "--c8", True),
    ("spts:proxy=FILE,keep=0.275/0.214/0.122/0.061,drop=0.0305,min=0", "SPTS, the paper's, as shares", "--c9", True),
    ("spts:proxy=FILE,min=0", "SPTS, the paper's", "--c9", True),
    ("spts:proxy=FILE,begin=20,layers=22/24/26/28,keep=0.25/0.2/0.15/0.1,drop=0.03,min=0", "SPTS, later layers", "--c9", False),
    ("flashprefill:min=0", "FlashPrefill, the paper's", "--c5", True),
    ("random:keep=0.25/0.1/0.05,layers=8/15/24", "at random, as many as `coppice`", "--c5", True),
    ("coppice", "`coppice`, default", "--c0", True),
    (COPPICE, "`coppice`, tuned", "--c0", False),
    (COPPICE + "+flashprefill:min=0", "tuned, with FlashPrefill", "--c0", False),
    (COPPICE + "+minference:pattern=block_sparse,blocks=16,min=0", "tuned, MInference with 16 blocks", "--c0", False),
    (COPPICE + "+minference:pattern=block_sparse,blocks=8,min=0", "tuned, MInference with 8 blocks", "--c0", False),
]


def rows_of(folder: pathlib.Path) -> list[dict]:
    """The rows of a run, with `right`, `lost` and `won` of the answers: lost ones dense has right."""
    counts: dict[tuple, list[float]] = {}
    for record in map(json.loads, (folder / "samples.jsonl").read_text(encoding="utf-8").splitlines()):
        if "arms" not in record:
            continue
        dense = record["arms"][0]["score"]
        for arm in record["arms"]:
            of = counts.setdefault((record["task"], record["length"], arm["prune"]), [0.0, 0.0, 0.0])
            score = arm["score"]
            for i, value in enumerate((score, max(dense - score, 0), max(score - dense, 0))):
                of[i] += value
    rows, dense_rate = [], {}
    for row in json.loads((folder / "results.json").read_text(encoding="utf-8")):
        rate = row.get("decode_tokens_per_second")
        dense = dense_rate.setdefault((row["task"], row["length"]), rate)  # a task's first row is dense
        right, lost, won = counts[row["task"], row["length"], row["prune"]]
        rows.append({field: row.get(field) for field in KEPT_FIELDS} |
                    {"prune": re.sub(r"\b(file|proxy)=[^,+]*", r"\1=FILE", row["prune"]),
                     "decode_of_dense": rate and dense and rate / dense, "right": right, "lost": lost, "won": won})
    return rows


def key(row: dict) -> tuple:
    return row["task"], row["length"], row["prune"]


def tasks_at(rows: list[dict], length: int) -> list[str]:
    return [row["task"] for row in rows if row["length"] == length and row["prune"] == "none" and
            row["task"].startswith("ruler/") and row["score"] >= LEAST]


def summary(rows: list[dict], length: int, prune: str) -> dict | None:
    """A setting's means over the tasks that count; None if it was not run."""
    mine = [row for row in rows if row["length"] == length and row["prune"] == prune]
    tasks = tasks_at(rows, length)
    answers = [row for row in mine if row["task"] in tasks]
    if not answers:
        return None
    text_rows = [row for row in mine if row["task"] == "perplexity"]

    def mean(field: str) -> float:
        return sum(row[field] for row in answers) / len(answers)

    def total(field: str) -> int:
        return round(sum(row[field] for row in answers))

    return {"n": total("n"), "right": total("right"), "lost": total("lost"), "won": total("won"), "flops": mean("flops_ratio"),
            "speed": math.exp(sum(math.log(row["speed_up"]) for row in answers) / len(answers)), "kl": mean("kl"),
            "decode": mean("decode_of_dense"), "text": text_rows[0] if text_rows else None}


def interval(right: int, n: int) -> str:
    """Wilson's, 95 %."""
    z, p = 1.96, right / n
    middle, half = p + z * z / (2 * n), z * math.sqrt(p * (1 - p) / n + z * z / (4 * n * n))
    low, high = (middle - half) / (1 + z * z / n), (middle + half) / (1 + z * z / n)
    return f"{max(100 * low, 0):.0f} to {100 * high:.0f} %"


def table(rows: list[dict], length: int) -> str:
    lines = []
    for prune, name, _, _ in ARMS:
        s = summary(rows, length, prune)
        if s is None:
            continue
        prose = [f"{s['text']['score']:.1f}", f"{s['text']['kl']:.3f}"] if s["text"] else ["", ""]
        lines.append([name, f"{100 / s['speed']:.0f} %", f"{100 * s['flops']:.0f} %", f"{s['right']} ({interval(s['right'], s['n'])})",
                      "" if prune == "none" else f"{s['lost']}, {s['won']}", f"{s['kl']:.3f}", *prose,
                      f"{s['decode']:.2f}"])
    tasks = ", ".join(f"`{task.removeprefix('ruler/')}`" for task in tasks_at(rows, length))
    n = summary(rows, length, "none")["n"]
    head = ["setting", "TTFT", "FLOPs", f"right of {n}", "lost, won", "KL", "perplexity", "KL, prose", "decode"]
    return f"**{length:,} tokens** ({tasks})\n\n" + markdown(head, lines, 1)


WIDTH, TOP, LEFT, GAP, HEIGHT = 940, 70, 60, 34, 240


def panel(rows: list[dict], length: int, left: float, width: float, fastest: float) -> list[str]:
    def x(speed: float) -> float:
        return left + width * (speed - 0.7) / (fastest - 0.7)

    def y(kept: float) -> float:
        return TOP + HEIGHT * (1 - min(kept, 1.05) / 1.05)

    body = [text(left, TOP - 12, f"{length:,} tokens", kind="soft")]
    for kept in (0, 0.25, 0.5, 0.75, 1):
        body.append(line(left, y(kept), left + width, y(kept), width=2 if kept == 1 else 1))
        if left == LEFT:
            body.append(text(left - 8, y(kept) + 4, f"{100 * kept:.0f} %", "end", "soft"))
    for speed in range(1, int(fastest) + 1):
        body.append(text(x(speed), TOP + HEIGHT + 18, f"{speed}x", "middle", "soft"))
    dense = summary(rows, length, "none")
    for prune, name, colour, published in ARMS[1:]:
        s = summary(rows, length, prune)
        if s is None:
            continue
        fill = "var(--card)" if published else f"var({colour})"
        kept = s["right"] / dense["right"]
        body.append(f'<circle cx="{x(s["speed"]):.1f}" cy="{y(kept):.1f}" r="5.5" style="fill: {fill}; stroke: var({colour}); '
                    f'stroke-width: 2"><title>{name}: {100 * kept:.0f} % at {s["speed"]:.1f}x</title></circle>')
    return body


def figure(rows: list[dict]) -> str:
    lengths = sorted({row["length"] for row in rows if row["task"].startswith("ruler/")})
    speeds = [s["speed"] for length in lengths for arm in ARMS if (s := summary(rows, length, arm[0]))]
    fastest = max(speeds) + 0.25
    width = (WIDTH - LEFT - 20 - GAP * (len(lengths) - 1)) / len(lengths)
    body = []
    for i, length in enumerate(lengths):
        body += panel(rows, length, LEFT + i * (width + GAP), width, fastest)
    at = float(LEFT)
    for name, colour in [("coppice", "--c0"), ("LazyLLM", "--c1"), ("SlimInfer", "--c2"), ("FTP", "--c3"), ("SDTP", "--c4"),
                         ("UniPrefill", "--c6"), ("FastKV", "--c7"), ("GemFilter", "--c8"), ("SPTS", "--c9"),
                         ("FlashPrefill, at random", "--c5")]:
        body.append(f'<circle cx="{at:.1f}" cy="{TOP + HEIGHT + 44}" r="5.5" style="fill: var({colour})"/>')
        body.append(text(at + 11, TOP + HEIGHT + 48, name))
        at += 30 + 7.5 * len(name)
    body.append(text(LEFT - 6, TOP + HEIGHT + 72, "hollow: the paper's setting or the default; filled: tuned", kind="soft"))
    title = "Right answers, as a share of dense's, over the speed-up of the first token (SmolLM2-135M-Instruct)"
    return svg(WIDTH, TOP + HEIGHT + 88, title, body)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results", type=pathlib.Path, nargs="*", help="folders of coppice eval; none: the kept rows")
    args = parser.parse_args()
    if args.results:
        kept = json.loads(DATA.read_text(encoding="utf-8")) if DATA.exists() else []
        new = [row for folder in args.results for row in rows_of(folder)]
        dense = {key(row): row for row in kept if row["prune"] == "none"}
        rows = list(({key(row): row for row in kept + new} | dense).values())
        DATA.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n", encoding="utf-8", newline="\n")
    rows = json.loads(DATA.read_text(encoding="utf-8"))
    FIGURE.write_text(figure(rows), encoding="utf-8", newline="\n")
    lengths = sorted({row["length"] for row in rows if row["task"].startswith("ruler/")})
    tables = "\n\n".join(table(rows, length) for length in lengths)
    page = PAGE.read_text(encoding="utf-8")
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    PAGE.write_text(page[:begin] + "\n\n" + tables + "\n\n" + page[end:], encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
