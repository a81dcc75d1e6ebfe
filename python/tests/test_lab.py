"""The laboratory: a small experiment that is stopped, shared, repeated and damaged."""

from __future__ import annotations

import contextlib
import json
import math
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("pandas")
pytest.importorskip("scipy")
pytest.importorskip("matplotlib")
pytest.importorskip("jinja2")
if "STREAMFP" not in os.environ:
    pytest.skip("STREAMFP does not name the program", allow_module_level=True)

import streamfp  # noqa: E402
from streamfp.lab import statistics as st  # noqa: E402
from streamfp.lab.catalogue import choose, experiments, limit, paper_figures, sweep  # noqa: E402
from streamfp.lab.cells import DONE, WAITING, Plan  # noqa: E402
from streamfp.lab.claims import claims  # noqa: E402
from streamfp.lab.claims import test_claims as judge  # noqa: E402
from streamfp.lab.costs import MEASUREMENTS, Costs, Stream  # noqa: E402
from streamfp.lab.errors import LabError  # noqa: E402
from streamfp.lab.output import to_latex  # noqa: E402
from streamfp.lab.results import Results  # noqa: E402

SMALL = ["--data", "synthetic:120", "--tasks", "3", "--img-size", "16", "--eval-limit", "10", "--threads", "1", "--batch", "10"]
GRID = ["--grid", "method=ncm,slda", "--grid", "taps=1,2", "--seeds", "2"]


# A command is forked from a process that has imported its modules already: importing them takes longer than most of the commands.
SERVER = multiprocessing.get_context("forkserver")
SERVER.set_forkserver_preload(["streamfp.lab.commands", "streamfp.lab.output", "streamfp.lab.compare", "matplotlib.pyplot", "scipy.stats", "pytest"])


def execute(name: str, arguments: list[str], cwd: Path, environment: dict[str, str]) -> None:
    from streamfp.lab import commands

    for stream, file in ((1, "stdout"), (2, "stderr")):
        os.dup2(os.open(cwd / file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), stream)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = [f"streamfp-{name}", *arguments]
    sys.exit(getattr(commands, name)())


def start(name: str, *arguments: str, cwd: Path) -> multiprocessing.process.BaseProcess:
    process = SERVER.Process(target=execute, args=(name, list(arguments), cwd, {**os.environ, "STREAMFP_REGISTRY": str(cwd / "runs.db")}))
    process.start()
    return process


def lab(name: str, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    process = start(name, *arguments, cwd=cwd)
    process.join()
    return subprocess.CompletedProcess(arguments, process.exitcode, (cwd / "stdout").read_text(), (cwd / "stderr").read_text())


def numbers(out: Path) -> dict[tuple[str, ...], dict[str, float]]:
    cells = json.loads((out / "results.json").read_text())["cells"]
    return {
        (c["experiment"], c["row"], c["column"], str(c["repetition"])): {k: v for k, v in c["values"].items() if k != "Runtime"}
        for c in cells
    }


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("whole")
    done = lab("sweep", *GRID, *SMALL, "--out", "s", cwd=out)
    assert done.returncode == 0, done.stderr
    assert "sweep" in done.stdout
    return out / "s"


def test_all_outputs_are_written(whole: Path) -> None:
    for name in ("index.html", "results.json", "tables/sweep.csv", "tables/sweep.md", "tables/sweep.tex", "tables/sweep.svg"):
        assert (whole / name).stat().st_size > 0
    assert len(numbers(whole)) == 8
    assert all(math.isfinite(v["Acc"]) for v in numbers(whole).values())


def test_shards_of_several_jobs_join_to_the_whole(whole: Path, tmp_path: Path) -> None:
    for i in (1, 2):
        done = lab("sweep", *GRID, *SMALL, "--out", "s", "--jobs", "2", "--shard", f"{i}/2", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
    assert numbers(tmp_path / "s") == numbers(whole)


def test_a_killed_execution_continues_and_runs_no_cell_twice(whole: Path, tmp_path: Path) -> None:
    for kills in range(1, 4):
        process = start("sweep", *GRID, *SMALL, "--out", "s", cwd=tmp_path)
        while process.is_alive() and len(list(tmp_path.glob("s/cells/*/result.json"))) < 2 * kills:
            time.sleep(0.01)
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL if kills % 2 else signal.SIGINT)
        process.join()
    finished = {p: p.stat().st_mtime_ns for p in tmp_path.glob("s/cells/*/result.json")}
    done = lab("sweep", *GRID, *SMALL, "--out", "s", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert numbers(tmp_path / "s") == numbers(whole)
    assert all(p.stat().st_mtime_ns == t for p, t in finished.items())


def test_other_data_is_run_again(tmp_path: Path) -> None:
    for samples in ("60", "90"):
        assert lab("sweep", "--grid", "method=ncm", "--seeds", "1", *SMALL, "--data", f"synthetic:{samples}", "--out", "s", cwd=tmp_path).returncode == 0
    assert len(list(tmp_path.glob("s/cells/*/result.json"))) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "colour=1,2"], "there is no option colour"),
        (["--grid", "taps=1,1"], "given twice"),
        (["--grid", "seed=1,2"], "set by the sweep"),
        (["--grid", "taps"], "expected KEY=VALUE"),
        ([], "no grid"),
        (["--grid", "taps=1,2", "--sigmas", "1"], "unknown option --sigmas"),
        (["--grid", "taps=1,-7"], "taps"),
    ],
)
def test_a_wrong_command_line_is_one_sentence(arguments: list[str], message: str, tmp_path: Path) -> None:
    done = lab("sweep", *arguments, *SMALL, "--out", "s", cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "s").exists()


