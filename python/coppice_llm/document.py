"""Documents that were read, and are asked about again."""

from __future__ import annotations

import json
import mmap
import os
import pathlib
import shutil
import struct
import threading
import uuid
from typing import TYPE_CHECKING, Any

from ._options import fields
from ._progress import ProgressOption
from .answer import Answer
from .errors import Busy, CoppiceError, InvalidRequest

if TYPE_CHECKING:
    from .llm import LLM

FORMAT = "coppice document"
VERSION = 1
TRIES = 20  # to save a slot's prompt before another request takes the slot


def document_messages(document: str, question: str) -> list[dict[str, Any]]:
    """The same beginning for every question, and the question marked."""
    return [{"role": "user", "content": document}, {"role": "user", "content": question, "question": True}]


def text_path(path: pathlib.Path) -> pathlib.Path:
    """Where the text of a saved document is: beside its states."""
    return path.with_name(path.name + ".json")


class Document:
    """A document in the model's document cache. The cache may drop it; questions then read it again."""

    def __init__(self, llm: LLM, text: str, prune: Any = None, protect: Any = None,
                 progress: ProgressOption = None) -> None:
        self._llm = llm
        self.text = text
        self.prune = prune
        self.protect = protect
        self._saving = threading.Lock()
        self.reading: Answer = self._read(progress)

    def __repr__(self) -> str:
        return f"Document({self.text[:40]!r}..., {self.tokens} tokens)"

    @property
    def tokens(self) -> int:
        """Tokens of the document in its chat."""
        return self.reading.prompt_tokens

    def ask(self, question: Any, **options: Any) -> Any:
        """As LLM.ask about this document, pruned as it was read unless `prune` says otherwise."""
        chosen = {name: value for name, value in (("prune", self.prune), ("protect", self.protect)) if value is not None}
        return self._llm.ask(self.text, question, **{**chosen, **options})

    def save(self, path: str | os.PathLike[str]) -> int:
        """Writes the states to `path` and the text to `path`.json; returns the bytes of the states.

        LLM.load_document reads them, with the same model, the same options, and the same build of coppice.
        """
        target = pathlib.Path(path)
        with self._saving:
            saved = self._saved()
        try:
            size = saved.stat().st_size
            about = {"format": FORMAT, "version": VERSION, "text": self.text, "prune": self.prune,
                     "protect": self.protect, "bytes": size}
            text_path(target).write_text(json.dumps(about), encoding="utf-8")
            shutil.move(os.fspath(saved), os.fspath(target))
        finally:
            saved.unlink(missing_ok=True)
        return size

    def _body(self) -> dict[str, Any]:
        body = fields({"prune": self.prune, "protect": self.protect, "max_tokens": 0})
        return {**body, "messages": [{"role": "user", "content": self.text}]}

    def _read(self, progress: ProgressOption) -> Answer:
        from ._calls import Scope
        return self._llm._answered("/v1/chat/completions", self._body(), progress, Scope())

    def _saved(self) -> pathlib.Path:
        """A file of the slot folder with the states of this document.

        A slot saves what the cache holds of the prompt that it computed last. So the document is read on a slot again,
        which costs a token, and the slot is saved. Another request may take the slot in between, so the tokens of the
        file are compared with the document's.
        """
        llm = self._llm
        ids = llm._post("/v1/chat/completions/render", self._body())["token_ids"]
        for attempt in range(TRIES):
            slot = (llm.parallel - 1 - attempt) % llm.parallel
            held = Answer(llm._post("/v1/chat/completions", {**self._body(), "id_slot": slot})).cached_tokens
            if held < len(ids) / 2:
                if attempt:  # the first may have read what the cache had dropped
                    raise InvalidRequest(
                        f"prune: the document cache holds {held} of the document's {len(ids)} tokens: a method that "
                        "chooses what enters the model leaves no states to save, and cache_ram=0 or one that is too "
                        "small keeps none", param="prune")
                continue
            saved = llm._slots / f"save-{uuid.uuid4().hex}"
            try:
                llm._post(f"/slots/{slot}?action=save", {"filename": saved.name})
            except InvalidRequest:
                if attempt + 1 == TRIES:
                    raise
                continue
            if _tokens_in_common(saved, ids) >= held:
                return saved
            saved.unlink(missing_ok=True)
        raise Busy("the document cannot be saved while other requests take every slot; save it when fewer run")


def _tokens_in_common(path: pathlib.Path, ids: list[int]) -> int:
    """With how many of these tokens those of a file of states begin. They stand behind its head, as 32-bit numbers."""
    if not path.is_file():
        return 0
    expected = struct.pack(f"<{len(ids)}i", *ids)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
        start = data.find(expected[:4 * min(len(ids), 16)], 0, 1 << 20)
        if start < 0:
            return 0
        there = data[start:start + len(expected)]
    pairs = zip(struct.unpack(f"<{len(there) // 4}i", there[:len(there) // 4 * 4]), ids)
    return next((index for index, (one, other) in enumerate(pairs) if one != other), len(there) // 4)


def load(llm: LLM, path: pathlib.Path) -> Document:
    """Reads what Document.save wrote."""
    about = _about(text_path(path))
    if not path.is_file():
        raise CoppiceError(f"{path}: the states of the document are not there", param="path")
    name = f"load-{uuid.uuid4().hex}"
    inside = llm._slots / name
    try:
        try:
            os.link(path, inside)
        except OSError:  # another file system
            shutil.copyfile(path, inside)
        try:
            llm._post("/slots/0?action=restore", {"filename": name})
        except CoppiceError as error:
            message = str(error).replace(name, os.fspath(path))
            raise type(error)(message, error.status, "path", error.code) from None
    finally:
        inside.unlink(missing_ok=True)
    return Document(llm, about["text"], about.get("prune"), about.get("protect"))


def _about(path: pathlib.Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise CoppiceError(f"{path}: the text of the document cannot be read: {error}", param="path") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT or not isinstance(found.get("text"), str):
        raise CoppiceError(f"{path}: is no document that Document.save wrote", param="path")
    if found.get("version") != VERSION:
        raise CoppiceError(f"{path}: version {found.get('version')!r} is not {VERSION}; save the document anew",
                           param="path")
    return found
