#!/usr/bin/env python3
"""The loss of known answers over the speed-up, for five settings: examples/methods.py MODEL.gguf [PICTURE.png]

Each prompt is noise with one fact in it. A form of the answer makes the model write the right code; the loss is the
mean of -log p of its tokens. The picture needs matplotlib.
"""
import random
import statistics
import sys

from coppice_llm import LLM

METHODS = ["none", "coppice:min=0", "lazyllm:min=0", "fastkv:min=0", "random:min=0"]
NOISE = ["The river was quiet.", "Nobody asked about the weather.", "The train stopped at every station."]


def page(chance, sentences=120):
    code, lines = str(chance.randrange(1000, 9999)), chance.choices(NOISE, k=sentences)
    lines.insert(chance.randrange(sentences), f"The code of the archive is {code}.")
    return " ".join(lines) + "\n\nThe code of the archive is ", code


def measure(llm, method, pages):
    answers = [llm.generate(text, max_tokens=8, guided_choice=[code], logprobs=1, prune=method, cache_prompt=False)
               for text, code in pages]
    losses = [-sum(answer.logprobs) / len(answer.logprobs) for answer in answers]
    return statistics.mean(losses), statistics.median(answer.ttft for answer in answers)


def main(model, picture="methods.png"):
    chance = random.Random(1)
    pages = [page(chance) for _ in range(4)]
    with LLM(model) as llm:
        measure(llm, "none", pages[:1])  # the weights come into memory
        found = {method: measure(llm, method, pages) for method in METHODS}
    points = [(found["none"][1] / seconds, loss) for loss, seconds in found.values()]
    for method, (speedup, loss) in zip(METHODS, points):
        print(f"{method:16} speed-up {speedup:5.2f}  loss {loss:6.3f}")
    try:
        import matplotlib.pyplot as plt
    except ImportError:
        return print("no picture: matplotlib is not installed")
    for method, point in zip(METHODS, points):
        plt.scatter(*point, label=method)
    plt.legend()
    plt.xlabel("speed-up to the first token")
    plt.ylabel("loss of the right answer")
    plt.savefig(picture)


if __name__ == "__main__":
    main(*sys.argv[1:])
