#!/usr/bin/env python3
"""Full load for a long time: clients send, predict, correct and forget samples as fast as the service takes them, and a page is open. At most
2,000 samples are known at any time. Memory and descriptors do not grow.

    tests/serve/soak.py STREAMFP MKFILE

Only with SFP_SOAK=SECONDS, such as 3600. It prints a line per minute: seconds, MB of the service and of its decoders, descriptors, samples
learned and requests so far. After the first sixth, memory may grow by 1 %.
"""

import collections
import http.client
import os
import random
import struct
import sys
import threading
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import client
from client import Server, begin, images

seconds = float(os.environ.get("SFP_SOAK", "0"))
if seconds == 0:
    print("serve/soak: skipped: SFP_SOAK is not set")
    sys.exit(77)
client.LIMIT = 2 * seconds + 300
streamfp, mkfile, directory = begin("serve/soak")
server = Server(streamfp, mkfile, directory, "--keep-images", "20000000")
for option, value in (("--backbone", "builtin"), ("--img-size", "0"), ("--batch", "20")):
    server.command[server.command.index(option) + 1] = value
server.start()
CLIENTS, FORGETTING, KNOWN, CLASSES = 8, 24, 2000, ["cup", "bowl", "plate", "fork", "knife"]
pictures = images(400)
end = time.monotonic() + seconds
counts, faults = [0] * (CLIENTS + FORGETTING), []
known = collections.deque()  # ids, oldest first


def vary(picture, number):
    """The same pixels in other bytes: a comment before the last chunk."""
    text = b"tEXta\0" + str(number).encode()
    return picture[:-12] + struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text)) + picture[-12:]


def ask(number, connection, method, path, body=None):
    counts[number] += 1
    status, data, _ = server.request(method, path, body, connection=connection)
    if status >= 400 and status not in (404, 410, 503):  # those follow from what other clients do
        faults.append((method, path, status, data))
    return status, data


def work(number):
    choose, c, made = random.Random(number), server.connect(), 0
    while time.monotonic() < end and not faults:
        what, k, now = choose.random(), choose.randrange(len(pictures)), list(known)[-20:]
        if what < 0.5 and len(known) < KNOWN:
            made += 1
            label = f"?label={CLASSES[k % 5]}" if what < 0.45 else ""
            status, data = ask(number, c, "POST", "/v1/samples" + label, vary(pictures[k], made * CLIENTS + number))
            if status == 201:
                known.append(data["id"])
        elif what < 0.8:
            ask(number, c, "POST", "/v1/predict", pictures[k])
        elif what < 0.9 and now:
            ask(number, c, "PUT", f"/v1/samples/{choose.choice(now)}/label", {"label": CLASSES[k % 5]})
        else:
            ask(number, c, "GET", choose.choice(("/v1/status", "/metrics", "/v1/samples?limit=20", "/")))


def forget(number):
    c = server.connect(timeout=None)
    while time.monotonic() < end and not faults:
        if len(known) < 0.9 * KNOWN:
            time.sleep(0.1)
        else:
            ask(number, c, "DELETE", f"/v1/samples/{known.popleft()}?again=1")


def guard(function, *arguments):
    try:
        function(*arguments)
    except Exception as e:
        faults.append((function.__name__, repr(e)))


def watch_page():
    """What an open page asks for."""
    c = server.connect()
    while time.monotonic() < end and not faults:
        for path in ("/v1/queue", "/v1/classes", "/v1/suspects"):
            server.request("GET", path, connection=c)
        time.sleep(5)


def listen():
    c = server.connect(timeout=None)
    c.request("GET", "/v1/events")
    r = c.getresponse()
    while r.readline():
        pass


def megabytes(pid):
    return int(next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")).split()[1]) / 1024


jobs = [(work, i) for i in range(CLIENTS)] + [(forget, CLIENTS + i) for i in range(FORGETTING)] + [(watch_page,), (listen,)]
threads = [threading.Thread(target=guard, args=job, daemon=True) for job in jobs]
for t in threads:
    t.start()
pid, begun, rows = server.process.pid, time.monotonic(), []
while time.monotonic() < end and not faults:
    time.sleep(min(60, max(0.1, seconds / 60)))
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split() + [
        x for t in os.listdir(f"/proc/{pid}/task") for x in Path(f"/proc/{pid}/task/{t}/children").read_text().split() if t != str(pid)]
    learned = server.get("/v1/status")[1]["version"]
    row = (time.monotonic() - begun, megabytes(pid), sum(megabytes(x) for x in children), len(os.listdir(f"/proc/{pid}/fd")), learned, sum(counts))
    rows.append(row)
    print("%5.0f s %7.1f MB %6.1f MB %4d descriptors %7d batches %8d requests" % row, flush=True)
for t in threads[:-1]:
    t.join()
if faults:
    sys.exit(f"serve/soak: {faults[:3]}: " + (Path(directory) / "log").read_text()[-3000:])
if server.stop() != 0:
    sys.exit("serve/soak: the service did not end well: " + (Path(directory) / "log").read_text()[-3000:])
first = rows[len(rows) // 6]
growth = max(r[1] for r in rows) / first[1] - 1
print(f"serve/soak: memory {100 * growth:+.2f} % after {first[0]:.0f} s, descriptors {first[3]} to {rows[-1][3]}")
if seconds >= 600 and (growth > 0.01 or rows[-1][3] > first[3] + 4):
    sys.exit("serve/soak: it grows")
