"""What the tests of message logs share: processes, images, digests, a temporary directory."""
import ctypes
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

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

    def __init__(self):
        self.process, self.socket = None, None
        self.start()

    def start(self):
        self.process = start("redis-server", "--port", "0", "--unixsocket", address, "--dir", work, "--save", "", "--appendonly",
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
