"""reference(kernel, module, name) -> str: what pickle writes for a kernel: its name.

A kernel is its source and what that captures: whoever reads the pickle must be able to import it.
"""

from __future__ import annotations

import sys
from pickle import PicklingError


def reference(kernel: object, module: str, name: str) -> str:
    """The name in its module that stands for the kernel; PicklingError if none does."""
    found: object = sys.modules.get(module)
    names = vars(found) if found is not None else {}
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is kernel:
        return name
    other = next((key for key, value in names.items() if value is kernel), None)
    if other is None:
        raise PicklingError(
            f"kernel {name} cannot be pickled: a kernel is pickled by its name, and no name in "
            f"module {module} is this kernel\n"
            "  hint: define it at the top of a module, or give it a name there: "
            f"my_kernel = tile.kernel({name.rpartition('.')[2]}, ...)"
        )
    return other
