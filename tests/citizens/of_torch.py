"""CELLS: what is done with a kernel in torch; each says what is wrong, or raises a refusal."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.fx.experimental.proxy_tensor import make_fx

from tests.citizens.question import Question, unlike

Ask = Callable[[Question], str]
Tensors = Sequence[Any]


def _given(q: Question, n: int = 0) -> list[Any]:
    return [torch.from_numpy(a.copy()) for a in q.calls[n]]


def _wanting(q: Question, n: int = 0) -> list[Any]:
    """The arguments of a call, of which those with gradients require them."""
    tensors = _given(q, n)
    for place in q.floats:
        tensors[place].requires_grad_()
    return tensors


def _cotangents(q: Question, n: int = 0) -> list[Any]:
    return [torch.from_numpy(c) for c in q.cotangents[n]]


def _loss(results: Tensors, cotangents: Tensors) -> Any:
    return sum((r * c).sum() for r, c in zip(results, cotangents, strict=True))


def _moving(q: Question, tensors: Tensors) -> Callable[..., Tensors]:
    """The kernel as a function of its float tensors alone."""

    def call(*moved: Any) -> Tensors:
        own = list(tensors)
        for place, value in zip(q.floats, moved, strict=True):
            own[place] = value
        return q.call(*own)

    return call


# ---------------------------------------------------------------- gradients


def backward(q: Question) -> str:
    """Twice through one graph: the second time adds the same."""
    tensors = _wanting(q)
    loss = _loss(q.call(*tensors), _cotangents(q))
    loss.backward(retain_graph=True)
    once = [tensors[n].grad.clone() for n in q.floats]
    loss.backward()
    twice = [tensors[n].grad / 2 for n in q.floats]
    return unlike(once, q.gradients[0]) or unlike(twice, q.gradients[0])


def func_grad(q: Question) -> str:
    tensors, cotangents = _given(q), _cotangents(q)
    call, places = _moving(q, tensors), tuple(range(len(q.floats)))
    run = torch.func.grad(lambda *moved: _loss(call(*moved), cotangents), places)
    return unlike(run(*(tensors[n] for n in q.floats)), q.gradients[0])


def func_vmap(q: Question) -> str:
    found = torch.func.vmap(q.call)(*map(torch.from_numpy, q.stacked))
    return unlike([r[0] for r in found], q.results[0]) or unlike(
        [r[1] for r in found], q.results[1]
    )


# ---------------------------------------------------------------- graphs


def compiled(q: Question) -> str:
    """One graph, forward and backward."""
    torch._dynamo.reset()
    run = torch.compile(lambda *t: q.call(*t), backend="aot_eager", fullgraph=True)
    tensors = _wanting(q)
    results = run(*tensors)
    _loss(results, _cotangents(q)).backward()
    return unlike([r.detach() for r in results], q.results[0]) or unlike(
        [tensors[n].grad for n in q.floats], q.gradients[0]
    )


class _Module(torch.nn.Module):
    def __init__(self, q: Question) -> None:
        super().__init__()
        self.call = q.call

    def forward(self, *tensors: Any) -> Any:
        return tuple(self.call(*tensors))


def export(q: Question) -> str:
    """A graph with one node of the kernel, on other values than it was made with."""
    made = torch.export.export(_Module(q), tuple(_given(q)))
    nodes = _nodes(made.graph)
    return unlike(made.module()(*_given(q, 1)), q.results[1]) or _one(nodes)


def traced(q: Question) -> str:
    made = make_fx(lambda *t: tuple(q.call(*t)))(*_given(q))
    return unlike(made(*_given(q, 1)), q.results[1]) or _one(_nodes(made.graph))


def _nodes(graph: Any) -> int:
    return sum(str(n.target).startswith("raggedtile") for n in graph.nodes)


def _one(nodes: int) -> str:
    return "" if nodes == 1 else f"{nodes} nodes of the kernel"


def opcheck(q: Question) -> str:
    """torch's own tests of an operation: its schema, its fakes, its gradient."""
    tensors = _wanting(q)
    q.call(*tensors)  # registers it
    callees = [c for made in q.kernel._torches.values() for c in made.callees.values()]
    (operation, *_) = callees[-1].operations.values()
    found = torch.library.opcheck(operation.overload, tuple(tensors))
    wrong = {name: text for name, text in found.items() if text != "SUCCESS"}
    return str(wrong) if wrong else ""


CELLS: Mapping[str, Ask] = {
    "backward": backward,
    "func.grad": func_grad,
    "func.vmap": func_vmap,
    "compile": compiled,
    "export": export,
    "make_fx": traced,
    "opcheck": opcheck,
}
