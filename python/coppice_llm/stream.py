"""Answers that come piece by piece."""

from __future__ import annotations

import json
import time
from typing import Any, Iterator, TypeVar

from ._calls import Call
from ._progress import ProgressOption, closed, eta, reporter
from .answer import Answer
from .errors import request_error

S = TypeVar("S", bound="DictStream")


class Events:
    """Server-sent events out of bytes, however these are cut. Comments and other fields than data are left out."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        self._rest += data
        while b"\n\n" in self._rest:
            event, self._rest = self._rest.split(b"\n\n", 1)
            lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
            body = b"\n".join(lines)
            if body and body != b"[DONE]":
                yield json.loads(body)

    def rest(self) -> bytes:
        """What is no event: an error's reply in one piece."""
        return self._rest


class Chunk:
    """A part of an answer, or of the progress of its prompt; then `text` is empty."""

    def __init__(self, raw: dict[str, Any], metrics: dict[str, Any]) -> None:
        self.raw = raw
        self.metrics = metrics
        choices = raw.get("choices") or [{}]
        self._choice: dict[str, Any] = choices[0]
        self._delta: dict[str, Any] = self._choice.get("delta") or {}

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"Chunk({self.text!r}, metrics={self.metrics})"

    @property
    def text(self) -> str:
        return self._choice.get("text") or self._delta.get("content") or ""

    @property
    def reasoning(self) -> str:
        return self._delta.get("reasoning_content") or ""

    @property
    def token_ids(self) -> list[int]:
        return self._choice.get("tokens") or []

    @property
    def finish_reason(self) -> str | None:
        return self._choice.get("finish_reason")

    @property
    def progress(self) -> tuple[int, int, float | None] | None:
        """(tokens that were read, tokens of the prompt, seconds left or None) while the prompt is read."""
        found = self.raw.get("prompt_progress")
        return (found["processed"], found["total"], eta(found)) if found else None


class DictStream:
    """Iterates over the chunks of a reply as dicts. close(), or dropping the object, cancels the request."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._events = Events()
        self._waiting: list[dict[str, Any]] = []
        self._seen = False
        self._done = False

    def __enter__(self: S) -> S:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Cancels the request where it has not ended. Any thread may do so."""
        self._call.cancel()

    def __iter__(self: S) -> S:
        return self

    def __next__(self) -> Any:
        return self._next_dict()

    def _next_dict(self) -> dict[str, Any]:
        while not self._waiting:
            data = None if self._done else self._call.next()
            if data is None:
                self._end()
                raise StopIteration
            self._feed(data)
        return self._take()

    def _feed(self, data: bytes) -> None:
        self._waiting += self._events.feed(data)
        self._seen = self._seen or bool(self._waiting)

    def _take(self) -> dict[str, Any]:
        raw = self._waiting.pop(0)
        if "error" in raw:
            self._done = True
            self._waiting.clear()
            self._call.cancel()
            raise request_error(0, raw)
        return raw

    def _end(self) -> None:
        """Raises the error of a reply that was no stream."""
        if not self._done:
            self._done = True
            if self._call.status != 200:
                raise request_error(self._call.status, self._events.rest())


class Stream(DictStream):
    """Iterates over the chunks of an answer. close(), or leaving the loop, cancels the request."""

    def __init__(self, call: Call, prompt: Any = None, progress: ProgressOption = None) -> None:
        self._report: Any = None
        super().__init__(call)
        self._prompt = prompt
        self._report = reporter(progress)
        self._reply = Reply()

    def close(self) -> None:
        super().close()
        closed(self._report)

    def __next__(self) -> Chunk:
        try:
            return self._chunk(self._next_dict())
        except BaseException:  # Ctrl-C, an error, or the end
            closed(self._report)
            raise

    def ready(self) -> list[Chunk]:
        """The chunks that have come, without waiting; `done` afterwards says whether they were the last."""
        for data in self._call.ready():
            self._feed(data)
        found = []
        while self._waiting:
            found.append(self._chunk(self._take()))
        if self._call.drained:
            self._end()
        return found

    @property
    def done(self) -> bool:
        return self._done

    @property
    def answer(self) -> Answer:
        """What has come so far as one answer, which is whole behind the last chunk."""
        return Answer(self._reply.whole(), self._prompt)

    def whole(self) -> Answer:
        """Reads to the end."""
        for _ in self:
            pass
        return self.answer

    def _chunk(self, raw: dict[str, Any]) -> Chunk:
        self._reply.add(raw)
        chunk = Chunk(raw, self._reply.metrics(raw))
        progress = chunk.progress
        if progress and self._report is not None:
            try:
                self._report(*progress)
            except BaseException:
                self.close()
                raise
        return chunk


