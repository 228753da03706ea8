"""Derived gradients compile with the real TPU compiler; docs/derived-matrix.md has all of them.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

import pytest

from tests.aot.written import needs_libtpu
from tests.compile_cache import TPU, shared
from tests.derived_matrix import GENERATIONS, cell, parts
from tests.subjects import SUBJECTS
from tests.tiers import share


@needs_libtpu
@pytest.mark.slow
@pytest.mark.parametrize("subject", share(SUBJECTS, 12, 7, rest="thorough"))
def test_every_part_compiles(subject) -> None:
    generation = GENERATIONS[SUBJECTS.index(subject) % len(GENERATIONS)]
    target, worker = f"tpu:{generation}", shared(TPU)
    found = [(n, cell(subject, part, target, worker)) for n, part in parts(subject)]
    assert found and not [(name, one.problem) for name, one in found if one.problem]
