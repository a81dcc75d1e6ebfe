"""The parts of scikit-learn that the estimators use, with replacements if it is not installed."""

from __future__ import annotations

import inspect
from typing import Any, Dict, Tuple

import numpy as np

__all__ = ["BaseEstimator", "ClassifierMixin", "NotFittedError", "TransformerMixin", "check_targets", "validate"]

try:
    from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
    from sklearn.exceptions import NotFittedError
    from sklearn.utils import validation
    from sklearn.utils.multiclass import check_classification_targets
    from sklearn.utils.validation import column_or_1d
except ImportError:

    class BaseEstimator:  # type: ignore[no-redef]
        def get_params(self, deep: bool = True) -> Dict[str, Any]:
            return {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}

        def set_params(self, **params: Any) -> Any:
            unknown = set(params) - set(self.get_params())
            if unknown:
                raise ValueError(f"{type(self).__name__} has no parameter {sorted(unknown)[0]!r}")
            self.__dict__.update(params)
            return self

    class ClassifierMixin:  # type: ignore[no-redef]
        def score(self, X: Any, y: Any) -> float:
            return float(np.mean(self.predict(X) == np.asarray(y)))  # type: ignore[attr-defined]

    class TransformerMixin:  # type: ignore[no-redef]
        def fit_transform(self, X: Any, y: Any = None) -> Any:
            return self.fit(X, y).transform(X)  # type: ignore[attr-defined]

    class NotFittedError(ValueError, AttributeError):  # type: ignore[no-redef]
        pass

    def check_targets(y: Any) -> "np.ndarray[Any, Any]":
        return np.asarray(y)

    def validate(estimator: Any, X: Any, y: Any, reset: bool) -> Tuple["np.ndarray[Any, Any]", Any]:
        X = np.asarray(X, np.float32)
        if X.ndim != 2:
            raise ValueError(f"X has {X.ndim} dimensions, expected 2: a row per sample")
        if reset:
            estimator.n_features_in_ = X.shape[1]
        elif X.shape[1] != estimator.n_features_in_:
            raise ValueError(f"X has {X.shape[1]} features, but {type(estimator).__name__} is expecting {estimator.n_features_in_}")
        return X, None if y is None else check_targets(y)

else:

    def check_targets(y: Any) -> "np.ndarray[Any, Any]":
        """Classes of samples, in one dimension."""
        y = column_or_1d(y, warn=True)
        check_classification_targets(y)
        return np.asarray(y)

    def validate(estimator: Any, X: Any, y: Any, reset: bool) -> Tuple["np.ndarray[Any, Any]", Any]:
        """Rows as float32 and classes, or the failure that scikit-learn promises; y None: rows only."""
        check = getattr(validation, "validate_data", None)  # since 1.6; before, a method
        arguments: Dict[str, Any] = {"reset": reset, "dtype": np.float32}
        if y is None:
            X = check(estimator, X, **arguments) if check else estimator._validate_data(X, **arguments)
            return X, None
        X, y = check(estimator, X, y, **arguments) if check else estimator._validate_data(X, y, **arguments)
        return X, check_targets(y)
