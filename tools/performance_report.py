#!/usr/bin/env python3
"""Turns recorded measurements into the tables of docs/performance.md and plots beside it.

    performance_report.py [docs/data/performance-*.json ...] [--page docs/performance.md]

Reads records of benchmarks/compare_peers.py and JSON of kernels_benchmark; without names, all files
docs/data/performance-*.json. A table stands in the page between `<!-- table:NAME -->` and `<!-- end:NAME -->`; what is
around stays. NAMEs are limits, ttft, pruned, where, decode and kernels; a page need not have all of them. Plots are
performance-ttft-MODEL.svg and performance-kernels.svg, beside the page. From kernels_benchmark's files the host's name
and the program's path are taken out.
"""

import argparse
import json
import math
import pathlib
import re
import sys
from html import escape

ROOT = pathlib.Path(__file__).resolve().parent.parent


# ---- Records

def load(paths: list[pathlib.Path]) -> tuple[list[dict], list[dict]]:
    """Records of compare_peers, and of kernels_benchmark."""
    compared, kernels = [], []
    for path in paths:
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            sys.exit(f"{path}: {error}")
        if data.get("kind") == "compare_peers":
            compared.append(data)
        elif "benchmarks" in data and "context" in data:
            kernels.append(data)
            private = [key for key in ("host_name", "executable") if data["context"].pop(key, None) is not None]
            if private:
                path.write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
        else:
            sys.exit(f"{path}: neither a record of compare_peers.py nor of kernels_benchmark")
    return compared, kernels


def arms(record: dict, model: str) -> list[dict]:
    return [one for one in record["prefill"] if one["model"] == model]


def arm_name(record: dict, one: dict) -> str:
    """The method's names, without settings where they are not what tells methods apart."""
    if one["prune"] == "none":
        return "coppice, dense" if one["engine"] == "coppice" else one["engine"]
    short = lambda spec: "+".join(part.split(":")[0] for part in spec.split("+"))
    like = {other["prune"] for other in record["prefill"] if short(other["prune"]) == short(one["prune"])}
    return "coppice, " + (short(one["prune"]) if len(like) == 1 else one["prune"])


def limit(record: dict, group: str, names: list[str]) -> float | None:
    """The highest of the named limits on all threads, in operations or bytes per second."""
    found = [record["limits"][group][name][str(record["threads"])]["median"] * 1e9
             for name in names if name in record.get("limits", {}).get(group, {})]
    return max(found) if found else None


FLOAT_PEAKS = ["avx2_fp32", "avx512_fp32", "avx512_bf16", "amx_bf16"]
LEVELS = {"scalar": 0, "avx2": 1, "avx512": 2, "amx": 3}
INT_PEAKS = FLOAT_PEAKS + ["avx2_int8", "avx512_int8", "amx_int8"]


def peak_of(record: dict, row: dict, kind: str) -> float | None:
    """Of the kernels that the run's ISA allows; integers for quantised weights, except for AMX's attention."""
    integers = row["type"] not in ("F32", "F16", "BF16") and (kind == "product" or row["isa"] != "amx")
    names = INT_PEAKS if integers else FLOAT_PEAKS
    allowed = [name for name in names if LEVELS[name.split("_")[0]] <= LEVELS[row["isa"]]]
    return limit(record, "gigaops_per_second", allowed)


# ---- Text

def seconds(ms: float) -> str:
    return f"{ms / 1000:.2f}" if ms < 100_000 else f"{ms / 1000:.0f}"


def ranged(spread: dict, form) -> str:
    """The median, and where something was measured more than once the lowest and the highest."""
    if spread["min"] == spread["max"]:
        return form(spread["median"])
    return f"{form(spread['median'])} ({form(spread['min'])} to {form(spread['max'])})"


def percent(share: float | None) -> str:
    return "" if share is None else f"{100 * share:.0f} %"


def markdown(header: list[str], rows: list[list[str]], text_columns: int) -> str:
    rule = ["---"] * text_columns + ["--:"] * (len(header) - text_columns)
    return "\n".join("| " + " | ".join(cells) + " |" for cells in [header, rule, *rows])


