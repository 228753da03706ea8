"""Masks of a plan: `str(plan)` says of every one which lanes count, why it is there, and where."""

from __future__ import annotations

import pytest

from tests.subjects import SUBJECTS

BY_NAME = {subject.name: subject for subject in SUBJECTS}


def masks(name: str) -> list[str]:
    subject = BY_NAME[name]
    plan = str(subject.kernel.lower(*subject.cases[-2], target="tpu:v6e").plan)
    return [line.strip() for line in plan.splitlines() if line.startswith("  masks ")]


@pytest.mark.parametrize(
    ("name", "reasons"),
    [("grouped_gemm", {"store"}), ("jagged_softmax", {"store", "reduction"})],
)
def test_every_mask_has_its_reason(name, reasons):
    found = masks(name)
    assert {line.split(": ")[1].split(" in line ")[0] for line in found} == reasons
    assert all(">= offsets[g] & < offsets[g + 1]" in line for line in found)
