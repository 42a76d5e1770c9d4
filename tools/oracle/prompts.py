"""Prompts of an exact number of tokens from a seed: a ledger of many entries, and a question about one."""

import random

PEOPLE = "Ada Bruno Clara Dmitri Elena Farid Greta Hassan Ines Jonas Keiko Lars Mara Nadia Oscar".split()
PLACES = "Lisbon Oslo Cairo Quito Delhi Turin Perth Dakar Minsk Osaka Tunis Leeds Basel Lima Izmir".split()
GOODS = "copper wool salt timber barley glass paper silk tin rope honey coal linen pepper clay oil".split()
SENTENCES = [
    "On day {day}, {person} sent {number} crates of {goods} to {place}.",
    "The {goods} from {place} weighed {number} pounds, as {person} noted.",
    "{person} paid {number} coins for {goods} and left {place} before noon.",
    "In {place} nobody could say why {person} had kept {number} sacks of {goods}.",
    "A storm near {place} delayed {person}, whose ship carried {goods} worth {number} coins.",
]


def entry(rng):
    return rng.choice(SENTENCES).format(
        person=rng.choice(PEOPLE), place=rng.choice(PLACES), goods=rng.choice(GOODS),
        day=rng.randrange(1, 366), number=rng.randrange(100, 1000))


def make_prompt(token_ids, tokens, seed):
    """A text of exactly `tokens` tokens. token_ids(text) is the model's tokenizer."""
    rng = random.Random(seed)
    entries = [entry(rng) for _ in range(tokens // 8)]
    asked = f"The secret code of the ledger is {rng.randrange(10000, 100000)}."
    depth = rng.random()

    def text(count, filler):
        body = entries[:count]
        body.insert(int(depth * count), asked)
        question = "Question: What is the secret code of the ledger?\nAnswer:"
        return " ".join(body) + "\n" + "and " * filler + "\n" + question

    filler = 4  # words: from a few on, each more is one token more
    low, high = 0, len(entries)
    while low < high:  # the most entries that fit
        middle = (low + high + 1) // 2
        low, high = (middle, high) if len(token_ids(text(middle, filler))) <= tokens else (low, middle - 1)
    filler += tokens - len(token_ids(text(low, filler)))
    if len(token_ids(text(low, filler))) != tokens:
        raise RuntimeError(f"no text of {tokens} tokens was found")
    return text(low, filler)
