"""Keyword arguments as the words of a command line and the fields of a request."""

from __future__ import annotations

import os
from typing import Any, Iterable, Mapping, Sequence, Union

from .errors import InvalidRequest

Prompt = Union[str, Sequence[int]]
Spans = Sequence[Sequence[int]]

RENAMED = {"ctx": "ctx-size"}
# What `coppice tune` has in common with `coppice serve`, and what must be equal for its calibration to hold.
SHARED_WITH_TUNE = ("ctx", "threads", "exact", "fast", "backend", "cache_type", "ubatch_size", "chat_template",
                    "chat_template_file", "cold_dir", "cold_io", "cache_ram")


def words(options: Mapping[str, Any]) -> list[str]:
    """{"ctx": 32768, "fast": True} as ["--ctx-size=32768", "--fast"]; None and False are left out, lists repeat."""
    found: list[str] = []
    for name, value in options.items():
        option = "--" + RENAMED.get(name, name.replace("_", "-"))
        if value is None or value is False:
            continue
        if value is True:
            found.append(option)
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            found += [f"{option}={_word(name, item)}"]
    return found


def _word(name: str, value: Any) -> str:
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    if isinstance(value, (str, int, float)):
        return str(value)
    raise InvalidRequest(f"{name}: {value!r} is no text, number, path or truth value", param=name)


def prune_field(prune: Any, protect: Spans | None) -> Any:
    """The field `prune` of a request: protected tokens make it an object. None: it is left out."""
    if not protect:
        return prune
    spans = [[int(begin), int(end)] for begin, end in protect]
    if prune is None or prune is True:
        return {"spec": "default", "protect": spans}
    if isinstance(prune, Mapping):
        return {**prune, "protect": spans}
    return {"spec": prune, "protect": spans}


def fields(options: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a request; those that are None are left out. `trace` and `protect` become the server's names."""
    body = {name: value for name, value in options.items() if value is not None}
    protect = body.pop("protect", None)
    prune = prune_field(body.pop("prune", None), protect)
    if prune is not None:
        body["prune"] = prune
    if body.pop("trace", False):
        body.update(return_prune_depth=True, return_prompt_pieces=True)
    body.setdefault("return_tokens", True)
    return body


def prompt_field(prompt: Any) -> str | list[int]:
    """A text, or a list of plain numbers: numpy's become Python's, which JSON takes."""
    if isinstance(prompt, str):
        return prompt
    try:
        return [int(token) for token in prompt]
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"prompt: {prompt!r:.80} is no text and no list of token ids", param="prompt") from error


def listed(prompts: Any) -> list[Any] | None:
    """A list of prompts; None where it is one prompt, a text or a list of ids."""
    if isinstance(prompts, str) or not isinstance(prompts, Iterable):
        return None
    if not isinstance(prompts, Sequence) and not hasattr(prompts, "__len__"):
        prompts = list(prompts)  # a generator gives its items once
    first = next(iter(prompts), None)
    return list(prompts) if first is None or isinstance(first, (str, Iterable)) else None
