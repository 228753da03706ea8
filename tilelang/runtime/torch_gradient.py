"""differentiated(call, tensors) -> results: a kernel in torch's autograd.

One autograd function serves `backward()`, `torch.func` and what AOT Autograd traces.  It remembers
only tensors that exist anyway (arguments, results) and those that the gradient's forward made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import CallError, Loc
from .gradients import Gradient, misshapen

Find = Callable[[], Gradient]


@dataclass(frozen=True)
class _SavedPlace:
    """Where backward finds a tensor that was saved: argument, result or extra number n."""

    kind: str
    n: int


@dataclass(frozen=True, eq=False)
class Differentiated:
    """One call that is differentiated.

    kernel  the author's, by name, which is written at `loc`
    names   the arguments that are tensors
    saved   what forward saved, as a tree of places and other values; made when it runs
    """

    kernel: str
    loc: Loc
    names: tuple[str, ...]
    wanted: frozenset[str]
    gradient: Gradient
    saved: list[tuple[list[Any], Any]] = field(default_factory=list)
    results: list[int] = field(default_factory=list)


def differentiated(call: Differentiated, tensors: Sequence[Any]) -> list[Any]:
    """The kernel's results, which autograd differentiates by the gradient."""
    outputs = _Gradient.apply(call, *tensors)
    return list(outputs)[: call.results[0]]


_inside: ContextVar[bool] = ContextVar("a backward runs", default=False)


@contextmanager
def _inside_backward() -> Iterator[None]:
    token = _inside.set(True)
    try:
        yield
    finally:
        _inside.reset(token)


_LEVEL = 1  # of torch's loop over several cotangents, where it is in no other one


def _for_each(run: Callable[[Sequence[Any]], list[Any]], cotangents: Sequence[Any]) -> list[Any]:
    """What `run` makes of cotangents; several at once, of `is_grads_batched`, are one batch."""
    own: Any = torch  # what is not public
    several = [c is not None and own._C._functorch.is_legacy_batchedtensor(c) for c in cotangents]
    if not any(several):
        return run(cotangents)
    pairs = zip(cotangents, several, strict=True)
    whole = [own._remove_batch_dim(c, _LEVEL, 1, 0) if s else c for c, s in pairs]
    found: list[Any] = []

    def batch(*cotangents: Any) -> tuple[Any, ...]:
        found[:] = run(cotangents)
        return tuple(g for g in found if g is not None)

    made = iter(torch.func.vmap(batch, tuple(0 if s else None for s in several))(*whole))
    return [None if g is None else own._add_batch_dim(next(made), 0, _LEVEL) for g in found]


def when_needed(run: Callable[[Sequence[Any]], Sequence[Any]], find: Find) -> Gradient:
    """The gradient that `find` gives; in a backward it is looked for when that is differentiated.

    torch.func always asks as if it would be, and mostly it is not.  What forward saves is computed
    then, once more.
    """
    if not _inside.get():
        return find()

    def backward(saved: Any, cotangents: Sequence[Any], wanted: frozenset[str]) -> Any:
        gradient = find()
        return gradient.backward(gradient.forward(saved)[1], cotangents, wanted)

    return Gradient(lambda arrays: (tuple(run(arrays)), list(arrays)), backward)


class _Gradient(torch.autograd.Function):
    """Arguments -> results, then extras: tensors that are saved and are neither."""

    generate_vmap_rule = True

    @staticmethod
    def forward(call: Differentiated, *tensors: Any) -> Any:
        results, saved = call.gradient.forward(tensors)
        own = {id(t) for t in tensors}  # one that is returned has a gradient by both ways
        results = [t.view_as(t) if id(t) in own else t for t in results]
        leaves, tree = pytree.tree_flatten(saved)
        places = {id(t): _SavedPlace("argument", n) for n, t in enumerate(tensors)}
        places |= {id(t): _SavedPlace("result", n) for n, t in enumerate(results)}
        extras = list[Any]()
        for leaf in leaves:
            if isinstance(leaf, torch.Tensor) and id(leaf) not in places:
                places[id(leaf)] = _SavedPlace("extra", len(extras))
                extras.append(leaf)
        call.saved[:] = [([places.get(id(leaf), leaf) for leaf in leaves], tree)]
        call.results[:] = [len(results)]
        return (*results, *extras)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        call, *tensors = inputs
        (leaves, _), (count,) = call.saved[0], call.results
        sources = {"argument": tensors, "result": output[:count], "extra": output[count:]}
        places = [leaf for leaf in leaves if isinstance(leaf, _SavedPlace)]
        if len(output) > count:  # so that second gradients find what first ones depend on
            wanted = [n for n, name in enumerate(call.names) if name in call.wanted]
            places += [_SavedPlace("argument", n) for n in wanted]
        places = list(dict.fromkeys(places))
        ctx.call, ctx.places = call, places
        ctx.like = [(t.shape, t.dtype, t.device) for t in output[:count]]
        ctx.arguments = [tuple(t.shape) for t in tensors]
        ctx.dtypes = [t.dtype for t in tensors]
        ctx.save_for_backward(*(sources[p.kind][p.n] for p in places))
        integers = [t for t in output[:count] if not t.dtype.is_floating_point]
        ctx.mark_non_differentiable(*output[count:], *integers)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        call, given = ctx.call, cotangents[: len(ctx.like)]
        asked = zip(call.names, ctx.needs_input_grad[1:], strict=True)
        wanted = frozenset(n for n, need in asked if need and n in call.wanted)
        if all(c is None for c in given) or not wanted:
            return (None,) * (1 + len(call.names))
        tensors = ctx.saved_tensors  # once, and out here: a checkpoint runs forward again for them
        saved = _saved(call, ctx.places, tensors)
        there = {p.n: t for p, t in zip(ctx.places, tensors, strict=True) if p.kind == "argument"}
        arguments = [there.get(n) for n in range(len(call.names))]
        once = torch.is_grad_enabled() and any(p.kind == "extra" for p in ctx.places)

        def run(given: Sequence[Any]) -> list[Any]:
            full = [_full(c, *like) for c, like in zip(given, ctx.like, strict=True)]
            recorded = torch.set_grad_enabled(torch.is_grad_enabled() and not once)
            with recorded, _inside_backward():
                made = call.gradient.backward(saved, full, wanted)
                found = [_checked(ctx, n, made) for n in range(len(call.names))]
            return _again(call, found, arguments, full, wanted) if once else found

        return None, *_for_each(run, given)

    @staticmethod
    def jvp(ctx: Any, *tangents: Any) -> Any:
        raise no_forward_mode(ctx.call.kernel)