def about(record: dict) -> str:
    machine = record["machine"]
    engines = []
    for name, engine in record["engines"].items():
        version = engine["version"].splitlines()[0].removeprefix(name).strip()
        engines.append(f"{name} {version}" + (f" (`{' '.join(engine['options'])}`)" if "options" in engine else ""))
    rounds = "1 round" if record["rounds"] == 1 else f"{record['rounds']} rounds"
    load = f" Load average before the first round: {record['load'][0]:g}." if record.get("load") else ""
    return (f"{record['date']}, {machine['cpu']}, {machine['cores']} cores, {machine['memory_gib']} GiB, {machine['system']}; "
            f"{record['threads']} threads, {rounds}, run by run. {'; '.join(engines)}.{load}")


def isa_of(record: dict) -> str:
    return next((one["bench"]["isa"] for one in record["prefill"] if "bench" in one), "avx512")


class Table:
    """One table of all records. Where there are several, a letter says which one a row is from (`legend`)."""

    def __init__(self, records: list[dict], header: list[str], text_columns: int):
        self.records, self.header, self.text_columns = records, header, text_columns
        self.rows: list[list[str]] = []

    def letters(self) -> dict[int, str]:
        return {id(record): chr(ord("A") + i) for i, record in enumerate(self.records)} if len(self.records) > 1 else {}

    def add(self, record: dict, cells: list[str]) -> None:
        letters = self.letters()
        self.rows.append([letters[id(record)], *cells] if letters else cells)

    def text(self) -> str:
        more = 1 if self.letters() else 0
        return markdown(["run", *self.header] if more else self.header, self.rows, self.text_columns + more)


def legend(records: list[dict]) -> str:
    if len(records) == 1:
        return about(records[0])
    return "\n".join(f"- **{chr(ord('A') + i)}**, {isa_of(record)}, {', '.join(record['models'])}: {about(record)}"
                     for i, record in enumerate(records))


def limits_table(records: list[dict]) -> str:
    """Rows are limits; a column per record, of all threads."""
    units = {"gigaops_per_second": "1e9 operations/s", "gigabytes_per_second": "1e9 bytes/s"}
    rows = []
    for group, unit in units.items():
        for name in sorted({name for record in records for name in record.get("limits", {}).get(group, {})}):
            of = [record.get("limits", {}).get(group, {}).get(name, {}).get(str(record["threads"])) for record in records]
            rows.append([name.replace("_", " "), unit, *(ranged(one, lambda x: f"{x:.0f}") if one else "" for one in of)])
    names = [chr(ord("A") + i) for i in range(len(records))] if len(records) > 1 else [f"{records[0]['threads']} threads"]
    return f"{legend(records)}\n\n{markdown(['limit', 'unit', *names], rows, 2)}"


def ttft_table(records: list[dict]) -> str:
    table = Table(records, ["file", "engine", "tokens", "TTFT s", "tokens/s", "times coppice's TTFT"], 2)
    found = [(one["model"], one["prompt"], i, record, one) for i, record in enumerate(records) for one in record["prefill"]
             if one["prune"] == "none"]
    for model, prompt, _, record, one in sorted(found, key=lambda entry: entry[:3]):
        ratio = one.get("times_coppice_dense")
        table.add(record, [model, arm_name(record, one), f"{prompt:,}", ranged(one["ttft_ms"], seconds),
                           f"{1000 * prompt / one['ttft_ms']['median']:.1f}", ranged(ratio, lambda x: f"{x:.2f}") if ratio else ""])
    return table.text()


def peers_best(record: dict, model: str, prompt: int) -> float | None:
    found = [one["ttft_ms"]["median"] for one in arms(record, model) if one["engine"] != "coppice" and one["prompt"] == prompt]
    return min(found) if found else None


def pruned_table(records: list[dict]) -> str:
    table = Table(records, ["file", "method", "tokens", "kept KV / FFN", "TTFT s", "over dense", "FLOP bound", "share of it", "time bound",
                            "share of it", "over the fastest peer"], 2)
    for record, one in ((record, one) for record in records for one in record["prefill"] if one["prune"] != "none"):
        row = one["bench"]
        peer = peers_best(record, one["model"], one["prompt"])
        name = f"`{one['prune']}`" + ("" if row["active"] else " (stood aside)")
        table.add(record, [one["model"], name, f"{one['prompt']:,}", row["kept"], ranged(one["ttft_ms"], seconds),
                           f"{row['speed_up']:.2f}x", f"{row['flop_bound']:.2f}x", percent(row["share_of_bound"]),
                           f"{row['time_bound']:.2f}x", percent(row["share_of_time_bound"]),
                           f"{peer / one['ttft_ms']['median']:.1f}x" if peer else ""])
    return table.text()


