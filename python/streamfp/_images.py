"""Images as Python has them, described to the library without a copy where possible."""

from __future__ import annotations

import os
import sys
from typing import Any, List, NamedTuple, Optional, Sequence, Tuple

import numpy as np

from streamfp._library import encoded, ffi

# sfp_image_format
_RGB, _BGR, _GREY, _ENCODED, _FILE, _FEATURES = range(6)


class Image(NamedTuple):
    """An image with a box (left, top, right, bottom) to use, or with colours in the order blue, green, red, as OpenCV has them.

    >>> import numpy, streamfp
    >>> frame = numpy.zeros((480, 640, 3), numpy.uint8)
    >>> streamfp.fit_image(streamfp.Image(frame, box=(0, 0, 320, 240), bgr=True), 32).shape
    (32, 32, 3)
    """

    data: Any
    box: Optional[Tuple[int, int, int, int]] = None
    bgr: bool = False


def _is_pil(image: Any) -> bool:
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(image, module.Image)


def is_one(images: Any) -> bool:
    """Whether this is one image, rather than several."""
    return isinstance(images, (str, os.PathLike, bytes, bytearray, memoryview, Image)) or _is_pil(images)


def several(images: Any) -> Sequence[Any]:
    """Several images: a list, an array with 4 dimensions, or a single path, file or PIL image."""
    if is_one(images):
        return [images]
    if getattr(images, "ndim", None) == 3:
        raise ValueError(
            f"an array of shape {tuple(images.shape)} may be one image or many; pass [image] for one image, an array with 4 "
            "dimensions or a list for many"
        )
    return images if hasattr(images, "__len__") and hasattr(images, "__getitem__") else list(images)


def _pil_pixels(image: Any) -> "np.ndarray[Any, Any]":
    if image.getexif().get(0x0112, 1) != 1:  # turned, as the library turns files
        from PIL import ImageOps

        image = ImageOps.exif_transpose(image)
    return np.asarray(image if image.mode in ("RGB", "L") else image.convert("RGB"))


def _pixels(image: Any) -> "np.ndarray[Any, Any]":
    """Pixels of type uint8 as (height, width, colours), a view where possible; or features, one row of floats."""
    planes_first = hasattr(image, "detach")  # a torch tensor
    pixels = _pil_pixels(image) if _is_pil(image) else np.asarray(image)
    if pixels.ndim == 1 and pixels.dtype.kind == "f":
        return np.ascontiguousarray(pixels, np.float32)
    if pixels.dtype.kind == "f":
        raise TypeError(
            "pixels are floats, whose range is not known; pass uint8 from 0 to 255: (255 * image).round().astype('uint8'), and with "
            "torchvision PILToTensor() in place of ToTensor()"
        )
    if pixels.dtype != np.uint8:
        found = type(image).__name__ if pixels.ndim == 0 else f"array of {pixels.dtype}"
        raise TypeError(f"an image is {found}, expected an array of uint8, a path, the bytes of a file, or a PIL image")
    if pixels.ndim == 2:
        pixels = pixels[:, :, None]
    elif pixels.ndim == 3:
        last, first = pixels.shape[2] in (1, 3, 4), pixels.shape[0] in (1, 3, 4)
        if first and (planes_first or not last):
            pixels = pixels.transpose(1, 2, 0)
    if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4) or pixels.size == 0:
        raise ValueError(f"an image has shape {np.shape(image)}, expected (height, width), (height, width, 3) or (3, height, width)")
    return pixels if all(pixels.strides) else np.ascontiguousarray(pixels)


def describe(to: Any, image: Any) -> Any:
    """Fills an sfp_image. Returns the owner of the memory that it points to, which must live as long."""
    box, bgr, made = None, False, None
    if isinstance(image, Image):
        image, box, bgr = image
    if isinstance(image, (str, os.PathLike)):
        made = ffi.new("char[]", encoded(image))
        to.format, to.data = _FILE, made
    elif isinstance(image, (bytes, bytearray, memoryview)):
        made = ffi.from_buffer(image)
        to.format, to.data, to.bytes = _ENCODED, made, len(made)
    else:
        made = _pixels(image)
        if made.ndim == 1:
            to.format, to.width = _FEATURES, made.size
        else:
            to.height, to.width, colours = made.shape
            to.format = _GREY if colours == 1 else _BGR if bgr else _RGB
            to.stride, to.pixel_stride, to.channel_stride = made.strides
        to.data = ffi.cast("void *", made.ctypes.data)
    if box is not None:
        to.box = box
    return made


def describe_all(images: Sequence[Any]) -> Tuple[Any, List[Any]]:
    """Returns an array of sfp_image, and the owners of its memory, which must live as long."""
    array = ffi.new("sfp_image[]", len(images))
    return array, [describe(array[i], images[i]) for i in range(len(images))]
