"""Real-time stream learning for vision transformers: the library streamfp from Python.

    learner = streamfp.Learner()                      # the built-in backbone and the best known settings
    learner.offer(["a.jpg", "b.jpg"], ["cat", "dog"])
    learner.predictor().predict(["c.jpg"])            # [Prediction(label=0, name='cat', probability=0.9, ...)]

`Engine`, `Learner`, `Predictor`, `Run`, `Head` and `evaluate` are the parts of streamfp.h, which is their manual.
`StreamClassifier`, `FeatureClassifier` and `FrozenFeatures` follow the conventions of scikit-learn and River.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamfp._images import Image
from streamfp._library import VERSION as __version__
from streamfp._library import (
    Cancelled,
    Error,
    InputOutputError,
    InvalidArgument,
    LibraryError,
    LimitExceeded,
    MalformedFile,
    NotFound,
    OutOfMemory,
    SettingInfo,
    Settings,
    Unsupported,
    WrongShape,
)
from streamfp.head import Head
from streamfp.learning import Engine, Learner, Prediction, Predictor, Report, fit_image
from streamfp.running import Accuracy, Evaluation, Progress, Recorded, Run, evaluate, merge_share, read_run

if TYPE_CHECKING:
    from streamfp.estimators import FeatureClassifier, FrozenFeatures, StreamClassifier

__all__ = [
    "Accuracy",
    "Cancelled",
    "Engine",
    "Error",
    "Evaluation",
    "FeatureClassifier",
    "FrozenFeatures",
    "Head",
    "Image",
    "InputOutputError",
    "InvalidArgument",
    "Learner",
    "LibraryError",
    "LimitExceeded",
    "MalformedFile",
    "NotFound",
    "OutOfMemory",
    "Prediction",
    "Predictor",
    "Progress",
    "Recorded",
    "Report",
    "Run",
    "SettingInfo",
    "Settings",
    "StreamClassifier",
    "Unsupported",
    "WrongShape",
    "__version__",
    "evaluate",
    "fit_image",
    "merge_share",
    "read_run",
]


def __getattr__(name: str) -> Any:
    """The estimators are imported when they are used, because scikit-learn takes a second."""
    if name in ("FeatureClassifier", "FrozenFeatures", "StreamClassifier"):
        from streamfp import estimators

        return getattr(estimators, name)
    raise AttributeError(f"module 'streamfp' has no attribute {name!r}")
