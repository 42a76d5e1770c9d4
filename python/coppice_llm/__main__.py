"""`python -m coppice_llm ...` and the console script `coppice`: the program."""

from __future__ import annotations

import sys

from ._library import run_main
from .errors import ModelError


def main() -> int:
    """Runs the program with this process's arguments."""
    try:
        return run_main(["coppice", *sys.argv[1:]])
    except ModelError as error:
        print(f"coppice: {error}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
