"""Runs, their results, and evaluations (streamfp.h, parts 8 and 9)."""

from __future__ import annotations

import json
import os
import threading
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from streamfp._library import Object, PathLike, Settings, call, encoded, ffi, lib, log, name_or_none, settings_of, string, struct
from streamfp.learning import Engine


class Progress(NamedTuple):
    """How far a run is (sfp_run_progress). NaN: not known."""

    task: int
    tasks: int
    task_name: Optional[str]
    offered_before: int
    offered: int
    total: int
    rate: float
    lag: float
    loss: float
    accuracy: float
    seconds: float
    evaluated: int
    to_evaluate: int


class Run(Object):
    """Learns from a stream as `streamfp run` does: its settings, with "_" in place of "-".

    engine None: the one that the settings need. progress: called after each timestamp and during evaluations. Ctrl-C ends a run
    with a checkpoint, from which resume=True continues.

    >>> with Run(data="synthetic:40", tasks=1) as run:
    ...     result = run.finish()
    >>> result["samples"]["offered"]
    40
    """

    def __init__(
        self,
        engine: Optional[Engine] = None,
        settings: Optional[Settings] = None,
        *,
        progress: Optional[Callable[[Progress], None]] = None,
        **options: Any,
    ) -> None:
        settings = settings_of(settings, options)
        self.engine = engine or Engine.for_settings(settings)
        self._lock = threading.Lock()
        self._failure: Optional[BaseException] = None
        self._progress = ffi.NULL if progress is None else self._callback(progress)
        run_options = struct("sfp_run_options", log=log, progress=self._progress)
        out = ffi.new("sfp_run **")
        call(lib.sfp_run_open, self.engine._p, settings._p, run_options, out)
        self._own(out[0], lib.sfp_run_close, self.engine._p, self._progress)

    def _callback(self, progress: Callable[[Progress], None]) -> Any:
        @ffi.callback("void(void *, const sfp_run_progress *)")  # type: ignore[misc]
        def report(ctx: Any, p: Any) -> None:
            values = {name: getattr(p, name) for name in Progress._fields}
            values["task_name"] = name_or_none(p.task_name)
            try:
                progress(Progress(**values))
            except BaseException as error:  # also Ctrl-C: raised by the step
                self._failure = self._failure or error

        return report

    def step(self) -> bool:
        """Processes the next delivery; False: the stream has ended, or the run was cancelled."""
        more = ffi.new("int *")
        with self._lock:
            call(lib.sfp_run_step, self._p, more)
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure
        return bool(more[0])

    def finish(self) -> Dict[str, Any]:
        """All steps that are left, and the result."""
        try:
            while self.step():
                pass
        except KeyboardInterrupt:
            self.cancel()
            while self.step():
                pass
            raise
        return self.result

    def cancel(self) -> None:
        """Asks the run to stop after this timestamp and to write a checkpoint. Any thread may call it."""
        lib.sfp_run_cancel(self._p)

    def batches(self, task: int = -1) -> Tuple[int, int]:
        """Batches of a task (-1: of all) before a clock drops any, and their samples; 0 for a live source."""
        samples = ffi.new("int64_t *")
        with self._lock:
            return int(lib.sfp_run_batches(self._p, task, samples)), int(samples[0])

    def measure(self) -> float:
        """The mean processing time of a batch in seconds, measured on a copy of the learner before the first step."""
        seconds = ffi.new("double *")
        with self._lock:
            call(lib.sfp_run_measure, self._p, seconds)
        return float(seconds[0])

    @property
    def result(self) -> Dict[str, Any]:
        """The contents of result.json; complete when the run has ended."""
        out = ffi.new("char **")
        with self._lock:
            call(lib.sfp_result_json, lib.sfp_run_result(self._p), 1, out)
        text = string(out[0])
        lib.sfp_free(out[0])
        parsed: Dict[str, Any] = json.loads(text)
        return parsed


class Accuracy(NamedTuple):
    """Correct answers to the images of a task or class."""

    name: str
    images: int
    correct: int
    accuracy: float


class Evaluation(NamedTuple):
    """The accuracy of a state. unknown: images of classes that the state has not learned. confusion (classes, classes): row: true
    class, column: answer; None: too many classes."""

    accuracy: float
    average_accuracy: float
    calibration_error: float
    images: int
    correct: int
    skipped: int
    unlabelled: int
    unknown: int
    seconds: float
    tasks: List[Accuracy]
    classes: List[Accuracy]
    unknown_classes: List[Accuracy]
    confusion: Optional["np.ndarray[Any, Any]"]
    first_error: str