def where_table(records: list[dict]) -> str:
    table = Table(records, ["file", "method", "tokens", "products ms", "TFLOP/s", "of peak", "attention ms", "TFLOP/s", "of peak", "packing",
                            "rows", "scoring", "selection", "single rows", "other", "peak GiB"], 2)
    for record, one in ((record, one) for record in records for one in record["prefill"] if one["engine"] == "coppice"):
        row = one["bench"]
        cells = [one["model"], arm_name(record, one).removeprefix("coppice, "), f"{one['prompt']:,}"]
        for kind in ["product", "attention"]:
            rate = row[f"{kind}_tflops_per_second"]
            peak = peak_of(record, row, kind)
            cells += [f"{row[f'{kind}_ms']:.0f}", f"{rate:.3f}", percent(1e12 * rate / peak if peak else None)]
        cells += [f"{row[f'{kind}_ms']:.0f}" for kind in ["pack", "rows", "scoring", "selection", "decode_product", "other"]]
        table.add(record, [*cells, f"{row['peak_bytes'] / 2**30:.2f}"])
    return table.text()


def decode_table(records: list[dict]) -> str:
    table = Table(records, ["file", "engine", "depth", "tokens/s", "file size x rate, of the read bandwidth", "coppice over it"], 2)
    for record, one in ((record, one) for record in records for one in record["decode"]):
        memory = limit(record, "gigabytes_per_second", ["read"])
        rate = one["tokens_per_second"]
        share = rate["median"] * record["models"][one["model"]] / memory if memory and one["depth"] == 0 else None
        ratio = one.get("coppice_times_this")
        table.add(record, [one["model"], one["engine"], f"{one['depth']:,}", ranged(rate, lambda x: f"{x:.1f}"), percent(share),
                           ranged(ratio, lambda x: f"{x:.2f}") if ratio and one["engine"] != "coppice" else ""])
    return table.text()


def kernel_rows(kernels: list[dict]) -> list[dict]:
    """Operations with a share of a limit, one of each name: the last record counts."""
    found = {}
    for record in kernels:
        for one in record["benchmarks"]:
            if one.get("run_type", "iteration") == "iteration" and "share" in one:
                found[one["name"].removesuffix("/manual_time")] = one
    return [{"name": re.sub(r"/min_time:[^/]*", "", name).removesuffix("/manual_time"), **{k: one.get(k) for k in ("share", "limit", "FLOP/s", "bytes/s", "real_time")}}
            for name, one in found.items()]


def kernels_table(kernels: list[dict]) -> str:
    rows = []
    for one in kernel_rows(kernels):
        rate, unit = (one["FLOP/s"], "operations") if one["FLOP/s"] else (one["bytes/s"], "bytes")
        rows.append([one["name"], unit, f"{one['real_time']:.3f}", f"{rate / 1e9:.1f}", f"{one['limit'] / 1e9:.1f}", percent(one["share"])])
    context = kernels[-1]["context"]
    words = (f"{context.get('cpu', '')}, {context.get('isa', '')}, {context.get('threads', '?')} threads; the limits of operations are "
             f"{context.get('limit_bf16', '?')} and, for quantised weights, {context.get('limit_int8', '?')}.")
    return words + "\n\n" + markdown(["operation", "of", "ms", "1e9/s", "limit", "share"], rows, 2)


# ---- Plots: plain SVG on a card of its own, so that they can be read on a page of any colour

STYLE = """<style>
svg { --card: #ffffff; --ink: #1f2328; --soft: #656d76; --grid: #d0d7de;
 --c0: #0969da; --c1: #bc4c00; --c2: #1a7f37; --c3: #8250df; --c4: #bf3989; --c5: #57606a; --c6: #9a6700; --c7: #0e7490; --c8: #a40e26; --c9: #4d7c0f; }
@media (prefers-color-scheme: dark) { svg { --card: #0d1117; --ink: #e6edf3; --soft: #9198a1; --grid: #30363d;
 --c0: #58a6ff; --c1: #f0883e; --c2: #3fb950; --c3: #bc8cff; --c4: #f778ba; --c5: #b1bac4; --c6: #d29922; --c7: #39c5cf; --c8: #ff7b72; --c9: #a3e635; } }
text { font: 13px system-ui, sans-serif; fill: var(--ink); } .soft { fill: var(--soft); } .title { font-weight: 600; font-size: 15px; }
</style>"""


