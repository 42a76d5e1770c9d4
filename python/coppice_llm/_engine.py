"""The life of a model in this process, and the one way to its routes."""

from __future__ import annotations

import json
import os
import pathlib
import queue
import shutil
import tempfile
import threading
import weakref
from typing import Any, Callable, TypeVar, cast

from . import _library
from ._calls import Call, Scope, json_reply
from ._options import words
from ._progress import ProgressOption
from .answer import Answer
from .errors import CoppiceError
from .stream import Stream

E = TypeVar("E", bound="Engine")


class Loaded:
    """A model in memory, with the folder for its documents' states."""

    def __init__(self, path: pathlib.Path, options: dict[str, Any]) -> None:
        given = options.get("slot_save_path")
        self._owner = os.getpid()
        self._own = None if given else tempfile.mkdtemp(prefix="coppice-")
        self.slots = pathlib.Path(self._own or str(given))
        line = [f"--model={os.fspath(path)}", f"--slot-save-path={self.slots}",
                *words({name: value for name, value in options.items() if name != "slot_save_path"})]
        try:
            self.model = _library.Model(line)
        except BaseException:
            self._remove()
            raise

    def free(self) -> None:
        if os.getpid() != self._owner:
            return  # the model belongs to the process that was forked
        self.model.close()
        self._remove()

    def _remove(self) -> None:
        if self._own:
            shutil.rmtree(self._own, ignore_errors=True)


def load(path: pathlib.Path, options: dict[str, Any]) -> Loaded:
    """Loads on another thread, so that Ctrl-C ends the wait; a model that nobody waits for is freed again.

    Ctrl-C reaches the main thread alone, so none comes between the steps of the other. The wait is a queue's: Ctrl-C at
    the wrong moment makes Event.wait raise RuntimeError instead.
    """
    done: queue.SimpleQueue[None] = queue.SimpleQueue()
    lock = threading.Lock()
    state: dict[str, Any] = {}

    def work() -> None:
        try:
            loaded = Loaded(path, options)
        except BaseException as error:
            state["error"] = error
        else:
            with lock:
                state["loaded"] = loaded
                abandoned = "abandoned" in state
            if abandoned:
                loaded.free()
        done.put(None)

    try:  # from the thread's start on: Ctrl-C may come before start() has returned
        threading.Thread(target=work, name="coppice load").start()
        done.get()
    except BaseException:
        with lock:
            state["abandoned"] = True
            loaded = state.get("loaded")
        if loaded is not None:
            loaded.free()
        raise
    if "error" in state:
        raise state["error"]
    return cast(Loaded, state["loaded"])


class Server:
    """A model that answers HTTP as well, until it is closed."""

    def __init__(self, host: str, port: int) -> None:
        self.port = port
        self.host = host
        name = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)
        self.url = f"http://{name}:{port}"

    def __repr__(self) -> str:
        return f"Server({self.url!r})"


class Engine:
    """Opens and closes a model, and runs requests on it."""

    def __init__(self, path: str | os.PathLike[str], progress: ProgressOption = None, **options: Any) -> None:
        self.path = pathlib.Path(path)
        self.options = options
        self.parallel = int(options.get("parallel") or 4)
        self._progress = progress
        self._lock = threading.Lock()
        self._calls: set[Call] = set()
        self._owner = os.getpid()
        self._model: Any = None
        self._properties: dict[str, Any] | None = None
        self._open()

    def _open(self) -> None:
        loaded = load(self.path, self.options)
        self._finalizer = weakref.finalize(self, loaded.free)
        self._slots = loaded.slots
        self._properties = None
        self._model = loaded.model

    def close(self) -> None:
        """Cancels what is being computed and frees the model. What was returned stays."""
        if os.getpid() != self._owner:
            return
        with self._lock:
            self._model = None
            calls = list(self._calls)
        for call in calls:
            call.cancel()
        for call in calls:
            if call.thread is not threading.current_thread():
                call.thread.join()
        self._finalizer()

    def reload(self) -> None:
        """Closes the model and loads it anew with the same options. Requests in progress are cancelled."""
        self._checked()
        self.close()
        self._open()

    @property
    def closed(self) -> bool:
        return self._model is None

    def __enter__(self: E) -> E:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        given = "".join(f", {name}={value!r}" for name, value in self.options.items() if name != "api_key")
        return f"{type(self).__name__}({os.fspath(self.path)!r}{given}){' (closed)' if self.closed else ''}"

    def __reduce__(self) -> Any:
        raise TypeError("a model cannot be pickled or copied: send its path, and load it in the other process")

    def serve(self, port: int = 0) -> Server:
        """Answers over HTTP as well, until the model is closed, at the options host and api_key. 0: any free port."""
        return Server(self.options.get("host") or "127.0.0.1", self._checked().listen(port))

    def _checked(self) -> Any:
        """The model, if it may be used."""
        if os.getpid() != self._owner:
            raise CoppiceError("the model was loaded before this process was forked, and its threads did not come "
                               "along: load the model in this process, or start processes with 'spawn'")
        model = self._model
        if model is None:
            raise CoppiceError(f"{self.path}: the model is closed")
        return model

    def _call(self, method: str, path: str, body: Any = None, scope: Scope | None = None,
              wake: Callable[[], None] | None = None) -> Call:
        """Begins a request."""
        data = b"" if body is None else json.dumps(body).encode()
        self._checked()
        with self._lock:  # close() finds each call that has begun
            call = Call(self._checked(), method, path, data, wake, keep=self)
            self._calls = {other for other in self._calls if not other.ended}
            self._calls.add(call)
            if scope is not None:
                scope.add(call)
            call.start()
        return call

    def _get(self, path: str) -> Any:
        return json_reply(self._call("GET", path))

    def _post(self, path: str, body: Any, scope: Scope | None = None) -> Any:
        scope = scope or Scope()
        try:
            return json_reply(self._call("POST", path, body, scope))
        except BaseException:  # Ctrl-C at any of these lines
            scope.cancel()
            raise

    def _streamed(self, path: str, body: dict[str, Any], progress: ProgressOption = None,
                  scope: Scope | None = None, wake: Callable[[], None] | None = None) -> Stream:
        body = {**body, "stream": True, "stream_options": {"include_usage": True}, "return_progress": True}
        shown = self._progress if progress is None else progress
        return Stream(self._call("POST", path, body, scope, wake), body.get("prompt", body.get("messages")), shown)

    def _answered(self, path: str, body: dict[str, Any], progress: ProgressOption, scope: Scope) -> Answer:
        """One answer. Progress comes with streams only."""
        if not (self._progress if progress is None else progress):
            return Answer(self._post(path, body, scope), body.get("prompt", body.get("messages")))
        try:
            return self._streamed(path, body, progress, scope).whole()
        except BaseException:
            scope.cancel()
            raise

    @property
    def properties(self) -> dict[str, Any]:
        """What GET /props says of the model."""
        if self._properties is None:
            self._properties = self._get("/props")
        return self._properties

    @property
    def context(self) -> int:
        """The most tokens of a prompt with its answer."""
        return int(self.properties["default_generation_settings"]["n_ctx"])
