"""kernel(fn) -> Kernel: the decorator, and what a decorated function can do.

The stages are loaded when the first kernel is compiled, not when one is decorated.
"""

from __future__ import annotations

import functools
import inspect
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from types import FunctionType, MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, overload
from weakref import WeakKeyDictionary

import numpy as np

from .errors import CallError
from .ir import KernelIR, TensorSpec
from .runtime.bridge import narrowed, torch_to_numpy
from .runtime.signature import bind, signature
from .runtime.static import Fingerprint, NotStatic, Stamp, fingerprint, stamp
from .runtime.tensors import KEYS, Described, describe, home_of

if TYPE_CHECKING:
    from .analysis.facts import AxisFact, Facts
    from .codegen.source import Source
    from .runtime.launch import Launch, Operand
    from .schedule import Config, Plan, Target


@dataclass(frozen=True)
class Lowered:
    """Every stage of one specialisation; each prints itself."""

    ir: KernelIR
    facts: Facts
    plan: Plan
    source: Source
    config: Config
    target: Target

    @property
    def axes(self) -> Mapping[str, AxisFact]:
        """Axis name -> kind, why, carries and what else is known of it."""
        return MappingProxyType({fact.name: fact for fact in self.facts.axes})


@dataclass(frozen=True)
class Stats:
    """What a kernel has done so far.

    calls            completed or not
    specialisations  distinct argument keys that were called
    compiles         times that source was generated and loaded to be run
    seconds          spent in those, without JAX's own compilation
    """

    calls: int
    specialisations: int
    compiles: int
    seconds: float


