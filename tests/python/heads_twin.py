#!/usr/bin/env python3
"""Compares the closed-form heads of `streamfp run` with NumPy.

    heads_twin.py path/to/streamfp [--deit] [--every N]

Both learn from the same images of PACS. The features of NumPy do not come
from the taps of streamfp: tap l is the feature of a backbone that ends after
block l, so `streamfp predict --features` with truncated copies of the backbone
gives them. The heads are computed from all samples at once, by the formulas
of docs/method.md, section 18. Compared is the accuracy on the test images:

  slda, ridge   the same predictions, except for ties: accuracy within 0.002
                (ridge with the lambda that streamfp chose)
  ridge         with a lambda chosen by NumPy, on every tenth sample: within
                0.01
  ranpac        with another random projection: within 0.01 with --deit;
                0.03 else, because there are few images

The backbone is the built-in one, with every fourth image; with --deit, or
SFP_LONG=1, DeiT-Tiny and all images. Images and DeiT-Tiny are read from the
directory STREAMFP_SHARED, else ../shared next to the repository. Exits with
77 without them or NumPy.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("STREAMFP_SHARED", ROOT.parent / "shared"))
PACS = SHARED / "data" / "pacs"
DEIT = SHARED / "data" / "deit_tiny_patch16_224.safetensors"
BUILTIN = ROOT / "models" / "builtin.safetensors"


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


if not PACS.exists():
    skip(f"no {PACS}")
try:
    import numpy as np
except ImportError as e:
    skip(e)


def read_safetensors(path):
    """Returns the header and the bytes of the tensors."""
    raw = path.read_bytes()
    size = int.from_bytes(raw[:8], "little")
    return json.loads(raw[8:8 + size]), raw[8 + size:]


def truncate(path, blocks, to):
    """Writes a copy of a backbone that has only its first `blocks` blocks."""
    header, data = read_safetensors(path)
    kept, pieces, at = {}, [], 0
    for name, t in header.items():
        if name == "__metadata__":
            kept[name] = t
            continue
        parts = name.split(".")
        if parts[0] == "blocks" and int(parts[1]) >= blocks:
            continue
        begin, end = t["data_offsets"]
        kept[name] = dict(t, data_offsets=[at, at + end - begin])
        pieces.append(data[begin:end])
        at += end - begin
    text = json.dumps(kept).encode()
    text += b" " * (-len(text) % 8)
    to.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(pieces))


def images(part, every):
    """Returns (path, class) pairs: every k-th file of each class, sorted by path."""
    by_class = {}
    for path in sorted((PACS / part).glob("*/*/*")):
        by_class.setdefault(path.parent.name, []).append(path)
    return [(p, c) for c, paths in by_class.items() for p in paths[::every]]


def link(pairs, to):
    """Creates a directory per class with links to the images."""
    for i, (path, name) in enumerate(pairs):
        (to / name).mkdir(parents=True, exist_ok=True)
        (to / name / f"{i:05d}{path.suffix}").symlink_to(path.resolve())


class Twin:
    def __init__(self, streamfp, backbone, work, every, taps):
        self.streamfp, self.backbone, self.work, self.taps = streamfp, backbone, work, taps
        self.depth = 1 + max(int(n.split(".")[1]) for n in read_safetensors(backbone)[0] if n.startswith("blocks."))
        self.test_list = work / "test.csv"
        train, test = images("train", every), images("test", 1 if every == 1 else 2)
        self.names = sorted({c for _, c in train})
        link(train, work / "train")
        link(test, work / "test")
        self.x, self.y = self.features("train"), self.labels("train")
        self.tx, self.ty = self.features("test"), self.labels("test")
        files = sorted((work / "test").glob("*/*"))
        self.test_list.write_text("".join(f"{p.relative_to(work)},{p.parent.name}\n" for p in files))
        print(f"{len(self.y)} training and {len(self.ty)} test images, {self.x.shape[1]} values each")

    def call(self, *words):
        done = subprocess.run([self.streamfp, *map(str, words)], capture_output=True, text=True, check=False)
        if done.returncode:
            sys.exit(f"{' '.join(map(str, words))}: exit {done.returncode}\n{done.stderr}")
        return done.stdout

    def labels(self, part):
        return np.array([self.names.index(p.parent.name) for p in sorted((self.work / part).glob("*/*"))])

    def features(self, part):
        """Returns the taps (images, K D), each from a truncated backbone."""
        columns = []
        for blocks in range(self.depth - self.taps + 1, self.depth + 1):
            short, out = self.work / "short.safetensors", self.work / "features.npy"
            truncate(self.backbone, blocks, short)
            self.call("predict", "--backbone", short, "--features", out, self.work / part)
            columns.append(np.load(out).astype(np.float64))
        return np.concatenate(columns, axis=1)

    def run(self, method):
        """Returns the accuracy of streamfp, and the state's tensors of the head by name."""
        out = self.work / method
        self.call("run", "--backbone", self.backbone, "--data", f"folder:{self.work / 'train'}", "--tasks", "free", "--method",
                  method, "--taps", self.taps, "--out", out)
        counted = json.loads(self.call("predict", "--backbone", self.backbone, "--state", out, "--eval", self.test_list, "--json"))
        header, data = read_safetensors(out / "state.safetensors")
        strength = None
        for name, t in header.items():
            if name.endswith(".strength"):
                strength = np.frombuffer(data[slice(*t["data_offsets"])], dtype="<f8")
        return counted["top1_count"] / len(self.ty), strength

    def accuracy(self, scores):
        return float(np.mean(np.argmax(scores, axis=1) == self.ty))


