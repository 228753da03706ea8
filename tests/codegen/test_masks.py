"""Masks of a plan: `str(plan)` says of every one why it is there, and at which line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilelang as tile
import tilelang.language as hl
from tests.subjects import SUBJECTS
from tilelang import ir
from tilelang.codegen.pallas.plan import physical
from tilelang.codegen.pallas.plan.types import WHY, Plan

BY_NAME = {subject.name: subject for subject in SUBJECTS}


@tile.kernel
def left_out(x, bias, starts, L: hl.constexpr):
    """The author leaves lanes out, and tiles that are moved reach past the array."""
    G = starts.shape[0]
    y = hl.zeros([G, L, x.shape[1]], dtype=x.dtype)
    for g in hl.grid(G):
        for t in hl.tile(L):
            place = starts[g] + t.index
            far = hl.load(x, [place, slice(None)])
            near = hl.load(bias, [g, t, slice(None)], mask=(t.index < L - 3)[:, None])
            hl.store(y, [g, t, slice(None)], far + near, mask=(t.index > 2)[:, None])
    return y


@tile.kernel
def picked(x, index):
    """Rows go where an index array says."""
    y = hl.zeros(x.shape, dtype=x.dtype)
    for t in hl.tile(index.shape[0]):
        y[index[t], :] = x[t, :]
    return y


def left_out_plan() -> Plan:
    x, bias = np.zeros((64, 128), np.float32), np.zeros((2, 40, 128), np.float32)
    config = tile.Config({"t": 16})
    starts = np.array([0, 30], np.int32)
    return left_out.lower(x, bias, starts, 40, target="tpu:v6e", config=config).plan


def picked_plan() -> Plan:
    x, index = np.zeros((64, 128), ml_dtypes.bfloat16), np.zeros(64, np.int32)
    return picked.lower(x, index, target="tpu:v6e").plan


def plan_of(name: str) -> Plan:
    subject = BY_NAME[name]
    return subject.kernel.lower(*subject.cases[-2], target="tpu:v6e").plan


def one_by_one_plan() -> Plan:
    """A step for each group: rows of results share a block."""
    subject = BY_NAME["jagged_sum"]
    config = tile.Config(loop_type="outer_pipeline")
    return subject.kernel.lower(*subject.cases[-2], target="tpu:v6e", config=config).plan


def masks(plan: Plan) -> list[str]:
    return [line.strip() for line in str(plan).splitlines() if line.startswith("  masks ")]


@pytest.mark.parametrize(
    ("name", "reasons"),
    [("grouped_gemm", {"store"}), ("jagged_softmax", {"store", "reduction"})],
)
def test_every_mask_has_its_reason(name, reasons):
    found = masks(plan_of(name))
    assert {line.split(": ")[1].split(" in line ")[0] for line in found} == reasons
    first = r">= (offsets\[g\]|maximum\(offsets\[g\], (\w+)\.first \+ \2 \* 128\))"
    assert all(re.search(f"{first} & < {re.escape('offsets[g + 1]')}", line) for line in found)


def line_of(text: str) -> int:
    """Where this file says it first."""
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return next(i for i, line in enumerate(lines, 1) if text in line)


def test_masks_of_the_author_and_of_arrays():
    found = set(masks(left_out_plan()))
    at = {what: line_of(f"hl.{what}") for what in ("load(x", "load(bias", "store(y")}
    assert found >= {
        f"masks x: array in line {at['load(x']}, what lies outside of the array is no data",
        f"masks bias: user in line {at['load(bias']}, the author leaves the others out",
        f"masks y: user in line {at['store(y']}, the author leaves the others out",
    }


def test_rows_that_are_picked():
    (line,) = (line for line in masks(picked_plan()) if "picked" in line)
    assert line.startswith(f"masks y: picked in line {line_of('y[index')}")


def unexplained(plan: Plan) -> Iterator[str]:
    """Values that the text chooses lane by lane, and of which the plan does not say why."""
    for launch in plan.launches:
        for stmt in physical.flat(s for section in launch.sections for s in section.body):
            for part in physical.parts_of(stmt):
                if isinstance(part, ir.Apply) and part.op == "where" and part.type.shape:
                    lanes = physical.walk_physical(part.args[0])
                    if part.masks or any(isinstance(e, physical.InRange) for e in lanes):
                        continue
                    loc = part.loc
                    if loc is None or "where" not in loc.text:  # else the author wrote it
                        yield f"{plan.ir.name}: {loc.text if loc is not None else stmt}"


def test_no_mask_is_without_a_reason():
    plans = [plan_of(subject.name) for subject in SUBJECTS]
    assert [u for plan in (*plans, left_out_plan(), picked_plan()) for u in unexplained(plan)] == []


def test_every_reason_is_met():
    names = ("jagged_layer_norm", "jagged_sum", "jagged_to_padded", "paged_attention")
    plans = [plan_of(n) for n in names]
    plans += [left_out_plan(), picked_plan(), one_by_one_plan()]
    text = "\n".join(line for plan in plans for line in masks(plan))
    assert {reason for reason in WHY if f": {reason} in line " in text} == set(WHY)
