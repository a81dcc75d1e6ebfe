"""The numbers of executed cells as one table with a line per number, and tables made of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pandas as pd

from . import statistics as st
from .catalogue import Experiment, Metric, paper_figures
from .cells import DONE, STARVED, Cell, Plan, times_of


class Results:
    def __init__(self, plan: Plan, experiments: list[Experiment], cells: list[Cell], dataset: str):
        self.plan, self.list, self.cells, self.dataset = plan, experiments, cells, dataset
        self._cells = {(c.experiment.name, c.row.name, c.column.name, c.repetition): c for c in cells}

    def experiment(self, name: str) -> Experiment | None:
        return next((e for e in self.list if e.name == name), None)

    def columns(self, e: Experiment) -> list[str]:
        return [c.name for c in self.plan.columns(e)]

    def has(self, experiment: str, metric: str) -> bool:
        return any(c.experiment.name == experiment and metric in c.values for c in self.cells)

    def cell(self, e: str, row: str, column: str, repetition: int) -> Cell | None:
        return self._cells.get((e, row, column, repetition))

    def values(self, e: str, row: str, column: str, metric: str) -> np.ndarray[Any, np.dtype[np.float64]]:
        """One value per repetition, or per measurement of a time. NaN: not run, or starved, which is never counted as 0."""
        first = self.cell(e, row, column, 0)
        if first and first.times:
            m = next(m for m in first.experiment.metrics if m.name == metric)
            if m.is_time:
                return np.array(times_of(m, first))
        out = np.full(self.plan.repetitions, math.nan)
        for k in range(self.plan.repetitions):
            cell = self.cell(e, row, column, k)
            if cell and metric in cell.values and cell.state == DONE:
                out[k] = cell.values[metric]
        return out

    def frame(self) -> pd.DataFrame:
        """All numbers: experiment, row, column, repetition, metric, value."""
        return pd.DataFrame(
            [
                (c.experiment.name, c.row.name, c.column.name, c.repetition + 1, c.state, name, value, c.key)
                for c in self.cells
                for name, value in c.values.items()
            ],
            columns=["experiment", "row", "column", "repetition", "state", "metric", "value", "cell"],
        )

    # ------------------------------------------------------------------------------------------------------------ tables

    def rows(self, e: Experiment) -> list[str]:
        """Names of the rows to show: extra rows (`Variant.extra`) are omitted if they were not run."""
        run = {c.row.name for c in self.cells if c.experiment is e and c.state in (DONE, STARVED)}
        return [r.name for r in e.rows if not r.extra or r.name in run]

    def groups(self, e: Experiment) -> list[tuple[str, str, int | None]]:
        """Groups of columns: heading, column, repetition (None: the mean)."""
        if not e.orders_as_columns or self.plan.repetitions < 2:
            return [(c, c, None) for c in self.columns(e)]
        single = [(f"order {k + 1}", self.columns(e)[0], k) for k in range(min(self.plan.orders or 1, self.plan.repetitions))]
        return [*single, ("Overall", self.columns(e)[0], None)]

    def estimate(self, e: Experiment, row: str, column: str, metric: Metric, repetition: int | None) -> st.Estimate:
        x = self.values(e.name, row, column, metric.name)
        if repetition is None or metric.is_time:
            return st.estimate(x)
        orders = max(1, self.plan.orders)
        return st.estimate(x[repetition::orders])

    def paper(self, e: Experiment, row: str, group: str, metric: str) -> float:
        figures = paper_figures()
        key = (e.paper, row, self.dataset if group in ("", "equal time") else group)
        return float(figures.loc[key, metric]) if metric in figures.columns and key in figures.index else math.nan

    def table(self, e: Experiment, mark: str = "") -> pd.DataFrame:
        """The table of an experiment as texts, with the figures of the paper in parentheses. mark: how the best of a column is
        written, for example "**{}**"."""
        columns: dict[tuple[str, str], list[str]] = {}
        closed = {r.name for r in e.rows if r.closed}
        measured = [m for m in e.metrics if e.paper or any(math.isfinite(c.values.get(m.name, math.nan)) for c in self.cells if c.experiment is e)]
        for heading, column, repetition in self.groups(e):
            for m in measured or e.metrics:  # forgetting, for example, has no value with one task
                found = {r: self.estimate(e, r, column, m, repetition) for r in self.rows(e)}
                means = [x.mean for r, x in found.items() if r not in closed and math.isfinite(x.mean)]
                best = (max(means) if m.better > 0 else min(means)) if means and m.better else math.nan
                texts = []
                for r, x in found.items():
                    text = show(x, m)
                    if not x.n and any(
                        (c := self.cell(e.name, r, column, k)) and c.state == STARVED for k in range(self.plan.repetitions)
                    ):
                        text = "-"
                    if mark and x.n and x.mean == best and r not in closed and len(means) > 1:
                        text = mark.format(text)
                    paper = self.paper(e, r, heading, m.name)
                    if math.isfinite(paper):
                        text += f" ({paper * (100 if m.percent else 1):.{m.decimals}f})"
                    texts.append(text)
                columns[heading, m.name] = texts
        table = pd.DataFrame(columns, index=pd.Index(self.rows(e), name=e.row_heading))
        if all(h == "" for h, _ in table.columns):
            table.columns = pd.Index([m for _, m in table.columns])
        return table

    def paired(self, e: Experiment, column: str) -> pd.DataFrame:
        """The first row against each other row, by repetition."""
        own = self.values(e.name, e.rows[0].name, column, e.metrics[0].name)
        lines = {}
        for row in self.rows(e)[1:]:
            other = self.values(e.name, row, column, e.metrics[0].name)
            d, (higher, lower, p) = st.paired(own, other), st.sign_test(own, other)
            if d.n:
                lines[row] = (show(d, e.metrics[0]), higher, lower, f"{p:.3f}")
        return pd.DataFrame.from_dict(lines, orient="index", columns=["difference", "higher", "lower", "p"])

    # --------------------------------------------------------------------------------------------------------- sentences

    def sentences(self, e: Experiment) -> str:
        said = [f"{m.name}: {m.meaning}." for m in e.metrics]
        run = 1 + max((c.repetition for c in self.cells if c.experiment is e and c.state in (DONE, STARVED)), default=-1)
        if run and not e.cost_only:
            over = f"{run} repetitions" if run > 1 else "one repetition"
            crossed = f" ({self.plan.orders} class orders of the authors, {self.plan.seeds} seeds)" if self.plan.orders else ""
            said.append(f"{'Mean and 95 % interval over' if run >= st.MIN_INTERVAL else 'Mean of'} {over}{crossed}.")
        if e.paper and (different := self.differs()):
            said.append(
                f"The figures in parentheses are those of the paper, of {self.dataset} with ViT-B/16 on another machine; here: {different}. "
                "Single figures are therefore not comparable."
            )
        if e.metrics[0].name == "Acc":
            for heading, column, repetition in self.groups(e):
                if repetition is None:
                    said += self._order(e, heading, column) + self._beaten(e, column)
        return " ".join(said)

    def _order(self, e: Experiment, heading: str, column: str) -> list[str]:
        if not e.paper:
            return []
        rows = self.rows(e)
        ours = [self.estimate(e, r, column, e.metrics[0], None).mean for r in rows]
        n, tau, p = st.kendall(ours, [self.paper(e, r, heading, "Acc") for r in rows])
        if math.isnan(tau):
            return []
        tendency = "no significant relation" if p >= 0.05 else "the same tendency" if tau > 0 else "the opposite tendency"
        at = f" at {column}" if column else ""
        return [f"Order of the methods{at}: Kendall's tau {tau:.2f} with the order in the paper ({n} methods, p {p:.3f}): {tendency}."]

    def _beaten(self, e: Experiment, column: str) -> list[str]:
        own = self.estimate(e, e.rows[0].name, column, e.metrics[0], None).mean
        better = {r.name: m for r in e.rows if r.closed and (m := self.estimate(e, r.name, column, e.metrics[0], None).mean) > own}
        if not better:
            return []
        listed = ", ".join(f"{r} ({100 * m:.2f})" for r, m in better.items())
        at = f" at {column}" if column else ""
        return [f"{listed} {'beats' if len(better) == 1 else 'beat'} {e.rows[0].name} ({100 * own:.2f}){at}, without any training."]

    def differs(self) -> str:
        """What is not as in the paper; empty: dataset and backbone may be those of the paper."""
        data, backbone = self.plan.given.get("data", ""), self.plan.given.get("backbone", "builtin")
        published = data.split(":")[0] in ("stream51", "core50", "clear10", "clear100")
        if published and backbone != "builtin":
            return ""
        name = data.rstrip("/").split("/")[-1] if data else "Fashion-MNIST"
        return f"{'' if published else f'dataset {name}, '}backbone {backbone.split('/')[-1]}"


def show(x: st.Estimate, m: Metric) -> str:
    if not x.n:
        return ""
    unit = 100 if m.percent else 1
    half = f" ± {unit * x.half:.{m.decimals}f}" if x.n >= st.MIN_INTERVAL and not m.is_time else ""
    return f"{unit * x.mean:.{m.decimals}f}{half}"
