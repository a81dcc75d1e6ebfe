"""Means with intervals, paired differences and decisions. Every interval is a 95 % Student-t interval."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

MIN_INTERVAL = 3  # repetitions from which an interval is shown
MIN_WITHIN = 5  # repetitions from which a quantity that is no accuracy decides a claim
MIN_DECISION = 20  # repetitions from which an accuracy decides a claim (docs/protocol.md)

HOLDS, OPEN, FAILS = "holds", "cannot be decided", "does not hold"


def finite(values: ArrayLike) -> NDArray[np.float64]:
    x = np.asarray(values, dtype=float)
    return x[np.isfinite(x)]


@dataclass(frozen=True)
class Estimate:
    """A mean, the half width of its interval (NaN: fewer than two values), and what is behind it."""

    n: int
    mean: float
    half: float
    deviation: float

    @property
    def low(self) -> float:
        return self.mean - self.half

    @property
    def high(self) -> float:
        return self.mean + self.half


def estimate(values: ArrayLike) -> Estimate:
    x = finite(values)
    n = len(x)
    if n == 0:
        return Estimate(0, np.nan, np.nan, np.nan)
    deviation = float(x.std(ddof=1)) if n > 1 else np.nan
    half = float(stats.t.ppf(0.975, n - 1)) * deviation / np.sqrt(n) if n > 1 else np.nan
    return Estimate(n, float(x.mean()), half, deviation)


def paired(a: ArrayLike, b: ArrayLike) -> Estimate:
    """The mean of a - b over the repetitions that both have."""
    return estimate(np.asarray(a, dtype=float) - np.asarray(b, dtype=float))


def ratio(a: ArrayLike, b: ArrayLike) -> tuple[float, float, float]:
    """The ratio of two means of positive times with its interval, by the logarithms of paired ratios."""
    x = estimate(np.log(np.asarray(a, dtype=float) / np.asarray(b, dtype=float)))
    half = x.half if np.isfinite(x.half) else np.inf
    return float(np.exp(x.mean)), float(np.exp(x.mean - half)), float(np.exp(x.mean + half))


def sign_test(a: ArrayLike, b: ArrayLike) -> tuple[int, int, float]:
    """How often a is higher and lower than b, and the p of the sign test."""
    d = finite(np.asarray(a, dtype=float) - np.asarray(b, dtype=float))
    higher, lower = int((d > 0).sum()), int((d < 0).sum())
    p = stats.binomtest(higher, higher + lower).pvalue if higher + lower else np.nan
    return higher, lower, float(p)


def kendall(ours: ArrayLike, paper: ArrayLike) -> tuple[int, float, float]:
    """Number of methods that both order, Kendall's tau, and its p."""
    x, y = np.asarray(ours, dtype=float), np.asarray(paper, dtype=float)
    both = np.isfinite(x) & np.isfinite(y)
    if both.sum() < 3:
        return int(both.sum()), np.nan, np.nan
    found = stats.kendalltau(x[both], y[both])
    return int(both.sum()), float(found.statistic), float(found.pvalue)


def is_above(d: Estimate, bound: float) -> str:
    """Decides whether a mean is above a bound. With too few repetitions nothing is decided."""
    if d.n < MIN_DECISION or not np.isfinite(d.half):
        return OPEN
    if d.low > bound:
        return HOLDS
    return FAILS if d.high < bound or (d.half == 0 and d.mean == bound) else OPEN


def is_equivalent(d: Estimate, margin: float) -> str:
    """Two one-sided tests at 5 %: the 90 % interval lies within the margin."""
    if d.n < MIN_DECISION:
        return OPEN
    half = float(stats.t.ppf(0.95, d.n - 1)) * d.deviation / np.sqrt(d.n)
    if d.mean - half > -margin and d.mean + half < margin:
        return HOLDS
    return FAILS if d.mean - half > margin or d.mean + half < -margin else OPEN


def is_spread_smaller(a: ArrayLike, b: ArrayLike) -> tuple[str, float, float, float]:
    """F test of the standard deviation of a against that of b: the decision, both deviations, and p."""
    x, y = finite(a), finite(b)
    n = min(len(x), len(y))
    if n < 2 or x.std() == 0:
        return OPEN, np.nan, np.nan, np.nan
    own, other = float(x.std(ddof=1)), float(y.std(ddof=1))
    p = float(stats.f.sf((other / own) ** 2, len(y) - 1, len(x) - 1))
    decided = OPEN if n < MIN_DECISION or 0.05 <= p <= 0.95 else HOLDS if p < 0.05 else FAILS
    return decided, own, other, p


def smallest_difference(d: Estimate) -> float:
    """The difference that as many repetitions with this deviation find in 80 of 100 experiments (power .8, level 5 %)."""
    if d.n < 2:
        return np.nan
    return float((stats.t.ppf(0.975, d.n - 1) + stats.t.ppf(0.8, d.n - 1)) * d.deviation / np.sqrt(d.n))


def worst(decisions: list[str]) -> str:
    """A claim holds if all its checks hold, and does not hold if one fails."""
    return min(decisions, key=[FAILS, OPEN, HOLDS].index) if decisions else OPEN
