"""Heads on features."""

import pickle
from typing import Any

import numpy as np
import pytest

import streamfp

RNG = np.random.default_rng(3)
ROWS = (RNG.normal(size=(90, 6)) + 4 * np.eye(6)[np.arange(90) % 3]).astype(np.float32)
LABELS = np.arange(90) % 3


def head_of(rows: Any, labels: Any, method: str = "ridge", **options: Any) -> streamfp.Head:
    head = streamfp.Head(method, 6, threads=1, **options)
    head.learn(rows, labels)
    return head


@pytest.mark.parametrize("method", ["ridge", "slda", "ncm", "ranpac"])
def test_every_method_learns(method: str) -> None:
    head = head_of(ROWS, LABELS, method)
    assert (head.method, head.dim, head.samples(), head.samples(1)) == (method, 6, 90, 30)
    scores = head.scores(ROWS)
    assert scores.shape == (90, 3) and (scores.argmax(1) == LABELS).mean() > 0.9
    labels, probabilities = head.predict(ROWS, top=2)
    assert (labels[:, 0] == scores.argmax(1)).all() and (probabilities[:, 0] >= probabilities[:, 1]).all()
    assert head.predict(ROWS[:0])[0].shape == (0, 1) and head.scores(ROWS[:0]).shape == (0, 3)
    assert head.unknown(ROWS).shape == (90,)


def test_rows_of_any_layout() -> None:
    expected = head_of(ROWS, LABELS).scores(ROWS)
    wide = np.zeros((180, 9), np.float32)
    wide[::2, :6] = ROWS
    for rows in (ROWS.astype(np.float64), np.asfortranarray(ROWS), wide[::2, :6], ROWS[::-1].copy()[::-1], ROWS.tolist()):
        assert (head_of(rows, LABELS).scores(rows) == expected).all()
    with pytest.raises(ValueError, match=r"rows have shape \(6,\), expected \(rows, 6\)"):
        head_of(ROWS[0], [0])
    with pytest.raises(ValueError, match="row 1"):
        head_of([[0] * 6, [np.nan] * 6], [0, 1])


def test_forget_merge_and_subtract() -> None:
    whole, first, second = (head_of(ROWS[a:b], LABELS[a:b].astype(str)) for a, b in ((0, 90), (0, 50), (50, 90)))
    first.merge(second)
    assert np.allclose(first.scores(ROWS), whole.scores(ROWS), atol=1e-4)
    first.subtract(second)
    first.learn(ROWS[50:], LABELS[50:].astype(str))
    first.learn(ROWS[:2], ["0", "1"])
    first.forget(ROWS[:2], ["0", "1"])
    assert first.samples() == 90 and np.allclose(first.scores(ROWS), whole.scores(ROWS), atol=1e-4)
    first.merge(first)
    assert first.samples() == 180
    with pytest.raises(streamfp.NotFound):
        head_of(ROWS[:3], LABELS[:3]).forget(ROWS, LABELS)


def test_files_and_pickles_have_the_same_answers() -> None:
    head = head_of(ROWS, ["abc"[i] for i in LABELS])
    head.save("head.safetensors")
    for other in (streamfp.Head.load("head.safetensors", threads=1), pickle.loads(pickle.dumps(head))):
        assert other.classes == ["a", "b", "c"]
        other.learn(ROWS[:1], ["a"])
        again = streamfp.Head.load("head.safetensors", threads=1)
        again.learn(ROWS[:1], ["a"])
        assert (other.scores(ROWS) == again.scores(ROWS)).all()


def test_options_are_those_of_the_library() -> None:
    assert not (head_of(ROWS, LABELS, half_life=5).scores(ROWS) == head_of(ROWS, LABELS).scores(ROWS)).all()
    with pytest.raises(AttributeError, match="no_such"):
        streamfp.Head("ridge", 6, no_such=1)
