"""The engine under test, from outside: token ids, a traced run, and log-probabilities from its server."""

import contextlib
import http.client
import json
import pathlib
import re
import subprocess
import tempfile

import numpy as np

import vocabulary

EXACT = ["--exact", "-t", "2"]
TOP = 20  # log-probabilities of a token that the server tells


class Engine:
    def __init__(self, binary, model):
        self.binary, self.model = str(binary), str(model)

    def command(self, *arguments):
        done = subprocess.run([self.binary, *arguments], capture_output=True, stdin=subprocess.DEVNULL)
        if done.returncode:
            raise RuntimeError(f"{' '.join([self.binary, *arguments])}: {done.stderr.decode().strip()}")
        return done.stdout.decode()

    def token_ids(self, text):
        with text_file(text) as path:
            return json.loads(self.command("tokenize", "-m", self.model, "-f", path, "--ids"))

    def run(self, text, spec, generate):
        """The trace of a greedy run."""
        with text_file(text) as path, tempfile.NamedTemporaryFile(suffix=".jsonl") as trace:
            told = json.loads(self.command(
                "run", "-m", self.model, "-f", path, "--prune", spec, "-n", str(generate), "--temp", "0",
                "--ignore-eos", "--json", "--trace", trace.name, *EXACT))
            if spec != "none" and not told["prune"]["active"]:
                raise RuntimeError(f"{spec} did not act: {told['prune']['reason']}")
            return Trace(pathlib.Path(trace.name).read_text().splitlines())

    def log_probabilities(self, ids, spec, generate):
        """Of a greedy run on the server: the label of each token, and {label: value} of the likeliest."""
        body = {"prompt": ids, "max_tokens": generate, "temperature": 0, "ignore_eos": True, "logprobs": TOP,
                "cache_prompt": False}
        with server(self.binary, self.model, spec) as address:
            with contextlib.closing(http.client.HTTPConnection(*address, timeout=600)) as connection:
                headers = {"Content-Type": "application/json"}
                connection.request("POST", "/v1/completions", json.dumps(body), headers)
                answer = json.loads(connection.getresponse().read())
        if "choices" not in answer:
            raise RuntimeError(f"the server refused {spec}: {answer}")
        told = answer["choices"][0]["logprobs"]
        return told["tokens"], told["top_logprobs"]


@contextlib.contextmanager
def text_file(text):
    with tempfile.NamedTemporaryFile("w", suffix=".txt", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        yield file.name


@contextlib.contextmanager
def server(binary, model, spec):
    process = subprocess.Popen(
        [binary, "serve", "-m", model, "--port", "0", "--prune", spec, *EXACT], text=True,
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        line = process.stdout.readline()
        match = re.fullmatch(r"listening on http://(.+):(\d+)\n", line)
        if not match or not process.stdout.readline().startswith("ready"):
            raise RuntimeError(f"the server did not start with {spec}: {line!r}")
        yield match.group(1), int(match.group(2))
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()


def positions_of(text):
    """The positions of a list of runs such as "0-99,120"."""
    ends = [[int(end) for end in run.split("-")] for run in text.split(",") if run]
    return np.array([p for run in ends for p in range(run[0], run[-1] + 1)], int)


class Trace:
    """docs/trace.md has the format. `kept` and `ffn` tell prefill, `attended` and `revived` each step."""

    def __init__(self, lines):
        header, *lines = [json.loads(line) for line in lines]
        layers, steps = lines[:header["layers"]], lines[header["layers"]:]
        self.spec, self.prompt = header["prune"], header["prompt_tokens"]
        self.generated = [label_of(token) for token in header["tokens"][self.prompt:]]
        # The prompt's tokens at positions 0, 1, ..., if an input selection moved them.
        self.entered = positions_of(header["entered"]) if "entered" in header else None
        self.kept, self.ffn, self.attended, self.revived = [], [], [], []
        self.density = [layer["density"] for layer in layers]
        self.in_some_heads = []  # positions of `kept` that a kv head lacks, by layer
        for layer in layers:
            self.kept.append(positions_of(layer["kept"]) if "kept" in layer else self.kept[-1])
            self.ffn.append(positions_of(layer["ffn"]) if "ffn" in layer else self.kept[-1])
            held = len(self.kept[-1])
            self.in_some_heads.append(held - layer.get("rows_per_head", held))
        in_memory = [set(kept.tolist()) for kept in self.kept]
        for step in steps:
            self.play(step, in_memory)

    def play(self, step, in_memory):
        """Turns a step's events into sets.

        `in_memory` has the positions with keys in each layer, without those that were offloaded. SlimInfer
        offloads whatever it does not attend. LazyLLM offloads nothing, and attends a part of the layer below.
        """
        events = {(event["layer"], event["kind"]): set(positions_of(event["positions"]).tolist())
                  for event in step["events"]}
        self.attended.append([])
        self.revived.append([])
        for layer, held in enumerate(in_memory):
            of = lambda kind: events.get((layer, kind), set())
            held |= of("revived") | {step["position"]}
            held -= of("offloaded")
            held |= of("loaded")
            attended = held - of("dropped")
            if self.spec.startswith("lazyllm") and layer > 0:
                attended &= set(self.attended[-1][-1].tolist())
            count = len(attended) - self.in_some_heads[layer]  # of one head
            if count != step["attended"][layer]:
                raise RuntimeError(f"step {step['step']}, layer {layer}: the events give {count} "
                                   f"keys, the trace tells {step['attended'][layer]}")
            self.attended[-1].append(np.array(sorted(attended), int))
            self.revived[-1].append(np.array(sorted(of("revived")), int))


def label_of(token):
    return token if isinstance(token, str) else vocabulary.label(bytes.fromhex(token["bytes"]))
