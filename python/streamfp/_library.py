"""The C library: where it is, its errors as exceptions, its objects and structs as Python has them."""

from __future__ import annotations

import logging
import os
import tempfile
import weakref
from pathlib import Path
from typing import Any, Callable, Dict, Iterator, Mapping, NamedTuple, Optional, Union

from streamfp import _abi  # generated from streamfp.h by python/abi.py

ffi: Any = _abi.ffi
VERSION: str = _abi.VERSION
PathLike = Union[str, "os.PathLike[str]"]
_NAME = "libstreamfp.so." + VERSION.rpartition(".")[0]


class Error(Exception):
    """A failure that the library reports; `key` is the setting or field that it is about, or "".

    Every status of the library has a subclass, which is also the nearest exception of Python.

    >>> import streamfp
    >>> try:
    ...     streamfp.Head("perceptron", 3)
    ... except ValueError as error:
    ...     print(type(error).__name__, isinstance(error, streamfp.Error))
    InvalidArgument True
    """

    key = ""

    @property
    def message(self) -> str:
        return str(self)


class InvalidArgument(Error, ValueError):
    """An argument, setting or image that the library does not accept."""


class InputOutputError(Error, OSError):
    """A file that cannot be read or written."""


class MalformedFile(Error, ValueError):
    """A file or image with contents that are damaged or of another kind."""


class WrongShape(Error, ValueError):
    """Values that have another size than expected."""


class NotFound(Error, LookupError):
    """A file, id, class or sample that does not exist."""


class OutOfMemory(Error, MemoryError):
    """There is not enough memory."""


class LimitExceeded(Error, ValueError):
    """Something that is larger than the library allows."""


class Unsupported(Error, NotImplementedError):
    """Something that this learner, head or build cannot do."""


class LibraryError(Error, RuntimeError):
    """A library that streamfp uses has failed."""


class Cancelled(Error):
    """The call was cancelled."""


_EXCEPTIONS = {
    "SFP_EINVAL": InvalidArgument,
    "SFP_EIO": InputOutputError,
    "SFP_EFORMAT": MalformedFile,
    "SFP_ESHAPE": WrongShape,
    "SFP_ENOTFOUND": NotFound,
    "SFP_ENOMEM": OutOfMemory,
    "SFP_ELIMIT": LimitExceeded,
    "SFP_EUNSUPPORTED": Unsupported,
    "SFP_ELIBRARY": LibraryError,
    "SFP_ECANCELLED": Cancelled,
}


def _candidates() -> Iterator[str]:
    """Where the library may be: named by the user, in this package (a wheel), installed beside it, or where the system looks."""
    if "STREAMFP_LIBRARY" in os.environ:
        yield os.environ["STREAMFP_LIBRARY"]
        return
    here = Path(__file__).resolve().parent
    yield str(here / "libs" / _NAME)
    yield str(here.parents[2] / _NAME)  # of LIB/pythonX.Y/dist-packages/streamfp
    yield _NAME


def _load() -> Any:
    failures = []
    for path in _candidates():
        if os.sep in path and not os.path.exists(path):
            failures.append(f"{path}: no such file")
            continue
        try:
            library = ffi.dlopen(path)
        except OSError as error:
            failures.append(str(error))
            continue
        found = ffi.string(library.sfp_version()).decode()
        if found.split(".")[:2] != VERSION.split(".")[:2]:
            raise ImportError(f"{path} is version {found}, expected {VERSION}, for which this package was built")
        return library
    raise ImportError(
        "the streamfp library was not found; build it (make library) and install this package again, install it (make install), or name it "
        "in STREAMFP_LIBRARY: " + "; ".join(failures)
    )


lib = _load()


def call(function: Any, *arguments: Any) -> None:
    """Calls a function that returns a status, and raises its failure. Other Python threads run in the meantime."""
    error = ffi.new("sfp_error *")
    status = function(*arguments, error)
    del arguments  # the traceback of a callback would keep the objects open
    if status:
        exception = _EXCEPTIONS[ffi.string(ffi.cast("sfp_status", status))]
        raised = exception(string(error.message))
        raised.key = string(error.key)
        raise raised


def string(text: Any) -> str:
    """A text of the library; "" for NULL."""
    return "" if text == ffi.NULL else ffi.string(text).decode("utf-8", "surrogateescape")


def name_or_none(text: Any) -> Optional[str]:
    return None if text == ffi.NULL else string(text)


def encoded(text: Optional[PathLike]) -> Any:
    """A text or path as an argument; NULL for None."""
    if text is None:
        return ffi.NULL
    made = os.fsencode(text)
    if b"\0" in made:
        raise ValueError(f"{made!r} contains a zero, which ends a text in C")
    return made


_kept: "weakref.WeakKeyDictionary[Any, Any]" = weakref.WeakKeyDictionary()


