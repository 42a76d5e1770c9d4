#!/usr/bin/env python3
"""An agent's turn with one new, long result of a tool: dense, and with that result pruned, beside a cache that holds the rest.

    agent_prune.py PROGRAM MODEL.gguf [--head 3500] [--result 2000] [--rounds 8] [--prune coppice] [-o FILE]

The conversation's head (a system prompt, definitions of tools, an earlier turn) is read once, densely. Each round then adds
a question, a call and a result of its own, in which one line holds the fact asked for, and asks for the answer twice:
with "prune": "none", and with the method under "prune_scope": "new". The arms take turns to be the first. The time is
that to the first token as the server reports it, over the tokens that its cache does not hold. The answer counts as right
if it has the fact's digits. The model continues `... is`, so that a small model without training for tools can answer.
Without a template that knows tools, definitions, calls and results are text of the messages.
"""

import argparse
import json
import pathlib
import random
import statistics
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "tests"))
from server_support import Server  # noqa: E402

ADJECTIVES = "misty copper silent amber frozen gentle hollow crimson ancient narrow velvet stormy".split()
NOUNS = "harbor lantern orchard bridge meadow tower canyon garden station harvest cellar valley".split()
WORDS = ("the a of and to in it was that light ray glass colour red blue lens body paper hand water air part line angle "
         "distance made seen through upon from which made much less more white black fell made appear edge ring").split()


def filler(rng: random.Random, count: int) -> list[str]:
    return [" ".join(rng.choice(WORDS) for _ in range(12)).capitalize() + "." for _ in range(count)]


def tool(name: str, rng: random.Random) -> dict:
    properties = {rng.choice(WORDS) + str(i): {"type": "string", "description": filler(rng, 1)[0]} for i in range(5)}
    return {"type": "function", "function": {"name": name, "description": " ".join(filler(rng, 6)),
                                             "parameters": {"type": "object", "properties": properties}}}


class Talk:
    def __init__(self, server: Server, options: argparse.Namespace):
        self.server, self.options = server, options
        rng = random.Random(options.seed)
        self.tools = [tool("read_file", rng)]
        self.head = [{"role": "system", "content": "You answer from what tools return."},
                     {"role": "user", "content": "Hello."}, {"role": "assistant", "content": "How can I help?"}]
        names = iter(f"function_{i}" for i in range(10_000))
        while self.count(self.head) < options.head:
            self.tools += [tool(next(names), rng) for _ in range(max(1, len(self.tools) // 4))]
        lines = "\n".join(filler(rng, 50))
        empty, full = (self.count([{"role": "user", "content": text}]) for text in ("x", lines))
        self.per_line = (full - empty) / 50

    def count(self, messages: list) -> int:
        body = {"messages": messages, "tools": self.tools}
        return len(self.server.good("/v1/chat/completions/render", body)["token_ids"])

    def ask(self, messages: list, **fields) -> dict:
        body = {"messages": messages, "tools": self.tools, "temperature": 0, "max_tokens": 12, **fields}
        return self.server.good("/v1/chat/completions", body)

    def round(self, number: int) -> tuple[list, str]:
        rng = random.Random(self.options.seed * 1000 + number + 1)
        key = f"{rng.choice(ADJECTIVES)} {rng.choice(NOUNS)}"
        fact = str(rng.randrange(10000, 100000))
        lines = filler(rng, int(self.options.result / self.per_line))
        lines[rng.randrange(len(lines) // 20, len(lines))] = f"The secret code of the {key} is {fact}."
        call = {"id": "c1", "type": "function",
                "function": {"name": "read_file", "arguments": json.dumps({"path": f"notes/{number}.txt"})}}
        messages = [*self.head, {"role": "user", "content": f"What is the secret code of the {key}?"},
                    {"role": "assistant", "content": None, "tool_calls": [call]},
                    {"role": "tool", "tool_call_id": "c1", "content": "\n".join(lines)},
                    {"role": "assistant", "content": f"The secret code of the {key} is"}]
        return messages, fact


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("program")
    parser.add_argument("model")
    parser.add_argument("--head", type=int, default=3500)
    parser.add_argument("--result", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument("--prune", default="coppice")
    parser.add_argument("--context", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--output")
    options = parser.parse_args()
    context = options.context or options.head + options.result + 1024
    server = Server(options.program, options.model, "-c", str(context), "-np", "1", "-t", str(options.threads)).wait_ready()
    rows = []
    try:
        talk = Talk(server, options)
        talk.ask(talk.head + [{"role": "user", "content": "Hello."}], prune="none", max_tokens=1)
        for number in range(options.rounds):
            messages, fact = talk.round(number)
            arms = [("dense", "none"), ("pruned", options.prune)]
            row = {}
            for name, prune in arms if number % 2 else arms[::-1]:
                reply = talk.ask(messages, prune=prune, prune_scope="new", prune_when="always")
                text = reply["choices"][0]["message"]["content"] or ""
                account = reply.get("prune", {})
                row[name] = {"ms": reply["timings"]["prompt_ms"], "cached": reply["timings"]["cache_n"],
                             "read": reply["timings"]["prompt_n"], "right": fact in text, "text": text,
                             "kept": account.get("kept_per_layer"), "protected": account.get("protected_tokens"),
                             "spec": account.get("spec"), "active": account.get("active")}
            rows.append(row)
            print(json.dumps({arm: {k: v for k, v in row[arm].items() if k not in ("kept", "spec")} for arm in row}), flush=True)
    finally:
        server.stop()
    dense, pruned = ([row[arm] for row in rows] for arm in ("dense", "pruned"))
    ratios = [d["ms"] / p["ms"] for d, p in zip(dense, pruned)]
    print(f"cached {dense[0]['cached']}, read {dense[0]['read']}, protected {pruned[0]['protected']}, kept {pruned[0]['kept']}")
    for name, arm in (("dense", dense), ("pruned", pruned)):
        print(f"{name}: median {statistics.median(a['ms'] for a in arm):.0f} ms, right {sum(a['right'] for a in arm)} of {len(arm)}")
    print(f"times as fast, by round: median {statistics.median(ratios):.2f}, {min(ratios):.2f} to {max(ratios):.2f}")
    if options.output:
        pathlib.Path(options.output).write_text(json.dumps({"options": vars(options), "rounds": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
