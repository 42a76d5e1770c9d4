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


def reporter(option: ProgressOption, what: str = "prompt", unit: str = "token") -> Any:
    """The callable of one request, or None. True shows a bar of tqdm, in a notebook the notebook's, or a line on a
    terminal; these have close(), for work that ends early."""
    if option is None or option is False:
        return None
    if option is not True:
        return option
    try:
        from tqdm.auto import tqdm
    except ImportError:
        return _Line(what, unit) if sys.stderr.isatty() else None
    return _Bar(tqdm, what, unit)


def closed(report: Any) -> None:
    """Ends the bar of work that ended early, so that the next output begins on a line of its own."""
    if isinstance(report, (_Bar, _Line)):
        report.close()


class _Bar:
    def __init__(self, tqdm: Any, what: str, unit: str) -> None:
        self._tqdm = tqdm
        self._words = {"desc": what, "unit": unit, "unit_scale": unit == "B"}
        self._bar: Any = None

    def __call__(self, processed: int, total: int, _eta: float | None) -> None:
        if self._bar is None:
            self._bar = self._tqdm(total=total, **self._words)
        self._bar.update(processed - self._bar.n)
        if processed >= total:
            self._bar.close()

    def close(self) -> None:
        if self._bar is not None:
            self._bar.close()  # a second time it does nothing


class _Line:
    def __init__(self, what: str, unit: str) -> None:
        self._what, self._unit = what, "bytes" if unit == "B" else unit + "s"
        self._open = False

    def __call__(self, processed: int, total: int, left: float | None) -> None:
        rest = f", {left:.0f} s left" if left is not None else ""
        self._open = processed < total
        end = "" if self._open else "\n"
        sys.stderr.write(f"\r{self._what}: {processed:,} of {total:,} {self._unit}{rest}\033[K{end}")
        sys.stderr.flush()

    def close(self) -> None:
        if self._open:
            self._open = False
            sys.stderr.write("\n")
            sys.stderr.flush()
