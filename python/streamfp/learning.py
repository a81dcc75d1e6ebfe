"""Engines, learners and predictors (streamfp.h, parts 2 to 6)."""

from __future__ import annotations

import threading
from typing import Any, Dict, List, NamedTuple, Optional, Sequence, Tuple, Union

import numpy as np

from streamfp._classes import Classes, Label, Labels, pointer
from streamfp._images import describe, describe_all, several
from streamfp._library import (
    InvalidArgument,
    Object,
    PathLike,
    Settings,
    call,
    encoded,
    ffi,
    file_bytes,
    lib,
    log,
    name_or_none,
    settings_of,
    string,
    struct,
    with_file,
)


def fit_image(image: Any, size: int, resize: str = "squash") -> "np.ndarray[Any, Any]":
    """An image as the backbone sees it: (size, size, 3). resize: "squash" or "crop".

    >>> import numpy
    >>> fit_image(numpy.full((3, 48, 64), 7, numpy.uint8), 32)[0, 0].tolist()
    [7, 7, 7]
    """
    described, kept = describe_all([image])
    out = np.empty((size, size, 3), np.uint8)
    call(lib.sfp_image_fit, described, size, encoded(resize), pointer("uint8_t *", out))
    del kept
    return out


class Engine(Object):
    """A frozen backbone and the threads that compute with it. Learners, predictors and runs of any thread may share one.

    backbone: a safetensors, PyTorch or .npz file, "builtin", or "features:D" for samples that are D floats instead of images; None,
    with state: the backbone with which that state or run was learned. threads 0: as many as the process may run on. image_size 0:
    that of the file.

    >>> with Engine("builtin", threads=1) as engine:
    ...     engine.image_size > 0 and engine.dim > 0
    True
    """

    def __init__(
        self,
        backbone: Optional[PathLike] = "builtin",
        *,
        threads: int = 0,
        image_size: int = 0,
        precision: str = "f32",
        state: Optional[PathLike] = None,
    ) -> None:
        if precision not in ("f32", "bf16", "int8", "auto"):
            raise InvalidArgument(f"precision is '{precision}', expected f32, bf16, int8 or auto")
        options = struct("sfp_engine_options", threads=threads, image_size=image_size, log=log, state=state)
        options.precision = getattr(lib, "SFP_PRECISION_" + precision.upper())
        self._arguments: Dict[str, Any] = dict(
            backbone=backbone, threads=threads, image_size=image_size, precision=precision, state=state
        )
        out = ffi.new("sfp_engine **")
        call(lib.sfp_engine_open, encoded(backbone), options, out)
        self._own(out[0], lib.sfp_engine_close)

    @classmethod
    def for_settings(cls, settings: Settings) -> "Engine":
        """The engine that a run with these settings needs."""
        out = ffi.new("sfp_engine **")
        call(lib.sfp_engine_open_for, settings._p, log, ffi.NULL, out)
        return cls._of(out[0])

    @classmethod
    def _of(cls, made: Any) -> "Engine":
        engine = cls.__new__(cls)
        engine._arguments = {}
        engine._own(made, lib.sfp_engine_close)
        return engine

    @classmethod
    def random(cls, seed: int = 0, *, threads: int = 0) -> "Engine":
        """A tiny backbone with random weights, for tests."""
        out = ffi.new("sfp_engine **")
        call(lib.sfp_engine_open_random, seed, struct("sfp_engine_options", threads=threads, log=log), out)
        return cls._of(out[0])

    @property
    def image_size(self) -> int:
        """Side of the input in pixels."""
        return int(lib.sfp_engine_image_size(self._p))

    @property
    def dim(self) -> int:
        """Length of a feature."""
        return int(lib.sfp_engine_dim(self._p))

    def __deepcopy__(self, memo: Any) -> "Engine":
        return self  # it does not change

    def __getstate__(self) -> Dict[str, Any]:
        if not self._arguments:
            raise TypeError("an engine that was not opened by its backbone's file cannot be pickled")
        return self._arguments

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(**state)  # type: ignore[misc]


