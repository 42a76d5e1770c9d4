"""make_manual.py PROGRAM OUT: writes the manual page coppice.1, out of what the program says of itself.

Each command becomes a section with its own `--help`, so the page names what the program has and nothing else. An OUT that
ends in .gz is compressed, to the same bytes each time.
"""

import gzip
import pathlib
import re
import subprocess
import sys

OPTION = re.compile(r"  (?P<name>\S.*?)(?:  +(?P<text>\S.*))?$")
DESCRIPTION = " " * 12  # a line that is further in belongs to the option above it
FIXED = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti", '"': "\\(dq"}


def said(program: str, *words: str) -> list[str]:
    done = subprocess.run([program, *words], capture_output=True, text=True, check=True, stdin=subprocess.DEVNULL)
    return done.stdout.splitlines()


def roff(text: str) -> str:
    """As it stands, whatever it holds."""
    return "\\&" * text.startswith(".") + "".join(FIXED.get(character, character) for character in text)


def commands(lines: list[str]) -> list[str]:
    """The names under the heading "Subcommands:"."""
    if "Subcommands:" not in lines:
        return []
    rest = lines[lines.index("Subcommands:") + 1:]
    end = next((at for at, line in enumerate(rest) if not line.startswith("  ")), len(rest))
    return [line.split()[0] for line in rest[:end] if not line.startswith(DESCRIPTION)]


def body(lines: list[str]) -> list[str]:
    """The lines behind the usage: headings, options with their texts, examples, and sentences."""
    page, example = [], False
    for line in lines:
        option = OPTION.fullmatch(line)
        if not line.strip():
            continue
        if not line.startswith(" "):
            example = line in ("Example:", "Examples:")
            page += [".SS " + roff(line[:-1]) if line.endswith(":") else ".PP\n" + roff(line)]
        elif line.startswith(DESCRIPTION):
            page.append(roff(line.strip()))
        elif example:
            page += [".PP", ".EX", roff(line.rstrip()), ".EE"]
        elif option:
            page += [".TP", ".B " + roff(option["name"])] + ([roff(option["text"])] if option["text"] else [])
    return page


def section(program: str, words: list[str]) -> list[str]:
    lines = said(program, *words, "--help")
    usage = next(at for at, line in enumerate(lines) if line.startswith("Usage: "))
    page = [".SH " + " ".join(["coppice", *words]).upper(), *(roff(line) for line in lines[:usage]), ".PP",
            ".B " + roff(lines[usage].removeprefix("Usage: ")), *body(lines[usage + 1:])]
    for name in commands(lines):
        page += section(program, [*words, name])
    return page


def manual(program: str) -> str:
    version = said(program, "--version")[0].split(" (")[0]
    lines = said(program, "--help")
    name, _, what = lines[0].partition(": ")
    usage = next(line for line in lines if line.startswith("Usage: ")).removeprefix("Usage: ")
    page = [f'.TH COPPICE 1 "" "{roff(version)}" "User Commands"', ".SH NAME", f"{name} \\- {roff(what)}", ".SH SYNOPSIS",
            ".B " + roff(usage), ".SH DESCRIPTION", *body(lines[2:])]
    for command in commands(lines):
        page += section(program, [command])
    return "\n".join(page) + "\n"


def main() -> int:
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    out, text = pathlib.Path(sys.argv[2]), manual(sys.argv[1]).encode()
    out.write_bytes(gzip.compress(text, 9, mtime=0) if out.suffix == ".gz" else text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
