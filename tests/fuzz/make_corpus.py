#!/usr/bin/env python3
"""Writes the constructed seeds of the fuzz targets to tests/fuzz/corpus/: of all, or of those that are named as arguments.

Needs Pillow for the images. Files named found-* were found by fuzzing and are
not changed.
"""
import gzip
import io
import json
import pickle
import struct
import sys
import tarfile
import zipfile
import zlib
from pathlib import Path

CORPUS = Path(__file__).resolve().parent / "corpus"


def put(kind, name, data):
    folder = CORPUS / kind
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(data)


def safetensors(header, data=b"", length=None):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    sizes = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "U8": 1}
    header, at = {"__metadata__": {"format": "pt", "classes": "[\"a\"]"}}, 0
    for name, size in sizes.items():
        header["t." + name] = tensor(name, [1, 3], at, at + 3 * size)
        at += 3 * size
    put("safetensors", "all-types", safetensors(header, bytes(range(at))))
    put("safetensors", "empty", safetensors({}))
    put("safetensors", "scalar-and-none", safetensors({"a": tensor("F32", [], 0, 4), "b": tensor("F32", [0, 7], 4, 4)}, b"\0\0\x80?"))
    put("safetensors", "gap", safetensors({"a": tensor("U8", [1], 1, 2)}, b"ab"))
    put("safetensors", "overlap", safetensors({"a": tensor("U8", [2], 0, 2), "b": tensor("U8", [2], 1, 3)}, b"abc"))
    put("safetensors", "overflow", safetensors({"a": tensor("F64", [2**62, 4], 0, 0)}))
    put("safetensors", "unknown-type", safetensors({"a": tensor("F8_E5M2", [1], 0, 1)}, b"a"))
    put("safetensors", "twice", safetensors(b'{"a":1,"a":2}'))
    put("safetensors", "long-header", safetensors({}, length=2**63))
    put("safetensors", "control-name", safetensors({"\x1b\n": []}))


def npy(header, data=b"", version=1):
    text = header.encode() + b"\n"
    return b"\x93NUMPY" + bytes([version, 0]) + struct.pack("<H" if version == 1 else "<I", len(text)) + text + data


def make_npy():
    for version in (1, 2, 3):
        put("npy", f"v{version}", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }   ", bytes(24), version))
    for code, size in (("<f8", 8), ("<f2", 2), ("<i8", 8), ("<i4", 4), ("|u1", 1), (">f4", 4)):
        put("npy", "type-" + code.strip("<|").replace(">", "big-"), npy("{'descr': '%s', 'fortran_order': False, 'shape': (1,), }" % code, bytes(size)))
    put("npy", "scalar", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (), }", bytes(8)))
    put("npy", "fortran", npy("{'descr': '<f8', 'fortran_order': True, 'shape': (1, 1), }", bytes(8)))
    put("npy", "records", npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }", bytes(4)))
    put("npy", "overflow", npy("{'descr': '<f8', 'fortran_order': False, 'shape': (9223372036854775807, 9), }"))
    put("npy", "python2", npy("{'descr': '<f4', 'fortran_order': False, 'shape': (1L, 2L), }", bytes(8)))


def make_config():
    ours = {"img_size": 32, "patch_size": 8, "num_heads": 4, "mean": [0, 0.5, 0], "std": [1, 1, 2], "ln_eps": 1e-6,
            "activation": "gelu", "class_names": ["a", "b"]}
    timm = {"architecture": "vit", "model_args": {"img_size": 64},
            "pretrained_cfg": {"input_size": [3, 224, 224], "mean": [0.5] * 3, "std": [0.5] * 3, "label_names": ["x"]}}
    hf = {"num_attention_heads": 12, "layer_norm_eps": 1e-12, "hidden_act": "gelu", "image_size": 224,
          "id2label": {"0": "cat", "1": "dog"}, "image_mean": [0.1, 0.2, 0.3], "image_std": [1, 1, 1]}
    clip = {"vision_config": {"num_attention_heads": 12, "hidden_act": "quick_gelu", "image_size": [224, 224], "patch_size": 32}}
    for name, value in (("ours", ours), ("timm", timm), ("hugging-face", hf), ("clip", clip), ("empty", {}), ("array", [])):
        put("config", name, json.dumps(value).encode())
    put("config", "bad-keys", b'{"id2label":{"0":"a","00":"b"}}')
    put("config", "null", b'{"num_heads":null,"pretrained_cfg":null}')


