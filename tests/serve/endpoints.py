#!/usr/bin/env python3
"""Every route of the service with good and bad requests.

    tests/serve/endpoints.py STREAMFP MKFILE
"""

import base64
import json
import os
import socket
import struct
import subprocess
import sys
import time
import zlib
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Server, begin, images

streamfp, mkfile, directory = begin("serve/endpoints")
pictures = images(12)
checks = 0


def check(what, got, expected):
    global checks
    checks += 1
    if os.environ.get("SFP_TRACE"): print(round(time.monotonic(), 2), what)
    if got != expected:
        sys.exit(f"serve/endpoints: {what}: got {got!r}, expected {expected!r}")


def error(server, what, method, path, status, code, body=None, headers=None):
    got, data, _ = server.request(method, path, body, headers)
    check(what, (got, data["error"]["code"]), (status, code))
    check(what + ": has a message", bool(data["error"]["message"]), True)


def settled(server, base="/v1"):
    server.wait_until(lambda: all(s["label"] is None for s in server.get(base + "/samples?standing=waiting")[1]["samples"]))


def test_learning(s):
    for i in range(6):
        status, data, _ = s.post(f"/v1/samples?label={'cup' if i % 2 else 'big%20mug'}&name=a/{i}.png", pictures[i], headers={"Idempotency-Key": f"k{i}"})
        check("a labelled sample", (status, data), (201, {"id": i, "standing": "waiting", "prediction": None}))
    status, data, _ = s.post("/v1/samples?label=cup", pictures[0], headers={"Idempotency-Key": "k0"})
    check("the same key", (status, data["id"]), (200, 0))
    error(s, "the same key, another image", "POST", "/v1/samples?label=cup", 400, "invalid", pictures[1], {"Idempotency-Key": "k0"})
    settled(s)
    check("the key was learned once", s.get("/v1/status")[1]["samples"]["learned"], 6)
    status, data, _ = s.post("/v1/samples?name=a/0.png", pictures[6])
    check("a sample without a label", (status, data["id"], data["standing"]), (201, 6, "waiting"))
    check("it is predicted", {c["name"] for c in data["prediction"]["classes"]}, {"cup", "big mug"})
    status, sample, _ = s.get("/v1/samples/6")
    check("one sample", (status, sample["label"], sample["name"], sample["predicted"], sample["has_image"]),
          (200, None, "a/0.png#6", data["prediction"]["classes"][0]["name"], True))
    check("a late label", s.request("PUT", "/v1/samples/6/label", {"label": "cup"})[0], 200)
    settled(s)
    check("a correction", s.request("PUT", "/v1/samples/0/label", {"label": "cup"})[0], 200)
    settled(s)
    check("classes", s.get("/v1/classes")[1]["classes"] and [(c["name"], c["samples"]) for c in s.get("/v1/classes")[1]["classes"]],
          [("big mug", 2), ("cup", 5)])
    check("the image", s.get("/v1/samples/3/image")[1], pictures[3])
    status, data, headers = s.get("/v1/samples/3/image?size=8")
    check("a thumbnail", (status, data[:4], headers["Content-Type"]), (200, b"\x89PNG", "image/png"))
    check("its size", struct.unpack(">II", data[16:24]), (8, 8))
    check("forget", s.request("DELETE", "/v1/samples/1")[0], 204)
    error(s, "a forgotten sample", "GET", "/v1/samples/1", 404, "not_found")
    error(s, "its image", "GET", "/v1/samples/1/image", 404, "not_found")
    error(s, "its label", "PUT", "/v1/samples/1/label", 404, "not_found", '{"label":"cup"}')
    error(s, "the same bytes", "POST", "/v1/samples?label=cup", 409, "conflict", pictures[1])
    status, data, _ = s.post("/v1/samples?label=cup", pictures[1], headers={"Idempotency-Key": "k1"})
    check("forgotten, the same key", status, 409)


