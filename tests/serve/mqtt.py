#!/usr/bin/env python3
"""Images, answers and labels over MQTT, with a broker that is restarted and a service that is killed: each image is one sample.

    tests/serve/mqtt.py STREAMFP MKFILE

The broker is restarted twice, with SFP_LONG=1 20 times.
"""

import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import client
from client import Server, begin, die_with_parent, images

broker_program = shutil.which("mosquitto") or shutil.which("/usr/sbin/mosquitto")
try:
    from paho.mqtt import client as mqtt
except ImportError:
    mqtt = None
if not broker_program or not mqtt:
    print("mosquitto or python3-paho-mqtt is not installed")
    sys.exit(77)
streamfp, mkfile, directory = begin("serve/mqtt")
pictures = images(400)


def check(what, got, expected):
    if got != expected:
        sys.exit(f"serve/mqtt: {what}: got {got!r}, expected {expected!r}\n" + Path(directory, "log").read_text()[-2000:])


with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = free.getsockname()[1]
Path(directory, "mosquitto.conf").write_text(
    f"listener {port} 127.0.0.1\nallow_anonymous false\npassword_file {directory}/passwords\npersistence true\n"
    f"persistence_location {directory}/\nmax_queued_messages 0\nuser {os.environ.get('USER', 'root')}\n")
Path(directory, "passwords").write_text("me:secret word\n")
subprocess.run([str(Path(broker_program).parent.parent / "bin/mosquitto_passwd"), "-U", f"{directory}/passwords"], check=True)
Path(directory, "login").write_text("me:secret word\n")


