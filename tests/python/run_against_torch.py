#!/usr/bin/env python3
"""Compares `streamfp run` with the PyTorch reference, timestamp by timestamp.

    run_against_torch.py path/to/streamfp [--deit] [--timestamps N] [--keep DIR]

Both learn from the same image files, starting from the same state: on one
side Pillow decodes and squashes them and reference/streamfp_ref.py learns, on
the other side `streamfp run --init-state --select streamfp --buffer none`.
Compared at every timestamp, by events.jsonl:

  coreset   the same samples in the same order; where the order differs, the
            scores of the samples differ by less than 1e-5 of the larger one
  loss      relative error at most 1e-3

The backbone is a small random one; with --deit, or SFP_LONG=1, DeiT-Tiny.
Images, reference and DeiT-Tiny are read from the directory STREAMFP_SHARED,
else ../shared next to the repository. Exits with 77 without them or torch.
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
REFERENCE = SHARED / "reference"
IMAGES = SHARED / "data" / "pacs" / "train"
DEIT = SHARED / "data" / "deit_tiny_patch16_224.safetensors"
BATCH, SIGMA = 20, 0.5
SCORE_TOLERANCE, LOSS_TOLERANCE = 1e-5, 1e-3
BILINEAR = 2  # the name differs between Pillow versions, the number does not


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


for needed in (REFERENCE / "streamfp_ref.py", IMAGES):
    if not needed.exists():
        skip(f"no {needed}")
try:
    import numpy as np
    import torch
    from PIL import Image
except ImportError as e:
    skip(e)
sys.dont_write_bytecode = True
sys.path.insert(0, str(REFERENCE))
import streamfp_ref as ref  # noqa: E402


def images(count):
    """Returns `count` (path, class) pairs of all domains: every k-th file, with alternating classes."""
    by_class = {}
    for path in sorted(IMAGES.glob("*/*/*")):
        by_class.setdefault(path.parent.name, []).append(path)
    names, out = sorted(by_class), []
    for i in range(count):
        files = by_class[names[i % len(names)]]
        out.append((files[(i // len(names)) * 37 % len(files)], names[i % len(names)]))
    return names, out


class Pixels:
    """Returns the backbone's inputs, computed by Pillow from files."""

    def __init__(self, files, size, mean, std):
        self.files, self.size = files, size
        self.mean, self.std = (torch.tensor(v).reshape(3, 1, 1) for v in (mean, std))

    def __call__(self, ids):
        out = []
        for i in ids:
            with Image.open(self.files[i][0]) as im:
                im = im.convert("RGB").resize((self.size, self.size), BILINEAR)
            x = torch.from_numpy(np.asarray(im, dtype=np.float32) / 255).permute(2, 0, 1)
            out.append((x - self.mean) / self.std)
        return torch.stack(out)


def backbone(directory, deit):
    """Returns (file, Vit, size, mean, std)."""
    if deit:
        if not DEIT.exists():
            skip(f"no {DEIT}")
        vit = ref.Vit(ref.load_safetensors(DEIT)[0], heads=3, patch=16)
        return DEIT, vit, 224, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    size, mean, std = 48, (0.5, 0.45, 0.4), (0.25, 0.3, 0.2)
    vit = ref.Vit.random(3, size, 8, 96, 6, 4)
    path = directory / "backbone.safetensors"
    ref.save_safetensors(path, vit.w)
    (directory / "backbone.json").write_text(json.dumps({"num_heads": 4, "img_size": size, "patch_size": 8, "mean": mean, "std": std}))
    return path, vit, size, mean, std


def run(streamfp, directory, weights, files, pool):
    manifest = directory / "stream.csv"
    manifest.write_text("path,label\n" + "".join(f"{path},{name}\n" for path, name in files))
    out = directory / "run"
    command = [streamfp, "run", "--preset", "paper", "--backbone", weights, "--data", f"manifest:{manifest}", "--tasks", "1", "--init-state", directory / "state.safetensors",
               "--select", "streamfp", "--buffer", "none", "--clock", "off", "--batch", BATCH, "--sigma", SIGMA, "--pool", pool, "--out", out]
    done = subprocess.run([str(a) for a in command], capture_output=True, text=True,
                          env={**os.environ, "STREAMFP_REGISTRY": str(directory / "runs.db")})
    if done.returncode != 0:
        sys.exit(f"streamfp run: exit {done.returncode}\n{done.stderr}")
    return [json.loads(line) for line in (out / "events.jsonl").read_text().splitlines()]


