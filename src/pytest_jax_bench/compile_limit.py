"""The keyword `max_compiles` of the marker: a test that compiles more programs than this fails, and is told why.

What counts is what the test's own lines compile, first calls included; not what eager operations compile, and not what
`jax_bench` does, which compiles each function anew to time that.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

from pytest_jax_bench import marks

if TYPE_CHECKING:
    import pytest


@contextlib.contextmanager
def of(item: pytest.Item) -> Iterator[None]:
    """Around the call of `item`; does nothing where its markers set no limit."""
    limit = marks.of(item).get("max_compiles")
    if limit is None:
        yield
        return
    from benchax.errors import NotMeasured
    from benchax.watching.assertions import RecompileError, max_compiles
    from pytest_jax_bench.fixture import JaxBench

    try:
        with max_compiles(limit, ignored=frozenset({JaxBench.measure.__code__})):
            yield
    except (RecompileError, NotMeasured) as error:
        import pytest

        pytest.fail(str(error), pytrace=False)
