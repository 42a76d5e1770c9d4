#!/usr/bin/env python3
"""Times one prompt over several processes against one, in turn, and looks at their memory (docs/scale-out.md).

    context_parallel.py -m 1b-q4_0.gguf --shape 1b -p 16384 --processes 1,2 --rounds 3 --prune sliminfer --prune lazyllm \\
        -o docs/data/context-parallel.json

Every run is a `coppice bench` of its own under `mpirun --bind-to core`, with --threads threads a process: in each round,
every number of processes once. Needs as many idle cores as processes x threads. scale_out_model.py --check compares the
dense runs of the record with the formula.

On a machine that is not idle, times say little. CPU seconds are then the figures to read: with one thread each, the
prefill would take those of the process that computed longest, if every process had a core of its own and nobody waited.
"""

import argparse
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent


def children(pid):
    try:
        return [int(p) for p in pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []


def memory_of(pid):
    """KiB: resident, and the process's share of pages that several map (Pss)."""
    try:
        lines = pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return None
    found = {line.split(":")[0]: int(line.split()[1]) for line in lines[1:]}
    return {"rss": found["Rss"], "pss": found["Pss"], "shared": found["Shared_Clean"] + found["Shared_Dirty"]}


class Watch(threading.Thread):
    """The memory of mpirun's processes at the moment when it is largest in all."""

    def __init__(self, pid):
        super().__init__(daemon=True)
        self.pid, self.ended, self.most = pid, False, []

    def run(self):
        while not self.ended:
            now = [m for m in map(memory_of, children(self.pid)) if m]
            if sum(m["pss"] for m in now) > sum(m["pss"] for m in self.most):
                self.most = now
            time.sleep(2)


def run(args, processes):
    command = ["mpirun", "--allow-run-as-root", "--bind-to", "none" if args.unbound else "core", "-n", str(processes),
               str(args.program), "bench", "-m", str(args.model), "-p", str(args.tokens), "-t", str(args.threads), "-r", "1",
               "--no-warmup", "-o", "json"]
    if args.unbound:
        command.insert(1, "--oversubscribe")
    for spec in args.prune:
        command += ["--prune", spec]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True)
    watch = Watch(process.pid)
    watch.start()
    out, err = process.communicate()
    watch.ended = True
    if process.returncode != 0:
        raise SystemExit(f"{' '.join(command)}: {err.strip().splitlines()[-1:]}")
    return json.loads(out), watch.most


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--shape", default="1b", help="of the model, as scale_out_model.py names it")
    parser.add_argument("-p", "--tokens", type=int, default=16384)
    parser.add_argument("--processes", default="1,2")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--prune", action="append", default=[])
    parser.add_argument("--program", default=ROOT / "build/coppice")
    parser.add_argument("--unbound", action="store_true", help="more processes than idle cores: read the CPU seconds")
    parser.add_argument("-o", "--output", type=pathlib.Path)
    args = parser.parse_args()
    counts = [int(n) for n in args.processes.split(",")]
    samples, memory = {}, {}
    for number in range(args.rounds):
        for processes in counts:
            rows, memory[processes] = run(args, processes)
            for row in rows:
                samples.setdefault((row["prune"].split(":")[0], processes), []).append(row)
                print(f"round {number + 1}: {processes} x {row['prune'].split(':')[0]}: {row['ttft_ms'] / 1000:.2f} s, "
                      f"CPU {cpu_of(row)}", flush=True)
    report(args, counts, samples, memory)


def machine():
    names = re.findall(r"^model name\s*: (.*)$", pathlib.Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return f"{names[0] if names else 'unknown CPU'}, {len(names)} cores"


def cpu_of(row):
    if "processes" not in row:
        return f"{row['cpu_seconds']:.2f} s"
    return " + ".join(f"{p['cpu_seconds']:.2f} s (waited {p['seconds_waited']:.2f}, sent {p['bytes_sent'] / 2**20:.0f} MiB)"
                      for p in row["processes"])


def longest(row):
    """CPU seconds of the process that computed longest."""
    return max([p["cpu_seconds"] for p in row.get("processes", [])] or [row["cpu_seconds"]])


def report(args, counts, samples, memory):
    def median(key, processes, name):
        return statistics.median(row[key] for row in samples[(name, processes)])

    names = list(dict.fromkeys(name for name, _ in samples))
    print(f"\n| method | {' | '.join(f'{n} x {args.threads} s' for n in counts)} | speed-up, by round | by CPU seconds |")
    print("|---|" + "--:|" * (len(counts) + 2))
    for name in names:
        times = [median("ttft_ms", n, name) / 1000 for n in counts]
        ratios = sorted(a["ttft_ms"] / b["ttft_ms"]
                        for a, b in zip(samples[(name, counts[0])], samples[(name, counts[-1])]))
        cpu = sorted(longest(a) / longest(b) for a, b in zip(samples[(name, counts[0])], samples[(name, counts[-1])]))
        print(f"| {name} | {' | '.join(f'{t:.2f}' for t in times)} | {statistics.median(ratios):.2f} "
              f"({ratios[0]:.2f} to {ratios[-1]:.2f}) | {statistics.median(cpu):.2f} ({cpu[0]:.2f} to {cpu[-1]:.2f}) |")
    for processes in counts:
        if memory[processes]:
            print(f"{processes} x: " + "; ".join(f"resident {m['rss'] / 1024:.0f} MiB, of it shared {m['shared'] / 1024:.0f}, "
                                                 f"own share {m['pss'] / 1024:.0f}" for m in memory[processes]))
    if args.output is None:
        return
    dense = [{"processes": n, "ttft_s": median("ttft_ms", n, "none") / 1000,
              "cpu_s": statistics.median(longest(row) for row in samples[("none", n)]),
              "products_s": median("product_ms", n, "none") / 1000,
              "attention_s": median("attention_ms", n, "none") / 1000,
              "packing_s": median("pack_ms", n, "none") / 1000} for n in counts]
    args.output.write_text(json.dumps(
        {"kind": "context-parallel", "date": datetime.date.today().isoformat(), "machine": machine(),
         "shape": args.shape, "tokens": args.tokens, "threads": args.threads, "rounds": args.rounds, "dense": dense,
         "memory_kib": memory, "runs": {f"{name} x{n}": rows for (name, n), rows in samples.items()}}, indent=1) + "\n")


if __name__ == "__main__":
    main()
