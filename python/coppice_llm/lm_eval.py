"""The model `coppice` of lm-evaluation-harness.

    python -m coppice_llm.lm_eval --model coppice --model_args path=model.gguf,ctx=8192 --tasks arc_easy

The harness has no entry points for models of other packages (0.4.13), so this module adds the name to its registry and
runs its command line. Programs that call lm_eval.simple_evaluate pass model=CoppiceLM(path).
"""

from __future__ import annotations

import os
from typing import Any, List, Optional, Tuple

from lm_eval.api.model import TemplateLM
from lm_eval.utils import get_rolling_token_windows, make_disjoint_window

from ._calls import Scope, run_many
from .llm import LLM

NAME = "coppice"
MOST_TOKENS = 256  # of an answer, where the task does not say


class CoppiceLM(TemplateLM):  # type: ignore[misc]
    """Log-likelihoods are those of a dense run; `prune` acts on what generate_until generates."""

    def __init__(self, path: str | os.PathLike[str] = "", pretrained: str = "", batch_size: Any = None,
                 max_batch_size: Any = None, device: Any = None, add_bos: bool = True, prune: str | None = None,
                 **options: Any) -> None:
        super().__init__()
        self.llm = LLM(path or pretrained, **options)
        self.prune = prune
        self.add_bos = add_bos
        self.max_length = self.llm.context

    @property
    def eot_token_id(self) -> int:
        return self._special("eos_token")

    @property
    def prefix_token_id(self) -> int:
        return self._special("bos_token") if self.llm.properties.get("bos_token") else self.eot_token_id

    def _special(self, name: str) -> int:
        return self.llm.tokenize(self.llm.properties[name])[0]

    @property
    def tokenizer_name(self) -> str:
        return self.llm.path.name

    def chat_template(self, chat_template: bool | str = False) -> Optional[str]:
        return str(self.llm.properties.get("chat_template") or "")

    def apply_chat_template(self, chat_history: List[dict], add_generation_prompt: bool = True) -> str:
        return self.llm.apply_template(chat_history, add_generation_prompt=add_generation_prompt)

    def tok_encode(self, string: str, add_special_tokens: Optional[bool] = None, **_: Any) -> List[int]:
        """Adds BOS where the model's own prompts have it, and the text does not begin with it."""
        add = self.add_bos if add_special_tokens is None else add_special_tokens
        bos = self.llm.properties.get("bos_token")
        if add_special_tokens is None and bos and string.startswith(bos):
            add = False
        return self.llm.tokenize(string, add_special=add)

    def _loglikelihood_tokens(self, requests: Any, disable_tqdm: bool = False, **_: Any) -> List[Tuple[float, bool]]:
        def one(request: Any) -> Tuple[float, bool]:
            text, context, continuation = request
            ids = (list(context) + list(continuation))[-self.max_length:]
            count = min(len(continuation), len(ids) - 1)
            _, values, likeliest = self.llm._scored(ids)
            found = (float(sum(values[len(ids) - count:])), all(likeliest[len(ids) - count:]))
            if text is not None:
                self.cache_hook.add_partial("loglikelihood", text, found)
            return found

        return run_many(one, list(requests), self.llm.parallel, Scope())

    def loglikelihood_rolling(self, requests: Any, disable_tqdm: bool = False) -> List[float]:
        found = []
        for (text,) in [request.args for request in requests]:
            windows = get_rolling_token_windows(
                token_list=self.llm.tokenize(text), prefix_token=self.prefix_token_id,
                max_seq_len=self.max_length - 1, context_len=1)
            parts = self._loglikelihood_tokens([(None, *make_disjoint_window(window)) for window in windows])
            found.append(sum(value for value, _ in parts))
            self.cache_hook.add_partial("loglikelihood_rolling", (text,), found[-1])
        return found

    def generate_until(self, requests: Any, disable_tqdm: bool = False) -> List[str]:
        def one(request: Any) -> str:
            context, given = request.args
            most, fields = _generation_fields(given)
            ids = self.tok_encode(context)[-(self.max_length - most):]
            text = self.llm.generate(ids, max_tokens=most, prune=self.prune, progress=False, **fields).text
            self.cache_hook.add_partial("generate_until", (context, given), text)
            return text

        return run_many(one, list(requests), self.llm.parallel, Scope())


def _generation_fields(given: Any) -> Tuple[int, dict]:
    """The harness's names as fields of a completion: the most tokens, and the others."""
    most = MOST_TOKENS
    fields: dict = {}
    for name, value in given.items():
        if name in ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"):
            most = int(value)
        elif name == "until":
            fields["stop"] = [value] if isinstance(value, str) else list(value or [])
        elif name not in ("do_sample", "temperature"):
            fields[name] = value
    samples = given.get("do_sample", float(given.get("temperature") or 0) > 0)
    fields["temperature"] = float(given.get("temperature", 1.0)) if samples else 0.0
    return most, fields


def register() -> None:
    """Makes `coppice` a name of the harness's models."""
    from lm_eval.api.registry import model_registry
    if NAME not in model_registry:
        model_registry.register(NAME, target="coppice_llm.lm_eval:CoppiceLM")


def main() -> None:
    from lm_eval.__main__ import cli_evaluate
    register()
    cli_evaluate()


if __name__ == "__main__":
    main()
