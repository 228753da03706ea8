"""python -m tests.planted [NAME]: a table of the planted bugs whose names contain NAME.

Prints which check caught each one and what it said; the exit status is 1 if one was not caught.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence

os.environ.setdefault("JAX_PLATFORMS", "cpu")

from tests import xla
from tests.planted.bugs import BUGS
from tests.planted.trial import verdict

SHOWN = 110  # characters of what a check says


def main(argv: Sequence[str]) -> int:
    """Plants every bug; 0 if all are caught."""
    xla.compile_cheaply()
    only = argv[0] if argv else ""
    chosen = [b for b in BUGS if only in str(b)]
    start, missed = time.perf_counter(), 0
    for planted in chosen:
        report = verdict(planted)
        missed += report is None
        check, text = ("NOT CAUGHT", "") if report is None else (report.check, report.text)
        print(f"{planted!s:<78} {check:<13} {' '.join(text.split())[:SHOWN]}", flush=True)
    seconds = time.perf_counter() - start
    print(f"{len(chosen)} bugs, {missed} not caught; {seconds:.0f} s")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