def test_a_damaged_cell_is_reported_and_not_replaced(whole: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", str(whole), str(tmp_path / "s")], check=True)
    damaged = sorted(tmp_path.glob("s/cells/*/result.json"))[0]
    damaged.write_text("{")
    done = lab("sweep", *GRID, *SMALL, "--out", "s", cwd=tmp_path)
    assert done.returncode == 2
    assert str(damaged.relative_to(tmp_path)) in done.stderr
    assert damaged.read_text() == "{"


def test_files_of_others_are_not_replaced(tmp_path: Path) -> None:
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "index.html").write_text("mine")
    done = lab("sweep", *GRID, *SMALL, "--out", "s", cwd=tmp_path)
    assert done.returncode == 2
    assert (tmp_path / "s" / "index.html").read_text() == "mine"


def test_an_experiment_has_tables_and_verdicts(tmp_path: Path) -> None:
    small = [*SMALL, "--orders", "1", "--seeds", "1", "--calibrate", "1", "--pool=4", "--prompt-length=2"]
    done = lab("experiment", "E5", *small, "--out", "e", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "e" / "results.json").read_text())
    assert {c["state"] for c in found["cells"]} <= {"done", "starved"}
    claim = next(c for c in found["claims"] if c["number"] == 10)
    assert claim["verdict"] == st.OPEN  # one repetition decides nothing
    again = lab("experiment", "E5", *small, "--out", "e", "--check", str(tmp_path / "e" / "results.json"), cwd=tmp_path)
    assert again.returncode == 0, again.stderr


def test_runs_are_compared(whole: Path, tmp_path: Path) -> None:
    runs = [str(p.parent) for p in sorted(whole.glob("cells/*/result.json"))]
    for form, text in (("--latex", r"\toprule"), ("--markdown", "|---|"), ("--csv", "half width")):
        done = lab("compare", *runs, form, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        assert text in done.stdout and "taps 2, method ncm" in done.stdout
    assert lab("compare", *runs, "--plot", "p.png", "--html", "p.html", cwd=tmp_path).returncode == 0
    assert (tmp_path / "p.png").read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("version", "message"),
    [("", "run old: not found"), ("0.1.0", "is missing")],
)
def test_runs_that_cannot_be_compared_are_one_sentence(version: str, message: str, whole: Path, tmp_path: Path) -> None:
    if version:
        (tmp_path / "old").mkdir()
        (tmp_path / "old" / "result.json").write_text(json.dumps({"version": version}))
    done = lab("compare", str(next(whole.glob("cells/*/"))), "old", "--html", "p.html", cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert message in done.stderr
    assert not (tmp_path / "p.html").exists()


def test_results_of_another_version_are_not_replaced(whole: Path, tmp_path: Path) -> None:
    subprocess.run(["cp", "-r", str(whole), str(tmp_path / "s")], check=True)
    results = tmp_path / "s" / "results.json"
    text = results.read_text().replace(streamfp.__version__, "0.1.0")
    results.write_text(text)
    done = lab("sweep", *GRID, *SMALL, "--out", "s", cwd=tmp_path)
    assert done.returncode == 2 and "version 0.1.0" in done.stderr
    assert results.read_text() == text


def test_another_program_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "other").write_text("#!/bin/sh\necho streamfp 0.1.0\n")
    (tmp_path / "other").chmod(0o755)
    for program, message in ((tmp_path / "other", "is streamfp 0.1.0, expected"), (tmp_path / "none", "No such file")):
        monkeypatch.setenv("STREAMFP", str(program))
        done = lab("sweep", *GRID, *SMALL, "--out", "s", cwd=tmp_path)
        assert done.returncode == 2 and message in done.stderr
        assert not (tmp_path / "s").exists()


