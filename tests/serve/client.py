"""What the tests of the service share: a server that ends with its test, and requests. Standard library only."""

import ctypes
import http.client
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import threading
import urllib.parse
import zlib
from pathlib import Path

EDGE = 24  # pixels of a side of an image
LIMIT = 240  # seconds that a test may take


def die_with_parent():
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)


class Server:
    """A running `streamfp serve` with a small backbone."""

    def __init__(self, streamfp, mkfile, directory, *options, env=None):
        self.dir = Path(directory)
        self.vit = self.dir / "tiny.safetensors"
        if not self.vit.exists():
            subprocess.run([mkfile, "vit", self.vit, "1", "0"], check=True)
        self.env = {**os.environ, "STREAMFP_REGISTRY": str(self.dir / "runs.db"), **(env or {})}
        models = [] if "--model" in options else ["--out", self.dir / "model"]
        listen = [] if "--socket" in options or "--listen" in options else ["--listen", "127.0.0.1:0"]
        self.command = [streamfp, "serve", "--backbone", self.vit, "--img-size", "32", "--threads", "1", "--batch", "4", "--max-wait", "0.1",
                        *models, *listen, *options]
        self.process = None
        self.address = None

    def start(self):
        self.log = open(self.dir / "log", "ab")
        self.process = subprocess.Popen([str(c) for c in self.command], stdout=subprocess.PIPE, stderr=self.log, env=self.env,
                                        preexec_fn=die_with_parent, cwd=self.dir)
        line = self.process.stdout.readline().decode()
        if not line.startswith("listening on "):
            raise RuntimeError("the server did not start: " + (self.dir / "log").read_text()[-2000:])
        self.address = urllib.parse.urlsplit(line.split()[-1])
        if not self.is_ready():
            raise RuntimeError("the server said its address before it was ready")
        return self

    def is_ready(self):
        try:
            return self.get("/readyz")[0] == 200
        except (OSError, http.client.HTTPException):
            return False

    def wait_until(self, condition, seconds=60):
        import time
        end = time.monotonic() + seconds
        while not condition():
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError("waited in vain; log: " + (self.dir / "log").read_text()[-2000:])
            time.sleep(0.02)

    def kill(self):
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def stop(self):
        self.process.terminate()
        status = self.process.wait(timeout=60)
        self.process.stdout.close()
        return status

    def connect(self, timeout=60):
        return http.client.HTTPConnection(self.address.hostname, self.address.port, timeout=timeout)

    def request(self, method, path, body=None, headers=None, connection=None):
        """(status, body: JSON if it is, headers)"""
        c = connection or self.connect()
        if isinstance(body, dict):
            body = json.dumps(body)
        c.request(method, path, body=body, headers=headers or {})
        r = c.getresponse()
        data = r.read()
        if not connection:
            c.close()
        if (r.getheader("Content-Type") or "").startswith("application/json") and data:
            data = json.loads(data)
        return r.status, data, r.headers

    def get(self, path, **kw):
        return self.request("GET", path, **kw)

    def post(self, path, body=None, **kw):
        return self.request("POST", path, body, **kw)


def begin(name):
    """(streamfp, mkfile, directory) of a test, which ends after LIMIT seconds."""
    streamfp, mkfile = (os.path.realpath(a) for a in sys.argv[1:3])
    directory = tempfile.mkdtemp()

    def expire():
        print(f"{name}: not finished after {LIMIT} s", file=sys.stderr, flush=True)
        os.kill(os.getpid(), signal.SIGKILL)  # and its servers with it

    timer = threading.Timer(float(os.environ.get("SFP_LIMIT", LIMIT)), expire)
    timer.daemon = True
    timer.start()
    import atexit
    atexit.register(shutil.rmtree, directory, True)
    return streamfp, mkfile, directory


def images(count, first=1000):
    """Different small PNG images: noise around a colour."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    out = []
    for i in range(first, first + count):
        noise = random.Random(i)
        base = [noise.randrange(200) for _ in range(3)]
        rows = b"".join(b"\0" + bytes(base[k % 3] + noise.randrange(56) for k in range(3 * EDGE)) for _ in range(EDGE))
        out.append(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", EDGE, EDGE, 8, 2, 0, 0, 0)) +
                   chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))
    return out
