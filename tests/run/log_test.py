"""What the tests of message logs share: processes, images, digests, a temporary directory."""
import ctypes
import gzip
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import time
import zlib

streamfp, mkfile = (os.path.realpath(p) for p in sys.argv[1:3])
long = os.environ.get("SFP_LONG") == "1"
work = tempfile.mkdtemp()
os.environ["STREAMFP_REGISTRY"] = work + "/runs.db"
os.environ["NO_COLOR"] = "1"
address = work + "/redis.sock"
children = []
MASK = (1 << 64) - 1


def end_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def start(*command, **options):
    p = subprocess.Popen([str(c) for c in command], preexec_fn=end_with_parent, **options)
    children.append(p)
    return p


def stop(p, signal_number=signal.SIGTERM):
    """Ends a process and returns its exit status."""
    p.send_signal(signal_number)
    return p.wait(timeout=60)


def wait(what, done, seconds=60):
    until = time.monotonic() + seconds
    while not done():
        if time.monotonic() > until:
            raise AssertionError("no " + what + " within %g s" % seconds)
        time.sleep(0.02)


class Redis:
    """A server, and a client of it that speaks its protocol."""

    def __init__(self, port=0):
        self.port, self.process, self.socket = port, None, None
        self.start()

    def start(self):
        self.process = start("redis-server", "--bind", "127.0.0.1", "--port", self.port, "--unixsocket", address, "--dir", work, "--save", "", "--appendonly",
                             "yes", "--appendfsync", "always", stdout=subprocess.DEVNULL)

        def answers():
            try:
                self.socket = socket.socket(socket.AF_UNIX)
                self.socket.connect(address)
                self.file = self.socket.makefile("rb")
                return self("PING") == b"PONG"
            except (OSError, RuntimeError):
                return False

        wait("answer of redis-server", answers)

    def kill(self):
        self.process.kill()
        self.process.wait()

    def send(self, *words):
        words = [w if isinstance(w, bytes) else str(w).encode() for w in words]
        self.socket.sendall(b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(w), w) for w in words))

    def read(self):
        line = self.file.readline()
        if not line:
            raise OSError("the server has closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if int(rest) < 0 else self.file.read(int(rest) + 2)[:-2]
        if kind == b"*":
            return None if int(rest) < 0 else [self.read() for _ in range(int(rest))]
        return rest

    def __call__(self, *words):
        self.send(*words)
        return self.read()


class Cluster:
    """The cluster of librdkafka (tests/tools/kafka_mock.c)."""

    def __init__(self, program):
        self.process = start(program, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self.process.stdout.readline().strip()

    def is_ok(self, *words):
        self.process.stdin.write(" ".join(str(w) for w in words) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip() == "ok"

    def __call__(self, *words):
        assert self.is_ok(*words), words


def digest(label, data):
    """sfp__hash of both (base/rng.h)."""
    h = 14695981039346656037
    for part in (label, data):
        h ^= len(part)
        whole = len(part) // 8 * 8
        for i in range(0, whole, 8):
            h = ((h ^ int.from_bytes(part[i:i + 8], "little")) * 1099511628211) & MASK
            h ^= h >> 32
        for byte in part[whole:]:
            h = ((h ^ byte) * 1099511628211) & MASK
    return h


def make_images(count):
    images = []
    for i in range(count):
        label = ("cat", "dog", "emu")[i % 3]
        path = "images/%s/%d.png" % (label, i)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        subprocess.run([mkfile, "image", path, str(20 + i % 7 + 9 * (i % 3)), "18", str(i)], check=True)
        with open(path, "rb") as f:
            images.append((label.encode(), f.read(), path))
    return images


def answers(state, directory):
    r = subprocess.run([streamfp, "predict", "--backbone", "tiny.safetensors", "--state", state, directory, "--topk", "1", "--json"],
                       capture_output=True, text=True, check=True)
    return re.findall(r'"name":"[a-z]*","probability":0\.[0-9]{5}', r.stdout.replace(" ", ""))


def write_png(path, pixels):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    rows = b"".join(b"\0" + pixels[i:i + 28] for i in range(0, 784, 28))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 28, 28, 8, 0, 0, 0, 0)) +
                     chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def copy_fashion(directory, count):
    """Writes train/ and test/ of Fashion-MNIST as PNG files to fashion/."""
    for part, name, most in (("train", "train", count), ("test", "t10k", 400)):
        def read(kind, head):
            path = next(pathlib.Path(directory).glob("%s-%s*" % (name, kind)))
            with (gzip.open if path.suffix == ".gz" else open)(path, "rb") as f:
                return f.read()[head:]

        pixels, labels = read("images", 16), read("labels", 8)
        for i in range(most):
            write_png(pathlib.Path(work, "fashion", part, "c%d" % labels[i], "%05d.png" % i), pixels[784 * i:784 * i + 784])


def command(verb, *words):
    r = subprocess.run([streamfp, verb, *map(str, words), "--json"], capture_output=True, text=True)
    assert r.returncode == 0, r.stderr
    return json.loads(r.stdout)


def read_sums(state):
    """The sums of a state, with the samples that wait to be added to them."""
    command("merge", state, "--sums-only", "-o", "sums.safetensors")
    with open("sums.safetensors", "rb") as f:
        (size,) = struct.unpack("<Q", f.read(8))
        header, data = json.loads(f.read(size)), f.read()
    def values(key, kind):
        begin, end = header["head.ridge." + key]["data_offsets"]
        return struct.unpack("<%d%s" % ((end - begin) // 8, kind), data[begin:end])

    names = json.loads(header["__metadata__"]["class_names"])
    labels = values("labels", "q")  # of the rows
    found = {"products": values("products", "d")}
    for key in ("mass", "sums"):
        flat = values(key, "d")
        row = len(flat) // len(labels)
        found[key] = [v for _, c in sorted((names[label], c) for c, label in enumerate(labels)) for v in flat[row * c:row * c + row]]
    return found


def compare_sums(x, y):
    """The largest difference, relative to the largest value."""
    x, y = read_sums(x), read_sums(y)
    return max(max(abs(a - b) for a, b in zip(x[k], y[k])) / max(map(abs, x[k])) for k in x)


def predict(state, backbone_words, directory):
    found = command("predict", *backbone_words, "--state", state, directory, "--topk", "1")["pictures"]
    return {a["file"]: (a["top"][0]["name"], a["top"][0]["probability"]) for a in found}


def execute(test):
    """Calls a test in the directory; shows the logs of its workers if it fails. Ends all processes."""
    os.chdir(work)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        for file, seed in (("tiny.safetensors", 1), ("other.safetensors", 2)):
            subprocess.run([mkfile, "vit", file, str(seed), "0"], check=True)
        test()
    except BaseException:
        for name in sorted(os.listdir(work)):
            if name.endswith(".log"):
                with open(name, errors="replace") as f:
                    sys.stderr.write("---- %s\n%s" % (name, "".join(f.readlines()[-15:])))
        raise
    finally:
        for child in children:
            if child.poll() is None:
                child.kill()
                child.wait()
        shutil.rmtree(work)
