"""benchmarks/compare_peers.py with programs that only pretend to measure, and tools/performance_report.py on what it
writes: compare_peers_test.py SOURCE_DIR [unittest arguments]
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

SOURCE = pathlib.Path(sys.argv.pop(1))
COMPARE = str(SOURCE / "benchmarks/compare_peers.py")
REPORT = str(SOURCE / "tools/performance_report.py")

LIMITS = {"gigaops_per_second": {"avx512_fp32": {"1": 100, "2": 200}, "avx512_bf16": {"1": 200, "2": 400},
                                 "avx512_int8": {"1": 400, "2": 800}, "amx_int8": {"1": 4000, "2": 8000}},
          "gigabytes_per_second": {"read": {"1": 10, "2": 20}, "triad": {"1": 9, "2": 18}}}

# Each writes its command line into the log. The second and third rounds of coppice are slower: medians must show it.
LOG = """#!/usr/bin/env python3
import json, os, sys
args = sys.argv[1:]
with open(os.path.join(os.path.dirname(__file__), "log"), "a") as log:
    log.write(json.dumps([os.path.basename(__file__), *args]) + "\\n")
def of(name, default=None):
    return args[args.index(name) + 1] if name in args else default
"""

COPPICE = LOG + """
if args == ["--version"]:
    print("coppice 0.1.0 (Release), GNU 12\\nisa: avx512 on a test")
    sys.exit()
calls = sum('"bench"' in line for line in open(os.path.join(os.path.dirname(__file__), "log")))
prompt, generate = int(of("-p")), int(of("-n"))
rows = []
for i, prune in enumerate(["none"] + [args[k + 1] for k, a in enumerate(args) if a == "--prune"]):
    ms = prompt * (1.0 + 0.1 * calls) / (1 + i)
    row = {"model": of("-m"), "type": "Q4_0", "backend": "cpu", "isa": "avx512", "threads": 2, "rounds": 1, "prompt": prompt,
           "prune": prune + (":keep=0.5" if i else ""), "active": prompt > 600 or i == 0, "kept": "100 % / 100 %", "ttft_ms": ms, "speed_up": 1.0 + i,
           "flop_bound": 2.5, "share_of_bound": 0.8, "time_bound": 2.25, "share_of_time_bound": 0.88,
           "product_ms": ms / 2, "attention_ms": ms / 4, "product_tflops_per_second": 0.4, "attention_tflops_per_second": 0.1,
           "peak_bytes": 2**30}
    row |= {k + "_ms": 1.0 for k in ["pack", "rows", "scoring", "selection", "decode_product", "other"]}
    if generate > 1:
        row["decode_tokens_per_second"] = 20.0
    rows.append(row)
print(json.dumps(rows))
"""

LLAMA = LOG + """
if "--help" in args:
    print("usage\\n  -p, --n-prompt <n>\\n  -d, --n-depth <n>\\n  --no-warmup   skip\\n  -fa, --flash-attn <on|off|auto>")
    sys.exit()
print(json.dumps([{"build_commit": "abc", "build_number": 7, "avg_ts": 100.0 if of("-n") == "0" else 25.0}]))
"""

IK = LOG + """
if "--help" in args:  # this one fails where it explains itself
    print("usage\\n  -p, --n-prompt <n>\\n  -gp <pp,tg>\\n  -w, --warmup <0|1>\\n  -fa, --flash-attn <0|1>", file=sys.stderr)
    sys.exit(1)
