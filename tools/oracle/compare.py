#!/usr/bin/env python3
"""Runs the engine and the oracle on the same prompts, and compares what they keep and what they answer.

    tools/oracle/compare.py MODEL.gguf --binary build/coppice --method lazyllm:min=0 --method ftp:min=0

The engine computes in fp32 (--exact). Three things are compared. In prefill: for every layer, the tokens
that the engine kept and those whose FFN it ran. In every decode step: for every layer, the tokens that were
attended and those that returned. After prefill and after every step: the log-probabilities of the likeliest
tokens. The oracle is fed the engine's tokens. `sdtp` without a file gets random predictors. The exit status
is 1 if there is a fault. Needs NumPy alone.
"""

import argparse
import dataclasses
import functools
import json
import pathlib
import sys
import tempfile
import time

import numpy as np

import vocabulary
from choices import Referee
from engine import Engine, Trace
from flashprefill import FlashPrefill
from ftp import Ftp
from gemfilter import GemFilter
from lazyllm import LazyLlm
from minference import MInference, write_random_head_patterns
from model import Model
from prompts import make_prompt
from sdtp import Sdtp, write_random_predictors
from sequence import Method, Sequence
from sliminfer import SlimInfer
from snapkv import FastKv, SnapKv
from spec import Settings
from specprefill import SpecPrefill
from spts import Spts, write_random_proxies
from uniprefill import UniPrefill

METHODS = {"none": lambda settings: Method(), "lazyllm": LazyLlm, "ftp": Ftp, "sdtp": Sdtp,
           "sliminfer": SlimInfer, "uniprefill": UniPrefill, "snapkv": SnapKv, "fastkv": FastKv,
           "specprefill": SpecPrefill, "gemfilter": GemFilter, "flashprefill": FlashPrefill,
           "minference": MInference, "spts": Spts}
DEFAULT_SPECS = ["none", "lazyllm:min=0", "ftp:min=0", "sdtp", "sliminfer:keep=0.5,min=0"]

# Of scores that decide, as choices.py measures them. On SmolLM2-135M the oracle's float32 scores differ from
# its float64 scores by at most 3.3e-5, and log-probabilities of the engine and the oracle by at most 1.7e-4.
SET_TOLERANCE = 1e-4
LOG_PROBABILITY_TOLERANCE = 5e-4
TIED_PATTERNS = 10  # times the tolerance, where blocks at the limit were read by one program only
DENSITY_TOLERANCE = 1e-6  # of a pattern; one block of 16 of one of 9 heads is 6e-5 of 1,000 tokens' pairs


@dataclasses.dataclass
class Result:
    spec: str
    tokens: int
    choices: int = 0  # decisions compared, of prefill and all steps
    ties: list = dataclasses.field(default_factory=list)
    faults: list = dataclasses.field(default_factory=list)
    first_error: float = 0.0  # largest difference of log-probabilities after prefill
    later_error: float = 0.0  # and after all steps
    steps: int = 0
    revived: int = 0  # token-layers
    kept: float = 1.0  # share of token-layers with keys after prefill
    ffn: float = 1.0  # share of dense FFN rows that ran in prefill
    density: float = 1.0  # mean share of causal attention's pairs that prefill computed
    seconds: float = 0.0

    def line(self):
        state = f"{len(self.ties)} ties, {len(self.faults)} faults" if self.ties or self.faults else "equal"
        return (f"{self.tokens:5} tokens, {self.choices:3} choices: {state}; kept {self.kept:.1%}, "
                f"FFN {self.ffn:.1%}, density {self.density:.1%}; log-probabilities differ by "
                f"{self.first_error:.1e} and, over {self.steps} steps, {self.later_error:.1e}; "
                f"{self.revived} token-layers revived; {self.seconds:.0f} s; {self.spec}")


