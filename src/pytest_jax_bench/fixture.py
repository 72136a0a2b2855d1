"""JaxBench, the object that tests and programs call. It asks benchax to measure, keeps the row, and informs the
summary.

    jb = JaxBench(request, jit_rounds=20, jit_warmup=1, eager_rounds=10, eager_warmup=1)
    res, out = jb.measure(fn=f, fn_jit=jax.jit(f), x=x)

The decisions are elsewhere: the steps in `measure.py`, the stored data in `keep.py`, the test and its files in
`context.py`.

--ptjb-disable, --ptjb-only and --ptjb-skip select the measurements. A pattern is looked for in NODEID#TAG, such as
tests/test_fft.py::test_fft[128]#base; with * or ? it must match all of it. Brackets are literal, since node ids have
them.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from benchax import units
from benchax.case import check_work
from benchax.errors import BenchaxError, FormatError, StoreError, UsageError
from benchax.keywords import takes
from benchax.model import Measurement
from pytest_jax_bench import context, keep, measure
from pytest_jax_bench.context import BenchContext
from pytest_jax_bench.data import BenchData
from pytest_jax_bench.dispatches import is_jitted, unwrap
from pytest_jax_bench.measure import MeasureCall, Overrides, Rounds
from pytest_jax_bench.options import is_match

if TYPE_CHECKING:
    import pytest

__tracebackhide__ = True
"""pytest shows where the test called, and where the function failed, and no line of this module."""

# The limits of a marker: `max_time_ms`, and `min_time_ms` for times that are too short to be true.
#
# A test fails if the median is certainly beyond its limit: the whole 95 % interval is beyond it, or all readings if
# there are fewer than 6 rounds.


class TimeLimitExceeded(BenchaxError, AssertionError):
    """A run time is beyond a limit of the test's marker."""


def check(timed: Mapping[str, Measurement], marker: Mapping[str, Any]) -> None:
    """Raises `TimeLimitExceeded`, after the row was kept."""
    most_ms, least_ms = marker.get("max_time_ms"), marker.get("min_time_ms")
    for kind, m in timed.items():
        samples = m.headline
        if samples is None:
            continue
        low_s, high_s = samples.summary.low_s, samples.summary.high_s
        low_s = min(samples.per_call_s) if low_s is None else low_s
        high_s = max(samples.per_call_s) if high_s is None else high_s
        took = f"a {kind} run took {units.seconds_range(low_s, high_s)}"
        if most_ms is not None and low_s > most_ms / 1e3:
            raise TimeLimitExceeded(f"{took}, more than max_time_ms={most_ms}")
        if least_ms is not None and high_s < least_ms / 1e3:
            raise TimeLimitExceeded(f"{took}, less than min_time_ms={least_ms}: does it still do its work?")


DEFAULT_TAG = "base"
ROUNDS = Rounds(jit_rounds=20, jit_warmup=1, eager_rounds=20, eager_warmup=1)
"""The rounds of `jax_bench(f, x)`. Fewer than 20 cannot be compared with another session's."""


class JaxBench:
    """Measures functions and keeps the results.

    Args:
        request: pytest's fixture of that name; None outside of pytest.
        path: outside of pytest: where the CSV file goes, with or without ".csv".
        jit_rounds, eager_rounds: readings of the clock; 0 leaves that part out. A reading covers several calls if they
            are short.
        jit_warmup, eager_warmup: whether to warm up: until the times are steady, for 20 ms times this at most. With 0
            rounds, the function is called once.
        jit_loops: above 1, the jitted function is timed inside a compiled program, without the cost of calling it;
            benchax chooses how often it runs there.
        calls_per_round: number of calls in each round, for functions with side effects. The numbers of rounds and of
            warm-ups before them are then exact. In addition there is only the first run, and no memory reading of an
            eager function.
        timer, verify, timeout_s: as --ptjb-timer, --ptjb-verify, --ptjb-timeout, which override them. They override the
            marker.
        save_graph: as --ptjb-save-graph.
    """

    def __init__(
        self,
        request: pytest.FixtureRequest | None = None,
        path: str | os.PathLike[str] | None = None,
        jit_rounds: int = 0,
        jit_loops: int = 1,
        jit_warmup: int = 0,
        eager_rounds: int = 0,
        eager_warmup: int = 0,
        *,
        calls_per_round: int | None = None,
        timer: str | None = None,
        verify: str | None = None,
        timeout_s: float | str | None = None,
        save_graph: bool | None = None,
    ) -> None:
        if request is not None and path is not None:
            raise UsageError(f"path={path!r} is given together with request", "path outside of pytest only")
        self.context = context.from_request(request) if request is not None else context.from_path(path)
        self.overrides = Overrides(timer, verify, timeout_s, save_graph)
        self.configure(jit_rounds, jit_loops, jit_warmup, eager_rounds, eager_warmup, calls_per_round=calls_per_round)

    def configure(
        self,
        jit_rounds: int = 0,
        jit_loops: int = 1,
        jit_warmup: int = 0,
        eager_rounds: int = 0,
        eager_warmup: int = 0,
        *,
        calls_per_round: int | None = None,
    ) -> None:
        """How much the next calls of `measure` measure."""
        self.rounds = Rounds(jit_rounds, jit_loops, jit_warmup, eager_rounds, eager_warmup, calls_per_round)

    def measure(
        self,
        fn: Callable[..., Any] | None = None,
        fn_jit: Callable[..., Any] | None = None,
        *args: Any,
        tag: str | None = None,
        write: bool = True,
        kwargs: Mapping[str, Any] | None = None,
        **named: Any,
    ) -> tuple[BenchData, Any]:
        """Measures `fn(*args, **named)` as it stands and `fn_jit(*args, **named)` stage by stage.

        Args:
            fn: the function to be run eagerly.
            fn_jit: the jitted function; a plain one is jitted.
            tag: tells several measurements of one test apart.
            write: keep the row, in the CSV file and the database.
            work: the work of one call, such as {"samples": 32}, or a function of the inputs that returns it. It is for
                `res.jit.rates()` and the database. A function with an argument of that name gets it instead.
            kwargs: further keyword arguments of the functions; these can have the names of this method's own arguments.

        Returns:
            (res, out): all columns as attributes, with `res.jit` and `res.eager` behind them; and what the jitted
            function returned, else the eager one. Donated arguments stay usable: the functions are given copies.

        Raises:
            UsageError: a call with no clear meaning; nothing was measured.
            StoreError, FormatError: the CSV file cannot be written, or is not one of the plugin's; it stays unchanged.
            BenchmarkFailed: the function was stopped or crashed. Its own errors pass through. The row is kept first.
        """
        return self._measure(_call(fn, fn_jit, args, tag, kwargs, named), write)

    def _measure(self, call: MeasureCall, write: bool) -> tuple[BenchData, Any]:
        if write and self.context.csv is None:
            raise UsageError(
                "JaxBench has no path to write to",
                "JaxBench(path=...), or measure(..., write=False), outside of pytest",
            )
        if not is_wanted(self.context, call.tag):
            return keep.make_unmeasured(call, self.context), measure.call_each_once(call)
        # The lock covers measuring, too, so that workers of xdist take turns.
        with self.context.lock():
            measured = measure.run_steps(call, self.rounds, self.overrides, self.context, store=write)
            try:
                res = keep.keep_measurement(measured, write=write)
            except (StoreError, FormatError) as error:  # hides the frames that read the file
                raise error.with_traceback(None) from None
        # The row of a failed function is kept first, and says how it ended.
        if measured.error is not None:
            raise measured.error
        check(measured.timed, self.context.marker)
        return res, measured.out


