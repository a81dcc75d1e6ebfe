"""Learners and predictors: what streamfp.h promises, from Python."""

import copy
import gc
import math
import pickle
import threading
from typing import Any, Dict, List

import numpy as np
import pytest

import streamfp
from conftest import picture

Photos = Dict[str, List[str]]


def learner_of(engine: streamfp.Engine, photos: Photos, names: Any = None, **settings: Any) -> streamfp.Learner:
    learner = streamfp.Learner(engine, batch=4, **{"method": "ncm", **settings})
    for name in names or photos:
        learner.offer(photos[name][:4], [name] * 4)
    return learner


def test_it_learns_and_answers_by_name(engine: streamfp.Engine, photos: Photos) -> None:
    learner = learner_of(engine, photos)
    assert learner.classes == ["bowl", "mug", "plate"]
    with learner.predictor(threads=1) as predictor:
        answers = predictor.predict([photos["mug"][6], photos["plate"][7], "none.png"])
        assert [answer.name for answer in answers] == ["mug", "plate", None]
        assert [answer.label for answer in answers] == [1, 2, -1]
        assert answers[0].error == "" and "none.png" in answers[2].error and math.isnan(answers[2].probability)
        assert predictor.timestamps == 3 and predictor.classes == learner.classes
        sums = predictor.predict_proba([photos["mug"][6], photos["bowl"][7]])
        assert sums.shape == (2, 3) and np.allclose(sums.sum(1), 1) and sums.argmax(1).tolist() == [1, 0]
        assert predictor.predict([]) == [] and predictor.predict_proba([]).shape == (0, 3)
        with pytest.raises(ValueError, match="none.png"):
            predictor.predict_proba(["none.png"])


def test_a_report_says_what_a_timestamp_did(engine: streamfp.Engine, photos: Photos) -> None:
    learner = learner_of(engine, photos)
    report = learner.offer([photos["mug"][5]], ["mug"], ids=[7])
    assert (report.timestamp, report.offered, report.steps) == (3, 1, 0) and report.seconds > 0
    with pytest.raises(ValueError, match="batch"):
        learner.offer([photos["mug"][5]] * 5, ["mug"] * 5)
    with pytest.raises(ValueError, match=r"labels have shape \(1,\), expected \(2,\)"):
        learner.offer(photos["mug"][:2], ["mug"])
    with pytest.raises(ValueError, match="out of range"):
        learner.offer([photos["mug"][5]], [-1])
    with pytest.raises(TypeError, match="whole numbers"):
        learner.offer([photos["mug"][5]], [0.5])
    assert learner.offer([photos["mug"][5]], [2]).timestamp == 4


def test_labels_arrive_late(engine: streamfp.Engine, photos: Photos) -> None:
    learner = learner_of(engine, photos)
    learner.enqueue(photos["bowl"][4:6] + photos["mug"][4:5], ids=[10, 11, 12])
    assert learner.queued == 3
    assert learner.label([12, 10], ["mug", "bowl"]).offered == 2
    assert learner.queued == 1
    with pytest.raises(streamfp.NotFound):
        learner.label([99], ["mug"])


def answers(learner: streamfp.Learner, photos: Photos) -> "np.ndarray":
    with learner.predictor() as predictor:
        return predictor.predict_proba([files[7] for files in photos.values()])


def test_forget_relabel_merge_and_subtract_are_exact(engine: streamfp.Engine, photos: Photos) -> None:
    whole, first, second = (learner_of(engine, photos, names) for names in (None, ["bowl", "mug"], ["plate"]))
    first.merge(second)
    assert np.allclose(answers(first, photos), answers(whole, photos), atol=1e-5)
    second.save("second.safetensors")
    first.subtract("second.safetensors")
    first.merge(second.to_bytes())
    first.offer([photos["mug"][5]], ["plate"])
    first.relabel(photos["mug"][5], "plate", "mug")
    first.forget([photos["mug"][5]], ["mug"])
    assert np.allclose(answers(first, photos), answers(whole, photos), atol=1e-5)
    with pytest.raises(ValueError, match="no class 'cup'"):
        first.forget([photos["mug"][5]], ["cup"])
    with pytest.raises(streamfp.Unsupported):
        learner_of(engine, photos, method="ranpac").forget([photos["mug"][5]], ["mug"])


