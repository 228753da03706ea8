"""Static values by value: what is the same key, what is another, what cannot be one."""

from __future__ import annotations

import functools
import types

import numpy as np
import pytest

from tilelang.runtime.reads import reads
from tilelang.runtime.static import NotStatic, fingerprint, stamp

SCALE = 2
TABLE = [1, 2]
SETTINGS = types.SimpleNamespace(block=4, other=5)


def scaled(factor, power=1):
    def fn(v):
        return v * factor**power

    return fn


def with_global(v):
    return v * SCALE


def through_helper(v):
    return with_global(v) + 1


def with_table(v):
    return v + TABLE[0]


def with_attribute(v):
    return v * SETTINGS.block


def with_library(v):
    return np.exp(v) * SCALE


def recursive(n):
    return 1 if n == 0 else SCALE * recursive(n - 1)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, 1.0),
        (1, True),
        (0, False),
        (0.0, -0.0),
        ("1", 1),
        (None, False),
        ((1, 2), (1, 2.0)),
        (np.float32(1), np.float64(1)),
        (np.dtype("float32"), np.dtype("int32")),
        (scaled(2), scaled(3)),
        (scaled(2), scaled(2.0)),
        (scaled(2), scaled(2, power=2)),
        (lambda v: v + 1, lambda v: v + 2),
        (functools.partial(max, 1), functools.partial(max, 2)),
    ],
)
def test_different(one, other):
    assert stamp(one) != stamp(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (float("nan"), float("nan")),
        ((1, ("a", None)), (1, ("a", None))),
        (scaled(2), scaled(2)),
        (scaled(scaled(2)), scaled(scaled(2))),
        (functools.partial(scaled, 2), functools.partial(scaled, 2)),
        (np.exp, np.exp),
    ],
)
def test_same(one, other):
    assert stamp(one) == stamp(other)
    assert hash(stamp(one)) == hash(stamp(other))


@pytest.mark.parametrize("value", [[1], {"a": 1}, {1}, (1, [2]), np.zeros(2)])
def test_what_can_change_is_no_key(value):
    with pytest.raises(NotStatic):
        stamp(value)


@pytest.mark.parametrize("fn", [with_global, through_helper, recursive, with_library])
def test_a_global_that_changes(fn, monkeypatch):
    before = fingerprint(fn)
    assert before.holds()
    monkeypatch.setitem(globals(), "SCALE", 3)
    assert not before.holds()
    assert fingerprint(fn).stamp != before.stamp
    monkeypatch.setitem(globals(), "SCALE", 2)
    assert fingerprint(fn).stamp == before.stamp


def test_an_attribute_that_changes(monkeypatch):
    before = fingerprint(with_attribute)
    monkeypatch.setattr(SETTINGS, "other", 7)
    assert before.holds()
    monkeypatch.setattr(SETTINGS, "block", 8)
    assert not before.holds()
    assert fingerprint(with_attribute).stamp != before.stamp


def test_a_list_that_changes_in_place():
    before = fingerprint(with_table)
    assert not before.holds()  # it may have changed: look again
    assert fingerprint(with_table).stamp == before.stamp
    TABLE.append(3)
    after = fingerprint(with_table)
    TABLE.pop()
    assert after.stamp != before.stamp


def test_a_closure_that_changes():
    factor = 2

    def fn(v):
        return v * factor

    before = fingerprint(fn)
    assert before.holds()
    factor = 3
    assert not before.holds()
    assert fingerprint(fn).stamp != before.stamp


def test_functions_of_libraries_count_by_identity():
    import jax

    torch = pytest.importorskip("torch", reason="compares its functions with those of JAX")
    assert not fingerprint(torch.nn.functional.silu).items
    assert stamp(torch.nn.functional.silu) == stamp(torch.nn.functional.silu)
    assert stamp(jax.nn.gelu) != stamp(jax.nn.silu)


def test_reads():
    def fn(v):
        return [SETTINGS.block * w + np.float32(SCALE) for w in v]

    found = reads(fn.__code__)
    assert found.globals == (("SCALE",), ("SETTINGS", "block"), ("np", "float32"))
