"""Processing times and arrival rates. A method is measured once per machine; all its cells use this time, so they can be repeated."""

from __future__ import annotations

import json
import math
import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import streamfp

from . import options
from .errors import LabError


MEASUREMENTS = 5  # of each method, from which ratios of times have their intervals


@dataclass(frozen=True)
class Stream:
    """The stream that a method must process: the batches of each task, before a clock drops any."""

    samples: int
    task_batches: tuple[int, ...]

    @property
    def batches(self) -> int:
        return sum(self.task_batches)

    def kept(self, skip: float) -> list[int]:
        """Batches per task that clock paper keeps if it keeps one of every `skip`."""
        return [int(n / skip) for n in self.task_batches]

    def skip_for(self, wanted: int) -> float:
        """The largest C_S at which at least `wanted` batches are kept, and two per task. Of a stream that is too short for overload, a
        share of half of its batches is wanted instead."""
        half = self.batches // 2
        wanted = wanted if half >= 92 else int(wanted * half / 92)
        low, high = 1.0, float(self.batches)
        for _ in range(60):
            middle = math.sqrt(low * high)
            kept = self.kept(middle)
            if sum(kept) >= wanted and min(kept) >= 2:
                low = middle
            else:
                high = middle
        return max(1.0, low * (1 - 1e-6))  # below the step, so that a rounded rate keeps the same batches


def read_json(path: Path, kind: str) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, OSError) as e:
        raise LabError(f"{path}: not {kind} ({e})") from None
    if not isinstance(found, dict):
        raise LabError(f"{path}: not {kind}")
    return found


def write_file(path: Path, text: str) -> None:
    """Replaces a file as a whole."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    with os.fdopen(handle, "w", encoding="utf-8") as f:
        f.write(text)
        f.flush()
        os.fsync(f.fileno())
    os.replace(temporary, path)


class Costs:
    """The measured times, in one file per machine."""

    def __init__(self, path: Path, calibrate: int, report: Callable[[str], None], measure: bool = True):
        self.path, self.calibrate, self.report, self.may_measure = path, calibrate, report, measure
        self._streams: dict[str, Stream] = {}
        self._known: dict[str, dict[str, Any]] = read_json(path, "a file of processing times")["costs"] if path.exists() else {}

    def stream(self, values: Mapping[str, str]) -> Stream:
        keys = ("data", "tasks", "batch", "order", "method", "classes", "preset")  # the seed changes no number of batches
        key = options.digest({k: values.get(k) for k in keys})
        if key not in self._streams:
            with _open_run(_unlimited(values)) as run:
                batches, samples = run.batches()
                if not batches:
                    raise LabError("a live stream has no end, expected a dataset")
                self._streams[key] = Stream(samples, tuple(run.batches(t)[0] for t in range(len(run.result["task_names"]))))
        return self._streams[key]

    def seconds(self, values: Mapping[str, str], name: str) -> float:
        """Seconds per batch; NaN: not measured in a dry run."""
        times = self.times(values, name)
        return sum(times) / len(times) if times else math.nan

    def times(self, values: Mapping[str, str], name: str) -> list[float]:
        """Seconds per batch, mean over the tasks, measured several times. The samples of a task are shuffled. The tasks are those of a
        cell: a learner of five tasks trains a fifth of the components in each, and needs less time than one of a single task."""
        measured = {**_unlimited(values), "within": "shuffle", "order": "0", "seed": "0"}
        effective = options.effective(measured, changes_result=False)
        key, inputs = options.digest("mean over tasks", effective, values.get("tasks")), options.inputs(values)
        known = self._known.get(key)
        if known and known.get("inputs") == inputs:
            return [float(t) for t in known["seconds"]]
        if not self.may_measure:
            return []
        self.report(f"measuring the processing time: {name}")
        clock = {"clock": "paper", "rate": "1", "calibrate": str(self.calibrate)}
        with _open_run({**measured, **clock}) as run:
            times = [run.measure() for _ in range(MEASUREMENTS)]
        self._known[key] = {"name": name, "seconds": times, "inputs": inputs}
        write_file(self.path, json.dumps({"processor": processor(), "costs": self._known}, indent=1) + "\n")
        return times


def _unlimited(values: Mapping[str, str]) -> dict[str, str]:
    """Settings without a clock and with the input size of the backbone."""
    dropped = {k for k, info in options.table().items() if info.group == "Clock"} | {"out", "resume", "cache", "allocate"}
    kept = {k: v for k, v in values.items() if k not in dropped}
    if kept.get("img-size") == "auto" or ("img-size" not in kept and not kept.get("data", "").startswith("features:")):
        kept["img-size"] = "0"
    return kept


class _open_run:
    """A run that is opened only to read or measure its stream; it writes nothing."""

    def __init__(self, values: Mapping[str, str]):
        self.settings = options.create(values)

    def __enter__(self) -> streamfp.Run:
        try:
            self.run = streamfp.Run(settings=self.settings)
        except streamfp.Error as e:
            raise LabError(str(e)) from None
        return self.run

    def __exit__(self, *_: object) -> None:
        self.run.close()


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


def image_size(values: Mapping[str, str], load: float) -> str:
    """The input size that img-size auto chooses at this load, which must not depend on the machine; "": that of the backbone."""
    if options.create(values).get("img-size") != "auto" or not load or values.get("data", "").startswith("features:"):
        return ""
    with tempfile.NamedTemporaryFile("w", suffix=".costs") as f:
        f.write("query 1\n")
        f.flush()
        sizes = []
        for rate in (1.0, load):
            asked = {k: values[k] for k in ("backbone", "preset", "method") if k in values}
            with streamfp.Engine.for_settings(options.create({**asked, "clock": "virtual", "rate": str(rate), "costs": f.name})) as engine:
                sizes.append(engine.image_size)
    return "" if sizes[0] == sizes[1] else str(sizes[1])
