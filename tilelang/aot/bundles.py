"""Bundle counts from the compiler's dump: how long each kernel's program is, not how long it runs.

A TPU core starts one bundle of instructions per cycle, in the order of the dump.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

# Only the final program: without the label the compiler writes every pass, and takes far longer.
FLAGS = (
    "--xla_jf_dump_to={folder} --xla_jf_dump_llo_text=true "
    "--xla_jf_dump_llo_pass_label_regex=^(final_bundles)$"
)
# The start and end of every program, whatever it computes.
FRAME = frozenset(("TLP", "<late-initialization>", "<late-finalization>"))

_FILE = re.compile(r"^\d+-(.+)-\d+-final_bundles\.txt$")
_BUNDLE = re.compile(r"^\s*(?:0x[0-9a-f]+|\d+)\s+(?:[A-Z]{2}\s*)*:\s", re.MULTILINE)


def count(text: str) -> int:
    """Bundles in a dump of one kernel; one may be spread over several lines."""
    return len(_BUNDLE.findall(text))


def collect(folder: Path, ours: Collection[str]) -> list[tuple[str, int, bool]]:
    """(kernel, bundles, whether it is one of ours) for every kernel of the dump; empties it."""
    found = []
    for path in sorted(folder.iterdir()):
        match = _FILE.match(path.name)
        if match and match[1] not in FRAME:
            text = path.read_text(encoding="utf-8", errors="replace")
            found.append((match[1], count(text), match[1] in ours))
        path.unlink()
    return found
