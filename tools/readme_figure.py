#!/usr/bin/env python3
"""Draws the README's figure, docs/readme-ttft.svg: time to first token at two prompt lengths, beside other engines.

    tools/readme_figure.py [--output docs/readme-ttft.svg]

Reads docs/data/performance-1b-16k.json and performance-1b-32k.json, records of benchmarks/compare_peers.py. Each panel
has a linear scale of its own, from 0 to its slowest engine; ratios are to that engine.
"""

import argparse
import pathlib

from performance_report import ROOT, load, svg, text

RECORDS = ["docs/data/performance-1b-16k.json", "docs/data/performance-1b-32k.json"]
# Of a record: engine, value of --prune; on the figure: name, colour.
BARS = [
    ("llama.cpp", "none", "llama.cpp", "--c5"),
    ("ik_llama.cpp", "none", "ik_llama.cpp", "--c5"),
    ("openvino", "none", "OpenVINO GenAI", "--c5"),
    ("coppice", "none", "coppice, no pruning", "--c0"),
    ("coppice", "sliminfer", "coppice, SlimInfer", "--c2"),
]
WIDTH, LEFT, RIGHT, BAR, STEP = 820, 168, 640, 18, 26


def panel(record: dict, top: float) -> tuple[list[str], float]:
    times = {(one["engine"], one["prune"]): one["ttft_ms"]["median"] for one in record["prefill"]}
    prompt = record["prefill"][0]["prompt"]
    bars = [bar for bar in BARS if bar[:2] in times]
    slowest = max(times[engine, prune] for engine, prune, _, _ in bars)
    body = [text(20, top, f"{prompt:,} prompt tokens", kind="soft")]
    for i, (engine, prune, name, colour) in enumerate(bars):
        y = top + 14 + i * STEP
        ms = times[engine, prune]
        width = max((RIGHT - LEFT) * ms / slowest, 2)
        body.append(f'<rect x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3" style="fill: var({colour})"/>')
        ratio = f", {slowest / ms:.1f} times faster" if ms < slowest else ""
        body.append(text(LEFT - 10, y + 14, name, "end"))
        body.append(text(LEFT + width + 8, y + 14, f"{ms / 1000:,.0f} s{ratio}"))
    return body, top + 14 + len(bars) * STEP


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=pathlib.Path, default=ROOT / "docs/readme-ttft.svg")
    args = parser.parse_args()
    body, y = [], 58
    for record in load([ROOT / name for name in RECORDS])[0]:
        lines, y = panel(record, y)
        body += lines
        y += 26
    title = "Time to first token on two CPU cores, Llama-3.2-1B's shape in Q4_0 (shorter is better)"
    args.output.write_text(svg(WIDTH, y - 8, title, body), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
