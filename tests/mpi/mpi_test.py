"""One prompt over several processes: the bits of one, and a clean end whatever happens.

    mpi_test.py COPPICE SPLIT_BITS SOURCE_DIR [unittest arguments]
"""

import concurrent.futures
import http.client
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import urllib.request

import mpi_support
from mpi_support import Job, mpirun, wait_for

PROGRAM, SPLIT_BITS = sys.argv.pop(1), sys.argv.pop(1)
SOURCE = pathlib.Path(sys.argv.pop(1))
MODELS = SOURCE / "models"
MODEL = MODELS / "coppice-12-q8_0.gguf"
PROMPT = SOURCE / "tests/data/prompt-2k.txt"
TOKENS = 700
SPECS = ["none", "lazyllm:min=0", "ftp:min=0", "sliminfer:layers=4/7/11,keep=0.25/0.125/0.0625,min=0",
         "coppice:min=0", f"sdtp:file={MODELS}/coppice-12-sdtp.safetensors,min=0", "random:layers=4/7/11,min=0",
         "static:min=0", "uniprefill:min=0", "fastkv:min=0", "streamingllm:sink=4,recent=200,min=0",
         "snapkv:cap=100,min=0", "quest:budget=128,min=0", f"specprefill:draft={MODEL},min=0",
         "gemfilter:keep=200,min=0", f"selective:model={MODEL},min=0", "drop:layer=4,min=0", "pyramidinfer:min=0",
         "minference:vertical=30,slash=100,min=0", "flexprefill:gamma=0.3,min_budget=16,block=16,min=0",
         "xattention:threshold=0.3,stride=4,block=16,min=0", "flashprefill:alpha=1,block=16,sink=1,window=1,min=0",
         "sliminfer:layers=4/7/11,keep=0.5/0.3/0.2,min=0+minference:pattern=block_sparse,blocks=4,min=0+ftp:dense=4,min=0",
         "sliminfer:layers=4/7/11,keep=0.5/0.3/0.2,min=0+ftp:dense=4,min=0", f"sdtp:file={MODELS}/coppice-12-sdtp.safetensors,min=0+snapkv:cap=100,min=0"]
REFUSED = ["h2o:min=0", "ftp:fill=mean,min=0"]


def bits(processes, *specs, options=()):
    done = mpirun(processes, SPLIT_BITS, MODEL, PROMPT, TOKENS, *specs, options=options)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return done.stdout.splitlines(), done.stderr


class Bits(unittest.TestCase):
    def test_are_those_of_one_process(self):
        alone, _ = bits(1, *SPECS)
        self.assertEqual(len(alone), len(SPECS))
        for line, spec in zip(alone, SPECS):
            self.assertIn(f"{spec}: logits ", line)
        for processes in (2, 3, 4):
            together, work = bits(processes, *SPECS)
            self.assertEqual(together, alone)
            for spec in SPECS:
                rows = [line for line in work.splitlines() if line.startswith(f"{spec}: rows ")]
                self.assertEqual(len(rows), processes, work)

    def test_methods_that_sum_over_all_rows_say_so(self):
        lines, _ = bits(2, *REFUSED)
        for spec, line in zip(REFUSED, lines, strict=True):
            self.assertIn("does not go with 2 processes: ", line, spec)

    def test_over_two_machines(self):
        with Namespaces() as options:
            alone, _ = bits(1, *SPECS[:5])
            together, _ = bits(2, *SPECS[:5], options=options)
            self.assertEqual(together, alone)


