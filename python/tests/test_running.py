"""Runs, evaluations and what they write."""

import json
from pathlib import Path
from typing import List

import pytest

import streamfp


def run(**settings: object) -> streamfp.Run:
    return streamfp.Run(**{"data": "folder:photos", "test": "folder:photos", "batch": 4, "tasks": 1, "method": "ncm", **settings})


def test_a_run_learns_reports_and_writes(photos: object) -> None:
    seen: List[streamfp.Progress] = []
    with run(out="run", progress=seen.append) as one:
        assert one.batches() == (6, 24) == one.batches(0) and one.batches(9) == (0, 0)
        result = one.finish()
    assert result["samples"]["offered"] == 24 and result["finished"]
    assert json.loads(Path("run/result.json").read_text())["average_accuracy"] == result["average_accuracy"]
    assert max(progress.offered for progress in seen) == 24 == seen[-1].total


def test_a_run_is_measured_stepped_cancelled_and_resumed(photos: object) -> None:
    with run(out="run") as one:
        assert one.measure() > 0
        assert one.step()
        one.cancel()
        assert not one.finish()["finished"]
    with run(out="run", resume=True) as one:
        result = one.finish()
    assert result["finished"] and result["samples"]["offered"] == 24


def test_a_failure_of_the_callback_ends_the_step(photos: object) -> None:
    def fail(progress: streamfp.Progress) -> None:
        raise LookupError("mine")

    with run(progress=fail) as one, pytest.raises(LookupError, match="mine"):
        one.finish()


def test_ctrl_c_ends_a_run_with_a_checkpoint(photos: object) -> None:
    def interrupt(progress: streamfp.Progress) -> None:
        if progress.offered == 8 and not progress.to_evaluate:
            raise KeyboardInterrupt

    with run(out="run", progress=interrupt) as one:
        with pytest.raises(KeyboardInterrupt):
            one.finish()
        assert not one.result["finished"]
    assert run(out="run", resume=True).finish()["finished"]


def test_an_evaluation_has_every_number(photos: object) -> None:
    run(out="run").finish()
    evaluation = streamfp.evaluate("run", "folder:photos", limit=5)
    assert evaluation.images == 5
    evaluation = streamfp.evaluate("run", "folder:photos")
    assert (evaluation.images, evaluation.skipped, evaluation.unknown) == (24, 0, 0)
    assert [row.name for row in evaluation.classes] == ["bowl", "mug", "plate"] and evaluation.classes[0].images == 8
    assert evaluation.confusion is not None and evaluation.confusion.sum() == 24
    assert evaluation.accuracy == evaluation.confusion.trace() / 24
    with pytest.raises(streamfp.Error, match="none"):
        streamfp.evaluate("run", "folder:none")


def test_a_run_is_read_as_data_frames(photos: object) -> None:
    pytest.importorskip("pandas")
    run(out="run").finish()
    with open("run/events.jsonl", "a") as file:
        file.write('{"cut')
    recorded = streamfp.read_run("run")
    assert recorded.result.shape[0] == 1 and recorded.result["samples.offered"][0] == 24
    assert recorded.events["t"].tolist() == list(range(6)) and recorded.events["seconds.total"].sum() > 0
    with pytest.raises(FileNotFoundError):
        streamfp.read_run("none")


def test_without_pandas_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(ImportError, match="python3-pandas"):
        streamfp.read_run("run")


def test_a_directory_that_no_workers_share_is_refused() -> None:
    with pytest.raises(streamfp.NotFound, match="expected the --share directory of a run"):
        streamfp.merge_share("nowhere", "sum.safetensors")
    with pytest.raises(streamfp.InvalidArgument, match="min-count is 5"):
        streamfp.merge_share("nowhere", "sum.safetensors", min_count=5)
