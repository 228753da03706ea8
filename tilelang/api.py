"""kernel(fn) -> Kernel: the decorator, and what a decorated function can do.

The stages are loaded when the first kernel is compiled, not when one is decorated.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from types import FunctionType
from typing import TYPE_CHECKING, Any, overload

from .errors import CallError, PlanError
from .reads import Read, stamp
from .runtime import bridge, pickled
from .runtime.choices import Choices
from .runtime.dynamo import keep_out
from .runtime.given import Given, given_of
from .runtime.method import Method, is_method
from .runtime.signature import bind, signature
from .runtime.tensors import KEYS, home_of
from .texts import texts


class Late:
    """A stage: a module of ours that is imported when something of it is first needed."""

    def __init__(self, name: str) -> None:
        self._name = f"{__package__}.{name}"

    def __getattr__(self, name: str) -> Any:
        try:
            return getattr(import_module(self._name), name)
        except ModuleNotFoundError as error:
            if error.name not in ("jax", "jaxlib"):
                raise
            raise CallError(
                "calling a kernel needs JAX, which is not installed",
                hint="pip install 'raggedtile[jax]'; .source, .explain and .reference work without",
            ) from None


if TYPE_CHECKING:
    from . import aot, frontend, reference
    from .analysis.facts import Facts
    from .aot import Compiled, CudaCompiled, Program
    from .autotune import model
    from .autotune.model import Prediction
    from .ir import KernelIR
    from .runtime import batching, execution, explain, lowering, oracle, torch_batching
    from .runtime import launch as launching
    from .runtime.batching import Stages
    from .runtime.cuda import execution as cuda
    from .runtime.launch import Launch
    from .runtime.lowering import Lowered, Target
    from .schedule.config import Config
    from .transforms import batch

    AnyTarget = str | Target | None
else:
    aot, frontend, reference = map(Late, ("aot", "frontend", "reference"))
    execution, explain = Late("runtime.execution"), Late("runtime.explain")
    lowering, oracle = Late("runtime.lowering"), Late("runtime.oracle")
    cuda, launching = Late("runtime.cuda.execution"), Late("runtime.launch")
    model, batch = Late("autotune.model"), Late("transforms.batch")
    batching, torch_batching = Late("runtime.batching"), Late("runtime.torch_batching")


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
        target: AnyTarget = None,
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
        self._parses: Choices[_Parsed] = Choices()
        self._lowered: dict[Hashable, Lowered] = {}
        self._programs: dict[Hashable, Callable[..., Any]] = {}
        self._batches: dict[Hashable, _Parsed] = {}
        self._larger: dict[tuple[str, ...], Kernel] = {}
        self._element: tuple[Kernel, tuple[str, ...]] | None = None
        self._lock = threading.RLock()
        self._calls, self._launched, self._compiles, self._seconds = 0, 0, 0, 0.0
        functools.update_wrapper(self, fn)
        _keep_dynamo_out()

    def __call__(
        self, *args: Any, config: Config | None = None, target: AnyTarget = None, **kwargs: Any
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
        self, *args: Any, config: Config | None = None, target: AnyTarget = None, **kwargs: Any
    ) -> Lowered:
        """Every stage for these arguments: .ir .facts .plan .source .config .target .axes."""
        return self._lower(self._given(bind(self.signature, args, kwargs)), config, target)

    def source(
        self, *args: Any, config: Config | None = None, target: AnyTarget = None, **kwargs: Any
    ) -> str:
        """The generated module."""
        return self.lower(*args, config=config, target=target, **kwargs).source.text

    def print_source(
        self, *args: Any, config: Config | None = None, target: AnyTarget = None, **kwargs: Any
    ) -> None:
        """Prints the generated module."""
        print(self.source(*args, config=config, target=target, **kwargs))

    def explain(
        self, *args: Any, config: Config | None = None, target: AnyTarget = None, **kwargs: Any
    ) -> str:
        """Axes and why, the plan and, where offsets have values, how much work is padding."""
        given = self._given(bind(self.signature, args, kwargs))
        try:
            return explain.explain(self._lower(given, config, target), given.integers())
        except PlanError as refused:
            if self._element is None:
                raise
            kernel, names = self._element
            _, one = given.element(names)
            whole = kernel._lower(one, config, target)
            return explain.one_by_one(refused, explain.explain(whole, one.shared(names)))

    def compile(
        self,
        *args: Any,
        target: AnyTarget = None,
        config: Config | None = None,
        timeout: float = 120,
        schedule: bool = False,
        **kwargs: Any,
    ) -> Compiled | CudaCompiled:
        """Compiles with the real compiler, libtpu or Triton; needs no device, and runs nothing.

        The target is the kernel's own or "tpu:v6e" if left out; for a GPU ("cuda:sm90") the result
        has registers, stack and instruction counts.  `schedule` counts a TPU's instruction bundles
        too.  Raises CompileError where the compiler refuses the kernel, dies, or needs more
        than `timeout` seconds.
        """
        chosen = target or self._target or "tpu:v6e"
        lowered = self._lower(self._given(bind(self.signature, args, kwargs)), config, chosen)
        return aot.compile_lowered(lowered, timeout=timeout, schedule=schedule)

    def predict(
        self,
        *args: Any,
        target: AnyTarget = None,
        config: Config | None = None,
        values: Mapping[str, Any] | None = None,
        timeout: float = 120,
        **kwargs: Any,
    ) -> Prediction:
        """How long the kernel takes on a TPU, by its compiled schedule; nothing is run.

        The target is the kernel's own or "tpu:v6e" if left out.  Integers that steer the kernel,
        such as offsets, must have values: those of the arguments, or `values={"offsets": array}`
        where the argument is a shape; a list of arrays gives the mean and the worst of several.
        Raises CallError where they have none, CompileError as `compile` does.
        """
        chosen = target or self._target or "tpu:v6e"
        given = self._given(bind(self.signature, args, kwargs))
        lowered = self._lower(given, config, chosen)
        return model.predict(lowered, given.integers(), values or {}, timeout=timeout)

    def default_config(self, *args: Any, target: AnyTarget = None, **kwargs: Any) -> Config:
        """The config that is used when none is given."""
        given = self._given(bind(self.signature, args, kwargs))
        goal, parsed = self._goal(given, target), self._parsed(given)
        return lowering.chosen_by_default(parsed.ir, parsed.facts, goal)

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
        given = self._given(bind(self.signature, args, kwargs))
        arrays, parsed = given.arrays(), self._parsed(given)
        ir, facts = parsed.ir, parsed.facts
        if self._checks is not False:
            oracle.verify(ir, facts, arrays)
        parallel = [fact.name for fact in facts.axes if fact.kind == "parallel"]
        results = reference.evaluate(ir, arrays, seed=seed, blocks=blocks, parallel=parallel)
        return oracle.returned(ir, {**arrays, **results})

    def batched(self, *names: str) -> Kernel:
        """The kernel of many elements at once, in one launch: what `jax.vmap` of a call runs.

        The arguments `names` and every result have a leading dimension of elements.
        """
        if names in self._larger:
            return self._larger[names]
        unknown = next((n for n in names if n not in self.signature.names), None)
        if unknown is not None or not names:
            raise CallError(
                f"{self.signature.kernel} has no parameter {unknown!r} to batch"
                if names
                else f"which arguments of {self.signature.kernel} are batched?",
                hint=f"name some of {', '.join(self.signature.names)}",
            )
        options = {"config": self._config, "target": self._target, "interpret": self._interpret}
        made = Kernel(self._fn, **options, checks=self._checks)
        made._element, made._lock = (self, names), self._lock
        made._lowered, made._programs, made._batches = self._lowered, self._programs, self._batches
        return self._larger.setdefault(names, made)

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

    def _given(self, values: tuple) -> Given:
        """The arguments; CallError for what is neither tensor nor static value."""
        return given_of(dict(zip(self.signature.names, values, strict=True)))

    def _goal(self, given: Given, target: AnyTarget) -> Target:
        """The target that was asked for, else that of the device which holds the arguments."""
        chosen, tensors = self._target if target is None else target, given.tensors.values()
        if chosen is None and lowering.on_gpu(tensors):
            return cuda.target_of(bridge.torch().device("cuda"))
        if chosen is None and any(d.home in ("jax", "traced") for d in tensors):
            return execution.target_of(execution.platform_of(tensors))
        return lowering.target_of(chosen)

    def _lower(self, given: Given, config: Config | None, target: AnyTarget) -> Lowered:
        """The stages, from the cache if these shapes were lowered before on any framework."""
        chosen = lowering.checked_config(self._config if config is None else config)
        goal = self._goal(given, target)
        return self._planned(self._parsed(given), chosen, goal)

    def _parsed(self, given: Given) -> _Parsed:
        """The kernel parsed for these shapes and static values, and for what it read."""
        if self._element is not None:
            kernel, names = self._element
            size, element = given.element(names)
            return self._batch(kernel._parsed(element), names, size)
        with self._lock:
            known = self._parses.find(given.key, (self._fn, *given.values.values()))
            if known is None:
                start = time.perf_counter()
                with lowering.our_fault(self.signature.kernel):
                    parsed = frontend.parsed(self._fn, given.specs, self._texts)
                known = _Parsed(parsed.ir, parsed.reads)
                self._parses.add(given.key, known.reads, known)
                self._seconds += time.perf_counter() - start
            return known

    def _batch(self, parsed: _Parsed, names: Collection[str], size: int) -> _Parsed:
        """The kernel of `size` elements, of which these arguments are not shared."""
        key = (parsed, frozenset(names), size)
        with self._lock:
            if key not in self._batches:
                ir = batch.batched(parsed.ir, names, size)
                self._batches[key] = _Parsed(ir, parsed.reads, (parsed, names))
            return self._batches[key]

    def _stages(self, parsed: _Parsed, config: Config | None) -> Stages:
        """The later stages, for when JAX lowers the kernel or makes a batch of its calls."""

        def batched(names: Collection[str], size: int) -> Stages:
            return self._stages(self._batch(parsed, names, size), config)

        def replaced(ir: KernelIR) -> Stages:
            return self._stages(_Parsed(ir, parsed.reads), config)

        planned, element = functools.partial(self._planned, parsed, config), None
        if parsed.element is not None:
            element = self._stages(parsed.element[0], config), parsed.element[1]
        return batching.Stages(parsed.ir, planned, batched, replaced, element)

    def _planned(self, parsed: _Parsed, config: Config | None, target: Target) -> Lowered:
        """The later stages; also called when JAX lowers for a device, long after the call.

        A batch takes the config of one element: its results are those of one, bit for bit.
        """
        if config is None and parsed.element is not None:
            config = self._planned(parsed.element[0], config, target).config
        key = (parsed, config, target)
        with self._lock:
            if key not in self._lowered:
                start = time.perf_counter()
                self._lowered[key] = lowering.lower(parsed.ir, parsed.facts, config, target)
                self._seconds += time.perf_counter() - start
                self._compiles += 1
            return self._lowered[key]

    def _specialise(
        self, key: Hashable, values: tuple, config: Config | None, target: AnyTarget
    ) -> Launch:
        given = self._given(values)
        try:
            known, launch = self._prepared(given, config, target)
        except PlanError:
            if self._element is None:
                raise
            known, launch = self._parsed(given), self._one_by_one(config, target)
        if any(d.home == "torch" for d in given.tensors.values()):
            names, chosen = self.signature.names, {"config": config, "target": target}
            launch = torch_batching.vmapped(known.ir, names, launch, self.batched, chosen)
        if key is not None:
            with self._lock:
                self._launches.add(key, known.reads, launch)
                self._launched += 1
        return launch

    def _one_by_one(self, config: Config | None, target: AnyTarget) -> Launch:
        """The launch of a batch whose kernel is refused."""
        assert self._element is not None, "only batches have elements"
        (kernel, names), every = self._element, self.signature.names

        def call(values: Sequence[Any]) -> Any:
            return kernel(**dict(zip(every, values, strict=True)), config=config, target=target)

        return batching.each(call, [every.index(name) for name in names])

    def _prepared(
        self, given: Given, config: Config | None, target: AnyTarget
    ) -> tuple[_Parsed, Launch]:
        operands = [
            launching.Operand(place, name, given.tensors[name])
            for place, name in enumerate(given.values)
            if name in given.tensors
        ]
        values = tuple(given.values.values())
        config = lowering.checked_config(self._config if config is None else config)
        target = self._target if target is None else target
        goal = None if target is None else lowering.target_of(target)
        there = lowering.on_gpu(given.tensors.values())
        jax = any(d.spec.framework == "jax" for d in given.tensors.values())
        if not jax and (isinstance(goal, lowering.TritonTarget) or (goal is None and there)):
            known = self._parsed(given)
            launch = cuda.prepare(
                known.ir, known.facts, operands, values, goal,
                functools.partial(self._planned, known, config), self._checks,
            )  # fmt: skip
            return known, launch
        execution.screen(self.signature.kernel, operands)
        known = self._parsed(given)
        chosen = execution.Chosen(
            goal,
            self._stages(known, config),
            _compiled,
            config is not None and config.windows == "exact",
            self._interpret,
            self._checks,
        )
        with self._lock:
            program = (known, config, goal)
            launch = execution.prepare(known.facts, operands, chosen, self._programs, program)
        return known, launch


@overload
def kernel(fn: Callable[..., Any]) -> Kernel: ...
@overload
def kernel(
    fn: None = None,
    *,
    config: Config | None = None,
    target: AnyTarget = None,
    interpret: Any = None,
    checks: bool | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | None = None,
    target: AnyTarget = None,
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
    made = functools.partial(
        Kernel, config=config, target=target, interpret=interpret, checks=checks
    )
    return made if fn is None else made(fn)


def _compiled(lowered: Lowered) -> Sequence[Program]:
    """What Triton makes of a kernel that is planned for a GPU."""
    made = aot.compile_lowered(lowered)
    assert isinstance(made, aot.CudaCompiled)
    return made.programs


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
class _Parsed:
    """A parsed kernel and the reads that it rests on; a key that stands for itself."""

    ir: KernelIR
    reads: tuple[Read, ...]
    element: tuple[_Parsed, Collection[str]] | None = None  # of a batch, and what it does not share

    @functools.cached_property
    def facts(self) -> Facts:
        """What is true of it; ParseError for a mistake that the facts show."""
        return lowering.proved(self.ir)