def test_a_missing_package_is_one_sentence(tmp_path: Path) -> None:
    script = "import importlib.util as u, sys; f = u.find_spec; u.find_spec = lambda n: None if n == 'scipy' else f(n); "
    script += "from streamfp.lab.commands import sweep; sys.exit(sweep())"
    done = subprocess.run([sys.executable, "-c", script, "--grid", "taps=1,2"], capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "pip install scipy, or apt-get install python3-scipy" in done.stderr


def test_the_program_finds_the_commands() -> None:
    """`streamfp sweep` executes streamfp-sweep, which is beside it in the build."""
    done = subprocess.run([os.environ["STREAMFP"], "sweep", "--grid", "colour=1"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("streamfp: grid is 'colour=1', but there is no option colour")


# ------------------------------------------------------------------------------------------------------------- data, numbers


def test_every_claim_names_rows_and_metrics_that_exist() -> None:
    assert [c["number"] for c in claims()] == list(range(1, 22))
    for check in (check for c in claims() for check in c["checks"]):
        e = experiments()[check["experiment"]]
        assert check["metric"] in [m.name for m in e.metrics], check
        rows = [r.name for r in e.rows]
        assert all(check[k] in rows for k in ("a", "b") if k in check), check


def verdicts_of(name: str, numbers: dict[tuple[str, str, str], float], rows: str = "", repetitions: int = 20) -> dict[int, str]:
    """Verdicts of an experiment whose cells have these means (row, column, metric), with a little noise."""
    chosen = limit(choose(name), rows, "")
    plan = Plan(Path("none"), {}, repetitions, 0, 1, False, {})
    cells = plan.cells(chosen)
    noise = np.random.default_rng(0).normal(0, 0.001, (len(cells), 10))
    for cell, n in zip(cells, noise):
        means = {m.name: numbers.get((cell.row.name, cell.column.name, m.name)) for m in cell.experiment.metrics}
        cell.values = {m: mean + e for (m, mean), e in zip(means.items(), n) if mean is not None}
        cell.state = DONE if cell.values else WAITING
    return {v.number: v.verdict for v in judge(Results(plan, chosen, cells, "Stream-51"))}


def test_a_claim_needs_every_check_every_method_and_enough_repetitions() -> None:
    selectors = [r.name for r in experiments()["E1-select"].rows]
    better = {(r, "equal time", "Acc"): 0.5 if r.startswith("StreamFP") else 0.4 for r in selectors}
    assert verdicts_of("E1-select", better)[4] == st.HOLDS
    assert verdicts_of("E1-select", better, repetitions=19)[4] == st.OPEN
    assert verdicts_of("E1-select", better, rows="StreamFP (w/o buffer);Camel")[4] == st.OPEN  # others were not run
    worse = {**better, ("Camel", "equal time", "Acc"): 0.47}
    assert verdicts_of("E1-select", worse, rows="StreamFP (w/o buffer);Camel")[4] == st.FAILS


def test_a_claim_about_several_columns_fails_if_one_fails() -> None:
    lower = {("StreamFP", "lambda 6028", "Acc"): 0.4, ("ER*", "lambda 6028", "Acc"): 0.5}
    assert verdicts_of("E3", lower)[1] == st.FAILS  # the other columns were not run
    assert verdicts_of("E3", {k: 0.9 - v for k, v in lower.items()})[1] == st.OPEN


def test_forgetting_must_be_lower() -> None:
    def found(forgetting: float) -> str:
        own = {("StreamFP", "equal time", "Acc"): 0.5, ("StreamFP", "equal time", "Fgt"): forgetting}
        return verdicts_of("E1-buffer", {**own, ("ER", "equal time", "Acc"): 0.4, ("ER", "equal time", "Fgt"): 0.2})[6]

    assert found(0.1) == st.HOLDS
    assert found(0.3) == st.FAILS


def test_a_quantity_of_one_run_decides_nothing() -> None:
    cosines = {("StreamFP", "", m): 0.05 for m in ("Fp cos", "Head cos")}
    assert verdicts_of("A1", cosines)[15] == st.HOLDS
    assert verdicts_of("A1", cosines, repetitions=1)[15] == st.OPEN


def test_rows_and_columns_are_chosen_by_name() -> None:
    chosen = limit(choose("E3,E2"), "StreamFP;ER*", "lambda 6028")
    assert [(e.name, [r.name for r in e.rows], [c.name for c in e.columns]) for e in chosen] == [
        ("E3", ["StreamFP", "ER*"], ["lambda 6028"]),
        ("E2", ["StreamFP", "ER*"], [""]),
    ]
    with pytest.raises(LabError, match="rows: no experiment has 'ERR'"):
        limit(choose("E3"), "ERR", "")


def test_figures_of_the_paper_have_rows() -> None:
    for e in experiments().values():
        if e.paper:
            named = set(paper_figures().loc[e.paper].index.get_level_values("row"))
            assert len(named & {r.name for r in e.rows}) >= 2, e.name


def test_experiments_are_chosen_by_name() -> None:
    assert [e.name for e in choose("E1,E9")] == ["E1-select", "E1-buffer", "E9"]
    with pytest.raises(LabError, match="unknown experiment"):
        choose("E99")


def test_a_grid_makes_rows_and_columns() -> None:
    e = sweep(["a=1,2", "b=x,y", "c=3,4"], {"a", "b", "c"})
    assert [r.name for r in e.rows] == ["a 1, b x", "a 1, b y", "a 2, b x", "a 2, b y"]
    assert [c.name for c in e.columns] == ["c 3", "c 4"]
    assert e.numeric_columns


def test_a_metric_without_values_has_no_column() -> None:
    e = sweep(["taps=1,2"], {"taps"})
    cells = Plan(Path("none"), {}, 1, 0, 1, False, {}).cells([e])
    for cell in cells:
        cell.values, cell.state = {"Acc": 0.5, "Fgt": math.nan}, DONE  # one task: nothing can be forgotten
    table = Results(Plan(Path("none"), {}, 1, 0, 1, False, {}), [e], cells, "").table(e)
    assert list(table.columns) == ["Acc"]
    assert to_latex(table, "", "t").startswith("% needs \\usepackage{booktabs}\n\\begin{table}")


def test_the_rate_leaves_the_wanted_batches() -> None:
    stream = Stream(samples=20000, task_batches=(200, 200, 200, 200, 200))
    for wanted in (18, 37, 92):
        kept = stream.kept(stream.skip_for(wanted))
        assert wanted <= sum(kept) <= wanted + 5
        assert min(kept) >= 2


def test_a_time_is_measured_with_the_tasks_of_the_cell(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measured: list[int] = []

    def measure(run: streamfp.Run) -> float:
        measured.append(len(run.result["task_names"]))
        return 0.01 * measured[-1]

    monkeypatch.setattr(streamfp.Run, "measure", measure)
    values = {"data": "synthetic:60", "img-size": "16", "threads": "1", "preset": "paper", "within": "class", "order": "authors:2", "seed": "3"}
    costs = Costs(tmp_path / "costs.json", 5, lambda _: None)
    assert costs.seconds({**values, "tasks": "5"}, "five") == pytest.approx(0.05)
    assert costs.seconds({**values, "tasks": "1"}, "one") == pytest.approx(0.01)
    assert measured == [5] * MEASUREMENTS + [1] * MEASUREMENTS
    again = Costs(tmp_path / "costs.json", 5, lambda _: None, measure=False)  # from the file; order and seed have no effect
    assert again.seconds({**values, "tasks": "5", "order": "0", "seed": "1"}, "five") == pytest.approx(0.05)
    assert math.isnan(again.seconds({**values, "tasks": "2"}, "two"))


def test_cells_that_keep_the_same_batches_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seconds = {"streamfp": 0.0100, "random": 0.0099, "camel": 0.0150}
    monkeypatch.setattr(Costs, "times", lambda self, values, name: [seconds[values["select"]]])
    plan = Plan(tmp_path, {"data": "synthetic:2000", "tasks": "2", "img-size": "16", "threads": "1"}, 1, 0, 1, False, {})
    keys = {}
    for cell in plan.cells(limit(choose("E3"), "random selector;Camel", "lambda 6028;lambda 6028, equal batches")):
        plan.prepare(cell, Costs(tmp_path / "costs.json", 1, lambda _: None))
        keys[cell.row.name, cell.column.name] = cell.key
    one, other = "lambda 6028", "lambda 6028, equal batches"
    assert keys["random selector", one] == keys["random selector", other]  # one percent faster: the same number of batches
    assert keys["Camel", one] != keys["Camel", other]


def test_statistics_agree_with_their_definitions() -> None:
    x = [1.0, 2.0, 4.0, math.nan]
    e = st.estimate(x)
    assert (e.n, round(e.mean, 6)) == (3, 2.333333)
    assert math.isclose(e.half, 4.302653 * np.std(x[:3], ddof=1) / math.sqrt(3), rel_tol=1e-6)
    assert st.is_above(st.estimate([0.1] * 19 + [0.2]), 0) == st.HOLDS
    assert st.is_above(st.estimate([0.1, 0.1, 0.2]), 0) == st.OPEN  # too few
    assert st.is_equivalent(st.estimate(np.tile([0.001, -0.001], 10)), 0.01) == st.HOLDS
    assert st.sign_test([2, 2, 2, 2, 2], [1, 1, 1, 1, 1]) == (5, 0, 0.0625)
    assert st.ratio([2.0, 2.0], [1.0, 1.0])[0] == 2.0
    assert st.worst([st.HOLDS, st.OPEN]) == st.OPEN
    assert st.worst([st.OPEN, st.FAILS]) == st.FAILS
