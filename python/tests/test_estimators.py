"""scikit-learn's and River's conventions."""

import copy
import os
import pickle
import subprocess
import sys
import threading
from typing import Any, Dict, List

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_checks
from sklearn.utils.estimator_checks import parametrize_with_checks

from streamfp import Engine, FeatureClassifier, FrozenFeatures, StreamClassifier

Photos = Dict[str, List[str]]


@parametrize_with_checks([FeatureClassifier(), FeatureClassifier("ncm"), FeatureClassifier("slda"), FeatureClassifier("ranpac")])
def test_a_feature_classifier_passes_all_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.mark.parametrize("estimator", [StreamClassifier(), FrozenFeatures()])
@pytest.mark.parametrize(
    "check", ["parameters_default_constructible", "no_attributes_set_in_init", "get_params_invariance", "set_params", "estimators_unfitted"]
)
def test_estimators_of_images_pass_the_checks_that_do_not_need_rows(estimator: Any, check: str) -> None:
    if check == "estimators_unfitted" and not hasattr(estimator, "predict"):
        with pytest.raises(NotFittedError):
            estimator.transform([])
        return
    getattr(estimator_checks, "check_" + check)(type(estimator).__name__, estimator)


def blobs(classes: str, seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    y = np.array(list(classes))[np.arange(40) % len(classes)]
    return rng.normal(size=(40, 5)) + 5 * np.eye(5)[[ord(c) % 5 for c in y]], y


def test_classes_may_appear_later_and_are_sorted() -> None:
    classifier = FeatureClassifier("ncm")
    classifier.partial_fit(*blobs("cd")).partial_fit(*blobs("ab"))
    assert classifier.classes_.tolist() == ["a", "b", "c", "d"]
    X, y = blobs("abcd", 1)
    assert classifier.score(X, y) > 0.9
    assert classifier.predict_proba(X).shape == (40, 4)
    declared = FeatureClassifier("ncm").partial_fit(*blobs("cd"), classes=["a", "c", "d"])
    assert (declared.predict_proba(X)[:, 0] == 0).all()
    with pytest.raises(ValueError, match="classes are int64, expected <U1 as before"):
        classifier.partial_fit(X, np.arange(40) % 2)
    assert classifier.fit(*blobs("ab")).classes_.tolist() == ["a", "b"]


def test_forgotten_rows_were_never_learned() -> None:
    (X, y), (more, labels) = blobs("abc"), blobs("abc", 1)
    classifier = FeatureClassifier().fit(X, y)
    expected = classifier.predict_proba(more)
    classifier.partial_fit(more, labels).forget(more, labels)
    assert np.allclose(classifier.predict_proba(more), expected, atol=1e-4)


def test_river_learns_from_dicts() -> None:
    classifier = FeatureClassifier("ncm")
    assert classifier.predict_one({"x": 1}) is None and classifier.predict_proba_one({"x": 1}) == {}
    for i in range(10):
        assert classifier.learn_one({"x": i % 2, "y": 1 - i % 2}, bool(i % 2)) is None
    assert classifier.predict_one({"y": 0.1, "x": 0.8, "new": 5}) is True
    assert classifier.predict_one({"x": 1}) is True
    assert sum(classifier.predict_proba_one({"x": 1}).values()) == pytest.approx(1)
    before = pickle.dumps(classifier)
    classifier.predict_one({"x": 1})
    assert pickle.dumps(classifier) == before


def test_images_from_fit_to_pickle(photos: Photos, engine: Engine) -> None:
    X, y = [file for files in photos.values() for file in files[:4]], [name for name in photos for _ in range(4)]
    tests = [files[7] for files in photos.values()]
    classifier = StreamClassifier("builtin", settings={"method": "ncm", "batch": 5}, threads=1)
    with pytest.raises(NotFittedError):
        classifier.predict(tests)
    assert classifier.fit(X, y).score(tests, list(photos)) == 1
    p = classifier.predict_proba(tests)
    for other in (pickle.loads(pickle.dumps(classifier)), copy.deepcopy(classifier)):
        assert (other.predict_proba(tests) == p).all()
        other.partial_fit([tests[0]], ["a new class"])
        assert other.classes_.tolist() == ["a new class", "bowl", "mug", "plate"] and len(classifier.classes_) == 3
    classifier.partial_fit([tests[0]], ["plate"]).forget([tests[0]], ["plate"])
    assert np.allclose(classifier.predict_proba(tests), p, atol=1e-5)
    again = clone(classifier)
    assert not hasattr(again, "classes_") and again.get_params() == classifier.get_params()
    again.learn_one(tests[0], "bowl")
    assert again.predict_one(tests[1]) == "bowl" and again.learner_.engine is classifier.learner_.engine
    with pytest.raises(ValueError, match="3 images and 1 classes"):
        classifier.fit(tests, ["mug"])
    with_engine = clone(StreamClassifier(engine))
    assert with_engine.fit(X, y).learner_.engine is engine


def test_a_directory_without_images_is_said(engine: Engine) -> None:
    with pytest.raises(ValueError, match="there are no images"):
        StreamClassifier(engine).fit([], [])


def test_it_works_with_the_tools_of_scikit_learn(photos: Photos) -> None:
    X, y = [file for files in photos.values() for file in files], [name for name in photos for _ in range(8)]
    assert cross_val_score(StreamClassifier(), X, y, cv=2).mean() > 0.9
    pipeline = make_pipeline(FrozenFeatures(), FeatureClassifier("ncm"))
    search = GridSearchCV(pipeline, {"frozenfeatures__settings": [None, {"taps": 2}]}, cv=2).fit(X, y)
    assert search.best_score_ > 0.9
    loaded = pickle.loads(pickle.dumps(search.best_estimator_))
    assert (loaded.predict_proba(X) == search.predict_proba(X)).all()
    features = FrozenFeatures().fit()
    assert len(features.get_feature_names_out()) == features.transform(X[:2]).shape[1]


def test_it_answers_in_one_thread_while_it_learns_in_another(photos: Photos) -> None:
    classifier = StreamClassifier(settings={"method": "ncm"}, threads=1).fit(photos["mug"][:1], ["mug"])
    failures: List[BaseException] = []
    learned = threading.Event()

    def learn() -> None:
        try:
            for i in range(24):
                classifier.partial_fit([photos["bowl"][i % 8]], [f"class {i}"])
        except BaseException as error:
            failures.append(error)
        learned.set()

    thread = threading.Thread(target=learn)
    thread.start()
    answers = 0
    while not learned.is_set() or not answers:
        p = classifier.predict_proba([photos["mug"][1]])
        assert abs(p.sum() - 1) < 1e-6
        answers += 1
    thread.join()
    assert not failures and len(classifier.classes_) == 25


def test_without_scikit_learn_the_estimators_work() -> None:
    code = """
import sys
sys.modules["sklearn"] = None
from streamfp import FeatureClassifier, FrozenFeatures, StreamClassifier
c = FeatureClassifier().fit([[0, 1], [0, 2], [3, 0], [4, 0]], list("aabb"))
print(c.score([[5, 1]], ["b"]), sorted(c.get_params()), c.set_params(seed=3).seed)
images = FrozenFeatures().fit_transform(["photos/mug/1.png", "photos/bowl/1.png"])
print(images.shape[1] == FrozenFeatures().fit().n_features_out_)
print(c.fit(images[:, :9], [0, 1]).predict_one(images[1, :9]), StreamClassifier().fit(["photos/mug/1.png"], ["mug"]).predict_one("photos/mug/1.png"))
for wrong in (lambda: c.set_params(none=1), lambda: c.predict([1.0]), lambda: c.predict([[1.0]]), lambda: FrozenFeatures().transform([])):
    try:
        wrong()
    except ValueError as error:
        print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=dict(os.environ))
    assert done.stdout.splitlines() == [
        "1.0 ['half_life', 'method', 'plain', 'seed', 'threads'] 3",
        "True",
        "1 mug",
        "FeatureClassifier has no parameter 'none'",
        "X has 1 dimensions, expected 2: a row per sample",
        "X has 1 features, but FeatureClassifier is expecting 9",
        "This FrozenFeatures instance is not fitted yet; call fit first",
    ], done.stderr
