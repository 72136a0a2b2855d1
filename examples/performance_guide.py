"""The usual advice on fast JAX, each piece measured: writes docs/how-to/performance-guide.md.

    python examples/performance_guide.py                        # the page, in about ten minutes
    python examples/performance_guide.py --only "2. " --output vmap.md
    python examples/performance_guide.py --list

Every section is a function, in a file of guide/ for each chapter. The page shows its docstring, its code, and what that
code has printed: there is no number on the page that the page's own code did not write. Run it on your machine, for
your numbers.
"""

from __future__ import annotations

from pathlib import Path

import guide  # noqa: F401  # its sections
from guide_page import main

PAGE = Path(__file__).parent.parent / "docs" / "how-to" / "performance-guide.md"

INTRODUCTION = """\
# The performance guide, measured

This page tries the advice of JAX guides. Each section has a piece of advice as you often read it, the code that tries
it, and the output of that code. The numbers come from one machine, which is named above each table. Yours will differ:
`python examples/performance_guide.py` writes this page again. If the advice did not hold there, the table says so.

All code begins with `import benchax, jax, jax.numpy as jnp` and `from benchax import workloads`. `inputs_of(f)` returns
the inputs that belong to a function of `benchax.workloads`. `TIME_S` is 20 seconds.

The page compares times as [comparing](comparing.md) describes: in pairs and in fresh processes. A second measurement
confirms each change. For the tables of an experiment, see [experiments](experiments.md).
"""

if __name__ == "__main__":
    main(INTRODUCTION, PAGE, __doc__ or "")
