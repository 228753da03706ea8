"""Groups: the functions of a module whose steps sum the rows of many groups."""

from __future__ import annotations

from collections.abc import Iterator

from tilelang.codegen.pallas.plan.physical import GroupSum, parts_of
from tilelang.codegen.pallas.plan.types import Plan

SPANS = '''\
def spans_of(offsets: jax.Array, size: int) -> jax.Array:
    """Where blocks of `size` ranges [offsets[g], offsets[g + 1]) begin, then where they end.

    Of a block without rows, where its rows would be: its step stays there.
    """
    begin, end = offsets[:-1], offsets[1:]
    live, rest = end > begin, (0, -len(begin) % size)
    most = jnp.iinfo(begin.dtype).max
    begin = jnp.pad(jnp.where(live, begin, most), rest, constant_values=most)
    end = jnp.pad(jnp.where(live, end, 0), rest)
    first, stop = begin.reshape(-1, size).min(axis=1), end.reshape(-1, size).max(axis=1)
    first = jnp.where(first < stop, first, offsets[:-1:size])
    return jnp.concatenate([first, stop])'''
SUMS = '''\
def group_sums(member: jax.Array, rows: jax.Array) -> jax.Array:
    """The sums of the rows of groups, by a product: member[g, r] says whether row r is of group g.

    0 * NaN is NaN: what is not finite is left out then, and put back where it belongs.
    """
    member = member.astype(jnp.bfloat16)

    def product(values: jax.Array) -> jax.Array:
        return jnp.dot(member, values.astype(jnp.bfloat16), preferred_element_type=jnp.float32)

    def upper(values: jax.Array) -> jax.Array:  # the part of float32 that bfloat16 holds
        bits = jax.lax.bitcast_convert_type(values, jnp.int32) & -65536
        return jax.lax.bitcast_convert_type(bits, jnp.float32)

    def exact(values: jax.Array) -> jax.Array:
        if values.dtype == jnp.bfloat16:
            return product(values)
        high = upper(values)
        middle = upper(values - high)
        return product(values - high - middle) + product(middle) + product(high)

    def apart() -> jax.Array:
        values = rows.astype(jnp.float32)
        up, down = (product(~over) > 0.0 for over in (values < jnp.inf, values > -jnp.inf))
        finite = jnp.where(jnp.abs(values) < jnp.inf, values, 0.0).astype(rows.dtype)
        return exact(finite) + jnp.where(up, jnp.inf, 0.0) - jnp.where(down, jnp.inf, 0.0)

    sums = exact(rows)
    return jax.lax.cond(jnp.isnan(jnp.sum(sums * 0.0)), apart, lambda: sums)'''


def functions(plan: Plan) -> Iterator[str]:
    """Those that the text of a plan calls."""
    if any(t.view is not None and t.view.how == "spans" for t in plan.ir.tensors):
        yield SPANS
    stmts = (s for launch in plan.launches for section in launch.sections for s in section.body)
    if any(isinstance(e, GroupSum) for stmt in stmts for e in parts_of(stmt)):
        yield SUMS
