#!/usr/bin/env python3
"""Compares decoding and resizing with Pillow, image by image.

    pillow_resize.py path/to/resize_tool

Resizing must agree in every byte. So must decoding, except for CMYK and WebP,
which may differ by 2 of 255. Photographs are read from the directory
STREAMFP_SHARED (else ../shared next to the repository) if it exists.
Exits with 77 if Pillow is missing.
"""
import io
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    from PIL import Image, ImageOps
except ImportError as e:
    print(f"skip: {e}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("STREAMFP_SHARED", ROOT.parent / "shared"))
BILINEAR, BICUBIC = 2, 3  # the names differ between Pillow versions, the numbers do not

failures = 0
checks = 0


def run(tool, path, *what):
    out = subprocess.run([tool, path, *map(str, what)], capture_output=True)
    if out.returncode != 0:
        return None, out.stderr.decode().strip()
    head, body = out.stdout.split(b"\n", 1)
    w, h = map(int, head.split())
    return np.frombuffer(body, np.uint8).reshape(h, w, 3), ""


def check(name, tool, path, what, want, tolerance=0):
    global failures, checks
    checks += 1
    got, message = run(tool, path, *what)
    want = np.asarray(want)
    if got is None:
        failures += 1
        print(f"FAIL {name}: {message}")
    elif got.shape != want.shape:
        failures += 1
        print(f"FAIL {name}: is {got.shape}, Pillow's is {want.shape}")
    else:
        worst = int(np.abs(got.astype(int) - want.astype(int)).max())
        if worst > tolerance:
            failures += 1
            print(f"FAIL {name}: differs by {worst}, expected at most {tolerance}")


def pillow_crop(im, size):
    """Resizes the short side to round(size*256/224), truncates the long side to an integer, and crops at floored offsets."""
    target = round(size * 256 / 224)
    w, h = im.size
    if w <= h:
        w, h = target, int(target * h / w)
    else:
        w, h = int(target * w / h), target
    if (w, h) != im.size:
        im = im.resize((w, h), BILINEAR)
    left, top = (w - size) // 2, (h - size) // 2
    return im.crop((left, top, left + size, top + size))


def compare_resize(tool, path, name, sizes, fits=(224,)):
    im = Image.open(path).convert("RGB")
    check(f"{name} decode", tool, path, ["decode"], im)
    for w, h in sizes:
        for filter_name, code in (("bilinear", BILINEAR), ("bicubic", BICUBIC)):
            check(f"{name} {im.size} {filter_name} {w}x{h}", tool, path, [filter_name, w, h], im.resize((w, h), code))
    for size in fits:
        check(f"{name} {im.size} squash {size}", tool, path, ["squash", size], im.resize((size, size), BILINEAR))
        check(f"{name} {im.size} crop {size}", tool, path, ["crop", size], pillow_crop(im, size))


def synthetic(tool, directory, rng):
    sizes = [(1, 1), (1, 300), (300, 1), (2, 3), (224, 224), (256, 256), (341, 256), (257, 509), (11, 640), (1000, 7)]
    sizes += [(rng.randint(1, 400), rng.randint(1, 400)) for _ in range(12)]
    for i, (w, h) in enumerate(sizes):
        noise = np.random.RandomState(i).randint(0, 256, (h, w, 3), dtype=np.uint8)
        if i % 3 == 0:
            noise = (noise > 127).astype(np.uint8) * 255  # overshoot of the bicubic filter must be clipped
        path = os.path.join(directory, f"noise{i}.png")
        Image.fromarray(noise).save(path)
        targets = [(w, h), (1, 1), (rng.randint(1, 300), rng.randint(1, 300)), (w, rng.randint(1, 300)), (rng.randint(1, 300), h)]
        compare_resize(tool, path, "noise", targets, (rng.randint(1, 64), 224))


def formats(tool, directory):
    rng = np.random.RandomState(7)
    yy, xx = np.mgrid[0:61, 0:83]
    smooth = np.stack([xx * 3, yy * 4, (xx + yy) * 2], -1).clip(0, 255).astype(np.uint8)
    noisy = (smooth.astype(int) + rng.randint(-20, 20, smooth.shape)).clip(0, 255).astype(np.uint8)
    rgb = Image.fromarray(noisy)
    alpha = Image.fromarray(rng.randint(1, 256, noisy.shape[:2], dtype=np.uint8))
    rgba = rgb.copy()
    rgba.putalpha(alpha)
    cases = [
        ("rgb.png", rgb, {}, 0), ("grey.png", rgb.convert("L"), {}, 0), ("bits.png", rgb.convert("1"), {}, 0),
        ("palette.png", rgb.quantize(60), {}, 0), ("palette4.png", rgb.quantize(11), {}, 0),
        ("rgba.png", rgba, {}, 0), ("greyalpha.png", rgba.convert("LA"), {}, 0),
        ("q90.jpg", rgb, {"quality": 90}, 0), ("q10.jpg", rgb, {"quality": 10, "subsampling": 2}, 0),
        ("s0.jpg", rgb, {"subsampling": 0}, 0), ("s1.jpg", rgb, {"subsampling": 1}, 0),
        ("progressive.jpg", rgb, {"progressive": True}, 0), ("grey.jpg", rgb.convert("L"), {}, 0),
        ("cmyk.jpg", rgb.convert("CMYK"), {}, 2), ("progressivecmyk.jpg", rgb.convert("CMYK"), {"progressive": True}, 2),
        ("lossy.webp", rgb, {"quality": 80}, 2), ("lossless.webp", rgb, {"lossless": True}, 0),
        ("alpha.webp", rgba, {"quality": 80}, 2), ("alphalossless.webp", rgba, {"lossless": True, "exact": True}, 0),
    ]
    for name, im, options, tolerance in cases:
        path = os.path.join(directory, name)
        im.save(path, **options)
        check(name, tool, path, ["decode"], Image.open(path).convert("RGB"), tolerance)
    for orientation in range(0, 10):
        exif = Image.Exif()
        exif[0x0112] = orientation
        for ending in ("jpg", "png", "webp"):
            path = os.path.join(directory, f"turned{orientation}.{ending}")
            rgb.save(path, exif=exif.tobytes(), **({"lossless": True} if ending == "webp" else {}))
            upright = ImageOps.exif_transpose(Image.open(path)).convert("RGB")
            check(f"orientation {orientation} {ending}", tool, path, ["decode"], upright)
            check(f"orientation {orientation} {ending} resized", tool, path, ["squash", "32"], upright.resize((32, 32), Image.BILINEAR))


def real(tool, rng):
    for directory, n in (("imagenet-val-200", 25), ("pacs", 10), ("tiny-imagenet-24k", 5), ("coil20", 5)):
        files = sorted(p for p in (SHARED / "data" / directory).rglob("*") if p.suffix.lower() in (".jpg", ".jpeg", ".png", ".webp"))
        if not files:
            print(f"skip: no images in {SHARED / 'data' / directory}")
            continue
        for path in rng.sample(files, min(n, len(files))):
            compare_resize(tool, str(path), path.name, [(rng.randint(1, 500), rng.randint(1, 500))])


def main():
    if len(sys.argv) != 2:
        sys.exit("usage: pillow_resize.py path/to/resize_tool")
    rng = random.Random(1)
    with tempfile.TemporaryDirectory() as directory:
        formats(sys.argv[1], directory)
        synthetic(sys.argv[1], directory, rng)
    real(sys.argv[1], rng)
    print(f"{checks} comparisons, {failures} failures")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