class Reply:
    """The chunks of a stream, put together as the reply that the same request gets without one."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._choice: dict[str, Any] = {"index": 0, "finish_reason": None, "tokens": []}
        self._texts: list[str] = []
        self._message: dict[str, Any] | None = None
        self._generated = 0
        self._first: float | None = None  # when the first token came

    def add(self, raw: dict[str, Any]) -> None:
        for name, value in raw.items():
            if name == "prompt_pieces":  # beside the progress; a reply without a stream has them in its choice
                self._choice[name] = value
            elif name not in ("choices", "prompt_progress", "prompt_layers") and value is not None:
                self._fields[name] = value
        for choice in raw.get("choices") or []:
            for name, value in choice.items():
                if value is None:
                    continue
                if name == "text":
                    self._texts.append(value)
                elif name == "delta":
                    self._add_delta(value)
                elif name == "tokens":
                    self._count(value)
                elif name == "logprobs":
                    self._add_logprobs(value)
                else:
                    self._choice[name] = value

    def _count(self, tokens: list[int]) -> None:
        self._choice["tokens"] += tokens
        self._generated += len(tokens)
        if tokens and self._first is None:
            self._first = time.perf_counter()

    def _add_delta(self, delta: dict[str, Any]) -> None:
        if self._message is None:
            self._message = {"role": "assistant", "content": ""}
        for name, value in delta.items():
            if isinstance(value, str) and name != "role":
                self._message[name] = self._message.get(name, "") + value
            elif isinstance(value, list):
                self._message[name] = self._message.get(name, []) + value

    def _add_logprobs(self, found: dict[str, Any]) -> None:
        kept = self._choice.setdefault("logprobs", {})
        for name, values in found.items():
            kept[name] = kept.get(name, []) + list(values or [])

    def whole(self) -> dict[str, Any]:
        choice = dict(self._choice)
        if self._message is not None:
            choice["message"] = dict(self._message)
        else:
            choice["text"] = "".join(self._texts)
        return {**self._fields, "choices": [choice]}

    def metrics(self, raw: dict[str, Any]) -> dict[str, Any]:
        """The figures of one chunk: of the prompt, while it is read; of the answer; and in the last those of both."""
        progress = raw.get("prompt_progress")
        if progress:
            seconds = progress.get("time_ms", 0) / 1000
            return {"processed": progress["processed"], "total": progress["total"],
                    "cached_tokens": progress.get("cache", 0), "eta": eta(progress),
                    "prompt_per_second": progress["processed"] / seconds if seconds else None}
        found: dict[str, Any] = {"completion_tokens": self._generated}
        if self._first is not None and self._generated > 1:
            seconds = time.perf_counter() - self._first
            found["tokens_per_second"] = (self._generated - 1) / seconds if seconds else None
        timings = raw.get("timings")
        if timings:
            found.update(ttft=timings["prompt_ms"] / 1000, prompt_tokens=timings["cache_n"] + timings["prompt_n"],
                         cached_tokens=timings["cache_n"], prompt_per_second=timings["prompt_per_second"],
                         completion_tokens=timings["predicted_n"],
                         tokens_per_second=timings["predicted_per_second"])
        return found
