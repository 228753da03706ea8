"""Which names mean which op: one table per module, and those of methods, properties, operators.

MODULES["torch"]["rsqrt"](loc, x) builds what MODULES["jax.lax"]["rsqrt"](loc, x) builds
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..errors import Loc
from ..ir import Expr
from . import composed, creation, products, rearranged, variants
from .build import Value, binary, cast, reduce, unary, where
from .op import BINARY, OPS, UNARY

Build = Callable[..., Any]


def _unary(op: str) -> Build:
    def build(loc: Loc | None, x: Value) -> Expr:
        return unary(op, x, loc)

    return _documented(build, op)


def _binary(op: str) -> Build:
    def build(loc: Loc | None, x: Value, y: Value) -> Expr:
        return binary(op, x, y, loc)

    return _documented(build, op)


def _reduction(op: str) -> Build:
    def build(loc: Loc | None, x: Value, axis: object = None, keepdims: bool = False) -> Expr:
        return reduce(op, x, axis, keepdims, loc)

    return _documented(build, op)


def _documented(build: Build, op: str) -> Build:
    build.__doc__ = OPS[op].doc
    return build


def _where(loc: Loc | None, condition: Value, x: Value, y: Value) -> Expr:
    return where(condition, x, y, loc)


def _cast(loc: Loc | None, x: Value, dtype: object) -> Expr:
    return cast(x, dtype, loc)


def _pick(table: Mapping[str, Build], names: str) -> dict[str, Build]:
    return {name: table[name] for name in names.split()}


PRIMITIVES: dict[str, Build] = {
    **{name: _unary(name) for name in UNARY.split()},
    **{name: _binary(name) for name in BINARY.split()},
    "where": _documented(_where, "where"),
    "cast": _documented(_cast, "cast"),
}
_P = PRIMITIVES

# What torch, jax.numpy and NumPy call the same, with the same meaning.
SHARED: dict[str, Build] = {
    **_pick(
        _P,
        "abs exp exp2 log log1p log2 sqrt sin cos tanh floor ceil round trunc sign isnan isfinite"
        " logical_not minimum maximum logical_and logical_or logical_xor"
        " bitwise_and bitwise_or bitwise_xor where",
    ),
    "absolute": _P["abs"],
    "negative": _P["neg"],
    "positive": variants.unchanged,
    "add": _P["add"],
    "subtract": _P["sub"],
    "multiply": _P["mul"],
    "divide": _P["div"],
    "true_divide": _P["div"],
    "floor_divide": _P["floordiv"],
    "remainder": _P["mod"],
    "greater": _P["gt"],
    "greater_equal": _P["ge"],
    "less": _P["lt"],
    "less_equal": _P["le"],
    "not_equal": _P["ne"],
    "bitwise_not": variants.inverted,
    "bitwise_left_shift": _P["shift_left"],
    "bitwise_right_shift": _P["shift_right"],
    "square": composed.square,
    "reciprocal": composed.reciprocal,
    "isinf": composed.isinf,
    "logaddexp": composed.logaddexp,
    "sum": composed.total,
    "mean": composed.mean,
    "any": _reduction("any"),
    "all": _reduction("all"),
    "amax": _reduction("max"),
    "amin": _reduction("min"),
    "argmax": _reduction("argmax"),
    "argmin": _reduction("argmin"),
    "matmul": products.matmul,
    "outer": products.outer,
    "einsum": products.einsum,
    "reshape": rearranged.reshaped,
    "squeeze": rearranged.squeezed,
    "swapaxes": rearranged.swapped,
    "moveaxis": rearranged.moved,
    "broadcast_to": rearranged.repeated_to,
    "concatenate": rearranged.concatenated,
    "concat": rearranged.concatenated,
    "stack": rearranged.stacked,
    "arange": creation.ranged,
    "finfo": variants.finfo,
    "iinfo": variants.iinfo,
    **{n: variants.creator(n) for n in creation.READERS if not n.startswith("new_")},
}

HL: dict[str, Build] = {
    **{k: v for k, v in SHARED.items() if k not in ("absolute", "true_divide", "positive")},
    **{k: v for k, v in _P.items() if not k.startswith("gelu_")},
    "max": _reduction("max"),
    "min": _reduction("min"),
    "clamp": composed.clamp,
    "clip": composed.clamp,
    "fma": composed.fma,
    "gelu": composed.gelu,
    "leaky_relu": composed.leaky_relu,
    "log_sigmoid": composed.log_sigmoid,
    "var": composed.var,
    "std": composed.std,
    "rms": composed.rms,
    "norm": composed.norm,
    "softmax": composed.softmax,
    "log_softmax": composed.log_softmax,
    "logsumexp": composed.logsumexp,
    "layer_norm": composed.layer_norm,
    "rms_norm": composed.rms_norm,
    "dot": products.dot_acc,
    "mm": products.mm,
    "bmm": products.bmm,
    "addmm": products.addmm,
    "baddbmm": products.baddbmm,
    "linear": products.linear,
    "dot_general": products.dot_general,
    "transpose": rearranged.transposed,
    "permute": rearranged.permuted,
    "matrix_transpose": rearranged.matrix_transposed,
    "unsqueeze": rearranged.expanded,
    "expand_dims": rearranged.expanded,
    "flatten": rearranged.flattened,
    "cat": rearranged.concatenated,
    "broadcasted_iota": creation.broadcasted_iota,
}

TORCH: dict[str, Build] = {
    **SHARED,
    **_pick(_P, "neg rsqrt erf sigmoid relu eq ne lt le gt ge mul pow"),
    "add": variants.torch_add,
    "sub": variants.torch_sub,
    "subtract": variants.torch_sub,
    "div": variants.torch_div,
    "divide": variants.torch_div,
    "true_divide": _P["div"],
    "max": variants.torch_max,
    "min": variants.torch_min,
    "clamp": composed.clamp,
    "clip": composed.clamp,
    "clamp_min": variants.clamp_min,
    "clamp_max": variants.clamp_max,
    "addcmul": variants.addcmul,
    "lerp": variants.lerp,
    "var": variants.torch_var,
    "std": variants.torch_std,
    "var_mean": variants.torch_var_mean,
    "norm": variants.torch_norm,
    "softmax": composed.softmax,
    "log_softmax": composed.log_softmax,
    "logsumexp": composed.logsumexp,
    "rms_norm": composed.rms_norm,
    "layer_norm": composed.layer_norm,
    "dot": products.jnp_dot,
    "mv": products.matmul,
    "mm": products.mm,
    "bmm": products.bmm,
    "addmm": products.addmm,
    "baddbmm": products.baddbmm,
    "transpose": rearranged.swapped,
    "swapdims": rearranged.swapped,
    "permute": rearranged.permuted,
    "movedim": rearranged.moved,
    "t": rearranged.two_transposed,
    "unsqueeze": rearranged.expanded,
    "flatten": rearranged.flattened,
    "cat": rearranged.concatenated,
    "tensor": creation.strong,
    "as_tensor": creation.strong,
}
FUNCTIONAL: dict[str, Build] = {
    **_pick(_P, "relu silu sigmoid tanh"),
    "softplus": variants.torch_softplus,
    "gelu": variants.torch_gelu,
    "logsigmoid": composed.log_sigmoid,
    "leaky_relu": composed.leaky_relu,
    "relu6": variants.relu6,
    "hardtanh": variants.hardtanh,
    "mish": variants.mish,
    "softmax": composed.softmax,
    "log_softmax": composed.log_softmax,
    "layer_norm": composed.layer_norm,
    "rms_norm": composed.rms_norm,
    "linear": products.linear,
}

TORCH_SPECIAL: dict[str, Build] = {
    **_pick(_P, "erf exp2 log1p round"),
    "expit": _P["sigmoid"],
    "logsumexp": composed.logsumexp,
    "softmax": composed.softmax,
    "log_softmax": composed.log_softmax,
}

LINALG: dict[str, Build] = {
    "norm": variants.matrix_or_vector_norm,
    "vector_norm": composed.norm,
    "matmul": products.matmul,
    "matrix_transpose": rearranged.matrix_transposed,
}

NUMPY: dict[str, Build] = {
    **SHARED,
    "equal": _P["eq"],
    "mod": _P["mod"],
    "power": _P["pow"],
    "pow": _P["pow"],
    "rint": _P["round"],
    "fabs": _P["abs"],
    "invert": variants.inverted,
    "bitwise_invert": variants.inverted,
    "left_shift": _P["shift_left"],
    "right_shift": _P["shift_right"],
    "max": _reduction("max"),
    "min": _reduction("min"),
    "clip": composed.clamp,
    "var": variants.jnp_var,
    "std": variants.jnp_std,
    "dot": products.jnp_dot,
    "transpose": rearranged.reversed_axes,
    "permute_dims": rearranged.permuted,
    "matrix_transpose": rearranged.matrix_transposed,
    "expand_dims": rearranged.expanded,
    "ravel": rearranged.flattened,
    "astype": _P["cast"],
    "array": creation.strong,
    "asarray": creation.strong,
}
LAX: dict[str, Build] = {
    **_pick(
        _P,
        "neg abs exp exp2 log log1p sqrt rsqrt sin cos tanh erf floor ceil sign"
        " add sub mul pow eq ne lt le gt ge",
    ),
    "is_finite": _P["isfinite"],
    "logistic": _P["sigmoid"],
    "square": composed.square,
    "reciprocal": composed.reciprocal,
    "integer_pow": _P["pow"],
    "div": variants.lax_div,
    "max": _P["maximum"],
    "min": _P["minimum"],
    "bitwise_and": _P["bitwise_and"],
    "bitwise_or": _P["bitwise_or"],
    "bitwise_xor": _P["bitwise_xor"],
    "bitwise_not": variants.inverted,
    "shift_left": _P["shift_left"],
    "shift_right_arithmetic": _P["shift_right"],
    "clamp": variants.lax_clamp,
    "select": _P["where"],
    "convert_element_type": _P["cast"],
    "reduce_sum": _reduction("sum"),
    "reduce_max": _reduction("max"),
    "reduce_min": _reduction("min"),
    "reduce_or": _reduction("any"),
    "reduce_and": _reduction("all"),
    "argmax": variants.lax_argmax,
    "argmin": variants.lax_argmin,
    "dot": products.jnp_dot,
    "dot_general": products.dot_general,
    "transpose": rearranged.permuted,
    "reshape": rearranged.reshaped,
    "expand_dims": rearranged.expanded,
    "squeeze": rearranged.squeezed,
    "broadcast_in_dim": rearranged.broadcast_in_dim,
    "concatenate": rearranged.concatenated,
    "iota": creation.iota,
    "broadcasted_iota": creation.broadcasted_iota,
    "full": variants.creator("full"),
    "full_like": variants.creator("full_like"),
}

NN: dict[str, Build] = {
    **_pick(_P, "relu sigmoid tanh softplus silu"),
    "swish": _P["silu"],
    "gelu": composed.gelu,
    "leaky_relu": composed.leaky_relu,
    "log_sigmoid": composed.log_sigmoid,
    "relu6": variants.relu6,
    "hard_tanh": variants.hardtanh,
    "mish": variants.mish,
    "softmax": composed.softmax,
    "log_softmax": composed.log_softmax,
    "logsumexp": composed.logsumexp,
}

JAX_SPECIAL: dict[str, Build] = {
    "erf": _P["erf"],
    "expit": _P["sigmoid"],
    "logsumexp": composed.logsumexp,
    "softmax": composed.softmax,
    "log_softmax": composed.log_softmax,
}

MATH: dict[str, Build] = {
    **_pick(_P, "exp exp2 log1p log2 sqrt sin cos tanh erf isnan isfinite pow"),
    "log": _P["log"],
    "fabs": _P["abs"],
    "isinf": composed.isinf,
    "floor": variants.whole("floor"),
    "ceil": variants.whole("ceil"),
    "trunc": variants.whole("trunc"),
}

BUILTINS: dict[str, Build] = {
    "abs": _P["abs"],
    "min": variants.smallest,
    "max": variants.largest,
    "pow": _P["pow"],
    "round": variants.whole("round"),
}

MODULES: Mapping[str, Mapping[str, Build]] = {
    "tilelang.language": HL,
    "builtins": BUILTINS,
    "math": MATH,
    "numpy": NUMPY,
    "torch": TORCH,
    "torch.linalg": LINALG,
    "torch.special": TORCH_SPECIAL,
    "torch.nn.functional": FUNCTIONAL,
    "jax.numpy": NUMPY,
    "jax.numpy.linalg": LINALG,
    "jax.lax": LAX,
    "jax.nn": NN,
    "jax.scipy.special": JAX_SPECIAL,
}

METHODS: Mapping[str, Build] = {
    **_pick(
        {**SHARED, **_P},
        "neg abs exp exp2 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid relu floor ceil round"
        " trunc sign isnan isfinite isinf square reciprocal logical_not logical_and logical_or"
        " logical_xor add sub mul div pow minimum maximum eq ne lt le gt ge remainder"
        " floor_divide sum mean any all amax amin argmax argmin matmul squeeze swapaxes"
        " bitwise_and bitwise_or bitwise_xor bitwise_not",
    ),
    "max": variants.max_method,
    "min": variants.min_method,
    "var": variants.var_method,
    "std": variants.std_method,
    "norm": variants.torch_norm,
    "softmax": composed.softmax,
    "log_softmax": composed.log_softmax,
    "logsumexp": composed.logsumexp,
    "clamp": composed.clamp,
    "clip": composed.clamp,
    "clamp_min": variants.clamp_min,
    "clamp_max": variants.clamp_max,
    "where": variants.where_method,
    "masked_fill": variants.masked_fill,
    "dot": products.jnp_dot,
    "mm": products.mm,
    "bmm": products.bmm,
    "addmm": products.addmm,
    "baddbmm": products.baddbmm,
    "t": rearranged.two_transposed,
    "transpose": rearranged.transposed,
    "swapdims": rearranged.swapped,
    "permute": rearranged.permuted_by,
    "moveaxis": rearranged.moved,
    "movedim": rearranged.moved,
    "reshape": rearranged.reshaped_to,
    "view": rearranged.reshaped_to,
    "flatten": rearranged.flattened,
    "ravel": rearranged.flattened,
    "unsqueeze": rearranged.expanded,
    "expand": rearranged.expanded_to,
    "expand_as": rearranged.expanded_as,
    "broadcast_to": rearranged.expanded_to,
    "contiguous": variants.unchanged,
    "clone": variants.unchanged,
    "copy": variants.unchanged,
    "detach": variants.unchanged,
    "astype": _P["cast"],
    "to": variants.to_method,
    "type_as": variants.type_as,
    **{name: variants.cast_method(dtype) for name, dtype in variants.CAST_METHODS.items()},
    "size": creation.size_of,
    "dim": creation.rank_of,
    **{n: variants.creator(n) for n in creation.READERS if n.startswith("new_")},
}

PROPERTIES: Mapping[str, Build] = {
    "T": rearranged.reversed_axes,
    "mT": rearranged.matrix_transposed,
    "dtype": creation.dtype_of,
    "shape": creation.shape_of,
    "ndim": creation.rank_of,
}

# Python's operators; "-x", "+x", "~" and "not" take one operand.
OPERATORS: Mapping[str, Build] = {
    "+": _P["add"],
    "-": _P["sub"],
    "*": _P["mul"],
    "/": _P["div"],
    "//": _P["floordiv"],
    "%": _P["mod"],
    "**": _P["pow"],
    "@": products.matmul,
    "&": _P["bitwise_and"],
    "|": _P["bitwise_or"],
    "^": _P["bitwise_xor"],
    "<<": _P["shift_left"],
    ">>": _P["shift_right"],
    "==": _P["eq"],
    "!=": _P["ne"],
    "<": _P["lt"],
    "<=": _P["le"],
    ">": _P["gt"],
    ">=": _P["ge"],
    "and": _P["logical_and"],
    "or": _P["logical_or"],
    "-x": _P["neg"],
    "+x": variants.unchanged,
    "~": variants.inverted,
    "not": _P["logical_not"],
}
