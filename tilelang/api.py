"""kernel(fn) -> Kernel: the decorator, and what a decorated function can do.

The stages are loaded when the first kernel is compiled, not when one is decorated.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, overload

from .autotune import lock as locks
from .errors import CallError, TileError
from .instead import OF_KERNEL, absent, refuse_options
from .runtime import bridge, pickled
from .runtime.choices import Choices
from .runtime.dynamo import Entries, in_graph, keep_out, traced
from .runtime.entries import Entry, entry_for, key_of
from .runtime.given import Given, given_of
from .runtime.later import Filed, later
from .runtime.method import Method, is_method
from .runtime.recompiles import (
    Rows,
    checked_count,
    checked_flag,
    checked_rows,
    refuse_buckets,
    refuse_more,
)
from .runtime.signature import bind, plain_function, signature
from .runtime.tensors import is_symbolic
from .runtime.written_down import digest, origin
from .schedule.refusal import Refusal, allowed
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
    from . import aot, frontend, reference, transforms
    from .aot import Assembled, Compiled, CudaCompiled
    from .autotune import model
    from .autotune.model import Prediction
    from .ir import KernelIR
    from .runtime import (
        batching,
        buckets,
        execution,
        explain,
        gradients,
        jax_programs,
        lowering,
        oracle,
        shape_class,
        symbolic,
        torch_kernel,
    )
    from .runtime import launch as launching
    from .runtime import parsed as parsing
    from .runtime.batching import Stages
    from .runtime.cuda import execution as cuda
    from .runtime.gradients import Gradient, Run
    from .runtime.launch import Launch
    from .runtime.lowering import Lowered, Target
    from .runtime.parsed import Remembered
    from .schedule.candidate import Candidate
    from .schedule.config import Config
    from .transforms import batch

    AnyTarget = str | Target | None
else:
    aot, frontend, reference = map(Late, ("aot", "frontend", "reference"))
    transforms = Late("transforms")
    execution, explain = Late("runtime.execution"), Late("runtime.explain")
    lowering, oracle = Late("runtime.lowering"), Late("runtime.oracle")
    cuda, launching = Late("runtime.cuda.execution"), Late("runtime.launch")
    gradients, parsing = Late("runtime.gradients"), Late("runtime.parsed")
    buckets, symbolic = Late("runtime.buckets"), Late("runtime.symbolic")
    jax_programs, torch_kernel = Late("runtime.jax_programs"), Late("runtime.torch_kernel")
    model, batch = Late("autotune.model"), Late("transforms.batch")
    shape_class = Late("runtime.shape_class")
    batching = Late("runtime.batching")


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
        rows: Rows = "exact",
        max_recompiles: int | None = None,
    ) -> None:
        fn = plain_function(fn)
        self.signature = signature(fn)
        self._fn, self._config, self._target = fn, config, target
        self._interpret, self._checks = interpret, checked_flag("checks", checks)
        self._rows: Rows = checked_rows(rows)
        self._most = checked_count("max_recompiles", max_recompiles)
        by_position, names = self.signature.positional, self.signature.names
        self._arity = by_position if by_position == len(names) else None  # of complete arguments
        self._texts = texts(fn)
        self._entries: dict[tuple[type, ...], Entry] = {}
        self._call: Callable[[tuple, Any, Any], Any] = self._by_types  # or an entry's
        self._launches: Choices[Filed] = Choices()
        self._parses: Choices[Remembered] = Choices()
        self._lowered: dict[Hashable, Lowered] = {}
        self._jax: dict[str, jax_programs.Programs] = {}  # by what the lock file says
        self._subjects: dict[tuple[Remembered, str], tuple[str, str]] = {}
        self._part_launches: dict[Hashable, Launch] = {}
        self._torches: dict[Hashable, torch_kernel.KernelCompiler] = {}
        self._registration: gradients.Registration | None = None
        self._nodes = Entries(self.signature, self._called)
        self._is_method = is_method(fn)
        self._batches: dict[Hashable, Remembered] = {}
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
        if in_graph():
            return traced(self._nodes, args, kwargs, config, target)
        if kwargs or len(args) != self._arity:
            args = bind(self.signature, args, kwargs)
        self._calls += 1
        return self._call(args, config, target)

    def __getattr__(self, name: str) -> Any:
        """Only asked for what is not there."""
        raise AttributeError(absent("a kernel", name, OF_KERNEL, dir(type(self))))

    def __getitem__(self, grid: object) -> Any:
        name = self.signature.kernel
        hint = f"call it: {name}({', '.join(self.signature.names)}); it chooses its own grid"
        raise CallError(f"kernel {name} takes no grid", hint=hint)

    def _called(self, values: tuple, config: Config | None, target: AnyTarget) -> Any:
        self._calls += 1
        return self._call(values, config, target)

    def _by_types(self, values: tuple, config: Config | None, target: AnyTarget) -> Any:
        """A call with arguments of other types than those of the call before.

        The first call is made as later ones are: `torch.jit.trace` compares where they read.
        """
        self._call = self._entry_of(values).call
        return self._call(values, config, target)

    def _in_full(self, values: tuple, config: Config | None, target: AnyTarget) -> Any:
        """A call that no call before has made short."""
        return self._launch(values, config, target)(values)

    def _launch(self, values: tuple, config: Config | None, target: AnyTarget) -> Launch:
        """The specialisation for the arguments of a call, made if there is none yet."""
        entry, key = self._entry_of(values), None
        try:
            key = entry.key(values, config, target)
            filed = self._launches.find(key, (self._fn, *values))
        except Exception:  # an argument that cannot be part of a key: specialising says which
            key, filed = None, None
        if filed is not None:
            launch = filed.launch
        else:
            _keep_dynamo_out()  # here: torch may have been imported after the kernel was made
            launch = self._specialise(key, values, config, target)
            filed = self._launches.find(key, (self._fn, *values))
        if filed is not None and key is not None:
            otherwise = lambda given: self._in_full(given, config, target)  # noqa: E731
            call = later(self._fn, self.signature.names, values, filed, otherwise)
            if call is not None:
                entry.later[key] = call
        self._call = entry.call
        return launch

    def _entry_of(self, values: tuple) -> Entry:
        """How calls with arguments of these types are found again."""
        types = tuple(map(type, values))
        if types not in self._entries:
            self._entries[types] = entry_for(
                self._fn.__name__, self.signature.names, types, locks.token,
                self._in_full, self._by_types,
            )  # fmt: skip
        return self._entries[types]

    # ------------------------------------------------------------ gradients

    def def_vjp(
        self, *, backward: Callable[..., Any], forward: Callable[..., Any] | None = None
    ) -> None:
        """Registers how the kernel is differentiated, by JAX and by torch alike.

        forward   the kernel's arguments -> (what the kernel returns, what to save); if left out,
                  the kernel itself, which saves its arguments by name
        backward  (saved, *cotangents) -> {argument: gradient}; a gradient may be a function of no
                  arguments, called only where it is wanted, or None if it is zero

        Both are made of kernels and of array code that goes for the framework's arrays.
        """
        for given in (backward, forward):
            if given is not None and not callable(given):
                hint = "decorate one: @my_kernel.vjp above def backward(saved, *cotangents)"
                raise CallError(f"{given!r} is no function", hint=hint)
        if self._registration is not None:
            raise CallError(
                f"kernel {self.signature.kernel} has a backward already",
                hint="register one, where the kernel is defined",
            )
        with self._lock:
            self._registration = gradients.Registration(forward, backward)
            self._launches, self._jax = Choices(), {}  # some may hold a derived gradient
            self._torches = {}
            self._entries, self._call = {}, self._by_types

    def vjp(self, backward: Callable[..., Any]) -> Callable[..., Any]:
        """Registers a backward, as `def_vjp` does; use as a decorator: `@my_kernel.vjp`."""
        self.def_vjp(backward=backward)
        return backward

    def _gradient(
        self, parsed: Remembered, statics: Mapping[str, Any], wanted: frozenset[str], run: Run
    ) -> Gradient:
        """The registered gradient, or else a derived one; GradientError if there is neither."""
        if self._element is not None:
            parsing.refuse_registered(parsed.ir, self._element[0]._registration is not None)
        if self._registration is None:
            return gradients.derived(parsed, wanted, run)
        transforms.refuse_changed_arguments(parsed.ir)
        return gradients.registered(self._registration, self, parsed, statics)

    # ------------------------------------------------------------ torch

    def _torch(self, config: Config | None, target: AnyTarget) -> torch_kernel.KernelCompiler:
        """What calls in torch's transforms are made of."""
        key = (config, target)
        if key not in self._torches:

            def run(values: Sequence[Any]) -> Any:
                return torch_kernel.plain(self._launch(tuple(values), config, target))(values)

            part = functools.partial(self._run_part, config, target)
            self._torches[key] = torch_kernel.KernelCompiler(
                self.signature.kernel, digest(*self._identity(), *key), self._parsed, run, part,
                self._batch, self._gradient,
            )  # fmt: skip
        return self._torches[key]

    def _identity(self) -> tuple[Any, ...]:
        """What tells it from other kernels, beside its text and what that reads."""
        options = self._config, self._target, self._interpret, self._checks, self._rows
        elements = None if self._element is None else self._element[1]
        own = self._registration
        written = None if own is None else (origin(own.forward), origin(own.backward))
        return self._fn.__qualname__, elements, written, *options

    def _through_torch(
        self, config: Config | None, target: AnyTarget, values: Sequence[Any]
    ) -> Any:
        compiler = self._torch(config, target)
        return torch_kernel.called(compiler, self.signature.names, values)

    def _run_part(
        self,
        config: Config | None,
        target: AnyTarget,
        parsed: Remembered,
        tensors: Sequence[Any],
        checked: bool,
    ) -> Any:
        """Runs a part of a derived gradient, or a batch, on plain tensors."""
        own = None if parsed.derived else self._config if config is None else config
        key = (parsed, own, target, key_of(tuple(map(type, tensors)))(*tensors))
        if key not in self._part_launches:
            given = given_of(dict(zip(parsed.arguments, tensors, strict=True)))
            launching.refuse_others(parsed.ir, launching.operands_of(given))
            checks = self._checks if checked else False
            part = self._prepared(parsed, given, own, target, checks, None)
            if isinstance(part, Refusal) and parsed.element is not None:
                one, names = parsed.element
                element = functools.partial(self._run_part, config, target, one, checked=checked)
                part = batching.each(element, [parsed.arguments.index(name) for name in names])
            self._part_launches[key] = allowed(part)
        return self._part_launches[key](tuple(tensors))

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

    def grad_source(self, *args: Any, **kwargs: Any) -> str:
        """The kernels that its derived gradient runs, as one would write them.

        The forward kernel that saves what they read is first, where it differs.  Raises
        GradientError where no gradient is derived.
        """
        parsed = self._parsed(self._given(bind(self.signature, args, kwargs)))
        with lowering.our_fault(self.signature.kernel):
            return transforms.source(parsed.ir, parsed.facts)

    def explain(
        self, *args: Any, config: Config | None = None, target: AnyTarget = None, **kwargs: Any
    ) -> str:
        """Axes and why, the plan and, where offsets have values, how much work is padding."""
        given = self._given(bind(self.signature, args, kwargs))
        found = self._lowering(given, config, target)
        if isinstance(found, Refusal) and self._element is not None:
            kernel, names = self._element
            _, one = given.element(names)
            whole = kernel._lower(one, config, target)
            return explain.one_by_one(found, explain.explain(whole, one.shared(names)))
        lowered = allowed(found)
        return explain.explain(lowered, given.integers(), self._origin(given, config, lowered))

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

    def configs(
        self,
        *args: Any,
        target: AnyTarget = None,
        near: Config | None = None,
        **kwargs: Any,
    ) -> Iterator[Candidate]:
        """Every legal config with its estimated time and its memory, best estimate first.

        They are made one by one, as they are asked for.  GPUs and the CPU have no estimate: there,
        configs that are most like the default come first; for GPUs, those most like `near`.
        """
        given = self._given(bind(self.signature, args, kwargs))
        goal, parsed = self._goal(given, target), self._parsed(given)
        return lowering.candidates(parsed.ir, parsed.facts, goal, lowering.checked_config(near))

    def subject(
        self, *args: Any, target: AnyTarget = None, **kwargs: Any
    ) -> tuple[locks.Subject, str]:
        """What a lock file calls such calls, and the digest that it keeps of the kernel."""
        given = self._given(bind(self.signature, args, kwargs))
        arguments, source = self._subject(self._parsed(given))
        return locks.Subject(self._written, arguments, self._goal(given, target).name), source

    def default_config(self, *args: Any, target: AnyTarget = None, **kwargs: Any) -> Config:
        """The config that is used when none is given, and no lock file names one."""
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
        oracle.check_blocks(ir, blocks or {})
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
        made = Kernel(
            self._fn, config=self._config, target=self._target, interpret=self._interpret,
            checks=self._checks, rows=self._rows, max_recompiles=self._most,
        )  # fmt: skip
        made._element, made._lock = (self, names), self._lock
        made._lowered, made._batches = self._lowered, self._batches
        return self._larger.setdefault(names, made)

    def stats(self) -> Stats:
        """Calls, specialisations and compiles so far."""
        return Stats(self._calls, self._launched, self._compiles, self._seconds)

    def __get__(self, instance: object, owner: type | None = None) -> Kernel | Method:
        """A kernel that is written as a method takes its object as the first argument."""
        if instance is None or not self._is_method:
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

    def _origin(self, given: Given, config: Config | None, lowered: Lowered) -> str:
        """Where the config of a call is from, if it was not given and is no default."""
        lock = locks.active()
        if lock is None or (self._config if config is None else config) is not None:
            return ""
        entry = self._entry(self._parsed(given), lowered.target, lock)
        used = entry is not None and entry.config == lowered.config
        return f" from {lock.path}" if used else ""

    # ------------------------------------------------------------ compiling

    def _given(self, values: tuple) -> Given:
        """The arguments; CallError for what is neither tensor nor static value."""
        return given_of(dict(zip(self.signature.names, values, strict=True)))

    def _goal(self, given: Given, target: AnyTarget) -> Target:
        """The target that was asked for, else that of the device which holds the arguments."""
        chosen, tensors = self._target if target is None else target, given.tensors.values()
        if chosen is None and lowering.on_gpu(tensors):
            return cuda.target_of(bridge.torch().device("cuda"))
        of_jax = any(d.home in ("jax", "traced") for d in tensors)
        if chosen is None and of_jax:
            chosen = execution.target_of(execution.platform_of(tensors))
        goal = lowering.target_of(chosen)
        return lowering.launched_by_jax(goal) if of_jax else goal

    def _lower(self, given: Given, config: Config | None, target: AnyTarget) -> Lowered:
        return allowed(self._lowering(given, config, target))

    def _lowering(
        self, given: Given, config: Config | None, target: AnyTarget
    ) -> Lowered | Refusal:
        """The stages, from the cache if these shapes were lowered before on any framework."""
        chosen = lowering.checked_config(self._config if config is None else config)
        goal = self._goal(given, target)
        return self._planned(self._parsed(given), chosen, goal, locks.active())

    def _parsed(self, given: Given) -> Remembered:
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
                known = parsing.Remembered(parsed.ir, parsed.reads, parsed.texts, specs=given.specs)
                self._parses.add(given.key, known.reads, known)
                self._seconds += time.perf_counter() - start
            return known

    def _batch(self, parsed: Remembered, names: Collection[str], size: int) -> Remembered:
        """The kernel of `size` elements, of which these arguments are not shared."""
        key = (parsed, frozenset(names), size)
        with self._lock:
            if key not in self._batches:
                ir = batch.batched(parsed.ir, names, size)
                self._batches[key] = parsed.rewritten(ir, (parsed, names))
            return self._batches[key]

    def _stages(self, parsed: Remembered, config: Config | None) -> Stages:
        """The later stages, for when JAX lowers the kernel or makes a batch of its calls."""

        def batched(names: Collection[str], size: int) -> Stages:
            return self._stages(self._batch(parsed, names, size), config)

        def replaced(ir: KernelIR, of_author: bool) -> Stages:
            return self._stages(parsed.rewritten(ir), config if of_author else None)

        lock, element = locks.active(), None
        planned = functools.partial(self._planned, parsed, config, lock=lock)
        if parsed.element is not None:
            element = self._stages(parsed.element[0], config), parsed.element[1]
        return batching.Stages(parsed.ir, planned, batched, replaced, element)

    def _planned(
        self,
        parsed: Remembered,
        config: Config | None,
        target: Target,
        lock: locks.Lock | None = None,
    ) -> Lowered | Refusal:
        """The later stages; also called when JAX lowers for a device, long after the call.

        A batch takes the config of one element: its results are those of one, bit for bit.  Loops
        over groups stand inside of it, where they have no blocks.
        """
        if config is None and parsed.element is not None:
            one = self._planned(parsed.element[0], config, target, lock)
            if isinstance(one, Refusal):
                return one
            config = one.config.without([a.name for a in one.ir.axes if a.kind == "grid"])
        entry = None if config is not None or lock is None else self._entry(parsed, target, lock)
        if entry is not None and lock is not None:
            found = self._kept(parsed, entry.config, target)
            if not isinstance(found, Refusal):
                return found
            lock.warn(entry.subject, f"its config is refused ({found.what})")
        return self._kept(parsed, config, target)

    def _entry(
        self, parsed: Remembered, target: Target, lock: locks.Lock
    ) -> locks.LockEntry | None:
        """What a lock file says, if that was said of this kernel as it is."""
        if parsed.specs is None or not lock.knows(self._written):
            return None
        arguments, source = self._subject(parsed)
        entry = lock.find(locks.Subject(self._written, arguments, target.name))
        if entry is not None and entry.source != source:
            lock.warn(entry.subject, "the kernel has changed")
            return None
        return entry

    @property
    def _written(self) -> str:
        """The kernel by its file and name: the same wherever the file lies."""
        return f"{Path(self._fn.__code__.co_filename).name}:{self._fn.__qualname__}"

    def _subject(self, parsed: Remembered) -> tuple[str, str]:
        """The class of a call, and a digest of the kernel for the largest call of it."""
        key = (parsed, self._written)
        if key not in self._subjects:
            assert parsed.specs is not None, "a kernel that was called"
            found = shape_class.class_of(parsed.ir, parsed.facts)
            try:
                ir = frontend.parsed(self._fn, found.largest(parsed.specs), self._texts).ir
            except TileError:  # the author's own code refuses other lengths
                found, ir = shape_class.class_of(parsed.ir, parsed.facts, exact=True), parsed.ir
            self._subjects[key] = found.text, shape_class.digest(ir)
        return self._subjects[key]

    def _kept(self, parsed: Remembered, config: Config | None, target: Target) -> Lowered | Refusal:
        """The later stages with a config, or with the default one."""
        key = (parsed, config, target)
        with self._lock:
            if key not in self._lowered:
                refuse_more(parsed.ir, self._compiles, self._most)
                start = time.perf_counter()
                found = lowering.lowered(parsed.ir, parsed.facts, config, target)
                if isinstance(found, Refusal):
                    name, part = self._fn.__name__, parsed.derived
                    return lowering.said_of_derived(name, part, found) if part else found
                self._lowered[key] = found
                self._seconds += time.perf_counter() - start
                self._compiles += 1
            return self._lowered[key]

    def _specialise(
        self, key: Hashable, values: tuple, config: Config | None, target: AnyTarget
    ) -> Launch:
        target = self._target if target is None else target
        through = functools.partial(self._through_torch, config, target)
        if _has_torch(values) and torch_kernel.set_apart(values):
            return through
        if any(map(is_symbolic, values)):
            return functools.partial(self._with_symbols, config, target)
        given = self._given(values)
        operands = launching.operands_of(given)
        if not lowering.runs_on_gpu(given.tensors.values(), target):
            execution.screen(self.signature.kernel, operands)
        known = self._parsed(given)
        statics = {n: v for n, v in given.values.items() if n not in given.tensors}
        prepared = self._prepared(known, given, config, target, self._checks, statics)
        if isinstance(prepared, Refusal) and self._element is not None:
            prepared = self._one_by_one(config, target)
        launch = allowed(prepared)
        places = tuple(o.place for o in operands if o.described.home == "torch")
        if places:
            torch = self._torch(config, target)
            torch_kernel.register(torch, self.signature.names, values, known)
            launch = torch_kernel.Guarded(launch, through, places)
        return self._filed(key, known, launch)

    def _with_symbols(self, config: Config | None, target: AnyTarget, values: Sequence[Any]) -> Any:
        """A call whose numbers of rows are symbols of `jax.export`."""
        return symbolic.with_symbols(
            self.signature.names, values, self._rows,
            lambda known: self._parsed(self._given(known)).ir,
            functools.partial(self, config=config, target=target),
        )  # fmt: skip

    def _one_by_one(self, config: Config | None, target: AnyTarget) -> Launch:
        """The launch of a batch whose kernel is refused."""
        assert self._element is not None, "only batches have elements"
        (kernel, names), every = self._element, self.signature.names

        def call(values: Sequence[Any]) -> Any:
            return kernel(**dict(zip(every, values, strict=True)), config=config, target=target)

        return batching.each(call, [every.index(name) for name in names])

    def _prepared(
        self,
        known: Remembered,
        given: Given,
        config: Config | None,
        target: AnyTarget,
        checks: bool | None,
        statics: Mapping[str, Any] | None,
    ) -> Launch | Refusal:
        """The launch of a parsed kernel; without `statics`, of a part of a derived gradient."""
        chosen = config if statics is None or config is not None else self._config
        config, operands = lowering.checked_config(chosen), launching.operands_of(given)
        goal = None if target is None else lowering.target_of(target)
        if lowering.runs_on_gpu(given.tensors.values(), goal):
            refuse_buckets(known.ir, self._rows)
            assert not isinstance(goal, lowering.PallasTarget), "it is planned for a GPU"
            return cuda.prepare(
                known.ir, known.facts, operands, tuple(given.values.values()), goal,
                functools.partial(self._planned, known, config, lock=locks.active()), checks,
            )  # fmt: skip
        wide = known
        if self._rows == "bucket" and statics is not None:
            wide = buckets.wider(known, given, self._parsed)
        return self._programs().launch(known, operands, config, goal, checks, statics, wide)

    def _programs(self) -> jax_programs.Programs:
        with self._lock:
            said = locks.token()
            if said not in self._jax:
                self._jax[said] = jax_programs.Programs(
                    self._stages, _compiled, self._interpret, self._gradient, self._lock
                )
            return self._jax[said]

    def _filed(self, key: Hashable, known: Remembered, launch: Launch) -> Launch:
        """The launch, kept for calls with this key."""
        if key is not None:
            with self._lock:
                self._launches.add(key, known.reads, Filed(launch, known.reads))
                self._launched += 1
        return launch


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
    rows: Rows = "exact",
    max_recompiles: int | None = None,
) -> Callable[[Callable[..., Any]], Kernel]: ...
def kernel(
    fn: Callable[..., Any] | None = None,
    *,
    config: Config | None = None,
    target: AnyTarget = None,
    interpret: Any = None,
    checks: bool | None = None,
    rows: Rows = "exact",
    max_recompiles: int | None = None,
    **others: Any,
) -> Kernel | Callable[[Callable[..., Any]], Kernel]:
    """Makes a kernel of a function that loops over tiles; use as `@tile.kernel` or with options.

    config     choices for every call; a call's own `config=` goes first
    target     "cpu", "tpu:v6e", ...: what to plan for; the arguments' device if left out
    interpret  True or pltpu.InterpretParams(): interpret even on a TPU; False: never interpret
    checks     whether to look at offsets and indices before each launch; if left out, wherever
               their values are on the host
    rows       "bucket": calls with some more or fewer ragged rows share one program
    max_recompiles  how often the kernel may be compiled anew before that is an error
    """
    refuse_options(others, kernel.__kwdefaults__ or ())
    made = functools.partial(
        Kernel, config=config, target=target, interpret=interpret, checks=checks, rows=rows,
        max_recompiles=max_recompiles,
    )  # fmt: skip
    return made if fn is None else made(fn)


def _compiled(lowered: Lowered) -> Sequence[Assembled]:
    """What Triton makes of a kernel that is planned for a GPU."""
    made = aot.compile_standing(lowered)
    assert isinstance(made, aot.CudaCompiled)
    return made.programs


def _keep_dynamo_out() -> None:
    for function in (_keep_dynamo_out, Kernel.__call__, Kernel._called):
        keep_out(function)


def _has_torch(values: Sequence[Any]) -> bool:
    return any(type(value).__module__.startswith("torch") for value in values)
