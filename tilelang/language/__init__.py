"""The language: loops and tiles, dtypes, and ops.  `import tilelang.language as hl`.

Inside a kernel these names are resolved by the frontend.  Outside, an op applied to NumPy arrays
computes what it means in a kernel, which is also the example in its docstring; a loop marker says
that it needs a kernel.
"""

from __future__ import annotations

from .dtypes import DType as DType
from .dtypes import bfloat16 as bfloat16
from .dtypes import bool_ as bool_
from .dtypes import float8_e4m3fn as float8_e4m3fn
from .dtypes import float8_e5m2 as float8_e5m2
from .dtypes import float16 as float16
from .dtypes import float32 as float32
from .dtypes import float64 as float64
from .dtypes import int8 as int8
from .dtypes import int16 as int16
from .dtypes import int32 as int32
from .dtypes import int64 as int64
from .dtypes import uint8 as uint8
from .dtypes import uint32 as uint32
from .eager import eager
from .markers import atomic_add as atomic_add
from .markers import atomic_max as atomic_max
from .markers import atomic_min as atomic_min
from .markers import constexpr as constexpr
from .markers import grid as grid
from .markers import load as load
from .markers import register_block_size as register_block_size
from .markers import specialize as specialize
from .markers import static_range as static_range
from .markers import store as store
from .markers import tile as tile
from .spellings import HL, Build

bool = bool_


def _op(name: str) -> Build:
    return eager(name, HL[name])


abs = _op("abs")
add = _op("add")
addmm = _op("addmm")
all = _op("all")
amax = _op("amax")
amin = _op("amin")
any = _op("any")
arange = _op("arange")
argmax = _op("argmax")
argmin = _op("argmin")
baddbmm = _op("baddbmm")
bitwise_and = _op("bitwise_and")
bitwise_left_shift = _op("bitwise_left_shift")
bitwise_not = _op("bitwise_not")
bitwise_or = _op("bitwise_or")
bitwise_right_shift = _op("bitwise_right_shift")
bitwise_xor = _op("bitwise_xor")
bmm = _op("bmm")
broadcast_to = _op("broadcast_to")
broadcasted_iota = _op("broadcasted_iota")
cast = _op("cast")
cat = _op("cat")
cdiv = _op("cdiv")
ceil = _op("ceil")
chunk = _op("chunk")
clamp = _op("clamp")
clip = _op("clip")
concat = _op("concat")
concatenate = _op("concatenate")
cos = _op("cos")
detach = _op("detach")
div = _op("div")
divide = _op("divide")
dot = _op("dot")
dot_general = _op("dot_general")
einsum = _op("einsum")
elu = _op("elu")
empty = _op("empty")
empty_like = _op("empty_like")
eq = _op("eq")
erf = _op("erf")
exp = _op("exp")
exp2 = _op("exp2")
expand_dims = _op("expand_dims")
expm1 = _op("expm1")
finfo = _op("finfo")
flatten = _op("flatten")
floor = _op("floor")
floor_divide = _op("floor_divide")
floordiv = _op("floordiv")
fma = _op("fma")
full = _op("full")
full_like = _op("full_like")
ge = _op("ge")
gelu = _op("gelu")
glu = _op("glu")
greater = _op("greater")
greater_equal = _op("greater_equal")
gt = _op("gt")
hard_sigmoid = _op("hard_sigmoid")
hard_swish = _op("hard_swish")
iinfo = _op("iinfo")
isfinite = _op("isfinite")
isinf = _op("isinf")
isnan = _op("isnan")
layer_norm = _op("layer_norm")
le = _op("le")
leaky_relu = _op("leaky_relu")
less = _op("less")
less_equal = _op("less_equal")
linear = _op("linear")
log = _op("log")
log1p = _op("log1p")
log2 = _op("log2")
log_sigmoid = _op("log_sigmoid")
log_softmax = _op("log_softmax")
logaddexp = _op("logaddexp")
logical_and = _op("logical_and")
logical_not = _op("logical_not")
logical_or = _op("logical_or")
logical_xor = _op("logical_xor")
logsumexp = _op("logsumexp")
lt = _op("lt")
matmul = _op("matmul")
matrix_transpose = _op("matrix_transpose")
max = _op("max")
maximum = _op("maximum")
mean = _op("mean")
min = _op("min")
minimum = _op("minimum")
mm = _op("mm")
mod = _op("mod")
moveaxis = _op("moveaxis")
mul = _op("mul")
multiply = _op("multiply")
narrow = _op("narrow")
ne = _op("ne")
neg = _op("neg")
negative = _op("negative")
norm = _op("norm")
not_equal = _op("not_equal")
ones = _op("ones")
ones_like = _op("ones_like")
outer = _op("outer")
permute = _op("permute")
pow = _op("pow")
reciprocal = _op("reciprocal")
relu = _op("relu")
remainder = _op("remainder")
reshape = _op("reshape")
rms = _op("rms")
rms_norm = _op("rms_norm")
round = _op("round")
rsqrt = _op("rsqrt")
shift_left = _op("shift_left")
shift_right = _op("shift_right")
sigmoid = _op("sigmoid")
sign = _op("sign")
silu = _op("silu")
sin = _op("sin")
softmax = _op("softmax")
softplus = _op("softplus")
sqrt = _op("sqrt")
square = _op("square")
squeeze = _op("squeeze")
stack = _op("stack")
std = _op("std")
sub = _op("sub")
subtract = _op("subtract")
sum = _op("sum")
swapaxes = _op("swapaxes")
tanh = _op("tanh")
transpose = _op("transpose")
trunc = _op("trunc")
unsqueeze = _op("unsqueeze")
var = _op("var")
where = _op("where")
zeros = _op("zeros")
zeros_like = _op("zeros_like")

_OTHERS = """
    DType bfloat16 bool bool_ float8_e4m3fn float8_e5m2 float16 float32 float64
    int8 int16 int32 int64 uint8 uint32
    atomic_add atomic_max atomic_min constexpr grid load register_block_size specialize
    static_range store tile
"""
__all__ = [*_OTHERS.split(), *sorted(HL)]  # pyright: ignore[reportUnsupportedDunderAll]  # a table
