"""kernel(fn) -> Kernel: the decorator, and what a decorated function can do.

The stages are loaded when the first kernel is compiled, not when one is decorated.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any, overload

import numpy as np

from .errors import CallError
from .reads import NotStatic, Read, check_static, stamp
from .runtime import bridge, pickled
from .runtime.choices import Choices
from .runtime.dynamo import keep_out
from .runtime.method import Method, is_method
from .runtime.signature import bind, signature
from .runtime.tensors import KEYS, Described, describe, home_of
from .texts import texts

if TYPE_CHECKING:
    from .analysis.facts import Facts
    from .aot import Compiled
    from .codegen.pallas.target import Target
    from .frontend import Parsed
    from .ir import KernelIR
    from .runtime.launch import Launch
    from .runtime.lowering import Lowered
    from .schedule.config import Config
    from .texts import Texts


@dataclass(frozen=True)
class Stats:
    """What a kernel has done so far.

    calls            calls that were begun
    specialisations  argument keys that calls were specialised to
    compiles         times that the stages ran, for calls and for lower, source and explain
    seconds          spent in those; JAX's own compilation is not counted
    """

    calls: int
    specialisations: int
    compiles: int
    seconds: float


class Kernel:
    """A kernel function, compiled for each combination of shapes, dtypes and static arguments."""

    def __init__(
        self,
        fn: Callable[..., Any],
        *,
        config: Config | None = None,
        target: str | Target | None = None,
        interpret: Any = None,
        checks: bool | None = None,
    ) -> None:
        if not isinstance(fn, FunctionType):
            hint = "decorate a function: @tile.kernel above a def"
            raise CallError(f"{fn!r} is not a Python function", hint=hint)
        self.signature = signature(fn)
        self._fn, self._config, self._target = fn, config, target
        self._interpret, self._checks = interpret, checks
        self._arity = self.signature.positional
        self._texts = texts(fn)
        self._keys = _Keys()
        self._launches: Choices[Launch] = Choices()
        self._parses: Choices[_Parse] = Choices()
        self._lowered: dict[Hashable, Lowered] = {}
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        self._lock = threading.RLock()
        self._calls, self._launched, self._compiles, self._seconds = 0, 0, 0, 0.0
        functools.update_wrapper(self, fn)
        _keep_dynamo_out()

    def __call__(
        self,
        *args: Any,
        config: Config | None = None,
        target: str | Target | None = None,
        **kwargs: Any,
    ) -> Any:
        """Runs the kernel; the results are of the arguments' framework.

        Raises CallError for arguments that do not fit, RaggedValueError for offsets out of range,
        and ParseError, TypingError or PlanError at the first call for what is wrong in the kernel.
        """
        if kwargs or len(args) != self._arity:
            args = bind(self.signature, args, kwargs)
        self._calls += 1
        keys = self._keys
        try:
            key = (config, target, *[keys[type(arg)](arg) for arg in args])
            launch = self._launches.find(key, (self._fn, *args))
        except Exception:  # an argument that cannot be part of a key: specialising says which
            key, launch = None, None
        if launch is None:
            _keep_dynamo_out()  # here: torch may have been imported after the kernel was made
            launch = self._specialise(key, args, config, target)
        return launch(args)

    # ------------------------------------------------------------ looking inside

    def lower(
        self,
        *args: Any,
        config: Config | None = None,
        target: str | Target | None = None,
        **kwargs: Any,
    ) -> Lowered:
        """Every stage for these arguments: .ir .facts .plan .source .config .target .axes."""
        values = bind(self.signature, args, kwargs)
        return self._lower(values, self._described(values), config, target)

    def source(
        self,
        *args: Any,
        config: Config | None = None,
        target: str | Target | None = None,
        **kwargs: Any,
    ) -> str:
        """The generated module."""
        return self.lower(*args, config=config, target=target, **kwargs).source.text

    def print_source(
        self,
        *args: Any,
        config: Config | None = None,
        target: str | Target | None = None,
        **kwargs: Any,
    ) -> None:
        """Prints the generated module."""
        print(self.source(*args, config=config, target=target, **kwargs))

    def explain(
        self,
        *args: Any,
        config: Config | None = None,
        target: str | Target | None = None,
        **kwargs: Any,
    ) -> str:
        """Axes and why, the plan and, where offsets have values, how much work is padding."""
        values = bind(self.signature, args, kwargs)
        described = self._described(values)
        lowered = self._lower(values, described, config, target)
        concrete = {n: d for n, d in described.items() if d.home not in ("traced", "shape")}
        integers = {n: d for n, d in concrete.items() if "int" in d.spec.dtype}
        return _explain().explain(lowered, self._arrays(values, integers))

    def compile(
        self,
        *args: Any,
        target: str | Target | None = None,
        config: Config | None = None,
        timeout: float = 120,
        schedule: bool = False,
        **kwargs: Any,
    ) -> Compiled:
        """Compiles for a TPU with the real compiler; needs libtpu, no TPU, and runs nothing.

        The target is the kernel's own or "tpu:v6e" if left out.  `schedule` counts instruction
        bundles too.  Raises CompileError where the compiler refuses the kernel, dies, or needs more
        than `timeout` seconds.
        """
        values = bind(self.signature, args, kwargs)
        chosen = target or self._target or "tpu:v6e"
        lowered = self._lower(values, self._described(values), config, chosen)
        return _aot().compile_lowered(lowered, timeout=timeout, schedule=schedule)

    def default_config(
        self, *args: Any, target: str | Target | None = None, **kwargs: Any
    ) -> Config:
        """The config that is used when none is given."""
        values = bind(self.signature, args, kwargs)
        described = self._described(values)
        goal = self._goal(described, target)
        parsed = self._read(values, described)
        return _lowering().chosen_by_default(parsed.ir, parsed.facts, goal)

    def reference(
        self,
        *args: Any,
        seed: int | None = None,
        blocks: Mapping[str, int] | None = None,
        **kwargs: Any,
    ) -> Any:
        """The results as NumPy arrays, evaluated tile by tile with no device and no plan.

        A seed shuffles the parallel axes and `blocks` sets tile sizes; neither changes the result
        of a right kernel.  Arguments that the kernel stores to are left as they are; if it returns
        nothing, the result is their new values.
        """
        values = bind(self.signature, args, kwargs)
        described = self._described(values)
        arrays = self._arrays(values, described)
        parsed = self._read(values, described)
        ir = parsed.ir
        _oracle().verify(ir, parsed.facts, arrays, self._checks)
        parallel = frozenset() if seed is None else _oracle().parallel(parsed.facts)
        results = _evaluate(ir, arrays, seed=seed, blocks=blocks, parallel=parallel)
        return _oracle().returned(ir, {**arrays, **results})

    def stats(self) -> Stats:
        """Calls, specialisations and compiles so far."""
        return Stats(self._calls, self._launched, self._compiles, self._seconds)

    def __get__(self, instance: object, owner: type | None = None) -> Kernel | Method:
        """A kernel that is written as a method takes its object as the first argument."""
        if instance is None or not is_method(self._fn):
            return self
        return Method(self, instance)

    def __reduce__(self) -> str:
        return pickled.reference(self, self._fn.__module__, self._fn.__qualname__)

    def __copy__(self) -> Kernel:
        return self

    def __deepcopy__(self, memo: object) -> Kernel:
        return self

    def __repr__(self) -> str:
        code, names = self._fn.__code__, ", ".join(self.signature.names)
        return f"<kernel {self._fn.__name__}({names}), {code.co_filename}:{code.co_firstlineno}>"

    # ------------------------------------------------------------ compiling

    def _described(self, values: tuple) -> dict[str, Described]:
        """The tensor arguments by name; CallError for what is neither tensor nor static value."""
        found = {}
        for name, value in zip(self.signature.names, values, strict=True):
            described = describe(name, value)
            if described is None:
                _check_static(name, value)
            else:
                found[name] = described
        return found

    def _arguments(self, values: tuple, described: Mapping[str, Described]) -> dict[str, object]:
        arguments: dict[str, object] = dict(zip(self.signature.names, values, strict=True))
        return arguments | {name: tensor.spec for name, tensor in described.items()}

    def _parsed(self, values: tuple, described: Mapping[str, Described]) -> Parsed:
        with _lowering().our_fault(self.signature.kernel):
            return _parse(self._fn, self._arguments(values, described), self._texts)

    def _goal(self, described: Mapping[str, Described], target: str | Target | None) -> Target:
        """The target that was asked for, else that of the device which holds the arguments."""
        chosen = self._target if target is None else target
        if chosen is None and any(d.home in ("jax", "traced") for d in described.values()):
            running = _execution()
            return running.target_of(running.platform_of(described.values()))
        return _lowering().Target.of(chosen)

    def _lower(
        self,
        values: tuple,
        described: Mapping[str, Described],
        config: Config | None,
        target: str | Target | None,
    ) -> Lowered:
        """The stages, from the cache if these shapes were lowered before on any framework."""
        chosen = _lowering().checked_config(self._config if config is None else config)
        goal = self._goal(described, target)
        return self._planned(self._read(values, described), chosen, goal)

    def _read(self, values: tuple, described: Mapping[str, Described]) -> _Parse:
        """The kernel parsed for these shapes and static values, and for what it read."""
        shapes = [
            (described[n].spec.shape, described[n].spec.dtype) if n in described else stamp(v)
            for n, v in zip(self.signature.names, values, strict=True)
        ]
        with self._lock:
            known = self._parses.find(tuple(shapes), (self._fn, *values))
            if known is None:
                start = time.perf_counter()
                parsed = self._parsed(values, described)
                known = _Parse(parsed.ir, parsed.reads)
                self._parses.add(tuple(shapes), known.reads, known)
                self._seconds += time.perf_counter() - start
            return known

    def _planned(self, parsed: _Parse, config: Config | None, target: Target) -> Lowered:
        """The later stages; also called when JAX lowers for a device, long after the call."""
        key = (parsed, config, target)
        with self._lock:
            if key not in self._lowered:
                start = time.perf_counter()
                self._lowered[key] = _lowering().lower(parsed.ir, parsed.facts, config, target)
                self._seconds += time.perf_counter() - start
                self._compiles += 1
            return self._lowered[key]

    def _specialise(
        self,
        key: Hashable,
        values: tuple,
        config: Config | None,
        target: str | Target | None,
    ) -> Launch:
        described = self._described(values)
        running = _execution()
        operands = [
            running.Operand(place, name, described[name])
            for place, name in enumerate(self.signature.names)
            if name in described
        ]
        running.screen(self.signature.kernel, operands)
        config = _lowering().checked_config(self._config if config is None else config)
        target = self._target if target is None else target
        goal = None if target is None else _lowering().Target.of(target)
        known = self._read(values, described)
        chosen = running.Chosen(
            goal,
            functools.partial(self._planned, known, config),
            config is not None and config.windows == "exact",
            self._interpret,
            self._checks,
        )
        with self._lock:
            program = (known, config, goal)
            launch = running.prepare(
                known.ir, known.facts, operands, chosen, self._programs, program
            )
            if key is not None:
                self._launches.add(key, known.reads, launch)
                self._launched += 1
        return launch

    def _arrays(self, values: tuple, described: Mapping[str, Described]) -> dict[str, np.ndarray]:
        """The values of tensor arguments on the host, as kernels see them."""
        given = dict(zip(self.signature.names, values, strict=True))
        return {name: bridge.host_array(name, given[name], d) for name, d in described.items()}


@overload
def kernel(fn: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(
    fn: None = None,
    *,
    config: Config | None = None,
    target: str | Target | None = None,
    interpret: Any = None,
    checks: bool | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | None = None,
    target: str | Target | None = None,
    interpret: Any = None,
    checks: bool | None = None,
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Makes a kernel of a function that loops over tiles; use as `@tile.kernel` or with options.

    config     choices for every call; a call's own `config=` goes first
    target     "cpu", "tpu:v6e", ...: what to plan for; the arguments' device if left out
    interpret  True or pltpu.InterpretParams(): interpret even on a TPU; False: never interpret
    checks     whether to look at offsets and indices before each launch; if left out, wherever
               their values are on the host
    """
    options: dict[str, Any] = {
        "config": config,
        "target": target,
        "interpret": interpret,
        "checks": checks,
    }
    if fn is None:
        return lambda decorated: Kernel(decorated, **options)
    return Kernel(fn, **options)


