"""Requests that run on threads of their own, so that the thread that waits for them can be interrupted.

Python delivers Ctrl-C to the main thread between two of its own instructions. A callback of ctypes would lose it, so
none runs on the caller's thread: the caller waits in a queue, which Ctrl-C interrupts, and cancels the request.
"""

from __future__ import annotations

import concurrent.futures
import json
import queue
import threading
from typing import Any, Callable, Protocol, Sequence, TypeVar

from .errors import Cancelled, CoppiceError, request_error

T = TypeVar("T")
R = TypeVar("R")


class Callee(Protocol):
    """What _library.Model has, and a test's stand-in as well."""

    def call(self, method: str, path: str, body: bytes, receive: Callable[[bytes], int]) -> int: ...


class Scope:
    """Requests that are cancelled together."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._calls: list[Call] = []
        self.cancelled = False

    def add(self, call: Call) -> None:
        with self._lock:
            self._calls = [other for other in self._calls if not other.ended] + [call]
            cancelled = self.cancelled
        if cancelled:
            call.cancel()

    def cancel(self) -> None:
        with self._lock:
            self.cancelled = True
            calls = list(self._calls)
        for call in calls:
            call.cancel()


class Call:
    """One request. next() gives the bytes of the reply as they come; `status` is known behind the last."""

    def __init__(self, model: Callee, method: str, path: str, body: bytes,
                 wake: Callable[[], None] | None = None, keep: Any = None) -> None:
        self.status = 0
        self.ended = False    # the engine has answered
        self.drained = False  # and all of it was read
        self._cancelled = False
        self._error: BaseException | None = None
        self._bytes: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._wake = wake
        self._keep = keep  # lives as long as the request
        self.thread = threading.Thread(target=self._run, args=(model, method, path, body), name="coppice call")

    def start(self) -> Call:
        self.thread.start()
        return self

    def cancel(self) -> None:
        """The engine notices it within 50 ms. Does nothing where the request has ended."""
        self._cancelled = True

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def next(self) -> bytes | None:
        """The next bytes of the reply; None behind the last."""
        if self.drained:
            return None
        try:
            data = self._bytes.get()
        except BaseException:  # Ctrl-C
            self.cancel()
            raise
        return self._given(data)

    def ready(self) -> list[bytes]:
        """What has come and was not read yet, without waiting."""
        found = []
        while not self.drained:
            try:
                data = self._given(self._bytes.get_nowait())
            except queue.Empty:
                break
            if data is not None:
                found.append(data)
        return found

    def _given(self, data: bytes | None) -> bytes | None:
        if data is None:
            self.drained = True
            self.check()
        return data

    def check(self) -> None:
        if self._error is not None:
            raise self._error
        if self._cancelled and self.status == 499:
            raise Cancelled("the request was cancelled", 499)

    def whole(self) -> bytes:
        return b"".join(iter(self.next, None))

    def _receive(self, data: bytes) -> int:
        if data:
            self._bytes.put(data)
            self._woken()
        # A program that ends joins its threads first, and nobody reads what this one gets.
        return 1 if self._cancelled or not threading.main_thread().is_alive() else 0

    def _run(self, model: Callee, method: str, path: str, body: bytes) -> None:
        try:
            self.status = 499 if self._cancelled else model.call(method, path, body, self._receive)
        except BaseException as error:
            self._error = error
        finally:
            self.ended = True
            self._bytes.put(None)
            self._woken()
            self._keep = None

    def _woken(self) -> None:
        if self._wake is not None:
            self._wake()


def json_reply(call: Call) -> Any:
    """The reply as JSON. Raises the error that it is."""
    body = call.whole()
    if call.status != 200:
        raise request_error(call.status, body)
    try:
        return json.loads(body)
    except ValueError as error:
        raise CoppiceError(f"the reply is no JSON: {error}", call.status) from error


def run_many(function: Callable[[T], R], items: Sequence[T], at_once: int, scope: Scope) -> list[R]:
    """The results in order. The first error, or Ctrl-C, cancels the rest."""
    if len(items) <= 1:
        return [function(item) for item in items]
    pool = concurrent.futures.ThreadPoolExecutor(min(at_once, len(items)), "coppice prompts")
    futures = [pool.submit(function, item) for item in items]
    try:
        for future in concurrent.futures.as_completed(futures):
            future.result()
        return [future.result() for future in futures]
    except Cancelled:
        # The call that failed has cancelled the others before its own error is here; one of them may be seen first.
        scope.cancel()
        pool.shutdown(wait=True, cancel_futures=True)
        causes = [future.exception() for future in futures if not future.cancelled() and future.exception()]
        raise min(causes, key=lambda cause: isinstance(cause, Cancelled)) from None
    except BaseException:
        scope.cancel()
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
