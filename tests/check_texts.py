"""Fails when a text of the tree breaks a rule that a program can hold it to:

- a line in src/, include/, examples/ or tests/ is longer than 110 columns, or a line of prose in a page longer than 120;
- a comment or a page names a file that does not exist, or a text that is not in the repository;
- a message below src/apps names a command-line flag: messages name fields, and the command line maps them to flags;
- a link in a page leads nowhere;
- no CMakeLists.txt names a test of tests/, which then never runs.
"""

import pathlib
import re
import sys
import unicodedata
from collections.abc import Iterator

CODE_WIDTH, PAGE_WIDTH = 110, 120
# Folders of the tree that a reader of a comment can open, and what no reader can.
PLACES = "benchmarks|cmake|docs|examples|include|models|packaging|python|src|tests|tools|web"
PATH = re.compile(rf"(?<![\w/.~-])((?:{PLACES})/[\w./-]*\w)(?![\w*<{{])")  # not src/x*
ELSEWHERE = re.compile(
    r"\bshared/|\bhouse\.md|\bBRIEF\b|\bspec(?:ification)? (?:of the methods|section)|\bspec, section"
    r"|\brow \d+ of the (?:bad|table|spec)|\bbad-input table|\bissue #?\d+", re.IGNORECASE)
# Not CSS variables (var(--x), --x:) and not the marks of web/ (/*--x--*/).
FLAG = re.compile(r"(?<![\w(*!-])--[a-z][\w-]*(?![\w:-])")
# Comments and literals of C++, in the order in which they begin. A quote behind a letter or digit separates digits.
TOKEN = re.compile(
    r"(?P<comment>//[^\n]*|/\*.*?\*/)"
    r'|R"(?P<mark>[^(\s"]*)\((?P<raw>.*?)\)(?P=mark)"'
    r'|"(?P<string>(?:\\.|[^"\\\n])*)"'
    r"|(?<![0-9A-Za-z])'(?:\\.|[^'\\\n])+'", re.DOTALL)
INCLUDE = re.compile(r'^\s*#\s*include [<"].*$', re.MULTILINE)


def is_test(path: pathlib.Path) -> bool:
    return "test" in path.stem or path.stem.endswith("_support")


def absent(root: pathlib.Path, name: str) -> bool:
    """Whether no file or folder has this name, with or without an ending ("src/policies/methods/ftp" stands for its two files)."""
    path = root / name
    return not path.exists() and not any(path.parent.glob(path.name + ".*")) and name.split("/")[:2] != ["models", "fetched"]


def strangers(root: pathlib.Path, text: str) -> Iterator[tuple[int, str]]:
    """What a text names and its reader cannot open, with the place."""
    for match in ELSEWHERE.finditer(text):
        yield match.start(), f"names a text that is not in the repository: {match.group()}"
    for match in PATH.finditer(text):
        if absent(root, match.group(1)) and "NAME" not in match.group(1):
            yield match.start(), f"{match.group(1)} does not exist"


def without_literal(token: re.Match) -> str:
    """Text that is data may be as long as it is: raw strings go, but their line breaks stay."""
    return "\n" * token.group().count("\n") if token.group("raw") else token.group()


def width(line: str) -> int:
    """In columns: a combining character takes none."""
    return sum(1 for character in line if not unicodedata.combining(character))


def in_source(root: pathlib.Path, path: pathlib.Path) -> Iterator[tuple[int, str]]:
    """Line and fault."""
    name = path.relative_to(root).as_posix()
    text = path.read_text(encoding="utf-8")
    for number, line in enumerate(TOKEN.sub(without_literal, text).split("\n"), 1):
        if width(line) > CODE_WIDTH:
            yield number, f"{width(line)} columns"
    holds_messages = not name.startswith("src/apps/") and not is_test(path)
    blank = INCLUDE.sub(lambda match: " " * len(match.group()), text)
    for token in TOKEN.finditer(blank):
        line = blank.count("\n", 0, token.start()) + 1
        if comment := token.group("comment"):
            for place, fault in strangers(root, comment):
                yield line + comment.count("\n", 0, place), fault
        message = token.group("string") or token.group("raw")
        if holds_messages and message and (flag := FLAG.search(message)):
            yield line, f"a message names the flag {flag.group()}"


