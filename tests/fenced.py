"""The blocks of code in a page: between fences, and those that are indented."""

import dataclasses
import pathlib
import re


@dataclasses.dataclass
class Block:
    section: str   # the heading above it
    language: str  # behind the fence; "indented" for a block of lines with four spaces in front
    text: str
    before: str    # the last line of text above it
    line: int


def blocks_of(page: pathlib.Path) -> list[Block]:
    blocks, section, before = [], "", ""
    fence, indented, after_empty = None, False, True
    for number, line in enumerate(page.read_text(encoding="utf-8").splitlines(), 1):
        if fence is not None:
            if line.startswith("```"):
                fence = None
            else:
                fence.text += line + "\n"
        elif match := re.match(r"```(\w*)$", line):
            fence, indented = Block(section, match[1], "", before, number + 1), False
            blocks.append(fence)
        elif line.startswith("    ") and (indented or after_empty):
            if not indented:
                blocks.append(Block(section, "indented", "", before, number))
            indented = True
            blocks[-1].text += line[4:] + "\n"
        elif line.strip() or not indented:
            indented = False
            if match := re.match(r"#+ (.*)", line):
                section = match[1]
            if line.strip():
                before = line
        after_empty = not line.strip()
    return blocks
