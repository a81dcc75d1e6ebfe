"""The programs streamfp-experiment, streamfp-sweep and streamfp-compare, which `streamfp experiment` and so on execute."""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from .errors import LabError

NEEDED = ("numpy", "pandas", "scipy", "matplotlib", "jinja2")
FASHION = {"data": "idx:/usr/share/datasets/fashion-mnist", "tasks": "5"}


def _guarded(run: Callable[[list[str]], int]) -> Callable[[], int]:
    """A main function: errors are one sentence on standard error, and an exit status."""

    def main() -> int:
        missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
        try:
            if sys.version_info < (3, 11):
                raise LabError(f"{sys.executable} is Python {sys.version.split()[0]}, expected 3.11 or later")
            if missing:
                debian = " ".join(f"python3-{name}" for name in missing)
                raise LabError(f"{sys.executable} has no {', '.join(missing)}; pip install {' '.join(missing)}, or apt-get install {debian}")
            return run(sys.argv[1:])
        except LabError as e:
            print(f"streamfp: {e}", file=sys.stderr)
            return e.status
        except BrokenPipeError:
            return 1

    return main


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise LabError(f"{message}; see '{self.prog} --help'")


def _parser(name: str, description: str, seeds: int) -> argparse.ArgumentParser:
    p = _Parser(
        prog=name,
        description=description + " All other options are those of 'streamfp run', and apply to every run.",
        allow_abbrev=False,
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    p.add_argument("--out", type=Path, metavar="DIR", default=None, help="directory for runs, tables and index.html")
    p.add_argument("--seeds", type=_positive, metavar="N", default=seeds, help="number of seeds per class order")
    p.add_argument("--seed", type=int, metavar="S", default=1, help="the first seed")
    p.add_argument("--jobs", type=_positive, metavar="N", default=1, help="runs at a time, on this machine")
    p.add_argument("--shard", type=_shard, metavar="I/N", default=(1, 1), help="run only part I of N; the parts share --out, or are joined later")
    p.add_argument("--budget", type=float, metavar="MINUTES", default=0, help="begin no run after this time; 0: no limit")
    p.add_argument("--costs", type=Path, metavar="FILE", default=None, help="measured processing times to use and extend [OUT/costs.json]")
    p.add_argument("--calibrate", type=_positive, metavar="N", default=20, help="batches per measurement of a processing time")
    p.add_argument("--no-share", action="store_true", help="do not share features of images between runs")
    p.add_argument("--dry-run", action="store_true", help="only list the cells; nothing is measured or run")
    p.add_argument("--json", action="store_true", help="print results.json")
    return p


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}', expected a number from 1 on")
    return int(text)


def _shard(text: str) -> tuple[int, int]:
    index, _, count = text.partition("/")
    if not (index.isdecimal() and count.isdecimal() and 1 <= int(index) <= int(count)):
        raise argparse.ArgumentTypeError(f"'{text}', expected I/N, for example 1/3")
    return int(index), int(count)


def _execute(args: argparse.Namespace, given: dict[str, str], experiments: list[Any], orders: int, backbones: dict[str, str], dataset: str) -> int:
    import streamfp

    from .cells import OMITTED, Executor, Plan, find_program
    from .costs import Costs, read_json
    from .output import to_json, to_text, write_all
    from .results import Results

    out: Path = args.out
    if out.exists() and any(out.iterdir()) and not (out / "cells").is_dir():
        raise LabError(f"{out} has files that are not of an experiment; use another --out")
    if (out / "results.json").exists():
        version = read_json(out / "results.json", "results of an experiment").get("version")
        if version != streamfp.__version__:
            raise LabError(f"{out}: results of version {version}, this is streamfp {streamfp.__version__}; use another --out")
    command = shlex.join([*Path(sys.argv[0]).name.split("-", 1), *sys.argv[1:]])
    plan = Plan(out, given, args.seeds, orders, args.seed, not args.no_share, backbones)
    costs = Costs(args.costs or out / "costs.json", args.calibrate, lambda text: print(text, file=sys.stderr, flush=True), not args.dry_run)
    cells = plan.cells(experiments)
    for cell in cells:
        plan.prepare(cell, costs)
    deadline = time.monotonic() + 60 * args.budget if args.budget else math.inf
    executor = Executor(plan, args.jobs, args.shard, "" if args.dry_run else find_program(), sys.stderr, deadline)
    results = Results(plan, experiments, cells, dataset)
    if args.dry_run:
        for cell in cells:
            executor.read(cell)
        listed = [f"{c.key}  {c.state:8}  {c.name}" for c in cells]
        print(json.dumps(to_json(results, [], command)) if args.json else "\n".join(listed))
        return 0
    out.mkdir(parents=True, exist_ok=True)
    (out / "cells").mkdir(exist_ok=True)
    try:
        executor.execute(cells)
    finally:
        found = write_all(results, command)
    if args.json:
        print(json.dumps(found))
        return 0
    for e in experiments:
        print(f"{e.name}: {e.title}\n{to_text(results.table(e))}\n")
    for claim in found["claims"]:
        if claim["numbers"]:
            print(f"{claim['number']}. {claim['claim']} {claim['verdict']}")
    omitted = sum(c.state == OMITTED for c in cells)
    if omitted:
        print(f"{omitted} cells were not run within --budget; the same command continues", file=sys.stderr)
    print(f"page: {out}/index.html; tables: {out}/tables")
    return 0


