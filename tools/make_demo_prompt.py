#!/usr/bin/env python3
"""Makes the bundled long prompts: a public-domain text and a question.

For coppice-mini, with facts hidden in the text and a question about one of them:

    tools/make_demo_prompt.py Isaac.Newton-Opticks.txt --chars 24000 --seed 1 -o models/demo-prompt.txt

For a chat model, paragraphs of the text as they are, and a question that they answer:

    tools/make_demo_prompt.py Isaac.Newton-Opticks.txt --paragraphs 95:131 -o models/demo-document.txt \\
      --question "Who made the Experiment of hanging up a Glass Globe filled with Water?" --answer "Antonius de Dominis"

The text is Isaac Newton's "Opticks" (fourth edition, 1730), in the public domain, as it lies in the Debian package
golang-github-andybalholm-brotli-dev, in the folder testdata (from Project Gutenberg). The model was trained on other texts.
The facts have the forms that models/README.md lists; the first of them is the one
asked for, the others are there to be confused with it. The expected answer goes beside the prompt, with the suffix
.answer. The same arguments give the same bytes on every machine: no library's generator, hash order or locale is used.
"""

import argparse
import hashlib
import pathlib
import re
import sys

SOURCE_SHA256 = "d4a9ac22462b35e7821a4f2706c211093da678620a8f9997989ee7cf8d507bbd"

ADJECTIVES = ["misty", "silver", "quiet", "crooked", "amber", "hollow", "northern", "wooden", "golden", "narrow",
              "frozen", "distant", "scarlet", "gentle", "broken", "hidden"]
NOUNS = ["harbor", "garden", "tower", "bridge", "mirror", "forest", "lantern", "mill", "orchard", "chapel",
         "valley", "castle", "market", "island", "meadow", "station"]
PEOPLE = [("Ada", "brave"), ("Hugo", "wise"), ("Clara", "tall"), ("Oscar", "gentle")]
CITIES = ["Lisbon", "Vienna", "Dublin", "Oslo"]
NUMBER_KINDS = ["secret code", "magic number", "room number", "ticket number", "postal code"]
SPANS = 6  # facts beside the asked one and the person: one of each kind, and the asked kind once more


class Random:
    """SplitMix64 (Steele, Lea and Flood, 2014): ten lines that never change, unlike a library's shuffle."""

    def __init__(self, seed: int):
        self.state = seed

    def below(self, bound: int) -> int:
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % 2**64
        z = (z ^ (z >> 27)) * 0x94D049BB133111EB % 2**64
        return (z ^ (z >> 31)) % bound

    def take(self, items: list):
        """Removes and returns one item, so that no word serves two facts."""
        return items.pop(self.below(len(items)))


def paragraphs(raw: str) -> list[str]:
    """The prose of the book: wrapped lines joined, emphasis marks taken out; title page, headings, tables, footnotes and
    what is not ASCII left out."""
    found = []
    for block in re.split(r"\n\s*\n", raw.replace("\r", "")):
        is_prose = block.isascii() and len(block) > 150 and not any(c in block for c in "|[*") and "   " not in block
        if is_prose:
            text = re.sub(r"(?<=\w)-\n\s*", "-", block)  # a hyphen at a line's end stays one word
            found.append(re.sub(r"\s+", " ", text.replace("_", "")).strip())
    return found


def make_facts(rng: Random) -> tuple[list[str], str, str]:
    """Eight sentences, the asked one first; the question's subject; the answer."""
    adjectives, nouns = list(ADJECTIVES), list(NOUNS)

    def number_fact(kind: str) -> tuple[str, str]:
        subject = f"The {kind} of the {rng.take(adjectives)} {rng.take(nouns)} is"
        return subject, str(10000 + rng.below(90000))

    subject, answer = number_fact(NUMBER_KINDS[0])
    facts = [f"{subject} {answer}."]
    for kind in (NUMBER_KINDS * 2)[:SPANS]:
        facts.append("{} {}.".format(*number_fact(kind)))
    name, epithet = rng.take(list(PEOPLE))
    facts.append(f"{name} the {epithet} lives in {rng.take(list(CITIES))}.")
    return facts, subject, answer


def hide(text: str, facts: list[str], depth: float, rng: Random) -> str:
    """Puts the first fact at `depth` of the text and the others evenly over it, each behind a sentence's end."""
    ends = [m.end() for m in re.finditer(r"[a-z][.!?]'?(?=[ \n])", text)]
    order = facts[1:]
    order = [rng.take(order) for _ in range(len(order))]
    wanted = [(depth, facts[0])] + [((i + 0.5) / len(order), fact) for i, fact in enumerate(order)]
    places = {}
    for share, fact in wanted:
        nearest = min((e for e in ends if e not in places), key=lambda e: abs(e - share * len(text)))
        places[nearest] = fact
    for place in sorted(places, reverse=True):
        text = f"{text[:place]} {places[place]}{text[place:]}"
    return text


def make_prompt(raw: str, chars: int, depth: float, seed: int) -> tuple[str, str]:
    rng = Random(seed)
    text = ""
    for paragraph in paragraphs(raw):
        if len(text) + len(paragraph) > chars:
            break
        text += paragraph + "\n"
    facts, subject, answer = make_facts(rng)
    text = hide(text, facts, depth, rng)
    question = f"What is t{subject[1:].removesuffix(' is')}?"
    return f"{text}Question: {question}\nAnswer: {subject}", answer


def make_question(raw: str, span: str, question: str, answer: str) -> str:
    begin, end = map(int, span.split(":"))
    text = "\n".join(paragraphs(raw)[begin:end])
    if text.count(answer) != 1:
        raise SystemExit(f"the paragraphs hold the answer {text.count(answer)} times, not once")
    return f"{text}\n\n{question}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("source", type=pathlib.Path, help="Isaac.Newton-Opticks.txt")
    parser.add_argument("--chars", type=int, default=24000, help="of the book, whole paragraphs, at most this many")
    parser.add_argument("--depth", type=float, default=0.4, help="where the asked fact lies, 0 to 1")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--paragraphs", metavar="BEGIN:END", help="of the prose, END one beyond; with --question and --answer")
    parser.add_argument("--question")
    parser.add_argument("--answer", help="a text that a right answer holds")
    parser.add_argument("-o", "--output", type=pathlib.Path, required=True)
    args = parser.parse_args()
    if not (bool(args.paragraphs) == bool(args.question) == bool(args.answer)):
        parser.error("--paragraphs, --question and --answer go together")
    raw = args.source.read_bytes()
    if hashlib.sha256(raw).hexdigest() != SOURCE_SHA256:
        print(f"{args.source}: not the expected text, the prompt will differ", file=sys.stderr)
    if args.paragraphs:
        answer = args.answer
        prompt = make_question(raw.decode("utf-8"), args.paragraphs, args.question, answer)
    else:
        prompt, answer = make_prompt(raw.decode("utf-8"), args.chars, args.depth, args.seed)
    args.output.write_text(prompt, encoding="ascii", newline="\n")
    args.output.with_suffix(".answer").write_text(answer + "\n", encoding="ascii", newline="\n")
    print(f"{args.output}: {len(prompt)} characters, answer {answer}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
