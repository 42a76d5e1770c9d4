#!/usr/bin/env python3
"""Writes the texts that SDTP predictors of coppice-12 learn from: training prose with hidden facts, a question, its answer.

    sdtp_texts.py --work WORK -o texts.jsonl     {"prompt", "answer"} on each line, as `coppice train sdtp` reads them

Words and prose are those of training; what measure.py asks about is in none of them.
"""

import argparse
import json
import pathlib
import random
import sys

import corpus
import facts

CHARS_PER_TOKEN = 3.0  # of the bundled tokenizer


def record(paragraphs: list[str], words: facts.Words, tokens: int, rng: random.Random) -> dict[str, str]:
    hidden = facts.make_facts(rng.randrange(4, 10), words, rng)
    text = facts.prose(paragraphs, int(tokens * CHARS_PER_TOKEN), rng)
    text = facts.hide(text, hidden, [rng.random() for _ in hidden])
    asked = rng.choice(hidden)
    return {"prompt": text + asked.asked(), "answer": f" {asked.answer}.\n"}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=pathlib.Path, required=True, help="train.py's folder")
    parser.add_argument("--count", type=int, default=160)
    parser.add_argument("--tokens", type=int, nargs=2, default=[300, 1500], help="shortest and longest, about")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    corpus.fetch(args.work / "packages")
    paragraphs = corpus.books(args.work / "packages")["train"]
    words, rng = facts.Words(paragraphs), random.Random(args.seed)
    lines = [json.dumps(record(paragraphs, words, rng.randrange(*args.tokens), rng)) for _ in range(args.count)]
    args.output.write_text("\n".join(lines) + "\n", encoding="ascii")
    return 0


if __name__ == "__main__":
    sys.exit(main())
