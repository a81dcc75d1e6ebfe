"""Classifiers and a transformer with the conventions of scikit-learn and of River. They work without both.

As everywhere in scikit-learn, `fit` starts anew and `partial_fit` continues. One thing is different: a class may appear for the first
time in any `partial_fit`, with or without the argument `classes`. `classes_` is then sorted again, and the columns of `predict_proba` follow it.
"""

from __future__ import annotations

import weakref
from typing import Any, Dict, List, Mapping, Optional, Tuple, Union

import numpy as np

from streamfp._images import several
from streamfp._library import PathLike, Settings
from streamfp._sklearn import BaseEstimator, ClassifierMixin, NotFittedError, TransformerMixin, check_targets, validate
from streamfp.head import Head
from streamfp.learning import Engine, Learner, Predictor, probabilities

_engines: "weakref.WeakValueDictionary[Any, Engine]" = weakref.WeakValueDictionary()


def _engine(backbone: Union[Engine, PathLike], threads: int, image_size: int) -> Engine:
    """Estimators with the same backbone, such as clones, share an engine."""
    if isinstance(backbone, Engine):
        return backbone
    key = backbone, threads, image_size
    engine = _engines.get(key) or Engine(backbone, threads=threads, image_size=image_size)
    _engines[key] = engine
    return engine


