#!/usr/bin/env python3
"""Which signal in a pruned answer tells that it is wrong? Chats about documents, answered as the model likes to begin.

    fallback_signal.py ask PROGRAM MODEL.gguf -o FILE.jsonl [--tasks codes,repeated,places] [--documents 6] [--words 500]
    fallback_signal.py judge FILE.jsonl ... [--catch 0.9]

`ask` writes documents of random sentences that hold facts of one form, and asks for each fact in a chat of its own,
densely and with each `--prune` (default: five settings, of which some break answers). An answer is right if it has the
fact. Each line of the file is an answer with the log-probability of the likeliest token at each place.

    codes     "What is the secret code of the misty harbor?"
    repeated  the same, with the request to repeat the question in a full sentence: the fact comes late
    places    "In which town does Maria Stone work?" of names and towns

`judge` compares signals over the answers where dense is right: the area under the ROC curve, and for each the bound that
catches `--catch` of the wrong answers, with the share of right answers that it would compute again.
"""

import argparse
import json
import math
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from agent_prune import ADJECTIVES, NOUNS, filler  # noqa: E402
from server_support import Server  # noqa: E402

FIRST = "Maria Peter Anna Victor Laura Oscar Helen Simon Clara Martin Julia Edgar".split()
LAST = "Stone Baker Winter Fisher Miller Carter Hunter Mason Porter Walker Turner Weaver".split()
TOWNS = "Brandon Halifax Oxford Lincoln Geneva Verona Dresden Bergen Toledo Lisbon Kyoto Denver Quebec Salem".split()
SETTINGS = ["coppice:min=0", "coppice:min=0,keep=0.12/0.06/0.03", "sliminfer:min=0,keep=200/120/60", "lazyllm:min=0",
            "static:layer=12,keep=0.3,min=0"]


def facts(task: str, rng: random.Random, count: int) -> list[tuple[str, str, str]]:
    """Sentences of the document, questions and what a right answer has."""
    if task == "places":
        people = rng.sample([f"{a} {b}" for a in FIRST for b in LAST], count)
        return [(f"{who} works in {town}.", f"In which town does {who} work?", town)
                for who, town in zip(people, rng.sample(TOWNS, count))]
    keys = rng.sample([f"{a} {n}" for a in ADJECTIVES for n in NOUNS], count)
    more = " Repeat the question in a full sentence as your answer." if task == "repeated" else ""
    codes = [str(rng.randrange(10000, 100000)) for _ in keys]
    return [(f"The secret code of the {key} is {code}.", f"What is the secret code of the {key}?{more}", code)
            for key, code in zip(keys, codes)]


