#!/usr/bin/env python3
"""Trains the bundled model: text, tokenizer, heads set by hand, training. See README.md.

    train.py WORK            runs, or goes on from WORK/checkpoint.pt
    train.py WORK --until 20    a trial of minutes
"""

import argparse
import json
import math
import os
import pathlib
import random
import sys
import time

import torch
import torch.nn.functional as F

import circuit
import corpus
import facts
import llama
import tokenizer

FAR = 48            # tokens; a filler key farther away stands for several
ANSWER_WEIGHT = 4.0  # a sample has some 20 tokens of answers and 500 others
TEXT_WEIGHT = 0.5
WARM = 30           # steps in which the rate rises


class Samples:
    """Token ids, positions with skips, attention bias, and weights of the loss."""

    def __init__(self, text: list[str], sp, words: facts.Words, tokens: int, reach: int, seed: int):
        self.text, self.sp, self.words, self.tokens, self.reach = text, sp, words, tokens, reach
        self.rng = random.Random(seed)

    def pieces(self) -> list[tuple[str, str]]:
        """(text, kind): filler, fact, question or answer."""
        rng = self.rng
        count = rng.choice([1, 2, 4, 6, 9])
        made = facts.make_facts(count, self.words, rng)
        asked = [rng.choice(made) for _ in range(rng.choice([1, 2, 3]))]
        # Room: a token of prose is some 3.4 letters, a fact with its share of the question some 25 tokens.
        chars = max(200, int(3.4 * (self.tokens - 20 * len(made) - 48 * len(asked))))
        text = facts.prose(self.text, chars, rng)
        ends = [i + 1 for i in range(len(text) - 1) if text[i] in ".!?" and text[i + 1] in " \n"]
        places = sorted(rng.sample(ends, min(len(ends), len(made))))
        rng.shuffle(made)
        found, at = [], 0
        there = made[:len(places)]
        for place, fact in zip(places, there):
            found += [(text[at:place], "filler"), (" " + fact.sentence(), "fact")]
            at = place
        found.append((text[at:], "filler"))
        for fact in asked:
            if fact in there:
                found += [(fact.asked(), "question"), (f" {fact.answer}.\n", "answer")]
        return found

    def sample(self):
        """One sample of at most `tokens` tokens, or None where it came out too long."""
        parts = self.pieces()
        ids, kinds = [1], ["start"]
        # Tokenized as a whole: pieces never reach over a word's start, and each part begins with a space or a line.
        done = ""
        for text, kind in parts:
            done += text
            now = self.sp.encode(done)
            kinds += [kind] * (len(now) + 1 - len(kinds))
            ids = [1] + now
        if len(ids) > self.tokens or len(kinds) != len(ids):
            return None
        return ids, kinds

    def batch(self, size: int):
        n, rng = self.tokens, self.rng
        ids = torch.full((size, n), 2)
        positions = torch.zeros(size, n, dtype=torch.long)
        weights = torch.zeros(size, n)
        many = torch.zeros(size, n)
        for row in range(size):
            while (made := self.sample()) is None:
                pass
            tokens, kinds = made
            m = len(tokens)
            ids[row, :m] = torch.tensor(tokens)
            copies = math.log(rng.choice([1, 4, 16, 64]))
            for i, kind in enumerate(kinds):
                many[row, i] = copies if kind == "filler" else 0.0
                if i > 0:
                    weights[row, i - 1] = TEXT_WEIGHT if kind != "answer" else ANSWER_WEIGHT
            positions[row] = torch.arange(n)
            spare = rng.choice([0, 0, 2048, 8192, self.reach]) - n
            if spare > 0:  # skips inside the prose, away from the facts
                spots = [i for i in range(1, m) if set(kinds[max(0, i - 24):i + 24]) == {"filler"}]
                for spot in rng.sample(spots, min(len(spots), 4)):
                    positions[row, spot:] += rng.randrange(spare // 4 + 1)
        index = torch.arange(n)
        distance = index[:, None] - index[None, :]
        bias = torch.where(distance[None] > FAR, many[:, None, :], torch.zeros(()))
        bias = bias.masked_fill(distance[None] < 0, float("-inf"))[:, None]
        return ids, positions, bias, weights


def prepare(work: pathlib.Path):
    """Text, tokenizer, words."""
    corpus.fetch(work / "packages")
    books = corpus.books(work / "packages")
    words = facts.Words(books["train"])
    model = work / "tokenizer.model"
    lines = list(books["train"])
    rng = random.Random(0)
    for fact in facts.make_facts(2000, words, rng):
        lines += [fact.sentence(), fact.asked()]
    sp = tokenizer.load(model) if model.exists() else tokenizer.train(lines, work / "tokenizer")
    return books, words, sp, lines


def set_by_hand(model: llama.Llama, sp, lines: list[str]) -> None:
    digits = [sp.piece_to_id(d) for d in "0123456789"]
    around = [sp.piece_to_id(p) for p in ("▁", "▁is", ".", "▁in", "▁lives", "<0x0A>")]
    special = digits + [i for i in around if not sp.is_unknown(i)]
    ids = [i for line in lines for i in [1] + sp.encode(line)]
    circuit.set_by_hand(model, ids, special, digits + [sp.piece_to_id("▁")])


def free_rows(config: llama.Config) -> dict[str, torch.Tensor]:
    """Which outputs each free projection may write to in the first part: up to the last retrieving layer only what no
    hand-set head reads."""
    early = torch.zeros(config.hidden, 1)
    early[circuit.Space.LM] = 1
    late = torch.ones(config.hidden, 1)
    late[:4] = 0
    masks = {}
    for layer in range(config.layers):
        mask = early if layer <= circuit.RETRIEVE[-1] else late
        masks[f"model.layers.{layer}.mlp.down_proj.weight"] = mask
        if layer not in circuit.HAND_SET:
            masks[f"model.layers.{layer}.self_attn.o_proj.weight"] = mask
    return masks


def is_hand_set(name: str) -> bool:
    return any(f"layers.{layer}.self_attn" in name for layer in circuit.HAND_SET)


def groups(model: llama.Llama) -> list[dict]:
    hand, embed, rest = [], [], []
    for name, p in model.named_parameters():
        (hand if is_hand_set(name) else embed if "embed" in name else rest).append(p)
    return [{"params": hand, "share": 0.05}, {"params": embed, "share": 0.3}, {"params": rest, "share": 1.0}]


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", type=pathlib.Path, help="folder of what is downloaded and made")
    parser.add_argument("--steps", type=int, default=135)
    parser.add_argument("--cosine", type=int, default=300, help="steps in which the rate would fall to a fiftieth")
    parser.add_argument("--fixed", type=float, default=1.0, help="share of the steps in which the hand-set heads stay")
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--rate", type=float, default=1.5e-3)
    parser.add_argument("--reach", type=int, default=24576, help="positions are skipped up to here")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--bf16", action="store_true", help="products in bfloat16")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--until", type=int, help="stop after this step, to go on later")
    return parser.parse_args(arguments)


