"""Targets are data: what each one allows, and what is said of one that is not known."""

from __future__ import annotations

import pytest

from tilelang.codegen.pallas.target import MIB, TARGETS, Target
from tilelang.codegen.triton.target import TARGETS as GPUS
from tilelang.errors import PlanError
from tilelang.runtime.lowering import target_of


def test_none_is_the_cpu_and_a_target_is_itself() -> None:
    assert Target.of(None) == Target.of("cpu")
    assert Target.of(Target.of("tpu:v6e")) is Target.of("tpu:v6e")


@pytest.mark.parametrize(
    ("wrong", "meant"),
    [("tpu", ""), ("v5e", "did you mean 'tpu:v5e'? "), ("cuda:sm90", ""), (3, "")],
)
def test_an_unknown_target_lists_the_known_ones(wrong: object, meant: str) -> None:
    with pytest.raises(PlanError) as caught:
        Target.of(wrong)  # type: ignore[arg-type]
    assert str(caught.value) == (
        f"unknown target {wrong!r}\n  hint: {meant}use one of 'cpu', 'tpu:v4', 'tpu:v5e', "
        "'tpu:v5p', 'tpu:v6e', 'tpu:7x'"
    )


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("cuda:sm_90", "cuda:sm90"),
        ("sm_100a", "cuda:sm100"),
        ("cuda:90", "cuda:sm90"),
        ("h100", "cuda:sm90"),
        ("NVIDIA A100-SXM4-80GB", "cuda:sm80"),
        ("tpu_v6e", "tpu:v6e"),
        ("v6", "tpu:v6e"),
        ("TPU v5 lite", "tpu:v5e"),
        ("TPU v5", "tpu:v5p"),
        ("tpu:v7x", "tpu:7x"),
        ("trillium", "tpu:v6e"),
        ("CPU", "cpu"),
        ("gpu", None),  # any of four
        ("tpu:v9", None),
        ("cuda:sm70", None),
    ],
)
def test_a_target_by_another_name_is_told_its_own(given: str, meant: str | None) -> None:
    """Of both families; without one that is alike there is the list alone."""
    known = ", ".join(map(repr, (*TARGETS, *GPUS)))
    hint = f"use one of {known}" if meant is None else f"did you mean {meant!r}? use one of {known}"
    with pytest.raises(PlanError) as caught:
        target_of(given)
    assert str(caught.value) == f"unknown target {given!r}\n  hint: {hint}"


@pytest.mark.parametrize("name", TARGETS)
def test_limits_are_consistent(name: str) -> None:
    target = Target.of(name)
    assert str(target) == target.name == name
    assert 16 * MIB <= target.vmem_default <= target.vmem_physical
    assert target.smem < MIB
    assert [target.rows(size) for size in (1, 2, 4, 8)] == [32, 16, 8, 8]


def test_only_the_megacore_chip_splits_a_program() -> None:
    assert {n for n, t in TARGETS.items() if t.cores > 1} == {"tpu:v5p"}
