"""exchange(draft, body): outputs are made in the form in which the loops store to them.

out = hl.zeros([T, H * D])                   out_heads = hl.zeros([T, H, D])
heads = out.reshape(T, H, D)            ->   out = out_heads.reshape(T, H * D)
heads[t, h, :] = ...                         out_heads[t, h, :] = ...

Of an array and a view that merges or splits its dimensions each is a view of the other, and only
what loops store to has to be the array.
"""

from __future__ import annotations

from dataclasses import replace

from .. import ir
from .scope import Draft
from .through import dims_of, kept_dims, rearranged


def exchange(draft: Draft, body: tuple[ir.Loop, ...]) -> None:
    """Outputs that are stored to by such views alone change places with one, in the draft.

    All of these views have to have the dimensions of that one, and others of length 1.
    """
    stores = [*ir.every_store(body)]
    for output in [t for t in draft.tensors.values() if t.role == "output"]:
        forms = {_form(draft, s): None for s in stores if draft.root(s.tensor) is output}
        known = [form for form in forms if form is not None]
        fitting = (f for f in known if all(_kept(f, other) for other in known))
        if len(known) == len(forms) and (form := next(fitting, None)) is not None:
            _exchange(draft, output, form)


def _form(draft: Draft, store: ir.Store) -> ir.Tensor | None:
    """The view of an array's own elements in their order that a store is by, if it needs one."""
    tensor = draft.tensors[store.tensor]
    dims = dims_of(draft, tensor)
    if dims is not None and rearranged(draft.root(tensor.name), dims, store.index) is not None:
        return None
    while tensor.view is not None and draft.tensors[tensor.view.source].view is not None:
        tensor = draft.tensors[tensor.view.source]
    return tensor if tensor.view is not None and tensor.view.how == "reshape" else None


def _kept(form: ir.Tensor, other: ir.Tensor) -> bool:
    return kept_dims(form.shape, tuple(range(len(form.shape))), other.shape) is not None


def _exchange(draft: Draft, output: ir.Tensor, form: ir.Tensor) -> None:
    """The array is a view of what was one of its views, and so are its other reshaped views."""
    made = replace(output, name=form.name, shape=form.shape, loc=form.loc)

    def changed(tensor: ir.Tensor) -> tuple[ir.Tensor, ...]:
        view = tensor.view
        if tensor is output:
            return made, output.seen(output.name, ir.View(form.name, "reshape", output.shape))
        if tensor is form:
            return ()
        if view is not None and view.source == output.name and view.how == "reshape":
            return (replace(tensor, view=replace(view, source=form.name)),)
        return (tensor,)

    every = [new for tensor in draft.tensors.values() for new in changed(tensor)]
    draft.tensors.clear()
    draft.tensors.update({t.name: t for t in every})
