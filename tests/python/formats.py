#!/usr/bin/env python3
"""Weights of every layout and file format against PyTorch, and malicious pickles.

    formats.py path/to/streamfp

Small random ViTs are written with the names of timm, DeiT, DINO, iBOT, MoCo v3,
CLIP (also as TorchScript), Hugging Face and JAX, as safetensors, .pth, .bin and
.npz. `streamfp predict --features` must agree with the forward pass of this
script to 1e-5 of the largest feature, also for the output of `streamfp convert`.
DeiT-Tiny is read from the directory STREAMFP_SHARED (else ../shared next to the
repository) if it exists. Exits with 77 if torch, NumPy or Pillow is missing.
"""
import argparse
import collections
import json
import os
import pickle
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib
from pathlib import Path

try:
    import numpy as np
    import torch
    import torch.nn.functional as F
    from PIL import Image
except ImportError as e:
    print(f"skip: {e}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
SHARED = Path(os.environ.get("STREAMFP_SHARED", ROOT.parent / "shared"))
IMAGENET = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
TOLERANCE = 1e-5
LIMIT = 512  # MB of address space within which a malicious file must be refused

torch.set_num_threads(1)
failures = 0
checks = 0
worst = 0.0


def fail(text):
    global failures
    failures += 1
    print("FAIL", text)


# ------------------------------------------------------------ the network

S, P, D, H, DEPTH, HIDDEN = 32, 8, 128, 2, 2, 192


def random_weights(seed, pre_norm=False):
    g = torch.Generator().manual_seed(seed)

    def normal(*shape, scale=0.08):
        return torch.randn(*shape, generator=g) * scale

    w = collections.OrderedDict()
    w["patch_embed.proj.weight"] = normal(D, 3, P, P)
    if not pre_norm:
        w["patch_embed.proj.bias"] = normal(D)
    w["cls_token"] = normal(1, 1, D)
    w["pos_embed"] = normal(1, 1 + (S // P) ** 2, D, scale=0.3)
    if pre_norm:
        w["norm_pre.weight"], w["norm_pre.bias"] = 1 + normal(D), normal(D)
    for i in range(DEPTH):
        b = f"blocks.{i}."
        for n in ("norm1", "norm2"):
            w[b + n + ".weight"], w[b + n + ".bias"] = 1 + normal(D), normal(D)
        for n, rows, columns in (("attn.qkv", 3 * D, D), ("attn.proj", D, D), ("mlp.fc1", HIDDEN, D), ("mlp.fc2", D, HIDDEN)):
            w[b + n + ".weight"], w[b + n + ".bias"] = normal(rows, columns), normal(rows)
    w["norm.weight"], w["norm.bias"] = 1 + normal(D), normal(D)
    return w


def features(w, pixels, heads=H, eps=1e-6, quick=False, mean_std=IMAGENET):
    """Returns the class token after the final norm, in double."""
    w = {k: v.double() for k, v in w.items()}
    mean, std = (torch.tensor(v, dtype=torch.float64).view(1, 3, 1, 1) for v in mean_std)
    x = (torch.from_numpy(pixels).permute(0, 3, 1, 2).double() / 255 - mean) / std
    dim = w["cls_token"].shape[-1]
    x = F.conv2d(x, w["patch_embed.proj.weight"], w.get("patch_embed.proj.bias"), stride=w["patch_embed.proj.weight"].shape[-1])
    x = x.flatten(2).transpose(1, 2)
    x = torch.cat([w["cls_token"].expand(x.shape[0], -1, -1), x], 1) + w["pos_embed"]
    if "norm_pre.weight" in w:
        x = F.layer_norm(x, (dim,), w["norm_pre.weight"], w["norm_pre.bias"], eps)
    i = 0
    while f"blocks.{i}.norm1.weight" in w:
        b = f"blocks.{i}."
        y = F.layer_norm(x, (dim,), w[b + "norm1.weight"], w[b + "norm1.bias"], eps)
        y = F.linear(y, w[b + "attn.qkv.weight"], w[b + "attn.qkv.bias"])
        q, k, v = y.reshape(x.shape[0], -1, 3, heads, dim // heads).permute(2, 0, 3, 1, 4)
        y = ((q @ k.transpose(-2, -1)) / (dim // heads) ** 0.5).softmax(-1) @ v
        y = y.transpose(1, 2).reshape(x.shape)
        x = x + F.linear(y, w[b + "attn.proj.weight"], w[b + "attn.proj.bias"])
        y = F.layer_norm(x, (dim,), w[b + "norm2.weight"], w[b + "norm2.bias"], eps)
        y = F.linear(y, w[b + "mlp.fc1.weight"], w[b + "mlp.fc1.bias"])
        y = y * torch.sigmoid(1.702 * y) if quick else F.gelu(y)
        x = x + F.linear(y, w[b + "mlp.fc2.weight"], w[b + "mlp.fc2.bias"])
        i += 1
    return F.layer_norm(x, (dim,), w["norm.weight"], w["norm.bias"], eps)[:, 0].numpy()


# ---------------------------------------------------------------- layouts


def renamed(w, table, block, prefix=""):
    """Renames by (timm, other) pairs; `block` is the other name of "blocks."."""
    out = collections.OrderedDict()
    for name, t in w.items():
        parts = name.split(".")
        if parts[0] == "blocks":
            head, rest = f"{block}{parts[1]}.", ".".join(parts[2:])
        else:
            head, rest = "", name
        for a, b in table:
            if rest == a or rest.startswith(a + "."):
                rest = b + rest[len(a):]
                break
        out[prefix + head + rest] = t
    return out


def split_qkv(w, names):
    """Splits attn.qkv.* into three tensors; `names` has %s for the words for q, k and v."""
    out = collections.OrderedDict()
    for name, t in w.items():
        if ".attn.qkv." in name:
            block, kind = name.split("attn.qkv.")
            for word, part in zip(names, t.chunk(3)):
                out[block + word + "." + kind] = part
        else:
            out[name] = t
    return out


def with_prefix(w, prefix):
    return collections.OrderedDict((prefix + k, v) for k, v in w.items())


def clip_names(w):
    out = renamed(w, [("patch_embed.proj", "conv1"), ("cls_token", "class_embedding"), ("pos_embed", "positional_embedding"), ("norm_pre", "ln_pre"),
                      ("norm1", "ln_1"), ("norm2", "ln_2"), ("norm", "ln_post"), ("attn.qkv.weight", "attn.in_proj_weight"),
                      ("attn.qkv.bias", "attn.in_proj_bias"), ("attn.proj", "attn.out_proj"), ("mlp.fc1", "mlp.c_fc"), ("mlp.fc2", "mlp.c_proj")],
                  "transformer.resblocks.")
    out["class_embedding"] = out["class_embedding"].reshape(-1)
    out["positional_embedding"] = out["positional_embedding"][0]
    out["proj"] = torch.randn(D, 16)
    return out


def clip_whole(w):
    """Returns both towers with the names of OpenAI's state dict."""
    out = collections.OrderedDict(positional_embedding=torch.randn(7, 24), text_projection=torch.randn(24, 16), logit_scale=torch.tensor(2.0))
    out.update(with_prefix(clip_names(w), "visual."))
    out["transformer.resblocks.0.ln_1.weight"] = torch.randn(24)
    out["token_embedding.weight"] = torch.randn(50, 24)
    out["ln_final.weight"] = torch.randn(24)
    return out


def hf_vit_names(w, prefix="vit."):
    w = split_qkv(w, ["attention.attention.query", "attention.attention.key", "attention.attention.value"])
    out = renamed(w, [("patch_embed.proj", "embeddings.patch_embeddings.projection"), ("cls_token", "embeddings.cls_token"),
                      ("pos_embed", "embeddings.position_embeddings"), ("norm1", "layernorm_before"), ("norm2", "layernorm_after"),
                      ("norm", "layernorm"), ("attn.proj", "attention.output.dense"), ("mlp.fc1", "intermediate.dense"),
                      ("mlp.fc2", "output.dense")], "encoder.layer.", prefix)
    out["classifier.weight"], out["classifier.bias"] = torch.randn(5, D), torch.randn(5)
    return out


def hf_clip_names(w):
    w = split_qkv(w, ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"])
    out = renamed(w, [("patch_embed.proj", "embeddings.patch_embedding"), ("cls_token", "embeddings.class_embedding"),
                      ("pos_embed", "embeddings.position_embedding.weight"), ("norm_pre", "pre_layrnorm"), ("norm1", "layer_norm1"),
                      ("norm2", "layer_norm2"), ("norm", "post_layernorm"), ("attn.proj", "self_attn.out_proj")], "encoder.layers.",
                  "vision_model.")
    for name in ("vision_model.embeddings.class_embedding", "vision_model.embeddings.position_embedding.weight"):
        out[name] = out[name].reshape(-1) if name.endswith("class_embedding") else out[name][0]
    out["vision_model.embeddings.position_ids"] = torch.arange(1 + (S // P) ** 2).unsqueeze(0)
    out["visual_projection.weight"] = torch.randn(16, D)
    return out


def jax_names(w):
    out = {}
    head = D // H
    for name, t in w.items():
        x = t.numpy()
        parts = name.split(".")
        if parts[0] != "blocks":
            out[{"patch_embed.proj.weight": "embedding/kernel", "patch_embed.proj.bias": "embedding/bias", "cls_token": "cls",
                 "pos_embed": "Transformer/posembed_input/pos_embedding", "norm.weight": "Transformer/encoder_norm/scale",
                 "norm.bias": "Transformer/encoder_norm/bias"}[name]] = x.transpose(2, 3, 1, 0).copy() if x.ndim == 4 else x
            continue
        b, rest = f"Transformer/encoderblock_{parts[1]}/", ".".join(parts[2:])
        a = b + "MultiHeadDotProductAttention_1/"
        if rest.startswith("attn.qkv"):
            for word, part in zip(("query", "key", "value"), np.split(x, 3)):
                out[a + word + ("/kernel" if x.ndim == 2 else "/bias")] = \
                    part.T.reshape(D, H, head).copy() if x.ndim == 2 else part.reshape(H, head)
        elif rest == "attn.proj.weight":
            out[a + "out/kernel"] = x.T.reshape(H, head, D).copy()
        elif rest == "attn.proj.bias":
            out[a + "out/bias"] = x
        elif rest.startswith("mlp"):
            out[b + "MlpBlock_3/Dense_" + str(int(rest[6]) - 1) + ("/kernel" if x.ndim == 2 else "/bias")] = x.T.copy()
        else:
            out[b + ("LayerNorm_0/" if rest.startswith("norm1") else "LayerNorm_2/") + ("scale" if rest.endswith("weight") else "bias")] = x
    return out


def training_extras(epoch=7):
    """Adds the other values that training scripts save with the weights."""
    m = torch.nn.Linear(3, 3)
    o = torch.optim.AdamW(m.parameters())
    m(torch.randn(2, 3)).sum().backward()
    o.step()
    return {"optimizer": o.state_dict(), "epoch": epoch, "args": argparse.Namespace(lr=0.1, arch="vit", dist=None), "best": np.float64(0.5),
            "scaler": {"scale": 65536.0, "_growth_tracker": 0}}


# ---------------------------------------------------------------- writers


def as_parameters(w):
    return collections.OrderedDict((k, torch.nn.Parameter(v) if v.is_floating_point() else v) for k, v in w.items())


def write_pth(path, obj):
    torch.save(obj, path)


def write_legacy(path, obj):
    torch.save(obj, path, _use_new_zipfile_serialization=False)


def flat(obj, prefix=""):
    out = {}
    for k, v in obj.items():
        if isinstance(v, torch.Tensor):
            out[prefix + k] = v.detach()
        elif isinstance(v, dict):
            out.update(flat(v, f"{prefix}{k}."))
    return out


def write_npz(path, obj):
    np.savez(path, **{k: v.numpy() for k, v in flat(obj).items()})


def write_npz_packed(path, obj):
    np.savez_compressed(path, **{k: v.numpy() for k, v in flat(obj).items()})


def write_safetensors(path, obj):
    names = {torch.float32: "F32", torch.float16: "F16", torch.bfloat16: "BF16", torch.float64: "F64", torch.int64: "I64"}
    header, body = {}, b""
    for k, v in flat(obj).items():
        data = v.contiguous().view(torch.int16).numpy().tobytes() if v.dtype == torch.bfloat16 else v.contiguous().numpy().tobytes()
        header[k] = {"dtype": names[v.dtype], "shape": list(v.shape), "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    Path(path).write_bytes(struct.pack("<Q", len(text)) + text + body)


WRITERS = {"pth": write_pth, "bin": write_pth, "old.pth": write_legacy, "npz": write_npz, "packed.npz": write_npz_packed,
           "safetensors": write_safetensors}

# ---------------------------------------------------------------- running


def run(tool, *args, expect=0):
    out = subprocess.run([tool, *map(str, args)], capture_output=True, text=True)
    if out.returncode != expect:
        raise RuntimeError(f"{' '.join(map(str, args))}: exit {out.returncode}: {out.stderr.strip()}")
    return out.stdout


def our_features(tool, path, images, *more):
    out = Path(str(path) + ".features.npy")
    run(tool, "predict", "--backbone", path, "--features", out, "--threads", 1, *more, *images)
    return np.load(out)


def compare(name, got, want, tolerance=TOLERANCE):
    global checks, worst
    checks += 1
    error = float(np.abs(got - want).max() / np.abs(want).max()) if got.shape == want.shape else float("nan")
    if not error <= tolerance:
        fail(f"{name}: relative error {error:.3g}, expected at most {tolerance:g}")
    elif tolerance == TOLERANCE:
        worst = max(worst, error)


def check_file(tool, name, path, images, want, recognised=None, *more):
    """Checks the features of a file; with `recognised` also the output of inspect and the features of the converted file."""
    try:
        got = our_features(tool, path, images, *more)
        compare(name, got, want)
        if not recognised:
            return
        found = json.loads(run(tool, "inspect", "--brief", "--json", path))["recognised"]
        if recognised not in found:
            fail(f"{name}: the output of inspect is '{found}', expected it to contain '{recognised}'")
        out = Path(str(path) + ".converted.safetensors")
        run(tool, "convert", path, out, *more)
        compare(name + ", converted", our_features(tool, out, images), got, 0)
        out.unlink()
    except (RuntimeError, KeyError, ValueError) as e:
        fail(f"{name}: {e}")


def make_images(directory, count, size, seed):
    pixels = np.random.default_rng(seed).integers(0, 256, (count, size, size, 3), dtype=np.uint8)
    paths = []
    for i, p in enumerate(pixels):
        paths.append(directory / f"{size}-{i}.png")
        Image.fromarray(p).save(paths[-1])
    return paths, pixels


# ------------------------------------------------------------------ tests


def test_layouts(tool, directory):
    images, pixels = make_images(directory, 3, S, 1)
    w, other, clip = random_weights(1), random_weights(2), random_weights(3, pre_norm=True)
    plain, image = features(w, pixels), features(clip, pixels, eps=1e-5, quick=True)
    head = {"head.weight": torch.randn(5, D), "head.bias": torch.randn(5)}
    dino_head = {"head.mlp.0.weight": torch.randn(4, D), "head.last_layer.weight_g": torch.randn(4, 1)}
    layouts = [
        ("timm", {**w, **head}, plain, "timm names"),
        ("DeiT", {"model": {**w, **head}, **training_extras()}, plain, "DeiT"),
        ("DINO", {"student": with_prefix({**with_prefix(other, "backbone."), **dino_head}, "module."),
                  "teacher": {**with_prefix(w, "backbone."), **dino_head}, "dino_loss": {"center": torch.zeros(1, 4)}, **training_extras()},
         plain, "under 'teacher.backbone.'"),
        ("iBOT", {"student": with_prefix({**with_prefix(other, "backbone."), "backbone.masked_embed": torch.randn(1, D)}, "module."),
                  "teacher": with_prefix(w, "backbone."), **training_extras()}, plain, "iBOT"),
        ("iBOT teacher", {"state_dict": with_prefix(w, "backbone.")}, plain, "under 'state_dict.backbone.'"),
        ("MoCo v3", {"state_dict": {**with_prefix(other, "module.momentum_encoder."), **with_prefix(w, "module.base_encoder."),
                                    "module.base_encoder.head.0.weight": torch.randn(6, D), "module.predictor.0.weight": torch.randn(6, 6)},
                     **training_extras(), "arch": "vit_small"}, plain, "MoCo v3"),
        ("CLIP", clip_whole(clip), image, "CLIP image tower"),
        ("CLIP visual alone", clip_names(clip), image, "QuickGELU"),
        ("Hugging Face CLIP", hf_clip_names(clip), image, "Hugging Face CLIP"),
        ("open_clip trunk", {"state_dict": with_prefix(w, "module.visual.trunk.")}, plain, "open_clip"),
    ]
    for name, obj, want, recognised in layouts:
        for ending, write in WRITERS.items():
            path = directory / f"net.{ending}"
            write(path, obj)
            check_file(tool, f"{name} .{ending}", path, images, want, recognised if ending == "pth" or name == "timm" else None)
            path.unlink()
    np.savez(directory / "jax.npz", **jax_names(w))
    check_file(tool, "JAX .npz", directory / "jax.npz", images, plain, "JAX")
    write_pth(directory / "parameters.pth", {"model": as_parameters(w)})
    check_file(tool, "parameters .pth", directory / "parameters.pth", images, plain, "timm names")
    turned = {k: v.t().contiguous().t() if v.dim() == 2 else v for k, v in w.items()}
    write_pth(directory / "strided.pth", turned)
    check_file(tool, "strided .pth", directory / "strided.pth", images, plain, "timm names")
    big = torch.randn(3 * D + 5)
    views = dict(w, **{"blocks.0.attn.qkv.bias": big[5:]})
    write_pth(directory / "views.pth", views)
    check_file(tool, "views .pth", directory / "views.pth", images, features(views, pixels), "timm names")


def test_hugging_face(tool, directory):
    """Checks that heads, eps, activation, mean and std are read from the two files next to such weights."""
    directory = directory / "hf"
    directory.mkdir()
    images, pixels = make_images(directory, 2, S, 2)
    w = random_weights(4)
    mean_std = ([0.5, 0.4, 0.3], [0.5, 0.25, 0.3])
    (directory / "config.json").write_text(json.dumps({"architectures": ["ViTForImageClassification"], "num_attention_heads": 4, "hidden_size": D,
                                                    "layer_norm_eps": 1e-12, "hidden_act": "gelu", "image_size": S, "patch_size": P,
                                                    "id2label": {str(i): f"c{i}" for i in range(5)}}))
    (directory / "preprocessor_config.json").write_text(json.dumps({"do_normalize": True, "image_mean": mean_std[0], "image_std": mean_std[1],
                                                                 "size": {"height": S, "width": S}, "resample": 2}))
    want = features(w, pixels, heads=4, eps=1e-12, mean_std=mean_std)
    for prefix in ("vit.", ""):
        for ending, write in (("bin", write_pth), ("safetensors", write_safetensors), ("npz", write_npz)):
            path = directory / f"pytorch_model.{ending}"
            write(path, hf_vit_names(w, prefix))
            check_file(tool, f"Hugging Face ViT '{prefix}' .{ending}", path, images, want, "preprocessor_config.json")
            path.unlink()


def test_torchscript(tool, directory):
    class Attention(torch.nn.Module):
        def __init__(self, w, b):
            super().__init__()
            self.in_proj_weight = torch.nn.Parameter(w[b + "attn.in_proj_weight"])
            self.in_proj_bias = torch.nn.Parameter(w[b + "attn.in_proj_bias"])
            self.out_proj = linear(w, b + "attn.out_proj")

        def forward(self, x):
            return self.out_proj(F.linear(x, self.in_proj_weight, self.in_proj_bias)[:, :D])

    def linear(w, name):
        m = torch.nn.Linear(w[name + ".weight"].shape[1], w[name + ".weight"].shape[0])
        m.weight, m.bias = torch.nn.Parameter(w[name + ".weight"]), torch.nn.Parameter(w[name + ".bias"])
        return m

    def norm(w, name):
        m = torch.nn.LayerNorm(D)
        m.weight, m.bias = torch.nn.Parameter(w[name + ".weight"]), torch.nn.Parameter(w[name + ".bias"])
        return m

    class Block(torch.nn.Module):
        def __init__(self, w, b):
            super().__init__()
            self.ln_1, self.ln_2, self.attn = norm(w, b + "ln_1"), norm(w, b + "ln_2"), Attention(w, b)
            self.mlp = torch.nn.Sequential(collections.OrderedDict(c_fc=linear(w, b + "mlp.c_fc"), c_proj=linear(w, b + "mlp.c_proj")))

        def forward(self, x):
            return self.mlp(self.ln_2(self.attn(self.ln_1(x))))

    class Transformer(torch.nn.Module):
        def __init__(self, w):
            super().__init__()
            self.resblocks = torch.nn.Sequential(*[Block(w, f"transformer.resblocks.{i}.") for i in range(DEPTH)])

        def forward(self, x):
            return self.resblocks(x)

    class Visual(torch.nn.Module):
        def __init__(self, w):
            super().__init__()
            self.conv1 = torch.nn.Conv2d(3, D, P, P, bias=False)
            self.conv1.weight = torch.nn.Parameter(w["conv1.weight"])
            for name in ("class_embedding", "positional_embedding", "proj"):
                setattr(self, name, torch.nn.Parameter(w[name]))
            self.ln_pre, self.ln_post, self.transformer = norm(w, "ln_pre"), norm(w, "ln_post"), Transformer(w)

        def forward(self, x):
            y = self.conv1(x).flatten(2).transpose(1, 2)[0] + self.positional_embedding[1:] + self.class_embedding
            return self.ln_post(self.transformer(self.ln_pre(y))) @ self.proj

    class Clip(torch.nn.Module):
        def __init__(self, w):
            super().__init__()
            self.visual = Visual(w)

        def forward(self, x):
            return self.visual(x)

    images, pixels = make_images(directory, 2, S, 5)
    w = random_weights(5, pre_norm=True)
    torch.jit.trace(Clip(clip_names(w)).eval(), torch.randn(1, 3, S, S)).save(str(directory / "script.pt"))
    check_file(tool, "CLIP TorchScript", directory / "script.pt", images, features(w, pixels, eps=1e-5, quick=True), "CLIP image tower")


def test_numbers_and_sizes(tool, directory):
    images, pixels = make_images(directory, 2, S, 6)
    w = random_weights(6)
    for dtype in (torch.float16, torch.bfloat16, torch.float64):
        rounded = {k: v.to(dtype) for k, v in w.items()}
        for write, ending in ((write_pth, "pth"), (write_safetensors, "safetensors"), (write_npz, "npz")):
            if dtype == torch.bfloat16 and ending == "npz":
                continue
            path = directory / f"rounded.{ending}"
            write(path, rounded)
            check_file(tool, f"{dtype} .{ending}", path, images, features(rounded, pixels))
    write_pth(directory / "w.pth", w)
    for name, dtype in (("f16", torch.float16), ("bf16", torch.bfloat16)):
        run(tool, "convert", directory / "w.pth", directory / "half.safetensors", "--dtype", name)
        compare(f"convert --dtype {name}", our_features(tool, directory / "half.safetensors", images),
                features({k: v.to(dtype) for k, v in w.items()}, pixels))
    for size in (48, 16, 80):
        grid = w["pos_embed"][:, 1:].reshape(1, S // P, S // P, D).permute(0, 3, 1, 2)
        grid = F.interpolate(grid, size=(size // P, size // P), mode="bicubic", align_corners=False)
        resized = dict(w, pos_embed=torch.cat([w["pos_embed"][:, :1], grid.permute(0, 2, 3, 1).reshape(1, -1, D)], 1))
        pics, pix = make_images(directory, 2, size, 7)
        check_file(tool, f"--img-size {size}", directory / "w.pth", pics, features(resized, pix), "timm names", "--img-size", size)


def read_safetensors(path):
    data = Path(path).read_bytes()
    n = struct.unpack("<Q", data[:8])[0]
    out = collections.OrderedDict()
    for k, v in json.loads(data[8:8 + n]).items():
        if k != "__metadata__":
            a, b = v["data_offsets"]
            out[k] = torch.from_numpy(np.frombuffer(data[8 + n + a:8 + n + b], np.float32).reshape(v["shape"]).copy())
    return out


def test_deit_tiny(tool, directory):
    file = SHARED / "data" / "deit_tiny_patch16_224.safetensors"
    if not file.exists():
        print("skip: no DeiT-Tiny in the shared directory")
        return
    w = read_safetensors(file)
    images, pixels = make_images(directory, 1, 224, 8)
    want = features(w, pixels, heads=3)
    compare("DeiT-Tiny as it is", our_features(tool, file, images), want)
    for ending, write in WRITERS.items():
        path = directory / f"deit.{ending}"
        write(path, {"model": w})
        check_file(tool, f"DeiT-Tiny .{ending}", path, images, want, "timm names" if ending == "pth" else None)
        path.unlink()


# -------------------------------------------------------- malicious files


class System:
    def __reduce__(self):
        return os.system, ("touch harm-was-done",)


class Evaluated:
    def __reduce__(self):
        return eval, ("open('harm-was-done', 'w')",)


def torch_zip(path, program, storages=None, deflated=False, crc=None, member="archive/data.pkl"):
    """Returns a file as torch.save writes it, with a given pickle."""
    how = zipfile.ZIP_DEFLATED if deflated else zipfile.ZIP_STORED
    with zipfile.ZipFile(path, "w", how) as z:
        z.writestr(member, program)
        for key, data in (storages or {}).items():
            z.writestr(f"archive/data/{key}", data)
    if crc is not None:
        data = bytearray(Path(path).read_bytes())
        data[data.index(crc) + 1] ^= 1
        Path(path).write_bytes(data)


def tensor_program(shape, stride, numel, key="0", offset=0, kind="FloatStorage", name="w", repeat=1):
    """Returns a pickle of {name: tensor}, assembled from opcodes without any checks."""
    def number(n):
        return b"\x8a\x08" + struct.pack("<q", n)

    def text(s):
        return b"X" + struct.pack("<I", len(s)) + s.encode()

    one = (b"ctorch._utils\n_rebuild_tensor_v2\n((" + text("storage") + f"ctorch\n{kind}\n".encode() + text(key) + text("cpu") + number(numel) + b"tQ" +
           number(offset) + b"(" + b"".join(map(number, shape)) + b"t(" + b"".join(map(number, stride)) + b"t\x89ccollections\nOrderedDict\n)RtR")
    return b"\x80\x02}(" + b"".join(text(f"{name}{i}" if i else name) + one for i in range(repeat)) + b"u."


def nested(depth):
    return b"\x80\x02" + b"}X\x01\x00\x00\x00a" * depth + b"N" + b"s" * depth + b"."


def dict_bomb(levels, wide):
    """Each dict contains the previous one `wide` times: there are wide**levels paths to the innermost dict."""
    out = b"\x80\x02}q\x00"
    for level in range(levels):
        out += b"0}("
        for i in range(wide):
            out += b"K" + bytes([i]) + b"h" + bytes([level])
        out += b"uq" + bytes([level + 1])
    return out + b"."


def deflate_bomb(path):
    raw = zlib.compressobj(9, zlib.DEFLATED, -15)
    data = raw.compress(bytes(1 << 28)) + raw.flush()
    name = b"a.npy"
    size, crc = 1 << 28, zlib.crc32(bytes(1 << 28))
    local = struct.pack("<IHHHHHIIIHH", 0x04034b50, 20, 0, 8, 0, 0, crc, len(data), size, len(name), 0) + name + data
    entry = struct.pack("<IHHHHHHIIIHHHHHII", 0x02014b50, 20, 20, 0, 8, 0, 0, crc, len(data), size, len(name), 0, 0, 0, 0, 0, 0) + name
    end = struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 1, 1, len(entry), len(local), 0)
    Path(path).write_bytes(local + entry + end)


def limited(tool, *args):
    """Returns the command with its address space limited to LIMIT, if the build allows that (sanitizers do not)."""
    return ["sh", "-c", f'ulimit -v {LIMIT << 10} && exec "$0" "$@"', tool, *map(str, args)]


def check_refused(tool, name, path, text, command):
    global checks
    checks += 1
    began = time.time()
    out = subprocess.run(command(tool, "inspect", path), capture_output=True, text=True, cwd=path.parent, timeout=60)
    seconds = time.time() - began
    if out.returncode != 1 or text not in out.stderr:
        fail(f"{name}: exit {out.returncode}, '{out.stderr.strip()}', expected '{text}'")
    if seconds > 10:
        fail(f"{name}: took {seconds:.1f} s")
    if (path.parent / "harm-was-done").exists():
        fail(f"{name}: the pickle was executed")
        (path.parent / "harm-was-done").unlink()


def test_harm(tool, directory):
    directory = directory / "harm"
    directory.mkdir()
    floats = np.arange(12, dtype=np.float32).tobytes()
    good = random_weights(9)

    def pth(name):
        return directory / f"{name}.pth"

    cases = []

    def add(name, text, write, *args, **more):
        write(pth(name), *args, **more)
        cases.append((name, text))

    add("system", "name is 'posix.system', expected", write_pth, {"model": good, "x": System()})
    add("system-old", "name is 'posix.system', expected", write_legacy, {"model": good, "x": System()})
    add("eval", "name is '__builtin__.eval', expected", write_pth, Evaluated())
    add("os-by-stack", "name is 'os.system', expected", torch_zip, pickle.dumps({"a": 1}, 4)[:-1] + b"\x8c\x02os\x8c\x06system\x93\x8c\x04true\x85R0.")
    add("module", "name is 'torch.nn.modules.linear.Linear', expected", write_pth, torch.nn.Linear(2, 2))
    add("nested", "nested deeper", torch_zip, nested(100000))
    add("nested-less", "nested deeper", torch_zip, nested(40))
    add("itself", "in a cycle", torch_zip, b"\x80\x02}q\x00X\x04\x00\x00\x00selfh\x00s.")
    add("bomb", "entries", torch_zip, dict_bomb(20, 100))
    add("memo", "memo index", torch_zip, b"\x80\x02}r\xff\xff\xff\x7f.")
    add("long-memo", "values", torch_zip, b"\x80\x02]q\x00(" + b"h\x00" * 3000000 + b"e.")
    add("huge", "is (4611686018427387904, 4)", torch_zip, tensor_program([1 << 62, 4], [4, 1], 12), {"0": floats})
    add("huge-storage", "has 48 bytes, expected 1152921504606846976", torch_zip, tensor_program([3, 4], [4, 1], 1 << 60), {"0": floats})
    add("expanded", "has 12 elements", torch_zip, tensor_program([1 << 20, 1 << 20], [0, 0], 12), {"0": floats})
    add("short", "'0' has 12 elements", torch_zip, tensor_program([4, 4], [4, 1], 12), {"0": floats})
    add("short-storage", "has 40 bytes, expected 12", torch_zip, tensor_program([3, 4], [4, 1], 12), {"0": floats[:40]})
    add("offset", "'0' has 12 elements", torch_zip, tensor_program([3, 4], [4, 1], 12, offset=1), {"0": floats})
    add("negative", "size, stride or offset", torch_zip, tensor_program([-3, -4], [4, 1], 12), {"0": floats})
    add("stride", "'0' has 12 elements", torch_zip, tensor_program([3, 4], [(1 << 62) + 1, 4], 12), {"0": floats})
    add("shared", "twice as large", torch_zip, tensor_program([250000], [1], 250000, repeat=9), {"0": bytes(1000000)})
    add("missing", "storage 'archive/data/7' is missing", torch_zip, tensor_program([3, 4], [4, 1], 12, key="7"), {"0": floats})
    add("climbs", "not a relative path", torch_zip, tensor_program([3, 4], [4, 1], 12), {"../../../etc/passwd": floats})
    add("absolute", "not a relative path", torch_zip, b"N.", member="/archive/data.pkl")
    add("crc", "CRC", torch_zip, tensor_program([3, 4], [4, 1], 12), {"0": floats}, crc=floats)
    add("complex", "has type", torch_zip, tensor_program([3, 4], [4, 1], 12, kind="CharStorage"), {"0": floats})
    add("deflated-bomb", "unpack to more", lambda p: deflate_bomb(p))
    add("empty", "expected a dict", torch_zip, b"N.")
    add("cut", "directory", lambda p: (write_pth(p, good), p.write_bytes(p.read_bytes()[:-100])))
    add("old-cut", "bytes follow", lambda p: (write_legacy(p, good), p.write_bytes(p.read_bytes()[:-100])))
    add("only-zip", "neither", lambda p: zipfile.ZipFile(p, "w").writestr("readme.txt", "hello"))
    twice = directory / "twice.zip"
    with zipfile.ZipFile(twice, "w") as z:
        z.writestr("archive/data.pkl", b"N.")
        z.writestr("brchive/data.pkl", b"N.")
    pth("twice").write_bytes(twice.read_bytes().replace(b"brchive", b"archive"))
    cases.append(("twice", "is a duplicate"))
    objects = np.array([System()], dtype=object)
    np.savez(pth("object-array").with_suffix(".npz"), a=objects)
    pth("object-array").write_bytes(pth("object-array").with_suffix(".npz").read_bytes())
    cases.append(("object-array", "npy type is '|O'"))
    bears = subprocess.run(limited(tool, "--version"), capture_output=True).returncode == 0
    command = limited if bears else lambda *args: list(map(str, args))
    for name, text in cases:
        check_refused(tool, name, pth(name), text, command)
    return len(cases), f" within {LIMIT} MB" if bears else ""


def main():
    tool = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as d:
        directory = Path(d)
        harm, bounds = test_harm(tool, directory)
        for test in (test_layouts, test_hugging_face, test_torchscript, test_numbers_and_sizes, test_deit_tiny):
            test(tool, directory)
    print(f"{checks} checks, {failures} failed; largest relative error {worst:.2g}; {harm} malicious files refused{bounds}")
    sys.exit(1 if failures else 0)


if __name__ == "__main__":
    main()
