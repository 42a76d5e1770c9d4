"""What is no generation: tokens, probabilities, vectors, and what a setting would do."""

from __future__ import annotations

import array
import base64
import math
from typing import Any, Sequence

from ._engine import Engine
from ._options import Prompt, listed, prompt_field

EMBEDDINGS_AT_ONCE = 256

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]


def _floats(values: Sequence[float]) -> Any:
    """numpy's float32, or an array of the standard library; the memory is Python's own, so it outlives the model."""
    return array.array("f", values) if numpy is None else numpy.array(values, dtype=numpy.float32)


class TextRoutes(Engine):
    """Tokens, scores, embeddings, plans."""

    def tokenize(self, text: str | bytes, add_special: bool = False) -> list[int]:
        """The ids of a text's tokens, which may be its UTF-8; add_special adds the model's BOS."""
        text = text.decode() if isinstance(text, bytes) else text
        return list(self._post("/tokenize", {"content": text, "add_special": add_special})["tokens"])

    def detokenize(self, tokens: Sequence[int]) -> str:
        """The text of token ids."""
        return str(self._post("/detokenize", {"tokens": prompt_field(tokens)})["content"])

    def apply_template(self, messages: Sequence[dict[str, Any]], **options: Any) -> str:
        """The text that the chat template makes of messages."""
        return str(self._post("/apply-template", {"messages": list(messages), **options})["prompt"])

    def score(self, prompt: Prompt) -> Any:
        """The log-probability of each token given those before it, in a dense run: float32, with NaN for the first."""
        return _floats(self._scored(prompt)[1])

    def perplexity(self, prompt: Prompt) -> float:
        """exp of the mean negative log-probability of all tokens but the first."""
        known = [value for value in self._scored(prompt)[1] if not math.isnan(value)]
        return math.exp(-math.fsum(known) / len(known)) if known else math.nan

    def _scored(self, prompt: Prompt) -> tuple[list[Any], list[float], list[bool]]:
        """For each token its text, its log-probability, and whether it is the likeliest."""
        found = self._post("/v1/completions", {"prompt": prompt_field(prompt), "echo": True, "logprobs": 1,
                                               "max_tokens": 0})["choices"][0]["logprobs"]
        values = [math.nan if value is None else value for value in found["token_logprobs"]]
        likeliest = [value is not None and value >= max(best.values(), default=value)
                     for value, best in zip(found["token_logprobs"], found["top_logprobs"])]
        return found["tokens"], values, likeliest

    def embed(self, texts: Any, **options: Any) -> Any:
        """One vector of length 1 for each text: float32 [texts, dimensions]. A single text gives one vector."""
        many = listed(texts)
        inputs = [prompt_field(text) for text in ([texts] if many is None else many)]
        rows: list[Any] = []
        for first in range(0, len(inputs), EMBEDDINGS_AT_ONCE):
            body = {"input": inputs[first:first + EMBEDDINGS_AT_ONCE], "encoding_format": "base64", **options}
            rows += [_vector(entry["embedding"]) for entry in self._post("/v1/embeddings", body)["data"]]
        if many is None:
            return rows[0]
        return rows if numpy is None else numpy.stack(rows) if rows else numpy.empty((0, 0), numpy.float32)

    def plan(self, prompt_tokens: int, prune: Any = None) -> dict[str, Any]:
        """Says whether a pruning method would act on a prompt of `prompt_tokens` tokens, and why. Computes no token."""
        body = {"prompt_tokens": prompt_tokens}
        return dict(self._post("/plan", body if prune is None else {**body, "prune": prune}))

    def methods(self) -> list[dict[str, Any]]:
        """The pruning methods with their settings."""
        return list(self._get("/methods")["methods"])


def _vector(encoded: str) -> Any:
    data = base64.b64decode(encoded)
    if numpy is not None:
        return numpy.frombuffer(data, numpy.float32).copy()
    found = array.array("f")
    found.frombytes(data)
    return found
