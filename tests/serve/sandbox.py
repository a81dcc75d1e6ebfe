#!/usr/bin/env python3
"""The service with decoders in other processes: the same answers as without them, also while they are killed, and a bomb is refused.

    tests/serve/sandbox.py STREAMFP MKFILE
"""

import base64
import os
import signal
import struct
import sys
import threading
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Server, begin, images

streamfp, mkfile, directory = begin("serve/sandbox")
pictures = images(24)
libraries = Path(directory, "lib")
libraries.mkdir()


def expect(what, got, expected):
    if got != expected:
        sys.exit(f"serve/sandbox: {what}: got {got!r}, expected {expected!r}")


def decoders(server):
    """The processes that the server has started."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            name, rest = stat.read_text().rsplit(")", 1)
        except OSError:
            continue  # it has ended
        if int(rest.split()[1]) == server.process.pid and rest.split()[0] != "Z":
            found.append(int(name.split()[0]))
    return found


def learn(server):
    for i, p in enumerate(pictures[:8]):
        expect("a sample", server.post(f"/v1/samples?label={'cup' if i % 2 else 'mug'}", p)[0], 201)
    server.wait_until(lambda: server.get("/v1/status")[1]["samples"]["learned"] == 8)


def predict(server):
    return [server.post("/v1/predict", p)[:2] for p in pictures]


def run(name, *options):
    (Path(directory) / name).mkdir()
    return Server(streamfp, mkfile, Path(directory) / name, "--batch", "8", "--max-wait", "60", *options,
                  env={"LD_LIBRARY_PATH": str(libraries)}).start()


plain = run("plain", "--sandbox", "off")
learn(plain)
expected = predict(plain)
expect("a service without decoders has none", decoders(plain), [])
expect("its end", plain.stop(), 0)

server = run("apart")
expect("one decoder is started at once", len(decoders(server)), 1)
learn(server)
expect("answers", predict(server), expected)

# the decoders are killed while four clients ask; a client that is done is the end of it
answers, killed = [None] * 4, set()


def ask(i):
    answers[i] = predict(server)


clients = [threading.Thread(target=ask, args=(i,)) for i in range(4)]
for c in clients:
    c.start()
while len(killed) < 3 or any(c.is_alive() for c in clients):
    left = [p for p in decoders(server) if p not in killed]
    if left and len(killed) < 12:
        os.kill(left[0], signal.SIGKILL)
        killed.add(left[0])
    if not left:
        server.post("/v1/predict", pictures[0])
for c in clients:
    c.join()
wrong = [got for a in answers for got, want in zip(a, expected) if got != want]
if any(got[0] not in (422, 503) for got in wrong) or 2 * len(wrong) > len(killed):  # two decoders must end at one image
    sys.exit(f"serve/sandbox: answers while decoders are killed: {wrong}")
expect("answers after that", predict(server), expected)


def chunk(kind, data):
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def peak(server):
    return int(next(line for line in Path(f"/proc/{server.process.pid}/status").read_text().splitlines() if line.startswith("VmHWM:")).split()[1])


# files of 80 kB with 20 megapixels in one column, which is below the limit and is answered, and with more than the limit
before = peak(server)
packer = zlib.compressobj(9)
rows = b"".join(packer.compress(bytes(1 << 20)) for _ in range(77)) + packer.flush()
for width, height, status in (1, 20_000_000, 200), (1, 60_000_000, 422), (50_000, 50_000, 422):
    bomb = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    expect(f"an image of {width} x {height}", server.post("/v1/predict", bomb)[0], status)
if peak(server) - before > 400_000:
    sys.exit(f"serve/sandbox: bombs took {peak(server) - before} kB of the service")
expect("answers after bombs", predict(server), expected)

# no decoder can be started: its loader finds a broken library
broken = libraries / "libmicrohttpd.so.12"
broken.write_text("not a library")
for p in decoders(server):
    os.kill(p, signal.SIGKILL)
infer = {"inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(pictures[0]).decode()]}]}
for path, body in ("/v1/predict", pictures[0]), ("/v1/samples?label=cup", pictures[0]), ("/v2/models/model/infer", infer):
    expect(f"{path} without decoders", server.post(path, body)[0], 503)
broken.unlink()
expect("answers after that", predict(server), expected)
left = decoders(server)
expect("its end", server.stop(), 0)
expect("the decoders ended, too", [p for p in left if Path(f"/proc/{p}").exists()], [])
print(f"serve/sandbox: {len(killed)} decoders were killed")
