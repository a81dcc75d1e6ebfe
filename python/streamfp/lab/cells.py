"""The cells of tables, and their execution: several at a time, in shards, resumed after any stop, none twice."""

from __future__ import annotations

import fcntl
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TextIO

import streamfp

from . import options
from .catalogue import Experiment, Metric, Variant, reference
from .costs import Costs, image_size, read_json, write_file
from .errors import LabError

WAITING, DONE, STARVED, OMITTED = "waiting", "done", "starved", "omitted"


@dataclass
class Cell:
    """One repetition of one cell of a table."""

    experiment: Experiment
    row: Variant
    column: Variant
    repetition: int  # from 0
    settings: dict[str, str] = field(default_factory=dict)
    key: str = ""  # hash of everything that determines the result; also the name of its directory
    inputs: str = ""
    rate: float = math.nan
    cost: float = math.nan  # seconds per batch
    times: tuple[float, ...] = ()  # its single measurements
    batches: int = 0  # of the whole stream
    starves: bool = False  # no time for a batch in the first task; the paper's table has a dash for such a cell
    state: str = WAITING
    values: dict[str, float] = field(default_factory=dict)

    @property
    def name(self) -> str:
        parts = [self.experiment.name, self.row.name, self.column.name, f"repetition {self.repetition + 1}"]
        return ", ".join(p for p in parts if p)


