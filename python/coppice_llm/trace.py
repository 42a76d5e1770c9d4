"""How deep each token of a prompt was computed, and a page that shows it."""

from __future__ import annotations

import html
import os
import pathlib
from typing import Any

PAGE = """<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<title>coppice: what was read of a prompt</title>
<style>
  body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 60em; margin: 2em auto; padding: 0 1em; }}
  #prompt {{ white-space: pre-wrap; overflow-wrap: anywhere; border: 1px solid #8888; padding: 1em; }}
  #prompt span {{ background: rgb(40 110 220 / calc(var(--share) * 45%)); }}
  #prompt .none {{ text-decoration: line-through; opacity: 0.6; }}
  pre {{ white-space: pre-wrap; overflow-wrap: anywhere; }}
</style>
<h1>What was read of the prompt</h1>
<p>{summary}</p>
<p>The stronger the shade, the more layers hold the token; struck-out text is in none.</p>
<div id="prompt">{tokens}</div>
<h2>Answer</h2>
<pre>{answer}</pre>
</html>
"""


class Trace:
    """The prompt's tokens, and the number of layers that hold each after the prefill."""

    def __init__(self, pieces: list[str], prune: dict[str, Any], answer: str = "") -> None:
        self._pieces = pieces
        self._prune = prune
        self._answer = answer

    def depth(self) -> list[int]:
        """For each token of the prompt, the number of layers that hold its keys after the prefill."""
        return _expanded(self._prune["depth"])

    def final_depth(self) -> list[int]:
        """The same after the answer, with the tokens that a method revived."""
        return _expanded(self._prune.get("final_depth") or self._prune["depth"])

    def pieces(self) -> list[str]:
        """The texts of the tokens. Joined, they are what the model read."""
        return list(self._pieces)

    @property
    def layers(self) -> int:
        return len(self._prune.get("kept_per_layer") or []) or max(self.depth(), default=0)

    def html(self, path: str | os.PathLike[str]) -> pathlib.Path:
        """Writes a page that needs nothing else: the prompt's text, each token shaded by its depth."""
        page = PAGE.format(summary=html.escape(self._summary()), tokens=self._spans(), answer=html.escape(self._answer))
        written = pathlib.Path(path)
        written.write_text(page, encoding="utf-8", errors="replace")
        return written

    def _summary(self) -> str:
        depth, layers = self.depth(), max(self.layers, 1)
        share = sum(depth) / (len(depth) * layers) if depth else 1.0
        reason = self._prune.get("reason")
        return (f"{self._prune.get('spec', 'none')}: {len(depth):,} tokens, {layers} layers, "
                f"{share:.0%} of the token-layers kept" + (f"; {reason}" if reason else ""))

    def _spans(self) -> str:
        """Neighbours of one depth share a span."""
        layers, last = max(self.layers, 1), -1
        parts: list[str] = []
        for piece, depth in zip(self._pieces, self.depth()):
            if depth != last:
                mark = ' class="none"' if depth == 0 else ""
                parts.append(f'{"</span>" if parts else ""}<span{mark} style="--share:{depth / layers:.3f}" '
                             f'title="{depth} of {layers} layers">')
                last = depth
            parts.append(html.escape(piece))
        return "".join(parts) + ("</span>" if parts else "")


def _expanded(runs: list[list[int]]) -> list[int]:
    return [layers for layers, tokens in runs for _ in range(tokens)]
