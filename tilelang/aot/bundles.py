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

# A bundle's line has an address, labels ("LB": a loop begins) and a ">" for each loop around it.
_FILE = re.compile(r"^\d+-(.+)-\d+-final_bundles\.txt$")
_BUNDLE = re.compile(r"^\s*(?:0x[0-9a-f]+|\d+)\s+(?:[A-Z]{2}\s*)*:\s", re.MULTILINE)
_REGION = re.compile(r"Start(?:/End empty)? region (\d+)")
_BRANCH = re.compile(r"\bsbr\.rel\b.*?target = \$region(\d+)", re.DOTALL)


def count(text: str) -> int:
    """Bundles in a dump of one kernel; one may be spread over several lines."""
    return len(_BUNDLE.findall(text))


def step(text: str) -> tuple[int, int]:
    """(bundles, of which guarded) of one turn of a program's main loop; (0, 0) without a loop.

    The main loop is the longest one, or the longest inside of it that is more than half as long: a
    grid around a pipeline is not a step.  Guarded bundles are those that a branch may skip.
    """
    starts, branches = _control(text)
    main = _main_loop([(starts[to], at) for at, to in branches if starts.get(to, at) < at])
    if main is None:
        return 0, 0
    begin, end = main
    skips = [(at, starts[to]) for at, to in branches if begin <= at < starts.get(to, 0) <= end]
    guarded = {index for at, to in skips for index in range(at + 1, to)}
    return _length(main), len(guarded)


def _main_loop(loops: list[tuple[int, int]]) -> tuple[int, int] | None:
    main = max(loops, key=_length, default=None)
    while main is not None:
        begin, end = main
        inner = [one for one in loops if one != main and begin <= one[0] and one[1] <= end]
        longest = max(inner, key=_length, default=None)
        if longest is None or 2 * _length(longest) <= _length(main):
            break
        main = longest
    return main


def _length(loop: tuple[int, int]) -> int:
    return loop[1] - loop[0] + 1


def _control(text: str) -> tuple[dict[str, int], list[tuple[int, str]]]:
    """Bundle that each region starts at; (bundle, region) of every branch."""
    starts: dict[str, int] = {}
    branches: list[tuple[int, str]] = []
    for index, bundle in enumerate(_BUNDLE.split(text)[1:]):
        for region in _REGION.findall(bundle):
            starts.setdefault(region, index)
        branches += [(index, region) for region in _BRANCH.findall(bundle)]
    return starts, branches


def collect(folder: Path, ours: Collection[str]) -> list[tuple[str, int, bool, int, int]]:
    """What `Bundles` holds for every kernel of the dump; empties it."""
    return [(name, count(text), name in ours, *step(text)) for name, text in texts(folder)]


def texts(folder: Path) -> list[tuple[str, str]]:
    """(kernel, final bundles) of every kernel of the dump, in the order of compilation; empties it.

    The analysis of a schedule, whose file has a similar name, is none.
    """
    found = []
    for path in sorted(folder.iterdir()):
        match = _FILE.match(path.name)
        if match and match[1] not in FRAME:
            found.append((match[1], path.read_text(encoding="utf-8", errors="replace")))
        path.unlink()
    return found
