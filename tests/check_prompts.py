"""Fails when a bundled prompt and its answer do not belong together: the demo and the tests rely on both."""

import pathlib
import re
import sys


def problem(prompt: str, answer: str) -> str:
    """What is wrong with the pair, or nothing."""
    question = re.search(r"\nQuestion: What is the (.*)\?\nAnswer: The (.*) is\Z", prompt)
    if not question or question.group(1) != question.group(2):
        return "does not end with the question and the beginning of its answer"
    facts = re.findall(r" The ([a-z]+ (?:code|number) of the [a-z]+ [a-z]+) is (\d{5})\.", prompt)
    if len(facts) < 7 or len(dict(facts)) != len(facts):
        return f"hides {len(facts)} numbers, {len(dict(facts))} of them different"
    if dict(facts).get(question.group(1)) != answer:
        return f"says {dict(facts).get(question.group(1))}, not {answer}"
    return ""


def main() -> int:
    status = 0
    for name in sys.argv[1:]:
        path = pathlib.Path(name)
        # Bytes, because a stray carriage return or a last line end changes the tokens.
        found = problem(path.read_bytes().decode("ascii"), path.with_suffix(".answer").read_text().strip())
        print(f"{path}: {found or 'ok'}")
        status |= bool(found)
    return status


if __name__ == "__main__":
    sys.exit(main())
