"""The commands that measure: compare, perplexity, bench, eval with its report.

    cli_measure_test.py PROGRAM SOURCE_DIR [unittest arguments]
"""

import json
import os
import pathlib
import re
import tempfile
import unittest

from cli_support import ANSWER_2K, Case, MODEL, PROGRAM, PROMPT_2K, SOURCE
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
            parts = ["pack", "product", "decode_product", "attention", "scoring", "rows", "selection", "recurrence", "other"]
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

    def test_bench_of_layers_with_a_state(self):
        model = SOURCE / "tests/data/rows/qwen3_5/model.gguf"
        bench = ["bench", "-m", str(model), "-p", "200", "-r", "3", "--prune", "random:layers=input,keep=0.5,min=0"]
        dense, pruned = json.loads(self.good(*bench, "-o", "json"))
        self.assertGreater(pruned["recurrence_ms"], 0)
        self.assertAlmostEqual(dense["time_bound"], 1)
        # Half of the rows take half of the recurrence's time.
        scaled = {kind: dense[f"{kind}_ms"] * pruned[f"{kind}_flops"] / dense[f"{kind}_flops"] for kind in ["product", "attention"]}
        rest = dense["ttft_ms"] - sum(dense[f"{kind}_ms"] for kind in ["product", "attention", "recurrence"])
        bound = rest + sum(scaled.values()) + dense["recurrence_ms"] / 2
        self.assertAlmostEqual(pruned["time_bound"], dense["ttft_ms"] / bound)
        self.assertIn(" recurrence ms |", self.good(*bench))

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
            # Of the third setting, too, before the first sample.
            for wrong, says in [("selective:model=/none.gguf", "/none.gguf"), ("sdtp:file=/none.safetensors", "/none.safetensors"),
                                ("specprefill:draft=/none.gguf", "/none.gguf"), ("ftp:eta=7", "eta=7")]:
                self.bad("eval", "niah", *out, "--prune", "ftp", "--prune", "coppice", "--prune", wrong, says=[says])
                self.assertFalse(os.path.exists(f"{folder}/out/samples.jsonl"))
                self.bad("compare", "-m", MODEL, "-f", PROMPT_2K, "-r", "1000", "--prune", "ftp", "--baseline", wrong, says=[says])
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


if __name__ == "__main__":
    unittest.main(verbosity=2)
