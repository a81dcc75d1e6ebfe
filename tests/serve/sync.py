#!/usr/bin/env python3
"""A directory in sync and HTTP are doors of the same learner: what is learned is what is in the directory, and what was sent.

    tests/serve/sync.py STREAMFP MKFILE
"""

import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from client import Server, begin, images

streamfp, mkfile, directory = begin("serve/sync")
root = Path(directory, "dataset")
pictures = images(16)


def check(what, got, expected):
    if got != expected:
        sys.exit(f"serve/sync: {what}: got {got!r}, expected {expected!r}")


def put(path, data):
    target = root / path
    target.parent.mkdir(parents=True, exist_ok=True)
    (root / ".new").write_bytes(data)
    os.replace(root / ".new", target)


def samples(s):
    return s.get("/v1/samples?limit=1000")[1]["samples"]


def learned(s):
    return sorted((x["name"], x["learned"]) for x in samples(s) if x["standing"] == "learned")


def expect(s, what, *expected):
    """All samples of the store, and only these, are learned with these labels."""
    want = sorted(expected)
    try:
        s.wait_until(lambda: learned(s) == want and len(samples(s)) == len(want), 30)
    except RuntimeError:
        sys.exit(f"serve/sync: {what}: {samples(s)}, expected {want}\n" + (s.dir / "log").read_text()[-2000:])


def answer(s, data):
    return s.post("/v1/predict?top=9", data)[1]["predictions"][0]["classes"]


for i in range(3):
    put(f"cat/{i}.png", pictures[i])
    put(f"dog/{i}.png", pictures[3 + i])
s = Server(streamfp, mkfile, directory, "--data", f"watch:{root},sync")
s.start()
all_of = {f"{c}/{i}.png": c for c in ("cat", "dog") for i in range(3)}
expect(s, "the directory is learned", *all_of.items())
ids = {x["name"]: x["id"] for x in samples(s)}

os.rename(root / "cat/0.png", root / "dog/moved.png")
all_of["dog/moved.png"] = "dog"
del all_of["cat/0.png"]
expect(s, "a move relabels", *all_of.items())
check("it is the same sample", {x["name"]: x["id"] for x in samples(s)}["dog/moved.png"], ids["cat/0.png"])

(root / "dog/2.png").unlink()
del all_of["dog/2.png"]
expect(s, "a deletion forgets", *all_of.items())
put("dog/2.png", pictures[5])
all_of["dog/2.png"] = "dog"
expect(s, "a file that comes back is learned again", *all_of.items())

put("cat/1.png", pictures[6])
s.wait_until(lambda: {x["name"]: x["id"] for x in samples(s)}.get("cat/1.png", ids["cat/1.png"]) != ids["cat/1.png"])
expect(s, "a file with other bytes takes the place of its sample", *all_of.items())

os.rename(root / "cat", root / "feline")
all_of = {n.replace("cat/", "feline/"): c.replace("cat", "feline") for n, c in all_of.items()}
expect(s, "a renamed directory renames the class", *all_of.items())
check("the old class is not answered", {c["name"] for c in answer(s, pictures[1])}, {"feline", "dog"})
put("cat/new.png", pictures[7])
all_of["cat/new.png"] = "cat"
expect(s, "the old name can be used again", *all_of.items())

# HTTP is the other door
status, sent, _ = s.post("/v1/samples?label=bird&name=sent", pictures[8])
check("a sample that is sent", status, 201)
all_of["sent"] = "bird"
expect(s, "is learned beside the directory", *all_of.items())
corrected = {x["name"]: x["id"] for x in samples(s)}["cat/new.png"]
check("a label for a file", s.request("PUT", f"/v1/samples/{corrected}/label", {"label": "bird"})[0], 200)
all_of["cat/new.png"] = "bird"
expect(s, "corrects it", *all_of.items())
check("a sample of a file has its image", s.get(f"/v1/samples/{corrected}/image")[1], pictures[7])
shutil.rmtree(root / "dog")
all_of = {n: c for n, c in all_of.items() if not n.startswith("dog/")}
expect(s, "a deleted directory is forgotten", *all_of.items())
check("and what was sent is not", "sent" in all_of, True)
check("pause", s.post("/v1/pause")[0], 200)
put("feline/paused.png", pictures[9])
check("a pause holds for HTTP", s.post("/v1/samples?label=bird&name=later", pictures[10])[1]["standing"], "waiting")
check("resume", s.post("/v1/resume")[0], 200)
all_of.update({"feline/paused.png": "feline", "later": "bird"})
expect(s, "after it both are learned", *all_of.items())

# changes while nothing watches
check("the service ends", s.stop(), 0)
os.rename(root / "feline/2.png", root / "cat/2.png")
(root / "feline/1.png").unlink()
all_of["cat/2.png"] = "cat"
del all_of["feline/2.png"], all_of["feline/1.png"]
s.start()
expect(s, "changes before the start", *all_of.items())
check("a kill", s.kill(), None)
os.rename(root, f"{root}.away")
root.mkdir()
s.start()
s.wait_until(lambda: "its disk may not be mounted" in (s.dir / "log").read_text())
expect(s, "an empty directory is not believed", *all_of.items())
s.stop()
root.rmdir()
os.rename(f"{root}.away", root)

# run does the same, and refuses what serve refuses
run = [streamfp, "run", *s.command[2:s.command.index("--out")], "--out", Path(directory, "run"), "--data", f"watch:{root},sync", "--resume"]


def run_once():
    (root / ".end").touch()
    subprocess.run(run, env=s.env, check=True, stdout=subprocess.DEVNULL, stderr=s.log)


run_once()
(root / "cat/2.png").unlink()
run_once()
names = sorted(str(p.relative_to(root)) for p in root.glob("*/*.png"))
rows = sqlite3.connect(Path(directory, "run", "samples.db")).execute("SELECT name FROM sample WHERE standing = 1 ORDER BY name").fetchall()
check("run forgets what was deleted", [r[0] for r in rows], names)
for options, said in ((["--data", f"watch:{root}"], "expected submitted, watch:DIR,sync, redis: or kafka:"),
                      (["--data", f"watch:{root},sync", "--model", "a=a", "--model", "b=b"], "only one can learn a directory")):
    got = subprocess.run([streamfp, "serve", *(["--out", "x"] if "--model" not in options else []), *options],
                         cwd=directory, env=s.env, capture_output=True, text=True)
    check(f"refused: {said}, {got.stderr}", (got.returncode != 0, said in got.stderr), (True, True))
print("serve/sync: ok")
