"""The same for asyncio. A task that is cancelled cancels its request."""

from __future__ import annotations

import asyncio
import concurrent.futures
import functools
from typing import Any, AsyncIterator, Callable, TypeVar

from ._calls import Scope
from ._generation import MAX_TOKENS, Generation
from ._options import fields, prompt_field
from ._progress import ProgressOption
from .stream import Chunk

R = TypeVar("R")
MOST_THREADS = 32


class AsyncCalls(Generation):
    """agenerate, aask, achat and astream, on threads of the model's own."""

    _pool: concurrent.futures.ThreadPoolExecutor | None = None

    async def agenerate(self, prompts: Any, *, max_tokens: int = MAX_TOKENS, temperature: float | None = None,
                        progress: ProgressOption = None, **options: Any) -> Any:
        """As generate."""
        fields_ = {"max_tokens": max_tokens, "temperature": temperature, **options}
        return await self._run(lambda scope: self._generated(prompts, scope, progress, fields_))

    async def aask(self, document: str, question: Any, *, temperature: float = 0, max_tokens: int | None = None,
                   progress: ProgressOption = None, **options: Any) -> Any:
        """As ask."""
        fields_ = {"max_tokens": max_tokens, "temperature": temperature, **options}
        return await self._run(lambda scope: self._asked(document, question, scope, progress, fields_))

    async def achat(self, messages: Any, *, progress: ProgressOption = None, **options: Any) -> Any:
        """As chat."""
        return await self._run(lambda scope: self._chat(messages, scope, progress, options))

    async def astream(self, prompt: Any, *, max_tokens: int = MAX_TOKENS, temperature: float | None = None,
                      progress: ProgressOption = None, **options: Any) -> AsyncIterator[Chunk]:
        """As stream. The request is cancelled where the task is, or where the iterator is closed."""
        body = fields({"max_tokens": max_tokens, "temperature": temperature, **options})
        loop, came = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            try:
                loop.call_soon_threadsafe(came.set)
            except RuntimeError:  # the loop is closed: nobody waits
                pass

        stream = self._streamed("/v1/completions", {**body, "prompt": prompt_field(prompt)}, progress, wake=wake)
        try:
            while not stream.done:
                await came.wait()
                came.clear()
                for chunk in stream.ready():
                    yield chunk
        finally:
            stream.close()

    async def _run(self, function: Callable[[Scope], R]) -> R:
        scope = Scope()
        self._checked()
        if self._pool is None:
            self._pool = concurrent.futures.ThreadPoolExecutor(MOST_THREADS, "coppice tasks")
        waits = asyncio.get_running_loop().run_in_executor(self._pool, functools.partial(function, scope))
        try:
            return await waits
        except asyncio.CancelledError:
            scope.cancel()
            raise

    def close(self) -> None:
        pool, self._pool = self._pool, None
        super().close()
        if pool is not None:
            pool.shutdown(wait=False)
