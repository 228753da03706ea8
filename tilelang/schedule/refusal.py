"""Refusal: "no" as a value, so that a search reads its rule and its needs, and never its words.

Whatever cannot be planned is Refused where it is found, and a Refusal for whoever chooses
(`attempted`).  The rule says what may mend it, and so where a search goes on: a mistake of the
author's is said as it is, and not hidden behind what the last attempt said.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal, TypeVar

from ..errors import Loc, PlanError

T = TypeVar("T")


class Rule(Enum):
    """What stands in the way, by what may mend it."""

    KERNEL = "no config makes it legal: the author's line has to change"
    CONFIG = "blocks, or what else is asked for, have no place in any way of running the loops"
    FORM = "loops that run in this way cannot do it; in another way, or with other blocks, they may"


@dataclass(frozen=True)
class Need:
    """Memory is short, and other blocks of some axes would help."""

    wants: Literal["smaller", "larger"]
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
    """Carries a refusal from where it is found to `attempted`; to the author, if nobody chooses."""

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


def allowed(found: T | Refusal) -> T:
    """What was found; for the author, PlanError where it was refused."""
    if isinstance(found, Refusal):
        raise found.error
    return found


def attempted(choice: Callable[[], T]) -> T | Refusal:
    """What was chosen, or why it is not possible."""
    try:
        return choice()
    except Refused as no:
        return no.refusal
