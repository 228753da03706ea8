"""Targets are data: what each one allows, and what is said of one that is not known."""

from __future__ import annotations

import pytest

from tilelang.codegen.pallas.target import MIB, TARGETS, Target
from tilelang.errors import PlanError


def test_none_is_the_cpu_and_a_target_is_itself() -> None:
    assert Target.of(None) == Target.of("cpu")
    assert Target.of(Target.of("tpu:v6e")) is Target.of("tpu:v6e")


@pytest.mark.parametrize("wrong", ["tpu", "v5e", "cuda:sm90", 3])
def test_an_unknown_target_lists_the_known_ones(wrong: object) -> None:
    with pytest.raises(PlanError) as caught:
        Target.of(wrong)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"unknown target {wrong!r}\n  hint: use one of 'cpu', 'tpu:v4', 'tpu:v5e', 'tpu:v5p', "
        "'tpu:v6e', 'tpu:7x'"
    )


@pytest.mark.parametrize("name", TARGETS)
def test_limits_are_consistent(name: str) -> None:
    target = Target.of(name)
    assert str(target) == target.name == name
    assert 16 * MIB <= target.vmem_default <= target.vmem_physical
    assert target.smem < MIB
    assert [target.rows(size) for size in (1, 2, 4, 8)] == [32, 16, 8, 8]


def test_only_the_megacore_chip_splits_a_program() -> None:
    assert {n for n, t in TARGETS.items() if t.cores > 1} == {"tpu:v5p"}