def test_lists(s):
    data = s.get("/v1/samples?limit=3")[1]
    check("a page", ([x["id"] for x in data["samples"]], data["next"]), ([0, 2, 3], 3))
    data = s.get("/v1/samples?limit=3&after=3")[1]
    check("the last page", ([x["id"] for x in data["samples"]], data["next"]), ([4, 5, 6], None))
    check("by label", [x["id"] for x in s.get("/v1/samples?label=big%20mug")[1]["samples"]], [2, 4])
    check("by standing", s.get("/v1/samples?standing=dropped")[1]["samples"], [])
    check("without a label", s.get("/v1/samples?label=")[1]["samples"], [])
    error(s, "standing", "GET", "/v1/samples?standing=lost", 400, "invalid")
    error(s, "limit", "GET", "/v1/samples?limit=0", 400, "invalid")
    error(s, "after", "GET", "/v1/samples?after=x", 400, "invalid")
    error(s, "an id that is none", "GET", "/v1/samples/x", 404, "not_found")
    error(s, "an id that does not exist", "GET", "/v1/samples/99", 404, "not_found")
    error(s, "a label for nothing", "PUT", "/v1/samples/99/label", 404, "not_found", '{"label":"cup"}')
    error(s, "no label", "PUT", "/v1/samples/2/label", 400, "invalid", "{}")
    check("null says how a label is taken back", "again=1" in s.request("PUT", "/v1/samples/2/label", '{"label":null}')[1]["error"]["message"], True)
    error(s, "not JSON", "PUT", "/v1/samples/2/label", 400, "malformed", "label")
    error(s, "not an object", "PUT", "/v1/samples/2/label", 400, "invalid", "[]")
    error(s, "an empty label", "PUT", "/v1/samples/2/label", 400, "invalid", '{"label":""}')
    error(s, "nothing to forget", "DELETE", "/v1/samples/99", 404, "not_found")


def test_predict(s):
    one = s.post("/v1/predict?top=1", pictures[7])[1]
    check("one image", (len(one["predictions"]), len(one["predictions"][0]["classes"])), (1, 1))
    boxes = s.post("/v1/predict?box=0,0,1,1&box=0,0.25,0.5,1", pictures[7])[1]["predictions"]
    check("boxes", [b["box"] for b in boxes], [[0, 0, 1, 1], [0, 0.25, 0.5, 1]])
    check("the whole box is the image", boxes[0]["classes"][0], one["predictions"][0]["classes"][0])
    body = b"".join(b'--xx\r\nContent-Disposition: form-data; name="f"; filename="%d.png"\r\n\r\n%s\r\n' % (i, pictures[i]) for i in (7, 8)) + b"--xx--\r\n"
    many = s.post("/v1/predict", body, headers={"Content-Type": "multipart/form-data; boundary=xx"})[1]["predictions"]
    check("several images", ([m["name"] for m in many], many[0]["classes"][0]["name"]), (["7.png", "8.png"], one["predictions"][0]["classes"][0]["name"]))
    error(s, "no image", "POST", "/v1/predict", 400, "invalid", b"")
    error(s, "not an image", "POST", "/v1/predict", 422, "unreadable_image", b"not an image")
    error(s, "half an image", "POST", "/v1/samples?label=cup", 422, "unreadable_image", pictures[9][:60])
    error(s, "a box outside", "POST", "/v1/predict?box=0,0,2,1", 400, "invalid", pictures[7])
    error(s, "half a box", "POST", "/v1/predict?box=0,0,1", 400, "invalid", pictures[7])
    error(s, "top", "POST", "/v1/predict?top=many", 400, "invalid", pictures[7])
    error(s, "no boundary", "POST", "/v1/predict", 400, "invalid", body, {"Content-Type": "multipart/form-data"})
    error(s, "another boundary", "POST", "/v1/predict", 400, "invalid", body, {"Content-Type": "multipart/form-data; boundary=yy"})
    error(s, "a body without end", "POST", "/v1/predict", 400, "invalid", body[:-20], {"Content-Type": "multipart/form-data; boundary=xx"})
    error(s, "a label that is none", "POST", "/v1/samples?label=%ff", 400, "invalid", pictures[9])
    error(s, "a label with NUL", "POST", "/v1/samples?label=a%00b", 400, "invalid", pictures[9])
    error(s, "an empty label", "POST", "/v1/samples?label=", 400, "invalid", pictures[9])
    error(s, "no body", "POST", "/v1/samples", 400, "invalid", b"")
    error(s, "a large body", "POST", "/v1/predict", 413, "too_large", b"x" * 300000)


