"""Tables and plots of runs that exist. The program groups the runs and computes the means: `streamfp runs compare --json`."""

from __future__ import annotations

import argparse
import html
import json
import math
import subprocess
from typing import Any

import pandas as pd

from . import statistics as st
from .catalogue import Metric, experiments
from .cells import find_program
from .costs import write_file
from .errors import LabError
from .output import STYLE, to_latex, to_markdown, to_text
from .plots import draw
from .results import show

SHOWN = ("Acc", "Fgt", "Preq", "Runtime")


def _compare(runs: list[str]) -> dict[str, Any]:
    done = subprocess.run([find_program(), "runs", "compare", "--json", "--", *runs], capture_output=True, text=True)
    if done.returncode:
        raise LabError(done.stderr.partition("\n")[0].partition(": ")[2])
    return dict(json.loads(done.stdout))


def _estimate(group: dict[str, Any], key: str) -> st.Estimate:
    x = {k: math.nan if v is None else v for k, v in group[key].items()}
    return st.Estimate(x["n"], x["mean"], x["half"], math.nan)


def _numbers(values: list[str | None]) -> list[float] | None:
    try:
        return [float(v or "") for v in values]
    except ValueError:
        return None


def _series(found: dict[str, Any], estimates: list[st.Estimate]) -> tuple[dict[str, dict[str, st.Estimate]], bool]:
    """Lines over the only option with numbers by which the groups are named; else, bars."""
    options, names = found["options_that_differ"], [g["name"] for g in found["columns"]]
    numeric = {k: points for k in found["named_by"] if (points := _numbers(options[k]))}
    if len(numeric) != 1:
        return {n: {"": x} for n, x in zip(names, estimates)}, False
    [(key, at)] = numeric.items()
    columns = [f"{key} {x:g}" for x in sorted(set(at))]
    series: dict[str, dict[str, st.Estimate]] = {}
    for name, value, x, estimate in zip(names, options[key], at, estimates):
        line = ", ".join(p for p in name.split(", ") if p not in (value, f"{key} {value}"))
        series.setdefault(line, {c: st.estimate([]) for c in columns})[f"{key} {x:g}"] = estimate
    return series, len(columns) > 1


def compare(args: argparse.Namespace) -> int:
    found = _compare(args.runs)
    groups = found["columns"]
    metrics: dict[str, Metric] = {m.name: m for e in experiments().values() for m in e.metrics if m.name in SHOWN}
    estimates = {m: [_estimate(g, "seconds.runtime" if m.key == "runtime" else m.key) for g in groups] for m in metrics.values()}
    measured = {m: x for m, x in estimates.items() if any(e.n for e in x)}
    names = [g["name"] + (" (not finished)" if g["not_finished"] else "") for g in groups]
    heading = found["named_by"][0] if len(found["named_by"]) == 1 else "runs"
    table = pd.DataFrame({m.name: [show(e, m) for e in x] for m, x in measured.items()}, index=pd.Index(names, name=heading))
    caption = "Comparison of runs. " + " ".join(f"{m.name}: {m.meaning}." for m in measured)
    if args.csv:
        lines = [(n, k, *v.values()) for n, g in zip(names, groups) for k, v in g.items() if isinstance(v, dict) and v["n"]]
        print(pd.DataFrame(lines, columns=["runs", "number", "n", "mean", "half width"]).to_csv(index=False), end="")
    elif args.latex:
        print(to_latex(table, caption, "tab:runs"), end="")
    elif args.markdown:
        print(f"{to_markdown(table)}\n{caption}")
    else:
        print(f"{to_text(table)}\n\n{caption}")
    if args.plot or args.html:
        first = next(iter(measured))
        series, lines_ = _series(found, measured[first])
        if args.plot:
            args.plot.parent.mkdir(parents=True, exist_ok=True)
            args.plot.write_bytes(draw(series, first, lines_, "png" if args.plot.suffix == ".png" else "svg"))
        if args.html:
            svg = "".join(draw(series, first, lines_).decode().partition("<svg")[1:])
            write_file(
                args.html,
                "<!doctype html><html lang='en'><meta charset='utf-8'><title>Comparison of runs</title>"
                f"<style>{STYLE}</style><h1>Comparison of runs</h1><section>{table.to_html(border=0)}</section>{svg}"
                f"<p class='note'>{html.escape(caption)}<br>{html.escape(' '.join(args.runs))}</p></html>\n",
            )
    return 0
