"""The commands that measure: compare, perplexity, bench, eval with its report, tune.

    cli_measure_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

from cli_support import ANSWER_2K, Case, MODEL, PROGRAM, PROMPT_2K, run
from server_support import Server


class Measures(Case):
    def test_compare(self):
        rows = json.loads(self.good("compare", "-m", MODEL, "-f", PROMPT_2K, "-n", "8", "-r", "1", "--expect", ANSWER_2K,
                                    "--prune", "ftp", "--prune", "sliminfer", "--baseline", "streamingllm:recent=500,min=0", "--json"))
        self.assertEqual([row["prune"]["active"] for row in rows], [False, True, True, True])
        self.assertEqual([row["right"] for row in rows], [True, True, True, False])
        self.assertEqual([row["baseline"] for row in rows], [False, False, False, True])
        self.assertEqual(rows[0]["prune"]["flops"], rows[0]["prune"]["flops_dense"])
        text = self.good("compare", "-m", MODEL, "-f", PROMPT_2K, "-n", "2", "-r", "1", "--prune", "ftp", "--baseline", "random:min=0")
        self.assertRegex(text, r"(?m)^dense +100 % / 100 %")
        self.assertRegex(text, r"(?m)^ftp +\d+ %")
        self.assertRegex(text, r"(?m)^random:min=0 \(baseline\) +\d+ %")
        # Of a long answer the expected part shows, else the end.
        long = ["compare", "-m", MODEL, "-p", "Hello", "-n", "64", "--ignore-eos", "-r", "1", "--prune", "none"]
        words = re.findall("[a-z]{3,}", json.loads(self.good(*long, "--json"))[0]["text"])
        self.assertRegex(self.good(*long).splitlines()[-1], r" \.\.\.")
        for word in words[0], words[len(words) // 2], words[-1]:
            self.assertRegex(self.good(*long, "--expect", word).splitlines()[-1], rf"{word}.* right *$")

    def test_perplexity(self):
        base = ["perplexity", "-m", MODEL, "-f", PROMPT_2K]
        text = self.good(*base, "-c", "256", "--chunks", "3")
        self.assertRegex(text, r"^\[1\]\d+\.\d{4},\[2\]\d+\.\d{4},\[3\](\d+\.\d{4}),\nFinal estimate: PPL = \1 \+/- \d+\.\d+\n$")
        exact = json.loads(self.good(*base, "--chunks", "2", "--exact", "--kl-divergence", "--json"))
        self.assertEqual((exact["tokens"], exact["kl"], exact["same_top"]), (2 * 255, 0, 1))
        fast = json.loads(self.good(*base, "--chunks", "2", "--kl-divergence", "--json"))
        self.assertAlmostEqual(fast["ppl"] / fast["ppl_ratio"], exact["ppl"], delta=1e-6 * exact["ppl"])
        self.assertLess(fast["kl"], 1e-3)
        # Token by token the first token of the half counts, too.
        decoded = json.loads(self.good(*base, "--chunks", "2", "--decode", "--kl-divergence", "--json"))
        self.assertEqual(decoded["tokens"], 2 * 256)
        self.assertGreater(decoded["kl"], 0)
        self.assertLess(decoded["kl"], 1e-3)
        # A method that drops half of the text at random is further away than one that skips FFNs.
        pruned = [json.loads(self.good(*base, "-c", "512", "--chunks", "2", "--json", "--prune", spec))
                  for spec in ["ftp:eta=0.9,min=0", "random:keep=0.3,min=0"]]
        self.assertEqual(pruned[0]["tokens"], 2 * 256)
        self.assertGreater(pruned[0]["kl"], 0)
        self.assertGreater(pruned[1]["kl"], pruned[0]["kl"])
        self.assertIn("mean KL divergence", self.good(*base, "-c", "64", "--chunks", "1", "--base", MODEL))
        self.bad(*base, "-c", "30000", says=["prompt-2k.txt", "30000"])
        self.bad("perplexity", "-m", MODEL, "-f", "/none.txt", says=["/none.txt"])
        self.bad(*base, "--prune", "no", "--chunks", "1", says=["no method 'no'"])

    def test_bench_output_forms(self):
        shape = ["bench", "--shape", "tiny", "-p", "64", "-r", "1"]
        tables = self.good(*shape)
        self.assertIn("| prompt |", tables)
        for column in ["TTFT ms", "tokens/s", "FLOP bound", "time bound", "peak memory", "products ms", "attention ms"]:
            self.assertIn(f" {column} |", tables)
        # The table has the spec as given; the whole of it stands once below.
        tables = self.good(*shape[:3], "-p", "64,96", "-r", "1", "--no-warmup", "--prune", "lazyllm:min=0")
        self.assertEqual(tables.count("| lazyllm:min=0 "), 4)
        self.assertEqual(tables.count("\nlazyllm:min=0: lazyllm:preset="), 1)
        csv = self.good(*shape, "-o", "csv").splitlines()
        self.assertEqual(len(csv), 2)
        self.assertEqual(csv[0].count(","), csv[1].count(","))
        self.assertEqual(len(json.loads(self.good(*shape, "-o", "json"))), 1)

    def test_bench_says_where_the_time_goes(self):
        spec = "sliminfer:layers=1,keep=128,min=0"
        dense, pruned = json.loads(self.good("bench", "--shape", "tiny:q8_0", "-p", "512", "-n", "4", "-r", "3", "-o", "json",
                                             "--prune", spec))
        for row in [dense, pruned]:
            parts = ["pack", "product", "decode_product", "attention", "scoring", "rows", "selection", "other"]
            for kind in ["pack", "product", "decode_product", "attention", "rows"]:
                self.assertGreater(row[f"{kind}_ms"], 0, kind)
            self.assertAlmostEqual(sum(row[f"{kind}_ms"] for kind in parts), row["ttft_ms"])
            self.assertGreater(row["flops"], row["product_flops"] + row["attention_flops"])  # single rows
            for kind in ["product", "attention"]:
                self.assertAlmostEqual(row[f"{kind}_tflops_per_second"], row[f"{kind}_flops"] / row[f"{kind}_ms"] / 1e9)
            self.assertGreater(row["peak_bytes"], row["weights_bytes"])
            self.assertLessEqual(row["decode_tokens_per_second_min"], row["decode_tokens_per_second_max"])
            self.assertEqual((row["type"], row["rounds"]), ("Q8_0", 3))
            for bound in ["time_bound", "rate_bound"]:
                self.assertAlmostEqual(row["speed_up"] / row[bound], row[f"share_of_{bound}"])
        self.assertEqual(dense["scoring_ms"], 0)
        self.assertGreater(pruned["scoring_ms"], 0)
        self.assertAlmostEqual(dense["time_bound"], 1)
        self.assertAlmostEqual(dense["rate_bound"], 1)
        # The dense run's time with products and attention scaled to what the method computes of each.
        scaled = {kind: dense[f"{kind}_ms"] * pruned[f"{kind}_flops"] / dense[f"{kind}_flops"] for kind in ["product", "attention"]}
        both = dense["product_ms"] + dense["attention_ms"]
        self.assertAlmostEqual(pruned["time_bound"], dense["ttft_ms"] / (dense["ttft_ms"] - both + sum(scaled.values())))
        self.assertAlmostEqual(pruned["rate_bound"], both / sum(scaled.values()))
        self.assertGreater(pruned["rate_bound"], pruned["time_bound"])
        self.assertEqual(self.good("bench", "--shape", "tiny", "-p", "64", "-r", "1", "--no-warmup").count("| none "), 2)

    def test_bench_second_question(self):
        spec = "sliminfer:layers=1,keep=128,min=0"
        rows = json.loads(self.good("bench", "--shape", "tiny", "-p", "1024", "-n", "2", "-r", "2", "-o", "json",
                                    "--second", "40", "--prune", "none", "--prune", spec, "--no-warmup"))
        self.assertEqual([(r["prune"].split(":")[0], r["second_question"], r["cached_tokens"]) for r in rows],
                         [("none", 0, 0), ("sliminfer", 0, 0), ("none", 40, 984), ("sliminfer", 40, 984)])
        for first, second in [(rows[0], rows[2]), (rows[1], rows[3])]:
            self.assertLess(second["flops"], first["flops"] / 2)
            self.assertEqual(second["rounds"], 2)
        # Products and attention at the dense run's rates, its packing, and of the rest as large a part as of the products.
        dense, second = rows[0], rows[3]
        part = {kind: second[f"{kind}_flops"] / dense[f"{kind}_flops"] for kind in ["product", "attention"]}
        rest = dense["ttft_ms"] - dense["product_ms"] - dense["attention_ms"] - dense["pack_ms"]
        bound = dense["pack_ms"] + sum(part[kind] * dense[f"{kind}_ms"] for kind in part) + rest * part["product"]
        self.assertAlmostEqual(second["time_bound"], dense["ttft_ms"] / bound)
        table = self.good("bench", "--shape", "tiny", "-p", "512", "-r", "1", "--second", "40")
        self.assertIn("| none, question 2 of 40 ", table)
        self.bad("bench", "--shape", "tiny", "-p", "40", "--second", "40", says=["--second 40", "40"])
        self.bad("bench", "--shape", "tiny", "-p", "64", "--second", "0", code=2, says=["--second: 0 is not a number above 0"])
        self.bad("bench", "--dry-run", "--shape", "tiny", "-p", "64", "--second", "4", says=["--second"])

    def test_bench_dry_run(self):
        rows = json.loads(self.good("bench", "--dry-run", "--shape", "llama-3.1-8b", "-p", "32768,131072", "-o", "json",
                                    "--prune", "sliminfer", "--prune", "lazyllm", "--prune", "snapkv", timeout=60))
        self.assertEqual([(r["prompt"], r["prune"].split(":")[0]) for r in rows],
                         [(n, m) for n in (32768, 131072) for m in ("none", "sliminfer", "lazyllm", "snapkv")])
        # The published bounds of this shape with the last layer's rule.
        for row, bound in zip(rows, [1, 2.55, 1.95, 1, 1, 3.08, 2.15, 1]):
            self.assertAlmostEqual(row["flop_bound"], bound, delta=0.02, msg=row["prune"])
            self.assertAlmostEqual(row["flop_bound"], row["flops_dense"] / row["flops"])
            self.assertEqual(row["kv_bytes_dense"], 131072 * row["prompt"])  # 128 KiB a token
        self.assertEqual(rows[0]["kv_bytes"], rows[0]["kv_bytes_dense"])
        self.assertLess(rows[3]["kv_bytes"], rows[3]["kv_bytes_dense"] / 4)
        self.assertGreater(rows[2]["aux_bytes"], 0)
        # SDTP's counts follow from its settings, so no trained file is needed.
        planned = self.good("bench", "--dry-run", "--shape", "llama-3.1-8b", "-p", "32768", "--prune", "sdtp")
        self.assertIn("sdtp: random predictors at the trainer's default stages", planned)
        self.assertIn("1.69x", planned)
        table = self.good("bench", "--dry-run", "-m", MODEL, "-p", "4096", "--prune", "ftp")
        self.assertIn("nothing was run", table)
        self.assertIn("| FLOP bound |", table)
        # The table has the spec as given; every key stands below it.
        self.assertRegex(table, r"(?m)^\| +4096 \| ftp ")
        self.assertRegex(table, r"(?m)^ftp: ftp:.*eta=")
        self.assertLess(max(map(len, table.splitlines()[2:5])), 140)
        self.bad("bench", "--dry-run", "--shape", "tiny", "-p", "100", "--prune", "ftp:eta=7", says=["eta"])
        self.bad("bench", "--dry-run", says=["--shape"])


class Eval(Case):
    def test_table_results_and_resume(self):
        with tempfile.TemporaryDirectory() as folder:
            command = ["eval", "niah", "-m", MODEL, "--lengths", "512", "--samples", "1", "--prune", "ftp", "-o", f"{folder}/out"]
            table = self.good(*command)
            lines = [line.rstrip() for line in table.splitlines()]
            self.assertEqual(len(lines), 5, table)
            self.assertTrue(lines[2].startswith("niah") and " dense " in lines[2], table)
            self.assertIn(" ftp (stood aside)", lines[3])
            self.assertIn("below its break-even of 1024", lines[4])
            rows = json.loads(pathlib.Path(f"{folder}/out/results.json").read_text())
            self.assertEqual([(row["task"], row["length"], row["prune"], row["n"]) for row in rows],
                             [("niah", 512, "none", 1), ("niah", 512, "ftp", 1)])
            for key in ["score", "ttft_ms", "flops_ratio", "kl"]:
                self.assertIsInstance(rows[1][key], (int, float), key)
            samples = pathlib.Path(f"{folder}/out/samples.jsonl").read_bytes()
            self.assertEqual(self.good(*command), table)  # nothing is run again
            self.assertEqual(pathlib.Path(f"{folder}/out/samples.jsonl").read_bytes(), samples)
            self.bad(*command, "--seed", "2", says=["samples.jsonl", "seed"])
            # The page is there, and is made again from the samples alone.
            page = pathlib.Path(f"{folder}/out/report.html")
            drawn = page.read_text()
            self.assertIn("Needle in a haystack", drawn)
            page.unlink()
            self.assertEqual(self.good("report", f"{folder}/out", "--pictures", f"{folder}/pictures"), f"{page}\n")
            self.assertEqual(page.read_text(), drawn)
            self.assertIn("needles.svg", os.listdir(f"{folder}/pictures"))
            self.bad("report", folder, says=[f"{folder}/samples.jsonl"])
            self.bad("report", f"{folder}/none", says=[f"{folder}/none"])

    def test_wrong_use(self):
        self.assertIn("ruler/vt", self.good("eval", "--list"))
        with tempfile.TemporaryDirectory() as folder:
            out = ["-m", MODEL, "-o", f"{folder}/out"]
            self.bad("eval", "nothing", *out, says=["nothing"])
            self.bad("eval", *out, says=["name a task"])
            self.bad("eval", "niah", "-m", MODEL, says=["-o"])
            self.bad("eval", "niah", "-o", folder, says=["--model"])
            self.bad("eval", "longbench", *out, says=["--data"])
            self.bad("eval", "longbench/lcc", *out, "--data", folder, says=["lcc.jsonl"])
            self.bad("eval", "longbench", *out, "--data", folder, says=["jsonl"])
            self.bad("eval", "niah", *out, "--lengths", "0", code=2, says=["--lengths"])
            self.bad("eval", "niah", *out, "--samples", "0", code=2, says=["--samples"])
            self.bad("eval", "niah", *out, "--prune", "what", says=["what"])
            self.bad("eval", "niah", "-m", MODEL, "-o", "/dev/null/x", says=["/dev/null/x"])
            pathlib.Path(f"{folder}/empty.txt").write_text("")
            self.bad("eval", "niah", *out, "--haystack", f"{folder}/empty.txt", says=["empty.txt"])


class Paper(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.base = ["eval", "-m", MODEL, "-o", f"{self.folder}/out", "--samples", "1"]

    def rows(self, text):
        """The table's lines by their cells, which two spaces separate."""
        return [re.split(r" {2,}", line.strip()) for line in text.splitlines()]

    def test_a_table_by_length(self):
        command = [*self.base, "--paper", "sliminfer", "--table", "F", "--lengths", "512,4096", "--prune", "random:keep=0.5,min=0"]
        text = self.good(*command)
        self.assertTrue(text.startswith("SlimInfer: "), text)
        self.assertIn("published figures: table F, on a Jetson Orin", text)
        rows = self.rows(text)
        dense = next(row for row in rows if row[:2] == ["4k", "Dense"])
        self.assertEqual(dense[-1], "12.49", "the paper's figure of that length")
        random = [row for row in rows if row[0] == "random:keep=0.5,min=0"]
        self.assertEqual(len(random), 2, "a method of the user gets a line at each length")
        self.assertGreater(float(random[1][2]), 0)
        self.assertIn("[1] Llama-3.1-8B-Instruct, published", text)
        self.assertIn("one sample of each task", text)
        self.assertIn("sliminfer:keep=8192/4096/2048,min=0 stood aside in 1 of 2 tasks", text)  # it prunes 4,096 tokens
        page = pathlib.Path(f"{self.folder}/out/sliminfer-F.html")
        self.assertEqual(text.splitlines()[-1], str(page))
        self.assertIn("<svg", page.read_text())
        samples = pathlib.Path(f"{self.folder}/out/sliminfer-lengths/samples.jsonl").read_bytes()
        self.assertEqual(self.good(*command), text)  # nothing is run again
        self.assertEqual(pathlib.Path(f"{self.folder}/out/sliminfer-lengths/samples.jsonl").read_bytes(), samples)

    def test_missing_data_leave_cells_blank_and_are_said(self):
        line = {"context": "def add(a, b):\n    return a + b\n" * 20, "input": "", "answers": ["    return a + b"], "all_classes": None}
        for name in ["lcc", "repobench-p", "hotpotqa"]:
            pathlib.Path(self.folder, f"{name}.jsonl").write_text(json.dumps(line) + "\n")
        text = self.good(*self.base, "--paper", "lazyllm", "--table", "1", "--data", self.folder, "--lengths", "512")
        rows = self.rows(text)
        code = next(row for row in rows if row[:2] == ["Code completion", "Baseline"])
        self.assertEqual(len(code), 9, code)  # three of this run, two of each published model
        self.assertEqual(code[5:], ["55.18", "1.00", "36.49", "1.00"])
        # Of this category one data set is there: ratios without a score.
        multi = next(row for row in rows if row[:2] == ["Multi-document QA", "Baseline"])
        self.assertEqual(multi[2:], ["1.00", "1.00", "22.43", "1.00", "20.71", "1.00"])
        single = next(row for row in rows if row[:2] == ["Single-document QA", "Baseline"])
        self.assertEqual(single[2:], ["25.79", "1.00", "25.19", "1.00"])
        self.assertIn("no data: longbench/musique: no musique.jsonl", text)
        self.assertIn("Prompt compression needs a second model", text)
        # Table 2 has the same run: its folder is there already.
        again = self.good(*self.base, "--paper", "lazyllm", "--table", "2", "--data", self.folder, "--lengths", "512")
        self.assertIn("computed %", again)
        self.assertEqual(sorted(os.listdir(f"{self.folder}/out")), ["lazyllm-1.html", "lazyllm-2.html", "lazyllm-longbench"])

    def test_figures(self):
        probe = self.good(*self.base, "--paper", "sliminfer", "--figure", "2", "--lengths", "512")
        self.assertIn("Figure 2: The needle's blocks dropped before one layer", probe)
        rows = self.rows(probe)
        self.assertEqual(len([row for row in rows if row[0].startswith("before layer")]), 7)  # of 9
        self.assertNotIn("stood aside", probe)
        self.assertIn("<svg", pathlib.Path(f"{self.folder}/out/sliminfer-figure-2.html").read_text())
        use = self.good(*self.base, "niah", "--paper", "lazyllm", "--figure", "8", "--lengths", "1024")
        lazy = next(row for row in self.rows(use) if "LazyLLM" in row)
        shares = [float(cell) for cell in lazy[2:]]
        self.assertEqual(shares[:2], [100, 100], use)  # below the first stage nothing is left out
        self.assertTrue(shares[0] > shares[2] > shares[4], shares)
        self.assertTrue(all(after >= before for before, after in zip(shares[::2], shares[1::2])), shares)
        self.assertIn("layers 4 to 5", pathlib.Path(f"{self.folder}/out/lazyllm-figure-8.html").read_text())
        self.good(*self.base, "--paper", "ftp", "--figure", "heat-map", "--lengths", "1024")
        page = pathlib.Path(f"{self.folder}/out/ftp-heat-map.html").read_text()
        self.assertIn("skip the FFN", page)
        self.assertIn("FTP, eta 0.95", page)

    def test_a_judge(self):
        """A model of this program judges. It knows no verdict, so the win rate stays open, and every answer is asked once."""
        row = {"instructions": ["What is the code?", "Who said so?"], "outputs": ["It is 12345.", "The keeper did."],
               "input": "The secret code of the misty harbor is 12345, the keeper said. " * 20}
        pathlib.Path(self.folder, "scientific_qa.jsonl").write_text(json.dumps(row) + "\n")
        server = Server(PROGRAM, MODEL, "-c", "4096", "--api-key", "a-judges-key").wait_ready()
        url = f"http://127.0.0.1:{server.port}/v1"
        run = [*self.base[:3], "-o", f"{self.folder}/judged", "leval_open", "--data", self.folder, "--lengths", "1400",
               "--samples", "2", "--prune", "random:keep=0.5,min=0"]
        judge, key = ["--judge", url, "--judge-model"], ["--judge-key-env", "COPPICE_TEST_KEY"]
        os.environ["COPPICE_TEST_KEY"] = "a-judges-key"
        text = self.good(*run, *judge, "coppice", *key)
        verdicts = self.rows(text)[-1]
        self.assertEqual((verdicts[0], verdicts[1]), ("leval_open/scientific_qa", "random:keep=0.5,min=0"), text)
        self.assertEqual(sum(int(cell) for cell in verdicts[-4:]), 4, text)  # two answers in two orders
        lines = pathlib.Path(f"{self.folder}/judged/judge.jsonl").read_text().splitlines()
        self.assertEqual(len(lines), 4)
        self.assertNotIn("a-judges-key", "".join(lines) + text)
        results = json.loads(pathlib.Path(f"{self.folder}/judged/results.json").read_text())
        self.assertEqual(sum(results[1]["verdicts"]), 4)
        self.good("report", f"{self.folder}/judged")
        self.assertEqual(json.loads(pathlib.Path(f"{self.folder}/judged/results.json").read_text()), results)
        self.bad(*run, *judge, "other", says=[url, "status 401"], prints=True)  # without the key
        server.stop()
        self.assertEqual(self.good(*run, *judge, "coppice"), text)  # nothing is asked again
        for wrong, says in [(["--judge", "https://x/v1", "--judge-model", "m"], "--judge https://x/v1"),
                            (["--judge", url], "--judge-model"), ([*judge, "m", "--judge-key-env", "NO_SUCH"], "NO_SUCH"),
                            ([*judge, "m", "--judge-against", "/none"], "/none")]:
            self.bad(*run, *wrong, says=[says])

    def test_wrong_use(self):
        self.bad(*self.base, "--paper", "gemfilter", says=["--paper gemfilter", "lazyllm, ftp, sdtp, sliminfer"])
        self.bad(*self.base, "--paper", "ftp", "--table", "9", says=["--table 9", "1, 2, 3, 4, 5, 6, eta, dense, heat-map"])
        self.bad(*self.base, "--table", "1", code=2, says=["--paper"])
        self.bad(*self.base, "--paper", "ftp", "--table", "1", "--figure", "heat-map", says=["--figure"])
        self.bad(*self.base, "--paper", "ftp", "--figure", "9", says=["--figure 9: ftp has heat-map"])
        self.bad(*self.base, "--paper", "ftp", "--figure", "1", says=["--figure 1: ftp has heat-map"])
        self.bad(*self.base, "--paper", "ftp", "--table", "1", says=["longbench/narrativeqa", "data"])
        self.assertIn("coppice eval --paper lazyllm", self.good("eval", "--help"))


