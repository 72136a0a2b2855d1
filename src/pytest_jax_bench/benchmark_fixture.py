"""The object behind the fixture `benchmark`: what tests of pytest-benchmark and pytest-codspeed call.

    benchmark(f, x)                                     20 rounds, or as the marker and the options set
    benchmark.pedantic(f, args=(x,), rounds=50)         50 rounds; iterations= sets the calls in each

A jitted function is measured with its inputs on the device, and its compilation is separate. Any other function is
measured unchanged, with its very own arguments (`dispatches.py`). The fixture waits for its outputs.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import timeit
from collections.abc import Callable, Generator, Mapping
from dataclasses import replace
from statistics import median
from types import SimpleNamespace
from typing import Any

import jax
import pytest

from benchax import units
from benchax.errors import UsageError, require
from benchax.measuring.inputs import signature
from pytest_jax_bench.benchmark_hooks import BenchmarkStats
from pytest_jax_bench.dispatches import is_jitted, unwrap
from pytest_jax_bench.fixture import JaxBench, measure_observed
from pytest_jax_bench.keep import bytes_of
from pytest_jax_bench.measure import Overrides, Rounds, whole_number
from pytest_jax_bench.stash import MEASURED, SETTINGS

__tracebackhide__ = True
"""pytest shows where the test called, and where the function failed, and no line of this module."""

Call = tuple[tuple[Any, ...], dict[str, Any]]
ROUNDS = 20
MAX_TIME_S = 1.0
LEAST_ROUNDS = 6
"""At least this many rounds run even if they take long, up to five times the limit; `min_rounds` asks for more."""


class FixtureAlreadyUsed(UsageError):
    """`benchmark` was called a second time in one test. pytest-benchmark uses the same name."""


class ArgumentsGivenTwice(UsageError, TypeError):
    """Also a TypeError, as in pytest-benchmark."""


class BenchmarkFixture:
    """Measures one function, once.

    `group`, `extra_info` and `name` may be set until the test ends. Without a measurement, as with --benchmark-disable,
    `stats` stays None.
    """

    def __init__(self, item: pytest.Item, keywords: Mapping[str, Any]) -> None:
        self._item, self._keywords = item, keywords
        self._used_in = ""
        self._record: dict[str, Any] | None = None
        self._settings = item.config.stash[SETTINGS]
        callspec = getattr(item, "callspec", None)
        self.name, self.fullname = item.name, item.nodeid
        self.param: str | None = callspec.id if callspec else None
        self.params: dict[str, Any] | None = dict(callspec.params) if callspec else None
        self.group: str | None = keywords.get("group")
        self.extra_info: dict[str, Any] = {}
        self.disabled = self._settings.disable
        self.has_error = False
        self._is_measuring = False
        self._undo = contextlib.ExitStack()
        self.stats: BenchmarkStats | None = None

    @property
    def enabled(self) -> bool:
        return not self.disabled

    def __call__(self, function_to_benchmark: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Measures `function_to_benchmark(*args, **kwargs)` and returns what it returns.

        If an event loop runs, await the call of a coroutine function. Its body runs in that loop.
        """
        self._use("benchmark(...)")
        self._is_measuring = True
        try:
            return self._measure(function_to_benchmark, args, kwargs)
        finally:
            self._is_measuring = False

    def pedantic(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
        setup: Callable[[], Any] | None = None,
        teardown: Callable[..., Any] | None = None,
        rounds: int = 1,
        warmup_rounds: int = 0,
        iterations: int = 1,
    ) -> Any:
        """Measures `rounds` rounds of exactly `iterations` calls each, after `warmup_rounds` of them.

        No other call is made, except one before rounds of several calls that have no warm-up.

        Args:
            setup: is called before each call, and may return the `(args, kwargs)` of that call.
            teardown: is called with these, after each round.
        """
        self._use("benchmark.pedantic(...)")
        iterations = whole_number("iterations", iterations, 1)
        rounds = whole_number("rounds", rounds, 1)
        warmup_rounds = whole_number("warmup_rounds", warmup_rounds, 0)
        if setup is not None and iterations > 1:
            raise UsageError(
                f"benchmark.pedantic was given a setup and iterations={iterations}",
                "iterations=1 with a setup, which is called before each call",
            )
        given = (tuple(args), dict(kwargs or {}))
        # The measurement looks at the first arguments before it calls. Without a warm-up the first call is alone.
        first = 1 + (iterations if warmup_rounds else 1)
        renewed = _renew_arguments(setup, teardown, given, first, iterations) if setup or teardown else None
        return self._measure(target, *given, _count(rounds, warmup_rounds, iterations), Overrides(), renewed)

    def compilation(self, fn: Callable[..., Any], *args: Any, rounds: int = 5, **kwargs: Any) -> jax.stages.Compiled:
        """Measures how long it takes to trace, lower, and compile `fn(*args, **kwargs)`, and returns the program.

        Args:
            rounds: number of timed builds, after one untimed build. JAX forgets the program before each one.
        """
        self._use("benchmark.compilation(...)")
        jitted: Any = fn if is_jitted(fn) else jax.jit(fn)
        clear = getattr(jitted, "clear_cache", jax.clear_caches)
        forget = _renew_arguments(clear, None, ((), {}), 1, 1).__next__
        overrides = Overrides(timer="wall", setup=forget, is_build=True)
        return self._measure(lambda: jitted.lower(*args, **kwargs).compile(), (), {}, _count(rounds, 1, 1), overrides)

    def weave(self, target: Any, **kwargs: Any) -> None:
        """Measures the function `target` where the test's own code calls it; needs the package aspectlib."""
        weave = require("aspectlib", doing="benchmark.weave").weave

        def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
            @functools.wraps(function)  # a function, which binds to an instance as `function` does
            def woven(*args: Any, **kwargs: Any) -> Any:
                # The code that measures can call it, too, as with `time.sleep`.
                return function(*args, **kwargs) if self._is_measuring else self(function, *args, **kwargs)

            return woven

        self._undo.callback(weave(target, wrap, **kwargs).rollback)

    patch = weave

    def measure_test(self, test: Callable[..., Any], named: Mapping[str, Any]) -> None:
        """Measures a whole test. A test returns nothing to wait for."""
        self._use("a whole test")
        self._measure(functools.partial(test, **named), (), {})

    def _use(self, how: str) -> None:
        if self._used_in:
            self.has_error = True
            raise FixtureAlreadyUsed(
                f"benchmark was used in this test before, as {self._used_in}",
                "one measurement in a test",
                "use jax_bench for several; tag= names each one",
            )
        self._used_in = how

    def _measure(
        self,
        fn: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        rounds: Rounds | None = None,
        overrides: Overrides | None = None,
        renewed: Generator[Call] | None = None,
    ) -> Any:
        """With the usual rounds, unless some are given. `renewed` are the arguments of each call."""
        if inspect.iscoroutinefunction(fn):
            return self._measure_coroutine(fn, args, kwargs, rounds, overrides, renewed)
        if renewed is not None:
            with contextlib.closing(renewed):
                first = next(renewed)
                # Each of the other timers calls inside one program, with one set of arguments.
                overrides = Overrides(timer="wall", setup=renewed.__next__)
                return self._measure(fn, *first, rounds, overrides)
        if self.disabled:
            return fn(*args, **kwargs)
        # A whole test has no request.
        request: Any = SimpleNamespace(node=self._item, config=self._item.config)
        bench = JaxBench(request)
        bench.rounds, bench.overrides = (rounds, overrides) if rounds and overrides else self._usual()
        renew = bench.overrides.setup
        fn, args, kwargs = unwrap(fn, args, kwargs)
        if not is_jitted(fn):
            fn, args, kwargs = _call_with_held(fn), (Held(args, kwargs),), {}
            if renew is not None:
                bench.overrides = replace(bench.overrides, setup=lambda: ((Held(*renew()),), {}))
        try:
            res, out = measure_observed(bench, fn, args, kwargs)
        except BaseException:
            self.has_error = True
            raise
        finally:
            self._record = next(reversed(self._item.stash.get(MEASURED, [])), None)
        samples = next((m.headline for m in (res.jit, res.eager) if m is not None and m.headline), None)
        if samples is not None and samples.elapsed_s:
            self.stats = BenchmarkStats(self, samples.per_call_s, samples.iterations)
        return out

    def _measure_coroutine(self, fn: Callable[..., Any], args: Any, kwargs: Any, *how: Any) -> Any:
        """Runs the body in the event loop of the test, from another thread; in a new loop without one."""

        def measure(run: Callable[[Any], Any]) -> Any:
            returned = self._measure(lambda *args, **kwargs: run(fn(*args, **kwargs)), args, kwargs, *how)
            if self._record is not None:
                cost = units.seconds(_cost_of(run))
                self._record["notes"].append(f"each time includes {cost} for starting the coroutine in the event loop")
            return returned

        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            with asyncio.Runner() as runner:
                return measure(runner.run)
        return asyncio.to_thread(measure, lambda body: asyncio.run_coroutine_threadsafe(body, loop).result())

    def _usual(self) -> tuple[Rounds, Overrides]:
        wanted = self._settings.benchmark
        asked = self._keywords.get("min_rounds") or wanted.min_rounds or 1
        rounds = min(max(ROUNDS, asked), self._keywords.get("max_rounds") or max(ROUNDS, asked))
        limit_s = self._keywords.get("max_time") or wanted.max_time or MAX_TIME_S
        return Rounds(rounds, 1, 1, rounds, 1), Overrides(max_time_s=None if asked > LEAST_ROUNDS else float(limit_s))

    def complete_record(self, problem: Any) -> None:
        """Adds what the test knows about its benchmark to the record for the summary."""
        self.has_error = self.has_error or problem is not None
        if self._record is not None:
            self._record["benchmark"] = {
                "group": self.group,
                "name": self.name,
                "fullname": self.fullname,
                "param": self.param,
                "params": self.params,
                # JSON has no form for some values, such as modules.
                "param_names": {name: getattr(v, "__name__", str(v)) for name, v in (self.params or {}).items()},
                "extra_info": self.extra_info,
                "has_error": self.has_error,
            }

    def finish(self) -> None:
        """Puts woven functions back, and warns if the test did not use the fixture."""
        self._undo.close()
        if not self._used_in and not self.has_error:
            self._item.warn(pytest.PytestWarning("the fixture benchmark was not used at all in this test"))


