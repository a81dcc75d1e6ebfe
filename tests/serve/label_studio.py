#!/usr/bin/env python3
"""examples/label_studio.py with the requests of Label Studio, which this test plays; and examples/serve_curl.sh.

    tests/serve/label_studio.py STREAMFP MKFILE EXAMPLES
"""

import json
import os
import shutil
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Server, begin, die_with_parent, images

streamfp, mkfile, directory = begin("serve/label_studio")
example = os.path.realpath(Path(sys.argv[3], "label_studio.py"))
pictures = images(12)
CONFIG = '<View><Image name="image" value="$photo"/><Choices name="choice" toName="image"><Choice value="cup"/><Choice value="mug"/></Choices></View>'
PERSONAL, LEGACY = "aaa.bbb.ccc", "0123456789abcdef"
tokens, refreshed, foreign = {"old"}, [], []
annotations = {}


class Studio(BaseHTTPRequestHandler):
    def reply(self, status, body):
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        given = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path != "/api/token/refresh" or given != {"refresh": PERSONAL}:
            return self.reply(401, {})
        refreshed.append(f"access{len(refreshed)}")
        tokens.clear()
        tokens.add(f"Bearer {refreshed[-1]}")
        return self.reply(200, {"access": refreshed[-1]})

    def do_GET(self):
        if self.path == "/moved":
            foreign.append(self.headers["Authorization"])
            return self.reply(200, pictures[0])
        if self.headers["Authorization"] not in tokens | {f"Token {LEGACY}"}:
            return self.reply(401, {})
        part = self.path.strip("/").split("/")
        if part[0] == "data":
            return self.reply(200, pictures[int(part[1])])
        if part[1] == "tasks":
            return self.reply(200, {"id": int(part[2]), "data": {"photo": f"/data/{part[2]}/a.png"}})
        return self.reply(200, annotations[int(part[2])])

    def log_message(self, *_):
        pass


def check(what, got, expected):
    if got != expected:
        sys.exit(f"serve/label_studio: {what}: got {got!r}, expected {expected!r}\n{Path(directory, 'backend').read_text()[-2000:]}")


studio = ThreadingHTTPServer(("127.0.0.1", 0), Studio)
threading.Thread(target=studio.serve_forever, daemon=True).start()
address = f"http://127.0.0.1:{studio.server_address[1]}"
s = Server(streamfp, mkfile, directory)
s.start()


def start(key, *options):
    Path(directory, "key").write_text(key + "\n")
    process = subprocess.Popen([sys.executable, example, "--streamfp", s.address.geturl(), "--label-studio", address, "--key-file",
                                f"{directory}/key", "--state", f"{directory}/state.db", "--listen", "127.0.0.1:0", *options],
                               stdout=subprocess.PIPE, stderr=open(f"{directory}/backend", "ab"), preexec_fn=die_with_parent)
    return process, process.stdout.readline().decode().split()[-1]


