"""Loops whose iterations end early, and helpers that return early."""

from __future__ import annotations

import ast

import numpy as np
import pytest

import tilelang.language as hl
from tilelang.frontend.jumps import branched

from .run import run

same = np.testing.assert_array_equal

ROWS = np.arange(12, dtype=np.float32).reshape(4, 3)
BOTH_GO_ON = "for i in a:\n  if b:\n    if c: continue\n    d\n  e"
KINDS = np.array([2, 0, 1, 3], np.int32)


def text(body: str) -> str:
    """The body of a function in its form with branches."""
    (function,) = ast.parse(f"def f():\n{body}").body
    return "\n".join(ast.unparse(branched(function)).splitlines()[1:])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("for i in a:\n  if b: continue\n  c", "for i in a:\n  if b: pass\n  else: c"),
        ("for i in a:\n  if b: d; continue\n  c", "for i in a:\n  if b: d\n  else: c"),
        (
            "for i in a:\n  if b: d\n  else: continue\n  c",
            "for i in a:\n  if b:\n    d\n    c\n  else: pass",
        ),
        (
            "for i in a:\n  if b: continue\n  if c: continue\n  d",
            "for i in a:\n  if b: pass\n  else:\n    if c: pass\n    else: d",
        ),
        (
            "for i in a:\n  if b:\n    if c: continue\n    d",
            "for i in a:\n  if b:\n    if c: pass\n    else: d",
        ),
        ("if b: return 1\nreturn 2", "if b: return 1\nelse: return 2"),
        ("if b: return\nc", "if b: pass\nelse: c"),
        ("while a:\n  if b: continue\n  c", "while a:\n  if b: pass\n  else: c"),
    ],
)
def test_what_follows_is_the_other_branch(before, after):
    indented = ["\n".join(f"  {line}" for line in each.splitlines()) for each in (before, after)]
    (function,) = ast.parse(f"def f():\n{indented[1]}").body
    assert text(indented[0]) == "\n".join(ast.unparse(function).splitlines()[1:])


@pytest.mark.parametrize(
    "body",
    [
        BOTH_GO_ON,
        "for i in a:\n  for j in a:\n    if b: break\n  c",
        "for i in a:\n  if b: return 1\n  c",  # it leaves a loop
    ],
)
def test_the_rest_stays(body):
    indented = "\n".join(f"  {line}" for line in body.splitlines())
    (function,) = ast.parse(f"def f():\n{indented}").body
    assert text(indented) == "\n".join(ast.unparse(function).splitlines()[1:])


def test_a_group_that_is_left_out():
    def kernel(x, kinds):
        y = hl.zeros(x.shape, dtype=x.dtype)
        total = hl.zeros([x.shape[1]], dtype=x.dtype)
        for i in hl.grid(x.shape[0]):
            if kinds[i] == 0:
                continue
            total = total + x[i, :]
            y[i, :] = total
        return y

    kept = np.where(KINDS[:, None] == 0, 0, ROWS)
    same(run(kernel, ROWS, KINDS), np.where(KINDS[:, None] == 0, 0, np.cumsum(kept, 0)))


def test_helpers_return_early():
    def pair(v, kind):
        if kind == 0:
            return v, 1
        if kind == 1:
            return -v, 2
        return v * 2, kind

    def kernel(x, kinds):
        y = hl.zeros(x.shape, dtype=x.dtype)
        for i in hl.grid(x.shape[0]):
            v, times = pair(x[i, :], kinds[i])
            y[i, :] = v * times
        return y

    factors = np.array([4, 1, -2, 6], np.float32)
    same(run(kernel, ROWS, KINDS), ROWS * factors[:, None])


def test_while_of_host_values():
    def kernel(x):
        y = hl.empty_like(x)
        for i in hl.grid(x.shape[0]):
            v, width = x[i, :], 1
            while width < x.shape[0]:
                width *= 2
                if width == 2:
                    continue
                v = v + width
            y[i, :] = v
        return y

    same(run(kernel, ROWS), ROWS + 4)


def test_while_that_is_left():
    def kernel(x):
        y, turns = hl.empty_like(x), 0
        while True:
            turns += 1
            if turns == 3:
                break
        for i in hl.grid(x.shape[0]):
            y[i, :] = x[i, :] + turns
        return y

    same(run(kernel, ROWS), ROWS + 3)
