"""What a planted bug is, and how it gets into the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

# Name -> how the text is printed, besides the small blocks of the example.
FORMS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "default": {},
        "table": {"loop_type": "outer_pipeline", "steps": "table"},
        "a head each": {"loop_type": "outer_pipeline", "steps": "table", "within": ()},
        "rectangle": {"loop_type": "outer_pipeline", "steps": "rectangle"},
        "worklist": {"loop_type": "worklist"},
        "emit_pipeline": {"loop_type": "emit_pipeline"},
        "fori_loop": {"loop_type": "fori_loop"},
        "exact": {"windows": "exact"},
        "cut": {"windows": "cut"},
        "groups": {},  # with the example's blocks of groups
        "parts": {"loop_type": "outer_pipeline", "steps": "table", "cores": 2},
    }
)


@dataclass(frozen=True)
class Bug:
    """One wrong kernel.

    what     what is wrong, in a few words; its name in tests and in the table
    subject  the name of the example, printed in one of FORMS
    edits    what to replace in the text, everywhere, and by what
    """

    what: str
    subject: str
    form: str
    edits: tuple[tuple[str, str], ...]

    def plant(self, text: str) -> str:
        """The wrong text; ValueError if there is nothing to replace or nothing changes."""
        for old, new in self.edits:
            if old == new or old not in text:
                raise ValueError(f"{self}: the text has no {old!r}")
            text = text.replace(old, new)
        return text

    def __str__(self) -> str:
        return f"{self.subject} ({self.form}): {self.what}"


def bug(subject: str, form: str, what: str, old: str, new: str, *more: tuple[str, str]) -> Bug:
    """A bug of one edit, or of several that belong together."""
    return Bug(what, subject, form, ((old, new), *more))