def test_pixels(s):
    """The images of a request have a limit of pixels together: a few bytes may be many."""
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    large = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 6000, 6000, 1, 0, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(bytes(751 * 6000))) + chunk(b"IEND", b"")
    for count, expected in ((2, 200), (3, 422)):
        body = b"".join(b'--xx\r\nContent-Disposition: form-data; name="f"\r\n\r\n' + large + b"\r\n" for _ in range(count)) + b"--xx--\r\n"
        check(f"{count} large images", s.post("/v1/predict", body, headers={"Content-Type": "multipart/form-data; boundary=xx"})[0], expected)
    check("then a small one", s.post("/v1/predict", pictures[0])[0], 200)


def test_review(s):
    ids = [s.post("/v1/samples", p)[1]["id"] for p in images(3, 7000)]
    queue = s.get("/v1/queue?limit=2")[1]["samples"]
    check("the queue", (len(queue), {q["id"] for q in queue} <= set(ids), all(q["reason"] in ("uncertain", "unlike", "diverse") for q in queue)),
          (2, True, True))
    check("best first", queue[0]["score"] >= queue[1]["score"], True)
    data = s.get("/v1/classes")[1]
    rows = data["confusion"]["counts"]
    check("every learned sample is judged", [sum(r) for r in rows], [c["samples"] for c in data["classes"]])
    check("accuracy", [c["accuracy"] for c in data["classes"]], [rows[i][i] / sum(rows[i]) for i in range(len(rows))])
    check("curve", [c["curve"][-1] for c in data["classes"]], [[c["samples"], c["accuracy"]] for c in data["classes"]])
    suspects = s.get("/v1/suspects?limit=200")[1]["samples"]
    check("suspects are the mix-ups", len(suspects), sum(map(sum, rows)) - sum(rows[i][i] for i in range(len(rows))))
    if suspects:  # one that was corrected is not a suspect of its old label
        first = suspects[0]
        for label in (first["suggested"], first["label"]):
            check("a correction", s.request("PUT", f"/v1/samples/{first['id']}/label", {"label": label})[0], 200)
            left = s.get("/v1/suspects?limit=200")[1]["samples"]
            check("its old label", [x for x in left if x["id"] == first["id"] and x["label"] != label], [])
            settled(s)
    check("another label is suggested", all(x["suggested"] != x["label"] and x["margin"] > 0 for x in suspects), True)
    error(s, "limit", "GET", "/v1/queue?limit=0", 400, "invalid")
    for i in ids:
        check("it is forgotten", s.request("DELETE", f"/v1/samples/{i}")[0], 204)