class Worst:
    """The maximum of a series and its timestamp."""

    def __init__(self):
        self.value, self.t = 0.0, -1

    def see(self, value, t):
        if not value <= self.value:  # NaN counts as the maximum
            self.value, self.t = value, t

    def __str__(self):
        return f"{self.value:.2e} at timestamp {self.t}"


def compare(events, fp, pixels, labels, timestamps):
    learner = ref.Learner(fp)
    score_worst, loss_worst, swap_worst, swaps, failures = Worst(), Worst(), Worst(), 0, []
    if len(events) != timestamps:
        return [f"{len(events)} timestamps, expected {timestamps}"]
    for t, event in enumerate(events):
        ids, ours = event["offered"], event["coreset"]
        if ids != list(range(t * BATCH, (t + 1) * BATCH)):
            return [f"timestamp {t}: offered {ids}, expected the next {BATCH} lines of the manifest"]
        x, y = pixels(ids), torch.tensor([labels[i] for i in ids])
        scores = fp.similarity(x)
        score_worst.see(float((torch.tensor(event["similarity"]) - scores).abs().max() / scores.abs().max()), t)
        theirs = ref.coreset(scores, SIGMA)
        if len(ours) != len(theirs) or len(set(ours)) != len(ours):
            return [f"timestamp {t}: coreset {ours}, the reference's is {theirs}"]
        for a, b in zip(ours, theirs):
            if a != b:
                gap = abs(float(scores[a] - scores[b])) / max(abs(float(scores[a])), abs(float(scores[b])))
                swaps += 1
                swap_worst.see(gap, t)
                if not gap < SCORE_TOLERANCE:
                    failures.append(f"timestamp {t}: took sample {a}, the reference {b}; their scores differ by {gap:.2e}")
        # a tie may be resolved either way; then both sides learn from the same samples
        loss = learner.step(x[ours], y[ours], masked=True)
        off = abs(event["loss"][0] - loss) / abs(loss)
        loss_worst.see(off, t)
        if not off < LOSS_TOLERANCE:
            failures.append(f"timestamp {t}: loss {event['loss'][0]}, the reference's is {loss}: {off:.2e} apart")
    print(f"{timestamps} timestamps; largest differences: score {score_worst}, loss {loss_worst}; "
          f"{swaps} places of coresets swapped" + (f", scores apart by at most {swap_worst}" if swaps else ""))
    return failures


def updates_apart(directory, fp, start):
    """Returns the relative difference of the learned states, for the worst tensor."""
    got, worst = ref.load_safetensors(directory / "run" / "state.safetensors")[0], (0.0, "")
    for name, t in fp.p.items():
        want = t.detach() - start[name]
        norm = float(want.norm())
        worst = max(worst, (float((got[name] - start[name] - want).norm()) / norm if norm else 0.0, name))
    return worst


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("streamfp")
    parser.add_argument("--deit", action="store_true", default=os.environ.get("SFP_LONG") == "1")
    parser.add_argument("--timestamps", type=int, default=50)
    parser.add_argument("--keep", help="leave the files in this directory")
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as temporary:
        directory = Path(args.keep or temporary).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        names, files = images(args.timestamps * BATCH)
        weights, vit, size, mean, std = backbone(directory, args.deit)
        pool = 100 if args.deit else 20
        fp = ref.Fingerprints(vit, len(names), pool=pool, seed=11)
        start = {name: t.detach().clone() for name, t in fp.p.items()}
        ref.save_safetensors(directory / "state.safetensors", start, {"task": 0})
        events = run(args.streamfp, directory, weights, files, pool)
        failures = compare(events, fp, Pixels(files, size, mean, std), [names.index(name) for _, name in files], args.timestamps)
        if not failures:
            print("learned tensors: updates apart by at most %.2e, relative (%s)" % updates_apart(directory, fp, start))
    for line in failures[:10]:
        print("FAIL " + line)
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
