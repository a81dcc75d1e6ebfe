"""Real-time stream learning for vision transformers: the library streamfp from Python.

    learner = streamfp.Learner()                      # the built-in backbone and the best known settings
    learner.offer(["a.jpg", "b.jpg"], ["cat", "dog"])
    learner.predictor().predict(["c.jpg"])            # [Prediction(label=0, name='cat', probability=0.9, ...)]

`Engine`, `Learner`, `Predictor`, `Run`, `Head` and `evaluate` are the parts of streamfp.h, which is their manual.
"""

from __future__ import annotations

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
from streamfp.running import Accuracy, Evaluation, Progress, Recorded, Run, evaluate, read_run

__all__ = [
    "Accuracy",
    "Cancelled",
    "Engine",
    "Error",
    "Evaluation",
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
    "Unsupported",
    "WrongShape",
    "__version__",
    "evaluate",
    "fit_image",
    "read_run",
]

