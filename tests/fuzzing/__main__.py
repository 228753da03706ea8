"""python -m tests.fuzzing kernels --count N --seed S: random kernels against their meaning.

Each kernel runs under the default config and under others, on adversarial layouts, and is compared
with a float64 evaluation that does not know the compiler, as is `Kernel.reference`.  A wrong
result, a crash, or with --tpu a kernel that the real TPU compiler does not take, is made smaller
and printed; the exit status is then 1.  Refusals are counted: those of the default config are legal
kernels that the compiler cannot plan yet.

python -m tests.fuzzing gradients --count N: the same kernels differentiated, and compared with the
differences of their meaning: derived or refused, and never wrong.
"""

from __future__ import annotations

import os
import sys

os.environ.setdefault("JAX_PLATFORMS", "cpu")
# Kernels run in parts, too.
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=3 " + os.getenv("XLA_FLAGS", "")

from tests.fuzzing.campaign import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
