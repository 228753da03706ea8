"""Which names mean which op: one table per module, and those of methods, properties, operators.

MODULES["torch"]["rsqrt"](loc, x) builds what MODULES["jax.lax"]["rsqrt"](loc, x) builds
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from ..ir import Expr
from . import build, composed, creation, pieces, products, rearranged, variants
from .op import BINARY, OPS, REDUCING, UNARY
from .values import Site, Value

Build = Callable[..., Any]


def _unary(op: str) -> Build:
    def made(loc: Site, x: Value) -> Expr:
        return build.unary(op, x, loc)

    return made


def _binary(op: str) -> Build:
    def made(loc: Site, x: Value, y: Value) -> Expr:
        return build.binary(op, x, y, loc)

    return made


def _reduction(op: str) -> Build:
    def made(loc: Site, x: Value, axis: object = None, keepdims: bool = False) -> Expr:
        return build.reduce(op, x, axis, keepdims, loc)

    return made


def _where(loc: Site, condition: Value, x: Value, y: Value) -> Expr:
    return build.where(condition, x, y, loc)


def _cast(loc: Site, x: Value, dtype: object) -> Expr:
    return build.cast(x, dtype, loc)


def _documented(made: Build, op: str) -> Build:
    made.__doc__ = OPS[op].doc
    return made


PRIMITIVES: Mapping[str, Build] = {
    **{name: _documented(_unary(name), name) for name in UNARY.split()},
    **{name: _documented(_binary(name), name) for name in BINARY.split()},
    "where": _documented(_where, "where"),
    "cast": _documented(_cast, "cast"),
}

# Every op by a name of its own, which the tables below say by other names, too.
BUILDERS: Mapping[str, Build] = {
    **PRIMITIVES,
    **{f"reduce_{name}": _documented(_reduction(name), name) for name in REDUCING.split()},
    **{name: creation.creator(name) for name in creation.READERS},
    **{f"whole_{name}": variants.whole(name) for name in ("floor", "ceil", "trunc", "round")},
    **{f"cast_{name}": variants.cast_method(d) for name, d in variants.CAST_METHODS.items()},
    **{
        name: function
        for module in (composed, creation, pieces, products, rearranged, variants)
        for name, function in vars(module).items()
        if inspect.isfunction(function) and function.__module__ == module.__name__
    },
}


def _table(*texts: str) -> dict[str, Build]:
    """The ops of a text: "exp" is the op of that name, "absolute:abs" another name of one."""
    words = [word.partition(":") for text in texts for word in text.split()]
    return {name: BUILDERS[meaning or name] for name, _, meaning in words}


# What torch, jax.numpy and NumPy call the same, with the same meaning.
SHARED = _table(
    """
    abs exp exp2 log log1p log2 sqrt sin cos tanh floor ceil round trunc sign isnan isfinite
    logical_not minimum maximum logical_and logical_or logical_xor
    bitwise_and bitwise_or bitwise_xor where
    absolute:abs negative:neg positive:unchanged
    add subtract:sub multiply:mul divide:div true_divide:div floor_divide:floordiv remainder:mod
    greater:gt greater_equal:ge less:lt less_equal:le not_equal:ne
    bitwise_not bitwise_left_shift:shift_left bitwise_right_shift:shift_right
    square reciprocal isinf logaddexp expm1
    sum mean any:reduce_any all:reduce_all amax:reduce_max amin:reduce_min
    argmax:reduce_argmax argmin:reduce_argmin
    matmul outer einsum
    reshape squeeze swapaxes moveaxis broadcast_to concatenate concat:concatenate stack
    arange finfo iinfo zeros ones empty full zeros_like ones_like empty_like full_like
    """
)

HL: dict[str, Build] = {
    **{k: v for k, v in SHARED.items() if k not in ("absolute", "true_divide", "positive")},
    **{k: v for k, v in PRIMITIVES.items() if not k.startswith("gelu_")},
    **_table(
        """
        max:reduce_max min:reduce_min cdiv clamp clip:clamp fma
        gelu elu leaky_relu log_sigmoid hard_sigmoid hard_swish
        var std rms norm softmax log_softmax logsumexp layer_norm rms_norm
        dot mm bmm addmm baddbmm linear dot_general
        transpose permute matrix_transpose unsqueeze expand_dims:unsqueeze flatten cat:concatenate
        narrow chunk glu
        broadcasted_iota
        """
    ),
}

TORCH: dict[str, Build] = {
    **SHARED,
    **_table(
        """
        neg rsqrt erf sigmoid relu detach eq ne lt le gt ge mul pow
        add:torch_add sub:torch_sub subtract:torch_sub
        div:torch_div divide:torch_div true_divide:div
        max:torch_max min:torch_min clamp clip:clamp clamp_min clamp_max addcmul lerp
        var:torch_var std:torch_std var_mean:torch_var_mean norm:torch_norm
        softmax log_softmax logsumexp rms_norm layer_norm
        dot:jnp_dot mv:matmul mm bmm addmm baddbmm
        transpose:swapaxes swapdims:swapaxes permute movedim:moveaxis t unsqueeze flatten narrow
        chunk split:torch_split cat:concatenate tensor:strong as_tensor:strong
        """
    ),
}

FUNCTIONAL = _table(
    """
    relu silu sigmoid tanh softplus:torch_softplus gelu:torch_gelu logsigmoid:log_sigmoid
    leaky_relu relu6 hardtanh mish softmax log_softmax layer_norm rms_norm linear glu
    elu selu celu softsign hardsigmoid:hard_sigmoid hardswish:hard_swish
    """
)

TORCH_SPECIAL = _table("erf exp2 expm1 log1p round expit:sigmoid logsumexp softmax log_softmax")

LINALG = _table("norm:matrix_or_vector_norm vector_norm:norm matmul matrix_transpose")

NUMPY: dict[str, Build] = {
    **SHARED,
    **_table(
        """
        equal:eq mod power:pow pow rint:round fabs:abs invert:bitwise_not
        bitwise_invert:bitwise_not left_shift:shift_left right_shift:shift_right
        max:reduce_max min:reduce_min clip:clamp var:jnp_var std:jnp_std dot:jnp_dot
        transpose:reversed_axes permute_dims:permute matrix_transpose expand_dims:unsqueeze
        ravel:flatten astype:cast array:strong asarray:strong split:jnp_split
        """
    ),
}

LAX = _table(
    """
    neg abs exp exp2 expm1 log log1p sqrt rsqrt sin cos tanh erf floor ceil sign
    add sub mul pow eq ne lt le gt ge
    stop_gradient:detach
    is_finite:isfinite logistic:sigmoid square reciprocal integer_pow:pow div:lax_div
    max:maximum min:minimum bitwise_and bitwise_or bitwise_xor bitwise_not
    shift_left shift_right_arithmetic:shift_right
    clamp:lax_clamp select:where convert_element_type:cast
    reduce_sum reduce_max reduce_min reduce_or:reduce_any reduce_and:reduce_all
    argmax:lax_argmax argmin:lax_argmin dot:jnp_dot dot_general
    transpose:permute reshape expand_dims:unsqueeze squeeze broadcast_in_dim concatenate
    iota broadcasted_iota full full_like split:torch_split
    """
)

NN = _table(
    """
    relu sigmoid tanh softplus silu swish:silu gelu leaky_relu log_sigmoid relu6
    hard_tanh:hardtanh mish softmax log_softmax logsumexp glu
    elu selu celu soft_sign:softsign hard_sigmoid hard_swish hard_silu:hard_swish
    """
)

JAX_SPECIAL = _table("erf expit:sigmoid logsumexp softmax log_softmax")

MATH = _table(
    """
    exp exp2 expm1 log1p log2 sqrt sin cos tanh erf isnan isfinite pow log fabs:abs isinf
    floor:whole_floor ceil:whole_ceil trunc:whole_trunc
    """
)

CDIV = _table("cdiv")

BUILTINS = _table("abs min:smallest max:largest pow round:whole_round")

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
    "jax.experimental.pallas": CDIV,
    "triton": CDIV,
}

METHODS: Mapping[str, Build] = _table(
    """
    neg abs exp exp2 expm1 log log1p log2 sqrt rsqrt sin cos tanh erf sigmoid relu floor ceil round
    trunc sign isnan isfinite isinf square reciprocal logical_not logical_and logical_or
    logical_xor add sub mul div pow minimum maximum eq ne lt le gt ge remainder:mod
    floor_divide:floordiv sum mean any:reduce_any all:reduce_all amax:reduce_max amin:reduce_min
    argmax:reduce_argmax argmin:reduce_argmin matmul squeeze swapaxes
    bitwise_and bitwise_or bitwise_xor bitwise_not
    max:max_method min:min_method var:var_method std:std_method norm:torch_norm
    softmax log_softmax logsumexp clamp clip:clamp clamp_min clamp_max
    where:where_method masked_fill dot:jnp_dot mm bmm addmm baddbmm
    t transpose swapdims:swapaxes permute:permute_method moveaxis movedim:moveaxis
    reshape:reshape_method view:reshape_method flatten ravel:flatten unsqueeze narrow
    chunk split:torch_split expand:expand_method expand_as broadcast_to:expand_method
    contiguous:unchanged clone:unchanged copy:unchanged detach
    astype:cast to:to_method type_as size:size_of dim:rank_of
    """,
    " ".join(f"{name}:cast_{name}" for name in variants.CAST_METHODS),
    "new_zeros new_ones new_empty new_full",
)

PROPERTIES: Mapping[str, Build] = _table(
    "T:reversed_axes mT:matrix_transpose dtype:dtype_of shape:shape_of ndim:rank_of"
)

# Python's operators; "-x", "+x", "~" and "not" take one operand.
OPERATORS: Mapping[str, Build] = _table(
    """
    +:add -:sub *:mul /:div //:floordiv %:mod **:pow @:matmul
    &:bitwise_and |:bitwise_or ^:bitwise_xor <<:shift_left >>:shift_right
    ==:eq !=:ne <:lt <=:le >:gt >=:ge and:logical_and or:logical_or
    -x:neg +x:unchanged ~:bitwise_not not:logical_not
    """
)