def document(task: str, number: int, words: int, count: int, seed: int) -> tuple[str, list[tuple[str, str, str]]]:
    """A text and the facts in it."""
    rng = random.Random(f"{seed} {task} {number}")
    asked = facts(task, rng, count)
    lines = filler(rng, words // 12)
    for sentence, _, _ in asked:
        lines.insert(rng.randrange(len(lines)), sentence)
    return "\n".join(lines), asked


def ask(options: argparse.Namespace) -> None:
    server = Server(options.program, options.model, "-c", "4096", "-np", "1", "-t", str(options.threads)).wait_ready()
    try:
        with open(options.output, "a", encoding="utf-8") as out:
            for number in range(options.documents):
                for task in options.tasks.split(","):
                    read, asked = document(task, number, options.words, options.facts, options.seed)
                    for _, question, fact in asked[:options.questions]:
                        for prune in ["none", *(options.prune or SETTINGS)]:
                            body = {"messages": [{"role": "user", "content": f"{read}\n\n{question}"}], "temperature": 0,
                                    "max_tokens": options.tokens, "logprobs": True, "top_logprobs": 1, "prune": prune,
                                    "prune_when": "always"}
                            choice = server.good("/v1/chat/completions", body)["choices"][0]
                            content = choice["message"]["content"]
                            tokens = choice["logprobs"]["content"]
                            row = {"task": task, "question": [number, question], "prune": prune, "right": fact in content,
                                   "text": content, "tokens": [t["token"] for t in tokens],
                                   "log_probs": [t["top_logprobs"][0]["logprob"] for t in tokens]}
                            out.write(json.dumps(row) + "\n")
                            out.flush()
    finally:
        server.stop()


def ends_before(text: str, following: str) -> bool:
    """As AnswerJudge::SentenceEndsBefore (src/engine/answer_judge.cpp)."""
    spaces = " \t\r\n"
    body = text.rstrip(spaces)
    spaced = len(body) < len(text) or following[:1] in spaces
    new_line = "\n" in text[len(body):] or "\n" in following[:len(following) - len(following.lstrip(spaces))]
    body = body.rstrip("\"')]}*_`")
    if not body:
        return False
    return spaced if body[-1] in ".!" else new_line and body[-1] not in ":?"


def judged(row: dict) -> int:
    """The number of tokens by which the engine judges an answer that it believes."""
    text = ""
    for index, token in enumerate(row["tokens"]):
        if index >= 48 or (index >= 8 and ends_before(text, token)):
            return index
        text += token
    return len(row["tokens"])


def least_run(values: list[float], width: int) -> float:
    width = min(width, len(values))
    return min(sum(values[i:i + width]) / width for i in range(len(values) - width + 1))


def signals(row: dict) -> dict[str, float]:
    values = row["log_probs"]
    sentence = values[:judged(row)]
    found = {"mean of 8": sum(values[:8]) / len(values[:8]), "mean of all": sum(values) / len(values),
             "mean of the sentence": sum(sentence) / len(sentence)}
    for width in (1, 2, 3, 4, 5, 6, 8):
        found[f"least {width} of the sentence"] = least_run(sentence, width)
    return {name: math.exp(value) for name, value in found.items()}


def area(right: list[float], wrong: list[float]) -> float:
    return sum((r > w) + 0.5 * (r == w) for r in right for w in wrong) / max(1, len(right) * len(wrong))


def judge(options: argparse.Namespace) -> None:
    rows = [json.loads(line) for name in options.files for line in open(name, encoding="utf-8")]
    dense = {(r["task"], *r["question"]): r for r in rows if r["prune"] == "none"}
    for task in [*sorted({row["task"] for row in rows}), "all"]:
        chosen = [r for r in rows if r["prune"] != "none" and task in (r["task"], "all") and r["log_probs"]
                  and dense[r["task"], *r["question"]]["right"]]
        right, wrong = ([signals(r) for r in chosen if r["right"] == value] for value in (True, False))
        sure = [signals(r) for r in dense.values() if task in (r["task"], "all") and r["right"] and r["log_probs"]]
        print(f"{task}: {len(right)} right, {len(wrong)} wrong; dense right in {len(sure)}")
        for name in (right or wrong or [{}])[0]:
            r, w, d = ([s[name] for s in group] for group in (right, wrong, sure))
            bound = sorted(w)[min(len(w) - 1, math.ceil(options.catch * len(w)) - 1)] + 1e-9 if w else 0
            line = f"  {name:26} area {area(r, w):.2f}  bound {bound:.2f} again {sum(x < bound for x in r) / max(1, len(r)):4.0%}"
            for at in options.bounds:
                line += (f" | {at:g}: caught {sum(x < at for x in w)} of {len(w)}, again {sum(x < at for x in r)} of {len(r)}"
                         f", dense's {sum(x < at for x in d)} of {len(d)}")
            print(line)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    verbs = parser.add_subparsers(required=True)
    asks = verbs.add_parser("ask")
    asks.add_argument("program")
    asks.add_argument("model")
    asks.add_argument("-o", "--output", required=True)
    asks.add_argument("--tasks", default="codes,repeated,places")
    asks.add_argument("--prune", action="append")
    for name, value in (("documents", 6), ("words", 500), ("facts", 6), ("questions", 3), ("tokens", 40), ("threads", 2),
                        ("seed", 1)):
        asks.add_argument(f"--{name}", type=int, default=value)
    asks.set_defaults(run=ask)
    judges = verbs.add_parser("judge")
    judges.add_argument("files", nargs="+")
    judges.add_argument("--catch", type=float, default=0.9)
    judges.add_argument("--bounds", type=float, nargs="*", default=[])
    judges.set_defaults(run=judge)
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
