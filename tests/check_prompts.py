"""Fails when a bundled prompt and its answer do not belong together: the demo and the tests rely on both."""

import pathlib
import re
import sys


def problem(prompt: str, answer: str) -> str:
    """What is wrong with the pair, or nothing."""
    return facts_problem(prompt, answer) if "\nAnswer: " in prompt else document_problem(prompt, answer)


def document_problem(prompt: str, answer: str) -> str:
    """A document, an empty line, a question that one place of the document answers."""
    document, _, question = prompt.rpartition("\n\n")
    if "\n" in question or not question.endswith("?"):
        return "does not end with an empty line and a question"
    if document.count(answer) != 1:
        return f"holds the answer {document.count(answer)} times"
    return ""


def facts_problem(prompt: str, answer: str) -> str:
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
