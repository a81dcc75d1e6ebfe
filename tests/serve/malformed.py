#!/usr/bin/env python3
"""Malformed requests: HTTP, multipart, JSON, base64 and images that are mutated at random. The service refuses or answers each, and lives.

    tests/serve/malformed.py STREAMFP MKFILE

300 requests; with SFP_LONG=1, five minutes of them. They go to all routes of the service.
"""

import base64
import json
import os
import random
import socket
import struct
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import client
from client import Server, begin, images

long = bool(os.environ.get("SFP_LONG"))
client.LIMIT = 600 if long else 240
streamfp, mkfile, directory = begin("serve/malformed")
server = Server(streamfp, mkfile, directory, "--max-body", "200000").start()
picture = images(1)[0]
choose = random.Random(int(os.environ.get("SFP_SEED", "1")))

multipart = b'--b\r\nContent-Disposition: form-data; name="a"; filename="a.png"\r\n\r\n' + picture + b'\r\n--b\r\n\r\n' + picture + b"\r\n--b--\r\n"
infer = json.dumps({"id": "1", "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(picture).decode()]}]}).encode()
head = json.dumps({"inputs": [{"datatype": "BYTES", "parameters": {"binary_data_size": len(picture) + 4}}]}).encode()
requests = [
    (b"GET /v1/status HTTP/1.1\r\n", b""),
    (b"GET /v1/samples?limit=5&after=1&label=a%20b&standing=waiting HTTP/1.1\r\n", b""),
    (b"GET /v1/samples/0/image?size=20 HTTP/1.1\r\n", b""),
    (b"GET /openapi.json HTTP/1.1\r\n", b""),
    (b"POST /v1/predict?box=0,0,1,1&top=2 HTTP/1.1\r\n", picture),
    (b"POST /v1/predict HTTP/1.1\r\nContent-Type: multipart/form-data; boundary=b\r\n", multipart),
    (b"POST /v1/samples?label=cup&name=x HTTP/1.1\r\nIdempotency-Key: k\r\n", picture),
    (b"PUT /v1/samples/0/label HTTP/1.1\r\n", b'{"label":"cup"}'),
    (b"POST /v1/classes HTTP/1.1\r\n", b'{"name":"c\\u0041"}'),
    (b"PATCH /v1/classes/cup HTTP/1.1\r\n", b'{"rename":"bowl"}'),
    (b"POST /v2/models/model/infer HTTP/1.1\r\n", infer),
    (b"POST /v2/models/model/infer HTTP/1.1\r\nInference-Header-Content-Length: %d\r\n" % len(head), head + struct.pack("<I", len(picture)) + picture),
    (b"DELETE /v1/samples/3?again=1 HTTP/1.1\r\n", b""),
    (b"DELETE /v1/classes/cup HTTP/1.1\r\n", b""),
]
requests += [(b"GET %s HTTP/1.1\r\n" % path, b"") for path in (
    b"/v1/queue?limit=5", b"/v1/suspects?label=cup&answer=bowl", b"/v1/classes", b"/v1/samples/2", b"/v1/events", b"/v1/state", b"/v1/report",
    b"/v1/models", b"/v1/models/model/status", b"/metrics", b"/healthz", b"/readyz", b"/", b"/v2", b"/v2/health/live", b"/v2/health/ready",
    b"/v2/models/model", b"/v2/models/model/versions/1/ready")]
requests += [(b"POST /v1/%s HTTP/1.1\r\n" % path, b"") for path in (b"pause", b"resume", b"checkpoint")]


def mutate(data):
    data = bytearray(data)
    for _ in range(choose.randrange(4)):
        at = choose.randrange(len(data) + 1)
        what = choose.randrange(5)
        if what == 0 and data:
            data[at % len(data)] = choose.randrange(256)
        elif what == 1:
            data[at:at] = choose.choice([b"\0", b"%00", b"%", b"\r\n", b'"', b"--b", b"9" * 30, b"\xff\xfe", b"{" * 200, b"-1", b"../"])
        elif what == 2:
            del data[at:at + choose.randrange(1, 40)]
        elif what == 3:
            data[at:at] = data[at:at + choose.randrange(1, 200)]
        else:
            del data[at:]
    return bytes(data)


def send(data, half):
    with socket.create_connection((server.address.hostname, server.address.port), timeout=60) as c:
        try:
            c.sendall(data)
            if half:
                return
            c.settimeout(0.5)  # a body that does not arrive is waited for
            while c.recv(65536):
                pass
        except OSError:
            pass  # it was closed


end, count, seen = time.monotonic() + 300, 0, set()
while count < 300 or (long and time.monotonic() < end):
    line, body = choose.choice(requests)
    seen.add(line)
    line, body = (mutate(line), body) if choose.random() < 0.4 else (line, mutate(body))
    length = len(body) if choose.random() < 0.9 else choose.choice([0, -1, 10 ** 25, len(body) + 5, 199999])
    extra = b"Connection: close\r\n"
    if choose.random() < 0.1:
        extra = b"Transfer-Encoding: chunked\r\n"
        body = b"%x\r\n" % len(body) + body + choose.choice([b"\r\n0\r\n\r\n", b"", b"\r\nzz\r\n"])
    message = line + b"Host: 127.0.0.1\r\nContent-Length: %d\r\n" % length + extra + b"\r\n" + body
    send(message if choose.random() < 0.8 else mutate(message), choose.random() < 0.1)
    count += 1
    if count % 50 == 0 and server.get("/v1/status")[0] != 200:
        sys.exit(f"serve/malformed: no status after {count} requests")
if server.stop() != 0 or len(seen) < len(requests):
    sys.exit("serve/malformed: the service did not end well: " + (Path(directory) / "log").read_text()[-3000:])
print(f"serve/malformed: {count} requests")