class _Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Maps classes of any type to the labels of a model, which are numbers in the order in which the classes appeared."""

    classes_: "np.ndarray[Any, Any]"

    def _model(self) -> Union[Head, Learner]:
        raise NotImplementedError

    def _start(self) -> None:
        self._label_of: Dict[Any, int] = {}

    def _add_classes(self, values: "np.ndarray[Any, Any]") -> None:
        old = getattr(self, "classes_", None) if self._label_of else None
        if old is not None and (old.dtype.kind in "OUS") != (values.dtype.kind in "OUS"):
            raise ValueError(f"classes are {values.dtype}, expected {old.dtype} as before")
        classes = np.unique(values if old is None else np.concatenate([old, values]))
        for value in classes.tolist():
            if value not in self._label_of:
                self._label_of[value] = self._model().add_class(str(value))
        self.classes_ = classes

    def _labels(self, y: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        return np.array([self._label_of[value] for value in y.tolist()], np.int32)

    def _by_class(self, p: "np.ndarray[Any, Any]") -> "np.ndarray[Any, Any]":
        """Columns in the order of classes_; 0 for a class that the model had not learned when it answered."""
        classes = self.classes_.tolist()
        out = np.zeros((len(p), len(classes)))
        for column, value in enumerate(classes):
            if self._label_of[value] < p.shape[1]:
                out[:, column] = p[:, self._label_of[value]]
        return out

    def _check_fitted(self) -> None:
        if not hasattr(self, "classes_"):
            raise NotFittedError(f"This {type(self).__name__} instance is not fitted yet; call fit or partial_fit first")

    def predict(self, X: Any) -> "np.ndarray[Any, Any]":
        """The most probable class of each sample."""
        p = self.predict_proba(X)
        return self.classes_[p.argmax(axis=1)]

    def predict_proba(self, X: Any) -> "np.ndarray[Any, Any]":
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> Any:
        """Learns X with classes y from the beginning."""
        if hasattr(self, "classes_"):
            del self.classes_
        return self.partial_fit(X, y)

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> Any:
        raise NotImplementedError

    # River: one sample at a time

    def learn_one(self, x: Any, y: Any) -> None:
        self.partial_fit([self._one(x, True)], [y])

    def predict_proba_one(self, x: Any) -> Dict[Any, float]:
        """Probabilities by class; none before the first sample."""
        if not hasattr(self, "classes_"):
            return {}
        p = self.predict_proba([self._one(x, False)])[0]
        return dict(zip(self.classes_.tolist(), p.tolist()))

    def predict_one(self, x: Any) -> Any:
        p = self.predict_proba_one(x)
        return max(p, key=lambda value: p[value]) if p else None

    def _one(self, x: Any, learn: bool) -> Any:
        return x


class FeatureClassifier(_Classifier):
    """A closed-form head on rows of numbers, such as features of another network. It learns each row once, and its size does not grow.

    method: "ridge", "slda", "ncm" or "ranpac". half_life: rows count half after this number of later ones; 0: all count the same.
    plain: ridge scores as the regression gives them, which prefer frequent classes. The Head is `head_`.

    With River's dicts, the features are those of the first sample: a feature that is missing later is 0, a new one is ignored.

    >>> from streamfp import FeatureClassifier
    >>> classifier = FeatureClassifier().fit([[0, 1], [0, 2], [3, 0], [4, 0]], ["up", "up", "right", "right"])
    >>> classifier.predict([[5, 1]]).tolist()
    ['right']
    >>> classifier.partial_fit([[-3, 0], [-4, 0]], ["left", "left"]).classes_.tolist()
    ['left', 'right', 'up']
    """

    def __init__(self, method: str = "ridge", *, half_life: int = 0, plain: bool = False, seed: int = 0, threads: int = 1) -> None:
        self.method = method
        self.half_life = half_life
        self.plain = plain
        self.seed = seed
        self.threads = threads

    def _model(self) -> Head:
        return self.head_

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "FeatureClassifier":
        """Learns more rows. New classes may appear at any time; classes: names that are known beforehand."""
        first = not hasattr(self, "classes_")
        if y is None:
            raise ValueError("FeatureClassifier requires y to be passed, but the target y is None")
        X, y = validate(self, X, y, first)
        if first:
            self._start()
            options = {"half_life": self.half_life, "plain": int(self.plain), "seed": self.seed}
            self.head_ = Head(self.method, X.shape[1], threads=self.threads, **options)
        self._add_classes(y if classes is None else np.concatenate([np.asarray(classes), y]))
        self.head_.learn(X, self._labels(y))
        return self

    def predict_proba(self, X: Any) -> "np.ndarray[Any, Any]":
        """(rows, classes_) probabilities."""
        self._check_fitted()
        X, _ = validate(self, X, None, False)
        return self._by_class(probabilities(self.head_.scores(X)))

    def _more_tags(self) -> Dict[str, Any]:  # scikit-learn before 1.6
        # The products of ranpac's random projection are summed in float32, in an order that depends on the number of rows.
        reason = "scores of ranpac depend in the last bit on the number of rows in the call"
        return {"_xfail_checks": {"check_methods_subset_invariance": reason} if self.method == "ranpac" else {}}

    def forget(self, X: Any, y: Any) -> "FeatureClassifier":
        """Takes out rows, as if they had never been learned (ncm, slda, ridge)."""
        self._check_fitted()
        X, y = validate(self, X, y, False)
        self.head_.forget(X, self._labels(y))
        return self

    def _one(self, x: Any, learn: bool) -> Any:
        if not isinstance(x, Mapping):
            return x
        if learn and not hasattr(self, "classes_"):
            self._names: List[Any] = list(x)
        return [x.get(name, 0.0) for name in self._names]


class _OfImages(BaseEstimator):  # type: ignore[misc]
    """The common part of the estimators of images: a backbone with settings, and `predictor_`, which is created again after unpickling."""

    def __init__(
        self,
        backbone: Union[Engine, PathLike] = "builtin",
        *,
        settings: Optional[Mapping[str, object]] = None,
        threads: int = 0,
        image_size: int = 0,
    ) -> None:
        self.backbone = backbone
        self.settings = settings
        self.threads = threads
        self.image_size = image_size

    def __getstate__(self) -> Dict[str, Any]:
        return {key: value for key, value in self.__dict__.items() if key != "predictor_"}

    def _more_tags(self) -> Dict[str, Any]:  # scikit-learn before 1.6
        return {"X_types": ["string"], "no_validation": True}

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array, tags.input_tags.string, tags.no_validation = False, True, True
        return tags


class StreamClassifier(_OfImages, _Classifier):
    """Learns classes of images: paths, bytes of files, PIL images, uint8 arrays or tensors; X is a list of them, or has 4 dimensions.

    backbone: as that of Engine, or an Engine. settings: those of `streamfp run`, as a dict, such as {"method": "slda"}. The Learner is
    `learner_`, and the Predictor, which answers also while another thread learns, is `predictor_`.

    >>> from streamfp import StreamClassifier
    >>> classifier = StreamClassifier().fit(["photos/mug/1.png", "photos/bowl/1.png"], ["mug", "bowl"])
    >>> classifier.predict(["photos/bowl/2.png"]).tolist()
    ['bowl']
    """

    def _model(self) -> Learner:
        return self.learner_

    def partial_fit(self, X: Any, y: Any, classes: Any = None) -> "StreamClassifier":
        """Learns more images, in batches of the setting "batch". New classes may appear at any time."""
        images, y = several(X), check_targets(y)
        if len(images) != len(y):
            raise ValueError(f"there are {len(images)} images and {len(y)} classes, expected as many")
        if not hasattr(self, "classes_"):
            if not len(y) and classes is None:
                raise ValueError("there are no images, expected at least one in the first call; does the directory exist?")
            self._start()
            self.learner_ = Learner(_engine(self.backbone, self.threads, self.image_size), Settings(self.settings))
            self.predictor_ = self.learner_.predictor(threads=self.threads)
        self._add_classes(y if classes is None else np.concatenate([np.asarray(classes), y]))
        labels = self._labels(y)
        for i in range(0, len(images), self.learner_.batch):
            batch = slice(i, i + self.learner_.batch)
            self.learner_.offer(images[batch], labels[batch])
        return self

    def predict_proba(self, X: Any) -> "np.ndarray[Any, Any]":
        """(images, classes_) probabilities."""
        self._check_fitted()
        return self._by_class(self.predictor_.predict_proba(X))

    def forget(self, X: Any, y: Any) -> "StreamClassifier":
        """Takes out images, as if they had never been learned (ncm, slda, ridge)."""
        self._check_fitted()
        images, labels = several(X), self._labels(check_targets(y))
        for i in range(0, len(images), self.learner_.batch):
            batch = slice(i, i + self.learner_.batch)
            self.learner_.forget(images[batch], labels[batch])
        return self

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if hasattr(self, "learner_"):
            self.predictor_ = self.learner_.predictor(threads=self.threads)


class FrozenFeatures(_OfImages, TransformerMixin):  # type: ignore[misc]
    """Images to features of a frozen backbone, for any classifier of scikit-learn.

    settings: "taps", "tap-mean", "resize" and "normalise", as a dict.

    >>> from streamfp import FrozenFeatures
    >>> FrozenFeatures(settings={"taps": 2}).fit_transform(["photos/mug/1.png"]).shape
    (1, 384)
    """

    def fit(self, X: Any = None, y: Any = None) -> "FrozenFeatures":
        """Opens the backbone; nothing is learned."""
        engine = _engine(self.backbone, self.threads, self.image_size)
        settings: Dict[str, Any] = dict(self.settings or {})
        self.predictor_ = Predictor(engine, threads=self.threads, **settings)
        self.n_features_out_ = self.predictor_.feature_dim
        return self

    def transform(self, X: Any) -> "np.ndarray[Any, Any]":
        """(images, features) as float32."""
        if not hasattr(self, "predictor_"):
            raise NotFittedError("This FrozenFeatures instance is not fitted yet; call fit first")
        return self.predictor_.features(X)

    def get_feature_names_out(self, input_features: Any = None) -> "np.ndarray[Any, Any]":
        return np.array([f"frozenfeatures{i}" for i in range(self.n_features_out_)], object)

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        if hasattr(self, "n_features_out_"):
            self.fit()