class Tune(Case):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.model = f"{self.folder}/m.gguf"
        shutil.copy(MODEL, self.model)

    def tune(self, *args):
        return ["tune", "-m", self.model, "-t", "1", "--tasks", "niah", "--needles", "2", "--methods", "static:layer=5,keep=0.5",
                "--least", "50", "--steps", "1", *args]

    def auto(self, prompt, *args):
        """What `run --prune auto` answers, and says on stderr."""
        done = run("run", "-m", self.model, "-f", prompt, "-n", "8", "--temp", "0", "--prune", "auto", *args)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.decode(), done.stderr.decode()

    @contextlib.contextmanager
    def serving(self, *options):
        """What a server says on stdout behind `ready`."""
        server = Server(PROGRAM, self.model, *options).wait_ready()
        os.set_blocking(server.process.stdout.fileno(), False)
        yield (server.process.stdout.read() or b"").decode()
        self.assertEqual(server.stop(), 0)

    def test_from_tuning_to_auto(self):
        text, said = self.auto(PROMPT_2K)
        self.assertEqual(said, "auto: no calibration for this model: dense; `coppice tune -m MODEL` makes one\n")
        self.assertIn(ANSWER_2K, text)
        with self.serving("--prune", "auto:loss=5%") as start:
            self.assertEqual(start, said)
        with self.serving("--prune", "static:layer=5") as start:
            self.assertEqual(start, "")
        lines = self.good(*self.tune("--lengths", "2048", "--samples", "6", "--out", f"{self.folder}/spec.txt")).splitlines()
        self.assertTrue(lines[-1].startswith("static:"), lines)
        self.assertIn("static: " + lines[-1], lines)
        self.assertTrue(all(len(line) < 120 for line in lines if line.startswith("* static")), lines)
        self.assertEqual(pathlib.Path(f"{self.folder}/spec.txt").read_text(), lines[-1] + "\n")
        calibration = f"{self.model}.coppice.json"
        self.assertIn(f"calibration: {calibration}", lines)
        entry = json.loads(pathlib.Path(calibration).read_text())["entries"][0]
        self.assertEqual((entry["loss"], entry["min_tokens"], entry["max_tokens"], entry["prune"]), (0.01, 1844, 3072, lines[-1]))
        self.assertEqual((entry["held_out"]["n"], entry["made"]["tasks"][0]["used"]), (3, True))
        self.assertEqual((entry["kinds"], entry["chosen_tasks"]), (["competing_facts"], True))
        # What the user did not choose, and what asks no question, is not believed to be kept.
        pathlib.Path(calibration).write_text(json.dumps({**json.loads(pathlib.Path(calibration).read_text()),
                                                         "entries": [{**entry, "chosen_tasks": False}]}))
        _, said = self.auto(PROMPT_2K)
        self.assertIn("1,844 to 3,072 tokens: dense, it was measured on facts that compete only; `coppice tune", said)
        pathlib.Path(calibration).write_text(json.dumps({**json.loads(pathlib.Path(calibration).read_text()), "entries": [entry]}))
        text = pathlib.Path(self.folder, "text.txt")
        text.write_text(pathlib.Path(PROMPT_2K).read_text().rsplit("\nQuestion:", 1)[0] + " The secret code is a")
        _, said = self.auto(text)
        self.assertRegex(said, "dense, the prompt asks no question, and the setting was measured on facts that compete only\n$")
        # Covered, then not.
        text, said = self.auto(PROMPT_2K)
        self.assertRegex(said, r"^auto: calibration m\.gguf\.coppice\.json: 1 % loss, 1,844 to 3,072 tokens: held-out .*, n=3, "
                               rf"measured on facts that compete only: {re.escape(lines[-1])}\nprune static:.*: kept .*\n$")
        with self.serving("--prune", "auto") as start:
            self.assertRegex(start, r"^auto: prompts of 1844 to 3072 tokens: static:.* \(calibration m\.gguf\.coppice\.json: .*, n=3, "
                                    r"measured on facts that compete only\)\nauto: prompts of other lengths run densely\n$")
        answer = json.loads(self.auto(PROMPT_2K, "--json")[0])["prune"]
        self.assertTrue(answer["active"])
        self.assertTrue(answer["spec"].startswith("static:"), answer["spec"])
        self.assertIn("1,844 to 3,072", answer["auto"])
        short = pathlib.Path(self.folder, "short.txt")
        short.write_text(pathlib.Path(PROMPT_2K).read_text()[-1000:])
        _, said = self.auto(short)
        self.assertRegex(said, r"covers 1,844 to 3,072 tokens, the prompt has \d+: dense\n$")
        self.assertEqual(json.loads(self.auto(short, "--json")[0])["prune"]["spec"], "none")
        rows = json.loads(self.good("compare", "-m", self.model, "-f", PROMPT_2K, "-n", "2", "-r", "1", "--prune", "auto", "--json"))
        self.assertEqual(rows[1]["prune"]["spec"], answer["spec"])
        self.assertIn("auto ran static:", self.good("compare", "-m", self.model, "-f", PROMPT_2K, "-n", "2", "-r", "1", "--prune", "auto"))
        plan = self.good("bench", "-m", self.model, "-p", "2048,100", "--dry-run", "--prune", "auto", "-o", "jsonl").splitlines()
        self.assertEqual([json.loads(line)["prune"] for line in plan], ["none", answer["spec"], "none", "none"])
        self.bad("run", "-m", self.model, "-f", PROMPT_2K, "--prune", "auto+ftp", says=["auto stands alone"])
        pathlib.Path(calibration).write_text("{}")
        self.bad("run", "-m", self.model, "-f", PROMPT_2K, "--prune", "auto", says=[calibration, "format is missing"])

    def test_goes_on_and_says_where_nothing_is_found(self):
        command = self.tune("--lengths", "512", "--samples", "6", "-o", f"{self.folder}/c.json", "--work", f"{self.folder}/work")
        budgets = ["--budget", "40%", "--budget", "kl=9"]
        first = self.good(*command, *budgets).splitlines()
        self.assertEqual(sorted(os.listdir(f"{self.folder}/work")), ["tune.json", "tune.jsonl"])
        size = os.path.getsize(f"{self.folder}/work/tune.jsonl")
        self.assertEqual(self.good(*command, *budgets).splitlines()[-1], first[-1])
        self.assertEqual(os.path.getsize(f"{self.folder}/work/tune.jsonl"), size, "nothing is run again")
        entries = json.loads(pathlib.Path(self.folder, "c.json").read_text())["entries"]
        self.assertEqual([entry["loss"] for entry in entries], [0.4], "a divergence has no loss to ask for")
        done = run(*command, "--budget", "kl=0", "--out", f"{self.folder}/none.txt")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"nothing meets the budget of KL 0: at 512 tokens no setting kept it", done.stderr)
        self.assertIn(b"static: none: nothing within the budget: the nearest is static:", done.stdout)
        self.assertFalse(os.path.exists(f"{self.folder}/none.txt"))
        self.bad(*command, "--budget", "1", says=["--budget 1"])
        self.bad(*command, "--budget", "1%", "--budget", "1%", says=["--budget 1%: named twice"])
        self.bad(*command, "--methods", "h2o", says=["--methods h2o"])
        before = pathlib.Path(self.folder, "c.json").read_text()
        done = run(*command, "--budget", "40%", "--time-limit", "0.0001", "--seed", "2", "--work", f"{self.folder}/other")
        self.assertEqual(done.returncode, 1)
        self.assertIn(b"--time-limit", done.stderr)
        self.assertRegex(done.stderr.decode(), r"tune: 512 tokens: 1 task, \d samples? of each .* a dense answer: less than a minute")
        self.assertIn(b"tested no setting; the time limit (--time-limit) ended it: the same command goes on from here", done.stdout)
        self.assertEqual(json.loads(pathlib.Path(self.folder, "c.json").read_text())["entries"][0]["prune"],
                         json.loads(before)["entries"][0]["prune"], "what was found before stays")
        self.bad(*self.tune("-o", f"{self.folder}/missing/c.json"), says=["missing/c.json"])
        self.bad("tune", "-m", self.model, "--least", "200", code=2, says=["--least"])
        self.bad("tune", "-m", self.model, "--head-patterns", "h.json", code=2, says=["--reference"])
        self.bad("tune", "-m", self.model, "--head-budget", "99", code=2, says=["--head-patterns"])
        heads, text = f"{self.folder}/heads.json", pathlib.Path(f"{self.folder}/text.txt")
        text.write_text("A line of the reference. " * 100)
        said = self.good("tune", "-m", self.model, "--head-patterns", heads, "--reference", text, "-c", "400", "--head-budget", "99")
        self.good("run", "-m", self.model, "-f", text, "-n", "1", "--prune", f"{said.splitlines()[-1]},min=0")
        self.bad("tune", "-m", self.model, "--reference", text, code=2, says=["--head-patterns or --ffn-proxies"])

    def until_killed(self, command, signal_number):
        """Ends the command once it has answered more, with a setting; its code, output and records."""
        journal = pathlib.Path(command[command.index("--work") + 1], "tune.jsonl")
        before = journal.stat().st_size if journal.exists() else 0
        process = subprocess.Popen([PROGRAM, *map(str, command)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        deadline = time.monotonic() + 120
        while not (journal.exists() and journal.stat().st_size > before and b"static:" in journal.read_bytes()):
            self.assertLess(time.monotonic(), deadline)
            self.assertIsNone(process.poll(), "it ended before")
            time.sleep(0.02)
        process.send_signal(signal_number)
        out, err = process.communicate(timeout=120)
        return process.returncode, out.decode(), journal.read_text().splitlines()

    def test_interrupted_and_killed(self):
        """Ctrl-C leaves a file that says how far it came; the same command goes on, also after a kill."""
        command = ["tune", "-m", self.model, "-t", "1", "--tasks", "niah", "--needles", "2", "--methods", "static", "--least", "50",
                   "--lengths", "1024", "--samples", "16", "--work", f"{self.folder}/work", "--time-limit", "0"]
        code, _, killed = self.until_killed(command, signal.SIGKILL)
        self.assertEqual(code, -signal.SIGKILL)
        calibration = pathlib.Path(f"{self.model}.coppice.json")
        self.assertFalse(calibration.exists())
        shutil.copytree(f"{self.folder}/work", f"{self.folder}/copy")
        # Begun again, it has the records of before and is interrupted at once.
        code, out, interrupted = self.until_killed(command, signal.SIGINT)
        self.assertEqual(code, 130)
        self.assertIn("interrupted: the same command goes on from here", out)
        whole = killed if killed[-1].endswith("}") else killed[:-1]
        self.assertEqual(interrupted[: len(whole)], whole)
        entry = json.loads(calibration.read_text())["entries"][0]
        self.assertEqual((entry["prune"], entry["unfinished"]), ("none", True))
        self.assertIn("goes on from here", entry["why"])
        lines = self.good(*command).splitlines()
        self.assertTrue(lines[-1].startswith("static:"), lines)
        entry = json.loads(calibration.read_text())["entries"][0]
        self.assertEqual((entry["prune"], entry.get("unfinished")), (lines[-1], None))
        after = pathlib.Path(self.folder, "work/tune.jsonl").read_text().splitlines()
        self.assertEqual(after[: len(interrupted)], interrupted)
        self.assertIn("The frontier, on the samples of the search", "\n".join(lines))

    def test_ffn_proxies(self):
        text, proxies = pathlib.Path(f"{self.folder}/text.txt"), f"{self.folder}/proxies.safetensors"
        text.write_text("".join(f"Line {i * i} of the reference says {i * 7919}. " for i in range(200)))
        make = ("tune", "-m", self.model, "--reference", text, "-c", "400", "--proxy-tokens", "200", "--ffn-proxies")
        said = self.good(*make, proxies, "--proxy-channels", "64", "--proxy-rank", "24").splitlines()
        self.assertEqual(said[-1], f"spts:proxy={proxies}")
        self.assertIn("200 calibrate, 50 are held out; 64 channels, rank 24", said[0])
        self.assertEqual([row.split()[0] for row in said if "%" in row and row[0].isdigit()], [str(l) for l in range(10)])
        with open(proxies, "rb") as file:
            header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        self.assertEqual(header["__metadata__"]["rank"], "24")
        self.assertEqual(header["spts.9.down"]["shape"], [24, 64])
        chosen = self.good("run", "-m", self.model, "-f", text, "-n", "1", "--json", "--prune",
                           f"{said[-1]},begin=4,layers=6/8,keep=0.5/0.3,drop=0.1,min=0")
        self.assertTrue(json.loads(chosen)["prune"]["active"])
        self.assertEqual(header["spts.9.down"]["dtype"], "BF16")
        other = f"{self.folder}/other"
        self.bad("tune", "-m", self.model, "--ffn-proxies", other, code=2, says=["--reference"])
        self.bad("tune", "-m", self.model, "--proxy-rank", "9", code=2, says=["--ffn-proxies"])
        self.bad(*make, other, "--head-patterns", "h.json", code=2, says=["--head-patterns"])
        self.bad(*make, other, "--proxy-rank", "999", says=["rank 999"])
        self.bad(*make, f"{self.folder}/missing/p", says=["missing/p"])
        text.write_text("Too short.")
        self.bad(*make, other, says=["at least 256"])
        self.assertFalse(os.path.exists(other))


if __name__ == "__main__":
    unittest.main(verbosity=2)