class Namespaces:
    """Two network namespaces joined by a veth pair, as two machines: mpirun runs in this one's stead in the first, starts
    its daemon in the second through a script in place of ssh, and the two talk over TCP alone."""

    NAMES = ("coppice-a", "coppice-b")
    ADDRESSES = ("10.213.77.1", "10.213.77.2")

    def __enter__(self):
        self.folder = tempfile.TemporaryDirectory()
        try:
            self._make()
        except (FileNotFoundError, subprocess.CalledProcessError) as error:
            self.__exit__()
            raise unittest.SkipTest(f"no network namespaces here: {error}") from error
        return self._options()

    def _ip(self, *words):
        subprocess.run(["ip", *words], check=True, capture_output=True)

    def _make(self):
        for name in self.NAMES:
            self._ip("netns", "add", f"{name}-{os.getpid()}")
        a, b = (f"{name}-{os.getpid()}" for name in self.NAMES)
        self._ip("link", "add", "ends0", "netns", a, "type", "veth", "peer", "name", "ends0", "netns", b)
        for name, address in zip((a, b), self.ADDRESSES):
            self._ip("-n", name, "addr", "add", f"{address}/24", "dev", "ends0")
            self._ip("-n", name, "link", "set", "ends0", "up")
            self._ip("-n", name, "link", "set", "lo", "up")

    def _options(self):
        a, b = (f"{name}-{os.getpid()}" for name in self.NAMES)
        agent = pathlib.Path(self.folder.name) / "agent"
        agent.write_text(f'#!/bin/sh\nshift\nexec ip netns exec {b} unshare --uts sh -c "hostname coppice-b; $*"\n')
        agent.chmod(0o755)
        mpi_support.PREFIX = ["ip", "netns", "exec", a]
        return ["--host", ",".join(self.ADDRESSES), "--mca", "plm_rsh_agent", str(agent), "--mca", "btl", "tcp,self",
                "--mca", "btl_tcp_if_include", "ends0", "--mca", "oob_tcp_if_include", "ends0", "--map-by", "node"]

    def __exit__(self, *_):
        mpi_support.PREFIX = []
        for name in self.NAMES:
            subprocess.run(["ip", "netns", "del", f"{name}-{os.getpid()}"], capture_output=True)
        self.folder.cleanup()


def run_json(processes, *words):
    command = [PROGRAM, "run", "-m", MODEL, "-f", PROMPT, "-n", "8", "--temp", "0", "--json", "-t", "1", *words]
    done = mpirun(processes, *command)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


def facts(value, key=""):
    """What a record of eval says of answers and work, without times."""
    if isinstance(value, dict):
        return [fact for name, item in value.items() for fact in facts(item, name)]
    if key in ("text", "kl", "score", "flops", "kept_per_layer", "generated_tokens", "peak_held_bytes"):
        return [(key, value)]
    return [fact for item in value for fact in facts(item)] if isinstance(value, list) else []


