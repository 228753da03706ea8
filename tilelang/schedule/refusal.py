"""Refusal: "no" as a value, so that a search reads its rule and its needs, and never its words.

A mistake of the author's, which no other choice would mend, is a PlanError: it goes to the author
from where it is found.  Whatever another form, other blocks or another config may mend is Refused
where it is found, and a Refusal for whoever chooses (`attempted`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

from ..errors import Loc, PlanError

T = TypeVar("T")


class Rule(Enum):
    """What stands in the way."""

    CONFIG = "the config asks for something that this kernel has no place for"
    FORM = "loops that run in this way cannot do it; in another way they may"
    BLOCKS = "no block of this size can be cut"
    MEMORY = "it does not fit"


@dataclass(frozen=True)
class Need:
    """Memory that would be needed, in bytes, and whether other blocks of some axes would help."""

    memory: Literal["vmem", "smem"]
    bytes: int
    wants: Literal["smaller", "larger"] | None
    axes: tuple[str, ...] = ()  # empty: any


@dataclass(frozen=True)
class Refusal:
    """Why one choice was not possible: the rule, and what the author is told if no other is."""

    rule: Rule
    what: str
    loc: Loc | None = None
    hint: str = ""
    needs: Need | None = None

    @property
    def error(self) -> PlanError:
        """The same for the author."""
        return PlanError(self.what, self.loc, self.hint)


class Refused(PlanError):
    """Carries a refusal from where it is found to `attempted`."""

    def __init__(
        self,
        rule: Rule,
        what: str,
        loc: Loc | None = None,
        hint: str = "",
        needs: Need | None = None,
    ) -> None:
        self.refusal = Refusal(rule, what, loc, hint, needs)
        super().__init__(what, loc, hint)


def attempted(choice: Callable[[], T]) -> T | Refusal:
    """What was chosen, or why it is not possible."""
    try:
        return choice()
    except Refused as no:
        return no.refusal