class Report(NamedTuple):
    """The numbers of one timestamp (sfp_timestamp_report)."""

    timestamp: int
    offered: int
    coreset: int
    steps: int
    trained: int
    replayed: int
    stored: int
    replaced: int
    loss: float
    seconds: float


class Learner(Classes):
    """Learns from batches of labelled images. Settings are those of `streamfp run`, with "_" in place of "-".

    One call at a time runs on a learner; its predictors may run on other threads at the same time.

    >>> import numpy, streamfp
    >>> dark, bright = numpy.zeros((48, 48, 3), numpy.uint8), numpy.full((48, 48, 3), 250, numpy.uint8)
    >>> with streamfp.Learner(method="ncm") as learner:
    ...     report = learner.offer([dark, bright], ["night", "day"])
    ...     learner.predictor().predict([bright])[0].name
    'day'
    """

    _prefix = "sfp_learner_"

    def __init__(self, engine: Optional[Engine] = None, settings: Optional[Settings] = None, **options: Any) -> None:
        super().__init__()
        self.engine = engine or Engine()
        self._settings = settings = settings_of(settings, options)
        self.batch = int(settings.get("batch") or 1)  # samples in one call, at most
        out = ffi.new("sfp_learner **")
        call(lib.sfp_learner_create, self.engine._p, settings._p, out)
        self._own(out[0], lib.sfp_learner_free, self.engine._p)

    def _call(self, name: str, *arguments: Any) -> None:
        with self._lock:
            call(self._function(name), self._p, *arguments)

    def _samples(self, images: Any, labels: Any, ids: Any, add: bool = True) -> Tuple[int, Any, List[Any]]:
        """Returns the number of samples, an array of them, and the owners of its memory, which must live as long."""
        one = labels is not None and np.ndim(labels) == 0 or labels is None and ids is not None and np.ndim(ids) == 0
        images = [images] if one else several(images)
        count = len(images)
        numbers: Any = [0] * count if labels is None else self._labels(labels, count, add)
        ids = np.atleast_1d([0] * count if ids is None else ids)
        if ids.shape != (count,):
            raise ValueError(f"ids have shape {ids.shape}, expected ({count},): one per sample")
        samples, kept = ffi.new("sfp_sample[]", count), []
        for i, sample in enumerate(samples):
            kept.append(describe(sample.image, images[i]))
            sample.label, sample.id = int(numbers[i]), int(ids[i])
        return count, samples, kept

    def _offer(self, name: str, *arguments: Any) -> Report:
        report = struct("sfp_timestamp_report")
        self._call(name, *arguments, report)
        return Report(*(getattr(report, field) for field in Report._fields))

    def offer(self, images: Any, labels: Labels, ids: Any = None) -> Report:
        """One timestamp: learns from 1 to `batch` images with their labels, which are numbers from 0 or names of classes. A single
        label goes with a single image."""
        count, samples, kept = self._samples(images, labels, ids)
        return self._offer("offer", count, samples)

    def enqueue(self, images: Any, ids: Any) -> None:
        """Keeps unlabelled images with their ids, until label() or until the queue (setting label_queue) is full."""
        count, samples, kept = self._samples(images, None, ids)
        self._call("enqueue", count, samples)

    def label(self, ids: Any, labels: Labels) -> Report:
        """Learns from images of the queue, whose labels have arrived."""
        ids = np.atleast_1d(np.asarray(ids, np.uint64))
        numbers = self._labels(labels, len(ids))
        return self._offer("label", len(ids), pointer("uint64_t *", ids), pointer("int32_t *", numbers))

    @property
    def queued(self) -> int:
        """Images that wait for a label."""
        with self._lock:
            return int(lib.sfp_learner_queued(self._p))

    def forget(self, images: Any, labels: Labels) -> None:
        """Takes out samples, as if they had never been learned (ncm, slda, ridge)."""
        count, samples, kept = self._samples(images, labels, None, add=False)
        self._call("forget", count, samples)

    def relabel(self, image: Any, label: Label, new: Label) -> None:
        """Corrects the label of one learned sample (ncm, slda, ridge)."""
        count, samples, kept = self._samples([image], [label], None, add=False)
        self._call("relabel", samples, int(self._labels(new, 1)[0]))

    def _add(self, name: str, other: Union[PathLike, bytes, "Learner"]) -> None:
        if isinstance(other, Learner):
            other = other.to_bytes()
        if isinstance(other, bytes):
            self._call(name + "_memory", ffi.from_buffer(other), len(other))
        else:
            self._call(name, encoded(other))

    def merge(self, other: Union[PathLike, bytes, "Learner"]) -> None:
        """Adds what another learner has learned: that learner, its bytes, or the path of a state, checkpoint or run (ncm, slda,
        ridge). The classes are matched by name.

        >>> import numpy
        >>> here, there = Learner(method="ridge"), Learner(method="ridge")
        >>> for level, learner in enumerate((here, there)):
        ...     _ = learner.offer([numpy.full((32, 32), 200 * level, numpy.uint8)], [f"level {level}"])
        >>> here.merge(there)
        >>> here.classes
        ['level 0', 'level 1']
        """
        self._add("merge", other)

    def subtract(self, other: Union[PathLike, bytes, "Learner"]) -> None:
        """Takes out what another learner has learned."""
        self._add("subtract", other)

    def save(self, path: PathLike) -> None:
        """Writes the state, which contains everything that prediction needs."""
        self._call("save", encoded(path))

    def load(self, path: PathLike) -> None:
        """Continues with a state or checkpoint of a learner with the same settings."""
        self._call("load", encoded(path))

    def checkpoint(self, path: PathLike, position: str = "") -> None:
        """Writes all that is needed to resume, and a text of yours, such as the place in the stream."""
        self._call("checkpoint", encoded(path), encoded(position))

    def resume(self, path: PathLike) -> str:
        """Continues from a checkpoint, and returns its text. NotFound: there is none."""
        out = ffi.new("char **")
        self._call("resume", encoded(path), out)
        position = string(out[0])
        lib.sfp_free(out[0])
        return position

    def to_bytes(self) -> bytes:
        """A checkpoint as bytes."""
        return file_bytes(self.checkpoint)

    def __getstate__(self) -> Dict[str, Any]:
        return {"engine": self.engine, "settings": self._settings, "checkpoint": self.to_bytes()}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__init__(state["engine"], state["settings"])  # type: ignore[misc]
        with_file(state["checkpoint"], self.resume)

    def set_class_name(self, label: int, name: str) -> None:
        self._call("set_class_name", label, encoded(name))

    def set_task_classes(self, labels: Labels) -> None:
        """Names the classes of the current task (settings with a number of tasks)."""
        numbers = self._labels(labels, np.size(labels))
        self._call("set_task_classes", len(numbers), pointer("int32_t *", numbers))

    def next_task(self) -> None:
        self._call("next_task")

    def predictor(self, *, threads: int = 0, max_batch: int = 0) -> "Predictor":
        """A predictor of this learner, for one other thread."""
        return Predictor(self, threads=threads, max_batch=max_batch)