def engine_sets(trace):
    """The engine's answer to a choice of the oracle, as choices.Referee asks for it."""
    settings = Settings(trace.spec)

    def sets(step, layer, what):
        if what == "ffn":  # FTP chooses in the middle of the prompt
            rows = trace.ffn[layer]
            in_middle = (rows >= settings.integer("first")) & (rows < trace.prompt - settings.integer("last"))
            return rows[in_middle]
        if what in ("stream", "rows of the FFN"):
            return trace.ffn[layer]
        if what == "used from here on":  # the trace does not tell rows that wait for a later layer
            return functools.reduce(np.union1d, trace.kept[layer:] + trace.ffn[layer:])
        if what == "input":
            return trace.kept[0] if trace.entered is None else trace.entered
        if what == "chunks":  # the last token enters with its chunk or without it
            return np.unique(trace.kept[0][trace.kept[0] < trace.prompt - 1] // settings.integer("chunk"))
        tokens = trace.kept[layer] if step < 0 else trace.attended[step][layer]
        tokens = tokens[tokens < trace.prompt]
        return np.unique(tokens // settings.integer("block")) if what == "blocks" else tokens

    return sets


class Comparison:
    """One model and one engine, loaded once for many prompts and methods."""

    def __init__(self, model_path, binary, dtype=np.float32, tolerance=SET_TOLERANCE):
        self.model, self.engine = Model(model_path, dtype), Engine(binary, model_path)
        self.ids_of = vocabulary.labels(self.model.file)
        self.tolerance = tolerance
        self.folder = tempfile.TemporaryDirectory()

    def prompt(self, tokens, seed):
        return make_prompt(self.engine.token_ids, tokens, seed)

    def random_predictors(self, seed, stages=6):
        """Predictors before `stages` layers, from an eighth of the depth to the last layer."""
        first = max(1, round(self.model.layers / 8))
        evenly = np.linspace(first, self.model.layers - 1, stages)
        layers = sorted({round(float(layer)) for layer in evenly})
        path = pathlib.Path(self.folder.name) / f"predictors-{seed}.safetensors"
        write_random_predictors(path, self.model.d, layers, seed)
        return path

    def random_proxies(self, seed, **kwargs):
        path = pathlib.Path(self.folder.name) / f"proxies-{seed}.safetensors"
        write_random_proxies(path, self.model, seed, **kwargs)
        return path

    def random_head_patterns(self, seed):
        path = pathlib.Path(self.folder.name) / f"heads-{seed}.json"
        write_random_head_patterns(path, self.model.layers, self.model.heads, seed)
        return path

    def compare(self, spec, text, generate, altered=()):
        """`altered`: settings that the oracle gets in place of the engine's. Other ones must give faults."""
        start = time.monotonic()
        ids = self.engine.token_ids(text)
        trace = self.engine.run(text, spec, generate)
        names, told = self.engine.log_probabilities(ids, spec, generate)
        result = Result(trace.spec, len(ids))
        if len(ids) != trace.prompt or names != trace.generated:
            result.faults.append(f"served: {len(ids)} ids, {names}; "
                                 f"traced: {trace.prompt}, {trace.generated}")
            return result
        settings = Settings(trace.spec)
        settings.values.update(altered)
        referee = Referee(engine_sets(trace), self.tolerance)
        seq = Sequence(self.model, ids, METHODS[settings.name](settings), referee, len(ids) + generate)
        answers = [seq.log_probabilities]
        for name in names[:-1]:
            answers.append(seq.decode(self.token(name, answers[-1])))
        errors = [self.error(*pair) for pair in zip(answers, told)]
        result.first_error, result.later_error = errors[0], max(errors[1:], default=0.0)
        judge(result, seq, trace, referee)
        result.seconds = time.monotonic() - start
        return result

    def token(self, name, log_probabilities):
        """The id behind a label; of several, the one that the oracle finds likeliest."""
        return max(self.ids_of[name], key=lambda token: log_probabilities[token])

    def error(self, log_probabilities, told):
        """The largest difference from what the server told of the likeliest tokens."""
        return max(min(abs(float(log_probabilities[token]) - value) for token in self.ids_of[name])
                   for name, value in told.items())


def judge(result, seq, trace: Trace, referee):
    """Fills in the result. Behind the referee all sets must be equal, not only those that were chosen."""
    layers = range(seq.model.layers)
    result.choices, result.steps = referee.choices, seq.step + 1
    result.ties = [difference for difference in referee.differences if difference.tie]
    result.faults = [difference for difference in referee.differences if not difference.tie]
    compared = [("kept", seq.kept, trace.kept), ("ffn", seq.ffn, trace.ffn)]
    for step in range(result.steps):
        compared.append((f"attended in step {step}", seq.attended[step], trace.attended[step]))
        compared.append((f"revived in step {step}", seq.revived[step], trace.revived[step]))
    for what, ours, theirs in compared:
        differ = [layer for layer in layers if not np.array_equal(ours[layer], theirs[layer])]
        if differ:
            result.faults.append(f"{what}: other tokens in the layers {differ}")
    apart = [abs(seq.density[layer] - trace.density[layer]) for layer in layers]
    differ = [layer for layer in layers if apart[layer] > DENSITY_TOLERANCE + seq.nearly[layer]]
    tied = max(apart) > DENSITY_TOLERANCE and not differ  # a pattern that only rounding made another one
    if differ:
        result.faults.append(f"density: other patterns in the layers {differ}")
    result.density = float(np.mean(seq.density))
    for what, error in (("prefill", result.first_error), ("decode", result.later_error)):
        if not error <= LOG_PROBABILITY_TOLERANCE * (TIED_PATTERNS if tied else 1):
            result.faults.append(f"log-probabilities after {what} differ by {error:.2g}")
    result.revived = sum(len(rows) for step in seq.revived for rows in step)
    result.kept = sum(len(kept) for kept in seq.kept) / (result.tokens * len(layers))
    result.ffn = sum(len(rows) for rows in seq.ffn) / (result.tokens * (len(layers) - 1) + 1)


def read_options():
    formatter = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=formatter)
    add = parser.add_argument
    add("model")
    add("--binary", default="build/coppice")
    add("--method", action="append", help="a value of --prune; may be repeated. Default: none, and four methods")
    add("--tokens", type=int, action="append", help="length of a prompt; may be repeated. Default: 1024")
    add("--seed", type=int, default=1, help="of prompts and of random predictors")
    add("--generate", type=int, default=12, help="tokens to generate")
    add("--tolerance", type=float, default=SET_TOLERANCE, help="of scores; larger differences are faults")
    add("--float64", action="store_true", help="the oracle computes in float64")
    add("--json", action="store_true", help="one JSON object for each run")
    return parser.parse_args()


def main():
    o = read_options()
    comparison = Comparison(o.model, o.binary, np.float64 if o.float64 else np.float32, o.tolerance)
    failed = False
    for tokens in o.tokens or [1024]:
        text = comparison.prompt(tokens, o.seed)
        for spec in o.method or DEFAULT_SPECS:
            if spec.startswith("sdtp") and "file=" not in spec:
                others = spec.partition(":")[2] or "min=0"
                spec = f'sdtp:file="{comparison.random_predictors(o.seed)}",{others}'
            result = comparison.compare(spec, text, o.generate)
            failed |= bool(result.faults)
            print(json.dumps(dataclasses.asdict(result)) if o.json else result.line(), flush=True)
            for difference in [] if o.json else result.ties + result.faults:
                print(f"    {difference}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
