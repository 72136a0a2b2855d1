"""The fixture `benchmark`, and whole tests that are marked `benchmark`: the hooks of --benchax-fixture.

Registered only where neither pytest-benchmark nor pytest-codspeed is active: both have a fixture of this name. It
measures nothing, and loads nothing until asked.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_jax_bench import load, options
from pytest_jax_bench.stash import FIXTURE

if TYPE_CHECKING:
    from pytest_jax_bench.benchmark_fixture import BenchmarkFixture

MARKS = ("benchmark", "codspeed_benchmark")
KEYWORDS = (
    "group", "min_rounds", "max_time", "max_rounds", "min_time", "precision", "confidence", "timer", "disable_gc",
    "warmup", "warmup_iterations", "warmup_time", "calibration_precision", "cprofile",
)  # fmt: skip
"""The keywords of pytest-benchmark and pytest-codspeed. Those from `min_time` on are accepted and change nothing: see
WITHOUT of `benchmark_options.py`."""
MARKER_LINE = (
    "benchmark(group=None, min_rounds=1, max_time=1.0, ...): as of pytest-benchmark and pytest-codspeed. On a test "
    "without a fixture that measures, the whole test is measured"
)


@pytest.fixture
def benchmark(request: pytest.FixtureRequest) -> Iterator[BenchmarkFixture]:
    """As of pytest-benchmark, for functions of JAX: waits for all outputs, and times compilation apart."""
    fixture = make_fixture(request.node)
    yield fixture
    fixture.finish()


@pytest.fixture
def benchmark_weave(benchmark: BenchmarkFixture) -> Any:
    """`benchmark.weave`, as in pytest-benchmark."""
    return benchmark.weave


def pytest_runtest_setup(item: pytest.Item) -> None:
    for mark in _marks(item):
        if why := _problem(mark):
            pytest.fail(why, pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """A whole test is the function: called again and again with the same values of its fixtures."""
    if not is_whole(pyfuncitem) or inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    named = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    make_fixture(pyfuncitem).measure_test(pyfuncitem.obj, named)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Any:
    # Before the record is put on the report: tests set `group` and `extra_info` after the call as well.
    if call.when == "call" and (fixture := item.stash.get(FIXTURE, None)) is not None:
        fixture.complete_record(call.excinfo)
    return (yield)


def make_fixture(item: pytest.Item) -> BenchmarkFixture:
    keywords: dict[str, Any] = {}
    for mark in _marks(item):
        keywords = {**mark.kwargs, **keywords}
    fixture = item.stash[FIXTURE] = load("benchmark_fixture").BenchmarkFixture(item, keywords)
    return fixture


def _marks(item: pytest.Item) -> Iterator[pytest.Mark]:
    """The nearest first."""
    return (mark for mark in item.iter_markers() if mark.name in MARKS)


def _problem(mark: pytest.Mark) -> str | None:
    if mark.args:
        return f"the marker {mark.name} was given {mark.args[0]!r} without a name\nexpected keywords: {KEYWORDS}"
    unknown = [name for name in mark.kwargs if name not in KEYWORDS]
    if unknown:
        return f"the marker {mark.name} has no keyword {unknown[0]!r}\nexpected some of {', '.join(KEYWORDS)}"
    rounds = [mark.kwargs[name] for name in ("min_rounds", "max_rounds") if mark.kwargs.get(name) is not None]
    if any(isinstance(n, bool) or not isinstance(n, int) or n < 1 for n in rounds):
        return f"the marker {mark.name} was given {rounds[0]!r} rounds\nexpected a whole number from 1 up"
    return None


def is_whole(item: pytest.Item) -> bool:
    """Is the test itself what is measured?"""
    return next(_marks(item), None) is not None and not _has_fixture(item)


def _has_fixture(item: pytest.Item) -> bool:
    return not {"benchmark", "jax_bench"}.isdisjoint(getattr(item, "fixturenames", ()))


def measures(item: pytest.Item) -> bool:
    return _has_fixture(item) or options.is_marked(item) or next(_marks(item), None) is not None


def leave_out(items: list[pytest.Item], *, only: bool) -> None:
    """Skips, as pytest-benchmark does: all that measure, or with `only` all others."""
    reason = "measures nothing (--benchmark-only)" if only else "measures (--benchmark-skip)"
    for item in items:
        if measures(item) is not only:
            item.add_marker(pytest.mark.skip(reason=reason))
