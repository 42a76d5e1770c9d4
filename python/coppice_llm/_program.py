"""The program coppice, which the library holds as well, in other processes."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys
from typing import Any, Mapping, Sequence

from ._library import library_path
from ._options import SHARED_WITH_TUNE, words
from .errors import CoppiceError


def command(arguments: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """The command line and the environment that run the program by this very package."""
    folder = os.fspath(pathlib.Path(__file__).resolve().parent.parent)
    path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
    library = {"COPPICE_LIBRARY": os.fspath(library_path())} if "COPPICE_LIBRARY" in os.environ else {}
    return [sys.executable, "-m", "coppice_llm", *arguments], {**os.environ, "PYTHONPATH": path, **library}


def output_of(arguments: Sequence[str], verbose: bool = False) -> str:
    """What the program writes to stdout. Ctrl-C reaches it as well. Raises CoppiceError if it fails."""
    line, environment = command(arguments)
    done = subprocess.run(line, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=None if verbose else subprocess.PIPE, check=False)
    output = done.stdout.decode("utf-8", "replace")
    if done.returncode:
        said = [part for part in (output if not done.stderr else done.stderr.decode("utf-8", "replace")).splitlines()
                if part.strip()]
        raise CoppiceError(f"coppice {arguments[0]} ended with {done.returncode}: " + "\n".join(said[-5:]),
                           code=done.returncode)
    return output


def tune(model: pathlib.Path, loaded_with: Mapping[str, Any], verbose: bool, options: dict[str, Any]) -> str:
    """Runs `coppice tune` and returns the best spec, the last line of its output."""
    shared = {name: value for name, value in loaded_with.items() if name in SHARED_WITH_TUNE}
    lengths, budget = options.get("lengths"), options.get("budget")
    if isinstance(lengths, (list, tuple)):
        options["lengths"] = ",".join(str(length) for length in lengths)
    if budget is not None:
        options["budget"] = [_budget(one) for one in (budget if isinstance(budget, (list, tuple)) else [budget])]
    lines = output_of(["tune", f"--model={os.fspath(model)}", *words({**shared, **options})], verbose).strip().splitlines()
    if not lines:
        raise CoppiceError("coppice tune printed no setting")
    return lines[-1].strip()


def _budget(budget: Any) -> str:
    return budget if isinstance(budget, str) else f"{100 * budget:g}%"


def doctor(model: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """What `coppice doctor` found out about this machine, and what a model would take on it."""
    found = json.loads(output_of(["doctor", *(["-m", os.fspath(model)] if model else []), "--json"]))
    if not isinstance(found, dict):
        raise CoppiceError("coppice doctor: its output is no JSON object")
    return found


def help_text(name: str = "serve") -> str:
    """The help of a command, `coppice serve --help` by default: its options are LLM's keyword arguments."""
    return output_of([name, "--help"])
