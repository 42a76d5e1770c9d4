"""The library libcoppice.so, by ctypes. Its functions are those of include/coppice/c.h; nothing else calls them."""

from __future__ import annotations

import ctypes
import os
import pathlib
import threading
from typing import Callable, Sequence

from .errors import CoppiceError, ModelError, load_error

RECEIVE = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)

_started_in = pathlib.Path.cwd()  # a program may change its folder before the library is loaded
_lock = threading.Lock()
_loaded: ctypes.CDLL | None = None


def library_path() -> pathlib.Path:
    """$COPPICE_LIBRARY, else libcoppice.so beside this package's modules."""
    named = os.environ.get("COPPICE_LIBRARY")
    return _started_in / named if named else pathlib.Path(__file__).with_name("libcoppice.so")


def library() -> ctypes.CDLL:
    """The library, loaded at the first call. ctypes releases the GIL in every call of it."""
    global _loaded
    with _lock:
        if _loaded is None:
            _loaded = _load(library_path())
        return _loaded


def _load(path: pathlib.Path) -> ctypes.CDLL:
    if not path.is_file():
        raise ModelError(f"{path}: the library coppice is not there; install coppice-llm from a wheel, or let "
                         "COPPICE_LIBRARY name libcoppice.so", param="COPPICE_LIBRARY")
    try:
        found = ctypes.CDLL(str(path.resolve()))
        _declare(found)
    except (OSError, AttributeError) as error:
        raise ModelError(f"{path}: cannot be used: {error}", param="COPPICE_LIBRARY") from error
    return found


def _declare(found: ctypes.CDLL) -> None:
    """Texts that the caller frees are void pointers, because ctypes would copy a char* and lose its address."""
    text, address = ctypes.c_char_p, ctypes.c_void_p
    signatures = {
        "coppice_version": (text, []),
        "coppice_open": (address, [ctypes.POINTER(text), ctypes.c_size_t, ctypes.POINTER(address)]),
        "coppice_close": (None, [address]),
        "coppice_call": (ctypes.c_int, [address, text, text, text, ctypes.c_size_t, RECEIVE, address]),
        "coppice_listen": (ctypes.c_int, [address, ctypes.c_int, ctypes.POINTER(address)]),
        "coppice_main": (ctypes.c_int, [ctypes.c_int, ctypes.POINTER(text)]),
        "coppice_free": (None, [address]),
    }
    for name, (result, arguments) in signatures.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments


def _texts(words: Sequence[str]) -> ctypes.Array[ctypes.c_char_p]:
    encoded = [os.fsencode(word) for word in words]
    for word in encoded:
        if b"\0" in word:
            raise ModelError(f"{word!r}: an option cannot hold a NUL byte")
    return (ctypes.c_char_p * (len(encoded) + 1))(*encoded, None)


def _taken(error: ctypes.c_void_p, otherwise: str) -> str:
    """The text of an error, which is freed."""
    if not error.value:
        return otherwise
    try:
        return ctypes.string_at(error.value).decode("utf-8", "replace")
    finally:
        library().coppice_free(error)


def version() -> str:
    return str(library().coppice_version().decode())


def run_main(arguments: Sequence[str]) -> int:
    """Runs the program coppice in this process. `arguments` begin with the program's name."""
    return int(library().coppice_main(len(arguments), _texts(arguments)))


class Model:
    """An open model. Its functions may be called from several threads."""

    def __init__(self, options: Sequence[str]) -> None:
        self._library = library()
        error = ctypes.c_void_p()
        self._handle = self._library.coppice_open(_texts(options), len(options), ctypes.byref(error))
        self._lock = threading.Lock()
        if not self._handle:
            raise load_error(_taken(error, "the model cannot be loaded"))

    def call(self, method: str, path: str, body: bytes, receive: Callable[[bytes], int]) -> int:
        """Answers one request and returns its status. `receive` gets bytes, or b"" about every 50 ms.

        ctypes swallows what a callback raises: `receive` must not raise, or its request is cancelled.
        """
        def callback(_user: int | None, address: int | None, size: int) -> int:
            try:
                return receive(ctypes.string_at(address, size) if size and address else b"")
            except BaseException:
                return 1

        return int(self._library.coppice_call(self._handle, method.encode(), path.encode(), body, len(body),
                                              RECEIVE(callback), None))

    def listen(self, port: int) -> int:
        """Serves over HTTP as well; returns the port."""
        error = ctypes.c_void_p()
        found = int(self._library.coppice_listen(self._handle, port, ctypes.byref(error)))
        if found < 0:
            raise CoppiceError(_taken(error, f"port {port}: cannot listen"), param="port")
        return found

    def close(self) -> None:
        """Frees the model. The caller makes sure that no call of it is running."""
        with self._lock:
            handle, self._handle = self._handle, None
        if handle:
            self._library.coppice_close(handle)
