#!/usr/bin/env python3
"""Times OpenVINO GenAI on a GGUF file with the options and the JSON of llama.cpp's llama-bench.

    benchmarks/openvino_bench.py -m 1b-q4_0.gguf -p 4096 -n 0 -t 2 -r 1 -o json

For compare_peers.py: `--llama-bench openvino=benchmarks/openvino_bench.py`. Needs PyPI's openvino-genai (its GGUF reader
opens files in F16, Q4_0, Q4_1, Q6_K, Q8_0 with a BPE tokenizer, as `coppice synth` writes them). Prompts are random
tokens. Prefill is the time to the first token, decoding the time from the first to the last.
"""

import argparse
import json
import random
import sys
import time

try:
    import numpy
    import openvino
    import openvino_genai
except ImportError as error:
    if "-h" not in sys.argv and "--help" not in sys.argv:
        sys.exit(f"openvino_bench.py: {error}: install openvino-genai")


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("-p", "--n-prompt", type=int, default=512)
    parser.add_argument("-n", "--n-gen", type=int, default=0)
    parser.add_argument("-d", "--n-depth", type=int, default=0)
    parser.add_argument("-t", "--threads", type=int, default=0)
    parser.add_argument("-r", "--repetitions", type=int, default=1)
    parser.add_argument("-o", "--output", choices=["json"], default="json")
    parser.add_argument("-fa", "--flash-attn", help="ignored: OpenVINO chooses")
    parser.add_argument("--no-warmup", action="store_true")
    parser.add_argument("--batch", type=int, default=0, help="tokens per step of prefill; 0: OpenVINO's default")
    return parser.parse_args()


class Engine:
    def __init__(self, options: argparse.Namespace):
        properties = {"INFERENCE_NUM_THREADS": options.threads} if options.threads else {}
        if options.batch:
            scheduler = openvino_genai.SchedulerConfig()
            scheduler.max_num_batched_tokens = options.batch
            properties["scheduler_config"] = scheduler
        self.pipeline = openvino_genai.LLMPipeline(options.model, "CPU", **properties)

    def run(self, prompt: int, generate: int) -> tuple[float, float]:
        """Seconds to the first token, and from it to the last."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens = config.min_new_tokens = generate
        config.ignore_eos = True
        config.do_sample = False
        ids = numpy.array([[random.randrange(3, 250) for _ in range(prompt)]], dtype=numpy.int64)
        begin = time.perf_counter()
        result = self.pipeline.generate(openvino.Tensor(ids), config)
        total = time.perf_counter() - begin
        first = result.perf_metrics.get_ttft().mean / 1000
        return first, total - first


def main() -> None:
    options = parse()
    engine = Engine(options)
    prompt, generate = options.n_prompt, options.n_gen
    if not options.no_warmup:
        engine.run(32, 2)
    rates = []
    for _ in range(options.repetitions):
        if generate:
            _, rest = engine.run(max(options.n_depth, 1), generate + 1)
            rates.append(generate / rest)
        else:
            first, _ = engine.run(prompt, 1)
            rates.append(prompt / first)
    print(json.dumps([{"build_commit": openvino_genai.__version__, "build_number": 0,
                       "avg_ts": sum(rates) / len(rates), "samples_ts": rates}]))


if __name__ == "__main__":
    main()
