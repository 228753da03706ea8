"""Programs: a kernel's jitted functions, and those of its derived gradients."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

from ..schedule.config import Config
from ..schedule.refusal import Refusal
from .batching import Stages
from .cuda.record import CompiledFunction
from .execution import Chosen, Launch, TensorArgument, jitted, prepare
from .gradients import Gradient, Run, derived
from .lowering import Lowered, Target
from .parsed import Remembered

Statics = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Programs:
    """What a kernel's calls ask of JAX, and what JAX asks when it differentiates them.

    stages     (kernel, config) -> its later stages
    compiled   what Triton makes of a kernel that is planned for a GPU
    gradient   (kernel, its static arguments, wanted, how to run parts) -> its gradient
    """

    stages: Callable[[Remembered, Config | None], Stages]
    compiled: Callable[[Lowered], Sequence[CompiledFunction]]
    interpret: Any
    gradient: Callable[[Remembered, Statics, frozenset[str], Run], Gradient]
    lock: AbstractContextManager[Any]
    made: dict[Hashable, Callable[..., Any]] = field(default_factory=dict)

    def launch(
        self,
        known: Remembered,
        operands: Sequence[TensorArgument],
        config: Config | None,
        goal: Target | None,
        checks: bool | None,
        statics: Statics | None,
        wide: Remembered,
    ) -> Launch | Refusal:
        """The launch of a kernel; without `statics`, of a part of a derived gradient.

        What runs is `wide`, the same kernel or that for more rows.
        """
        chosen = self._chosen(wide, config, goal, checks, statics)
        with self.lock:
            key = (wide, config, goal)
            return prepare(known.ir, known.facts, operands, chosen, self.made, key)

    def _chosen(
        self,
        known: Remembered,
        config: Config | None,
        goal: Target | None,
        checks: bool | None,
        statics: Statics | None,
    ) -> Chosen:
        def resolve(wanted: frozenset[str]) -> Gradient:
            def run(n: int, arrays: Sequence[Any]) -> Sequence[Any]:
                part = known.part(wanted, n)
                own = config if part is known else None  # a config is of the author's loops
                results = self._part(part, own, goal)(*arrays)
                return results if isinstance(results, tuple) else (results,)

            if statics is None:
                return derived(known, wanted, run)
            return self.gradient(known, statics, wanted, run)

        windows = config is not None and config.windows is not None
        aimed = goal is not None or windows or bool(known.facts.fixed)
        stages = self.stages(known, config)
        return Chosen(goal, stages, self.compiled, aimed, self.interpret, checks, resolve)

    def _part(
        self, part: Remembered, config: Config | None, goal: Target | None
    ) -> Callable[..., Any]:
        """A part of a derived gradient as a function of JAX arrays."""
        key = (part, "part", config, goal)
        with self.lock:
            if key not in self.made:
                self.made[key] = jitted(self._chosen(part, config, goal, False, None))
            return self.made[key]
