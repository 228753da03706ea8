"""parse(fn, arguments) -> KernelIR: what the author wrote, specialised to shapes and static values.

The function is evaluated once, on its syntax tree.  What is known now (shapes, dtypes, closures,
static arguments) is computed by Python; loops over hl.grid and hl.tile, and what is computed from
tensors in them, becomes IR.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from types import FunctionType

from ..errors import CallError, Loc, ParseError, TypingError
from ..ir import KernelIR, Param, Tensor, TensorSpec
from ..language.calls import marker
from ..language.dtypes import REFUSED, SUPPORTED
from ..language.handles import TensorHandle
from ..reads import Stamped
from ..texts import Texts
from . import (
    attributes,
    calls,
    containers,
    control,
    expressions,
    inlining,
    loops,
    memory,
    refusals,
    returns,
    statements,
)
from .exchanged import exchange
from .inlining import frame
from .observed import attribute, recording
from .positions import check_unshifted
from .scope import Bound, Draft, Here, Rules, around, execute
from .source import parameters, read, undecorated
from .through import through_views

__all__ = ["Parsed", "parse", "parsed"]

RULES: Rules = {
    **refusals.RULES,
    **expressions.RULES,
    **containers.RULES,
    **attributes.RULES,
    **memory.RULES,
    **calls.RULES,
    **inlining.RULES,
    **statements.RULES,
    **loops.RULES,
    **control.RULES,
}


@dataclass(frozen=True)
class Parsed:
    """A kernel, what was read outside of its text to make it, and the texts of its functions."""

    ir: KernelIR
    reads: tuple[Stamped, ...]
    texts: tuple[str, ...]


def parse(
    fn: FunctionType, arguments: Mapping[str, object], texts: Texts | None = None
) -> KernelIR:
    """The kernel that `fn` is for these arguments, by name: TensorSpecs and static values.

    Functions are read from `texts`, the files as they were, or else from the files as they are.
    Raises ParseError for what is not in the language, TypingError for shapes and dtypes that do
    not fit, CallError for a failing assert.
    """
    return parsed(fn, arguments, texts).ir


def parsed(fn: FunctionType, arguments: Mapping[str, object], texts: Texts | None = None) -> Parsed:
    """The same with the reads that a later call has to make again."""
    known = [None if isinstance(a, TensorSpec) else a for a in arguments.values()]
    draft = Draft({} if texts is None else texts)
    with recording(fn, known) as reads:
        attribute(fn, "__code__")
        ir = _parse(fn, arguments, draft)
    return Parsed(ir, tuple(reads), tuple(map(undecorated, draft.functions.values())))


def _parse(fn: FunctionType, arguments: Mapping[str, object], draft: Draft) -> KernelIR:
    source, node = read(fn, draft.texts)
    if isinstance(node, ast.Lambda):
        raise ParseError("a lambda is no kernel", source.loc(node), "write a def")
    draft.functions[fn.__code__] = node
    body: list = []
    here = Here(draft, frame(source, node, around(fn)), RULES, body)
    params = _parameters(here, fn, node, arguments)
    try:
        structure, names = returns.returned(execute(here, node.body))
        launches = returns.rankless(draft, returns.launches(body))
        returns.check_reads(draft, launches)
        exchange(draft, launches)
        kept = through_views(draft, launches)
        returns.check_scopes(draft, kept)
        check_unshifted(draft)
    except RecursionError:
        hint = "assign parts of long expressions to variables"
        what = f"{fn.__name__} has expressions that are too long to be followed"
        raise ParseError(what, source.first_line(node), hint) from None
    except TypingError as error:  # the language calls a value as the kernel does
        what, hint = draft.by_authors(error.what), draft.by_authors(error.hint)
        raise TypingError(what, error.loc, hint) from None
    tensors = returns.used_tensors(draft, kept, names)
    loc = source.first_line(node)
    if not names and not any(t.mutated for t in tensors):
        what = f"{fn.__name__} returns nothing and changes no argument"
        raise ParseError(what, loc, "return the tensors that it makes")
    axes, doc = returns.used_axes(draft, kept), inspect.getdoc(fn) or ""
    blocks = tuple(b for n, b in draft.blocks.items() if any(a.block == n for a in axes))
    return KernelIR(fn.__name__, params, tensors, axes, kept, names, structure, loc, doc, blocks)


def _parameters(
    here: Here, fn: FunctionType, node: ast.FunctionDef, arguments: Mapping[str, object]
) -> tuple[Param, ...]:
    """Binds the parameters: tensors become inputs, everything else is a host value."""
    places = {a.arg: a for a in parameters(node)}
    here.draft.names.update(arguments)
    params = []
    for name, value in arguments.items():
        loc = here.loc(places.get(name, node))
        if isinstance(value, TensorSpec):
            _check_tensor(fn, name, value, loc)
            tensor = Tensor(name, tuple(value.shape), value.dtype, "input", loc)
            here.draft.tensors[name] = tensor
            here.draft.frameworks[name] = value.framework
            here.frame.names[name] = Bound(TensorHandle(tensor), loc)
            params.append(Param(name, name))
        else:
            here.frame.names[name] = Bound(value, loc)
            params.append(Param(name, None, value))
    return tuple(params)


def _check_tensor(fn: FunctionType, name: str, spec: TensorSpec, loc: Loc) -> None:
    dtype = spec.dtype
    if dtype not in SUPPORTED and dtype != "int64":
        hint = REFUSED.get(dtype, "use float32, bfloat16, int32, ...")
        raise ParseError(f"{name} is {dtype}, which no kernel computes with", loc, hint)
    annotation = inspect.get_annotations(fn).get(name)
    if marker(annotation) == "constexpr" or str(annotation).endswith("constexpr"):
        hint = f"a tensor is a parameter without hl.constexpr: {name}"
        if not spec.shape:
            hint += f", read as {name}[()]; or pass a Python number, which jax.jit calls static"
        raise CallError(f"{name} is a constant of the kernel, not a tensor", loc, hint)