class Commands(unittest.TestCase):
    def test_run_prints_once_and_the_trace_tells_who_computed_what(self):
        with tempfile.TemporaryDirectory() as folder:
            trace = pathlib.Path(folder) / "trace.jsonl"
            together = run_json(2, "--prune", "lazyllm:min=0", "--trace", trace)
            lines = [json.loads(line) for line in trace.read_text().splitlines()]
            page = subprocess.run([PROGRAM, "trace", trace, "-o", f"{folder}/page.html"], capture_output=True)
            self.assertEqual(page.returncode, 0, page.stderr)
        alone = run_json(1, "--prune", "lazyllm:min=0")
        for key in ("text", "prompt_tokens", "generated_tokens"):
            self.assertEqual(together[key], alone[key])
        processes = together["processes"]
        self.assertEqual(len(processes), 2)
        self.assertNotIn("processes", alone)
        computed = lines[1]["computed"]
        self.assertEqual(len(computed), 2)
        counts = [sum(int(r.split("-")[-1]) - int(r.split("-")[0]) + 1 for r in part.split(",")) for part in computed]
        self.assertEqual(sum(counts), together["prompt_tokens"])
        self.assertGreater(min(counts), 0.45 * sum(counts))
        self.assertGreater(processes[1]["bytes_sent"], 0)

    def test_bench_shows_every_process(self):
        done = mpirun(2, PROGRAM, "bench", "-m", MODEL, "-p", "600", "-r", "1", "-t", "1", "-o", "json", "--prune",
                      "sliminfer:min=0")
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = json.loads(done.stdout)
        self.assertEqual(len(rows), 2)
        for row in rows:
            self.assertEqual(len(row["processes"]), 2)
        dense = rows[0]["processes"]
        self.assertAlmostEqual(dense[0]["kv_rows"] / dense[1]["kv_rows"], 1, delta=0.1)
        table = mpirun(2, PROGRAM, "bench", "-m", MODEL, "-p", "600", "-r", "1", "-t", "1").stdout
        self.assertIn("process 1", table)

    def test_eval_gets_the_same_answers(self):
        found = []
        for processes in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                done = mpirun(processes, PROGRAM, "eval", "niah", "-m", MODEL, "--lengths", "512", "--samples", "1", "-t", "1",
                              "--prune", "lazyllm:min=0", "-o", f"{folder}/out")
                self.assertEqual(done.returncode, 0, done.stderr)
                found.append([facts(json.loads(line)) for line in open(f"{folder}/out/samples.jsonl")])
        self.assertEqual(found[0], found[1])
        self.assertGreater(sum(map(len, found[0])), 5)

    def test_processes_whose_bits_would_differ_do_not_start(self):
        words = [PROGRAM, "run", "-m", str(MODEL), "-p", "a b c", "-n", "1"]
        done = mpirun(1, *words, ":", "-n", "1", "env", "COPPICE_ISA=scalar", *words, timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("process 1 of 2 has other weights, another build or another CPU", done.stderr)

    def test_errors_are_one_line_and_end_all(self):
        for words, says in ((["run", "-m", MODEL, "-p", "a b c", "--prune", "h2o:min=0"], "does not go with 2 processes"),
                            (["run", "-m", "/absent.gguf", "-p", "a"], "absent.gguf"),
                            (["run", "-m", MODEL, "-p", "a", "--doc-cache", "/tmp"], "several processes"),
                            (["serve", "-m", MODEL, "--port", "0", "--kv-events", "tcp://127.0.0.1:0"],
                             "--kv-events tcp://127.0.0.1:0: does not go with 2 processes"),
                            (["nonsense"], "nonsense")):
            started = time.monotonic()
            done = mpirun(2, PROGRAM, *words, timeout=60)
            self.assertNotEqual(done.returncode, 0)
            self.assertLess(time.monotonic() - started, 30)
            self.assertEqual(done.stdout, "")
            lines = [line for line in done.stderr.splitlines() if line.startswith("coppice: ")]
            self.assertEqual(len(lines), 1, done.stderr)
            self.assertIn(says, lines[0])


class Killed(unittest.TestCase):
    """kill -9 of any process, while all prefill and while process 0 decodes. A trace of an earlier run stays whole."""

    EARLIER = "what an earlier run wrote\n"

    def ends(self, job, number, victim, says):
        started = time.monotonic()
        os.kill(victim, number)
        status, _, err = job.end(30)
        self.assertLess(time.monotonic() - started, 30)
        self.assertNotEqual(status, 0)
        self.assertRegex(err, says)

    def start(self, folder, words):
        trace = pathlib.Path(folder) / "trace.jsonl"
        trace.write_text(self.EARLIER)
        return Job(2, PROGRAM, "run", "-m", MODEL, "-f", PROMPT, "-t", "1", "--trace", trace, "--temp", "0", *words)

    def check_files(self, folder):
        self.assertEqual(os.listdir(folder), ["trace.jsonl"])
        self.assertEqual((pathlib.Path(folder) / "trace.jsonl").read_text(), self.EARLIER)

    def check(self, words, reached, victims):
        for rank in victims:
            with self.subTest(rank=rank), tempfile.TemporaryDirectory() as folder:
                job = self.start(folder, words)
                wait_for(lambda: reached(job), 60, "the moment to kill")
                self.ends(job, signal.SIGKILL, job.pids[rank], rf"rank {rank} .*exited on signal 9")
                self.check_files(folder)

    def test_in_prefill(self):
        # The reference backend needs many seconds for this prompt.
        self.check(["--backend", "reference", "-n", "1"], lambda job: job.cpu_seconds(1) > 0.5, (0, 1))

    def test_in_decode(self):
        # Process 1 computes no more when process 0 decodes.
        def decodes(job):
            before = [job.cpu_seconds(rank) for rank in (0, 1)]
            time.sleep(0.5)
            after = [job.cpu_seconds(rank) for rank in (0, 1)]
            return after[0] - before[0] > 0.02 and after[1] - before[1] < 0.2 * (after[0] - before[0]) and after[0] > 0.3

        self.check(["-n", "30000", "--ignore-eos"], decodes, (0, 1))

    def test_a_model_file_that_is_cut_short(self):
        """Every process says so, in a line of its own; MPI's report of a crash would be screens long."""
        with tempfile.TemporaryDirectory() as folder:
            model = pathlib.Path(folder) / "model.gguf"
            shutil.copy(MODEL, model)
            job = Job(2, PROGRAM, "run", "-m", model, "-f", PROMPT, "-t", "1", "--backend", "reference", "-n", "1")
            wait_for(lambda: job.cpu_seconds(1) > 0.5, 60, "the prefill")
            os.truncate(model, 4096)
            status, _, err = job.end(30)
            self.assertNotEqual(status, 0)
            self.assertIn("coppice: a mapped file was cut short", err)
            self.assertNotIn("Bus error", err)

    def test_mpirun_itself(self):
        with tempfile.TemporaryDirectory() as folder:
            job = self.start(folder, ["--backend", "reference", "-n", "1"])
            wait_for(lambda: job.cpu_seconds(1) > 0.3, 60, "the prefill")
            os.kill(job.mpirun.pid, signal.SIGKILL)
            job.mpirun.communicate(timeout=30)
            wait_for(lambda: not any(mpi_support.alive(pid) for pid in job.pids.values()), 30, "the end of all")
            self.check_files(folder)


class Serving(unittest.TestCase):
    def post(self, port, body, timeout=120):
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=timeout)
        connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
        reply = connection.getresponse()
        answer = json.loads(reply.read())
        connection.close()
        return reply.status, answer

    def test_a_server_answers_cancels_and_ends(self):
        job = Job(2, PROGRAM, "serve", "-m", MODEL, "--port", "0", "-t", "1")
        try:
            port = int(job.mpirun.stdout.readline().rsplit(":", 1)[1])
            self.assertIn("ready", job.mpirun.stdout.readline())
            text = PROMPT.read_text()
            body = {"prompt": text, "max_tokens": 8, "temperature": 0}
            alone = run_json(1)
            for prune in ("none", "sliminfer:min=0"):
                status, answer = self.post(port, {**body, "prune": prune})
                self.assertEqual(status, 200, answer)
                if prune == "none":
                    self.assertEqual(answer["choices"][0]["text"], alone["text"])
            status, answer = self.post(port, {**body, "prune": "h2o:min=0"})
            self.assertEqual(status, 400, answer)
            # A client that goes away cancels its prefill in every process, and the next request is answered.
            gone = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
            gone.request("POST", "/v1/completions", json.dumps({**body, "prompt": text * 8}),
                         {"Content-Type": "application/json"})
            time.sleep(0.3)
            gone.close()
            status, answer = self.post(port, body)
            self.assertEqual((status, answer["choices"][0]["text"]), (200, alone["text"]))
            metrics = urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60).read().decode()
            self.assertIn('coppice_http_requests_total{status="499"} 1\n', metrics)
            os.kill(job.pids[0], signal.SIGTERM)
            status, _, err = job.end(30)
            self.assertEqual(status, 0, err)
        finally:
            if job.mpirun.poll() is None:
                job.mpirun.kill()

    def test_a_default_method_that_needs_one_process_is_an_error_at_the_start(self):
        done = mpirun(2, PROGRAM, "serve", "-m", MODEL, "--port", "0", "--prune", "h2o", timeout=60)
        self.assertNotEqual(done.returncode, 0)
        self.assertNotIn("ready", done.stdout)
        self.assertRegex(done.stderr, "h2o.*: does not go with 2 processes: layer 0 sums the scores of all queries")

    def test_signals_are_for_process_0(self):
        """mpirun passes SIGTERM on to every process. An answer that has begun must not lose its processes."""
        job = Job(2, PROGRAM, "serve", "-m", MODEL, "--port", "0", "-t", "1", "--drain", "60")
        try:
            port = int(job.mpirun.stdout.readline().rsplit(":", 1)[1])
            self.assertIn("ready", job.mpirun.stdout.readline())
            before = job.cpu_seconds(1)
            with concurrent.futures.ThreadPoolExecutor(1) as pool:
                reply = pool.submit(self.post, port, {"prompt": PROMPT.read_text() * 4, "max_tokens": 2, "temperature": 0})
                wait_for(lambda: job.cpu_seconds(1) > before + 0.1, 60, "the prefill")
                os.kill(job.pids[1], signal.SIGTERM)
                os.kill(job.pids[1], signal.SIGINT)
                os.kill(job.pids[0], signal.SIGTERM)
                status, answer = reply.result()
            self.assertEqual((status, answer["usage"]["completion_tokens"]), (200, 2), answer)
            status, _, err = job.end(60)
            self.assertEqual(status, 0, err)
        finally:
            if job.mpirun.poll() is None:
                job.mpirun.kill()

    def test_a_killed_process_ends_the_server(self):
        job = Job(2, PROGRAM, "serve", "-m", MODEL, "--port", "0", "-t", "1")
        job.mpirun.stdout.readline()
        job.mpirun.stdout.readline()
        os.kill(job.pids[1], signal.SIGKILL)
        status, _, err = job.end(30)
        self.assertNotEqual(status, 0)
        self.assertIn("rank 1", err)


if __name__ == "__main__":
    if mpi_support.MPIRUN is None or not pathlib.Path(PROGRAM).with_name("coppice-mpi").exists():
        print("skipped: there is no mpirun, or this build has no coppice-mpi")
        sys.exit(77)
    unittest.main()