def ask(path, body=None):
    request = urllib.request.Request(backend + path, None if body is None else json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=60) as r:
            return r.status, json.loads(r.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def annotation(number, task, label):
    choice = [{"from_name": "choice", "to_name": "image", "type": "choices", "value": {"choices": [label]}}] if label else []
    return {"id": number, "task": task, "result": choice, "was_cancelled": False}


def hook(action, given, status=201):
    got = ask("/webhook", {"action": action, "annotation": given, "project": {"id": 1, "label_config": CONFIG}})
    check(action, got[0], status)
    return got[1]["result"]


def learned():
    s.wait_until(lambda: all(x["standing"] != "waiting" for x in s.get("/v1/samples")[1]["samples"]))
    return {x["name"]: x["learned"] for x in s.get("/v1/samples")[1]["samples"]}


process, backend = start(PERSONAL)
check("health", ask("/health"), (200, {"status": "UP", "model_class": "streamfp"}))
check("setup", ask("/setup", {"project": "1.1700000000", "schema": CONFIG, "hostname": address, "access_token": "x", "extra_params": None}),
      (200, {"model_version": "t1"}))
for i in range(6):
    check("created", hook("ANNOTATION_CREATED", annotation(10 + i, i, "cup" if i % 2 else "mug")), ["learned"])
check("a personal token is exchanged once", refreshed, ["access0"])
check("a message that comes twice", hook("ANNOTATION_CREATED", annotation(10, 0, "mug")), ["learned"])
expected = {f"label-studio/1/{10 + i}": "cup" if i % 2 else "mug" for i in range(6)}
check("what is learned", learned(), expected)
tokens.clear()  # the short-lived token has expired
annotations[16] = annotation(16, 6, "cup")
check("an annotation that is only named", hook("ANNOTATION_CREATED", {"id": 16}), ["learned"])
check("an expired token is exchanged again", len(refreshed), 2)
hook("ANNOTATION_UPDATED", annotation(10, 0, "cup"))
hook("ANNOTATION_DELETED", annotation(11, 1, "cup"))
hook("ANNOTATION_UPDATED", {**annotation(12, 2, "mug"), "was_cancelled": True})
expected.update({"label-studio/1/10": "cup", "label-studio/1/16": "cup"})
for gone in (11, 12):
    del expected[f"label-studio/1/{gone}"]
check("updated = relabelled, deleted = forgotten", learned(), expected)
hook("ANNOTATION_CREATED", annotation(17, 1, "mug"))
hook("ANNOTATION_UPDATED", annotation(12, 2, "cup"))
expected.update({"label-studio/1/17": "mug", "label-studio/1/12": "cup"})
check("both come back", learned(), expected)
check("deleted in bulk", ask("/webhook", {"action": "ANNOTATIONS_DELETED", "annotations": [{"id": 17}, {"id": 99}], "project": {"id": 1}}),
      (201, {"result": ["forgotten", "nothing to forget"], "status": "ok"}))
check("an unknown action", hook("START_TRAINING", None, 200), None)
check("a bad message", ask("/webhook", {"action": "ANNOTATION_CREATED", "annotation": {"id": "x"}, "project": {"id": 1}})[0], 400)

# predictions
tasks = [{"id": 0, "data": {"photo": "/data/0/a.png"}}, {"id": 1, "data": {"photo": "http://127.0.0.2:1/a.png"}},
         {"id": 2, "data": {"photo": address + "/data/2/a.png"}}, {"id": 3, "data": {"photo": "file:///etc/passwd"}}]
status, got = ask("/predict", {"tasks": tasks, "project": "1.1700000000", "label_config": CONFIG, "params": {"login": None}})
check("as many results as tasks", (status, len(got["results"])), (200, 4))
check("addresses of others are not fetched", [r["result"] for r in got["results"]][1::2], [[], []])
for r in got["results"][0::2]:
    check("one version", r["model_version"][0], "t")
    for x in r["result"]:  # none if it is unknown
        check("the form", (x["from_name"], x["to_name"], x["type"], x["value"]["choices"][0] in ("cup", "mug"), 0 < r["score"] <= 1),
              ("choice", "image", "choices", True, True))
check("another route", ask("/other")[0], 404)

# a restart with the other kind of token: the samples are known
process.terminate()
process.wait()
process, backend = start(LEGACY, "--image-host", "127.0.0.1")
hook("ANNOTATION_DELETED", annotation(13, 3, "cup"))
hook("ANNOTATION_CREATED", annotation(18, 7, "mug"))
del expected["label-studio/1/13"], expected["label-studio/1/17"]
expected["label-studio/1/18"] = "mug"
check("after a restart", learned(), expected)
elsewhere = address.replace("127.0.0.1", "localhost")
ask("/predict", {"tasks": [{"id": 1, "data": {"photo": f"http://127.0.0.1:{studio.server_address[1]}.example/moved"}},
                           {"id": 2, "data": {"photo": f"{elsewhere}/moved"}}], "project": "1", "label_config": CONFIG})
check("no key for other hosts", foreign, [])
process.terminate()

# the other example that has a script
if shutil.which("curl"):
    for i in (8, 9, 10):
        Path(directory, f"{i}.png").write_bytes(pictures[i])
    done = subprocess.run(["sh", str(Path(example).parent / "serve_curl.sh"), s.address.geturl(), "8.png", "9.png", "10.png"], cwd=directory,
                          capture_output=True, text=True)
    check("the lines for curl", (done.returncode, done.stderr), (0, ""))
    expected.update({"first": "cup", "second": "mug"})
    check("what they have learned", learned(), expected)
check("the service ends", s.stop(), 0)
print("serve/label_studio: ok")
