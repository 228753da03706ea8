"""Every example compiles with the real TPU compiler for every generation, with its default config.

Evidence: libtpu, ahead of time; no TPU is used, and nothing is run.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.aot.written import needs_libtpu
from tilelang.aot import GENERATIONS
from tilelang.commands.cases import cases_of
from tilelang.commands.check import check

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for folder in ("dense", "jagged")
    for path in (ROOT / "examples" / folder).glob("*.py")
    if path.stem != "__init__"
)


def test_there_are_examples() -> None:
    assert len(FILES) >= 13


@needs_libtpu
@pytest.mark.parametrize("generation", GENERATIONS)
def test_every_example_compiles(generation: str) -> None:
    cases = [case for path in FILES for case in cases_of(path)]
    assert len(cases) >= 6 * len(FILES)
    rows = check(cases, [f"tpu:{generation}"])
    failed = [f"{row.case.name} ({row.case}): {row.result}" for row in rows if row.failed]
    assert not failed, "\n".join(failed)
