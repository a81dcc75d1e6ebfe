"""The files of an execution: tables in four formats, plots, results.json, and one page."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd

import streamfp

from .claims import Verdict, test_claims
from .costs import write_file
from .plots import draw_experiment
from .results import Results

STYLE = """
:root { color-scheme: light dark; --edge: #8884; --soft: #8881; }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 72rem; padding: 0 1rem; }
table { border-collapse: collapse; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid var(--edge); }
th:first-child, td:first-child, .claims td { text-align: left; }
section { margin: 2.5rem 0; overflow-x: auto; }
svg { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
code { background: var(--soft); padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
.note { color: #888; font-size: 13px; }
"""


def to_text(table: pd.DataFrame) -> str:
    return table.to_string(na_rep="", index_names=False)


def to_latex(table: pd.DataFrame, caption: str, label: str) -> str:
    escaped = {"%": r"\%", "_": r"\_", "&": r"\&", "±": r"$\pm$", "#": r"\#"}
    text = table.rename_axis(index=None).style.to_latex(hrules=True, column_format="l" + "r" * table.shape[1], multicol_align="c")
    for a, b in escaped.items():
        text = text.replace(a, b) if a not in "&" else text
        caption = caption.replace(a, b)
    return f"% needs \\usepackage{{booktabs}}\n\\begin{{table}}\n\\caption{{{caption}}}\n\\label{{{label}}}\n{text}\\end{{table}}\n"


def to_markdown(table: pd.DataFrame) -> str:
    heads = [" ".join(p for p in c if p) if isinstance(c, tuple) else str(c) for c in table.columns]
    lines = [[str(i), *map(str, values)] for i, values in zip(table.index, table.itertuples(index=False))]
    head = ["| " + " | ".join([str(table.index.name or ""), *heads]) + " |", "|" + "---|" * (len(heads) + 1)]
    escaped = (" | ".join(v.replace("|", r"\|").replace("*", r"\*") if i == 0 else v for i, v in enumerate(line)) for line in lines)
    return "\n".join([*head, *(f"| {line} |" for line in escaped)]) + "\n"


def write_tables(results: Results, tables: Path, command: str) -> dict[str, bytes]:
    """One file per experiment and format; returns the plots."""
    plots = {}
    frame = results.frame()
    for e in results.list:
        caption = f"{e.name}: {e.title}. {results.sentences(e)} Command: {command}."
        write_file(tables / f"{e.name}.txt", f"{e.name}: {e.title}\n{to_text(results.table(e))}\n{caption}\n")
        write_file(tables / f"{e.name}.md", to_markdown(results.table(e, "**{}**")) + f"\n{caption}\n")
        write_file(tables / f"{e.name}.tex", to_latex(results.table(e, r"\textbf{{{}}}"), caption, f"tab:{e.name}"))
        write_file(tables / f"{e.name}.csv", frame[frame.experiment == e.name].to_csv(index=False))
        if plot := draw_experiment(results, e):
            plots[e.name] = plot
            write_file(tables / f"{e.name}.svg", plot.decode())
    return plots


def to_json(results: Results, verdicts: Iterable[Verdict], command: str) -> dict[str, Any]:
    def number(x: float) -> float | None:
        return x if math.isfinite(x) else None

    return {
        "version": streamfp.__version__,
        "command": command,
        "settings": dict(results.plan.given),
        "cells": [
            {
                "experiment": c.experiment.name,
                "row": c.row.name,
                "column": c.column.name,
                "repetition": c.repetition + 1,
                "state": c.state,
                "directory": c.key,
                "rate": number(c.rate),
                "batch_seconds": number(c.cost),
                "values": {k: number(v) for k, v in c.values.items()},
            }
            for c in results.cells
        ],
        "claims": [
            {
                "number": v.number,
                "claim": v.sentence,
                "paper": v.paper,
                "numbers": v.numbers,
                "repetitions": v.repetitions,
                "smallest_difference_found": number(v.power),
                "verdict": v.verdict,
            }
            for v in verdicts
        ],
    }


def _claims_html(verdicts: list[Verdict]) -> str:
    tested = [v for v in verdicts if v.tested]
    if not tested:
        return ""
    lines = "".join(
        f"<tr><td>{v.number}. {html.escape(v.sentence)}</td><td>{html.escape(v.paper)}</td>"
        f"<td>{html.escape('; '.join(v.numbers))}</td><td>{v.repetitions or ''}</td><td><b>{v.verdict}</b></td></tr>"
        for v in tested
    )
    head = "<tr><th>claim</th><th>paper</th><th>here</th><th>repetitions</th><th>verdict</th></tr>"
    left = ", ".join(str(v.number) for v in verdicts if not v.tested)
    note = f'<p class="note">Their experiments were not run: {left}.</p>' if left else ""
    return f'<section class="claims"><h2>Claims of the paper</h2><table>{head}{lines}</table>{note}</section>'


def write_page(results: Results, verdicts: list[Verdict], plots: dict[str, bytes], path: Path, command: str) -> None:
    sections = []
    for e in results.list:
        svg = plots.get(e.name, b"").decode().partition("<svg")
        drawn = "".join(svg[1:])
        paired = ""
        if results.plan.repetitions > 1 and len(e.rows) > 1 and e.metrics[0].name == "Acc":
            for column in results.columns(e):
                table = results.paired(e, column)
                if len(table):
                    heading = f"Accuracy of {e.rows[0].name} minus that of another row {column}"
                    paired += f"<details><summary>{html.escape(heading)}</summary>{table.to_html(border=0)}</details>"
        sections.append(
            f"<section id='{html.escape(e.name)}'><h2>{html.escape(e.name)}: {html.escape(e.title)}</h2><p>{html.escape(e.question)}</p>"
            f"{results.table(e).to_html(border=0, na_rep='')}<p class='note'>{html.escape(results.sentences(e))}</p>{drawn}{paired}</section>"
        )
    done = sum(c.state not in ("waiting", "omitted") for c in results.cells)
    write_file(
        path,
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>Experiments</title><style>{STYLE}</style><h1>Experiments</h1><p><code>{html.escape(command)}</code><br>"
        f"{done} of {len(results.cells)} cells are done.</p>{_claims_html(verdicts)}{''.join(sections)}</html>\n",
    )


def write_all(results: Results, command: str) -> dict[str, Any]:
    """Writes all files of an execution to --out; returns the contents of results.json."""
    out = results.plan.out
    verdicts = test_claims(results)
    plots = write_tables(results, out / "tables", command)
    write_page(results, verdicts, plots, out / "index.html", command)
    found = to_json(results, verdicts, command)
    write_file(out / "results.json", json.dumps(found, indent=1) + "\n")
    return found
