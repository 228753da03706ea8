"""given_of(values) -> Given: the arguments of a call by parameter, and what is known of tensors."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ..errors import CallError
from ..reads import NotStatic, check_static, stamp
from . import bridge
from .tensors import Described, describe, home_of


@dataclass(frozen=True)
class Given:
    """Arguments by parameter, and what is known of those that are tensors."""

    values: Mapping[str, Any]
    tensors: Mapping[str, Described]

    @property
    def specs(self) -> dict[str, Any]:
        """What a kernel is parsed for: values of which tensors are only shape and dtype."""
        return {**self.values, **{name: tensor.spec for name, tensor in self.tensors.items()}}

    @property
    def key(self) -> Hashable:
        """Equal for arguments that a kernel without other reads is parsed alike for."""
        shapes = {name: (d.spec.shape, d.spec.dtype) for name, d in self.tensors.items()}
        return tuple(shapes[n] if n in shapes else stamp(v) for n, v in self.values.items())

    def integers(self) -> dict[str, np.ndarray]:
        """The values of integer tensors, as far as they have any."""
        concrete = {n: d for n, d in self.tensors.items() if d.home not in ("traced", "shape")}
        integers = {n: d for n, d in concrete.items() if "int" in d.spec.dtype}
        return Given(self.values, integers).arrays()

    def arrays(self) -> dict[str, np.ndarray]:
        """The values of tensors on the host, as kernels see them."""
        tensors = self.tensors.items()
        return {name: bridge.host_array(name, self.values[name], d) for name, d in tensors}

    def shared(self, names: Collection[str]) -> dict[str, np.ndarray]:
        """`integers` of the arguments that are not among `names`."""
        kept = {name: d for name, d in self.tensors.items() if name not in names}
        return Given(self.values, kept).integers()

    def element(self, names: Collection[str]) -> tuple[int, Given]:
        """How many elements the arguments `names` have, and what is known of those of one."""
        one, sizes = dict(self.tensors), {}
        for name in names:
            if name not in one or not one[name].spec.shape:
                what = "is no tensor" if name not in one else "has no dimension"
                raise CallError(f"{name} {what} and cannot be batched", hint="leave it out")
            spec = one[name].spec
            sizes[name], inner = spec.shape[0], spec.shape[1:]
            one[name] = replace(one[name], spec=replace(spec, shape=inner))
        if len(set(sizes.values())) > 1:
            counts = ", ".join(f"{name} has {size}" for name, size in sizes.items())
            raise CallError(f"batched arguments have different numbers of elements: {counts}")
        return next(iter(sizes.values())), Given(self.values, one)


def given_of(values: Mapping[str, Any]) -> Given:
    """The arguments; CallError for what is neither tensor nor static value."""
    tensors = {}
    for name, value in values.items():
        described = describe(name, value)
        if described is None:
            check_value(name, value)
        else:
            tensors[name] = described
    return Given(values, tensors)


def check_value(name: str, value: object) -> None:
    """CallError for what is neither tensor nor static value."""
    if _holds_tensors(value):
        raise CallError(
            f"{name} is a {type(value).__name__} that holds tensors",
            hint="give each tensor a parameter of its own",
        )
    if type(value).__module__ == "torch.fx.proxy":
        raise CallError(
            f"{name} is a {type(value).__name__} of torch.fx, which stands for a tensor",
            hint="use torch.export or make_fx, which see the kernel as one operation; or call it "
            "in a function of a module, which torch.fx.wrap names",
        )
    try:
        check_static(value)
    except NotStatic as error:
        kind = type(error.args[0]).__name__
        hints = {
            "list": "pass a tuple, or an array if the kernel loads from it",
            "dict": "pass its values one by one, or a tuple",
            "set": "pass a tuple",
        }
        raise CallError(
            f"{name} is a {kind}, which is neither a tensor nor a value that cannot change",
            hint=hints.get(kind, "pass numbers, strings, dtypes, functions or tuples of them"),
        ) from None


def _holds_tensors(value: object) -> bool:
    if not isinstance(value, tuple | list | dict):
        return False
    items = value.values() if isinstance(value, dict) else value
    return any(home_of(type(item)) is not None or _holds_tensors(item) for item in items)