def svg(width: int, height: int, title: str, body: list[str]) -> str:
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" role="img">',
                      f"<title>{escape(title)}</title>", STYLE,
                      f'<rect width="{width}" height="{height}" rx="6" style="fill: var(--card)"/>',
                      f'<text x="20" y="28" class="title">{escape(title)}</text>', *body, "</svg>"]) + "\n"


def text(x: float, y: float, words: str, anchor: str = "start", kind: str = "") -> str:
    of = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"{of}>{escape(words)}</text>'


def line(x1: float, y1: float, x2: float, y2: float, colour: str = "var(--grid)", width: float = 1) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" style="stroke: {colour}; stroke-width: {width}"/>'


def ticks_of(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten that lie inside."""
    found = [m * 10.0**e for e in range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 1) for m in (1, 2, 5)]
    return [t for t in found if low <= t <= high]


def apart(wanted: list[float], gap: float) -> list[float]:
    """Places in the order given, moved down as far as they must to keep their distance."""
    placed: list[float] = []
    for y in wanted:
        placed.append(max(y, placed[-1] + gap) if placed else y)
    return placed


def ttft_plot(record: dict, model: str) -> str:
    series: dict[str, list[dict]] = {}
    for one in sorted(arms(record, model), key=lambda one: one["prompt"]):
        series.setdefault(arm_name(record, one), []).append(one)
    lengths = sorted({one["prompt"] for one in arms(record, model)})
    values = [one["ttft_ms"][end] / 1000 for one in arms(record, model) for end in ("min", "max")]
    low, high = min(values) / 1.3, max(values) * 1.3
    left, right, top, bottom, height = 62, 500, 50, 350, 400

    def x(tokens: float) -> float:
        span = math.log(lengths[-1] / lengths[0]) or 1
        return left + 25 + (right - left - 50) * math.log(tokens / lengths[0]) / span

    def y(value: float) -> float:
        return bottom - (bottom - top) * math.log(value / low) / math.log(high / low)

    body = [f for t in ticks_of(low, high) for f in (line(left, y(t), right, y(t)), text(left - 8, y(t) + 4, f"{t:g}", "end", "soft"))]
    body += [text(x(n), bottom + 20, f"{n:,}", "middle", "soft") for n in lengths]
    body += [text((left + right) / 2, bottom + 40, "prompt tokens", "middle", "soft"), text(20, 44, "seconds to the first token, lower is better", kind="soft")]
    ends = sorted(series, key=lambda name: y(series[name][-1]["ttft_ms"]["median"] / 1000))
    places = apart([y(series[name][-1]["ttft_ms"]["median"] / 1000) for name in ends], 18)
    labels = {name: f"{name}: {seconds(runs[-1]['ttft_ms']['median'])} s" + (f" at {runs[-1]['prompt']:,}" if runs[-1]["prompt"] < lengths[-1] else "")
              for name, runs in series.items()}
    width = max(760, right + 25 + round(7.3 * max(map(len, labels.values()))))  # of a letter of 13 px, at most
    for i, name in enumerate(series):
        colour = f"var(--c{i % 8})"
        points = [(x(one["prompt"]), one["ttft_ms"]) for one in series[name]]
        path = " ".join(f"{px:.1f},{y(ms['median'] / 1000):.1f}" for px, ms in points)
        body.append(f'<polyline points="{path}" style="fill: none; stroke: {colour}; stroke-width: 2"/>')
        for px, ms in points:
            body.append(line(px, y(ms["min"] / 1000), px, y(ms["max"] / 1000), colour, 1.5))
            body.append(f'<circle cx="{px:.1f}" cy="{y(ms["median"] / 1000):.1f}" r="3.5" style="fill: {colour}"/>')
        place = places[ends.index(name)]
        px, ms = points[-1]
        body.append(line(px + 6, y(ms["median"] / 1000), right + 6, place, colour))
        body.append(text(right + 10, place + 4, labels[name]))
    return svg(width, height, f"Time to first token, {model}", body)


def kernels_plot(kernels: list[dict]) -> str:
    """The largest case of each operation, shape and type."""
    best: dict[str, dict] = {}
    for one in kernel_rows(kernels):
        parts = one["name"].split("/")
        key = "/".join(parts[:3]) if parts[0] == "Product" else one["name"]
        best[key] = one  # sizes ascend
    rows = [(one["name"], one["share"], "FLOP/s" if one["FLOP/s"] else "bytes/s") for one in best.values()]
    left, right, top, step = 230, 690, 62, 20
    height = top + step * len(rows) + 30
    scale = max(1.0, *(share for _, share, _ in rows))

    def x(share: float) -> float:
        return left + (right - left) * share / scale

    bottom = top + step * len(rows)
    body = [text(20, 46, "blue: of the arithmetic peak; orange: of the memory bandwidth", kind="soft")]
    for tenth in range(0, math.floor(scale * 4) + 1):
        body += [line(x(tenth / 4), top - 4, x(tenth / 4), bottom), text(x(tenth / 4), bottom + 18, f"{25 * tenth} %", "middle", "soft")]
    for i, (name, share, unit) in enumerate(rows):
        y = top + step * i
        colour = "var(--c0)" if unit == "FLOP/s" else "var(--c1)"
        body.append(f'<rect x="{left}" y="{y + 3}" width="{max(x(share) - left, 1):.1f}" height="{step - 6}" rx="2" style="fill: {colour}"/>')
        body += [text(left - 8, y + 14, name, "end"), text(x(share) + 6, y + 14, percent(share))]
    return svg(760, height, "Operations, share of the limit measured beside them", body)


# ---- The page

def replace_tables(page: str, tables: dict[str, str]) -> str:
    for name, table in tables.items():
        begin, end = f"<!-- table:{name} -->", f"<!-- end:{name} -->"
        if begin not in page:
            continue
        if page.count(begin) != 1 or page.count(end) != 1 or page.index(end) < page.index(begin):
            sys.exit(f"the page needs one {begin} and one {end} after it")
        before, rest = page.split(begin)
        page = f"{before}{begin}\n{table}\n{end}{rest.split(end)[1]}"
    return page


def tables_of(compared: list[dict], kernels: list[dict]) -> dict[str, str]:
    tables = {}
    if compared:
        tables["limits"] = limits_table(compared)
        if any(r["prefill"] for r in compared):
            tables["ttft"] = ttft_table(compared)
            tables["where"] = where_table(compared)
        if any(one["prune"] != "none" for r in compared for one in r["prefill"]):
            tables["pruned"] = pruned_table(compared)
        if any(r["decode"] for r in compared):
            tables["decode"] = decode_table(compared)
    if kernels:
        tables["kernels"] = kernels_table(kernels)
    return tables


def plots_of(compared: list[dict], kernels: list[dict]) -> dict[str, str]:
    # One plot per model, of all records with the best ISA: lengths are often measured apart. Of what is in several, the
    # last counts.
    best = max((LEVELS[isa_of(record)] for record in compared), default=0)
    compared = [record for record in compared if LEVELS[isa_of(record)] == best]
    latest = {(one["model"], one["prompt"], one["engine"], one["prune"]): one for record in compared for one in record["prefill"]}
    joined = {"prefill": list(latest.values())}
    plots = {f"performance-ttft-{pathlib.Path(model).stem}.svg": ttft_plot(joined, model)
             for model in dict.fromkeys(one["model"] for one in joined["prefill"])}
    if kernels and kernel_rows(kernels):
        plots["performance-kernels.svg"] = kernels_plot(kernels)
    return plots


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("records", nargs="*", type=pathlib.Path)
    parser.add_argument("--page", type=pathlib.Path, default=ROOT / "docs/performance.md")
    args = parser.parse_args()
    records = args.records or sorted((ROOT / "docs/data").glob("performance-*.json"))
    if not records:
        sys.exit("no records: run benchmarks/compare_peers.py first")
    compared, kernels = load(records)
    page = args.page.read_text(encoding="utf-8")
    args.page.write_text(replace_tables(page, tables_of(compared, kernels)), encoding="utf-8", newline="\n")
    for name, plot in plots_of(compared, kernels).items():
        (args.page.parent / name).write_text(plot, encoding="utf-8", newline="\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
