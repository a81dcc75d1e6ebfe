#!/usr/bin/env python3
"""One full step of pretraining - forward, loss, backward, clipping, AdamW, average - against PyTorch.

    pretrain_step.py path/to/pretrain_step

The tool writes its inputs and outputs; this script does the same step with autograd and torch.optim.AdamW. The relative Euclidean
error of every tensor must be at most 1e-3. Exits with 77 if torch is missing.
"""
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
except ImportError as e:
    print(f"skip: {e}")
    sys.exit(77)

TOLERANCE = 1e-3
HEADS, DEPTH, PATCH, DIM, TEACHER_DIM, CLASSES, TEACHER_CLASSES = 3, 3, 8, 48, 32, 10, 7
WEIGHT = {"label": 0.5, "class": 2.0, "patch": 3.0, "logits": 0.7}
SMOOTHING, HEAT, LR, DECAY, BETAS, EPS, CLIP, KEEP = 0.1, 2.0, 1e-3, 0.05, (0.9, 0.98), 1e-8, 0.5, 0.9


def read(path):
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    out = {}
    for name, t in json.loads(data[8 : 8 + size]).items():
        if name != "__metadata__":
            a, b = t["data_offsets"]
            kind = {"F32": np.float32, "I64": np.int64}[t["dtype"]]
            out[name] = torch.from_numpy(np.frombuffer(data[8 + size + a : 8 + size + b], kind).reshape(t["shape"]).copy())
    return out


def vit(w, x):
    """Returns all tokens after the final norm."""
    t = F.conv2d(x, w["patch_embed.proj.weight"], w["patch_embed.proj.bias"], stride=PATCH).flatten(2).transpose(1, 2)
    t = torch.cat([w["cls_token"].expand(len(x), -1, -1), t], 1) + w["pos_embed"]
    for i in range(DEPTH):
        p = {k.removeprefix(f"blocks.{i}."): v for k, v in w.items() if k.startswith(f"blocks.{i}.")}
        a = F.layer_norm(t, (DIM,), p["norm1.weight"], p["norm1.bias"], 1e-6)
        q, k, v = F.linear(a, p["attn.qkv.weight"], p["attn.qkv.bias"]).reshape(len(x), -1, 3, HEADS, DIM // HEADS).permute(2, 0, 3, 1, 4)
        a = ((q @ k.transpose(-2, -1)) * (DIM // HEADS) ** -0.5).softmax(-1) @ v
        t = t + F.linear(a.transpose(1, 2).reshape(len(x), -1, DIM), p["attn.proj.weight"], p["attn.proj.bias"])
        a = F.layer_norm(t, (DIM,), p["norm2.weight"], p["norm2.bias"], 1e-6)
        t = t + F.linear(F.gelu(F.linear(a, p["mlp.fc1.weight"], p["mlp.fc1.bias"])), p["mlp.fc2.weight"], p["mlp.fc2.bias"])
    return F.layer_norm(t, (DIM,), w["norm.weight"], w["norm.bias"], 1e-6)


def layers_of(flat):
    """Returns the layers of the loss: W and b of each, padded to 16 floats (pretrain/loss.c)."""
    out, at = [], 0
    for n in (CLASSES, TEACHER_CLASSES, TEACHER_DIM, TEACHER_DIM):
        w = flat[at : at + n * DIM].reshape(n, DIM)
        at += -(-n * DIM // 16) * 16
        out.append((w, flat[at : at + n]))
        at += -(-n // 16) * 16
    assert at == flat.numel()
    return out


def loss_of(w, d):
    tokens = vit(w, d["x"])
    label, logits, to_class, to_patch = layers_of(w["layers"])
    part = float(d["numbers"][0])

    def mix(t):
        return part * t + (1 - part) * t.flip(0)

    cls, target = tokens[:, 0], mix(d["target"])
    wanted = mix(F.one_hot(d["label"], CLASSES).float() * (1 - SMOOTHING) + SMOOTHING / CLASSES)
    teacher = F.log_softmax(F.linear(mix(d["teacher_class"]), d["teacher_head_w"], d["teacher_head_b"]) / HEAT, 1)
    student = F.log_softmax(F.linear(cls, *logits) / HEAT, 1)
    return {
        "label": -(wanted * F.log_softmax(F.linear(cls, *label), 1)).sum(1).mean(),
        "class": (1 - F.cosine_similarity(F.linear(cls, *to_class), target[:, 0])).mean(),
        "patch": F.smooth_l1_loss(F.linear(tokens[:, 1:], *to_patch), target[:, 1:]),
        "logits": HEAT**2 * F.kl_div(student, teacher, reduction="batchmean", log_target=True),
    }


def matrix(name):
    return name.endswith(".weight") and "norm" not in name


def main():
    with tempfile.TemporaryDirectory() as directory:
        path = f"{directory}/step.safetensors"
        subprocess.run([sys.argv[1], path], check=True)
        d = read(path)
    worst, failed = 0.0, 0

    def compare(name, got, want):
        nonlocal worst, failed
        error = float((got - want).norm() / want.norm().clamp_min(1e-12))
        worst = max(worst, error)
        if not error <= TOLERANCE:
            failed += 1
            print(f"{name}: relative error {error:.2e}, at most {TOLERANCE:.0e}")

    w = {k.removeprefix("before."): v.clone().requires_grad_() for k, v in d.items() if k.startswith("before.")}
    losses = loss_of(w, d)
    for i, (name, value) in enumerate(losses.items()):
        compare(f"loss {name}", d["numbers"][2 + i], value.detach())
    sum(WEIGHT[k] * v for k, v in losses.items()).backward()
    for name, t in w.items():
        compare(f"gradient of {name}", d[f"grad.{name}"], t.grad)
    compare("norm of the gradient", d["numbers"][1], torch.nn.utils.clip_grad_norm_(list(w.values()), CLIP))
    # in the block of layers only matrices have weight decay: a mask of their elements
    decays = torch.zeros_like(w["layers"])
    for m, _ in layers_of(decays):
        m.fill_(1)
    before = {k: v.detach().clone() for k, v in w.items()}
    groups = [{"params": [v for k, v in w.items() if matrix(k)], "weight_decay": DECAY},
              {"params": [v for k, v in w.items() if not matrix(k)], "weight_decay": 0}]
    torch.optim.AdamW(groups, lr=LR, betas=BETAS, eps=EPS).step()
    with torch.no_grad():
        w["layers"] -= LR * DECAY * decays * before["layers"]
    for name, t in w.items():
        # Adam's first step depends on the gradient's sign only. Where the gradient is only rounding error (that of the bias of
        # keys is exactly 0), the sign is arbitrary, so these elements are not compared.
        clear = t.grad.abs() > 1e-4 * t.grad.abs().max()
        after, average, want = d[f"after.{name}"][clear], d[f"average.{name}"][clear], t.detach()[clear]
        compare(f"{name} after the step", after, want)
        compare(f"step of {name}", after - before[name][clear], want - before[name][clear])
        compare(f"average of {name}", average, KEEP * before[name][clear] + (1 - KEEP) * want)
    print(f"{len(w)} tensors, worst relative error {worst:.1e}")
    return failed != 0


if __name__ == "__main__":
    sys.exit(main())