def struct(name: str, **values: Any) -> Any:
    """A struct of the library with its size; texts live as long as it does."""
    new = ffi.new(name + " *")
    new.size = ffi.sizeof(name)
    texts = []
    for key, value in values.items():
        if isinstance(value, (str, os.PathLike)):
            texts.append(ffi.new("char[]", encoded(value)))
            value = texts[-1]
        if value is not None:
            setattr(new, key, value)
    _kept[new] = texts
    return new


@ffi.callback("void(void *, sfp_log_level, const char *)")  # type: ignore[misc]
def log(ctx: Any, level: int, message: Any) -> None:
    """Messages of the library go to the logger "streamfp"."""
    logging.getLogger("streamfp").log(logging.WARNING if level else logging.INFO, "%s", string(message))


def file_bytes(write: Callable[[str], object]) -> bytes:
    """Returns the bytes that a function writes to the file whose name it is given."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "file")
        write(path)
        return Path(path).read_bytes()


def with_file(data: bytes, read: Callable[[str], Any]) -> Any:
    """Calls a function with the name of a file that contains these bytes, and returns its result."""
    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "file")
        Path(path).write_bytes(data)
        return read(path)


class Object:
    """An object of the library. It is freed by close(), at the end of a `with` block or with the last reference, but not before
    the objects that were made from it."""

    _pointer: Any = None

    def _own(self, pointer: Any, free: Callable[[Any], None], *parents: Any) -> None:
        def release(p: Any, parents: Any = parents) -> None:  # parents live until p is freed
            free(p)

        self._pointer = ffi.gc(pointer, release)

    @property
    def _p(self) -> Any:
        if self._pointer is None:
            raise ValueError(f"this {type(self).__name__} is closed")
        return self._pointer

    def close(self) -> None:
        self._pointer = None

    def __enter__(self) -> Any:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class SettingInfo(NamedTuple):
    """A row of the table of settings (sfp_setting_info)."""

    key: str
    scope: str
    type: str
    values: str
    default: Optional[str]
    help: str
    group: Optional[str]
    changes_result: bool
    changes_cost: bool


class Settings(Object):
    """How to learn and what to run, by the keys of `streamfp run`. In names of arguments "_" stands for "-".

    Values are texts or numbers; True and False are "on" and "off"; a list is joined with commas; None leaves the default.

    >>> import streamfp
    >>> settings = streamfp.Settings({"label-queue": 50}, method="slda")
    >>> settings.get("label-queue"), settings.get("method")
    ('50', 'slda')
    >>> next(info.type for info in settings if info.key == "batch")
    'int'
    """

    def __init__(self, values: Optional[Mapping[str, object]] = None, **more: object) -> None:
        out = ffi.new("sfp_settings **")
        call(lib.sfp_settings_create, out)
        self._own(out[0], lib.sfp_settings_free)
        self._values: Dict[str, object] = {}
        for key, value in {**(values or {}), **more}.items():
            if value is not None:
                self.set(key, value)

    def set(self, key: str, value: object) -> None:
        if isinstance(value, bool):
            value = "on" if value else "off"
        elif isinstance(value, (list, tuple)):
            value = ",".join(map(str, value))
        call(lib.sfp_settings_set, self._p, encoded(key.replace("_", "-")), encoded(str(value)))
        self._values[key] = value

    def __getstate__(self) -> Dict[str, object]:
        return self._values

    def __setstate__(self, values: Dict[str, object]) -> None:
        self.__init__(values)  # type: ignore[misc]

    def get(self, key: str) -> Optional[str]:
        """The value that was set, or that of the preset, or the default; None: it has none, or the key is unknown."""
        return name_or_none(lib.sfp_settings_get(self._p, encoded(key.replace("_", "-"))))

    def has_effect(self, key: str) -> bool:
        """Whether the value of a setting changes something beside the others. A run refuses one without effect that was set."""
        return bool(lib.sfp_settings_has_effect(self._p, encoded(key.replace("_", "-"))))

    def __iter__(self) -> Iterator[SettingInfo]:
        """The table of all settings."""
        i = 0
        while (row := lib.sfp_settings_info(i)) != ffi.NULL:
            scope, kind = (ffi.string(ffi.cast("sfp_setting_" + name, getattr(row, name))) for name in ("scope", "type"))
            yield SettingInfo(
                string(row.key),
                scope.rpartition("_")[2].lower(),
                kind.rpartition("_")[2].lower(),
                string(row.values),
                name_or_none(row.default_value),
                string(row.help),
                name_or_none(row.group),
                bool(row.changes & 1),
                bool(row.changes & 2),
            )
            i += 1


def settings_of(made: Optional[Settings], options: Mapping[str, object]) -> Settings:
    """Settings that were given as an object or as options."""
    if made is not None and options:
        raise TypeError(f"{next(iter(options))} is given beside an object of settings; set it there")
    return made or Settings(options)