def _count(rounds: int, warmup_rounds: int, iterations: int) -> Rounds:
    return Rounds(rounds, 1, warmup_rounds * iterations, rounds, warmup_rounds * iterations, iterations)


def _cost_of(run: Callable[[Any], Any]) -> float:
    """Returns the seconds that a coroutine takes that does nothing."""

    async def nothing() -> None:
        pass

    return median(timeit.repeat(lambda: run(nothing()), number=1, repeat=ROUNDS))


class Held:
    """The arguments of a function that is measured unchanged. benchax places, copies, and inspects none of them."""

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs

    @property
    def nbytes(self) -> int:
        """Adds up the bytes of the arrays among them."""
        return bytes_of((self.args, dict(self.kwargs)))

    def __repr__(self) -> str:
        return signature(self.args, dict(self.kwargs), ())


def _call_with_held(fn: Callable[..., Any]) -> Callable[[Held], Any]:
    def call(held: Held) -> Any:
        return fn(*held.args, **held.kwargs)

    return call


def _renew_arguments(
    setup: Callable[[], Any] | None, teardown: Callable[..., Any] | None, given: Call, calls: int, iterations: int
) -> Generator[Call]:
    """The arguments of each call, made by `setup` before each round; `teardown` gets them after it.

    Args:
        calls: how often they come in the first round; in the later ones, `iterations` times.
    """
    while True:
        args, kwargs = _set_up(setup, given) if setup is not None else given
        try:
            for _ in range(calls):
                yield args, kwargs
        finally:
            if teardown is not None:
                teardown(*args, **kwargs)
        calls = iterations


def _set_up(setup: Callable[[], Any], given: Call) -> Call:
    made = setup()
    if not made:
        return given
    if any(given):
        raise ArgumentsGivenTwice(
            "benchmark.pedantic was given args or kwargs, and its setup returns them as well", "either"
        )
    if not isinstance(made, tuple | list) or len(made) != 2 or not isinstance(made[1], Mapping):
        raise UsageError(f"the setup of benchmark.pedantic returned {made!r}", "None, or (args, kwargs)")
    return tuple(made[0]), dict(made[1])