def test_classes(s):
    check("add a class", s.post("/v1/classes", {"name": "plate"})[0], 201)
    check("it is listed", [c["name"] for c in s.get("/v1/classes")[1]["classes"]], ["big mug", "cup", "plate"])
    error(s, "no name", "POST", "/v1/classes", 400, "invalid", "{}")
    check("rename", s.request("PATCH", "/v1/classes/big%20mug", {"rename": "mug/1"})[0], 200)
    settled(s)
    check("renamed", [(c["name"], c["samples"]) for c in s.get("/v1/classes")[1]["classes"] if c["samples"]], [("cup", 4), ("mug/1", 2)])
    s.post("/v1/pause")  # its samples wait to be learned with the new name; until then they are counted with the old one
    for old, new in (("cup", "bowl"), ("bowl", "cup")):
        check("rename", s.request("PATCH", f"/v1/classes/{old}", {"rename": new})[0], 200)
        check("no sample is missing meanwhile", sum(c["samples"] for c in s.get("/v1/classes")[1]["classes"]), 6)
    s.post("/v1/resume")
    settled(s)
    error(s, "rename to a class that exists", "PATCH", "/v1/classes/cup", 400, "invalid", '{"rename":"mug/1"}')
    error(s, "neither", "PATCH", "/v1/classes/cup", 400, "invalid", "{}")
    error(s, "a class that does not exist", "PATCH", "/v1/classes/none", 404, "not_found", '{"rename":"x"}')
    check("merge", s.request("PATCH", "/v1/classes/mug%2F1", {"merge_into": "cup"})[0], 200)
    settled(s)
    check("merged", [(c["name"], c["samples"]) for c in s.get("/v1/classes")[1]["classes"] if c["samples"]], [("cup", 6)])
    s.post("/v1/samples?label=fork", pictures[10])
    settled(s)
    check("remove", s.request("DELETE", "/v1/classes/fork")[0], 204)
    check("removed", [c["name"] for c in s.get("/v1/classes")[1]["classes"] if c["samples"]], ["cup"])
    check("remove an added class", s.request("DELETE", "/v1/classes/plate")[0], 204)
    error(s, "remove nothing", "DELETE", "/v1/classes/none", 404, "not_found")


def test_control(s):
    check("pause", s.post("/v1/pause")[1]["paused"], True)
    check("a sample while paused", s.post("/v1/samples?label=cup", pictures[11])[0], 201)
    time.sleep(0.3)  # nothing must happen
    check("it waits", len(s.get("/v1/samples?standing=waiting")[1]["samples"]), 1)
    check("resume", s.post("/v1/resume")[1]["paused"], False)
    settled(s)
    check("checkpoint", s.post("/v1/checkpoint")[0], 200)
    state = s.get("/v1/state")
    check("the state", (state[0], state[1][8:9]), (200, b"{"))
    check("the report", s.get("/v1/report")[1][:9].lower(), b"<!doctype")
    check("health", (s.get("/healthz")[0], s.get("/readyz")[0]), (200, 200))
    check("models", s.get("/v1/models")[1], {"models": [{"name": "model"}]})
    check("by its name", s.get("/v1/models/model/status")[1]["model"], "model")
    metrics = s.get("/metrics")[1].decode()
    check("metrics", 'streamfp_samples{model="model",standing="learned"} 7' in metrics, True)
    for line in metrics.splitlines():
        check("a line of metrics", line.startswith("# ") or len(line.rsplit(" ", 1)) == 2, True)
    status, page, headers = s.get("/")
    nonce = headers["Content-Security-Policy"].split("script-src 'nonce-")[1].split("'")[0]
    check("the page", (status, page.startswith(b"<!doctype html>"), page.decode().count(nonce) >= 1), (200, True, True))
    api = s.get("/openapi.json")[1]
    check("the description", (api["openapi"], len(api["paths"]) > 20), ("3.0.3", True))
    ids = [o["operationId"] for p in api["paths"].values() for o in p.values()]
    check("operations have different names", len(ids), len(set(ids)))
    error(s, "no path", "GET", "/v1/nothing", 404, "not_found")
    error(s, "no model", "GET", "/v1/models/other/status", 404, "not_found")
    error(s, "another method", "PUT", "/v1/status", 405, "method_not_allowed", "{}")
    error(s, "another site", "GET", "/v1/status", 403, "forbidden", None, {"Origin": "http://evil.example"})
    error(s, "another name of this machine", "GET", "/v1/status", 403, "forbidden", None, {"Host": "evil.example"})