def start_broker():
    return subprocess.Popen([broker_program, "-c", f"{directory}/mosquitto.conf"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
                            preexec_fn=die_with_parent)


class Client:
    """Sees everything that is told, and publishes with QoS 1."""

    def __init__(self, name):
        self.told, self.done, self.sent, self.lock = [], set(), [], threading.Lock()
        self.client = mqtt.Client(client_id=name, clean_session=True)
        self.client.username_pw_set("me", "secret word")
        self.client.reconnect_delay_set(1, 1)
        self.client.max_queued_messages_set(0)
        self.client.on_connect = lambda c, *_: c.subscribe([("streamfp/#", 1), ("homeassistant/#", 1)])
        self.client.on_message = lambda c, u, m: self.told.append((m.topic, m.payload, m.retain))
        self.client.on_publish = lambda c, u, mid: self.done.add(mid)
        while True:
            try:
                self.client.connect("127.0.0.1", port)
                break
            except OSError:
                time.sleep(0.05)  # the broker does not listen yet
        self.client.loop_start()

    def send(self, topic, payload, retain=False):
        self.sent.append(self.client.publish(topic, payload, 1, retain).mid)

    def last(self, topic):
        return next((p for t, p, _ in reversed(self.told) if t == topic), None)

    def all_sent(self):
        return all(mid in self.done for mid in self.sent)


def count(s):
    return len(s.get("/v1/samples?limit=1000")[1]["samples"])


broker = start_broker()
me = Client("test")
s = Server(streamfp, mkfile, directory, "--mqtt", f"127.0.0.1:{port}", "--mqtt-topic", "cam/+/snapshot", "--mqtt-topic", "train/{label}",
           "--mqtt-login", f"{directory}/login", "--mqtt-agree", "2/3", "--mqtt-threshold", "0.01", "--keep-images", "1")
s.start()
s.wait_until(lambda: me.last("streamfp/available") == b"online")
for i in range(8):
    me.send(f"train/{'cup' if i % 2 else 'bowl'}", pictures[i])
    me.send(f"train/{'cup' if i % 2 else 'bowl'}", pictures[i])  # it arrives at least once
s.wait_until(lambda: s.get("/v1/status")[1]["samples"]["learned"] == 8)
check("an image that arrives twice is one sample", count(s), 8)

# answers, only when they change
def answer(data):
    p = s.post("/v1/predict", data)[1]["predictions"][0]
    return "unknown" if p["is_unknown"] else p["classes"][0]["name"]


front = "streamfp/model/front"
answers = {}
for i in range(300, 400):
    answers.setdefault(answer(pictures[i]), []).append(pictures[i])
(first, shown), (second, others) = sorted((k, v) for k, v in answers.items() if len(v) > 1)[-2:]
shown = [shown[0], shown[1], others[0], others[1]]
me.send("cam/front/snapshot", b"no image")
for n, picture in enumerate(shown):
    me.send("cam/front/snapshot", picture)
    s.wait_until(lambda: count(s) == 9 + n)
s.wait_until(lambda: me.last(f"{front}/class") == second.encode())
check("answers are told when they change", [p for t, p, _ in me.told if t == f"{front}/class"], [first.encode(), second.encode()])
told = json.loads(me.last(f"{front}/attributes"))
check("with their details", (told["sample"], sorted(told)), (11, ["answer", "class", "probability", "sample"]))
check("what is no image is reported", "a message on topic cam/front/snapshot is ignored" in (s.dir / "log").read_text(), True)

# Home Assistant
config = {k: json.loads(me.last(f"homeassistant/{k}/streamfp_model_front_{w}/config")) for k, w in
          (("sensor", "class"), ("image", "image"), ("select", "label"))}
check("the sensor", (config["sensor"]["state_topic"], config["sensor"]["availability_topic"]), (f"{front}/class", "streamfp/available"))
check("the image", (config["image"]["content_type"], me.last(config["image"]["image_topic"])), ("image/png", shown[0]))
check("one device", {tuple(c["device"]["identifiers"]) for c in config.values()}, {("streamfp_model",)})
check("the select", (config["select"]["options"], me.last(config["select"]["state_topic"])), (["bowl", "cup"], b"None"))
me.send(config["select"]["command_topic"], "plate")
s.wait_until(lambda: s.get("/v1/samples/8")[1]["learned"] == "plate")
s.wait_until(lambda: me.last(f"{front}/label") == b"plate")
s.wait_until(lambda: json.loads(me.last("homeassistant/select/streamfp_model_front_label/config"))["options"] == ["bowl", "cup", "plate"])
me.send("cam/front/snapshot", pictures[8])
s.wait_until(lambda: me.last(f"{front}/image") == pictures[8] and me.last(f"{front}/label") == b"None")
retained = me.last(f"{front}/class")

# restarts of the broker, and a kill of the service
total, next_image = count(s), 10
rounds = 20 if os.environ.get("SFP_LONG") else 2
for r in range(rounds):
    for k in range(12):
        if k == 4:
            broker.terminate()
            broker.wait()
        if k == 8:
            broker = start_broker()
        if k == 10 and r % 2:
            s.kill()
            s.start()
        picture = pictures[next_image]
        next_image += 1
        me.send("cam/yard/snapshot", picture)
        if k % 3 == 0:
            me.send("cam/yard/snapshot", picture)
    s.wait_until(me.all_sent)
    total += 12
    s.wait_until(lambda: count(s) == total, 90)
    if r % 2:
        s.wait_until(lambda: me.last("streamfp/available") == b"online")
check("each image is one sample", count(s), total)

# an image that cannot be stored now is not acknowledged, and comes again
client.EDGE = 256
large = images(8, 5000)
check("a pause", s.post("/v1/pause")[0], 200)
stored = 0
while s.post("/v1/samples?label=large", large[stored])[0] == 201:
    stored += 1
me.send("train/large", large[-1])
s.wait_until(lambda: "an image cannot be stored now" in (s.dir / "log").read_text())
check("nothing is stored", count(s), total + stored)
check("the end of the pause", s.post("/v1/resume")[0], 200)
total += stored + 1
s.wait_until(lambda: count(s) == total)

# what a client sees that comes later; the end of the service
later = Client("later")
s.wait_until(lambda: later.last(f"{front}/class") and later.last("streamfp/available"))
check("answers are retained", (later.last(f"{front}/class"), later.last("streamfp/available"), {r for t, _, r in later.told if t == f"{front}/class"}), (retained, b"online", {True}))
s.kill()
end = time.monotonic() + 30
while later.last("streamfp/available") != b"offline" and time.monotonic() < end:
    time.sleep(0.02)
check("a killed service is offline", later.last("streamfp/available"), b"offline")
s.start()
s.wait_until(lambda: later.last("streamfp/available") == b"online")
check("it ends", s.stop(), 0)
end = time.monotonic() + 30
while later.last("streamfp/available") != b"offline" and time.monotonic() < end:
    time.sleep(0.02)
check("and says so", later.last("streamfp/available"), b"offline")
for options, said in ((["--mqtt", "h:0", "--mqtt-topic", "a"], "expected HOST or HOST:PORT"), (["--mqtt", "h"], "mqtt-topic is missing"),
                      (["--mqtt", "h", "--mqtt-topic", "a/b#"], "expected at most 64 patterns"), (["--mqtt-topic", "a"], "mqtt is missing"),
                      (["--mqtt", "h", "--mqtt-topic", "streamfp/a"], "do not begin with streamfp/"),
                      (["--mqtt", "h", "--mqtt-topic", "a", "--mqtt-agree", "3/2"], "expected K/N"),
                      (["--mqtt", "h", "--mqtt-topic", "a", "--mqtt-login", f"{directory}/mosquitto.conf"], "one line USER:PASSWORD"),
                      (["--mqtt", "h", "--mqtt-topic", "a", "--model", "x=x", "--model", "y=y"], "expected MODEL=PATTERN")):
    got = subprocess.run([streamfp, "serve", "--listen", "127.0.0.1:0", *(["--out", "x"] if "--model" not in options else []), *options],
                         cwd=directory, env=s.env, capture_output=True, text=True, timeout=60)
    check(f"refused: {said}: {got.stderr}", (got.returncode != 0, said in got.stderr), (True, True))
broker.terminate()
print(f"serve/mqtt: {total} images, {rounds} restarts of the broker")
