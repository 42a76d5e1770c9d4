"""The exceptions of coppice_llm. Each has the sentence of the engine, which names the field and what to do."""

from __future__ import annotations

import json
import re
from typing import Any


class CoppiceError(Exception):
    """What the engine refused or could not do. `param` is the field or option, `status` and `code` are the server's."""

    def __init__(self, message: str, status: int = 0, param: str | None = None, code: Any = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


class InvalidRequest(CoppiceError, ValueError):
    """A field or its value is wrong; `param` names it."""


class ContextLength(InvalidRequest):
    """The prompt does not fit into the context of the model."""


class Busy(CoppiceError):
    """The queue is full, or no memory is left for this request; a later one may succeed."""


class Cancelled(CoppiceError):
    """The request was cancelled: by close(), or by the task that waited for it."""


class ModelError(CoppiceError):
    """The model cannot be loaded, or the library coppice is not there."""


def load_error(message: str) -> ModelError:
    """The error of a model that was not loaded; `param` is the keyword of the option that the message names."""
    option = re.search(r"(?<![\w-])--([a-z][a-z0-9-]*)", message)
    return ModelError(message.strip(), param=option.group(1).replace("-", "_") if option else None)


def request_error(status: int, body: bytes | dict[str, Any]) -> CoppiceError:
    """The exception for a reply that is an error, in OpenAI's form."""
    error: Any = body
    if isinstance(body, bytes):
        try:
            error = json.loads(body.decode("utf-8", "replace"))
        except ValueError:
            error = {"message": body.decode("utf-8", "replace")}
    if isinstance(error, dict) and isinstance(error.get("error"), dict):
        error = error["error"]
    if not isinstance(error, dict):
        error = {"message": str(error)}
    code, param = error.get("code"), error.get("param")
    if not status and isinstance(code, int):
        status = code
    message = error.get("message") or f"the request ended with status {status}"
    return _kind(status, code)(message, status, param, code)


def _kind(status: int, code: Any) -> type[CoppiceError]:
    if code == "context_length_exceeded":
        return ContextLength
    if status == 499:
        return Cancelled
    if status in (429, 503):
        return Busy
    if 400 <= status < 500:
        return InvalidRequest
    return CoppiceError