class Training:
    """The model, its optimizer, and how far it is."""

    def __init__(self, args: argparse.Namespace):
        self.args = args
        torch.manual_seed(args.seed)  # the bigram table's factors begin with random directions
        books, self.words, self.sp, lines = prepare(args.work)
        self.text = books["train"]
        self.model = llama.Llama(llama.Config())
        self.optimizer = torch.optim.AdamW(groups(self.model), lr=args.rate, betas=(0.9, 0.95), weight_decay=0.01)
        self.checkpoint, self.step = args.work / "checkpoint.pt", 0
        if self.checkpoint.exists():
            state = torch.load(self.checkpoint)
            self.model.load_state_dict(state["model"])
            self.optimizer.load_state_dict(state["optimizer"])
            self.step = state["step"]
        else:
            set_by_hand(self.model, self.sp, lines)
        self.masks = free_rows(self.model.c)

    def samples(self) -> Samples:
        """Those of this step: a run that goes on sees what a run in one go sees."""
        args = self.args
        return Samples(self.text, self.sp, self.words, args.tokens, args.reach, args.seed * 1000000 + self.step)

    def save(self) -> None:
        state = {"model": self.model.state_dict(), "optimizer": self.optimizer.state_dict(), "step": self.step}
        partial = self.checkpoint.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, self.checkpoint)

    def hold(self) -> None:
        """In the first part the hand-set heads stay, and nothing writes over what they read."""
        for name, p in self.model.named_parameters():
            if is_hand_set(name):
                p.grad = None
            elif name in self.masks:
                p.grad *= self.masks[name]

    def one_step(self) -> tuple[float, float, float]:
        """Loss of the text, loss of the answers, share of the answers' tokens that are right."""
        args = self.args
        cosine = 1 + math.cos(math.pi * min(1, self.step / args.cosine))
        scale = min(1, (self.step + 1) / WARM) * (0.02 + 0.98 * 0.5 * cosine)
        for group in self.optimizer.param_groups:
            group["lr"] = args.rate * scale * group["share"]
        ids, positions, bias, weights = self.samples().batch(args.batch)
        with torch.autocast("cpu", torch.bfloat16, enabled=args.bf16):
            logits = self.model(ids, positions, bias)
        wanted, weights = ids[:, 1:], weights[:, :-1]
        loss = F.cross_entropy(logits[:, :-1].float().flatten(0, 1), wanted.flatten(), reduction="none").view(args.batch, -1)
        ((loss * weights).sum() / weights.sum()).backward()
        if self.step < args.fixed * args.steps:
            self.hold()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.step += 1
        answer = weights == ANSWER_WEIGHT
        right = (logits[:, :-1].argmax(-1) == wanted)[answer].float().mean().item()
        return loss[weights == TEXT_WEIGHT].mean().item(), loss[answer].mean().item(), right


def main(arguments: list[str] | None = None) -> int:
    args = options(arguments)
    torch.set_num_threads(args.threads)
    args.work.mkdir(parents=True, exist_ok=True)
    training = Training(args)
    last = min(args.steps, args.until or args.steps)
    saved, seen = time.process_time(), []
    while training.step < last:
        seen.append(training.one_step())
        ends = training.step == last
        if training.step % 20 == 0 or ends:
            text, answer, right = (sum(x) / len(seen) for x in zip(*seen))
            line = {"step": training.step, "text": round(text, 3), "answer": round(answer, 3), "right": round(right, 4)}
            print(json.dumps(line | {"cpu_s": round(time.process_time())}), flush=True)
            seen = []
        if time.process_time() - saved > 120 or ends:
            training.save()
            saved = time.process_time()
    return 0


if __name__ == "__main__":
    sys.exit(main())