MEASURING = JaxBench._measure.__code__
"""Programs that this code compiles are there to be measured."""


def use_fixture(request: pytest.FixtureRequest, *args: Any, **named: Any) -> Any:
    """The fixture `jax_bench`: called with rounds it makes a JaxBench; called with a function it measures that.

    `jax_bench(f, x)` returns what `f(x)` returns. A jitted function is measured stage by stage, any other one
    unchanged. A function that calls jitted functions is measured as "Jit-Run", with the compilation and the memory of
    the one it calls.
    """
    if not args or not callable(args[0]):
        return JaxBench(request, *args, **named)
    fn, *rest = args
    work = {"work": named.pop("work")} if "work" in named and not takes(fn, "work") else {}
    bench = JaxBench(request, **vars(ROUNDS))
    return measure_observed(bench, *unwrap(fn, tuple(rest), named), **work)[1]


def measure_observed(
    bench: JaxBench, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], **work: Any
) -> tuple[BenchData, Any]:
    """As `bench.measure`, for a jitted function or any other one. A function that calls jitted functions counts as
    jitted work."""
    both = (None, fn) if is_jitted(fn) else (fn, None)
    return bench._measure(replace(_call(*both, args, None, kwargs, work), is_observed=True), write=True)


def _call(
    fn: Any, fn_jit: Any, args: tuple[Any, ...], tag: str | None, kwargs: Any, named: dict[str, Any]
) -> MeasureCall:
    if fn is None and fn_jit is None:
        raise UsageError("measure was given no function", "fn=..., fn_jit=..., or both")
    if tag is not None and not isinstance(tag, str):
        raise UsageError(f"tag={tag!r} is a {type(tag).__name__}", "a text")
    is_ours = "work" in named and not any(f is not None and takes(f, "work") for f in (fn, fn_jit))
    work = check_work(named.pop("work")) if is_ours else None
    both = {**named, **(kwargs or {})}
    if tag is not None and "tag" not in both and any(_takes_tag(f, args, both) for f in (fn, fn_jit)):
        raise UsageError(
            f"tag={tag!r} is an argument of measure and of the function",
            "an unambiguous call",
            f"for the function: kwargs={{'tag': {tag!r}}}; for measure itself: tag=...",
        )
    return MeasureCall(fn, fn_jit, args, both, DEFAULT_TAG if tag is None else tag, work)


def _takes_tag(fn: Any, args: tuple[Any, ...], named: Mapping[str, Any]) -> bool:
    """Could this call of `fn` have a `tag`, too? It could not if it has one already, by its place.

    `**kwargs` takes none: there it is the row's name, as in pytest-jax-bench.
    """
    try:
        signature = inspect.signature(fn)
        signature.bind(*args, **named, tag="")
    except (TypeError, ValueError):  # also for builtins without a signature
        return False
    return "tag" in signature.parameters


def is_wanted(context: BenchContext, tag: str) -> bool:
    settings, label = context.settings, f"{context.nodeid}#{tag}"
    if settings.disable or (settings.skip is not None and is_match(label, settings.skip)):
        return False
    return settings.only is None or is_match(label, settings.only)
