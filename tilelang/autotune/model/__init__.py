"""predict(lowered, arrays, values) -> Prediction: how long a kernel takes, by its final schedule.

A TPU core is an in-order machine: what the compiler's final program does in each cycle is fixed,
except for waits for copies.  libtpu compiles for any generation on a machine without one and can
dump that program, so it can be executed.
"""

from __future__ import annotations

from .predict import Compiler, digest, predict, question_of, remembered, steering
from .prediction import KernelTime, Prediction, ProgramRun, runs_of

__all__ = [
    "Compiler",
    "KernelTime",
    "Prediction",
    "ProgramRun",
    "digest",
    "predict",
    "question_of",
    "remembered",
    "runs_of",
    "steering",
]
