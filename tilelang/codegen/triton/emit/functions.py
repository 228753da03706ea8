"""Functions: what Triton's language has no word for, as @triton.jit functions; printed if used."""

from __future__ import annotations

from collections.abc import Iterable
from types import MappingProxyType

# name -> the text behind "@triton.jit"
_TEXTS = {
    "_nan_max": """
def _nan_max(a, b):
    return tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_nan_min": """
def _nan_min(a, b):
    return tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL)
""",
    "_floor_div": '''
def _floor_div(a, b):
    """The quotient, rounded down; Triton's // rounds towards zero."""
    quotient = a // b
    rest = a - quotient * b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), quotient - 1, quotient)
''',
    "_floor_mod": '''
def _floor_mod(a, b):
    """The remainder with the sign of b."""
    rest = a % b
    return tl.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
''',
    "_tanh": """
def _tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    large = (1.0 - e) / (1.0 + e)
    small = x * (1.0 - x * x / 3.0)
    return tl.where(tl.abs(x) < 0.04, small, tl.where(x < 0, -large, large))
""",
    "_silu": """
def _silu(x):
    return x * tl.sigmoid(x)
""",
    "_gelu_tanh": """
def _gelu_tanh(x):
    return 0.5 * x * (1.0 + _tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))
""",
    "_gelu_erf": """
def _gelu_erf(x):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))
""",
    "_log1p": """
def _log1p(x):
    u = 1.0 + x
    exact = tl.log(u) * (x / (u - 1.0))
    return tl.where(u == 1.0, x, tl.where(u == float("inf"), u, exact))
""",
    "_softplus": """
def _softplus(x):
    above = tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return above + _log1p(tl.exp(-tl.abs(x)))
""",
    "_round": '''
def _round(x):
    """The nearest whole number, halves to the even one; larger numbers are whole already."""
    whole = tl.abs(x) + 8388608.0 - 8388608.0
    return tl.where(tl.abs(x) < 4194304.0, tl.where(x < 0, -whole, whole), x)
''',
    "_trunc": """
def _trunc(x):
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))
""",
    "_sign": """
def _sign(x):
    return tl.where(x > 0, x * 0 + 1, tl.where(x < 0, x * 0 - 1, x))
""",
    "_power": '''
def _power(x, n, BITS: tl.constexpr):
    """x multiplied n times by itself; n has that many bits."""
    power = tl.full(x.shape, 1, x.dtype)
    for bit in tl.static_range(BITS):
        power = tl.where((n >> bit) & 1 != 0, power * x, power)
        x = x * x
    return power
''',
    "_larger": '''
def _larger(a, i, b, j):
    """The larger of two values and its lane; the first of equals, and NaN above all."""
    first = tl.where((a == b) | ((a != a) & (b != b)), i < j, (a > b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)
''',
    "_smaller": '''
def _smaller(a, i, b, j):
    """The smaller of two values and its lane; the first of equals, and NaN below all."""
    first = tl.where((a == b) | ((a != a) & (b != b)), i < j, (a < b) | (a != a))
    return tl.where(first, a, b), tl.where(first, i, j)
''',
    "_argmax": """
def _argmax(values, lanes, AXIS: tl.constexpr, KEEP: tl.constexpr):
    _, found = tl.reduce((values, lanes), AXIS, _larger, keep_dims=KEEP)
    return found
""",
    "_argmin": """
def _argmin(values, lanes, AXIS: tl.constexpr, KEEP: tl.constexpr):
    _, found = tl.reduce((values, lanes), AXIS, _smaller, keep_dims=KEEP)
    return found
""",
    "_pow": '''
def _pow(x, y):
    """Negative numbers have powers that are whole; every number to the power 0 is 1."""
    size = tl.exp2(y * tl.log2(tl.abs(x)))
    odd = tl.floor(y * 0.5) * 2.0 != y
    signed = tl.where(odd, -size, size)
    negative = tl.where(tl.floor(y) == y, signed, float("nan"))
    return tl.where((y == 0) | (x == 1.0), 1.0, tl.where(x < 0, negative, size))
''',
    "_find": '''
def _find(ends, item, GROUPS: tl.constexpr, LEVELS: tl.constexpr):
    """How many of the GROUPS ends, which rise, are at most the item; GROUPS < 2 ** LEVELS."""
    found = item * 0
    for level in tl.static_range(LEVELS):
        probe = found + (1 << (LEVELS - 1 - level))
        end = tl.load(ends + probe - 1, mask=probe <= GROUPS, other=2147483647)
        found = tl.where(end <= item, probe, found)
    return found
''',
}
TEXTS = MappingProxyType(_TEXTS)
# function -> those that it calls
CALLS = MappingProxyType(
    {
        "_gelu_tanh": ("_tanh",),
        "_softplus": ("_log1p",),
        "_argmax": ("_larger",),
        "_argmin": ("_smaller",),
    }
)


def function_lines(used: Iterable[str]) -> list[str]:
    """The text of the functions and of those that they call, callees first."""
    wanted = set(used)
    wanted |= {c for name in wanted for c in CALLS.get(name, ())}
    lines: list[str] = []
    for name, text in TEXTS.items():
        if name in wanted:
            lines += ["", "", "@triton.jit", *text.strip().splitlines()]
    return lines
