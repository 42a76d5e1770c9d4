"""Answers: to a question about a document, to a chat, to a text."""

from __future__ import annotations

from typing import Any, Sequence

from ._calls import Scope, run_many
from ._engine import Engine
from ._options import fields, listed, prompt_field
from ._progress import ProgressOption
from .answer import Answer
from .document import document_messages
from .errors import InvalidRequest
from .stream import Stream

MAX_TOKENS = 256  # of generate and stream: a text without a chat's end may go on to the end of the context

Messages = Sequence["dict[str, Any]"]


class Generation(Engine):
    """ask, chat, generate and stream."""

    def ask(self, document: str, question: Any, *, temperature: float = 0, max_tokens: int | None = None,
            progress: ProgressOption = None, **options: Any) -> Any:
        """A question about a document: the answer, or the list of answers to a list of questions.

        Document and question are two messages of a user, and the question is marked, so that methods score the
        document's tokens with its tokens. A template that demands one message gets them joined. Options are the
        fields of chats: prune, protect, trace, seed, stop, logprobs and the others of docs/server.md.
        """
        return self._asked(document, question, Scope(), progress,
                           {"temperature": temperature, "max_tokens": max_tokens, **options})

    def _asked(self, document: str, question: Any, scope: Scope, progress: ProgressOption,
               options: dict[str, Any]) -> Any:
        def one(text: str) -> Answer:
            return self._chat(document_messages(document, text), scope, progress, options)

        if isinstance(question, str):
            return one(question)
        return run_many(one, list(question), self.parallel, scope)

    def chat(self, messages: Messages, *, temperature: float | None = None, max_tokens: int | None = None,
             stream: bool = False, progress: ProgressOption = None, **options: Any) -> Any:
        """The answer to a chat: an Answer, or with stream=True a Stream. Options are the fields of chats."""
        options = {"temperature": temperature, "max_tokens": max_tokens, **options}
        if stream:
            return self._streamed("/v1/chat/completions", self._chat_body(messages, options), progress)
        return self._chat(messages, Scope(), progress, options)

    @staticmethod
    def _chat_body(messages: Messages, options: dict[str, Any]) -> dict[str, Any]:
        return {**fields(options), "messages": list(messages)}

    def _chat(self, messages: Messages, scope: Scope, progress: ProgressOption, options: dict[str, Any]) -> Answer:
        return self._answered("/v1/chat/completions", self._chat_body(messages, options), progress, scope)

    def generate(self, prompts: Any, *, max_tokens: int = MAX_TOKENS, temperature: float | None = None,
                 progress: ProgressOption = None, **options: Any) -> Any:
        """Continues a text or a list of token ids, or each of a list of them: an Answer, or a list in order.

        Options are the fields of completions: prune, protect ([(begin, end), ...], tokens that stay), stop, seed,
        top_k, logprobs, trace and the others of docs/server.md.
        """
        return self._generated(prompts, Scope(), progress,
                               {"max_tokens": max_tokens, "temperature": temperature, **options})

    def _generated(self, prompts: Any, scope: Scope, progress: ProgressOption, options: dict[str, Any]) -> Any:
        if options.get("n", 1) not in (None, 1):
            raise InvalidRequest("n: several answers come from a list that has the prompt several times", param="n")
        body = fields(options)

        def one(prompt: Any) -> Answer:
            return self._answered("/v1/completions", {**body, "prompt": prompt_field(prompt)}, progress, scope)

        many = listed(prompts)
        return one(prompts) if many is None else run_many(one, many, self.parallel, scope)

    def stream(self, prompt: Any, *, max_tokens: int = MAX_TOKENS, temperature: float | None = None,
               progress: ProgressOption = None, **options: Any) -> Stream:
        """The chunks of generate's answer to one prompt, with figures; leaving the loop cancels the request."""
        body = fields({"max_tokens": max_tokens, "temperature": temperature, **options})
        return self._streamed("/v1/completions", {**body, "prompt": prompt_field(prompt)}, progress)
