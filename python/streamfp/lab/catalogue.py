"""Experiments as data: rows (methods), columns (settings or arrival rates), metrics. The list is in data/catalogue.toml."""

from __future__ import annotations

import itertools
import tomllib
from dataclasses import dataclass, field, replace
from functools import cache
from importlib import resources
from typing import Any

import pandas as pd

from .errors import LabError


def read_data(name: str) -> str:
    return (resources.files(__package__) / "data" / name).read_text(encoding="utf-8")


def parse_settings(text: str) -> dict[str, str]:
    """``"sigma=0.5 buffer=er"`` as a dictionary."""
    return dict(part.split("=", 1) for part in text.split())


@dataclass(frozen=True)
class Variant:
    """A row or a column; data/catalogue.toml explains the fields."""

    name: str
    settings: dict[str, str] = field(default_factory=dict)
    learner: dict[str, str] = field(default_factory=dict)
    batches: int = 0
    load: float = 0
    load_of: dict[str, str] = field(default_factory=dict)
    equal: bool = False
    closed: bool = False
    extra: bool = False
    fits: bool = False
    allocates: bool = False


@dataclass(frozen=True)
class Metric:
    name: str
    key: str  # of result.json; cost, throughput and runtime are derived from the processing time of the method
    meaning: str
    decimals: int
    better: int  # 1: higher is better, -1: lower is better, 0: neither
    percent: bool = False

    @property
    def is_time(self) -> bool:
        return self.key in ("cost", "throughput", "runtime")


@dataclass(frozen=True)
class Experiment:
    name: str
    title: str
    question: str
    rows: tuple[Variant, ...]
    columns: tuple[Variant, ...]
    metrics: tuple[Metric, ...]
    settings: dict[str, str] = field(default_factory=dict)
    row_heading: str = "method"
    paper: str = ""  # table of the paper's figures; empty: none
    orders_as_columns: bool = False
    cost_only: bool = False
    numeric_columns: bool = False
    backbones: bool = False  # the columns are those of --backbones
    all_rows: tuple[Variant, ...] = ()  # if only some rows are run: those of the catalogue


def _variant(raw: dict[str, Any]) -> Variant:
    texts = {k: parse_settings(raw[k]) for k in ("settings", "learner", "load_of") if k in raw}
    return Variant(**{**raw, **texts})


@cache
def experiments() -> dict[str, Experiment]:
    raw = tomllib.loads(read_data("catalogue.toml"))
    metrics = {name: Metric(name=name, **values) for name, values in raw["metrics"].items()}
    rows = {name: tuple(map(_variant, values)) for name, values in raw["rows"].items()}
    columns = {name: tuple(map(_variant, values)) for name, values in raw["columns"].items()}
    out = {}
    e: dict[str, Any]
    for e in raw["experiment"]:
        with_closed = rows["closed"] if e.pop("closed", False) else ()
        e["rows"], e["columns"] = rows[e["rows"]] + with_closed, columns[e["columns"]]
        e["metrics"] = tuple(metrics[m] for m in e["metrics"])
        e["settings"] = parse_settings(e["settings"])
        out[e["name"]] = Experiment(**e)
    return out


@cache
def reference() -> dict[str, str]:
    """Settings of the method whose processing time defines the arrival rates of the paper."""
    return parse_settings(tomllib.loads(read_data("catalogue.toml"))["reference"])


@cache
def paper_figures() -> pd.DataFrame:
    """The figures of the paper's tables: accuracies and forgetting as fractions, times in seconds."""
    figures = pd.read_csv(resources.files(__package__) / "data" / "paper.csv", index_col=["table", "row", "group"])
    percent = ["Acc", "Acc spread", "Fgt", "Fgt spread"]
    figures[percent] = figures[percent] / 100
    return figures.sort_index()


def choose(names: str) -> list[Experiment]:
    """Experiments by name: "E3", "E1" (E1-select and E1-buffer), "E3,E4" or "all"."""
    known = experiments()
    if names == "all":
        return list(known.values())
    chosen: dict[str, Experiment] = {}
    for name in names.split(","):
        found = {k: e for k, e in known.items() if k == name or k.startswith(f"{name}-")}
        if not found:
            raise LabError(f"unknown experiment '{name}', expected all or some of {', '.join(known)}")
        chosen.update(found)
    return list(chosen.values())


def limit(chosen: list[Experiment], rows: str, columns: str) -> list[Experiment]:
    """Experiments with only the named rows and columns (separated by semicolons; empty: all). Experiments that have none of them are left out."""
    found = []
    for names, kind in ((rows, "rows"), (columns, "columns")):
        known = {v.name for e in chosen for v in getattr(e, kind)}
        for name in filter(None, names.split(";")):
            if name not in known:
                raise LabError(f"{kind}: no experiment has '{name}', expected {'; '.join(sorted(known - {''}))}")
    for e in chosen:
        kept_rows = tuple(v for v in e.rows if not rows or v.name in rows.split(";"))
        kept_columns = tuple(v for v in e.columns if not columns or not v.name or v.name in columns.split(";"))
        if kept_rows and kept_columns:
            found.append(replace(e, rows=kept_rows, columns=kept_columns, all_rows=e.rows))
    return found


def sweep(grids: list[str], known_keys: set[str]) -> Experiment:
    """All combinations of grids such as "sigma=0.2,0.5". The values of the last grid are the columns, if there are several grids."""
    parsed: dict[str, list[str]] = {}
    for text in grids:
        key, equals, values = text.partition("=")
        listed = values.split(",")
        if not equals or not key or not all(listed) or any(" " in v for v in listed):
            raise LabError(f"grid is '{text}', expected KEY=VALUE,VALUE,... without blanks")
        if key in ("seed", "out", "resume"):
            raise LabError(f"grid is '{text}', but {key} is set by the sweep for each run")
        if key not in known_keys:
            raise LabError(f"grid is '{text}', but there is no option {key}; 'streamfp run --help' lists them")
        if key in parsed:
            raise LabError(f"grid: {key} is given twice")
        if len(set(listed)) < len(listed):
            raise LabError(f"grid: a value of {key} is given twice")
        parsed[key] = listed
    if not parsed:
        raise LabError("no grid, expected at least one --grid KEY=VALUE,VALUE,...")

    def variants(keys: list[str]) -> tuple[Variant, ...]:
        return tuple(
            Variant(name=", ".join(f"{k} {v}" for k, v in zip(keys, values)), settings=dict(zip(keys, values)))
            for values in itertools.product(*(parsed[k] for k in keys))
        )

    keys = list(parsed)
    rows = variants(keys[:-1] if len(keys) > 1 else keys)
    columns = variants(keys[-1:]) if len(keys) > 1 else (Variant(name=""),)
    metrics = {m.name: m for e in experiments().values() for m in e.metrics}
    return Experiment(
        name="sweep",
        title="all combinations of the grids",
        question="Which settings are best on this data?",
        rows=rows,
        columns=columns,
        metrics=tuple(metrics[name] for name in ("Acc", "Fgt", "Preq", "Runtime")),
        row_heading="settings",
        numeric_columns=len(columns) > 1 and all(_is_number(v) for v in parsed[keys[-1]]),
    )


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
