"""A choice of tokens by score, and the comparison of one choice with the engine's.

Two programs that add numbers in a different order get scores that differ in the last digits. They may then
choose differently where the scores of a chosen and of a dropped token are nearly equal. Such a difference
is a tie. Every other difference is a fault of the engine or of the oracle.
"""

import dataclasses
import typing

import numpy as np

ALWAYS = np.inf  # the score of an item that stays whatever the others score


@dataclasses.dataclass
class Choice:
    """`kept` is a subset of `items`, which are token positions or block numbers. Both ascend."""
    items: np.ndarray
    scores: np.ndarray
    kept: np.ndarray
    # Distance of another set from this one: the relative error of the scores that would explain it.
    distance: typing.Callable


@dataclasses.dataclass
class Difference:
    """A choice of the engine that is not the oracle's. Step -1 is prefill."""
    step: int
    layer: int
    what: str
    missing: list  # items that the oracle keeps and the engine drops
    surplus: list  # items that the engine keeps and the oracle drops
    distance: float
    tie: bool

    def __str__(self):
        some = lambda items: f"{items[:8]}{f' and {len(items) - 8} more' if len(items) > 8 else ''}"
        when = "prefill" if self.step < 0 else f"step {self.step}"
        return (f"{'tie' if self.tie else 'fault'}: {when}, layer {self.layer}, {self.what}: the engine "
                f"lacks {some(self.missing)} and has {some(self.surplus)}; distance {self.distance:.2g}")


def best(items, scores, count, scale):
    """The choice of the `count` best items. Of equal scores the earlier item wins."""
    order = np.lexsort((items, -scores))
    kept = np.sort(items[order[:max(count, int(np.sum(np.isposinf(scores))))]])
    return Choice(items, scores, kept, lambda other: swap_distance(items, scores, kept, other, scale))


def swap_distance(items, scores, kept, other, scale):
    """How far the scores of exchanged items lie apart, in units of scale(scores, cut)."""
    if len(other) != len(kept) or not np.isin(other, items).all():
        return np.inf
    lost = scores[np.isin(items, np.setdiff1d(kept, other))]
    won = scores[np.isin(items, np.setdiff1d(other, kept))]
    return float((lost.max() - won.min()) / scale(scores, won.min())) if len(lost) else 0.0


def of_weights(scores, cut):
    """Softmax weights are rounded relative to their own size."""
    return cut


def of_products(scores, cut):
    """Sums of products may cancel, so their rounding is measured by the spread of all scores."""
    finite = scores[np.isfinite(scores)]
    return max(float(finite.std()), 1e-30) if len(finite) else 1.0


class Referee:
    """Holds every choice against the engine's, and lets the oracle go on with the engine's.

    Later choices can be compared only if both programs made the same earlier ones. That is why the oracle
    takes over the engine's set wherever the sets differ, after it noted the difference.
    """

    def __init__(self, engine_sets, tolerance):
        self.engine_sets, self.tolerance = engine_sets, tolerance  # (step, layer, what) -> items
        self.differences, self.choices = [], 0

    def settle(self, step, layer, what, choice, in_part=False):
        """`in_part`: the engine tells only some of its items. It is taken to have the best others as well."""
        self.choices += 1
        theirs = self.engine_sets(step, layer, what)
        if in_part:
            scores = np.where(np.isin(choice.items, theirs), ALWAYS, choice.scores)
            theirs = np.union1d(theirs, best(choice.items, scores, len(choice.kept), of_weights).kept)
        if np.array_equal(theirs, choice.kept):
            return choice.kept
        missing, surplus = np.setdiff1d(choice.kept, theirs), np.setdiff1d(theirs, choice.kept)
        distance = float(choice.distance(theirs))
        self.differences.append(Difference(step, layer, what, missing.tolist(), surplus.tolist(), distance,
                                           distance <= self.tolerance))
        return theirs
