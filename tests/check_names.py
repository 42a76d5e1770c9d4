"""Fails when two files define a type of one name in one namespace: C++ then takes either for both, in silence."""

import collections
import pathlib
import re
import sys

OPENING = re.compile(r"(?:inline )?namespace ?([\w:]*) ?\{")
TYPE = re.compile(r"(?:template ?<.*> ?)?(?:class|struct|union|enum class|enum) (\w+)(?!\w|::)([^/]*)")


def definitions(path: pathlib.Path) -> list[tuple[str, int]]:
    """The types that other files could clash with: what an unnamed namespace holds cannot."""
    found, spaces = [], []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if match := OPENING.match(line):
            spaces.append(match.group(1))
        elif line.startswith("}  // namespace"):
            spaces.pop()
        elif spaces and "" not in spaces and (match := TYPE.match(line)):
            name, rest = match.groups()
            if "{" in rest or ";" not in rest:  # not a declaration
                found.append(("::".join([*spaces, name]), number))
    return found


def clashes(source_root: pathlib.Path) -> list[str]:
    places = collections.defaultdict(dict)
    for path in sorted(source_root.rglob("*")):
        if path.suffix not in {".h", ".cpp", ".inl"} or "test" in path.stem:
            continue
        for name, number in definitions(path):
            places[name][path] = number
    return [
        f"{name}: " + ", ".join(f"{path}:{number}" for path, number in where.items())
        for name, where in places.items()
        if len(where) > 1
    ]


if __name__ == "__main__":
    root = pathlib.Path(sys.argv[1])
    assert (root / "base").is_dir(), f"{root} is not the source tree"
    problems = clashes(root)
    print("\n".join(problems) if problems else "every type has a name of its own")
    sys.exit(1 if problems else 0)
