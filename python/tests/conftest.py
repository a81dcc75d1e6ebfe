"""Photographs of three classes for every test, in a directory of its own; doctests run there, too."""

import random
from pathlib import Path
from typing import Dict, List

import numpy as np
import pytest

import streamfp

COLOURS = {"bowl": (200, 40, 40), "mug": (40, 200, 40), "plate": (40, 40, 200)}


def write_png(path: Path, pixels: "np.ndarray") -> None:
    """Writes a PNG without an image library, because users do not need one either."""
    import struct
    import zlib

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.tobytes() for row in pixels)

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def picture(name: str, seed: int, height: int = 40, width: int = 48) -> "np.ndarray":
    noise = np.random.default_rng(seed).integers(0, 50, (height, width, 3))
    return (np.array(COLOURS[name]) + noise).clip(0, 255).astype(np.uint8)


@pytest.fixture(autouse=True)
def photos(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Dict[str, List[str]]:
    """8 files of each class in photos/, in the current directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STREAMFP_REGISTRY", str(tmp_path / "registry.db"))
    random.seed(0)
    files: Dict[str, List[str]] = {}
    for number, name in enumerate(COLOURS):
        (tmp_path / "photos" / name).mkdir(parents=True)
        for i in range(1, 9):
            path = tmp_path / "photos" / name / f"{i}.png"
            write_png(path, picture(name, 100 * number + i))
            files.setdefault(name, []).append(str(path))
    return files


@pytest.fixture(scope="session")
def engine() -> streamfp.Engine:
    return streamfp.Engine.random(1, threads=1)