def _experiment(arguments: list[str]) -> int:
    from . import options
    from .catalogue import choose, experiments, limit

    p = _parser("streamfp experiment", "Repeats the tables of the paper, with a verdict for every claim. Without a name, lists them.", 4)
    p.add_argument("names", nargs="?", help="all, or names separated by commas")
    p.add_argument("--orders", type=int, metavar="N", default=5, help="number of class orders (those of the paper's authors); 0: that of --order")
    p.add_argument("--backbones", metavar="NAME=FILE,...", default="", help="experiment A2: pretrained backbones to compare")
    p.add_argument("--rows", metavar="NAME;...", default="", help="run only these rows of the tables; no claim about all methods can then hold")
    p.add_argument("--columns", metavar="NAME;...", default="", help="run only these columns of the tables")
    p.add_argument("--paper-data", metavar="NAME", default="", help="dataset of the paper whose figures are shown: Stream-51, CORe50, Clear10 or Clear100")
    p.add_argument("--check", type=Path, metavar="FILE", help="fail if a number differs from this results.json")
    args, rest = p.parse_known_args(arguments)
    if not args.names:
        listed = list(experiments().values())
        if args.json:
            print(json.dumps([{"name": e.name, "title": e.title, "question": e.question} for e in listed]))
        else:
            print("\n".join(f"{e.name:12} {e.title}" for e in listed))
        return 0
    args.out = args.out or Path("experiments")
    given = options.read_arguments(rest)
    if "data" not in given:
        given = {**FASHION, **given}
    backbones = dict(part.split("=", 1) for part in args.backbones.split(",") if "=" in part)
    if args.backbones and len(backbones) != args.backbones.count(",") + 1:
        raise LabError(f"backbones is '{args.backbones}', expected NAME=FILE,NAME=FILE")
    of_data = {"stream51": "Stream-51", "core50": "CORe50", "clear10": "Clear10", "clear100": "Clear100"}
    dataset = args.paper_data or of_data.get(given["data"].split(":")[0], "Stream-51")
    status = _execute(args, given, limit(choose(args.names), args.rows, args.columns), args.orders, backbones, dataset)
    return _check(args.check, args.out / "results.json") if args.check else status


def _check(before: Path, now: Path) -> int:
    """Compares the accuracies of two executions; times are not compared."""
    from .costs import read_json

    def numbers(path: Path) -> dict[tuple[Any, ...], float | None]:
        cells = read_json(path, "results of an experiment").get("cells")
        if not isinstance(cells, list):
            raise LabError(f"{path}: not results of an experiment")
        return {
            (c["experiment"], c["row"], c["column"], c["repetition"], m): v
            for c in cells
            for m, v in c["values"].items()
            if m not in ("ms", "Rate", "Runtime")
        }

    old, new = numbers(before), numbers(now)
    both = [k for k in old if k in new]
    moved = [k for k in both if old[k] != new[k]]
    for k in moved[:20]:
        print(f"{', '.join(map(str, k))}: was {old[k]}, is {new[k]}", file=sys.stderr)
    if moved or not both:
        raise LabError(f"{before}: {len(moved)} of {len(both)} numbers have moved" if both else f"{before}: no number can be compared", 1)
    print(f"{before}: all {len(both)} numbers are the same")
    return 0


def _sweep(arguments: list[str]) -> int:
    from . import options
    from .catalogue import sweep

    p = _parser("streamfp sweep", "Runs all combinations of some settings on your data, as one table with intervals.", 3)
    p.add_argument("--grid", action="append", metavar="KEY=VALUE,...", default=[], help="values of a setting; may be repeated. The last one gives the columns")
    args, rest = p.parse_known_args(arguments)
    args.out = args.out or Path("sweep")
    given = options.read_arguments(rest)
    experiment = sweep(args.grid, set(options.table()))
    if "data" not in given:
        given = {**FASHION, **given}
    return _execute(args, given, [experiment], 0, {}, "")


def _compare(arguments: list[str]) -> int:
    from .compare import compare

    p = _Parser(
        prog="streamfp compare",
        description="Tables and plots of runs that exist. Runs that differ only in the seed share a row, with mean and, from 3 runs on, 95 %% "
        "Student-t interval. 'streamfp runs compare' prints a plain table, or JSON, without Python.",
        allow_abbrev=False,
    )
    p.add_argument("runs", nargs="+", metavar="RUN", help="directories or numbers of runs, at least two")
    form = p.add_mutually_exclusive_group()
    form.add_argument("--latex", action="store_true", help="print a LaTeX table")
    form.add_argument("--csv", action="store_true", help="print all numbers, one per line")
    form.add_argument("--markdown", action="store_true", help="print a Markdown table")
    p.add_argument("--plot", type=Path, metavar="FILE", help="write a plot (.svg or .png) of the accuracy")
    p.add_argument("--html", type=Path, metavar="FILE", help="write a page with the table and the plot")
    args = p.parse_args(arguments)
    return compare(args)


experiment = _guarded(_experiment)
sweep = _guarded(_sweep)
compare = _guarded(_compare)
