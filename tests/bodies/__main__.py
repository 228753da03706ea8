"""python -m tests.bodies: see campaign."""

from __future__ import annotations

import sys

from tests.bodies.campaign import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
