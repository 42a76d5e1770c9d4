"""coppice in Python: long prompts, pruned while they are read. docs/python.md describes it.

    from coppice_llm import LLM
    llm = LLM("model.gguf", prune="auto")
    print(llm.ask(open("report.txt").read(), "Who signed it?"))
"""

from __future__ import annotations

from ._library import version
from ._program import doctor, help_text as help  # noqa: A004
from .answer import Answer
from .document import Document
from .errors import Busy, Cancelled, ContextLength, CoppiceError, InvalidRequest, ModelError
from .llm import LLM
from .stream import Chunk, Stream
from .trace import Trace

__all__ = ["LLM", "Answer", "Busy", "Cancelled", "Chunk", "ContextLength", "CoppiceError", "Document",
           "InvalidRequest", "ModelError", "Stream", "Trace", "doctor", "help", "version"]
