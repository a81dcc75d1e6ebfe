#!/usr/bin/env python3
"""Draws the measurements of tests/run/soak: soak_plot.py NAME.txt writes NAME-memory.svg and NAME-time.svg.

The columns are timestamps, resident KB, descriptors and processor seconds."""
import sys

import matplotlib
import numpy as np

matplotlib.use("svg")
from matplotlib.figure import Figure

name = sys.argv[1].removesuffix(".txt")
t, memory, _, seconds = np.loadtxt(sys.argv[1], unpack=True)
at = np.unique(np.searchsorted(t, np.linspace(t[0], t[-1], 51)))
for what, unit, x, y in (
    ("memory", "MB", t[at], memory[at] / 1024),
    ("time", "µs of processor time per timestamp", t[at][1:], 1e6 * np.diff(seconds[at]) / np.diff(t[at])),
):
    figure = Figure(figsize=(7.2, 3), layout="constrained")
    axes = figure.subplots()
    axes.plot(x, y)
    axes.set(xlabel="timestamps", ylabel=unit)
    figure.savefig(f"{name}-{what}.svg")
