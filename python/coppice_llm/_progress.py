"""What a caller sees while a prompt is read."""

from __future__ import annotations

import sys
from typing import Any, Callable, Optional, Union

Report = Callable[[int, int, Optional[float]], Any]
ProgressOption = Union[None, bool, Report]


def eta(progress: dict[str, Any]) -> float | None:
    """Seconds that are left, if the rest takes as long as what was read so far."""
    done, seconds = progress["processed"], progress.get("time_ms", 0) / 1000
    return seconds * (progress["total"] - done) / done if done and seconds else None


def reporter(option: ProgressOption) -> Report | None:
    """The callable of one request. True shows a bar of tqdm, or a line on a terminal."""
    if option is None or option is False:
        return None
    if option is not True:
        return option
    try:
        from tqdm import tqdm
    except ImportError:
        return _Line() if sys.stderr.isatty() else None
    return _Bar(tqdm)


class _Bar:
    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._bar: Any = None

    def __call__(self, processed: int, total: int, _eta: float | None) -> None:
        if self._bar is None:
            self._bar = self._tqdm(total=total, unit="token", desc="prompt")
        self._bar.update(processed - self._bar.n)
        if processed >= total:
            self._bar.close()


class _Line:
    def __call__(self, processed: int, total: int, left: float | None) -> None:
        rest = f", {left:.0f} s left" if left is not None else ""
        end = "\n" if processed >= total else ""
        sys.stderr.write(f"\rprompt: {processed:,} of {total:,} tokens{rest}\033[K{end}")
        sys.stderr.flush()
