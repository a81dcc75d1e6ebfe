#!/usr/bin/env python3
"""Everything at once: threads send, repeat, label, forget, rename, ask for judgements, predict and read the state, for a few seconds. No answer
is an error of the service, and it ends well; build with the preset tsan to see races.

    tests/serve/together.py STREAMFP MKFILE
"""

import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Server, begin, images

streamfp, mkfile, directory = begin("serve/together")
server = Server(streamfp, mkfile, directory).start()
pictures = images(30)
end = time.monotonic() + (60 if os.environ.get("SFP_LONG") else 3)
seen, faults = Counter(), []
keys = {}  # of an Idempotency-Key: the ids that it had


def work(seed):
    choose = random.Random(seed)
    while time.monotonic() < end and not faults:
        label, sample, k = choose.choice("ab"), choose.randrange(30), choose.randrange(len(pictures))
        requests = [("POST", f"/v1/samples?label={label}", pictures[k], {"Idempotency-Key": f"k{k}"}),
                    ("POST", f"/v1/samples?label={label}", images(1, choose.randrange(10 ** 9))[0], {}),
                    ("POST", "/v1/samples", images(1, choose.randrange(10 ** 9))[0], {}),
                    ("PUT", f"/v1/samples/{sample}/label", {"label": label}, {}), ("DELETE", f"/v1/samples/{sample}", None, {}),
                    ("PATCH", f"/v1/classes/{label}", {"rename": label + "2"}, {}), ("PATCH", f"/v1/classes/{label}2", {"rename": label}, {}),
                    ("POST", "/v1/predict?top=3&box=0,0,0.5,0.5", pictures[k], {})]
        requests += [("GET", "/v1/" + path, None, {}) for path in ("classes", "suspects", "queue", "status", "state", "samples?limit=50")]
        method, path, body, headers = choose.choice(requests)
        try:
            status, data, _ = server.request(method, path, body, headers)
        except OSError as error:
            status, data = 599, repr(error)
        seen[method, status] += 1
        if status >= 500 or (path == "/v1/state" and data[8:9] != b"{"):
            faults.append((method, path, status, data[:200] if isinstance(data, bytes) else data))
        if headers and status in (200, 201):
            keys.setdefault(k, set()).add(data["id"])


threads = [threading.Thread(target=work, args=(i,)) for i in range(8)]
for t in threads:
    t.start()
for t in threads:
    t.join()
status = server.stop()
if faults or status:
    sys.exit(f"serve/together: {faults}, exit status {status}: " + (Path(directory) / "log").read_text()[-3000:])
if any(len(ids) > 1 for ids in keys.values()):
    sys.exit(f"serve/together: a key has made several samples: {keys}")
print(f"serve/together: {sum(seen.values())} requests")
