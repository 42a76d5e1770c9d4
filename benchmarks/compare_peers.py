#!/usr/bin/env python3
"""Times coppice and other engines run by run (A B A B ...) and writes one JSON record.

    compare_peers.py -m 1b-q4_0.gguf --prompts 512,4096 --rounds 3 -o docs/data/performance-1b.json \\
        --llama-bench llama.cpp=/path/to/llama-bench --llama-bench ik=/path/to/other/llama-bench --prune sliminfer

Peers are programs like llama.cpp's llama-bench; options that differ between them are taken from their --help. Every
run is a process of its own; the roofline program (-DCOPPICE_BUILD_BENCHMARKS=ON) runs before each round and after the
last. TTFT of a peer is its prompt tokens over its rate; coppice's is measured to the first sampled token. Prompts of
--long tokens and more run without a warm-up, in all engines: reading them takes minutes. tools/performance_report.py
makes tables and plots of the record.
"""

import argparse
import datetime
import json
import os
import pathlib
import platform
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


class Failed(Exception):
    """A program that did not do its work."""


def call(command: list[str], timeout: float) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{command[0]}: {error}") from error
    if done.returncode != 0:
        said = done.stderr.strip().splitlines()[-1:] or ["no message"]
        raise Failed(f"{' '.join(command)}: exit status {done.returncode}: {said[0]}")
    return done.stdout


def spread(samples: list[float]) -> dict:
    return {"median": statistics.median(samples), "min": min(samples), "max": max(samples), "samples": samples}