def chunk(name, body):
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def png(width, height, depth, kind, rows, extra=b"", interlace=0):
    head = struct.pack(">IIBBBBB", width, height, depth, kind, 0, 0, interlace)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + extra + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def saved(im, **options):
    out = io.BytesIO()
    im.save(out, **options)
    return out.getvalue()


def make_image():
    from PIL import Image
    w, h = 19, 13
    rgb = Image.new("RGB", (w, h))
    rgb.putdata([(x * 13, y * 19, (x * y) % 256) for y in range(h) for x in range(w)])
    rgba = rgb.copy()
    rgba.putalpha(rgb.convert("L"))
    exif = Image.Exif()
    exif[0x0112] = 6
    turned = exif.tobytes()
    for name, im in (("grey", rgb.convert("L")), ("rgb", rgb), ("cmyk", rgb.convert("CMYK"))):
        put("image", f"{name}.jpg", saved(im, format="JPEG", quality=70))
    put("image", "progressive.jpg", saved(rgb, format="JPEG", progressive=True, quality=60))
    put("image", "turned.jpg", saved(rgb, format="JPEG", exif=turned))
    put("image", "truncated.jpg", saved(rgb, format="JPEG")[:-40])
    for name, im in (("rgb", rgb), ("grey", rgb.convert("L")), ("bits", rgb.convert("1")), ("palette", rgb.quantize(20)), ("rgba", rgba)):
        put("image", f"{name}.png", saved(im, format="PNG"))
    put("image", "turned.png", saved(rgb, format="PNG", exif=turned))
    row = b"\0" + bytes(range(12))
    put("image", "deep.png", png(2, 2, 16, 2, row * 2))
    put("image", "interlaced.png", png(1, 1, 8, 2, b"\0abc", interlace=1))
    put("image", "transparent.png", png(1, 1, 8, 3, b"\0\0", chunk(b"PLTE", b"abc") + chunk(b"tRNS", b"\x07")))
    put("image", "short.png", png(4, 4, 8, 2, row))
    put("image", "huge.png", png(2**31 - 1, 2**31 - 1, 8, 2, b""))
    put("image", "lossy.webp", saved(rgb, format="WEBP", quality=50))
    put("image", "lossless.webp", saved(rgb, format="WEBP", lossless=True))
    put("image", "alpha.webp", saved(rgba, format="WEBP", quality=50))
    put("image", "turned.webp", saved(rgb, format="WEBP", lossless=True, exif=turned))
    put("image", "animated.webp", saved(rgb, format="WEBP", save_all=True, append_images=[rgb.rotate(90)], duration=10))


def idx(sizes, data):
    return bytes([0, 0, 8, len(sizes)]) + b"".join(struct.pack(">I", n) for n in sizes) + data


def make_idx():
    put("idx", "images", idx((2, 3, 4), bytes(range(24))))
    put("idx", "labels", idx((5,), b"\0\1\2\3\4"))
    put("idx", "images.gz", gzip.compress(idx((2, 3, 4), bytes(range(24))), mtime=0))
    put("idx", "labels.gz", gzip.compress(idx((5,), bytes(5)), mtime=0))
    put("idx", "cut.gz", gzip.compress(idx((2, 3, 4), bytes(range(24))), mtime=0)[:-9])
    put("idx", "short", idx((2, 3, 4), bytes(23)))
    put("idx", "long", idx((5,), bytes(6)))
    put("idx", "many", idx((2**32 - 1, 1, 1), bytes(9)))
    put("idx", "overflow", idx((2**26, 2**14, 2**14), bytes(9)))
    put("idx", "none", idx((0,), b""))
    put("idx", "floats", b"\0\0\x0d\1\0\0\0\1\0\0\0\0")