def ridge(x, y, lam, classes):
    """Returns a function that computes scores."""
    n, m = len(x), x.mean(axis=0)
    z = 1 / x.std(axis=0)
    hot = np.eye(classes)[y]
    pi = hot.mean(axis=0)
    s = (x - m) * z
    w = np.linalg.solve(s.T @ s / n + lam * np.eye(x.shape[1]), s.T @ (hot - pi) / n)
    return lambda q: pi + (q - m) * z @ w


def slda(x, y, classes):
    """Linear discriminant analysis with the shrinkage of OAS."""
    n, d = x.shape
    mu = np.stack([x[y == c].mean(axis=0) for c in range(classes)])
    r = x - mu[y]
    s = r.T @ r / n
    trace, squares = np.trace(s), np.sum(s * s)
    share = min(1, ((1 - 2 / d) * squares + trace**2) / ((n + 1 - 2 / d) * (squares - trace**2 / d)))
    w = np.linalg.solve((1 - share) * s + share * trace / d * np.eye(d), (mu - x.mean(axis=0)).T)
    bias = -0.5 * np.sum((mu - x.mean(axis=0)).T * w, axis=0)
    return lambda q: (q - x.mean(axis=0)) @ w + bias


def choose(fit, x, y, strengths, classes):
    """Returns the strength with the least squared error on every tenth sample."""
    held = np.arange(len(y)) % 10 == 9
    hot = np.eye(classes)[y[held]]
    return min(strengths, key=lambda s: np.sum((fit(x[~held], y[~held], s, classes)(x[held]) - hot) ** 2))


def plain_ridge(x, y, lam, classes):
    w = np.linalg.solve(x.T @ x + lam * np.eye(x.shape[1]), x.T @ np.eye(classes)[y])
    return lambda q: q @ w


def project(x, taps, r):
    """Normalises each tap of several over its entries; then a random ReLU projection."""
    t = x.reshape(len(x), taps, -1)
    if taps > 1:
        t = (t - t.mean(axis=2, keepdims=True)) / t.std(axis=2, keepdims=True)
    return np.maximum(t.reshape(len(x), -1) @ r, 0)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("streamfp")
    parser.add_argument("--deit", action="store_true")
    parser.add_argument("--every", type=int)
    args = parser.parse_args()
    deit = args.deit or bool(os.environ.get("SFP_LONG"))
    if deit and not DEIT.exists():
        skip(f"no {DEIT}")
    every = args.every or (1 if deit else 4)
    failed = 0
    with tempfile.TemporaryDirectory() as work:
        os.environ["STREAMFP_REGISTRY"] = str(Path(work) / "runs.db")
        t = Twin(os.path.abspath(args.streamfp), DEIT if deit else BUILTIN, Path(work), every, 6 if deit else 3)
        c = len(t.names)

        def compare(what, ours, twin, tolerance):
            nonlocal failed
            wrong = abs(ours - twin) > tolerance
            failed += wrong
            print(f"{what:24} streamfp {ours:.4f}  NumPy {twin:.4f}  {'FAILED' if wrong else 'ok'}")

        ours, _ = t.run("slda")
        compare("slda", ours, t.accuracy(slda(t.x, t.y, c)(t.tx)), 0.002)
        ours, strength = t.run("ridge")
        compare(f"ridge, lambda {strength[0]:g}", ours, t.accuracy(ridge(t.x, t.y, strength[0], c)(t.tx)), 0.002)
        own = choose(ridge, t.x, t.y, 10.0 ** np.arange(-7, 3), c)
        compare(f"ridge, own lambda {own:g}", ours, t.accuracy(ridge(t.x, t.y, own, c)(t.tx)), 0.01)
        ours, _ = t.run("ranpac")
        r = np.random.default_rng(1).standard_normal((t.x.shape[1], 4000))
        phi, tphi = project(t.x, t.taps, r), project(t.tx, t.taps, r)
        size = 10.0 ** np.round(np.log10(np.mean(np.sum(phi * phi, axis=1))))
        lam = choose(plain_ridge, phi, t.y, size * 10.0 ** np.arange(-4, 1), c)
        compare(f"ranpac, lambda {lam:g}", ours, t.accuracy(plain_ridge(phi, t.y, lam, c)(tphi)), 0.01 if deit else 0.03)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
