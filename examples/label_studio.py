"""A machine-learning backend for Label Studio on a running `streamfp serve`, with the standard library only (docs/service.md).

    python3 label_studio.py --streamfp http://127.0.0.1:8080 --label-studio https://label.example --key-file KEY --state backend.db

Each annotation is a sample: a new one is learned, an updated one relabels it, a deleted one is forgotten. Images are fetched from Label Studio
and from the hosts of --image-host only, because their addresses come from outside."""

import argparse
import json
import math
import os
import re
import sqlite3
import threading
import urllib.error
import urllib.parse
import urllib.request
from http.client import HTTPException
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from xml.etree import ElementTree

args = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
args.add_argument("--streamfp", default="http://127.0.0.1:8080", help="address of the service")
args.add_argument("--streamfp-token-file", help="file with the token of the service")
args.add_argument("--model", action="append", default=[], metavar="PROJECT=MODEL", help="model of a project; default: the only one")
args.add_argument("--label-studio", required=True, help="address of Label Studio")
args.add_argument("--key-file", required=True, help="file with an API key: a legacy token, or a personal access token")
args.add_argument("--image-host", action="append", default=[], help="another host that has images")
args.add_argument("--state", default="label_studio.db", help="file with the samples of the annotations")
args.add_argument("--listen", default="127.0.0.1:9090")
args = args.parse_args()
models = dict(m.split("=", 1) for m in args.model)
studio = args.label_studio.rstrip("/")
key = open(args.key_file).read().strip()
lock = threading.RLock()  # one annotation at a time: two messages about the same one must not pass each other
state = sqlite3.connect(args.state, check_same_thread=False, isolation_level=None)
state.execute("CREATE TABLE IF NOT EXISTS sample(annotation TEXT PRIMARY KEY, id INTEGER, times INTEGER)")
BAD = (OSError, HTTPException, ValueError, LookupError, AttributeError, TypeError, ElementTree.ParseError)  # of what comes from outside
access = ""  # the short-lived token that a personal access token gives


class Redirects(urllib.request.HTTPRedirectHandler):
    """Storage to which Label Studio redirects must not see its key."""

    def redirect_request(self, request, file, code, message, headers, url):
        new = super().redirect_request(request, file, code, message, headers, url)
        if new and urllib.parse.urlsplit(url).netloc != urllib.parse.urlsplit(request.full_url).netloc:
            new.remove_header("Authorization")
        return new


opener = urllib.request.build_opener(Redirects)


def fetch(method, url, body=None, **headers):
    request = urllib.request.Request(url, data=body, method=method, headers={k.replace("_", "-"): v for k, v in headers.items()})
    with opener.open(request, timeout=60) as answer:
        return answer.read(64 << 20)


def service(method, project, path, body=None, **headers):
    if args.streamfp_token_file:
        headers["Authorization"] = "Bearer " + open(args.streamfp_token_file).read().strip()
    base = args.streamfp.rstrip("/") + (f"/v1/models/{models[project]}" if project in models else "/v1")
    return json.loads(fetch(method, base + path, body, **headers) or b"null")


def from_studio(path, again=True):
    """Personal access tokens (three parts, joined by dots) are exchanged for short-lived ones; legacy tokens are sent as they are."""
    global access
    personal = key.count(".") == 2
    if personal and not access:
        body = json.dumps({"refresh": key}).encode()
        access = json.loads(fetch("POST", studio + "/api/token/refresh", body, Content_Type="application/json"))["access"]
    try:
        return fetch("GET", studio + path, Authorization=f"Bearer {access}" if personal else f"Token {key}")
    except urllib.error.HTTPError as error:
        if error.code != 401 or not personal or not again:
            raise
        access = ""
        return from_studio(path, again=False)


def image_of(task, config):
    value = task["data"][config["value"]]
    url = urllib.parse.urlsplit(urllib.parse.urljoin(studio + "/", value))
    if url.geturl().startswith(studio + "/"):
        return from_studio(url.geturl()[len(studio):])
    if url.scheme not in ("http", "https") or url.hostname not in args.image_host:
        raise ValueError(f"{value[:200]}: not an image of Label Studio or of a host that --image-host names")
    return fetch("GET", url.geturl())


def read_config(text):
    """The first <Choices> and the <Image> that it is about."""
    if "<!" in text:
        raise ValueError("the label config has a declaration")
    root = ElementTree.fromstring(text)
    choices, image = root.find(".//Choices"), root.find(".//Image")
    return {"from": choices.get("name"), "to": choices.get("toName"), "value": image.get("value").lstrip("$")}


def version(project):
    """Label Studio asks again for a task when the version is a new one: here after each tenth that was learned more."""
    learned = service("GET", project, "/status")["version"]
    return f"t{round(1.1 ** int(math.log(learned + 1, 1.1)))}"