class LlamaBench:
    """One llama-bench program, whichever of the known dialects it speaks."""

    def __init__(self, name: str, program: str, extra: list[str], timeout: float):
        self.name, self.program, self.extra, self.timeout = name, program, extra, timeout
        done = subprocess.run([program, "--help"], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        self.help = done.stdout + done.stderr
        if "--n-prompt" not in self.help:
            raise Failed(f"{program}: not a llama-bench: its --help knows no --n-prompt")
        self.version = ""

    def options(self, threads: int, warm_up: bool) -> list[str]:
        """Flash attention on: the best setting for long prompts of every file type."""
        flash = "on" if re.search(r"--flash-attn +<on\|", self.help) else "1"
        options = ["-r", "1", "-o", "json", "-fa", flash, "-t", str(threads), *self.extra]
        if not warm_up:
            options += ["--no-warmup"] if "--no-warmup" in self.help else ["-w", "0"]
        return options

    def decode_options(self, depth: int, count: int) -> list[str]:
        if re.search(r"--n-depth\b", self.help):
            return ["-p", "0", "-n", str(count), "-d", str(depth)]
        if depth == 0:
            return ["-p", "0", "-n", str(count)]
        return ["-p", "0", "-n", "0", "-gp", f"{depth},{count}"]  # ik_llama.cpp

    def run(self, model: str, options: list[str]) -> float:
        """Tokens per second of the one test that the options name."""
        rows = json.loads(call([self.program, "-m", model, *options], self.timeout))
        if len(rows) != 1:
            raise Failed(f"{self.program}: {len(rows)} results where one was asked for")
        self.version = f"{rows[0].get('build_commit', '?')} ({rows[0].get('build_number', '?')})"
        return float(rows[0]["avg_ts"])

    def prefill_ms(self, model: str, prompt: int, threads: int, warm_up: bool) -> float:
        options = ["-p", str(prompt), "-n", "0", *self.options(threads, warm_up)]
        return 1000 * prompt / self.run(model, options)

    def decode_rate(self, model: str, depth: int, count: int, threads: int, warm_up: bool) -> float:
        return self.run(model, [*self.decode_options(depth, count), *self.options(threads, warm_up)])


class Coppice:
    """The program under test: every method of one length in one process, which interleaves them."""

    name = "coppice"

    def __init__(self, program: str, prune: list[str], timeout: float):
        self.program, self.timeout = program, timeout
        self.prune = [spec for spec in prune if spec != "none"]
        self.version = call([program, "--version"], 60).strip()

    def run(self, model: str, prompt: int, generate: int, threads: int, warm_up: bool, prune: list[str]) -> list[dict]:
        command = [self.program, "bench", "-m", model, "-p", str(prompt), "-n", str(generate), "-r", "1", "-o", "json",
                   "-t", str(threads), "-c", str(prompt + generate)]
        for spec in prune:
            command += ["--prune", spec]
        if not warm_up:
            command.append("--no-warmup")
        rows = json.loads(call(command, self.timeout))
        for row in rows:
            row["model"] = pathlib.Path(row["model"]).name
        return rows


class Record:
    """Samples by what they are of; `result` is what is written."""

    def __init__(self):
        self.prefill: dict[tuple, dict] = {}
        self.decode: dict[tuple, dict] = {}
        self.limits: list[dict] = []
        self.load: list[float] = []  # of the machine in the minute before each round: others' work, in the first

    def add_prefill(self, model: str, prompt: int, engine: str, prune: str, ms: float, row: dict | None = None):
        entry = self.prefill.setdefault((model, prompt, engine, prune), {"samples": [], "rows": []})
        entry["samples"].append(ms)
        if row is not None:
            entry["rows"].append(row)

    def add_decode(self, model: str, depth: int, engine: str, rate: float):
        self.decode.setdefault((model, depth, engine), []).append(rate)

    def prefill_result(self) -> list[dict]:
        result = []
        for (model, prompt, engine, prune), entry in self.prefill.items():
            dense = self.prefill.get((model, prompt, "coppice", "none"), {"samples": []})["samples"]
            one = {"model": model, "prompt": prompt, "engine": engine, "prune": prune, "ttft_ms": spread(entry["samples"])}
            beside = dense  # of the same round
            if len(dense) == len(entry["samples"]) + 1:  # A B A: of the runs before and after
                beside = [(a + b) / 2 for a, b in zip(dense, dense[1:])]
            if len(beside) == len(entry["samples"]):
                one["times_coppice_dense"] = spread([a / b for a, b in zip(entry["samples"], beside)])
            if entry["rows"]:
                one["bench"] = median_row(entry["rows"])
            result.append(one)
        return result

    def decode_result(self) -> list[dict]:
        result = []
        for (model, depth, engine), rates in self.decode.items():
            ours = self.decode.get((model, depth, "coppice"), [])
            one = {"model": model, "depth": depth, "engine": engine, "tokens_per_second": spread(rates)}
            if len(ours) == len(rates):
                one["coppice_times_this"] = spread([a / b for a, b in zip(ours, rates)])
            result.append(one)
        return result

    def limit_result(self) -> dict:
        """Of all rounds together: the median of their medians, the lowest and the highest of all."""
        result: dict = {}
        for group in ["gigaops_per_second", "gigabytes_per_second"]:
            for name in self.limits[0][group] if self.limits else []:
                for threads in self.limits[0][group][name]:
                    of = [run[group][name][threads] for run in self.limits]
                    result.setdefault(group, {}).setdefault(name, {})[threads] = {
                        "median": statistics.median(one["median"] for one in of), "min": min(one["min"] for one in of),
                        "max": max(one["max"] for one in of)}
        return result


def median_row(rows: list[dict]) -> dict:
    """Numbers that vary between rounds by their medians, so that one slow round moves nothing."""
    first = rows[0]
    return {key: statistics.median(row[key] for row in rows) if isinstance(value, float) else value
            for key, value in first.items()}


def machine() -> dict:
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    memory = re.search(r"^MemTotal:\s+(\d+) kB", pathlib.Path("/proc/meminfo").read_text(), re.MULTILINE)
    return {"cpu": names[0] if names else platform.processor(), "cores": len(os.sched_getaffinity(0)),
            "memory_gib": round(int(memory[1]) / 2**20, 1) if memory else None,
            "system": platform.system()}


def read_ahead(path: str) -> None:
    """Into the page cache: engines that map a file would else pay for the disk in their first run, alone."""
    try:
        with open(path, "rb") as file:
            while file.read(1 << 24):
                pass
    except OSError as error:
        raise Failed(f"{path}: {error.strerror}") from error


def one_round(args: argparse.Namespace, number: int, coppice: Coppice, peers: list[LlamaBench], record: Record) -> None:
    def say(text: str) -> None:
        print(f"round {number + 1}/{args.rounds}: {text}", file=sys.stderr, flush=True)

    for model in args.model:
        name = pathlib.Path(model).name
        read_ahead(model)
        for prompt in args.prompts:
            warm_up = prompt < args.long
            both = args.generate if prompt in args.depths else 0
            say(f"{name}, {prompt} tokens, coppice")
            # By the spec that was asked for: the one that ran, settings written out, may change with the length.
            for asked, row in zip(["none", *coppice.prune], coppice.run(model, prompt, both, args.threads, warm_up, coppice.prune)):
                record.add_prefill(name, prompt, "coppice", asked, row["ttft_ms"], row)
                if both and asked == "none":
                    record.add_decode(name, prompt, "coppice", row["decode_tokens_per_second"])
            for peer in peers:
                say(f"{name}, {prompt} tokens, {peer.name}")
                record.add_prefill(name, prompt, peer.name, "none", peer.prefill_ms(model, prompt, args.threads, warm_up))
            if args.again and number + 1 == args.rounds:
                say(f"{name}, {prompt} tokens, coppice again")
                row = coppice.run(model, prompt, 0, args.threads, warm_up, [])[0]
                record.add_prefill(name, prompt, "coppice", "none", row["ttft_ms"], row)
        for depth in args.depths:
            warm_up = depth < args.long
            if depth not in args.prompts:
                say(f"{name}, decode at {depth}, coppice")
                row = coppice.run(model, max(depth, 1), args.generate + 1, args.threads, warm_up, [])[0]
                record.add_decode(name, depth, "coppice", row["decode_tokens_per_second"])
            for peer in peers:
                say(f"{name}, decode at {depth}, {peer.name}")
                rate = peer.decode_rate(model, depth, args.generate, args.threads, warm_up)
                record.add_decode(name, depth, peer.name, rate)


def result(args: argparse.Namespace, done: int, coppice: Coppice, peers: list[LlamaBench], record: Record) -> dict:
    engines = {"coppice": {"version": coppice.version}}
    for peer in peers:
        engines[peer.name] = {"version": peer.version, "options": peer.options(args.threads, True)}
    return {"kind": "compare_peers", "date": datetime.date.today().isoformat(), "machine": machine(),
            "load": record.load, "threads": args.threads, "rounds": done, "long": args.long, "generate": args.generate, "engines": engines,
            "models": {pathlib.Path(m).name: os.path.getsize(m) for m in args.model}, "limits": record.limit_result(),
            "prefill": record.prefill_result(), "decode": record.decode_result()}


def save(path: pathlib.Path, record: dict) -> None:
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    partial.replace(path)


def measure(args: argparse.Namespace) -> None:
    """Saves after every round: a run of 32k tokens that fails must not take hours of others with it."""
    coppice = Coppice(args.coppice, args.prune, args.timeout)
    peers = []
    for text in args.llama_bench:
        name, program = text.split("=", 1)
        peers.append(LlamaBench(name, program, args.peer_option.get(name, []), args.timeout))
    record = Record()

    def limits() -> None:
        if args.roofline:
            record.limits.append(json.loads(call([args.roofline, "--rounds", "3", "--threads", str(args.threads)], 600)))

    limits()
    for number in range(args.rounds):
        record.load.append(round(os.getloadavg()[0], 2))
        one_round(args, number, coppice, peers, record)
        limits()
        save(args.output, result(args, number + 1, coppice, peers, record))


def numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",") if part]


