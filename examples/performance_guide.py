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

What guides to JAX advise, tried out. Each section gives a piece of advice as it is often read, the code that tries it,
and what that code printed. The numbers are of one machine, the one named above each table, and yours will differ:
`python examples/performance_guide.py` writes this page anew. Where the advice did not hold there, the table says so.

All code begins with `import benchax, jax, jax.numpy as jnp` and `from benchax import workloads`; `inputs_of(f)` gives
the inputs that a function of `benchax.workloads` brings along; `TIME_S` is 20 seconds.

Times are compared as [comparing](comparing.md) describes: in pairs, in fresh processes, each change confirmed by a
second measurement. What the tables of an experiment mean is told in [experiments](experiments.md).
"""

if __name__ == "__main__":
    main(INTRODUCTION, PAGE, __doc__ or "")
