#!/usr/bin/env python3
"""Writes training texts for `coppice train sdtp`: questions about a fact in a text, and questions of people.

    tools/needle_texts.py --haystack war_and_peace.txt --pairs dolly.jsonl -o texts.jsonl

Half of the facts hide in repeated noise and half in sentences of the haystack. Every fifth text has four more facts
of the same form. The pairs are JSON lines with `prompt` and `answer`. The predictors of docs/quality.md were trained
on the first 64 of these texts.
"""

import argparse
import json
import pathlib
import random
import re

ADJECTIVES = ("amber brisk calm dusty eager faint gentle hollow icy jolly keen lively mellow narrow odd pale quick "
              "rough silent tidy urban vivid warm young zesty bitter clever distant early frozen").split()
NOUNS = ("anchor basket candle desert engine forest garden hammer island jacket kettle ladder market needle orchard "
         "pencil quarry river saddle tunnel umbrella valley window yard bridge castle dragon harbor lantern mirror").split()
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
ASK = ("A special magic number is hidden within the following text. Make sure to memorize it. I will quiz you about "
       "the number afterwards.\n{text}\nWhat is the special magic number for {key} mentioned in the provided text?")
ANSWER = " The special magic number for {key} mentioned in the provided text is {value}."


def name(rng: random.Random) -> str:
    return rng.choice(ADJECTIVES) + "-" + rng.choice(NOUNS)


def fact(key: str, value: int) -> str:
    return f"One of the special magic numbers for {key} is: {value}."


def haystack(rng: random.Random, sentences: list[str], characters: int) -> list[str]:
    start, lines = rng.randrange(len(sentences) - 60), []
    while sum(map(len, lines)) < characters:
        lines.append(sentences[start + len(lines)])
    return lines


def needle_text(rng: random.Random, sentences: list[str], index: int) -> dict:
    key, value = name(rng), rng.randint(1000000, 9999999)
    noise = index % 2 == 0
    lines = [NOISE] * rng.randint(11, 15) if noise else haystack(rng, sentences, 1250)
    if index % 5 == 4:
        for _ in range(4):
            place = rng.randint(0, len(lines))
            lines.insert(place, fact(name(rng), rng.randint(1000000, 9999999)))
    lines.insert(rng.randint(0, len(lines)), fact(key, value))
    return {"prompt": ASK.format(text=("\n" if noise else " ").join(lines), key=key),
            "answer": ANSWER.format(key=key, value=value)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--haystack", type=pathlib.Path, required=True, help="a long text")
    parser.add_argument("--pairs", type=pathlib.Path, required=True, help="lines of JSON with prompt and answer")
    parser.add_argument("--facts", type=int, default=80, help="number of texts with facts")
    parser.add_argument("--others", type=int, default=30, help="number of pairs, of those with long prompts")
    parser.add_argument("--seed", type=int, default=4)
    parser.add_argument("-o", type=pathlib.Path, required=True, help="the file")
    args = parser.parse_args()
    rng = random.Random(args.seed)
    sentences = [s.strip().replace("\n", " ") for s in
                 re.split(r"(?<=[.!?])\s+", args.haystack.read_text(encoding="utf-8")[200000:]) if 20 < len(s) < 300]
    texts = [needle_text(rng, sentences, i) for i in range(args.facts)]
    pairs = [json.loads(line) for line in args.pairs.read_text(encoding="utf-8").splitlines()]
    texts += [{"prompt": p["prompt"], "answer": p["answer"]} for p in pairs if len(p["prompt"]) > 300][:args.others]
    rng.shuffle(texts)
    args.o.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8", newline="\n")


if __name__ == "__main__":
    main()
