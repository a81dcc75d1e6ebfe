#!/usr/bin/env python3
"""The cost model of docs/scale.md, and a simulation of many workers: arrivals, commits, kills, zombies and merges.

    bench/scale_simulation.py [--constants FILE] [--rate 4050,583000] [--workers 10000] [--hours 1] [--seed 1] [--svg FILE]

FILE is a line of bench/scale; without it the constants are those of docs/scale.md. The model says how many workers, brokers and bytes a rate
needs. The simulation plays the protocol with events (a heap of times): a worker learns what waits, and commits every interval what it still
owns; it is killed and starts again, or sleeps for longer than the claim time and is fenced. It checks that every message is counted once,
and prints the share of the work that was done twice and the age of what is not committed. --svg draws the curve of the model instead: cores,
brokers for images and for features, and the seconds of a merge, over the rate. Standard library only."""
import argparse
import heapq
import json
import math
import random
import sys

CONSTANTS = {"one_worker": 73.0, "add_seconds": 0.022, "state_bytes": 16.7e6, "image_bytes": 21e3}
BROKER_BYTES = 150e6  # per second that one broker takes in and gives out
FEATURE_BYTES = 1344 * 2  # of a row of float16: half of the blocks of ViT-Ti and the mean tap
MERGE_SECONDS = 600


