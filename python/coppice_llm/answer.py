"""An answer with its figures."""

from __future__ import annotations

import warnings
from typing import Any

from .errors import CoppiceError
from .trace import Trace


class Answer:
    """One answer of the model. str(answer) is its text; `raw` is the whole reply, in OpenAI's form."""

    def __init__(self, raw: dict[str, Any], prompt: Any = None) -> None:
        self.raw = raw
        self.prompt = prompt
        self._choice: dict[str, Any] = raw["choices"][0]
        self._message: dict[str, Any] = self._choice.get("message") or {}
        ignored = raw.get("ignored_parameters")
        if ignored:
            warnings.warn(f"the engine ignored {', '.join(map(str, ignored))}", stacklevel=4)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Answer({self.text!r}, finish_reason={self.finish_reason!r}, ttft={self.ttft})"

    @property
    def text(self) -> str:
        return self._choice.get("text") or self._message.get("content") or ""

    @property
    def reasoning(self) -> str:
        """What the model thought before the answer; empty for models that do not."""
        return self._message.get("reasoning_content") or ""

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        return self._message.get("tool_calls") or []

    @property
    def token_ids(self) -> list[int]:
        """The ids of the generated tokens."""
        return self._choice.get("tokens") or []

    @property
    def logprobs(self) -> list[float]:
        """Of the generated tokens, if the request had logprobs."""
        found = self._choice.get("logprobs") or {}
        if "content" in found:
            return [entry["logprob"] for entry in found["content"]]
        return list(found.get("token_logprobs") or [])

    @property
    def finish_reason(self) -> str | None:
        """stop, length or tool_calls; None where the answer was cancelled."""
        return self._choice.get("finish_reason")

    @property
    def timings(self) -> dict[str, Any]:
        return self.raw.get("timings") or {}

    @property
    def ttft(self) -> float | None:
        """Seconds from the prompt's first turn to the first token."""
        ms = self.timings.get("prompt_ms")
        return None if ms is None else ms / 1000

    @property
    def prompt_tokens(self) -> int:
        timings = self.timings
        usage = self.raw.get("usage") or {}
        return usage.get("prompt_tokens", timings.get("cache_n", 0) + timings.get("prompt_n", 0))

    @property
    def cached_tokens(self) -> int:
        """Tokens of the prompt that were taken over from the document cache."""
        return self.timings.get("cache_n", 0)

    @property
    def completion_tokens(self) -> int:
        return (self.raw.get("usage") or {}).get("completion_tokens", self.timings.get("predicted_n", 0))

    @property
    def prune(self) -> dict[str, Any] | None:
        """The account: spec, active, reason, auto, what each layer kept, FLOPs; None where nobody asked for pruning."""
        return self._choice.get("prune") or self.raw.get("prune")

    @property
    def trace(self) -> Trace:
        """How deep each token of the prompt was computed; the request must have had trace=True."""
        prune, pieces = self.prune or {}, self._choice.get("prompt_pieces")
        if "depth" not in prune or pieces is None:
            raise CoppiceError("the answer has no trace; ask with trace=True", param="trace")
        return Trace(pieces, prune, self.text)
