"""Classes of learners and heads: labels are numbers from 0 or names."""

from __future__ import annotations

import threading
from typing import Any, List, Optional, Sequence, Union

import numpy as np

from streamfp._library import Object, call, encoded, ffi, lib, name_or_none

Label = Union[int, str]
Labels = Union[Label, Sequence[Label], "np.ndarray[Any, Any]"]


class Guard:
    """The lock of a learner. A predictor must not be freed during a call of its learner, so it is freed at the end of the call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._to_free: List[Any] = []

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *exception: object) -> None:
        self._free_all()
        self._lock.release()

    def __del__(self) -> None:
        self._free_all()

    def _free_all(self) -> None:
        while self._to_free:
            lib.sfp_predictor_free(self._to_free.pop()[0])

    def free(self, pointer: Any, *parents: Any) -> None:
        self._to_free.append((pointer, parents))
        if self._lock.acquire(blocking=False):
            self.__exit__()


class Classes(Object):
    """The classes of an object whose functions begin with `_prefix`."""

    _prefix = ""

    def __init__(self) -> None:
        self._lock = Guard()

    def _function(self, name: str) -> Any:
        return getattr(lib, self._prefix + name)

    @property
    def classes(self) -> List[Optional[str]]:
        """Their names by label; None: the class has no name."""
        with self._lock:
            return [name_or_none(self._function("class_name")(self._p, i)) for i in range(self._function("classes")(self._p))]

    def add_class(self, name: str) -> int:
        """The label of the class of this name, which is added if there is none."""
        label = ffi.new("int32_t *")
        with self._lock:
            call(self._function("add_class"), self._p, encoded(name), label)
        return int(label[0])

    def _labels(self, labels: Labels, count: int, add: bool = True) -> "np.ndarray[Any, Any]":
        """Labels as numbers, one per sample; add: names of new classes are added."""
        array = np.atleast_1d(np.asarray(labels))
        if array.shape != (count,):
            raise ValueError(f"labels have shape {array.shape}, expected ({count},): one per sample")
        if array.dtype.kind in "iu":
            if count and (array.min() < 0 or array.max() > np.iinfo(np.int32).max):
                raise ValueError(f"label {array.min() if array.min() < 0 else array.max()} is out of range, expected numbers from 0")
            return array.astype(np.int32)
        if not all(isinstance(name, str) for name in array):
            raise TypeError(f"labels are {array.dtype}, expected whole numbers from 0 or names")
        known = {} if add else {name: label for label, name in enumerate(self.classes)}
        if not add and (unknown := [name for name in array if name not in known]):
            raise ValueError(f"there is no class '{unknown[0]}'")
        numbers = {name: self.add_class(name) if add else known[name] for name in dict.fromkeys(array.tolist())}
        return np.array([numbers[name] for name in array], np.int32)


def pointer(ctype: str, array: Optional["np.ndarray[Any, Any]"]) -> Any:
    """An array as an argument, which must be contiguous and live during the call; NULL for None."""
    return ffi.NULL if array is None else ffi.cast(ctype, array.ctypes.data)