def predict(request):
    project = str(request.get("project", "")).split(".")[0]
    config, now, results = read_config(request["label_config"]), version(project), []
    for task in request["tasks"]:  # as many results as tasks, in their order
        result = {"model_version": now, "score": 0.0, "result": []}
        try:
            answer = service("POST", project, "/predict?top=1", image_of(task, config))["predictions"][0]
        except BAD as error:
            print(f"task {task.get('id')}: {error}", flush=True)
            answer = {"classes": [], "is_unknown": True}
        if not answer["is_unknown"]:  # what is unknown comes first if tasks are sorted by score
            best = answer["classes"][0]
            result["score"] = best["probability"]
            result["result"] = [{"from_name": config["from"], "to_name": config["to"], "type": "choices", "score": best["probability"],
                                 "value": {"choices": [best["name"]]}}]
        results.append(result)
    return 200, {"results": results}


def known_sample(name):
    """(id or None, how often it was forgotten)"""
    return state.execute("SELECT id, times FROM sample WHERE annotation = ?", (name,)).fetchone() or (None, 0)


def forget(project, name):
    sample, times = known_sample(name)
    if sample is None:
        return "nothing to forget"
    try:
        service("DELETE", project, f"/samples/{sample}?again=1")
    except urllib.error.HTTPError as error:
        if error.code != 404:  # it was forgotten by another way
            raise
    state.execute("INSERT OR REPLACE INTO sample VALUES(?, NULL, ?)", (name, times + 1))
    return "forgotten"


def learn(project, name, annotation, label_config):
    config = read_config(label_config)
    labels = [c for r in annotation["result"] if r.get("from_name") == config["from"] for c in r["value"].get("choices", [])]
    if annotation.get("was_cancelled") or not labels:
        return forget(project, name)
    sample, times = known_sample(name)
    if sample is None:
        image = image_of(json.loads(from_studio(f"/api/tasks/{int(annotation['task'])}/")), config)
        query = urllib.parse.urlencode({"label": labels[0], "name": f"label-studio/{name}"})
        key = urllib.parse.quote(f"label-studio/{os.path.abspath(args.state)}/{name}/{times}")
        sample = service("POST", project, f"/samples?{query}", image, Idempotency_Key=key)["id"]
        state.execute("INSERT OR REPLACE INTO sample VALUES(?, ?, ?)", (name, sample, times))
    service("PUT", project, f"/samples/{sample}/label", json.dumps({"label": labels[0]}).encode())
    return "learned"


def webhook(request):
    action, about = request.get("action", ""), request.get("project") or {}
    kind = re.fullmatch(r"ANNOTATIONS?_(CREATED|UPDATED|DELETED)", action)
    if not kind:
        return 200, {"result": None, "status": "ok"}
    given = request.get("annotations") or [request.get("annotation") or {"id": request.get("annotation_id")}]
    project, done = str(about.get("id", "")), []
    for annotation in given:
        name = f"{project}/{int(annotation['id'])}"
        with lock:
            if kind[1] == "DELETED":
                done.append(forget(project, name))
                continue
            if "result" not in annotation:
                annotation = json.loads(from_studio(f"/api/annotations/{int(annotation['id'])}/"))
            config = about.get("label_config") or json.loads(from_studio(f"/api/projects/{int(project)}/"))["label_config"]
            done.append(learn(project, name, annotation, config))
    return 201, {"result": done, "status": "ok"}


def setup(request):
    return 200, {"model_version": version(str(request.get("project", "")).split(".")[0])}


def health(_):
    return 200, {"status": "UP", "model_class": "streamfp"}


class Handler(BaseHTTPRequestHandler):
    routes = {("GET", "/"): health, ("GET", "/health"): health, ("POST", "/setup"): setup, ("POST", "/predict"): predict,
              ("POST", "/webhook"): webhook}
    timeout = 60

    def answer(self):
        route = self.routes.get((self.command, self.path.split("?")[0]))
        size = int(self.headers.get("Content-Length") or 0)
        try:
            if size > 16 << 20:
                raise ValueError("the body is too long")
            status, reply = route(json.loads(self.rfile.read(size) or b"{}")) if route else (404, {"error": "no such route"})
        except BAD as error:
            status, reply = 502 if isinstance(error, (OSError, HTTPException)) else 400, {"error": f"{type(error).__name__}: {error}"}
        body = json.dumps(reply).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = answer


host, port = args.listen.rsplit(":", 1)
server = ThreadingHTTPServer((host, int(port)), Handler)
print(f"listening on http://{host}:{server.server_address[1]}", flush=True)
server.serve_forever()
