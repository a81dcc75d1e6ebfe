"""Settings of cells: those that a user gives, those that have an effect, and a hash of everything that determines a result."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from functools import cache
from pathlib import Path

import streamfp

from .errors import LabError

# Options of `streamfp run` that the laboratory itself sets for each run.
OWN = ("seed", "out", "resume")


@cache
def table() -> dict[str, streamfp.SettingInfo]:
    return {info.key: info for info in streamfp.Settings()}


def read_arguments(arguments: list[str]) -> dict[str, str]:
    """Options of `streamfp run` on a command line: --key value, --key=value, --flag and --no-flag."""
    found: dict[str, str] = {}
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if not argument.startswith("--"):
            raise LabError(f"unknown argument '{argument}'")
        key, equals, value = argument[2:].partition("=")
        flag = key.removeprefix("no-")
        if not equals and key not in table() and flag in table():
            key, value = flag, "off"
        elif not equals and rest and not rest[0].startswith("--"):
            value = rest.pop(0)
        elif not equals:
            value = "on"
        if key not in table() or key in OWN:
            raise LabError(f"unknown option --{key}; see --help, and 'streamfp run --help'")
        found[key] = value
    create(found)
    return found


def create(values: Mapping[str, str]) -> streamfp.Settings:
    try:
        return streamfp.Settings(values)
    except streamfp.Error as e:
        raise LabError(str(e)) from None


def with_effect(values: Mapping[str, str], given: Mapping[str, str]) -> dict[str, str]:
    """Removes settings of the user that have no effect on this method, for example a buffer size for a row without a buffer."""
    kept = dict(values)
    while True:
        settings = create(kept)
        idle = next((k for k in kept if k in given and kept[k] == given[k] and not settings.has_effect(k)), None)
        if idle is None:
            return kept
        del kept[idle]


def effective(values: Mapping[str, str], changes_result: bool = True) -> dict[str, str]:
    """Every setting that has an effect, with presets and defaults, so that the same configuration written in two ways is the same.

    changes_result False: only those that change the processing time of a batch."""
    settings = create(values)
    return {
        key: value
        for key, info in table().items()
        if (info.changes_result if changes_result else info.changes_cost)
        and key not in ("out", "resume")
        and settings.has_effect(key)
        and (value := settings.get(key)) is not None
    }


def digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:16]


# ---------------------------------------------------------------------------------------------------------------- inputs

MAX_READ = 10_000  # files of a directory whose bytes are read; of the others name and size count


def _add_file(path: Path, name: str, h: "hashlib._Hash") -> None:
    h.update(f"{name}\n{path.stat().st_size}\n".encode())
    with path.open("rb") as f:
        while piece := f.read(1 << 20):
            h.update(piece)


@cache
def _path_digest(path: str) -> str:
    root, h = Path(path), hashlib.sha256()
    if root.is_file():
        _add_file(root, "", h)
        if root.suffix in (".csv", ".txt", ".json"):  # a list: its images count, too
            for line in root.read_text(encoding="utf-8", errors="replace").splitlines():
                image = root.parent / line.split(",")[0]
                if image.is_file():
                    h.update(f"{image.name} {image.stat().st_size}\n".encode())
    else:
        files = sorted(Path(d) / f for d, _, names in os.walk(root, followlinks=True) for f in names)
        step = len(files) // MAX_READ + 1
        for i, f in enumerate(files):
            if i % step == 0:
                _add_file(f, str(f.relative_to(root)), h)
            else:
                h.update(f"{f.relative_to(root)} {f.stat().st_size}\n".encode())
    return h.hexdigest()


def inputs(values: Mapping[str, str]) -> str:
    """The version of the program, and a digest of the files from which a run with these settings learns. Finished cells and measured
    times are used again only if they were made with the same inputs."""
    settings = create(values)
    found = []
    for key in ("backbone", "init-state", "data", "test"):
        value = settings.get(key)
        path = value.partition(":")[2] or value if value else ""
        try:
            found.append(_path_digest(os.path.realpath(path)) if path and os.path.exists(path) else value)
        except OSError as e:
            raise LabError(f"{e.filename}: {e.strerror}") from None
    return f"version {streamfp.__version__}, inputs {digest(found)}"