def test_states_and_checkpoints_continue_with_the_same_answers(engine: streamfp.Engine, photos: Photos) -> None:
    learner = learner_of(engine, photos, ["bowl", "mug"])
    learner.save("state.safetensors")
    learner.checkpoint("checkpoint", "after mugs")
    other = streamfp.Learner(engine, batch=4, method="ncm")
    assert other.resume("checkpoint") == "after mugs"
    for one in (learner, other):
        one.offer(photos["plate"][:4], ["plate"] * 4)
    assert (answers(learner, photos) == answers(other, photos)).all()
    assert learner.to_bytes() == other.to_bytes()
    with streamfp.Predictor("state.safetensors", engine) as predictor:
        assert predictor.predict([photos["mug"][7]])[0].name == "mug"
    with pytest.raises(streamfp.NotFound):
        other.resume("none")
    other.load("state.safetensors")
    assert other.classes[:2] == ["bowl", "mug"]


def test_an_engine_gives_features(engine: streamfp.Engine, photos: Photos) -> None:
    with streamfp.Predictor(engine, taps=2) as predictor:
        rows = predictor.features(photos["mug"][:3])
        assert rows.shape == (3, predictor.feature_dim) == (3, 2 * engine.dim) and np.isfinite(rows).all()
    with learner_of(engine, photos, method="ncm", taps=2, tap_mean=False).predictor() as predictor:
        assert np.array_equal(predictor.features(photos["mug"][:3]), rows)
    with streamfp.Learner(engine, preset="paper").predictor() as predictor, pytest.raises(TypeError, match="Predictor\\(engine\\)"):
        predictor.features(photos["mug"])
    with pytest.raises(TypeError, match="taps is a setting"):
        streamfp.Predictor("state", engine, taps=2)


def test_features_can_be_learned_in_place_of_images() -> None:
    with streamfp.Engine("features:3") as engine, streamfp.Learner(engine, method="ncm") as learner:
        learner.offer(np.eye(3, dtype=np.float32), ["x", "y", "z"])
        assert [a.name for a in learner.predictor().predict([[0.0, 0.9, 0.1]])] == ["y"]


def test_objects_live_as_long_as_what_was_made_from_them(photos: Photos) -> None:
    engine = streamfp.Engine.random(3, threads=1)
    learner = learner_of(engine, photos)
    predictor = learner.predictor()
    learner.close()
    engine.close()
    del learner, engine
    gc.collect()
    assert predictor.predict([photos["mug"][6]])[0].name == "mug"
    predictor.close()
    predictor.close()
    with pytest.raises(ValueError, match="this Predictor is closed"):
        predictor.predict([photos["mug"][6]])


def test_a_predictor_is_not_freed_during_a_call_on_its_learner(engine: streamfp.Engine, photos: Photos) -> None:
    learner = learner_of(engine, photos)
    predictor = learner.predictor()
    with learner._lock:
        predictor.close()
        assert len(learner._lock._to_free) == 1
    assert learner._lock._to_free == []


def test_an_engine_is_shared_by_copies_and_opened_again_by_pickle(engine: streamfp.Engine) -> None:
    builtin = streamfp.Engine("builtin", threads=1)
    assert copy.deepcopy(builtin) is builtin
    again = pickle.loads(pickle.dumps(builtin))
    assert again.dim == builtin.dim and again is not builtin
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(engine)


def test_threads_answer_while_another_one_learns(engine: streamfp.Engine, photos: Photos) -> None:
    learner = learner_of(engine, photos)
    stop, failures, answered = threading.Event(), [], [0, 0]
    predictor = learner.predictor(threads=1)

    def answer(i: int) -> None:
        try:
            while not stop.is_set() or not answered[i]:
                found = predictor.predict([photos["mug"][6]])[0]
                assert found.name == "mug"
                answered[i] += 1
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=answer, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for i in range(30):
        learner.offer([picture(name, 10 * i) for name in photos], list(photos))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures and min(answered) > 0


def test_a_long_call_lets_other_threads_run(engine: streamfp.Engine) -> None:
    """The counter grows while C computes; with the lock of Python it could not."""
    head = streamfp.Head("ridge", 600, threads=1)
    head.learn(np.random.default_rng(0).normal(size=(1300, 600)), np.arange(1300) % 5)
    ticks, stop = [0], threading.Event()

    def tick() -> None:
        while not stop.is_set():
            ticks[0] += 1

    thread = threading.Thread(target=tick)
    thread.start()
    before = ticks[0]
    head.scores(np.zeros((1, 600)))  # solves
    during = ticks[0] - before
    stop.set()
    thread.join()
    assert during > 0
