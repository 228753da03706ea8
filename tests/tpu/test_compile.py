"""Every example compiles with the real TPU compiler for every generation, with its default config.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.aot.written import needs_libtpu
from tests.subjects import HAS_TORCH
from tilelang.aot import GENERATIONS
from tilelang.commands.cases import Case, cases_of
from tilelang.commands.check import check

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for folder in ("dense", "jagged")
    for path in (ROOT / "examples" / folder).glob("*.py")
    if path.stem != "__init__" and (HAS_TORCH or "import torch" not in path.read_text("utf-8"))
)


def test_there_are_examples() -> None:
    assert len(FILES) >= 13


def share(cases: Sequence[Case], generation: str, of: int) -> list[Case]:
    """Every `of`-th case, other ones for each generation; docs/compile-matrix.md has all.

    v4 has no products of 8-bit values, so it takes none of the cases that have such values.
    """
    position = GENERATIONS.index(generation)
    chosen = [case for i, case in enumerate(cases) if i % of == position % of]
    if generation != "v4":
        return chosen
    return [case for case in chosen if "int8" not in str(case) and "float8" not in str(case)]


@needs_libtpu
def test_the_first_case_of_every_second_example_compiles() -> None:
    assert not failures([cases_of(path)[0] for path in FILES[::2]], "v6e")


# v4 is the oldest one, and takes what v5e takes: before a release only.  Examples have 6 cases or
# more each: with every 23rd one, four generations meet most examples; the page has all.
SHARES = [
    pytest.param(g, of, marks=pytest.mark.slow if of > 3 and g != "v4" else pytest.mark.thorough)
    for of in (23, 3)
    for g in GENERATIONS
]


@needs_libtpu
@pytest.mark.parametrize(("generation", "of"), SHARES)
def test_every_example_compiles(generation: str, of: int) -> None:
    cases = [case for path in FILES for case in cases_of(path)]
    assert len(cases) >= 6 * len(FILES)
    assert not failures(share(cases, generation, of), generation)


def failures(cases: Sequence[Case], generation: str) -> list[str]:
    """What the compiler does not take of them, each in a line."""
    rows = check(cases, [f"tpu:{generation}"])
    return [f"{row.case.name} ({row.case}): {row.result}" for row in rows if row.failed]
