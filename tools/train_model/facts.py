"""Prompts: prose with facts hidden in it and questions about some of them at the end.

The forms are those of tools/make_demo_prompt.py, whose words are kept out of training.
"""

import random
import re
import sys
import pathlib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
import make_demo_prompt as demo  # noqa: E402

HELD_OUT = {w.lower() for w in demo.ADJECTIVES + demo.NOUNS + demo.CITIES + [word for pair in demo.PEOPLE for word in pair]}
KINDS = demo.NUMBER_KINDS
CITY_NAMES = ["Paris", "London", "Berlin", "Madrid", "Rome", "Athens", "Cairo", "Moscow", "Prague", "Warsaw", "Boston",
              "Tokyo", "Geneva", "Munich", "Venice", "Naples", "Milan", "Bristol", "Oxford", "Delhi", "Lima", "Quebec",
              "Havana", "Seoul"]


class Words:
    """Words of the training text for keys: lower case for adjectives, nouns and epithets, upper case for people."""

    def __init__(self, paragraphs: list[str]):
        counts: dict[str, int] = {}
        for paragraph in paragraphs:
            for word in re.findall(r"[A-Za-z]{3,12}", paragraph):
                counts[word] = counts.get(word, 0) + 1
        usable = [w for w, n in counts.items() if 3 <= n <= 2000 and w.lower() not in HELD_OUT]
        self.common = sorted(w for w in usable if w.islower() and len(w) >= 4)
        self.names = sorted(w for w in usable if w.istitle() and counts.get(w.lower(), 0) == 0)


class Fact:
    """`subject` is what the answer repeats, `answer` what it must say next."""

    def __init__(self, subject: str, question: str, answer: str):
        self.subject, self.question, self.answer = subject, question, answer

    def sentence(self) -> str:
        return f"{self.subject} {self.answer}."

    def asked(self) -> str:
        return f"Question: {self.question}\nAnswer: {self.subject}"


def number_fact(kind: str, key: str, rng: random.Random) -> Fact:
    return Fact(f"The {kind} of the {key} is", f"What is the {kind} of the {key}?", str(rng.randrange(10000, 100000)))


def make_facts(count: int, words: Words, rng: random.Random) -> list[Fact]:
    """Facts with keys of their own; often several of one kind, now and then with one word in common."""
    kinds = rng.sample(KINDS, rng.choice([1, 1, 2, 5]))
    facts, used = [], set()
    while len(facts) < count:
        if rng.random() < 0.15:
            name, epithet = rng.choice(words.names), rng.choice(words.common)
            key, city = f"{name} the {epithet}", rng.choice(CITY_NAMES)
            fact = Fact(f"{key} lives in", f"In which city does {key} live?", city)
        else:
            first, second = rng.choice(words.common), rng.choice(words.common)
            if facts and rng.random() < 0.1 and " of the " in facts[-1].subject:
                second = facts[-1].subject.split()[-2]
            key = f"{first} {second}"
            fact = number_fact(rng.choice(kinds), key, rng)
        if key not in used:
            used.add(key)
            facts.append(fact)
    return facts


def prose(paragraphs: list[str], chars: int, rng: random.Random) -> str:
    """Consecutive paragraphs from a random place on, cut at a sentence's end."""
    at = rng.randrange(len(paragraphs))
    text = ""
    while len(text) < chars:
        text += paragraphs[at % len(paragraphs)] + "\n"
        at += 1
    ends = [m.end() for m in re.finditer(r"[a-z][.!?](?=[ \n])", text[:chars + 1])]
    return text[:ends[-1]] + "\n" if ends else text


def hide(text: str, facts: list[Fact], depths: list[float]) -> str:
    """Puts each fact behind the sentence that ends nearest to its depth."""
    ends = [m.end() for m in re.finditer(r"[a-z][.!?]'?(?=[ \n])", text)]
    places = {}
    for fact, depth in zip(facts, depths):
        free = [e for e in ends if e not in places]
        if free:
            places[min(free, key=lambda e: abs(e - depth * len(text)))] = fact
    for place in sorted(places, reverse=True):
        text = f"{text[:place]} {places[place].sentence()}{text[place:]}"
    return text


def test_prompt(paragraphs: list[str], chars: int, depth: float, distractors: int, rng: random.Random) -> tuple[str, str]:
    """A prompt of held-out words with `distractors` facts of the kind asked for, and its answer."""
    adjectives, nouns = rng.sample(demo.ADJECTIVES, distractors + 1), rng.sample(demo.NOUNS, distractors + 1)
    kind = rng.choice(KINDS)
    facts = [number_fact(kind, f"{a} {n}", rng) for a, n in zip(adjectives, nouns)]
    depths = [depth] + [rng.random() for _ in facts[1:]]
    text = hide(prose(paragraphs, chars, rng), facts, depths)
    return text + facts[0].asked(), facts[0].answer
