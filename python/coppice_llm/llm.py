"""LLM: a model in this process."""

from __future__ import annotations

import os
import pathlib
from typing import Any

from . import _hub, _program
from ._asyncio import AsyncCalls
from ._openai import OpenAIRoutes
from ._progress import ProgressOption
from ._texts import TextRoutes
from .document import Document, load


class LLM(AsyncCalls, OpenAIRoutes, TextRoutes):
    """A GGUF file or a Hugging Face folder, loaded into this process.

    Keyword arguments are the options of `coppice serve` (`coppice_llm.help()` lists them), with `ctx` for
    --ctx-size: prune, ctx, threads, parallel, cache_ram, cache_type, exact, fast, backend, api_key, host, doc_cache,
    chat_template and the others, `foo_bar=x` as --foo-bar=x. `progress` shows how far prompts are: True, or a
    callable that gets (tokens read, tokens of the prompt, seconds left or None).

    Threads and asyncio tasks may share a model: the engine gives turns.
    """

    def __init__(self, path: str | os.PathLike[str], *, prune: str | None = None, ctx: int | None = None,
                 threads: int | None = None, cache_ram: int | None = None, parallel: int | None = None,
                 progress: ProgressOption = None, **options: Any) -> None:
        named = {"prune": prune, "ctx": ctx, "threads": threads, "cache_ram": cache_ram, "parallel": parallel}
        given = {name: value for name, value in {**named, **options}.items() if value is not None}
        super().__init__(path, progress, **given)

    @classmethod
    def from_pretrained(cls, repo: str | os.PathLike[str], file: str | None = None, *, sha256: str | None = None,
                        progress: ProgressOption = None, **options: Any) -> LLM:
        """A model of a local folder, or of the Hugging Face hub through the package huggingface_hub.

        `file` is a GGUF file of the repository; without it the whole repository is a Hugging Face folder. What comes
        from the hub must have the checksum that the hub published; `sha256` is the one that `file` must have. A file
        that had it and did not change since is not read again.
        """
        return cls(_hub.file_of(repo, file, sha256, progress), progress=progress, **options)

    def read(self, document: str, *, prune: Any = None, protect: Any = None,
             progress: ProgressOption = None) -> Document:
        """Reads a document into the document cache, so that questions about it compute little but themselves."""
        return Document(self, document, prune, protect, progress)

    def load_document(self, path: str | os.PathLike[str]) -> Document:
        """A document that Document.save wrote, for the same model, options and program."""
        return load(self, pathlib.Path(path))

    def tune(self, *, lengths: Any = None, budget: Any = None, output: str | os.PathLike[str] | None = None,
             reload: bool = True, verbose: bool = False, **options: Any) -> str:
        """Searches the fastest setting that keeps the answers, writes it beside the model, and returns it.

        Runs `coppice tune` in another process, with the options of this model that matter to it; options are those
        of `coppice tune`. `budget` is a share of the dense score (0.01), a text as --budget takes it, or a list. The
        model is loaded anew, so that prune="auto" reads the calibration. verbose shows the command's output.
        """
        self._checked()
        chat = options.pop("chat", None)
        if chat is None:
            chat = bool(self.properties.get("chat_template"))
        spec = _program.tune(self.path, self.options, verbose,
                             {"lengths": lengths, "budget": budget, "output": output, "chat": chat, **options})
        if reload:
            self.reload()
        return spec
