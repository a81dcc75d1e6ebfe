"""An image has the same pixels in every form in which Python has it."""

import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import streamfp
from conftest import picture, write_png
from streamfp._images import describe
from streamfp._library import ffi

PIXELS = picture("mug", 5, 30, 50)


def fit(image: Any) -> "np.ndarray":
    return streamfp.fit_image(image, 32)


def strided(pixels: "np.ndarray") -> "np.ndarray":
    wide = np.zeros((60, 100, 4), np.uint8)
    wide[::2, ::2, :3] = pixels
    return wide[::2, ::2, :3]


@pytest.mark.parametrize(
    "make",
    [
        lambda p: p,
        lambda p: p.transpose(2, 0, 1),
        lambda p: np.ascontiguousarray(p.transpose(2, 0, 1)),
        lambda p: np.asfortranarray(p),
        lambda p: np.ascontiguousarray(p[::-1])[::-1],
        lambda p: np.ascontiguousarray(p[:, ::-1])[:, ::-1],
        lambda p: np.ascontiguousarray(p[..., ::-1])[..., ::-1],
        lambda p: np.dstack([p, np.zeros(p.shape[:2], np.uint8)]),
        lambda p: streamfp.Image(np.ascontiguousarray(p[..., ::-1]), bgr=True),
        lambda p: streamfp.Image(np.pad(p, ((3, 4), (5, 6), (0, 0))), box=(5, 3, 55, 33)),
        strided,
        lambda p: p.tolist() and np.array(p.tolist(), np.uint8),
    ],
)
def test_every_layout_gives_the_same_input(make: Any) -> None:
    assert (fit(make(PIXELS)) == fit(PIXELS)).all()


def test_grey_images_have_two_dimensions_or_one_colour() -> None:
    grey = PIXELS[..., 0]
    expected = fit(np.repeat(grey[..., None], 3, 2))
    for image in (grey, grey[..., None], grey[None], np.broadcast_to(grey[..., None], PIXELS.shape)):
        assert (fit(image) == expected).all()


def test_files_their_bytes_and_pil_images_give_the_same_input() -> None:
    write_png(Path("a.png"), PIXELS)
    data = Path("a.png").read_bytes()
    images = ["a.png", Path("a.png"), data, bytearray(data), memoryview(data)]
    for image in images:
        assert (fit(image) == fit(PIXELS)).all()


def test_pil_images_of_any_mode_upright_as_files() -> None:
    pil = pytest.importorskip("PIL.Image")
    image = pil.fromarray(PIXELS)
    assert (fit(image) == fit(PIXELS)).all()
    assert (fit(image.convert("RGBA")) == fit(PIXELS)).all()
    assert (fit(image.convert("L")) == fit(np.asarray(image.convert("L")))).all()
    exif = pil.Exif()
    exif[0x0112] = 6
    image.save("turned.png", exif=exif)
    assert (fit(pil.open("turned.png")) == fit("turned.png")).all()
    assert not (fit("turned.png") == fit(PIXELS)).all()


def test_torch_tensors_are_planes_and_not_copied() -> None:
    torch = pytest.importorskip("torch")
    tensor = torch.from_numpy(np.ascontiguousarray(PIXELS.transpose(2, 0, 1)))
    assert (fit(tensor) == fit(PIXELS)).all()
    described = ffi.new("sfp_image *")
    kept = describe(described, tensor)
    assert int(ffi.cast("uintptr_t", described.data)) == tensor.data_ptr()
    del kept
    with pytest.raises(TypeError, match=r"PILToTensor\(\)"):
        fit(tensor.float())


class Tensor:
    """As much of a torch tensor as the package looks at, for machines without torch."""

    def __init__(self, array: "np.ndarray") -> None:
        self.array, self.shape, self.ndim = array, array.shape, array.ndim

    def __array__(self, dtype: Any = None) -> "np.ndarray":
        return self.array

    def detach(self) -> "Tensor":
        return self


def test_a_tensor_with_three_columns_is_still_planes() -> None:
    planes = np.arange(3 * 8 * 3, dtype=np.uint8).reshape(3, 8, 3)
    assert (fit(Tensor(planes)) == fit(np.ascontiguousarray(planes.transpose(1, 2, 0)))).all()
    assert not (fit(planes) == fit(Tensor(planes))).all()


@pytest.mark.parametrize("shape", [(480, 640, 3), (3, 480, 640)])
def test_pixels_are_not_copied(shape: Any) -> None:
    image = np.zeros(shape, np.uint8)
    described = ffi.new("sfp_image *")
    kept = describe(described, image[:, 1:])
    assert int(ffi.cast("uintptr_t", described.data)) == image[:, 1:].ctypes.data
    tracemalloc.start()
    describe(described, image)
    assert tracemalloc.get_traced_memory()[1] < 50_000
    tracemalloc.stop()
    del kept


@pytest.mark.parametrize(
    "image, error, message",
    [
        (PIXELS / 255.0, TypeError, "round.*uint8"),
        (PIXELS.astype(np.int64), TypeError, "array of int64, expected an array of uint8"),
        (np.zeros((5, 6, 7), np.uint8), ValueError, "shape"),
        (np.zeros((0, 5, 3), np.uint8), ValueError, "shape"),
        (b"no image", streamfp.MalformedFile, "image"),
        (b"", streamfp.Error, "image"),
        ("none.png", streamfp.NotFound, "none.png"),
        (None, TypeError, "is NoneType, expected"),
        (streamfp.Image(PIXELS, box=(90, 90, 99, 99)), streamfp.MalformedFile, "outside"),
    ],
)
def test_what_is_no_image_is_refused(image: Any, error: type, message: str) -> None:
    with pytest.raises(error, match=message):
        fit(image)


def test_one_array_with_three_dimensions_is_ambiguous() -> None:
    learner = streamfp.Learner(streamfp.Engine.random(threads=1))
    with pytest.raises(ValueError, match=r"pass \[image\]"):
        learner.offer(PIXELS, ["mug"])
    learner.offer(PIXELS, "mug")
    learner.offer(np.stack([PIXELS, PIXELS]), ["mug", "mug"])
    assert learner.classes == ["mug"]