print(json.dumps([{"build_commit": "def", "build_number": 8, "avg_ts": 200.0 if of("-p") != "0" else 16.0}]))
"""

ROOFLINE = LOG + """
spread = lambda x: {"median": x, "min": x / 2, "max": x * 2}
limits = json.loads('''LIMITS''')
print(json.dumps({g: {n: {t: spread(x) for t, x in by.items()} for n, by in names.items()} for g, names in limits.items()}))
""".replace("LIMITS", json.dumps(LIMITS))


class Case(unittest.TestCase):
    def setUp(self):
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.folder = pathlib.Path(holder.name)
        for name, program in {"coppice": COPPICE, "llama": LLAMA, "ik": IK, "roofline": ROOFLINE}.items():
            (self.folder / name).write_text(program)
            (self.folder / name).chmod(0o755)
        (self.folder / "small.gguf").write_bytes(b"x" * 1000)

    def compare(self, *more, code=0):
        at = lambda name: str(self.folder / name)
        done = subprocess.run([sys.executable, COMPARE, "-m", at("small.gguf"), "--coppice", at("coppice"), "--roofline",
                               at("roofline"), "--threads", "2", "-o", at("record.json"), *more], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return json.loads((self.folder / "record.json").read_text()) if code == 0 else done.stderr

    def whole(self):
        (self.folder / "log").unlink(missing_ok=True)
        return self.compare("--prompts", "512,1024", "--depths", "0,1024", "--long", "1000", "--rounds", "3", "--prune", "ftp",
                            "--llama-bench", f"llama.cpp={self.folder}/llama", "--llama-bench", f"ik={self.folder}/ik",
                            "--peer-options", "ik=-rtr 1")

    def calls(self):
        return [json.loads(line) for line in (self.folder / "log").read_text().splitlines()]


class Compare(Case):
    def test_record(self):
        record = self.whole()
        self.assertEqual(record["kind"], "compare_peers")
        self.assertEqual(record["models"], {"small.gguf": 1000})
        self.assertNotIn(str(self.folder), json.dumps(record["prefill"]))
        by = {(one["prompt"], one["engine"], one["prune"]): one for one in record["prefill"]}
        self.assertEqual(set(by), {(p, e, m) for p in (512, 1024) for e, m in
                                   [("coppice", "none"), ("coppice", "ftp"), ("llama.cpp", "none"), ("ik", "none")]})
        # Nine calls of coppice, three a round: 512 with 1.1, 1.4, 1.7 of a millisecond per token, 1024 with 1.2, 1.5, 1.8.
        ours = by[512, "coppice", "none"]["ttft_ms"]
        for key, value in {"min": 1.1, "median": 1.4, "max": 1.7}.items():
            self.assertAlmostEqual(ours[key], 512 * value)
        self.assertAlmostEqual(by[512, "coppice", "none"]["bench"]["product_ms"], 512 * 0.7)
        theirs = by[512, "llama.cpp", "none"]
        self.assertAlmostEqual(theirs["ttft_ms"]["median"], 5120)  # 100 tokens a second
        self.assertAlmostEqual(theirs["times_coppice_dense"]["max"], 10 / 1.1)  # pairs of one round
        self.assertAlmostEqual(theirs["times_coppice_dense"]["median"], 10 / 1.4)
        self.assertAlmostEqual(by[1024, "ik", "none"]["ttft_ms"]["median"], 5120)
        rates = {(one["depth"], one["engine"]): one["tokens_per_second"]["median"] for one in record["decode"]}
        self.assertEqual(rates, {(d, e): r for d in (0, 1024) for e, r in [("coppice", 20), ("llama.cpp", 25), ("ik", 16)]})
        self.assertEqual(record["limits"]["gigabytes_per_second"]["read"]["2"], {"median": 20, "min": 10, "max": 40})
        self.assertEqual(record["engines"]["llama.cpp"]["version"], "abc (7)")

    def test_order_and_dialects(self):
        self.whole()
        calls = [call for call in self.calls() if "--help" not in call and "--version" not in call]
        first = [call[0] for call in calls][:len(calls) // 3]
        self.assertEqual(first, ["roofline"] + ["coppice", "llama", "ik"] * 2 + ["coppice", "llama", "ik", "llama", "ik"])
        self.assertEqual([call[0] for call in calls], first * 3 + ["roofline"])
        text = [" ".join(call) for call in calls]
        short = next(t for t in text if t.startswith("llama") and "-p 512" in t)
        self.assertIn("-n 0 -r 1 -o json -fa on -t 2", short)
        self.assertNotIn("--no-warmup", short)
        self.assertIn("--no-warmup", next(t for t in text if t.startswith("llama") and "-p 1024" in t))
        self.assertIn("--no-warmup", next(t for t in text if t.startswith("coppice") and "-p 1024" in t))
        self.assertTrue(any(t.startswith("llama") and "-p 0 -n 32 -d 1024" in t for t in text))
        ik = [t for t in text if t.startswith("ik")]
        self.assertTrue(all("-fa 1" in t and "-rtr 1" in t for t in ik))
        self.assertTrue(any("-p 0 -n 0 -gp 1024,32" in t and "-w 0" in t for t in ik))
        self.assertTrue(any("-p 0 -n 32" in t for t in ik))

    def test_a_b_a(self):
        record = self.compare("--prompts", "512", "--rounds", "1", "--again", "--llama-bench", f"llama.cpp={self.folder}/llama")
        by = {one["engine"]: one for one in record["prefill"]}
        self.assertEqual(len(by["coppice"]["ttft_ms"]["samples"]), 2)  # 1.1 and 1.2 of a millisecond per token
        self.assertAlmostEqual(by["llama.cpp"]["times_coppice_dense"]["median"], 10 / 1.15)
        order = [call[0] for call in self.calls() if "--help" not in call and "--version" not in call]
        self.assertEqual(order, ["roofline", "coppice", "llama", "coppice", "roofline"])

    def test_errors(self):
        (self.folder / "llama").write_text("#!/bin/sh\necho unknown thing >&2\nexit 3\n")
        self.assertIn("no --n-prompt", self.compare("--llama-bench", f"x={self.folder}/llama", code=1))
        (self.folder / "coppice").write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
        self.assertIn("it broke", self.compare(code=1))
        self.assertIn("not NAME=VALUE", self.compare("--llama-bench", "nothing", code=2))
        self.assertFalse((self.folder / "record.json").exists())

    def test_rounds_before_a_failure_are_kept(self):
        lines = LLAMA.splitlines(keepends=True)  # fails at its fourth call: the second round's second prompt
        (self.folder / "llama").write_text("".join(lines[:-1]) + "if sum('llama' in l for l in open(os.path.join(os.path.dirname(__file__), 'log'))) > 4: sys.exit('worn out')\n" + lines[-1])
        self.assertIn("worn out", self.compare("--prompts", "64,128", "--rounds", "2", "--llama-bench", f"x={self.folder}/llama", code=1))
        record = json.loads((self.folder / "record.json").read_text())
        self.assertEqual(record["rounds"], 1)
        self.assertEqual({len(one["ttft_ms"]["samples"]) for one in record["prefill"]}, {1})


KERNELS = {"context": {"host_name": "secret", "executable": "/secret/kernels_benchmark", "cpu": "a test", "isa": "avx512", "threads": "2", "limit_bf16": "avx512_bf16", "limit_int8": "avx512_int8"},
           "benchmarks": [
               {"name": "Product/1b_up/BF16/512/manual_time", "run_type": "iteration", "real_time": 1.5, "FLOP/s": 1e11, "limit": 4e11, "share": 0.25},
               {"name": "Product/1b_up/BF16/8192/manual_time", "run_type": "iteration", "real_time": 9.0, "FLOP/s": 3e11, "limit": 4e11, "share": 0.75},
               {"name": "Rows/add/manual_time", "run_type": "iteration", "real_time": 2.0, "bytes/s": 1e10, "limit": 2e10, "share": 0.5},
               {"name": "Rows/add/manual_time", "run_type": "aggregate", "real_time": 2.0, "bytes/s": 1e10, "limit": 2e10, "share": 9.0}]}


class Report(Case):
    PAGE = ("# Speed\n\nbefore\n\n<!-- table:ttft -->\nold\n<!-- end:ttft -->\n\nbetween\n\n<!-- table:pruned -->\n<!-- end:pruned -->\n"
            "<!-- table:limits -->\n<!-- end:limits -->\n<!-- table:where -->\n<!-- end:where -->\n<!-- table:decode -->\n"
            "<!-- end:decode -->\n<!-- table:kernels -->\n<!-- end:kernels -->\nafter\n")

    def report(self, page=PAGE, code=0, more=()):
        if not (self.folder / "record.json").exists():
            self.whole()
        (self.folder / "page.md").write_text(page)
        (self.folder / "kernels.json").write_text(json.dumps(KERNELS))
        done = subprocess.run([sys.executable, REPORT, str(self.folder / "record.json"), *more, str(self.folder / "kernels.json"), "--page",
                               str(self.folder / "page.md")], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done.stderr)
        return (self.folder / "page.md").read_text() if code == 0 else done.stderr

    def test_tables(self):
        page = self.report()
        for kept in ["# Speed\n\nbefore\n\n<!-- table:ttft -->\n", "\n<!-- end:ttft -->\n\nbetween\n\n", "\nafter\n"]:
            self.assertIn(kept, page)
        self.assertNotIn("old", page)
        for row in ["| small.gguf | coppice, dense | 512 | 0.72 (0.56 to 0.87) | 714.3 | 1.00 |",
                    "| small.gguf | llama.cpp | 512 | 5.12 | 100.0 | 7.14 (5.88 to 9.09) |",
                    # The peer that is fastest at 1,024 tokens is ik; below 600 the pretended method stood aside.
                    "| small.gguf | `ftp` | 1,024 | 100 % / 100 % | 0.77 (0.61 to 0.92) | 2.00x | 2.50x | 80 % | 2.25x | 88 % | 6.7x |",
                    "| small.gguf | `ftp` (stood aside) | 512 |",
                    # 0.4 TFLOP/s of 800 G integer operations: the ISA was avx512, so AMX's limit does not count.
                    "| small.gguf | dense | 512 | 358 | 0.400 | 50 % | 179 | 0.100 | 12 % |",
                    # 20 tokens/s of 1000 bytes are nothing beside 20 GB/s.
                    "| small.gguf | coppice | 0 | 20.0 | 0 % |  |",
                    "| small.gguf | ik | 1,024 | 16.0 |  | 1.25 |",
                    "| read | 1e9 bytes/s | 20 (10 to 40) |",
                    "| Product/1b_up/BF16/8192 | operations | 9.000 | 300.0 | 400.0 | 75 % |",
                    "| Rows/add | bytes | 2.000 | 10.0 | 20.0 | 50 % |"]:
            self.assertIn(row, page)
        self.assertEqual(self.report(page), page)  # again changes nothing

    def test_several_records_share_their_tables(self):
        self.report()
        second = json.loads((self.folder / "record.json").read_text())
        second["limits"]["gigabytes_per_second"]["read"]["2"] = {"median": 7, "min": 7, "max": 7}
        second["decode"] = []
        (self.folder / "second.json").write_text(json.dumps(second))
        page = self.report(more=[str(self.folder / "second.json")])
        self.assertRegex(page, r"(?m)^- \*\*B\*\*, avx512, small\.gguf: ")
        for row in ["| run | file | engine |", "| A | small.gguf | llama.cpp | 512 | 5.12 |", "| B | small.gguf | llama.cpp | 512 | 5.12 |",
                    "| limit | unit | A | B |", "| read | 1e9 bytes/s | 20 (10 to 40) | 7 |", "| A | small.gguf | coppice | 0 | 20.0 |"]:
            self.assertIn(row, page)
        self.assertNotIn("| B | small.gguf | coppice | 0 |", page)

    def test_plots(self):
        self.report()
        ttft = (self.folder / "performance-ttft-small.svg").read_text()
        kernels = (self.folder / "performance-kernels.svg").read_text()
        for plot in [ttft, kernels]:
            xml.etree.ElementTree.fromstring(plot)
            self.assertIn("prefers-color-scheme: dark", plot)
        for words in ["coppice, dense: 1.54 s", "coppice, ftp: 0.77 s", "llama.cpp: 10.24 s", "ik: 5.12 s", "1,024"]:
            self.assertIn(words, ttft)
        self.assertEqual(ttft.count("<polyline"), 4)
        self.assertIn("75 %", kernels)
        self.assertNotIn("secret", (self.folder / "kernels.json").read_text())
        self.assertNotIn("BF16/512", kernels)  # the largest size stands for its operation
        self.assertNotIn("900 %", kernels)

    def test_bad_pages_and_records(self):
        self.assertIn("needs one", self.report(self.PAGE.replace("<!-- end:ttft -->", ""), code=1))
        (self.folder / "bad.json").write_text("{}")
        done = subprocess.run([sys.executable, REPORT, str(self.folder / "bad.json")], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bad.json", done.stderr)


if __name__ == "__main__":
    unittest.main()