def test_events(s):
    c = s.connect()
    c.request("GET", "/v1/events")
    r = c.getresponse()
    check("events", (r.status, r.getheader("Content-Type")), (200, "text/event-stream"))
    sample = s.post("/v1/samples", pictures[10][:0] + images(1, 5000)[0])[1]["id"]
    seen = set()
    while len(seen) < 2:
        line = r.readline().decode()
        if line.startswith("event: "):
            data = json.loads(r.readline().decode()[len("data: "):])
            if line.strip() == "event: sample":
                if data["id"] != sample:  # learned before
                    continue
            else:
                check("the status", data["model"], "model")
            seen.add(line.strip())
    c.close()


def test_v2(s):
    check("server", s.get("/v2")[1]["name"], "streamfp")
    check("live", s.get("/v2/health/live")[1], {"live": True})
    check("ready", s.get("/v2/health/ready")[1], {"ready": True})
    check("model", s.get("/v2/models/model")[1]["inputs"][0]["datatype"], "BYTES")
    check("model ready", s.get("/v2/models/model/versions/1/ready")[1], {"name": "model", "ready": True})
    plain = {"id": "42", "inputs": [{"name": "image", "shape": [1], "datatype": "BYTES", "data": [base64.b64encode(pictures[7]).decode()]}]}
    status, data, _ = s.post("/v2/models/model/infer", plain)
    check("base64", (status, data["id"], data["outputs"][0]["data"], data["outputs"][1]["shape"]), (200, "42", ["cup"], [1, 1]))
    binary = b"".join(struct.pack("<I", len(p)) + p for p in pictures[7:9])
    head = json.dumps({"inputs": [{"name": "image", "shape": [2], "datatype": "BYTES", "parameters": {"binary_data_size": len(binary)}}]}).encode()
    header = {"Inference-Header-Content-Length": str(len(head))}
    status, data, _ = s.post("/v2/models/model/versions/t1/infer", head + binary, headers=header)
    check("binary", (status, [o["shape"] for o in data["outputs"]]), (200, [[2, 1], [2, 1], [2]]))
    for what, body, headers in [("an error", b"{}", {}), ("cut", head + binary[:-1], header), ("the length of the header", head, {"Inference-Header-Content-Length": "99999"}),
                                ("not base64", json.dumps({"inputs": [{"datatype": "BYTES", "data": ["!"]}]}).encode(), {}),
                                ("another type", json.dumps({"inputs": [{"datatype": "FP32", "data": [1]}]}).encode(), {}),
                                ("not an image", json.dumps({"inputs": [{"datatype": "BYTES", "data": ["AAAA"]}]}).encode(), {})]:
        status, data, _ = s.post("/v2/models/model/infer", body, headers=headers)
        check(what, (status, isinstance(data["error"], str)), (400, True))
    check("no model", s.get("/v2/models/other")[0], 404)


def test_limits(s):
    """Idle connections are closed for new ones; half a request holds no worker."""
    idle = [socket.create_connection((s.address.hostname, s.address.port)) for _ in range(6)]
    half = socket.create_connection((s.address.hostname, s.address.port))
    half.sendall(b"POST /v1/predict HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\nabc")
    time.sleep(1.2)  # from then on they may be closed
    more = []
    for _ in range(40):
        more.append(socket.create_connection((s.address.hostname, s.address.port)))
        if len(more) % 5 == 0:
            check("requests are served", s.get("/v1/status")[0], 200)
    for c in idle + more + [half]:
        c.close()


