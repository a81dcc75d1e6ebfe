"""Plots of tables, as SVG."""

from __future__ import annotations

import io
import re
from collections.abc import Mapping

import matplotlib
import numpy as np

from . import statistics as st
from .catalogue import Experiment, Metric
from .results import Results

matplotlib.use("svg")
from matplotlib.figure import Figure  # noqa: E402  (after the choice of the backend)

matplotlib.rcParams.update({"svg.hashsalt": "streamfp", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False})


def trailing_number(name: str) -> float:
    found = re.search(r"([-+.\deE]+)(?:,.*)?$", name)
    try:
        return float(found.group(1)) if found else float("nan")
    except ValueError:
        return float("nan")


def draw(series: Mapping[str, Mapping[str, st.Estimate]], m: Metric, lines: bool, format: str = "svg") -> bytes:
    """Lines over the numbers in the names of columns, or bars. series: for each row its estimate by column."""
    unit = 100 if m.percent else 1
    columns = list(next(iter(series.values())))
    height = 3.2 if lines else 0.6 + 0.24 * len(series) * len(columns)
    figure = Figure(figsize=(6.4, min(height, 14)), layout="constrained")
    axes = figure.subplots()
    if lines:
        x = np.array([trailing_number(c) for c in columns])
        for name, values in series.items():
            y = np.array([unit * values[c].mean for c in columns])
            half = np.array([unit * values[c].half if values[c].n >= st.MIN_INTERVAL else 0 for c in columns])
            axes.errorbar(x, y, yerr=half, marker="o", markersize=3, capsize=2, linewidth=1.2, label=name)
        if x.min() > 0 and x.max() > 8 * x.min():
            axes.set_xscale("log")
        axes.set_xlabel(columns[0].rsplit(" ", 1)[0])
        axes.set_ylabel(f"{m.name}{' (%)' if m.percent else ''}")
        axes.legend(fontsize=7, frameon=False, loc="center left", bbox_to_anchor=(1, 0.5))
    else:
        names = list(series)
        width = 0.8 / len(columns)
        for i, column in enumerate(columns):
            found = [series[n][column] for n in names]
            at = np.arange(len(names)) + i * width
            error = [unit * x.half if x.n >= st.MIN_INTERVAL else 0 for x in found]
            axes.barh(at, [unit * x.mean if x.n else 0 for x in found], width, xerr=error, label=column, error_kw={"linewidth": 0.8})
        axes.set_yticks(np.arange(len(names)) + 0.4 - width / 2, names)
        axes.invert_yaxis()
        axes.set_xlabel(f"{m.name}{' (%)' if m.percent else ''}")
        if len(columns) > 1:
            axes.legend(fontsize=7, frameon=False)
    out = io.BytesIO()
    metadata = {"Date": None} if format == "svg" else None
    figure.savefig(out, format=format, metadata=metadata, transparent=format == "svg", dpi=150)
    return out.getvalue()


def draw_experiment(results: Results, e: Experiment) -> bytes | None:
    """The first metric of an experiment; None: it has no value yet."""
    m = e.metrics[0]
    columns = results.columns(e)
    series = {row: {c: results.estimate(e, row, c, m, None) for c in columns} for row in results.rows(e)}
    series = {row: values for row, values in series.items() if any(x.n for x in values.values())}
    return draw(series, m, e.numeric_columns and len(columns) > 1) if series else None
