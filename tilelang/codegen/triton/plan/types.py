"""Plan: everything that was chosen for one GPU, as data; `str` of it is for explain().

A launch runs `programs` programs of one @triton.jit function.  Its only arguments are pointers, in
the order of `Launch.arguments`: every size is a number in the text.  So whoever launches needs

    plan.buffers            what the host makes before, in this order: outputs, then scratch
    plan.launches           in this order, on one stream:
        .name               the function in the module
        .arguments          names of inputs, outputs and scratch, each a contiguous array's pointer
        .programs           the grid, (programs, 1, 1)
        .warps .stages .max_registers       num_warps, num_stages, maxnreg of the compilation
    plan.results            what is returned: a buffer or an argument, permuted or reshaped

and the host function in the text does exactly that with torch.  Pointers are taken to be aligned to
16 bytes (`tt.divisibility`); what is not needs a compilation of its own.

The body of a launch is a program in Triton's terms:

    Step  =  Let | Read | Write | For | Guard | Barrier | Descriptor | Fetch
    Expr  =  Const | Var | Apply            of the IR; nothing is left that reads memory or an axis

Dimensions of values are numbers, or names of `Launch.lanes`.  Besides the ops of the language there
are

    program              the number of this program
    quotient, remainder  a // b and a % b of integers that are not negative
    power                x multiplied n times by itself, where n has that many `bits`
    multiply             dot(a, b, acc): a matrix product, or one per first dimension, added to acc
    cumsum               running sums along the only dimension
    take                 take(x, index): the lanes of x along `axis` that an index says
    find                 find(ends, item): how many of `groups` ends in memory are at most the item
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilelang.analysis.facts import AxisKind
from tilelang.codegen.triton.target import Target
from tilelang.errors import Loc
from tilelang.ir import Dim, Expr, KernelIR, Scalar, Type
from tilelang.schedule.config import Config

# ---------------------------------------------------------------- memory

Part = tuple[int, int]  # the first position, and that behind the last


@dataclass(frozen=True)
class Access:
    """Elements of a tensor: at `offset` elements behind its pointer, where `mask` holds.

    The offset is int32 unless the tensor has more elements than that counts.  `parts` are the
    positions along each dimension of the tensor that the elements lie in, where those are known.
    """

    tensor: str
    dtype: str
    offset: Expr | None
    mask: Expr | None = None
    parts: tuple[Part | None, ...] = ()

    def meets(self, other: Access) -> bool:
        """Whether both may have an element in common."""
        if self.tensor != other.tensor:
            return False
        pairs = zip(self.parts, other.parts, strict=False)
        return not any(a and b and (a[1] <= b[0] or b[1] <= a[0]) for a, b in pairs)


# ---------------------------------------------------------------- statements


@dataclass(frozen=True)
class Descriptor:
    """`name` is an array that hardware copies boxes of: zeros are what lies outside of `shape`.

    why   the sentence about its ends: a range's, where sums would see what lies behind it
    """

    name: str
    tensor: str
    shape: tuple[Expr, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    why: str
    loc: Loc | None = None

    def __str__(self) -> str:
        return f"{self.tensor}: boxes of {' x '.join(map(str, self.box))}, {self.why}"


@dataclass(frozen=True)
class Fetch:
    """`name` is the box that begins at `start`, without the dimensions that the type has not."""

    name: str
    type: Type
    descriptor: str
    start: tuple[Expr, ...]
    loc: Loc | None = None


@dataclass(frozen=True)
class Let:
    """`name = value`"""

    name: str
    value: Expr
    loc: Loc | None = None


@dataclass(frozen=True)
class Read:
    """`name` is what memory holds, and `other` where the mask does not."""

    name: str
    type: Type
    access: Access
    other: Scalar = 0
    loc: Loc | None = None


@dataclass(frozen=True)
class Write:
    """Memory becomes `value`; `combine`: atomically, what it was and the value."""

    access: Access
    value: Expr
    combine: Literal["add", "maximum", "minimum"] | None = None
    loc: Loc | None = None


@dataclass(frozen=True)
class Carried:
    """A variable that a loop changes; None where the statements around and in it set it."""

    name: str
    init: Expr | None
    next: Expr | None


@dataclass(frozen=True)
class For:
    """`for name in range(begin, end, by)`; `says` is why the axis runs like this.

    specialized  some warps copy boxes while the others multiply
    flat         it and the loop in it are one for the compiler: what an iteration reads first is
                 copied while the one before it stores
    """

    name: str
    begin: Expr
    end: Expr
    by: Expr
    carries: tuple[Carried, ...]
    body: tuple[Step, ...]
    stages: int | None = None
    says: tuple[str, ...] = ()
    loc: Loc | None = None
    specialized: bool = False
    flat: bool = False


@dataclass(frozen=True)
class Guard:
    """The body, if the condition holds."""

    condition: Expr
    body: tuple[Step, ...]


@dataclass(frozen=True)
class Note:
    """A comment: what is true of the axis whose lines follow."""

    text: str
    loc: Loc | None = None


@dataclass(frozen=True)
class Barrier:
    """All threads have done what is above before any does what is below."""


Step = Let | Read | Write | For | Guard | Note | Barrier | Descriptor | Fetch


# ---------------------------------------------------------------- launches

Place = Literal["program", "item", "loop"]


@dataclass(frozen=True)
class AxisPlan:
    """How one axis runs.

    place    program: a program id chooses the index; item: an item of the worklist does;
             loop: a loop inside of the program
    step     positions that a tile advances by; lanes: how many it is wide, a power of two
    begin, end   the range, kept inside of the arrays that it cuts
    trips    how many tiles there are at most, if that is known
    """

    name: str
    user: str
    kind: AxisKind
    why: str
    place: Place
    tile: bool
    step: int
    lanes: int
    begin: Expr
    end: Expr
    trips: int | None

    def __str__(self) -> str:
        tiles = f", tiles of {self.step}" if self.tile else ""
        wide = f" in {self.lanes} lanes" if self.tile and self.lanes != self.step else ""
        trips = "" if self.trips is None else f", at most {self.trips}"
        return f"{self.name}: {self.place}{tiles}{wide}{trips}; {self.kind}, because {self.why}"


@dataclass(frozen=True)
class Worklist:
    """The tiles of a ragged axis over all groups, found on the device.

    form    search: every program counts the tiles of all groups; table: one program does before,
            and writes where each group's items end
    bound   how many items there are at most, if the ranges are what they are said to be
    """

    group: str
    axis: str
    groups: int
    bound: int
    form: Literal["search", "table"]

    def __str__(self) -> str:
        what = f"{self.form} of {self.axis} over {self.groups} {self.group}"
        return f"worklist: {what}, at most {self.bound} items"


@dataclass(frozen=True)
class Launch:
    """One @triton.jit function and how it is launched."""

    name: str
    arguments: tuple[str, ...]
    programs: int
    warps: int
    stages: int
    max_registers: int | None
    axes: tuple[AxisPlan, ...]
    worklist: Worklist | None
    lanes: tuple[tuple[str, int], ...]  # named dimension -> how many lanes
    body: tuple[Step, ...]
    shared: int = 0  # bytes of shared memory, estimated
    precision: str = "ieee"  # of products of float32
    descriptors: tuple[Descriptor, ...] = ()  # of the body: inputs that must lie at 16 bytes

    def width(self, dim: Dim) -> int:
        """How many lanes a dimension of a value has."""
        return dim if isinstance(dim, int) else dict(self.lanes)[dim]

    def __str__(self) -> str:
        head = f"{self.name}: {self.programs} programs, {self.warps} warps, {self.stages} stages"
        parts = [f"{head}, about {self.shared} bytes of shared memory"]
        parts += [f"  {axis}" for axis in self.axes]
        if self.worklist is not None:
            parts.append(f"  {self.worklist}")
        parts += [f"  {one}" for one in self.descriptors]
        return "\n".join(parts)


@dataclass(frozen=True)
class Buffer:
    """An array that the host makes; `fill` None: it may hold anything."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    fill: Scalar | None
    scratch: bool = False


@dataclass(frozen=True)
class Result:
    """What is returned: an array, or a view of it made in these steps."""

    name: str
    views: tuple[tuple[Literal["reshape", "permute"], tuple[int, ...]], ...] = ()


@dataclass(frozen=True)
class Plan:
    """A kernel for one GPU; `blocks` are those of all tile axes.

    parts   that its longest reduction is cut into, each with a place in a buffer; a launch of its
            own adds them up.  `ir` is that of the kernel with both launches.
    remarks what the config asks for and does not get, or not everywhere
    """

    ir: KernelIR
    config: Config
    target: Target
    launches: tuple[Launch, ...]
    buffers: tuple[Buffer, ...]
    results: tuple[Result, ...]
    blocks: tuple[tuple[str, int], ...]
    parts: int = 1
    remarks: tuple[str, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.launches, *self.remarks))) or "nothing to launch"