def parse(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", action="append", required=True, help="a GGUF file; may be repeated")
    parser.add_argument("--prompts", type=numbers, default=[512, 4096], help="lengths, separated by commas")
    parser.add_argument("--depths", type=numbers, default=[], help="depths at which to measure the decode rate")
    parser.add_argument("--generate", type=int, default=32, help="tokens for the decode rate")
    parser.add_argument("--prune", action="append", default=[], help="a method of coppice; may be repeated")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--again", action="store_true", help="coppice's dense prefill once more after the peers': A B A")
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--long", type=int, default=8192, help="from this length on nobody warms up")
    parser.add_argument("--timeout", type=float, default=7200, help="seconds per run")
    parser.add_argument("--coppice", default=str(ROOT / "build/coppice"))
    parser.add_argument("--roofline", default=str(ROOT / "build/roofline"), help="empty: limits are not measured")
    parser.add_argument("--llama-bench", action="append", default=[], metavar="NAME=PATH")
    parser.add_argument("--peer-options", action="append", default=[], metavar="NAME=OPTIONS",
                        help="more options of a peer, for example ik='-rtr 1'")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    args = parser.parse_args(words)
    for text in args.llama_bench + args.peer_options:
        if "=" not in text:
            parser.error(f"{text}: not NAME=VALUE")
    args.peer_option = {text.split("=", 1)[0]: text.split("=", 1)[1].split() for text in args.peer_options}
    if args.rounds < 1:
        parser.error("--rounds: at least one")
    return args


def main() -> int:
    args = parse()
    try:
        measure(args)
    except Failed as error:
        print(f"compare_peers: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