def no_forward_mode(kernel: str, why: str = "") -> CallError:
    """The error of a tangent that meets a kernel."""
    return CallError(
        f"kernel {kernel} has no derivative in forward mode{why}",
        hint="use reverse mode: backward(), torch.func.grad, torch.func.vjp",
    )


def _saved(call: Differentiated, places: Sequence[_SavedPlace], tensors: Sequence[Any]) -> Any:
    """What forward saved, with the tensors in their places."""
    leaves, tree = call.saved[0]
    there = dict(zip(places, tensors, strict=True))
    found = [there[leaf] if isinstance(leaf, _SavedPlace) else leaf for leaf in leaves]
    return pytree.tree_unflatten(found, tree)


def _full(cotangent: Any, shape: Any, dtype: Any, device: Any) -> Any:
    """The cotangent in memory of its own, zeros if the loss does not use the result."""
    if not dtype.is_floating_point:
        return None
    if cotangent is None:
        return torch.zeros(shape, dtype=dtype, device=device)
    return (cotangent if cotangent.layout is torch.strided else cotangent.to_dense()).contiguous()


def _checked(ctx: Any, n: int, made: Mapping[str, Any]) -> Any:
    """The gradient of an argument in its dtype; None is zero."""
    name = ctx.call.names[n]
    found = made.get(name)
    if found is None:
        return None
    if not isinstance(found, torch.Tensor):
        what = f"the backward of kernel {ctx.call.kernel} gives a {type(found).__name__} as the"
        hint = "compute it with torch, or by kernels"
        raise CallError(f"{what} gradient of {name}, a torch tensor", hint=hint)
    if len(found.shape) != len(ctx.arguments[n]) or tuple(found.shape) != ctx.arguments[n]:
        raise misshapen(ctx.call.kernel, name, found.shape, ctx.arguments[n])
    return found.to(ctx.dtypes[n])


# ---------------------------------------------------------------- gradients of gradients


def _again(
    call: Differentiated,
    found: Sequence[Any],
    arguments: Sequence[Any],
    cotangents: Sequence[Any],
    wanted: frozenset[str],
) -> list[Any]:
    """The gradients, which rest on what forward saved, of which torch knows nothing.

    Differentiated again they are computed anew: of the arguments, `None` if they were not kept.
    """
    places = [n for n, g in enumerate(found) if g is not None]
    sources = [t for t in (*arguments, *cotangents) if t is not None]
    if not places or not any(t.requires_grad for t in sources):
        return list(found)

    def compute(sources: Sequence[Any]) -> tuple[Any, ...]:
        gone = [n for n, t in zip(call.names, arguments, strict=True) if t is None]
        if gone:
            raise _only_once(call, gone[0])
        given, rest = sources[: len(arguments)], iter(sources[len(arguments) :])
        full = [None if c is None else next(rest) for c in cotangents]
        made = call.gradient.backward(call.gradient.forward(given)[1], full, wanted)
        return tuple(made[call.names[n]].to(found[n].dtype) for n in places)

    made = _Again.apply(compute, len(places), *(found[n] for n in places), *sources)
    result = list(found)
    for n, gradient in zip(places, made, strict=True):
        result[n] = gradient
    return result


class _Again(torch.autograd.Function):
    """The first `count` tensors; backward is that of `compute`, of the other ones."""

    generate_vmap_rule = True

    @staticmethod
    def forward(compute: Callable[..., Any], count: int, *tensors: Any) -> Any:
        return tuple(t.clone() for t in tensors[:count])

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.compute, ctx.count, *tensors = inputs
        ctx.save_for_backward(*tensors[ctx.count :])

    @staticmethod
    def backward(ctx: Any, *cotangents: Any) -> Any:
        sources = list(ctx.saved_tensors)
        floats = [n for n, t in enumerate(sources) if t.dtype.is_floating_point]

        def of_floats(*moved: Any) -> Any:
            every = dict(enumerate(sources)) | dict(zip(floats, moved, strict=True))
            return ctx.compute([*every.values()])

        made = torch.func.vjp(of_floats, *(sources[n] for n in floats))[1](cotangents)
        given = dict(zip(floats, made, strict=True))
        return None, None, *(None,) * ctx.count, *map(given.get, range(len(sources)))


def _only_once(call: Differentiated, gone: str) -> CallError:
    """The error where a gradient is to be differentiated, and an argument of it is gone."""
    return CallError(
        f"kernel {call.kernel} is differentiated twice, which takes what its forward saved: that "
        f"would be computed again of {gone}, and {gone} was not kept",
        call.loc,
        "kept are arguments that require a gradient, and what a registered forward saves; or use "
        "JAX, where forward is differentiated too",
    )