def test_token(directory):
    token = Path(directory) / "token"
    token.write_text("0123456789abcdef\n")
    s = Server(streamfp, mkfile, directory, "--listen", "0.0.0.0:0", "--token-file", token).start()
    error(s, "no token", "GET", "/v1/status", 401, "unauthorized")
    error(s, "a wrong token", "GET", "/v1/status", 401, "unauthorized", None, {"Authorization": "Bearer 0123456789abcdeg"})
    error(s, "a longer token", "GET", "/v1/status", 401, "unauthorized", None, {"Authorization": "Bearer 0123456789abcdef0"})
    check("the token", s.get("/v1/status", headers={"Authorization": "Bearer 0123456789abcdef"})[0], 200)
    check("open routes", [s.get(p)[0] for p in ("/", "/healthz", "/readyz", "/openapi.json")], [200] * 4)
    token.write_text("fedcba9876543210\n")
    s.process.send_signal(1)
    s.wait_until(lambda: s.get("/v1/status", headers={"Authorization": "Bearer fedcba9876543210"})[0] == 200)
    check("it ends well", s.stop(), 0)


def test_models(directory):
    path = str(Path(directory) / "socket")
    taken = socket.socket(socket.AF_UNIX)
    taken.bind(path)
    taken.listen()
    Path(path + ".txt").write_text("a file")
    for other in (path, path + ".txt"):
        s = Server(streamfp, mkfile, directory, "--socket", other)
        check("a path that is taken", (subprocess.run([str(c) for c in s.command], env=s.env, cwd=directory, stderr=subprocess.DEVNULL).returncode, os.path.exists(other)), (1, True))
    taken.close()
    notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    notify.bind(str(Path(directory) / "notify"))
    s = Server(streamfp, mkfile, directory, "--model", f"dogs={directory}/dogs", "--model", f"cars={directory}/cars", "--cpu-share", "0.5",
               env={"NOTIFY_SOCKET": str(Path(directory) / "notify")}).start()
    check("systemd", notify.recv(100), b"READY=1")
    check("models", s.get("/v1/models")[1], {"models": [{"name": "dogs"}, {"name": "cars"}]})
    check("each has its samples", [s.post(f"/v1/models/{m}/samples?label=x", pictures[0])[1]["id"] for m in ("dogs", "cars")], [0, 0])
    error(s, "which model?", "GET", "/v1/status", 404, "not_found")
    settled(s, "/v1/models/cars")
    check("it ends well", s.stop(), 0)
    s = Server(streamfp, mkfile, directory, "--model", f"dogs={directory}/dogs", "--socket", path)
    s.connect_unix = path
    from http.client import HTTPConnection

    class Unix(HTTPConnection):
        def connect(self):
            self.sock = socket.socket(socket.AF_UNIX)
            self.sock.connect(path)
    s.connect = lambda timeout=60: Unix("localhost", timeout=timeout)
    s.start()
    check("a Unix socket, and what was learned", s.get("/v1/status")[1]["samples"]["learned"], 1)
    check("its rights", oct(os.stat(path).st_mode & 0o777), "0o660")
    check("it ends well", s.stop(), 0)
    check("the socket is removed", os.path.exists(path), False)


os.mkdir(directory + "/a")
server = Server(streamfp, mkfile, directory + "/a", "--max-body", "200000", "--max-connections", "24").start()
for test in (test_learning, test_lists, test_predict, test_pixels, test_review, test_classes, test_control, test_events, test_v2, test_limits):
    test(server)
learned = server.get("/v1/status")[1]["samples"]
server.post("/v1/pause")
check("rename", server.request("PATCH", "/v1/classes/cup", {"rename": "mug"})[0], 200)
check("it ends well although nothing is learned again now", server.stop(), 0)
server.start()
settled(server)
check("it continues", server.get("/v1/status")[1]["samples"], learned)
check("renamed", [(c["name"], c["samples"]) for c in server.get("/v1/classes")[1]["classes"] if c["samples"]], [("mug", 7)])
check("it ends well", server.stop(), 0)
for name, test in (("b", test_token), ("c", test_models)):
    os.mkdir(f"{directory}/{name}")
    test(f"{directory}/{name}")
print(f"serve/endpoints: {checks} checks")