def tar(files, form=tarfile.USTAR_FORMAT, end=True):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as t:
        for name, data in files:
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            t.addfile(entry, io.BytesIO(data))
    body = out.getvalue()
    last = sum(512 + (len(data) + 511) // 512 * 512 for _, data in files)
    return body[:last + 1024] if end else body[:last]


def make_tar():
    files = [("0.jpg", b"picture"), ("0.cls", b"3"), ("a/1.png", b"p" * 600), ("a/1.txt", b"name\n"), ("2.json", b'{"label": 4}'), ("2.webp", b"w")]
    put("tar", "samples", tar(files))
    put("tar", "gnu-long-name", tar([("n" * 200 + ".jpg", b"x")], tarfile.GNU_FORMAT) + bytes(2048))
    put("tar", "pax-name", tar([("\u00e9" * 90 + ".jpg", b"x")], tarfile.PAX_FORMAT) + bytes(2048))
    put("tar", "packed", gzip.compress(tar(files), mtime=0))
    put("tar", "no-end", tar(files, end=False))
    put("tar", "cut", tar(files)[:1300])
    put("tar", "empty-image", tar([("0.jpg", b""), ("0.cls", b"1")]))
    put("tar", "bad-json", tar([("0.jpg", b"x"), ("0.json", b"{")]))
    put("tar", "two-lines", tar([("0.jpg", b"x"), ("0.txt", b"a\nb")]))
    huge = bytearray(tar([("0.jpg", b"x")]))
    huge[124:136] = b"77777777777\0"
    huge[148:156] = b"        "
    huge[148:156] = b"%06o\0 " % sum(huge[:512])
    put("tar", "huge", bytes(huge))


def make_csv():
    put("csv", "plain", b"a.jpg,cat\nb.jpg,dog\n")
    put("csv", "four", b"a.jpg,cat,0,2004\nb.jpg,,1,2.5e3\r\n\nc.jpg,7,,\n")
    put("csv", "header", b"time,label,path,domain,x\n1,cat,a.jpg,photo,\n")
    put("csv", "quotes", b'"a,b.jpg","say ""hi"""\n"two\nlines.jpg", "x" \n')
    put("csv", "open-quote", b'a.jpg,cat\n"b.jpg,dog\n')
    put("csv", "inner-quote", b'a"b.jpg,cat\n')
    put("csv", "mark", b"\xef\xbb\xbfpath,label\na.jpg,1\n")
    put("csv", "fields", b"a.jpg,cat\nb.jpg\n")
    put("csv", "bytes", b"a.jpg,\xff\n")
    put("csv", "lines.jsonl", b'{"path": "a.jpg", "label": "cat", "task": 1, "time": 2.5}\n\n{"path": "b.jpg", "label": 3, "domain": "d"}')
    put("csv", "broken.jsonl", b'{"path": "a.jpg"}\n{"path"\n')
    put("csv", "types.jsonl", b'{"path": ["a"], "label": {}}\n')


def files(**parts):
    """Returns several files as one input (fuzz_files.h)."""
    return b"\n".join(b"@@ " + name.encode() + b"\n" + (data if isinstance(data, bytes) else json.dumps(data).encode()) for name, data in parts.items())


def make_labels():
    put("labels", "plain", b"a.jpg,cat\nb.jpg,dog\na.jpg,dog\n")
    put("labels", "header", b"\xef\xbb\xbfname,label\r\nx/a.jpg, cat \r\n\n")
    put("labels", "quotes", b'"a,b.jpg","say ""hi"""\nc,d.jpg,"e"\n"open\n"a"b,c\n"a",b,c\nnone\n,x\ny,\n')
    put("labels", "no-end", b"path,label\na.jpg,cat")
    put("labels", "appended", b"@@ 1\na.jpg,c\n@@ 2\nat\nb.jpg\n@@ 3\n,dog\n\n@@ 4\na.jpg,dog")
    put("labels", "mark-appended", b"@@ 1\n\xef\xbb\xbf\n@@ 2\nname,label\n\n@@ 3\na,1\n")
    put("labels", "bytes", b"a.jpg,\xff\nb\0.jpg,cat\nc.jpg,d\0g\n")


def make_clear():
    lists = {"train/a.json": {"1": {"IMG_PATH": "a/1.jpg"}, "2": {"IMG_PATH": "a/2.jpg", "x": 1}, "3": {"IMG_PATH": "a/3.jpg"}},
             "train/b.json": {"7": {"IMG_PATH": "/b/1.jpg"}}}
    meta = {"0": {"cat": "a.json"}, "1": {"cat": "a.json", "dog": "b.json"}, "10": {"dog": "a.json"}}
    names = b"cat\ndog\r\n\nbird\n"
    put("clear", "train", files(**{"train/labeled_metadata.json": meta, "train/class_names.txt": names, **lists}))
    put("clear", "both", files(**{"train/labeled_metadata.json": meta, "class_names.txt": names, **lists, "test/a.json": lists["train/b.json"],
                                  "test/labeled_metadata.json": {"2": {"bird": "a.json"}}, "test/class_names.txt": names}))
    put("clear", "unknown-class", files(**{"train/labeled_metadata.json": {"1": {"cow": "a.json"}}, "train/class_names.txt": names}))
    put("clear", "twice", files(**{"train/labeled_metadata.json": {"1": {"cat": "a.json"}, "01": {}}, "train/class_names.txt": names, **lists}))
    put("clear", "no-path", files(**{"train/labeled_metadata.json": meta, "train/class_names.txt": names, "train/a.json": {"1": {}}}))
    put("clear", "no-names", files(**{"train/labeled_metadata.json": meta, "train/class_names.txt": b"\n"}))


def make_core50():
    paths = ["s1/o1/C_01_01_000.png", "s1/o2/C_01_02_000.png", "s2/o1/C_02_01_001.png", "s3/o2/C_03_02_000.png", "s3/o1/C_03_01_000.png"]
    lup = {"nc": [[[0, 2], [1], [3, 4]], [[1], [0, 2], [4, 3]]], "ni": []}
    labels = {"nc": [[[0, 0], [1], [1, 0]], [[0], [1, 1], [1, 0]]], "ni": []}
    put("core50", "published", files(**{"paths.pkl": paths, "LUP.pkl": lup, "labels.pkl": labels}))
    put("core50", "dicts", files(**{"paths.pkl": paths, "LUP.pkl": {"nc": {"0": lup["nc"][0]}}, "labels.pkl": {"nc": {"0": labels["nc"][0]}}}))
    put("core50", "two-objects", files(**{"paths.pkl": paths, "LUP.pkl": {"nc": [[[0, 1], [2]]]}, "labels.pkl": {"nc": [[[0, 0], [0]]]}}))
    put("core50", "two-labels", files(**{"paths.pkl": paths, "LUP.pkl": {"nc": [[[0, 2], [4]]]}, "labels.pkl": {"nc": [[[0, 1], [0]]]}}))
    put("core50", "only-test", files(**{"paths.pkl": paths, "LUP.pkl": {"nc": [[[0], [1]]]}, "labels.pkl": {"nc": [[[0], [5]]]}}))
    put("core50", "beyond", files(**{"paths.pkl": paths, "LUP.pkl": {"nc": [[[0], [9]]]}, "labels.pkl": {"nc": [[[0], [0]]]}}))
    put("core50", "directories", files(**{"s1/o1/a.png": b"", "s3/o1/b.png": b"", "s1/o2/c.png": b""}))
    put("core50", "images", files(**{"core50_128x128/s1/o3/d.png": b"", "core50_128x128/s10/o3/e.png": b""}))
    put("core50", "images-and-pickles", files(**{"core50_128x128/s1/o3/d.png": b"", "paths.pkl": paths, "LUP.pkl": lup, "labels.pkl": labels}))
    put("core50", "pickle", b"@@ paths.pkl\n" + pickle.dumps(paths, 2) + b"\n@@ LUP.pkl\n" + pickle.dumps(lup, 4) + b"\n@@ labels.pkl\n" + pickle.dumps(labels, 0))


def make_stream51():
    box = [[128, 96], [100, 20, 80, 10]]
    train = [[c, 0, v, f, *box, f"images/c{c}/v{v}/{f}.jpg"] for c, v, f in ((0, 0, 0), (0, 0, 1), (0, 1, 0), (1, 0, 5), (50, 2, 0))]
    test = [[0, *box, "t/0.jpg"], [51, *box, "t/1.jpg"], [3, [10, 10], [5, 5, 5, 5], "t/2.jpg"]]
    every = [[c, 0, 0, 0, *box, f"i/{c}/0.jpg"] for c in range(51)]
    put("stream51", "both", files(**{"Stream-51_meta_train.json": train, "Stream-51_meta_test.json": test}))
    put("stream51", "named", files(**{"Stream-51_meta_train.json": every}))
    put("stream51", "only-test", files(**{"Stream-51_meta_test.json": test}))
    put("stream51", "fields", files(**{"Stream-51_meta_train.json": [[1, 2]]}))
    put("stream51", "sizes", files(**{"Stream-51_meta_train.json": [[1, 0, 0, 0, [1e9, 1], box[1], "a.jpg"]]}))
    put("stream51", "empty", files(**{"Stream-51_meta_train.json": []}))


def make_pickle():
    plain = {"nc": [[[0, 1, 300, 70000, -5], [2]], ()], "x": (1.5, None, True, False), "é": ["a", "a"], 7: {"big": 2**40}}
    for protocol in range(6):
        put("pickle", f"protocol-{protocol}", pickle.dumps(plain if protocol < 3 else {**plain, "b": b"\0\xff"}, protocol))
    put("pickle", "python-2", b"(dp0\nS'nc'\np1\n(lp2\n(lp3\nI0\naI12\naL5L\naasS'a\\'b\\\\\\x41\\n'\np4\n"
                              b"Vd\\u00e9\\U0001f600\np5\nsS\"q\"\nI01\nsF1.5\nNs.")
    put("pickle", "lup", pickle.dumps({"nc": [[[0, 1], [2, 3], [4]]], "ni": []}, 2))
    put("pickle", "paths", pickle.dumps(["s1/o1/C_01_01_000.png", "s1/o2/C_01_02_000.png"], 2))
    put("pickle", "global", b"cos\nsystem\n(S'ls'\ntR.")
    put("pickle", "stack-global", b"\x80\x04\x8c\x02os\x8c\x06system\x93.")
    own = []
    own.append(own)
    put("pickle", "holds-itself", pickle.dumps(own, 2))
    put("pickle", "deep", b"]" * 100 + b"a" * 99 + b".")
    put("pickle", "marks", b"(" * 100)
    put("pickle", "long-memo", b"Nr\xff\xff\xff\xff.")
    put("pickle", "long-text", b"\x8e" + b"\xff" * 8 + b".")
    put("pickle", "big-numbers", b"]\x8a\x08" + b"\xff" * 7 + b"\x7fa\x8a\x09" + b"\0" * 8 + b"\x01a.")
    put("pickle", "dup-pop", b"](K\x012e(01K\x070.")
    put("pickle", "bytearray", pickle.dumps([bytearray(b"abc")], 5))


def make_yaml():
    put("yaml", "plain", b"# a run\ndata: synthetic:60\ntasks: 2\nbatch: 5\nsigma: 0.4\nattune-residual: yes\npreset: paper\n")
    put("yaml", "lists", b"tasks: [3, 2, 2]\ndata: 'folder:a b'\nprompt_layers: [0-4]\n")
    put("yaml", "flow", b'{batch: 10, "seed": "7", weighted: true, queue-policy: block}')
    put("yaml", "blocks", b"data: |\n  synthetic:60\ntest: >-\n  folder:\n  x\ntasks:\n- 1\n- 2\n")
    put("yaml", "aliases", b"batch: &b 10\nreplay: *b\ntasks: &t [1, 1]\n")
    put("yaml", "alias-of-nothing", b"batch: *b\n")
    put("yaml", "holds-itself", b"&a tasks: &b [*b]\n")
    put("yaml", "laughs", b"a: &a [x, x]\nb: &b [*a, *a]\nc: &c [*b, *b]\ntasks: [*c, *c]\n")
    put("yaml", "deep", b"[" * 300)
    put("yaml", "nested", b"run:\n  batch: 5\n")
    put("yaml", "unknown", b"batch: 5\nbacth: 6\n")
    put("yaml", "range", b"eval-limit: -1\n")
    put("yaml", "twice", b"batch: 5\nbatch: 6\n")
    put("yaml", "two-documents", b"batch: 5\n---\nbatch: 6\n")
    put("yaml", "no-key", b"? [1, 2]\n: 3\n? {a: b}\n")
    put("yaml", "scalar", b"batch")
    put("yaml", "tags", b"%YAML 1.1\n%TAG !e! tag:e,2000:\n--- !e!x\nbatch: !!int '5'\nseed: !!binary AA==\n")
    put("yaml", "zero-bytes", b'"bat\\0ch": 5\ntasks: ["1\\0", 2]\ndata: "a\\0b"\n')
    put("yaml", "escapes", b'data: "\\e[31m"\n"\\e[2J": 1\n')
    put("yaml", "utf-16", "batch: 5\n".encode("utf-16"))
    put("yaml", "not-utf-8", b"data: \xff\xfe\x00\n")
    put("yaml", "empty", b"")
    put("yaml", "open-list", b"data: synthetic:60\nbatch: [\nsigma: 0.5\n")
    put("yaml", "tab", b"batch:\t5\n\tseed: 1\n")
    put("yaml", "files", b"set: batch=3\nconfig: other.yaml\n")


def archive(members, how=zipfile.ZIP_STORED):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", how) as z:
        for name, data in members.items():
            z.writestr(zipfile.ZipInfo(name), data, how)
    return out.getvalue()


def torch_text(s):
    return b"X" + struct.pack("<I", len(s)) + s


def torch_tensor(shape, stride, elements, key=b"0", kind=b"FloatStorage", offset=0):
    """Returns the output of torch.save for one tensor, without torch."""
    def tuple_of(numbers):
        return b"(" + b"".join(b"K" + bytes([n]) for n in numbers) + b"t"
    return (b"ctorch._utils\n_rebuild_tensor_v2\n((" + torch_text(b"storage") + b"ctorch\n" + kind + b"\n" + torch_text(key) + torch_text(b"cpu") +
            b"K" + bytes([elements]) + b"tQK" + bytes([offset]) + tuple_of(shape) + tuple_of(stride) + b"\x89ccollections\nOrderedDict\n)RtR")


def torch_dict(**values):
    return b"ccollections\nOrderedDict\n)R(" + b"".join(torch_text(k.encode()) + v for k, v in values.items()) + b"u"


def make_pth():
    one = torch_tensor([2, 3], [3, 1], 24)
    views = torch_dict(a=one, t=torch_tensor([3, 2], [1, 3], 24), s=torch_tensor([], [], 24, offset=5), h=torch_tensor([4], [1], 8, b"1", b"HalfStorage"),
                       p=b"ctorch._utils\n_rebuild_parameter\n(" + one + b"\x88ccollections\nOrderedDict\n)RtR")
    programs = {
        "dict": b"\x80\x02" + views + b".",
        "nested": b"\x80\x02}(" + torch_text(b"model") + torch_dict(a=one) + torch_text(b"epoch") + b"K\x07" + torch_text(b"args") +
                  b"cargparse\nNamespace\n)\x81}" + torch_text(b"lr") + b"G?\xb9\x99\x99\x99\x99\x99\x9asbu.",
        "module": b"\x80\x02c__torch__.m\nNet\n)\x81}(" + torch_text(b"w") + one + torch_text(b"training") + b"\x89ub.",
        "system": b"\x80\x02cos\nsystem\n" + torch_text(b"ls") + b"\x85R.",
        "itself": b"\x80\x02}q\x00" + torch_text(b"a") + b"h\x00s.",
        "state-twice": b"\x80\x02cargparse\nNamespace\n)\x81}b}b.",
        "beyond": b"\x80\x02" + torch_dict(a=torch_tensor([5, 5], [5, 1], 24)) + b".",
        "tensor": b"\x80\x02" + one + b".",
    }
    for name, program in programs.items():
        put("pth", name + ".pkl", program)  # the target wraps it
    put("pth", "zip", archive({"archive/data.pkl": programs["dict"], "archive/data/0": bytes(96), "archive/data/1": bytes(16), "archive/version": b"3\n"}))
    old = b"\x80\x02\x8a\nl\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.\x80\x02}."
    put("pth", "before-1.6", old + programs["dict"] + b"\x80\x02](" + torch_text(b"0") + torch_text(b"1") + b"e." + struct.pack("<q", 24) + bytes(96) +
        struct.pack("<q", 8) + bytes(16))


def make_npz():
    def array(descr, shape, data):
        return npy(f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}", data)
    members = {"a.npy": array("<f4", "(2, 3)", bytes(24)), "layer/b.npy": array("<i8", "()", bytes(8))}
    put("npz", "stored", archive(members))
    put("npz", "deflated", archive(members, zipfile.ZIP_DEFLATED))
    put("npz", "empty", archive({}))
    put("npz", "object", archive({"a.npy": array("|O", "(1,)", b"x")}))
    put("npz", "climbs", archive({"../a.npy": members["a.npy"]}))
    put("npz", "crc", archive(members).replace(bytes(24), bytes(23) + b"\1"))
    put("npz", "two-arrays", members["a.npy"] * 2)  # the target wraps the halves


def make_matrix():
    for name, text in {
        "commas": b"1,2,3\n4,5,6\n",
        "labels": b"label\n0\n3\n16777216\n",
        "blanks": b"  1 \t2 3 \r\n\n4 5 6",
        "semicolons": b"1; 2;3 \r\n4;\t5 ;6\r\n",
        "two-separators": b"1,5;2\n",
        "empty-cell": b"1,0,\n,2,7\n",
        "empty-line-of-cells": b",,\n1,2,3\n",
        "byte-order-mark": b"\xef\xbb\xbf1,2\n3,4\n",
        "only-byte-order-mark": b"\xef\xbb\xbf",
        "half-heading": b"x,1\n2,3\n",
        "quoted": b'"a, b";"c ""d"""\n"1.5";" 2 "\n',
        "quote-left-open": b'1,"2\n3,4\n',
        "quote-at-the-end": b'1,"',
        "quoted-blanks": b'"1" "2"\n3 "4"5\n',
        "spaces": b"1\v\n2\f3\n",  # strtof skips both, and the end of a line
        "not-finite": b"nan,inf\n-inf,1e999\n1e-999,-0\n",
        "hexadecimal": b"0x1p3,1e+2,.5,+7.\n",
        "heading": b"a,b\n1,2\n",
        "only-heading": b"a,b\n",
        "two-headings": b"a\nb\n1\n",
        "ragged": b"1,2\n3\n",
        "word": b"1,2\n3,f\x1b\xffur\n",
        "glued": b"1,2x\n",
        "zero-byte": b"1,2\n\0\n",
        "fraction": b"0\n1.5\n",
        "separators": b",;,;\n",
        "empty": b"",
    }.items():
        put("matrix", name, text)


for name in sys.argv[1:] or [name[5:] for name in list(globals()) if name.startswith("make_")]:
    globals()["make_" + name]()