@dataclass(frozen=True)
class Plan:
    """The settings of an execution, from which its cells follow."""

    out: Path
    given: Mapping[str, str]  # settings of the user, which have precedence over those of an experiment
    seeds: int
    orders: int  # class orders of the paper's authors; 0: the order of the settings
    first_seed: int
    share: bool  # runs share features of images in out/cache
    backbones: Mapping[str, str]

    @property
    def repetitions(self) -> int:
        return self.seeds * max(1, self.orders)

    def repetition_settings(self, repetition: int) -> dict[str, str]:
        """Orders and seeds are crossed: every seed has every order."""
        own = {"seed": str(self.first_seed + repetition // max(1, self.orders))}
        return {**own, "order": f"authors:{repetition % self.orders + 1}"} if self.orders else own

    def columns(self, e: Experiment) -> tuple[Variant, ...]:
        if not e.backbones or not self.backbones:
            return e.columns
        return tuple(Variant(name=n, settings={"backbone": f}, batches=e.columns[0].batches) for n, f in self.backbones.items())

    def cells(self, experiments: list[Experiment]) -> list[Cell]:
        """In the order of execution: every experiment once, then its repetitions, then other forms of methods."""
        return [
            Cell(e, row, column, k)
            for extra in (False, True)
            for k in range(self.repetitions)
            for e in experiments
            if k == 0 or not e.cost_only
            for row in e.rows
            if row.extra == extra
            for column in self.columns(e)
        ]

    def prepare(self, cell: Cell, costs: Costs) -> None:
        """Finds the settings, the arrival rate and the key of a cell."""
        e, row, column = cell.experiment, cell.row, cell.column
        base = {**e.settings, **self.given, **column.settings}
        values = {**base, **({} if row.closed else column.learner), **row.settings}
        given = {k: v for k, v in self.given.items() if k not in row.settings}
        values = options.with_effect({**values, **self.repetition_settings(cell.repetition)}, given)
        timed = bool(column.batches or column.load)
        clock: dict[str, str] = {}
        kept: list[int] = []
        if timed:
            of = {**base, **(column.load_of or reference())}
            seconds, stream = costs.seconds(of, "the reference of the arrival rate"), costs.stream(of)
            batch = int(options.create(values).get("batch") or 20)
            if column.load:
                cell.rate = column.load * batch / seconds
                if size := image_size(values, column.load if "method" in column.load_of else 0):
                    values["img-size"] = size
            else:
                cell.rate = stream.skip_for(column.batches) * stream.samples / (seconds * stream.batches)
            if row.fits:
                values = fit_coreset(values, batch / cell.rate, batch, costs)
        if timed or e.cost_only:
            cell.times = tuple(costs.times(values, row.name + (f", {column.name}" if column.learner else "")))
            cell.cost = seconds if column.equal else costs.seconds(values, row.name)
            stream = costs.stream(values)
            cell.batches = stream.batches
            if column.batches and not math.isnan(cell.cost):
                kept = stream.kept(max(1.0, cell.cost * stream.batches * cell.rate / stream.samples))
                cell.starves = kept[0] == 0
        if timed and not math.isnan(cell.cost):
            clock["rate"] = f"{cell.rate:.9g}"
            clock["costs"] = f"query {cell.cost / batch:.9g}" if row.allocates else f"{cell.cost:.9g}"
        cell.settings, cell.inputs = values, options.inputs(values)
        if kept and options.create({**values, "rate": "1"}).get("clock") == "paper":  # rate and cost only decide which batches are kept
            decides: object = kept
        else:
            decides = clock
        cell.key = options.digest(options.effective(values), decides, cell.inputs)
        cell.settings = {**values, **clock}


def fit_coreset(values: dict[str, str], seconds: float, batch: int, costs: Costs) -> dict[str, str]:
    """The largest coreset whose processing time fits these seconds."""
    replay, best = int(values.get("replay", 10)), values
    for n in range(1, batch + 1):
        tried = {**values, "sigma": f"{n / batch:.6g}", "replay": str(min(n, replay))}
        if n > 1 and costs.seconds(tried, f"coreset of {n}") > seconds:
            break
        best = tried
    return best


# --------------------------------------------------------------------------------------------------------------- results


def times_of(m: Metric, cell: Cell) -> list[float]:
    """The measured times of a method in the unit of a metric."""
    batch = int(cell.settings.get("batch", 20))
    return [{"cost": 1e3 * t, "throughput": batch / t, "runtime": t * cell.batches}[m.key] for t in cell.times]


def metric_value(m: Metric, cell: Cell, result: Mapping[str, Any]) -> float:
    if m.is_time and cell.times:
        return math.fsum(times_of(m, cell)) / len(cell.times)
    if m.key == "runtime":
        return math.fsum(result.get("seconds", {}).get(k, 0.0) for k in ("select", "train", "buffer"))
    value: Any = result
    for part in m.key.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return math.nan if value is None else float(value)


def read_values(cell: Cell, result: Mapping[str, Any]) -> None:
    cell.values = {m.name: metric_value(m, cell, result) for m in cell.experiment.metrics}
    cell.state = STARVED if cell.starves else DONE


# ------------------------------------------------------------------------------------------------------------- execution


class Cancelled(Exception):
    pass


class Executor:
    """Runs cells as processes of the program."""

    def __init__(self, plan: Plan, jobs: int, shard: tuple[int, int], program: str, report: TextIO, deadline: float = math.inf):
        self.plan, self.jobs, self.shard, self.program, self.stream, self.deadline = plan, jobs, shard, program, report, deadline
        self.running: set[subprocess.Popen[bytes]] = set()
        self.lock = threading.Lock()
        self.cancelled = threading.Event()
        self.began, self.done, self.executed, self.spent = time.monotonic(), 0, 0, 0.0
        self.seconds: dict[tuple[str, str], list[float]] = {}

    def directory(self, cell: Cell) -> Path:
        return self.plan.out / "cells" / cell.key

    def is_mine(self, cell: Cell) -> bool:
        index, count = self.shard
        return int(cell.key, 16) % count == index - 1

    def read(self, cell: Cell) -> bool:
        """Reads the result of a cell; False: it was not run before, or its run did not finish."""
        path = self.directory(cell) / "result.json"
        if cell.experiment.cost_only:
            read_values(cell, {})
        elif path.exists():
            result = read_json(path, "a result of a run; remove its directory to run it again")
            if result.get("finished"):
                read_values(cell, result)
                self.seconds.setdefault((cell.experiment.name, cell.row.name), []).append(
                    float(result.get("seconds", {}).get("total") or 0)
                )
        return cell.state != WAITING

    def execute(self, cells: list[Cell]) -> None:
        """Runs all cells of this shard that are left. Cells of several tables with the same key are run once."""
        groups: dict[str, list[Cell]] = {}
        for cell in cells:
            if not self.read(cell) and cell.state != OMITTED:
                groups.setdefault(cell.key, []).append(cell)
        mine = [g for g in groups.values() if self.is_mine(g[0])]
        self.total, self.done = len(mine), 0
        previous = [signal.signal(s, self._cancel) for s in (signal.SIGINT, signal.SIGTERM)]
        try:
            with ThreadPoolExecutor(self.jobs) as pool:
                failures = [f for f in pool.map(self._guarded, mine) if f]
        finally:
            for s, handler in zip((signal.SIGINT, signal.SIGTERM), previous):
                signal.signal(s, handler)
        if failures:
            raise failures[0]
        if self.cancelled.is_set():
            raise LabError("stopped; the same command continues", 1)

    def _cancel(self, *_: object) -> None:
        self.cancelled.set()
        for process in list(self.running):
            process.send_signal(signal.SIGINT)

    def _guarded(self, group: list[Cell]) -> LabError | None:
        """A failed cell stops the others, which can be continued."""
        if self.cancelled.is_set():
            return None
        try:
            self._run_group(group)
        except LabError as e:
            self._cancel()
            return e
        return None

    def _run_group(self, group: list[Cell]) -> None:
        cell = group[0]
        if time.monotonic() > self.deadline:
            for c in group:
                c.state = OMITTED
            return
        from_ = time.monotonic()
        with _locked(self.directory(cell).with_suffix(".lock")) as locked:
            if not locked and not self.read(cell):  # another process runs it
                self.report(f"{cell.name}: run by another process")
                return
            if locked and not self.read(cell):
                self._run(cell)
        for c in group:
            self.read(c)
        if cell.state == WAITING:  # stopped
            return
        with self.lock:
            self.done += 1
            self.executed += 1
            self.spent += time.monotonic() - from_
            left = self.spent / self.executed * (self.total - self.done) / self.jobs
        accuracy = cell.values.get("Acc", math.nan)
        shown = "" if math.isnan(accuracy) else f"  Acc {100 * accuracy:.2f}"
        self.report(f"{self.done}/{self.total}  {cell.name}{shown}  {time.monotonic() - from_:.1f} s  ETA {_clock(left)}")

    def _run(self, cell: Cell) -> None:
        directory = self.directory(cell)
        note = directory / "cell.json"
        settings = dict(cell.settings)
        if resumed := note.exists():  # a cell of another table, perhaps, that keeps the same batches at another rate
            settings = dict(read_json(note, "a note of a cell; remove its directory to run it again").get("settings", settings))
        elif directory.exists():
            shutil.rmtree(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_file(note, json.dumps({"cell": cell.name, "settings": settings, "inputs": cell.inputs}, indent=1) + "\n")
        if "costs" in settings:
            write_file(directory / "costs", settings["costs"] + "\n")
            settings["costs"] = str(directory / "costs")
        settings.setdefault("threads", str(max(1, (os.cpu_count() or 1) // self.jobs)))
        if self.plan.share and not settings.get("data", "").startswith("features:"):
            settings.setdefault("cache", str(self.plan.out / "cache"))
        arguments = [f"--{k}={v}" for k, v in settings.items()]
        begun = resumed and any((directory / n).exists() for n in ("checkpoint", "checkpoint.old", "events.jsonl"))
        command = [self.program, "run", *arguments, "--out", str(directory), *(["--resume"] if begun else [])]
        with (directory / "log").open("wb") as log:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, start_new_session=True)
        self.running.add(process)
        if self.cancelled.is_set():
            process.send_signal(signal.SIGINT)
        status = process.wait()
        self.running.discard(process)
        if self.cancelled.is_set():
            return
        if status or not self.read(cell):
            said = (directory / "log").read_text(errors="replace").strip().splitlines()
            raise LabError(f"{cell.name}: {said[-1] if said else f'the run ended with status {status}'}", 1)
        for name in ("checkpoint", "checkpoint.old", *(p.name for p in directory.glob("state-task-*.safetensors"))):
            (directory / name).unlink(missing_ok=True)  # only an unfinished run needs them

    def report(self, text: str) -> None:
        print(text, file=self.stream, flush=True)


@contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Holds the lock of a cell; False: another process has it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
            return
        yield True


def _clock(seconds: float) -> str:
    minutes, s = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{s:02}" if hours else f"{minutes}:{s:02}"


def find_program() -> str:
    """The program: $STREAMFP, else the one beside this command, else the one in PATH."""
    beside = Path(sys.argv[0]).resolve().parent / "streamfp"
    found = os.environ.get("STREAMFP") or (str(beside) if beside.is_file() else shutil.which("streamfp"))
    if not found:
        raise LabError("the program streamfp was not found in PATH; build it with make, and set STREAMFP to its path")
    try:
        version = subprocess.run([found, "--version"], capture_output=True, text=True).stdout.strip()
    except OSError as e:
        raise LabError(f"{found}: {e.strerror}") from None
    if version != f"streamfp {streamfp.__version__}":
        raise LabError(f"{found} is {version or 'another program'}, expected streamfp {streamfp.__version__}, as the Python package")
    return found
