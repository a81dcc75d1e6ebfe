#!/usr/bin/env python3
"""A service that is killed at random moments, while clients send, label, correct and delete samples, knows in the end what a run knows that
learned each acknowledged sample once, with its final label. A client repeats a request until it is acknowledged; ids are stable.

    tests/serve/kill.py STREAMFP MKFILE

The service is killed 5 times, with SFP_LONG=1 200 times; SFP_KILLS changes this number, SFP_KILL_SEED the random sequence.
"""

import array
import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import client
from client import Server, begin, images

kills = int(os.environ.get("SFP_KILLS") or (200 if os.environ.get("SFP_LONG") else 5))
client.LIMIT = 120 + 20 * kills
CLIENTS, CLASSES = 8, ["cup", "bowl", "plate"]
seed = int(os.environ.get("SFP_KILL_SEED", "1"))
streamfp, mkfile, directory = begin("serve/kill")
server = Server(streamfp, mkfile, directory, "--checkpoint-every", "0.05")
pictures = images(40 + 4 * CLIENTS * kills)
lock = threading.Lock()
ended = threading.Event()
samples = {}  # by id: [picture, label or None or "forgotten"]
repeats = 0


def fail(text):
    print(f"serve/kill: {text} (seed {seed})\n{(Path(directory) / 'log').read_text()[-2000:]}", file=sys.stderr, flush=True)
    os._exit(1)


def persist(method, path, body=None, headers=None):
    """Repeats a request until the service acknowledges or refuses it."""
    global repeats
    while True:
        try:
            status, data, _ = server.request(method, path, body, headers)
            if status not in (500, 503):
                return status, data
        except (OSError, http.client.HTTPException):
            pass
        repeats += 1
        time.sleep(0.02)


class Client(threading.Thread):
    def __init__(self, number):
        super().__init__(daemon=True)
        self.number, self.random, self.own, self.count = number, random.Random(seed * 1000 + number), [], 0

    def add(self):
        with lock:
            if not pictures:
                return
            picture = pictures.pop()
        label = self.random.choice(CLASSES + [None])
        self.count += 1
        headers = {"Idempotency-Key": f"{self.number}/{self.count}"}
        status, data = persist("POST", "/v1/samples" + (f"?label={label}" if label else ""), picture, headers)
        if status not in (200, 201):
            fail(f"a sample was refused: {status} {data}")
        with lock:
            if data["id"] in samples:
                fail(f"id {data['id']} was given twice")
            samples[data["id"]] = [picture, label]
        self.own.append(data["id"])
        if self.random.random() < 0.2:  # the answer may have been lost
            status, again = persist("POST", "/v1/samples" + (f"?label={label}" if label else ""), picture, headers)
            if (status, again["id"]) != (200, data["id"]):
                fail(f"sample {data['id']} was sent again and got {status} {again}")

    def label(self, i):
        label = self.random.choice(CLASSES)
        status, data = persist("PUT", f"/v1/samples/{i}/label", json.dumps({"label": label}))
        if status != 200 or data["label"] != label:
            fail(f"label of {i}: {status} {data}")
        samples[i][1] = label

    def forget(self, i):
        status, data = persist("DELETE", f"/v1/samples/{i}")
        if status not in (204, 404):  # 404: it was forgotten, and the answer was lost
            fail(f"delete {i}: {status} {data}")
        samples[i][1] = "forgotten"
        self.own.remove(i)

    def run(self):
        while not ended.is_set():
            what = self.random.random()
            if what < 0.6 or not self.own:
                self.add()
            elif what < 0.95:
                self.label(self.random.choice(self.own))
            else:
                self.forget(self.random.choice(self.own))
            time.sleep(self.random.random() * 0.02)


server.start()
clients = [Client(i) for i in range(CLIENTS)]
for c in clients:
    c.start()
moments = random.Random(seed)
for _ in range(kills):
    time.sleep(0.1 + moments.random() * 0.9)
    server.kill()
    server.start()
ended.set()
for c in clients:
    c.join()
server.wait_until(lambda: all(s["label"] is None for s in server.get("/v1/samples?standing=waiting&limit=1000")[1]["samples"]))
found, after = {}, -1
while after is not None:
    data = server.get(f"/v1/samples?limit=1000&after={after}")[1]
    after = data["next"]
    found.update({s["id"]: s for s in data["samples"]})
expected = {i: label for i, (_, label) in samples.items() if label != "forgotten"}
if {i: s["label"] for i, s in found.items()} != expected:
    fail(f"the store has {len(found)} samples, expected {len(expected)} with their labels: {[i for i in set(found) ^ set(expected)]}")
if any((s["standing"], s["learned"]) != (("learned" if s["label"] else "waiting"), s["label"]) for s in found.values()):
    fail("a sample is not learned with its label")
if server.stop() != 0:
    fail("the service did not end well")

# the model is that of a run that saw each sample once
options = ["--backbone", server.vit, "--img-size", "32", "--threads", "1"]
for i, (picture, label) in samples.items():
    if label in CLASSES:
        path = Path(directory) / "once" / label / f"{i}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture)
reference = subprocess.run([streamfp, "run", *options, "--batch", "4", "--data", "folder:once", "--tasks", "free", "--out", "ref"], cwd=directory, env=server.env,
                           capture_output=True)
if reference.returncode:
    fail("the reference failed: " + reference.stderr.decode())


def sums(checkpoint):
    """What a head has learned, by class: the number of samples and the sum of their features. The strength of a ridge is no sum: it follows
    from the samples at the time when it was chosen, so the answers may differ a little."""
    data = checkpoint.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])

    def tensor(name, kind="d"):
        begin, after = header["head.ridge." + name]["data_offsets"]
        return array.array(kind, data[end + begin:end + after])

    names = json.loads(header["__metadata__"]["class_names"])
    features, mass = tensor("sums"), tensor("mass")
    dim = len(features) // len(mass)
    return {names[label]: [mass[i], *features[i * dim:(i + 1) * dim]] for i, label in enumerate(tensor("labels", "q"))}


model, ref = sums(Path(directory) / "model" / "checkpoint"), sums(Path(directory) / "ref" / "checkpoint")
for name in CLASSES:
    scale = max(abs(x) for x in ref[name])
    if max(abs(a - b) for a, b in zip(model[name], ref[name], strict=True)) > 1e-9 * scale:
        fail(f"class {name}: the sums of {model[name][0]} samples are not those of {ref[name][0]} that were learned once")
print(f"serve/kill: {kills} kills, {len(samples)} samples acknowledged, {sum(l == 'forgotten' for _, l in samples.values())} forgotten, {repeats} requests repeated")