def evaluate(
    state: PathLike,
    data: str,
    *,
    engine: Optional[Engine] = None,
    tasks: Optional[str] = None,
    limit: int = 0,
    train_part: bool = False,
    seed: Optional[int] = None,
) -> Evaluation:
    """The accuracy of a state or run directory on labelled images, KIND:PATH.

    >>> from streamfp import Learner
    >>> learner = Learner(method="ncm")
    >>> _ = learner.offer(["photos/mug/1.png", "photos/bowl/1.png"], ["mug", "bowl"])
    >>> learner.save("two.safetensors")
    >>> evaluate("two.safetensors", "folder:photos").images
    16
    """
    options = struct("sfp_evaluation_options", state=state, data=data, tasks=tasks, limit=limit, train_part=train_part, log=log)
    if seed is not None:
        options.has_seed, options.seed = 1, seed
    engine = engine or Engine(None, state=state)
    out = ffi.new("sfp_evaluation **")
    call(lib.sfp_evaluate, engine._p, options, out)
    made = ffi.gc(out[0], lib.sfp_evaluation_free)

    def rows(function: Any) -> List[Accuracy]:
        count = ffi.new("int *")
        found = function(made, count)
        return [Accuracy(string(r.name), int(r.images), int(r.correct), float(r.accuracy)) for r in found[0 : count[0]]]

    numbers = {key: lib.sfp_evaluation_number(made, key.encode()) for key in Evaluation._fields[:9]}
    for key in ("images", "correct", "skipped", "unlabelled", "unknown"):
        numbers[key] = int(numbers[key])
    classes = rows(lib.sfp_evaluation_classes)
    confusion, matrix = lib.sfp_evaluation_confusion(made), None
    if confusion != ffi.NULL:
        matrix = np.frombuffer(ffi.buffer(confusion, 8 * len(classes) ** 2), np.uint64).reshape(len(classes), -1).copy()
    return Evaluation(
        **numbers,
        tasks=rows(lib.sfp_evaluation_tasks),
        classes=classes,
        unknown_classes=rows(lib.sfp_evaluation_unknown),
        confusion=matrix,
        first_error=string(lib.sfp_evaluation_first_error(made)),
    )


def merge_share(
    directory: PathLike,
    output: PathLike,
    *,
    subtract: Sequence[PathLike] = (),
    sums_only: bool = False,
    min_count: int = 0,
) -> int:
    """Adds up what the workers of a message log have committed to the directory that they share, and writes a state.

    Returns the number of samples in it. It may be called again and again while the workers learn. subtract: states, checkpoints or runs
    whose samples are taken out.
    """
    paths = [ffi.new("char[]", encoded(path)) for path in subtract]
    options = struct(
        "sfp_merge_options",
        subtract=ffi.new("const char *[]", paths) if paths else None,
        subtract_count=len(paths),
        sums_only=int(sums_only),
        min_count=min_count,
    )
    report = struct("sfp_merge_report")
    call(lib.sfp_merge_share, encoded(directory), encoded(output), options, report)
    return int(report.samples)


class Recorded(NamedTuple):
    """A run as data frames of pandas: `result` has one row, with a column for each number or text of result.json ("samples.offered"),
    `events` one row per line of events.jsonl."""

    result: Any
    events: Any


def read_run(directory: PathLike) -> Recorded:
    """Reads result.json and events.jsonl of a run directory.

    >>> _ = Run(data="synthetic:40", tasks=1, out="runs/1").finish()
    >>> recorded = read_run("runs/1")
    >>> int(recorded.result["samples.offered"][0])
    40
    """
    try:
        import pandas
    except ImportError as error:
        raise ImportError("read_run needs pandas: pip install pandas, or apt-get install python3-pandas") from error
    with open(os.path.join(directory, "result.json"), encoding="utf-8") as file:
        result = pandas.json_normalize(json.load(file))
    path = os.path.join(directory, "events.jsonl")
    lines: Tuple[str, ...] = ()
    if os.path.exists(path):
        with open(path, encoding="utf-8") as file:
            lines = tuple(file)
    # the last line of a run that was killed may be incomplete
    complete = [line for line in lines if line.endswith("\n")]
    return Recorded(result, pandas.json_normalize([json.loads(line) for line in complete]))
