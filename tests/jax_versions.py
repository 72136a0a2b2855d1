"""What older versions of JAX do not tell, so that tests of it are skipped there with the reason.

What benchax says in its place is tested in every version.
"""

from __future__ import annotations

import jax
import pytest
from jax._src import pjit  # noqa: TID251  # as in benchax.watching.transfers

NAMES_INDICES = jax.__version_info__ >= (0, 11)
"""Does the error of a slice say which argument its bound comes from?"""

IS_0_6 = jax.__version_info__ < (0, 7)

tells_runs = pytest.mark.skipif(IS_0_6, reason="traces of this JAX do not say which run an operation belongs to")
tells_transposed = pytest.mark.skipif(IS_0_6, reason="this JAX does not say which equations are of a backward pass")
leaves_lines_out = pytest.mark.skipif(IS_0_6, reason="programs that this JAX exports hold the line of the function")
shows_calls = pytest.mark.skipif(
    not hasattr(pjit, "_run_python_pjit"), reason="calls of jitted functions cannot be seen in this JAX"
)
