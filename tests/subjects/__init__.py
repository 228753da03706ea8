"""The kernels of the examples as tests see them: how to call one, and what it must give.

Tests, goldens and the fuzzer all run over SUBJECTS, so that a new example is one entry in one of
these files.
"""

from __future__ import annotations

from tests.subjects import dense, dense_more, jagged, jagged_more, jagged_pairs, moe
from tests.subjects.dense import HAS_TORCH
from tests.subjects.subject import Arrays, Ragged, Subject

__all__ = ["DENSE", "HAS_TORCH", "JAGGED", "SUBJECTS", "Arrays", "Ragged", "Subject"]

_ALL = (
    *jagged.SUBJECTS,
    *jagged_more.SUBJECTS,
    *jagged_pairs.SUBJECTS,
    *moe.SUBJECTS,
    *dense.SUBJECTS,
    *dense_more.SUBJECTS,
)
JAGGED = tuple(subject for subject in _ALL if subject.ragged is not None)
DENSE = tuple(subject for subject in _ALL if subject.ragged is None)
SUBJECTS = (*JAGGED, *DENSE)