def _keep_dynamo_out() -> None:
    for function in (_keep_dynamo_out, Kernel.__call__, Kernel._specialise):
        keep_out(function)


class _Keys(dict[type, Callable[[Any], Hashable]]):
    """Type -> how to make the part of a call's key that stands for a value of that type."""

    def __missing__(self, kind: type) -> Callable[[Any], Hashable]:
        home = home_of(kind)
        self[kind] = stamp if home is None else KEYS[home]
        return self[kind]


@dataclass(frozen=True, eq=False)
class _Parse:
    """A parsed kernel and the reads that it rests on; a key that stands for itself."""

    ir: KernelIR
    reads: tuple[Read, ...]

    @functools.cached_property
    def facts(self) -> Facts:
        """What is true of it; ParseError for a mistake that the facts show."""
        return _lowering().proved(self.ir)


def _check_static(name: str, value: object) -> None:
    if _holds_tensors(value):
        raise CallError(
            f"{name} is a {type(value).__name__} that holds tensors",
            hint="give each tensor a parameter of its own",
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


def _parse(fn: FunctionType, arguments: Mapping[str, object], files: Texts) -> Parsed:
    from .frontend import parsed

    return parsed(fn, arguments, files)


def _evaluate(ir: KernelIR, arrays: Mapping[str, np.ndarray], **how: Any) -> dict[str, np.ndarray]:
    from .reference import evaluate

    return evaluate(ir, arrays, **how)


def _lowering() -> ModuleType:
    from .runtime import lowering

    return lowering


def _execution() -> ModuleType:
    try:
        from .runtime import execution
    except ModuleNotFoundError as error:
        if error.name not in ("jax", "jaxlib"):
            raise
        raise CallError(
            "calling a kernel needs JAX, which is not installed",
            hint="pip install 'raggedtile[jax]'; .source, .explain and .reference work without",
        ) from None
    return execution


def _aot() -> ModuleType:
    from . import aot

    return aot


def _explain() -> ModuleType:
    from .runtime import explain

    return explain


def _oracle() -> ModuleType:
    from .runtime import oracle

    return oracle
