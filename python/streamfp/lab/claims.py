"""The claims of the paper and their tests. data/claims.toml explains the kinds of checks; docs/protocol.md says how they decide."""

from __future__ import annotations

import math
import tomllib
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np

from . import statistics as st
from .catalogue import Experiment, paper_figures, read_data
from .cells import STARVED
from .results import Results

TIMES = ("ms", "Rate", "Runtime")


@dataclass
class Verdict:
    number: int
    sentence: str
    paper: str
    verdict: str = st.OPEN
    numbers: list[str] = field(default_factory=list)
    repetitions: int = 0
    power: float = math.nan  # the smallest difference that the repetitions would find, as a fraction

    @property
    def tested(self) -> bool:
        return bool(self.numbers)


@cache
def claims() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = tomllib.loads(read_data("claims.toml"))["claim"]
    return found


def test_claims(results: Results) -> list[Verdict]:
    out = []
    for claim in claims():
        verdict = Verdict(claim["number"], claim["sentence"], claim["paper"])
        verdict.verdict = st.worst([_Check(results, check, verdict).decide() for check in claim["checks"]])
        out.append(verdict)
    return out


class _Check:
    def __init__(self, results: Results, check: dict[str, Any], verdict: Verdict):
        self.results, self.check, self.verdict = results, check, verdict
        self.metric: str = check["metric"]
        self.a: str = check.get("a", "")
        self.b: str = check.get("b", "")
        self.low, self.high = check.get("low", 0.0), check.get("high", math.inf)
        self.percent = self.metric not in TIMES and "cos" not in self.metric and "MMD" not in self.metric

    def decide(self) -> str:
        e = self.results.experiment(self.check["experiment"])
        if e is None or not self.results.has(e.name, self.metric):
            return st.OPEN
        self.e: Experiment = e
        own = self.check.get("columns")
        self.columns = own or [c for c in self.results.columns(e) if "equal batches" not in c] or [""]
        decide = getattr(self, f"_{self.check['kind']}")
        decided: str = decide()
        return decided

    # ------------------------------------------------------------------------------------------------------------ helpers

    def values(self, row: str, column: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        return self.results.values(self.e.name, row, column, self.metric)

    def mean(self, row: str, column: str) -> float:
        return st.estimate(self.values(row, column)).mean

    def rivals(self) -> list[str]:
        """The other methods of the paper's table, which has no random selector; without such a table, all other rows."""
        if not self.e.paper:
            return [r.name for r in self.e.rows if r.name != self.a and not r.closed and not r.extra]
        table = paper_figures().loc[self.e.paper].index.get_level_values("row")
        return [r.name for r in self.e.all_rows or self.e.rows if r.name != self.a and r.name in table]

    def of_all(self, decision: str, column: str) -> str:
        """A claim about all other methods cannot hold if one of them was not run. One that has no time for a batch was."""
        names = set(self.rivals())
        starved = {r for r in names if (c := self.results.cell(self.e.name, r, column, 0)) and c.state == STARVED}
        left = [r for r in names - starved if not math.isfinite(self.mean(r, column))]
        return st.OPEN if left and decision == st.HOLDS else decision

    def say(self, text: str) -> None:
        self.verdict.numbers.append(text)

    def difference(self, a: str, b: str, column: str) -> st.Estimate:
        d = st.paired(self.values(a, column), self.values(b, column))
        self.verdict.repetitions = max(self.verdict.repetitions, d.n)
        self.verdict.power = np.fmax(self.verdict.power, st.smallest_difference(d))
        if d.n:
            of = "" if self.metric == "Acc" else f"{self.metric} "
            half = f" ± {self.show(d.half)}" if d.n >= st.MIN_INTERVAL else ""
            self.say(f"{column + ', ' if column else ''}{of}{a} against {b} {self.show(d.mean, '+')}{half} (n {d.n})")
        return d

    def show(self, x: float, sign: str = "") -> str:
        return f"{100 * x:{sign}.2f}" if self.percent else f"{x:{sign}.4g}"

    # --------------------------------------------------------------------------------------------------------- the kinds

    def _above(self) -> str:
        return st.worst([st.is_above(self.difference(self.a, self.b, c), self.low) for c in self.columns])

    def _above_best(self) -> str:
        decided = []
        for column in self.columns:
            means = {r: m for r in self.rivals() if math.isfinite(m := self.mean(r, column))}
            if not means:
                decided.append(st.OPEN)
                continue
            best = max(means, key=means.__getitem__)
            decided.append(self.of_all(st.is_above(self.difference(self.a, best, column), self.low), column))
        return st.worst(decided)

    def _below(self) -> str:
        bound = self.check.get("high", 0.0)
        return st.worst([st.is_above(self.difference(self.b, self.a, c), -bound) for c in self.columns])

    def _equivalent(self) -> str:
        return st.worst([st.is_equivalent(self.difference(self.a, self.b, c), self.check["margin"]) for c in self.columns])

    def _ratio(self) -> str:
        column = self.columns[0]
        value, low, high = st.ratio(self.values(self.a, column), self.values(self.b, column))
        if not math.isfinite(value):
            return st.OPEN
        interval = f" [{low:.2f}, {high:.2f}]" if math.isfinite(high) else ""
        self.say(f"{self.metric} {self.a} / {self.b} {value:.2f}{interval}")
        if not interval:
            return st.OPEN
        return st.HOLDS if self.low <= low and high <= self.high else st.FAILS if high < self.low or low > self.high else st.OPEN

    def _lowest(self) -> str:
        column = self.columns[0]
        means = {r: m for r in [self.a, *self.rivals()] if math.isfinite(m := self.mean(r, column))}
        if self.a not in means or len(means) < 2:
            return st.OPEN
        other = min((r for r in means if r != self.a), key=means.__getitem__)
        self.say(f"{self.a} {means[self.a]:.2f}; lowest other: {other} {means[other]:.2f}")
        value, low, high = st.ratio(self.values(self.a, column), self.values(other, column))
        if not math.isfinite(high):
            return st.OPEN
        self.say(f"ratio {value:.3f} [{low:.3f}, {high:.3f}]")
        return self.of_all(st.HOLDS if high < 1 else st.FAILS if low > 1 else st.OPEN, column)

    def _grows(self) -> str:
        margins = [self.values(self.a, c) - self.values(self.b, c) for c in (self.check["first"], self.check["last"])]
        growth = st.paired(margins[1], margins[0])
        self.verdict.repetitions, self.verdict.power = growth.n, st.smallest_difference(growth)
        for c in (self.check["first"], self.check["last"]):
            self.difference(self.a, self.b, c)
        if growth.n:
            self.say(f"growth {self.show(growth.mean, '+')} ± {self.show(growth.half)}")
        return st.is_above(growth, 0)

    def _spread(self) -> str:
        column = self.columns[0]
        decided, own, other, p = st.is_spread_smaller(self.values(self.a, column), self.values(self.b, column))
        self.verdict.repetitions = len(st.finite(self.values(self.a, column)))
        if math.isfinite(own):
            self.say(f"standard deviation of {self.a} {self.show(own)}, of {self.b} {self.show(other)} (F test, p {p:.2f})")
        return decided

    def _best_column(self) -> str:
        means = {c: m for c in self.columns if math.isfinite(m := self.mean(self.a, c))}
        if len(means) < 2:
            return st.OPEN
        best = max(means, key=means.__getitem__)
        self.say(f"best: {best} ({self.show(means[best])})")
        allowed, others = self.check["set"], [c for c in means if c not in self.check["set"]]

        def above(x: str, y: str) -> str:
            return st.is_above(st.paired(self.values(self.a, x), self.values(self.a, y)), 0)

        if best in allowed:  # it must be above every column outside the set
            return st.HOLDS if all(above(best, c) == st.HOLDS for c in others) else st.OPEN
        return st.FAILS if all(above(best, c) == st.HOLDS for c in allowed if c in means) else st.OPEN

    def _best_row_up(self) -> str:
        best = []
        for column in self.columns:
            means = [self.mean(r.name, column) for r in self.e.rows]
            if not any(map(math.isfinite, means)):
                return st.OPEN
            best.append(int(np.nanargmax(means)))
            self.say(f"{column}: {self.e.rows[best[-1]].name}")
        # the row that is best at the end must be above the row that is best at the beginning there, and below it at the beginning
        first, last = self.e.rows[best[0]].name, self.e.rows[best[-1]].name
        if best[0] == best[-1]:
            return st.OPEN
        margin = [self.values(last, c) - self.values(first, c) for c in (self.columns[0], self.columns[-1])]
        growth = st.is_above(st.paired(margin[1], margin[0]), 0)
        return growth if best[-1] > best[0] else st.FAILS if growth == st.HOLDS else st.OPEN

    def _within(self) -> str:
        decided = []
        for column in self.columns:
            d = st.estimate(self.values(self.a, column))
            if not d.n:
                return st.OPEN
            half = d.half if math.isfinite(d.half) else 0.0
            self.verdict.repetitions = max(self.verdict.repetitions, d.n)
            self.say(f"{column + ', ' if column else ''}{self.metric} {d.mean:.4g}" + (f" ± {half:.2g}" if half else ""))
            if d.n < st.MIN_WITHIN:
                decided.append(st.OPEN)
                continue
            inside, outside = self.low <= d.mean - half and d.mean + half <= self.high, d.mean + half < self.low or d.mean - half > self.high
            decided.append(st.HOLDS if inside else st.FAILS if outside else st.OPEN)
        return st.worst(decided)