class Kernel:
    """A kernel function, compiled for each combination of shapes, dtypes and static arguments."""

    def __init__(
        self,
        fn: FunctionType,
        config: Config | None = None,
        target: str | Target | None = None,
        interpret: Any = None,
        checks: bool | None = None,
    ) -> None:
        self.signature = signature(fn)
        self._fn, self._config, self._target = fn, config, target
        self._interpret, self._checks = interpret, checks
        self._arity = self.signature.positional if _by_position(fn) else -1
        self._own = fingerprint(fn)
        self._keys = _Keys()
        self._launches: dict[Hashable, Launch] = {}
        self._lowered: dict[Hashable, Lowered] = {}
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        self._lock = threading.RLock()
        self._calls, self._seconds = 0, 0.0
        functools.update_wrapper(self, fn)

    def __call__(
        self, *args: Any, config: Config | None = None, target: str | Target | None = None, **kwargs: Any
    ) -> Any:
        """Runs the kernel; the results are of the arguments' framework.

        Raises TileError: CallError for arguments that do not fit, RaggedValueError for offsets out
        of range, and whatever is wrong with the kernel itself at the first call.
        """
        if kwargs or len(args) != self._arity:
            args = bind(self.signature, args, kwargs)
        self._calls += 1
        if not self._own.holds():
            self._own = fingerprint(self._fn)
        keys = self._keys
        try:
            key = (self._own.stamp, config, target, *[keys[type(arg)](arg) for arg in args])
            launch = self._launches.get(key)
        except (TypeError, NotStatic):  # an argument that cannot be a key: the slow path says which
            key, launch = None, None
        if launch is None:
            launch = self._specialise(key, args, config, target)
        return launch(args)

    # ------------------------------------------------------------ looking inside

    def lower(
        self, *args: Any, config: Config | None = None, target: str | Target | None = None, **kwargs: Any
    ) -> Lowered:
        """Every stage for these arguments: .ir .facts .plan .source .config .target .axes."""
        values = bind(self.signature, args, kwargs)
        return self._lower(values, self._describe(values), config, target)

    def source(
        self, *args: Any, config: Config | None = None, target: str | Target | None = None, **kwargs: Any
    ) -> str:
        """The generated module."""
        return self.lower(*args, config=config, target=target, **kwargs).source.text

    def print_source(
        self, *args: Any, config: Config | None = None, target: str | Target | None = None, **kwargs: Any
    ) -> None:
        """Prints the generated module."""
        print(self.source(*args, config=config, target=target, **kwargs))

    def explain(
        self, *args: Any, config: Config | None = None, target: str | Target | None = None, **kwargs: Any
    ) -> str:
        """Axes and why, the plan, and, where offsets have values, how much work is padding."""
        values = bind(self.signature, args, kwargs)
        described = self._describe(values)
        low = self._lower(values, described, config, target)
        return _stages().explain.explain(
            low.ir, low.facts, low.plan, low.config, low.target, _concrete(values, described)
        )

    def default_config(
        self, *args: Any, target: str | Target | None = None, **kwargs: Any
    ) -> Config:
        """The config that is used when none is given."""
        values = bind(self.signature, args, kwargs)
        described = self._describe(values)
        ir, facts = self._analyse(values, described)
        return _stages().schedule.default_config(ir, facts, self._target_of(described, target))

    def reference(
        self,
        *args: Any,
        seed: int | None = None,
        blocks: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Any:
        """The results as NumPy arrays, evaluated tile by tile with no device and no plan.

        A seed shuffles the parallel axes, `blocks` sets the tiles; neither changes the result of a
        right kernel.  Arguments that the kernel stores to are left as they are; if it returns
        nothing, their new values are the result.
        """
        values = bind(self.signature, args, kwargs)
        described = self._describe(values)
        ir, facts = self._analyse(values, described)
        arrays = _host_arrays(values, described)
        check = None if self._checks is False else _stages().checks.compile_checks(ir)
        if check is not None:
            check.run(arrays)
        parallel = {f.name for f in facts.axes if f.kind == "parallel"}
        found = _stages().reference.evaluate(
            ir, arrays, seed=seed, blocks=blocks, parallel=parallel
        )
        return _stages().results.returned(ir, {**arrays, **found})

    def stats(self) -> Stats:
        """Calls, specialisations and compiles so far."""
        return Stats(self._calls, len(self._launches), len(self._programs), self._seconds)

    def __repr__(self) -> str:
        code = self._fn.__code__
        names = ", ".join(self.signature.names)
        return f"<kernel {self._fn.__name__}({names}) at {code.co_filename}:{code.co_firstlineno}>"

    # ------------------------------------------------------------ compiling

    def _describe(self, values: tuple) -> dict[str, Described]:
        """Parameter -> tensor argument; CallError for a static argument that is no value."""
        found = {n: describe(n, v) for n, v in zip(self.signature.names, values, strict=True)}
        for name, value in zip(self.signature.names, values, strict=True):
            if found[name] is None:
                _check_static(name, value)
        return {name: described for name, described in found.items() if described is not None}

    def _key(
        self, values: tuple, described: Mapping[str, Described], *choices: Hashable
    ) -> Hashable:
        """What a kernel is compiled for: shapes and dtypes, not where the values are."""
        parts: list[Hashable] = [self._own.stamp, *choices]
        for name, value in zip(self.signature.names, values, strict=True):
            tensor = described.get(name)
            parts.append(stamp(value) if tensor is None else (tensor.spec.shape, tensor.spec.dtype))
        return tuple(parts)

    def _analyse(
        self, values: tuple, described: Mapping[str, Described]
    ) -> tuple[KernelIR, Facts]:
        arguments: dict[str, object] = dict(zip(self.signature.names, values, strict=True))
        arguments |= {name: tensor.spec for name, tensor in described.items()}
        ir = _stages().frontend.parse(self._fn, arguments)
        return ir, _stages().analysis.analyze(ir)

    def _target_of(
        self, described: Mapping[str, Described], target: str | Target | None
    ) -> Target:
        platform = "tpu" if any(d.device == "tpu" for d in described.values()) else "cpu"
        chosen = self._target if target is None else target
        return _stages().device.target_of(chosen, platform)

    def _lower(
        self,
        values: tuple,
        described: Mapping[str, Described],
        config: Config | None,
        target: str | Target | None,
    ) -> Lowered:
        stages = _stages()
        chosen = stages.config(self._config if config is None else config)
        goal = self._target_of(described, target)
        key = self._key(values, described, chosen, goal)
        with self._lock:
            if key not in self._lowered:
                ir, facts = self._analyse(values, described)
                used = stages.schedule.default_config(ir, facts, goal) if chosen is None else chosen
                plan = stages.schedule.plan(ir, facts, used, goal)
                source = stages.pallas.emit(plan)
                self._lowered[key] = Lowered(ir, facts, plan, source, used, goal)
            return self._lowered[key]
