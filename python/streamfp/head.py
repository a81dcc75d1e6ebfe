"""Closed-form heads on features of your own (streamfp.h, part 14)."""

from __future__ import annotations

import copy
from typing import Any, Dict, Optional, Tuple

import numpy as np

from streamfp._classes import Classes, Labels, pointer
from streamfp._library import PathLike, call, encoded, ffi, file_bytes, lib, string, struct, with_file


class Head(Classes):
    """Learns classes from rows of `dim` floats, in one pass and in closed form.

    method: "ridge", "slda", "ncm" or "ranpac". Options are those of sfp_head_options: tap_dim, tap_mean, seed, plain, half_life. The
    size does not grow with the rows. Heads of several machines add up.

    >>> import numpy, streamfp
    >>> head = streamfp.Head("ridge", 2)
    >>> head.learn([[1, 0], [0.9, 0.1], [0, 1]], ["cat", "cat", "dog"])
    >>> labels, probabilities = head.predict([[0.8, 0.2]])
    >>> head.classes[labels[0, 0]]
    'cat'
    """

    _prefix = "sfp_head_"

    def __init__(self, method: str = "ridge", dim: int = 0, *, threads: int = 0, **options: Any) -> None:
        super().__init__()
        self._threads = threads
        out = ffi.new("sfp_head **")
        made = struct("sfp_head_options", threads=threads, **options)
        call(lib.sfp_head_create, encoded(method), dim, made, out)
        self._own(out[0], lib.sfp_head_free)

    @classmethod
    def load(cls, path: PathLike, *, threads: int = 0) -> "Head":
        """A head that save() has written."""
        head = cls.__new__(cls)
        Classes.__init__(head)
        head._threads = threads
        out = ffi.new("sfp_head **")
        call(lib.sfp_head_load, encoded(path), threads, out)
        head._own(out[0], lib.sfp_head_free)
        return head

    def save(self, path: PathLike) -> None:
        """Writes the whole head: one that is loaded continues with the same bytes."""
        with self._lock:
            call(lib.sfp_head_save, self._p, encoded(path))

    def __getstate__(self) -> Dict[str, Any]:
        return {"head": file_bytes(self.save), "threads": self._threads}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(with_file(state["head"], lambda path: Head.load(path, threads=state["threads"])).__dict__)

    @property
    def method(self) -> str:
        return string(lib.sfp_head_method(self._p))

    @property
    def dim(self) -> int:
        return int(lib.sfp_head_dim(self._p))

    def samples(self, label: int = -1) -> int:
        """Rows that were learned with this label; -1: with any."""
        with self._lock:
            return int(lib.sfp_head_samples(self._p, label))

    def _rows(self, rows: Any) -> Tuple[int, "np.ndarray[Any, Any]", int]:
        """Returns the number of rows, the rows as an array, and its stride in floats."""
        array = np.asarray(rows, np.float32)
        if array.ndim != 2 or array.shape[1] != self.dim:
            raise ValueError(f"rows have shape {array.shape}, expected (rows, {self.dim})")
        if array.strides[1] != 4 or array.strides[0] % 4 or array.strides[0] < 4 * self.dim:
            array = np.ascontiguousarray(array)
        return len(array), array, array.strides[0] // 4 if len(array) > 1 else 0

    def _change(self, function: Any, rows: Any, labels: Labels, keys: Any, add: bool) -> None:
        count, array, stride = self._rows(rows)
        numbers = self._labels(labels, count, add)
        keys = None if keys is None else np.ascontiguousarray(keys, np.uint64)
        if keys is not None and keys.shape != (count,):
            raise ValueError(f"keys have shape {keys.shape}, expected ({count},): one per row")
        with self._lock:
            if count:
                arrays = pointer("int32_t *", numbers), pointer("uint64_t *", keys)
                call(function, self._p, count, pointer("float *", array), stride, *arrays)

    def learn(self, rows: Any, labels: Labels, keys: Any = None) -> None:
        """Learns rows with their labels: numbers from 0, or names of classes. keys: a number that identifies each row."""
        self._change(lib.sfp_head_learn, rows, labels, keys, True)

    def forget(self, rows: Any, labels: Labels, keys: Any = None) -> None:
        """Takes out rows, as if they had never been learned (ncm, slda, ridge).

        >>> head = Head("ncm", 1)
        >>> head.learn([[1], [2], [9]], ["low", "low", "high"])
        >>> head.forget([[2]], ["low"])
        >>> head.samples()
        2
        """
        self._change(lib.sfp_head_forget, rows, labels, keys, False)

    def _with(self, function: Any, other: "Head") -> None:
        if other is self:
            other = copy.deepcopy(self)
        first, second = sorted((self, other), key=id)  # so that two heads that merge with each other do not wait for ever
        with first._lock, second._lock:
            call(function, self._p, other._p)

    def merge(self, other: "Head") -> None:
        """Adds the rows of another head. The classes are matched by name."""
        self._with(lib.sfp_head_merge, other)

    def subtract(self, other: "Head") -> None:
        """Takes out the rows of another head."""
        self._with(lib.sfp_head_subtract, other)

    def _floats(self, function: Any, rows: Any, width: Optional[int] = None) -> "np.ndarray[Any, Any]":
        count, array, stride = self._rows(rows)
        with self._lock:
            out = np.empty((count, lib.sfp_head_classes(self._p)) if width is None else count, np.float32)
            if count:
                call(function, self._p, count, pointer("float *", array), stride, pointer("float *", out))
        return out

    def scores(self, rows: Any) -> "np.ndarray[Any, Any]":
        """(rows, classes) log-probabilities; -infinity for classes without rows."""
        return self._floats(lib.sfp_head_scores, rows)

    def unknown(self, rows: Any) -> "np.ndarray[Any, Any]":
        """(rows) scores for "none of the classes", from 0 to 1; NaN: the head has none."""
        return self._floats(lib.sfp_head_unknown, rows, 1)

    def predict(self, rows: Any, top: int = 1) -> Tuple["np.ndarray[Any, Any]", "np.ndarray[Any, Any]"]:
        """(rows, top) labels of the best classes, best first, and their probabilities; label -1 if there are fewer."""
        count, array, stride = self._rows(rows)
        answers = ffi.new("sfp_prediction[]", count * top)
        with self._lock:
            if count:
                call(lib.sfp_head_predict, self._p, count, pointer("float *", array), stride, top, answers)
        labels = np.array([a.label for a in answers], np.int32).reshape(count, top)
        return labels, np.array([a.probability for a in answers], np.float32).reshape(count, top)
