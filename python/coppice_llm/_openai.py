"""OpenAI's forms, as dicts: the handlers of the server, in this process."""

from __future__ import annotations

from typing import Any, Sequence

from ._engine import Engine
from .stream import DictStream


class OpenAIRoutes(Engine):
    """create_* take the fields of the routes and return their replies."""

    def create_chat_completion(self, messages: Sequence[dict[str, Any]], *, stream: bool = False,
                               **fields: Any) -> Any:
        """POST /v1/chat/completions: a dict, or with stream=True an iterator over the chunks."""
        return self._create("/v1/chat/completions", {"messages": list(messages), **fields}, stream)

    def create_completion(self, prompt: Any, *, stream: bool = False, **fields: Any) -> Any:
        """POST /v1/completions: a dict, or with stream=True an iterator over the chunks."""
        return self._create("/v1/completions", {"prompt": prompt, **fields}, stream)

    def __call__(self, prompt: Any, **fields: Any) -> Any:
        """create_completion, by the name that programs for llama-cpp-python call it."""
        return self.create_completion(prompt, **fields)

    def create_embedding(self, input: Any, **fields: Any) -> dict[str, Any]:  # OpenAI's name
        """POST /v1/embeddings."""
        return dict(self._create("/v1/embeddings", {"input": input, **fields}, False))

    def _create(self, path: str, body: dict[str, Any], stream: bool) -> Any:
        sent = {name: value for name, value in body.items() if value is not None}
        if stream:
            return DictStream(self._call("POST", path, {**sent, "stream": True}))
        return self._post(path, sent)