class Prediction(NamedTuple):
    """The answer to one image. label -1: no class has been learned, or the image could not be read, and `error` says why. unknown:
    the score for "none of the classes", from 0 to 1; NaN: there is none."""

    label: int
    name: Optional[str]
    probability: float
    unknown: float
    error: str


class Predictor(Object):
    """Predicts from a learner while it learns, from a state or run directory, or with an engine's own head.

    source: a Learner; the path of a state or run, with the engine (None: the backbone with which it was learned); or an Engine, whose
    settings are `resize`, `normalise`, `taps` and `tap_mean`. Each thread has its own predictor.
    """

    def __init__(
        self,
        source: Union[Learner, Engine, PathLike],
        engine: Optional[Engine] = None,
        *,
        threads: int = 0,
        max_batch: int = 0,
        **options: Any,
    ) -> None:
        self._lock = threading.RLock()
        made = struct("sfp_predictor_options", threads=threads, max_batch=max_batch)
        out = ffi.new("sfp_predictor **")
        if options and not isinstance(source, Engine):
            raise TypeError(f"{next(iter(options))} is a setting of an engine's own features; those of a learner or state are fixed")
        if isinstance(source, Learner):
            self.engine, guard, parent = source.engine, source._lock, source._p
            with guard:
                call(lib.sfp_predictor_create, parent, made, out)
            self._own(out[0], lambda p: guard.free(p, parent))
        elif isinstance(source, Engine):
            self.engine = source
            call(lib.sfp_predictor_open_backbone, source._p, Settings(options)._p, made, out)
            self._own(out[0], lib.sfp_predictor_free, source._p)
        else:
            self.engine = engine or Engine(None, state=source)
            call(lib.sfp_predictor_open, self.engine._p, encoded(source), made, out)
            self._own(out[0], lib.sfp_predictor_free, self.engine._p)

    def _run(self, images: Any) -> Tuple[int, Any]:
        images = several(images)
        described, kept = describe_all(images)
        answers = ffi.new("sfp_prediction[]", len(images))
        if len(images):
            call(lib.sfp_predictor_run, self._p, len(images), described, answers)
        del kept
        return len(images), answers

    def _floats(self, values: Any, count: int) -> "np.ndarray[Any, Any]":
        return np.frombuffer(ffi.buffer(values, 4 * count), np.float32).copy()

    def _check(self, count: int, answers: Any) -> None:
        for i in range(count):
            if answers[i].status:
                raise InvalidArgument(string(lib.sfp_predictor_image_error(self._p, i)))

    def predict(self, images: Any) -> List[Prediction]:
        """The best class of each image. An image that cannot be read has label -1 and an error; the others are answered."""
        with self._lock:
            count, answers = self._run(images)
            found = lib.sfp_predictor_unknown(self._p) if count else ffi.NULL
            unknown = np.full(count, np.nan) if found == ffi.NULL else self._floats(found, count)
            names = self.classes
            return [
                Prediction(
                    int(a.label),
                    names[a.label] if a.label >= 0 else None,
                    float(a.probability),
                    float(unknown[i]),
                    string(lib.sfp_predictor_image_error(self._p, i)),
                )
                for i, a in enumerate(answers)
            ]

    def _rows(self, images: Any, length: Any, values: Any) -> "np.ndarray[Any, Any]":
        """(images, length) floats of the last run."""
        with self._lock:
            count, answers = self._run(images)
            for i in range(count):
                if answers[i].status:
                    raise InvalidArgument(string(lib.sfp_predictor_image_error(self._p, i)))
            found, width = values(self._p), length(self._p)
            if found == ffi.NULL:  # no images, or no classes
                return np.empty((count, width), np.float32)
            return self._floats(found, count * width).reshape(count, width)

    def predict_proba(self, images: Any) -> "np.ndarray[Any, Any]":
        """(images, classes) probabilities; 0 for classes without samples."""
        return probabilities(self._rows(images, lib.sfp_predictor_classes, lib.sfp_predictor_scores))

    def features(self, images: Any) -> "np.ndarray[Any, Any]":
        """(images, feature_dim) features: of an engine, or those from which a closed-form head predicts."""
        if not self.feature_dim:
            raise TypeError("a predictor of fingerprints has no features; Predictor(engine) has")
        return self._rows(images, lib.sfp_predictor_feature_dim, lib.sfp_predictor_features)

    @property
    def feature_dim(self) -> int:
        return int(lib.sfp_predictor_feature_dim(self._p))

    def refresh(self) -> None:
        """Takes the newest snapshot without an image, for example to read its classes."""
        with self._lock:
            call(lib.sfp_predictor_refresh, self._p)

    @property
    def classes(self) -> List[Optional[str]]:
        """Names of the classes by label, as of the last answers; None: the class has no name."""
        return [name_or_none(lib.sfp_predictor_class_name(self._p, i)) for i in range(lib.sfp_predictor_classes(self._p))]

    @property
    def timestamps(self) -> int:
        """Number of batches that were learned before the last answers."""
        return int(lib.sfp_predictor_timestamps(self._p))


def probabilities(scores: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
    """Probabilities from rows of log-probabilities or logits; a row of only -infinity becomes 0."""
    scores = scores.astype(np.float64)
    best = scores.max(axis=1, keepdims=True, initial=-np.inf)
    powers = np.exp(scores - np.where(np.isfinite(best), best, 0))
    return powers / np.where(np.isfinite(best), powers.sum(axis=1, keepdims=True), 1)
