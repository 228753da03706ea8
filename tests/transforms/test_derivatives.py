"""Every operation has a derivative or a reason for having none; each rule is JAX's, kinks too."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tilelang.ir import Apply, Const, Type, Var
from tilelang.language.derivatives import FLAT, RULES, OpUse
from tilelang.language.evaluate import evaluate
from tilelang.language.op import BINARY, OPS, UNARY

# Where functions have kinks, ties and steps, and where nothing special is.
POINTS = np.array([-2.5, -1, -0.5, 0, 0.25, 1, 1, 3], np.float32)
OTHER = np.array([1.5, -1, 2, 0, 0.25, 1, -2, 2], np.float32)
FEW = np.full(8, 0.1, np.float32)
JAX = {
    "rsqrt": jax.lax.rsqrt,
    "relu": jax.nn.relu,
    "silu": jax.nn.silu,
    "sigmoid": jax.nn.sigmoid,
    "softplus": jax.nn.softplus,
    "erf": jax.lax.erf,
    "gelu_tanh": jax.nn.gelu,
    "gelu_erf": lambda x: jax.nn.gelu(x, approximate=False),
    "neg": jnp.negative,
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
}


def test_every_operation_has_a_rule_or_a_reason():
    assert set(RULES) | set(FLAT) == set(OPS)
    assert not set(RULES) & set(FLAT)
    assert all(FLAT.values())


def _adjoints(op: str, *operands: np.ndarray, **attrs: object) -> list[np.ndarray]:
    """What the rule gives each operand for a cotangent of 2."""
    kinds = [Type(o.shape, "float32") for o in operands]
    args = tuple(Var(f"x{n}", k) for n, k in enumerate(kinds))
    shape = np.broadcast_shapes(*(o.shape for o in operands))
    apply = Apply(op, args, Type(shape, "float32"), tuple(attrs.items()))
    values = {f"x{n}": o for n, o in enumerate(operands)}
    values["adjoint"] = np.full(shape, 2, np.float32)
    with np.errstate(all="ignore"):
        values["value"] = evaluate(apply, values)
        use = OpUse(apply, Var("value", apply.type), Var("adjoint", apply.type))
        return [evaluate(a, values) for a in RULES[op](use) if a is not None]


@pytest.mark.parametrize("op", [op for op in UNARY.split() if op in RULES])
def test_of_one_operand(op):
    points = np.abs(POINTS) + FEW if op in ("log", "log2", "log1p", "rsqrt", "sqrt") else POINTS
    function = JAX.get(op) or getattr(jnp, op)
    wanted = jax.vjp(function, points)[1](np.full_like(points, 2))
    np.testing.assert_allclose(_adjoints(op, points), wanted, rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("op", [op for op in BINARY.split() if op in RULES])
def test_of_two_operands(op):
    x, y = (np.abs(POINTS), OTHER) if op == "pow" else (POINTS, OTHER)
    y = np.where(y == 0, np.full_like(y, 4), y) if op in ("div", "mod") else y
    function = JAX.get(op) or getattr(jnp, op)
    wanted = jax.vjp(function, x, y)[1](np.full_like(x, 2))
    np.testing.assert_allclose(_adjoints(op, x, y), wanted, rtol=2e-6, atol=1e-6)


def test_a_whole_power():
    for n in (0, 1, 2, 3, -1):
        x = Var("x", Type((8,), "float32"))
        apply = Apply("pow", (x, Const(n, Type((), "float32"))), x.type)
        points = POINTS + FEW
        (got, _) = RULES["pow"](OpUse(apply, apply, Const(1.0, Type((), "float32"))))
        found = 0 * points if got is None else evaluate(got, {"x": points})
        wanted = jax.grad(lambda p, n=n: (p**n).sum())(points)
        np.testing.assert_allclose(np.broadcast_to(found, (8,)), wanted, rtol=1e-6)


@pytest.mark.parametrize("op", ["max", "min"])
def test_equal_elements_share(op):
    x = np.array([[1, 3, 3, 0], [2, 2, 2, 2]], np.float32)
    kind = Type((2,), "float32")
    apply = Apply(op, (Var("x", Type((2, 4), "float32")),), kind, (("axis", 1), ("keepdim", False)))
    value = Var("value", kind)
    (adjoint,) = RULES[op](OpUse(apply, value, Var("adjoint", kind)))
    assert adjoint is not None
    values = {"x": x, "adjoint": np.ones(2, np.float32), "value": getattr(x, op)(1)}
    wanted = jax.grad(lambda t: getattr(t, op)(1).sum())(jnp.asarray(x))
    np.testing.assert_allclose(evaluate(adjoint, values), wanted)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize(("start", "stop"), [(0, 2), (1, 3), (2, 4), (1, 2)])
def test_what_is_not_in_a_part_has_no_gradient(axis, start, stop):
    x = np.random.default_rng(axis).standard_normal((4, 4, 4)).astype(np.float32)
    part = np.moveaxis(np.moveaxis(x, axis, 0)[start:stop], 0, axis)
    attrs = (("axis", axis), ("start", start), ("stop", stop))
    value = Var("x", Type(x.shape, "float32"))
    apply = Apply("narrow", (value,), Type(part.shape, "float32"), attrs)
    (found,) = RULES["narrow"](OpUse(apply, apply, Var("adjoint", apply.type)))
    cut = jax.vjp(lambda x: jax.lax.slice_in_dim(x, start, stop, axis=axis), x)[1]
    assert found is not None
    np.testing.assert_array_equal(evaluate(found, {"adjoint": part}), *cut(part))


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_joined_values_get_what_came_to_their_positions(axis):
    shape, rng = [2, 3, 4], np.random.default_rng(axis)
    parts = []
    for length in (3, 1, 5):
        shape[axis] = length
        parts.append(rng.standard_normal(shape).astype(np.float32))
    whole = np.concatenate(parts, axis)
    adjoint = rng.standard_normal(whole.shape).astype(np.float32)
    adjoint[(0,) * 3] = np.inf  # which reaches its own element alone
    args = tuple(Var(f"x{n}", Type(p.shape, "float32")) for n, p in enumerate(parts))
    apply = Apply("concat", args, Type(whole.shape, "float32"), (("axis", axis),))
    found = RULES["concat"](OpUse(apply, apply, Var("adjoint", apply.type)))
    wanted = jax.vjp(lambda *p: jnp.concatenate(p, axis), *parts)[1](adjoint)
    for one, other in zip(found, wanted, strict=True):
        assert one is not None
        np.testing.assert_array_equal(evaluate(one, {"adjoint": adjoint}), other)