def model(rate, c):
    """The resources for so many images per second. Workers have a reserve of a fifth."""
    workers = -(-rate * 1.2 // c["one_worker"])
    images, features = rate * c["image_bytes"], rate * FEATURE_BYTES
    return {"images_per_second": rate, "workers": int(workers), "image_MB_per_second": round(images / 1e6, 1),
            "brokers": int(-(-images // BROKER_BYTES)), "feature_MB_per_second": round(features / 1e6, 1),
            "brokers_for_features": int(-(-features // BROKER_BYTES)), "merge_seconds_one_core": round(workers * c["add_seconds"], 1),
            "merge_read_MB_per_second": round(workers * c["state_bytes"] / MERGE_SECONDS / 1e6, 1), "state_GB": round(workers * c["state_bytes"] / 1e9, 1)}


def simulate(workers, hours, c, seed, load=0.8, commit=2.0, claim=60.0, kill_every=6 * 3600.0, zombie_every=24 * 3600.0, zombie_sleep=90.0,
             restart=20.0):
    """Messages are counted in bulk: what a worker holds is a number. A claim moves it to a worker that is drawn at random."""
    rng = random.Random(seed)
    speed, arrival = c["one_worker"], c["one_worker"] * load
    end = hours * 3600
    events, state = [], []
    for w in range(workers):
        state.append({"epoch": 0, "held": 0.0, "committed": 0.0})
        heapq.heappush(events, (rng.uniform(0, commit), w, "commit", 0))
        heapq.heappush(events, (rng.expovariate(1 / kill_every), w, "kill", 0))
        heapq.heappush(events, (rng.expovariate(1 / zombie_every), w, "sleep", 0))
    produced = learned = twice = fenced = kills = 0.0
    pending = 0.0  # of workers that are gone, until others claim it
    oldest = 0.0
    backlog, last = 0.0, 0.0
    while events:
        now, w, what, epoch = heapq.heappop(events)
        if now > end:
            break
        s = state[w]
        produced += workers * arrival * (now - last)  # what arrives waits in the log
        backlog += workers * arrival * (now - last)
        last = now
        if what == "commit" and epoch == s["epoch"]:
            s["committed"] += s["held"]
            s["held"] = 0.0
            took = min(backlog, speed * commit)
            backlog -= took
            s["held"] = took
            learned += took
            heapq.heappush(events, (now + commit, w, "commit", epoch))
        elif what == "kill":
            heapq.heappush(events, (now + rng.expovariate(1 / kill_every), w, "kill", 0))
            kills += 1
            s["epoch"] += 1
            heapq.heappush(events, (now + claim, w, "claim", s["held"]))
            pending += s["held"]
            twice += s["held"]
            s["held"] = 0.0
            heapq.heappush(events, (now + restart, w, "commit", s["epoch"]))
        elif what == "sleep":
            heapq.heappush(events, (now + rng.expovariate(1 / zombie_every), w, "sleep", 0))
            s["epoch"] += 1
            heapq.heappush(events, (now + claim, w, "claim", s["held"]))
            pending += s["held"]
            twice += s["held"]
            fenced += s["held"] > 0  # its commit after the sleep is refused as a whole
            s["held"] = 0.0
            heapq.heappush(events, (now + zombie_sleep, w, "commit", s["epoch"]))
        elif what == "claim":  # epoch is the number of messages
            pending -= epoch
            backlog += epoch
            oldest = max(oldest, claim)
    counted = sum(s["committed"] for s in state)
    held = sum(s["held"] for s in state)
    error = abs(produced - counted - held - pending - backlog) / max(1, produced)
    return {"workers": workers, "hours": hours, "messages": round(produced), "kills": round(kills), "fenced_commits": round(fenced),
            "learned_twice_percent": round(100 * twice / max(1, learned), 3), "backlog_seconds": round(backlog / (workers * arrival), 2),
            "longest_wait_of_a_message_seconds": round(oldest + commit, 1), "counting_error": error}


def draw(path, c, marks):
    """Four lines over 10 to 1,000,000 images per second, both axes logarithmic."""
    left, top, width, height, low, high, bottom, ceiling = 60, 20, 560, 300, 1, 6, -1, 5
    rows = [("cores", "workers", "#1f4e79"), ("merge, seconds of one core", "merge_seconds_one_core", "#7f7f7f"),
            ("brokers, images", "brokers", "#c0392b"), ("brokers, features", "brokers_for_features", "#e08e0b")]

    def at(rate, value):
        x = left + width * (math.log10(rate) - low) / (high - low)
        return "%.1f,%.1f" % (x, top + height * (ceiling - max(bottom, math.log10(max(value, 1e-9)))) / (ceiling - bottom))

    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 820 370" font-family="sans-serif" font-size="12">',
           '<rect width="820" height="370" fill="white"/>']
    for k in range(low, high + 1):
        x, y = at(10.0**k, 10.0**bottom).split(",")
        out.append('<path d="M%s %s V%d" stroke="#ddd"/><text x="%s" y="%d" text-anchor="middle">%s</text>' %
                   (x, y, top, x, top + height + 18, f"{10**k:,}"))
    for k in range(bottom, ceiling + 1):
        x, y = at(10.0**low, 10.0**k).split(",")
        out.append('<path d="M%s %s H%d" stroke="#ddd"/><text x="%d" y="%s" dy="4" text-anchor="end">%s</text>' %
                   (x, y, left + width, left - 6, y, f"{10**k:,}" if k >= 0 else "0.1"))
    for i, (name, key, colour) in enumerate(rows):
        points = " ".join(at(10**(low + (high - low) * n / 100), model(10**(low + (high - low) * n / 100), c)[key]) for n in range(101))
        out.append('<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>' % (points, colour))
        out.append('<text x="%d" y="%d" fill="%s">%s</text>' % (left + width + 10, top + 20 + 20 * i, colour, name))
    for rate in marks:
        x, y = at(rate, model(rate, c)["workers"]).split(",")
        out.append('<circle cx="%s" cy="%s" r="4" fill="#1f4e79"/><text x="%s" y="%s" dx="-8" dy="-8" text-anchor="end">%s/s: %s cores</text>' %
                   (x, y, x, y, f"{rate:,.0f}", f"{model(rate, c)['workers']:,}"))
    out.append('<text x="%d" y="%d" text-anchor="middle">images per second</text></svg>' % (left + width // 2, top + height + 38))
    with open(path, "w") as f:
        f.write("\n".join(out) + "\n")


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--constants")
    p.add_argument("--rate", default="4050,583000")
    p.add_argument("--workers", type=int, default=10000)
    p.add_argument("--hours", type=float, default=1)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--svg")
    a = p.parse_args()
    c = dict(CONSTANTS)
    if a.constants:
        with open(a.constants) as f:
            c.update(json.load(f))
    for rate in a.rate.split(","):
        print(json.dumps(model(float(rate), c)))
    if a.svg:
        draw(a.svg, c, [float(rate) for rate in a.rate.split(",")])
        return
    result = simulate(a.workers, a.hours, c, a.seed)
    print(json.dumps(result))
    sys.exit(result["counting_error"] > 1e-6)


if __name__ == "__main__":
    main()
