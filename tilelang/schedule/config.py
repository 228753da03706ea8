"""Config: every choice that is open for a kernel, as one frozen, hashable value."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any, Literal, Never

from ..errors import PlanError, nearest
from .refusal import Refused, Rule

LOOP_TYPES = ("grid", "outer_pipeline", "worklist", "emit_pipeline", "fori_loop", "unroll")
STEPS = ("table", "rectangle")
WINDOWS = ("aligned", "exact", "flowing", "cut")
GATHERS = ("ahead", "inside")
INDEXING = ("pointer", "descriptor")
WORKLIST = ("search", "table")
PRECISION = ("ieee", "tf32x3", "tf32")
# The least and the most that may be asked for, and that `configs` goes to.
BOUNDS: Mapping[str, tuple[int, int]] = MappingProxyType(
    {"warps": (1, 16), "stages": (1, 8), "l2_group": (1, 64)}
)

# The fields that say something to one family of targets only; the others do to every one.
TPU_FIELDS = (
    "loop_type", "steps", "buffers", "cores", "within", "windows", "gathers", "pieces",
)  # fmt: skip
CUDA_FIELDS = (
    "warps", "stages", "indexing", "persistent", "worklist", "l2_group", "precision", "split",
    "max_registers", "warp_specialize",
)  # fmt: skip


@dataclass(frozen=True, init=False)
class Config:
    """How to run a kernel.  What is left out is chosen by the default rules.

    blocks      tile axis -> its block size, e.g. {"tm": 128, "tn": 512}; hl.grid loop -> how many
                groups, or iterations, a step has
    loop_type   "grid" | "outer_pipeline" | "worklist" | "emit_pipeline" | "fori_loop" | "unroll":
                how the loops run
    steps       "table" (live steps only) | "rectangle" (max_extent tiles, guarded): outer_pipeline
    buffers     how many blocks of each input are in flight; 2 is double buffering
    cores       TensorCores that share parallel axes, or the rows of a step table
    within      parallel `hl.grid` loops of which a step runs all iterations, e.g. ["h"]: blocks
                then hold all heads of [tokens, heads, width], and no array is transposed
    windows     "aligned" (a tile is a block of the array; ranges share tiles) | "exact" (the first
                tile of a range begins where the range does) | "flowing" (rows of whole arrays come
                and go in pieces while steps compute) | "cut" (of an array that lies at other
                positions than tiles, a step copies the rows that it uses)
    gathers     "ahead" (rows that an index array picks are put together by XLA) | "inside"
    pieces      rows of a tile that a step multiplies at once, while other units are busy with the
                rows before; 0: all of them

    `block_sizes=[...]` may be given instead of `blocks`: sizes of the tile axes in loop order.
    Raises PlanError for a value that no kernel could use.
    """

    blocks: tuple[tuple[str, int], ...]
    block_sizes: tuple[int, ...] | None
    loop_type: str | None
    steps: str | None
    buffers: int | None
    cores: int | None
    within: tuple[str, ...] | None
    windows: str | None
    gathers: str | None
    pieces: int | None
    warps: int | None
    stages: int | None
    indexing: str | None
    persistent: bool | int | None
    worklist: Literal["search", "table"] | None
    l2_group: int | None
    precision: str | None
    split: int | None
    max_registers: int | None
    warp_specialize: bool | None

    def __init__(
        self,
        blocks: Mapping[str, int] | Sequence[tuple[str, int]] = (),
        *,
        block_sizes: Sequence[int] | None = None,
        loop_type: str | None = None,
        steps: str | None = None,
        buffers: int | None = None,
        cores: int | None = None,
        within: Sequence[str] | None = None,
        windows: str | None = None,
        gathers: str | None = None,
        pieces: int | None = None,
        warps: int | None = None,
        stages: int | None = None,
        indexing: str | None = None,
        persistent: bool | int | None = None,
        worklist: str | None = None,
        l2_group: int | None = None,
        precision: str | None = None,
        split: int | None = None,
        max_registers: int | None = None,
        warp_specialize: bool | None = None,
        **unknown: Never,  # refused by name
    ) -> None:
        _check_known(unknown)
        pairs, sizes = _pairs(blocks), None if block_sizes is None else _listed(block_sizes)
        if pairs and sizes is not None:
            raise PlanError("give blocks or block_sizes, not both")
        for name, value in (*pairs, *((f"block_sizes[{i}]", s) for i, s in enumerate(sizes or ()))):
            _check_count(f"the block of {name}", value)
        _check_choice("loop_type", loop_type, LOOP_TYPES)
        _check_choice("steps", steps, STEPS)
        _check_choice("windows", windows, WINDOWS)
        _check_choice("gathers", gathers, GATHERS)
        _check_choice("indexing", indexing, INDEXING)
        _check_choice("worklist", worklist, WORKLIST)
        _check_choice("precision", precision, PRECISION)
        _check_flag("warp_specialize", warp_specialize)
        for name, value, least, most in (
            ("buffers", buffers, 1, 16),
            ("pieces", pieces, 0, 1 << 20),
            ("cores", cores, 1, 2),
            ("warps", warps, *BOUNDS["warps"]),
            ("stages", stages, *BOUNDS["stages"]),
            ("persistent", None if isinstance(persistent, bool) else persistent, 1, 1 << 20),
            ("l2_group", l2_group, *BOUNDS["l2_group"]),
            ("split", split, 1, 1 << 10),
            ("max_registers", max_registers, 16, 255),
        ):
            if value is not None:
                _check_count(name, value, most, least)
        _check_warps(warps)
        values = (
            pairs, sizes, loop_type, steps, buffers, cores, _names("within", within), windows,
            gathers, pieces, warps, stages, indexing, persistent, worklist, l2_group, precision,
            split, max_registers, warp_specialize,
        )  # fmt: skip
        for field, value in zip(fields(self), values, strict=True):
            object.__setattr__(self, field.name, value)

    def block(self, name: str) -> int | None:
        """The block chosen for a tile axis or a registered block size, if any."""
        return dict(self.blocks).get(name)

    def without(self, names: Collection[str]) -> Config:
        """The config that leaves the blocks of these loops open."""
        return replace(self, blocks=[pair for pair in self.blocks if pair[0] not in names])

    def to_json(self) -> str:
        """One line of JSON with the fields that are set."""
        data: dict[str, object] = {}
        if self.blocks:
            data["blocks"] = dict(self.blocks)
        for name in [f.name for f in fields(self)][1:]:
            if getattr(self, name) is not None:
                data[name] = getattr(self, name)
        return json.dumps(data, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> Config:
        """The config that `to_json` wrote; PlanError if the text is no config."""
        try:
            data = json.loads(text)
        except (ValueError, TypeError) as error:
            raise PlanError(f"not a config: {error}") from None
        if not isinstance(data, dict):
            raise PlanError("not a config: expected a JSON object")
        return Config(data.pop("blocks", {}), **data)

    def __str__(self) -> str:
        return f"Config({self.to_json()})"


def check_family(config: Config, target: str) -> None:
    """Refused for a field that says nothing to a target of that name."""
    mine, others = (
        (CUDA_FIELDS, TPU_FIELDS) if target.startswith("cuda:") else (TPU_FIELDS, CUDA_FIELDS)
    )
    wrong = next((name for name in others if getattr(config, name) is not None), None)
    if wrong is not None:
        raise Refused(
            Rule.CONFIG,
            f"{wrong}={getattr(config, wrong)!r} means nothing to {target}",
            hint=f"leave it out; {target} knows blocks, block_sizes, {', '.join(mine)}",
        )


# What other compilers call these fields.
_ELSEWHERE = {
    "num_warps": "warps", "num_stages": "stages", "block_size": "blocks", "block": "blocks",
    "maxnreg": "max_registers", "pid_type": "persistent", "num_buffers": "buffers",
}  # fmt: skip


def _check_known(unknown: Mapping[str, object]) -> None:
    """PlanError for a field that there is not, with the one that may be meant."""
    if unknown:
        name, known = min(unknown), sorted(f.name for f in fields(Config))
        close = _ELSEWHERE.get(name) or nearest(name, known)
        block = f"the block of a loop is Config({{{name!r}: {unknown[name]}}}); "
        block = block if isinstance(unknown[name], int) else ""
        meant = f"did you mean {close}? " if close else block
        hint = f"{meant}fields: {', '.join(known)}"
        raise PlanError(f"unknown config field {name!r}", hint=hint)


def _pairs(blocks: object) -> tuple[tuple[str, int], ...]:
    """Names and blocks, sorted; PlanError for what is no mapping of them."""
    pairs = list(blocks.items() if isinstance(blocks, Mapping) else _listed(blocks, "blocks"))
    if not all(isinstance(p, tuple | list) and len(p) == 2 and type(p[0]) is str for p in pairs):
        hint = 'write blocks={"tm": 128}, or block_sizes=[128, ...] in the order of the loops'
        raise PlanError(f"blocks must name the axes, got {blocks!r}", hint=hint)
    return tuple(sorted((name, size) for name, size in pairs))


def _listed(value: object, field: str = "block_sizes") -> tuple[Any, ...]:
    if isinstance(value, list | tuple):
        return tuple(value)
    hint = "write block_sizes=[128, ...], or blocks={...} by the names of the axes"
    raise PlanError(f"{field} must be a list, got {value!r}", hint=hint)


def _check_count(what: str, value: object, most: int = 1 << 20, least: int = 1) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise PlanError(f"{what} must be an integer from {least} to {most}, got {value!r}")


def _check_flag(field: str, value: object) -> None:
    if not isinstance(value, bool | None):
        raise PlanError(f"{field} must be True or False, got {value!r}")


def _check_warps(warps: int | None) -> None:
    if warps is not None and warps & (warps - 1):
        raise PlanError(f"warps must be 1, 2, 4, 8 or 16, got {warps}")


def _names(field: str, value: object) -> tuple[str, ...] | None:
    if value is None:
        return None
    if isinstance(value, list | tuple) and all(isinstance(name, str) for name in value):
        return tuple(value)
    raise PlanError(f"{field} must be a list of names of loops, got {value!r}")


def _check_choice(field: str, value: object, legal: tuple[str, ...]) -> None:
    if value is not None and value not in legal:
        raise PlanError(f"{field}={value!r} is not known", hint=f"use one of {', '.join(legal)}")