def anchors(page: str) -> set[str]:
    """Headings of a page as GitHub names them."""
    found: dict[str, int] = {}
    for heading in re.findall(r"^#+ (.*)$", without_code(page), re.MULTILINE):
        name = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading)).strip().lower().replace(" ", "-")
        found[name] = found.get(name, -1) + 1
    return {name if i == 0 else f"{name}-{i}" for name, times in found.items() for i in range(times + 1)}


def without_code(page: str) -> str:
    """Fenced code without its lines, so that a comment of the shell is no heading."""
    return re.sub(r"^```.*?^```$", lambda match: "\n" * match.group().count("\n"), page, flags=re.MULTILINE | re.DOTALL)


def in_page(root: pathlib.Path, path: pathlib.Path) -> Iterator[tuple[int, str]]:
    text = without_code(path.read_text(encoding="utf-8"))
    text = re.sub(r"<!-- table.*?<!-- end", lambda match: "\n" * match.group().count("\n"), text, flags=re.DOTALL)  # generated
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > PAGE_WIDTH and not re.match(r"\s*\||    |\s*!?\[|\s*<", line):
            yield number, f"{len(line)} columns"
    line_of = lambda place: text.count("\n", 0, place) + 1
    for match in re.finditer(r"\]\(([^)\s]+)\)|<img src=\"([^\"]+)\"|<source [^>]*srcset=\"([^\"]+)\"", text):
        target = next(group for group in match.groups() if group)
        if re.match(r"[a-z]+:", target):
            continue
        file, _, anchor = target.partition("#")
        to = (path.parent / file).resolve() if file else path
        if not to.exists():
            yield line_of(match.start()), f"the link to {target} leads nowhere"
        elif anchor and to.suffix == ".md" and anchor not in anchors(to.read_text(encoding="utf-8")):
            yield line_of(match.start()), f"{target}: the page has no such heading"
    for place, fault in strangers(root, text):
        yield line_of(place), fault


def not_run(root: pathlib.Path) -> Iterator[pathlib.Path]:
    lists = " ".join(path.read_text() for folder in ("src", "tests") for path in (root / folder).rglob("CMakeLists.txt"))
    named = set(re.findall(r"\w+", lists))
    for path in sorted((root / "tests").rglob("*_test.py")):
        if named.isdisjoint({path.stem, path.stem.removesuffix("_test")}):
            yield path


def faults(root: pathlib.Path) -> Iterator[str]:
    yield from (f"{path.relative_to(root)}: no CMakeLists.txt names it, so it never runs" for path in not_run(root))
    folders = [root / name for name in PLACES.split("|")]
    for path in sorted(path for folder in ("src", "include", "examples", "tests") for path in (root / folder).rglob("*")):
        if path.suffix in {".h", ".cpp", ".inl"}:
            yield from (f"{path.relative_to(root)}:{line}: {fault}" for line, fault in in_source(root, path))
    for path in sorted([*root.glob("*.md"), *(page for folder in folders for page in folder.rglob("*.md"))]):
        if "fetched" not in path.parts:
            yield from (f"{path.relative_to(root)}:{line}: {fault}" for line, fault in in_page(root, path))


if __name__ == "__main__":
    tree = pathlib.Path(sys.argv[1]).resolve()
    assert (tree / "src/base").is_dir(), f"{tree} is not the source tree"
    problems = list(faults(tree))
    print("\n".join(problems) if problems else "the texts keep the rules")
    sys.exit(1 if problems else 0)
