#!/usr/bin/env python3
"""Predicts the time to first token of one dense prompt over several processes (docs/scale-out.md has the formula).

    scale_out_model.py                          the tables of docs/scale-out.md
    scale_out_model.py --check RECORD.json      the formula beside what context_parallel.py measured

    T(P) = pack + (products / rate + attention / rate) / P + received / bandwidth + (2 K + 3 log2(P)) L latency
"""

import argparse
import dataclasses
import json
import math
import pathlib


@dataclasses.dataclass(frozen=True)
class Shape:
    name: str
    layers: int
    hidden: int
    ffn: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int

    def layer_weights(self):
        attention = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return attention + 3 * self.hidden * self.ffn

    def weights(self):
        return self.layers * self.layer_weights() + 2 * self.vocab * self.hidden

    def product_flops(self, tokens):
        """The last layer computes queries, output and FFN for the last position only (src/model/ledger.h)."""
        last = 2 * self.hidden * 2 * self.kv_heads * self.head_dim
        return tokens * (2 * (self.layers - 1) * self.layer_weights() + last)

    def attention_flops(self, tokens):
        return (self.layers - 1) * 2 * self.heads * self.head_dim * tokens**2

    def kv_bytes(self, tokens):
        """In bf16, over all layers."""
        return tokens * self.layers * 2 * self.kv_heads * self.head_dim * 2


SHAPES = {s.name: s for s in [Shape("1b", 16, 2048, 8192, 32, 8, 64, 128256), Shape("8b", 32, 4096, 14336, 32, 8, 128, 128256),
                              Shape("70b", 80, 8192, 28672, 64, 8, 128, 128256)]}


@dataclasses.dataclass(frozen=True)
class Rates:
    """Of one process. The defaults: one Zen 4 core (docs/performance.md, "Where the time goes", runs A and F, halved)."""

    products: float = 0.34e12  # FLOP/s, Q4_0
    attention: dict = dataclasses.field(default_factory=lambda: {64: 0.22e12, 128: 0.16e12})  # FLOP/s, by head_dim
    packing: float = 2.7e9  # weights/s; every process packs every weight

    def times(self, cores, efficiency):
        factor = cores * efficiency
        return Rates(self.products * factor, {dim: r * factor for dim, r in self.attention.items()},
                     self.packing * factor)


def predict(shape, tokens, processes, rates, bandwidth=math.inf, latency=0.0, tile=768):
    """Seconds: in all, and the parts that are not divided by the number of processes.

    Of each layer: two gathers a round, and three comparisons of a choice, each of log2(processes) messages in a row."""
    pack = shape.layers * shape.layer_weights() / rates.packing
    work = shape.product_flops(tokens) / rates.products + shape.attention_flops(tokens) / rates.attention[shape.head_dim]
    received = shape.kv_bytes(tokens) * (processes - 1) / processes
    rounds = 2 * math.ceil(tokens / (2 * processes * tile)) if processes > 1 else 0
    gather = received / bandwidth
    waits = shape.layers * (2 * rounds + 3 * math.log2(processes)) * latency
    return {"total": pack + work / processes + gather + waits, "pack": pack, "gather": gather + waits}


def span(seconds):
    if seconds < 90:
        return f"{seconds:.0f} s"
    if seconds < 5400:
        return f"{seconds / 60:.1f} min" if seconds < 600 else f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"


def tables(args):
    rates = Rates().times(args.cores, args.efficiency)
    print(f"A server: {args.cores} cores at {100 * args.efficiency:.0f} % of {args.cores} times one core's rate; "
          f"{100 * args.network:.0f} % of the network's rate; {1e6 * args.latency:.0f} us a transfer.\n")
    counts = [1, 8, 16, 32, 64]
    print("| shape | tokens | Gbit/s | " + " | ".join(f"{p} server{'s' * (p > 1)}" for p in counts) +
          " | efficiency at 64 | K/V |\n|---|--:|--:|" + "--:|" * (len(counts) + 2))
    for name in ("8b", "70b"):
        for tokens in (131072, 1048576):
            for gbit in (25, 100):
                shape = SHAPES[name]
                bandwidth = gbit * 1e9 / 8 * args.network
                times = [predict(shape, tokens, p, rates, bandwidth, args.latency)["total"] for p in counts]
                print(f"| {name} | {tokens:,} | {gbit} | " + " | ".join(span(t) for t in times) +
                      f" | {100 * times[0] / times[-1] / counts[-1]:.0f} % | {shape.kv_bytes(tokens) / 2**30:.0f} GiB |")


def check(args):
    """A record's dense runs: rates from its one process, the others predicted."""
    record = json.loads(args.check.read_text())
    shape = SHAPES[record["shape"]]
    tokens = record["tokens"]
    measured = "cpu_s" if args.cpu else "ttft_s"
    one = next(r for r in record["dense"] if r["processes"] == 1)
    # Where others compute, every part of the run takes longer by the same factor.
    factor = one[measured] / one["ttft_s"]
    rates = Rates(shape.product_flops(tokens) / (factor * one["products_s"]),
                  {shape.head_dim: shape.attention_flops(tokens) / (factor * one["attention_s"])},
                  shape.layers * shape.layer_weights() / (factor * one["packing_s"]))
    rest = one[measured] - predict(shape, tokens, 1, rates)["total"]
    print(f"{rates.products / 1e12:.3f} TFLOP/s in products, {rates.attention[shape.head_dim] / 1e12:.3f} in attention, "
          f"{factor * one['packing_s']:.2f} s of packing, {rest:.2f} s of the rest\n")
    print("| processes | predicted s | measured s | |\n|--:|--:|--:|--:|")
    for run in record["dense"]:
        p = run["processes"]
        seconds = predict(shape, tokens, p, rates, record.get("bytes_per_second", math.inf))["total"] + rest / p
        print(f"| {p} | {seconds:.2f} | {run[measured]:.2f} | {100 * run[measured] / seconds - 100:+.1f} % |")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cores", type=int, default=32, help="of a server")
    parser.add_argument("--efficiency", type=float, default=0.8, help="of many cores beside one")
    parser.add_argument("--network", type=float, default=0.8, help="share of the link's rate that TCP reaches")
    parser.add_argument("--latency", type=float, default=100e-6, help="seconds for each transfer of a round")
    parser.add_argument("--check", type=pathlib.Path, metavar="RECORD", help="a record of context_parallel.py")
    parser.add_argument("--cpu", action="store_true", help="check CPU seconds, not times: of a record of a busy machine")
    args = parser.parse_args()
    check(args) if args.check else tables(args)


if __name__ == "__main__":
    main()
