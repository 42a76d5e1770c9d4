"""What `coppice serve` says of itself: at its start, in its log, to Prometheus, and as documents.

    server_observability_test.py PROGRAM SOURCE_DIR [unittest arguments]

The board and the alerts of packaging/ are held against the metrics of a server that has answered requests of every kind.
promtool, of Debian's package prometheus, checks the rules where it is installed.
"""

import json
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from server_case import CTX, Case, GREEDY, MODEL, PROGRAM, PROMPT_2K, SOURCE
from chat_model import write_chat_model
from server_support import Server

SECRET = "The password is xyzzy"
SHORT = {**GREEDY, "max_tokens": 4, "ignore_eos": True}
PACKAGING = SOURCE / "packaging"


class Start(unittest.TestCase):
    def fails_before_it_listens(self, path, message):
        done = subprocess.run([PROGRAM, "serve", "-m", str(path), "--port", "0"], capture_output=True, stdin=subprocess.DEVNULL)
        self.assertEqual((done.returncode, done.stdout), (1, b""))
        self.assertEqual(done.stderr.decode(), f"coppice: {path}: {message}\n")

    def test_a_path_that_is_no_model_is_told_before_the_port_is_open(self):
        with tempfile.TemporaryDirectory() as folder:
            folder = pathlib.Path(folder)
            self.fails_before_it_listens(folder / "none.gguf", "no such file or folder")
            (folder / "text").write_text("no model")
            self.fails_before_it_listens(folder / "text", "neither a GGUF file nor a Hugging Face folder")
            (folder / "cut.gguf").write_bytes(MODEL.read_bytes()[:200])
            done = subprocess.run([PROGRAM, "serve", "-m", str(folder / "cut.gguf"), "--port", "0"], capture_output=True)
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertRegex(done.stderr.decode(), r"^coppice: [^\n]*cut\.gguf[^\n]*\n$")
            (folder / "hf").mkdir()
            done = subprocess.run([PROGRAM, "serve", "-m", str(folder / "hf"), "--port", "0"], capture_output=True)
            self.assertEqual((done.returncode, done.stdout), (1, b""))
            self.assertIn(b"config.json", done.stderr)

    def lines(self, *options):
        server = Server(PROGRAM, MODEL, "-t", "2", *options).wait_ready()
        lines = {}
        while len(lines) < 7:
            name, what = re.fullmatch(r"  (\S+(?: \S+)?) +(\S.*)\n", server.process.stdout.readline().decode()).groups()
            lines[name] = what
        self.assertEqual(server.stop(), 0)
        return lines

    def test_says_what_it_is(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = self.lines("-c", "4096", "-np", "3", "--cache-ram", "64", "--packed-ram", "32", "--doc-cache", folder,
                               "--doc-cache-size", "128", "--cold-dir", folder, "--alias", "mini")
            self.assertRegex(lines["model"], r"^mini: llama .*, \d+\.\d+ M parameters, mostly F16, .*B of weights$")
            self.assertRegex(lines["context"], r"^4096 tokens \(trained for \d+\), 3 sequences at once, .* a token in BF16$")
            self.assertRegex(lines["computes"], r"^2 threads, \w+ \(cpu\)$")
            self.assertRegex(lines["prefix cache"], rf"^up to 64\S* MiB in memory, and 128\S* MiB of files in {folder}$")
            self.assertRegex(lines["packed weights"], r"^up to 32\S* MiB$")
            self.assertEqual(lines["cold tier"], f"files in {folder}, for methods that offload keys and values")
            self.assertRegex(lines["prune"], r"^none; auto, at 4096 tokens: \S+ \(.*\)$")
        lines = self.lines("-c", "4096", "-np", "1", "--cache-ram", "0", "--packed-ram", "0", "--prune", "lazyllm")
        self.assertIn("1 sequence at once", lines["context"])
        self.assertEqual(lines["prefix cache"], "none: --cache-ram 0")
        self.assertTrue(lines["packed weights"].startswith("none"))
        self.assertTrue(lines["prune"].startswith("lazyllm; auto"))


class Log(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.folder.cleanup)
        cls.log = pathlib.Path(cls.folder.name) / "log"
        model = pathlib.Path(cls.folder.name) / "chat.gguf"
        write_chat_model(MODEL, model)
        keys = pathlib.Path(cls.folder.name) / "keys"
        keys.write_text("one\ntwo all_metrics\n")
        cls.server = Server(PROGRAM, model, "-c", "4096", "--alias", "m", "--access-log", str(cls.log), "--access-log-format", "json",
                            "--api-key-file", str(keys)).wait_ready()

    @classmethod
    def tearDownClass(cls):
        assert cls.server.stop() == 0

    def ask(self, path, body=None, key="one"):
        """The log's object of the request, and the reply."""
        before = len(self.log.read_text().splitlines())
        status, _, reply = self.server.ask(path, body, headers={"Authorization": f"Bearer {key}"})
        self.server.wait_for(lambda: len(self.log.read_text().splitlines()) > before)
        line = json.loads(self.log.read_text().splitlines()[-1])
        self.assertEqual(line["status"], status)
        self.assertEqual(line["path"], path)
        return line, reply

    def test_an_object_for_each_request(self):
        line, _ = self.ask("/health")
        self.assertRegex(line["time"], r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$")
        self.assertRegex(line["request_id"], "^req_[0-9a-f]{16}$")
        self.assertEqual((line["method"], line["whole"]), ("GET", True))
        self.assertGreater(line["bytes"], 0)
        self.assertEqual(self.ask("/nowhere")[0]["status"], 404)
        self.assertEqual(self.ask("/v1/completions", {"prompt": "x"}, key="wrong")[0]["status"], 401)

    def test_what_an_answer_took_and_why(self):
        prompt = SECRET + ". " + PROMPT_2K[:1500]
        line, reply = self.ask("/v1/completions", {**SHORT, "prompt": prompt, "prune": "lazyllm"})
        self.assertEqual(line["id"], reply["id"])
        self.assertEqual((line["model"], line["choices"], line["finish_reason"]), ("m", 1, "length"))
        self.assertRegex(line["client"], "^[0-9a-f]{8}$")
        usage = reply["usage"]
        self.assertEqual((line["prompt_tokens"], line["generated_tokens"]), (usage["prompt_tokens"], usage["completion_tokens"]))
        self.assertEqual(line["processed_tokens"], line["prompt_tokens"] - line["cached_tokens"])
        self.assertLessEqual(line["queue_ms"], line["ttft_ms"])
        self.assertLess(line["ttft_ms"], line["total_ms"] + 1)
        self.assertAlmostEqual(line["decode_tokens_per_second"], reply["timings"]["predicted_per_second"], delta=0.001)
        self.assertEqual((line["prune"], line["prune_active"]), (reply["prune"]["spec"], False))
        self.assertEqual(line["prune_reason"], reply["prune"]["reason"])
        self.assertEqual(line["cache_reason"], "first")
        self.assertNotIn("auto_reason", line)
        # The next prompt parts from it: where, and with no word of either.
        line, reply = self.ask("/v1/completions", {**SHORT, "prompt": prompt[:800] + " But " + prompt[800:], "prune": "auto"})
        cache = reply["timings"]["cache"]
        self.assertEqual((line["cache_reason"], line["cache_differs_at"]), ("differs", cache["differs_at"]))
        self.assertEqual(line["cache_shared_tokens"], cache["shared_tokens"])
        self.assertEqual((line["auto_reason"], line["auto"]), ("no_calibration", reply["prune"]["auto"]))
        self.assertNotIn("xyzzy", self.log.read_text())

    def test_forms_of_blocks_and_streams_too(self):
        text = "Say it. " + SECRET
        chat = {"messages": [{"role": "user", "content": text}], "max_tokens": 4}
        for path, body in [("/v1/messages", chat), ("/v1/messages", {**chat, "stream": True}),
                           ("/v1/responses", {"input": text, "max_output_tokens": 4}),
                           ("/v1/chat/completions", {**chat, "n": 2, "stream": True}),
                           ("/completion", {"prompt": text, "n_predict": 4})]:
            line, _ = self.ask(path, body)
            for name in ["id", "model", "prompt_tokens", "cached_tokens", "generated_tokens", "queue_ms", "ttft_ms", "finish_reason",
                         "prune", "prune_active", "cache_reason"]:
                self.assertIn(name, line, path)
            self.assertEqual(line["choices"], body.get("n", 1))
        line, _ = self.ask("/v1/embeddings", {"input": text})
        self.assertGreater(line["prompt_tokens"], 0)
        self.assertNotIn("xyzzy", self.log.read_text())

    def test_what_clients_send_ends_no_line(self):
        before = len(self.log.read_text().splitlines())
        self.server.raw(b'GET /a\x1b[2J"\\%0a{} HTTP/1.1\r\nHost: x\r\n\r\n', close=False)
        self.server.wait_for(lambda: len(self.log.read_text().splitlines()) > before)
        for line in self.log.read_bytes().splitlines():
            self.assertTrue(all(0x20 <= byte < 0x7f for byte in line))
            self.assertEqual(type(json.loads(line)), dict)


# Prometheus' own, and what it adds to every series.
OWN_METRICS, OWN_LABELS = {"up"}, {"job", "instance"}
WORDS = {"and", "by", "bool", "group_left", "group_right", "ignoring", "offset", "on", "or", "unless", "without"}


def series_of(expression):
    """[(metric, {label: (operator, value)}, range or None)] of a PromQL expression, and the labels that it groups by."""
    text = re.sub(r"\$__rate_interval", "5m", expression)
    grouped = {label.strip() for group in re.findall(r"\b(?:by|on|without|ignoring)\s*\(([^)]*)\)", text) for label in group.split(",")}
    text = re.sub(r"\b(by|on|without|ignoring)\s*\([^)]*\)", "", text)
    found = []
    for match in re.finditer(r'([a-zA-Z_:][\w:]*)(\s*\()?(\{(?:[^"}]|"(?:\\.|[^"\\])*")*\})?(\[\w+\])?', text):
        name, call, labels, window = match.groups()
        if call or name in WORDS or re.search(r"[\d.\"]$", text[:match.start()]):
            continue
        found.append((name, {l: (o, v) for l, o, v in re.findall(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"', labels or "")}, window))
    return found, grouped - {""}


class Board(Case):
    """What packaging/ asks of a server is what the server has."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        server = cls.server
        for body in [{}, {"prune": "lazyllm:min=0"}, {"prune": "auto"}, {"stream": True, "n": 2}]:
            server.ask("/v1/completions", {"prompt": PROMPT_2K[:2000], **SHORT, **body})
        server.good("/v1/chat/completions", {"messages": [{"role": "user", "content": "Hello"}], **SHORT})
        server.good("/v1/embeddings", {"input": "Hello"})
        server.ask("/nowhere")
        cls.series = {}  # of each metric its series' labels
        cls.types = {}
        for line in server.good("/metrics").splitlines():
            if line.startswith("# TYPE "):
                cls.types[line.split()[2]] = line.split()[3]
            if line.startswith("#"):
                continue
            name, labels = re.fullmatch(r"([\w:]+)(?:\{(.*)\})? \S+", line).groups()
            cls.series.setdefault(name, []).append(dict(re.findall(r'(\w+)="((?:\\.|[^"\\])*)"', labels or "")))

    def check(self, expression, where):
        series, grouped = series_of(expression)
        self.assertTrue(series, where)
        labels = set(OWN_LABELS)
        for name, wanted, window in series:
            if name in OWN_METRICS:
                continue
            self.assertIn(name, self.series, where)
            known = {label for one in self.series[name] for label in one}
            labels |= known
            for label, (operator, value) in wanted.items():
                if label in OWN_LABELS:
                    continue
                self.assertIn(label, known, (where, name))
                values = {one.get(label) for one in self.series[name]}
                if label == "status":  # only those that have occurred are there
                    self.assertRegex(value, r"^[1-5]\d\d(\|[1-5]\d\d)*$", where)
                elif operator in ("=", "!="):
                    self.assertIn(value, values, (where, name))
            counts = name.endswith(("_total", "_bucket"))
            self.assertEqual(window is not None, counts, f"{where}: {name}: a rate is of a counter, and a gauge has none")
            base = name.removesuffix("_bucket")
            self.assertEqual(self.types[base], "histogram" if base != name else "counter" if counts else "gauge", where)
        self.assertLessEqual(grouped, labels, where)

    def test_board(self):
        board = json.loads((PACKAGING / "grafana/coppice.json").read_text())
        panels = [panel for panel in board["panels"] if panel["type"] != "row"]
        self.assertGreater(len(panels), 12)
        self.assertEqual(len({panel["id"] for panel in board["panels"]}), len(board["panels"]))
        for panel in panels:
            self.assertTrue(panel["description"] and panel["targets"], panel["title"])
            for target in panel["targets"]:
                self.check(target["expr"], panel["title"])
                for label in re.findall(r"{{(\w+)}}", target["legendFormat"]):
                    self.assertRegex(target["expr"], rf"\b{label}\b|^coppice", panel["title"])
            self.assertFalse(self.overlapping(panel, panels), panel["title"])
        asked = {name for panel in panels for t in panel["targets"] for name, _, _ in series_of(t["expr"])[0]}
        # What the board leaves out should be a decision: sums, counts, routers' names.
        shown = {name.removesuffix("_bucket") for name in asked}
        left = {name for name in self.types if name not in shown and not name.startswith("vllm:")}
        self.assertEqual(left, {"coppice_sequence_tokens", "coppice_documents_memory_blocks"})
        for variable in board["templating"]["list"]:
            if variable["type"] == "query":
                self.assertIn(re.match(r"label_values\((\w+), instance\)", variable["definition"])[1], self.series)

    @staticmethod
    def overlapping(one, panels):
        a = one["gridPos"]
        return [p["title"] for p in panels if p is not one and a["x"] < p["gridPos"]["x"] + p["gridPos"]["w"]
                and p["gridPos"]["x"] < a["x"] + a["w"] and a["y"] < p["gridPos"]["y"] + p["gridPos"]["h"]
                and p["gridPos"]["y"] < a["y"] + a["h"]]

    def test_alerts(self):
        text = (PACKAGING / "prometheus/alerts.yml").read_text()
        names = re.findall(r"- alert: (\w+)", text)
        expressions = re.findall(r"^ +expr: (.+)$", text, re.MULTILINE)
        self.assertEqual(len(names), len(expressions))
        self.assertGreater(len(names), 5)
        for name, expression in zip(names, expressions):
            self.check(expression, name)
        tested = (PACKAGING / "prometheus/alerts_test.yml").read_text()
        self.assertEqual(set(re.findall(r"alertname: (\w+)", tested)), set(names), "each rule has a test")

    def test_a_wrong_name_would_be_found(self):
        for wrong in ["rate(coppice_nothing_total[5m])", 'rate(coppice_answers_total{methods="none"}[5m])', "coppice_prompts_total",
                      'rate(coppice_auto_total{reason="nothing"}[5m])', "rate(coppice_connections[5m])",
                      "sum by (nothing) (rate(coppice_auto_total[5m]))"]:
            with self.assertRaises(AssertionError, msg=wrong):
                self.check(wrong, wrong)

    def test_label_values_are_bounded(self):
        methods = {m["name"] for m in self.server.good("/methods")["methods"]} | {"none"}
        self.server.ask("/v1/completions", {"prompt": "x", "prune": 'unheard:of="x"', "max_tokens": 1})
        self.assertEqual({one["method"] for one in self.series["coppice_answers_total"]}, methods)
        metrics = self.server.metrics()
        self.assertEqual({re.search('method="([^"]*)"', name)[1] for name in metrics if name.startswith("coppice_answers_total")}, methods)
        self.assertEqual(metrics['coppice_answers_total{method="lazyllm",outcome="pruned"}'], 1)
        self.assertGreaterEqual(metrics["coppice_time_between_tokens_seconds_count"], 3 * 5)
        self.assertEqual(metrics["coppice_request_seconds_count"], metrics["coppice_time_to_first_token_seconds_count"])

    @unittest.skipUnless(shutil.which("promtool"), "promtool is not installed (Debian's package prometheus)")
    def test_promtool(self):
        for words in [("check", "rules", "alerts.yml"), ("check", "config", "prometheus.yml"), ("test", "rules", "alerts_test.yml")]:
            done = subprocess.run(["promtool", *words], cwd=PACKAGING / "prometheus", capture_output=True)
            self.assertEqual(done.returncode, 0, (words, done.stdout, done.stderr))
        lint = subprocess.run(["promtool", "check", "metrics"], input=self.server.good("/metrics").encode(), capture_output=True)
        # Routers read these names as they are.
        self.assertEqual([line for line in lint.stderr.decode().splitlines() if not line.startswith("vllm:")], [])


class Documents(Case):
    def test_version(self):
        version = self.server.good("/version")
        self.assertEqual(set(version), {"version", "commit", "build", "compiler", "isa"})
        program = subprocess.run([PROGRAM, "--version"], capture_output=True, check=True).stdout.decode()
        self.assertIn(f"coppice {version['version']} ({version['build']}), {version['compiler']}\nisa: {version['isa']} on ", program)
        if version["commit"] is not None:
            self.assertRegex(version["commit"], "^[0-9a-f]{12,40}(-dirty)?$")

    def test_document(self):
        document = self.server.good("/openapi.json")
        self.assertTrue(document["openapi"].startswith("3.1."))
        references = re.findall(r'"\$ref": "#/components/schemas/(\w+)"', json.dumps(document))
        self.assertEqual(set(references), set(document["components"]["schemas"]))
        for path, operations in document["paths"].items():
            for method, operation in operations.items():
                named = {p["name"] for p in operation.get("parameters", []) if p["in"] == "path"}
                self.assertEqual(named, set(re.findall(r"{(\w+)}", path)))
                status, _, reply = self.server.ask(re.sub(r"{\w+}", "0", path), None if method == "get" else {})
                # It answers, or says what is wrong with the request; 405 or "no such path" it never says.
                self.assertNotEqual(status, 405, path)
                self.assertNotIn("no such path", json.dumps(reply), path)
        try:
            from openapi_spec_validator import validate
        except ImportError:
            return
        validate(document)

    def test_page(self):
        status, headers, page = self.server.ask("/docs")
        self.assertEqual((status, headers["Content-Type"]), (200, "text/html; charset=utf-8"))
        self.assertIn("default-src 'none'", headers["Content-Security-Policy"])
        for path in self.server.good("/openapi.json")["paths"]:
            self.assertIn(f"<code>{path}</code>", page)

    def test_strangers_learn_no_version(self):
        server = Server(PROGRAM, MODEL, "-c", CTX, "--api-key", "k").wait_ready()
        for path in ["/version", "/openapi.json"]:
            self.assertEqual(server.ask(path)[0], 401)
            self.assertEqual(server.ask(path, headers={"Authorization": "Bearer k"})[0], 200)
        status, _, page = server.ask("/docs")
        self.assertEqual(status, 200)
        self.assertNotIn(self.server.good("/version")["version"], page)
        self.assertEqual(server.stop(), 0)


if __name__ == "__main__":
    unittest.main()
