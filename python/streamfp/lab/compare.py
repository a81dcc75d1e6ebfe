"""Tables and plots of runs that exist."""

from __future__ import annotations

import argparse
import html
from pathlib import Path
from typing import Any

import pandas as pd

from . import options
from . import statistics as st
from .catalogue import Metric, experiments
from .costs import read_json, write_file
from .errors import LabError
from .output import STYLE, to_latex, to_markdown, to_text
from .plots import draw, trailing_number


def _read(directory: str) -> dict[str, Any]:
    path = Path(directory)
    found = read_json(path / "result.json" if path.is_dir() else path, "a result of a run")
    if not isinstance(found.get("config"), dict):
        raise LabError(f"{path}: not a result of a run")
    return found


def _value(result: dict[str, Any], m: Metric) -> float:
    if m.key == "runtime":
        return float(sum(result.get("seconds", {}).get(k) or 0.0 for k in ("select", "train", "buffer")))
    value = result.get(m.key)
    return float("nan") if value is None else float(value)


def compare(args: argparse.Namespace) -> int:
    runs = [_read(d) for d in args.runs]
    ignored = {"seed"} | {k for k, info in options.table().items() if not info.changes_result}
    keys = sorted({k for r in runs for k in r["config"]} - ignored)
    differing = [k for k in keys if len({str(r["config"].get(k)) for r in runs}) > 1]
    groups: dict[str, dict[str, dict[str, Any]]] = {}  # by name, then by seed: of several runs with one seed, the newest counts
    for r in sorted(runs, key=lambda r: str(r.get("started", ""))):
        name = ", ".join(f"{k} {r['config'].get(k)}" for k in differing if r["config"].get(k) is not None) or "run"
        groups.setdefault(name, {})[str(r["config"].get("seed"))] = r
    metrics = [m for e in experiments().values() for m in e.metrics if m.name in ("Acc", "Fgt", "Preq", "Runtime")]
    metrics = list({m.name: m for m in metrics}.values())
    estimates = {n: {m.name: st.estimate([_value(r, m) for r in g.values()]) for m in metrics} for n, g in groups.items()}

    def show(x: st.Estimate, m: Metric) -> str:
        unit = 100 if m.percent else 1
        half = f" ± {unit * x.half:.{m.decimals}f}" if x.n >= st.MIN_INTERVAL else ""
        return f"{unit * x.mean:.{m.decimals}f}{half}" if x.n else ""

    table = pd.DataFrame({m.name: [show(e[m.name], m) for e in estimates.values()] for m in metrics}, index=pd.Index(estimates, name="run"))
    if args.json or args.csv:
        frame = pd.DataFrame(
            [(n, m, x.n, x.mean, x.half) for n, e in estimates.items() for m, x in e.items() if x.n],
            columns=["run", "metric", "runs", "mean", "half width"],
        )
        print(frame.to_json(orient="records") if args.json else frame.to_csv(index=False), end="\n" if args.json else "")
    elif args.latex:
        print(to_latex(table, "Comparison of runs.", "tab:runs"), end="")
    elif args.markdown:
        print(to_markdown(table), end="")
    else:
        print(to_text(table))
    if args.plot or args.html:
        numeric = len(differing) == 1 and len(groups) > 1 and all(pd.notna(trailing_number(n)) for n in groups)
        if numeric:
            series = {"runs": {n: e["Acc"] for n, e in estimates.items()}}
        else:
            series = {n: {"": e["Acc"]} for n, e in estimates.items()}
        if args.plot:
            write = draw(series, metrics[0], numeric, "png" if args.plot.suffix == ".png" else "svg")
            args.plot.parent.mkdir(parents=True, exist_ok=True)
            args.plot.write_bytes(write)
        if args.html:
            svg = "".join(draw(series, metrics[0], numeric).decode().partition("<svg")[1:])
            title = "Comparison of runs"
            write_file(
                args.html,
                f"<!doctype html><html lang='en'><meta charset='utf-8'><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>"
                f"<section>{table.to_html(border=0)}</section>{svg}<p class='note'>{html.escape(' '.join(args.runs))}</p></html>\n",
            )
    return 0
