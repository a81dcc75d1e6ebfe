#!/usr/bin/env python3
"""Many idle connections: the service closes those that have been idle longest, goes on answering, and has no more descriptors than allowed.

    tests/serve/connections.py STREAMFP MKFILE

600 connections for a limit of 64; with SFP_LONG=1, 10,000 for the default limit of 512.
"""

import errno
import os
import resource
import select
import socket
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Server, begin, images

streamfp, mkfile, directory = begin("serve/connections")
count, limit = (10000, 512) if os.environ.get("SFP_LONG") else (600, 64)
most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
if most < count + 100:
    print(f"serve/connections: skipped: at most {most} descriptors")
    sys.exit(77)
server = Server(streamfp, mkfile, directory, "--max-connections", str(limit)).start()
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
picture = images(1)[0]
pid, idle, times, descriptors = server.process.pid, [], [], 0


def memory():
    return int(next(x for x in Path(f"/proc/{pid}/status").read_text().splitlines() if x.startswith("VmRSS")).split()[1])


def ask():
    """A new client is answered."""
    global descriptors
    start = time.monotonic()
    status = server.post("/v1/predict", picture)[0]
    times.append(time.monotonic() - start)
    descriptors = max(descriptors, len(os.listdir(f"/proc/{pid}/fd")))
    if status != 200:
        sys.exit(f"serve/connections: {status} among {len(idle)} connections")


ask()
before, few, began = memory(), descriptors, time.monotonic()
for i in range(count):
    c = socket.socket()
    c.setblocking(False)
    if c.connect_ex((server.address.hostname, server.address.port)) not in (0, errno.EINPROGRESS):
        sys.exit(f"serve/connections: connection {i} was not made")
    idle.append(c)
    if i % (count // 20) == count // 20 - 1:
        ask()
closed = set()
poll = select.poll()
for c in idle:
    poll.register(c, select.POLLIN)
while len(closed) < count - limit:  # a reset or an end: nothing was sent
    if server.process.poll() is not None:
        sys.exit("serve/connections: the service has ended")
    for fd, _ in poll.poll(500):
        poll.unregister(fd)
        closed.add(fd)
    ask()
after = memory()
for c in idle:
    c.close()
ask()
if server.stop() != 0 or descriptors - few > limit + 8:
    sys.exit(f"serve/connections: {descriptors} descriptors: " + (Path(directory) / "log").read_text()[-3000:])
times.sort()
print(f"serve/connections: {len(closed)} of {count} idle connections closed in {time.monotonic() - began:.1f} s; {len(times)} requests "
      f"between, median {times[len(times) // 2]:.3f} s, slowest {times[-1]:.3f} s; {few} to {descriptors} descriptors, {before} to {after} kB")
