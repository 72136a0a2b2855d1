"""The hook of `benchax audit -- python train.py`: notes what one process of a program does with JAX, in plain data.

Called inside that process, by `benchax.hooks.startup`. Programs, their reasons and the cache are watched from the
import of JAX to the end, which costs nothing on a warm call. Calls and transfers are watched for some seconds from the
first call on, and for a short while every ten seconds after that, each time until some were seen: meanwhile each call
takes about ten times as long.
What puts data on devices, waits, or uses up a random key is noted for the whole run (`host_calls.py`). Nothing is
judged here; `audited_program.py` does that, afterwards and elsewhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from time import perf_counter
from typing import Any

import jax

from benchax.auditing.call_counter import CallCounter
from benchax.auditing.host_calls import HostCalls
from benchax.auditing.inner_layouts import find_moves
from benchax.auditing.recorded_functions import FunctionRecorder, RecordedFunction
from benchax.auditing.shared_calls import SharedCalls
from benchax.environment import capture
from benchax.watching.cache import watch_cache
from benchax.watching.watch import main_thread_share, watch

HOOK = "benchax.auditing.recording:begin"
PROFILING = ("trace", "start_trace", "start_server")
"""Functions of `jax.profiler`: a program that calls one of them has been looked at."""


def begin(settings: Mapping[str, Any]) -> Callable[[str], dict[str, Any]]:
    """Watches all threads from now on; what it returns ends that, and gives the report.

    Args:
        settings: calls_s: for how long calls and transfers are watched, in seconds from the first call; rules: ids of
            those that are asked about the functions of the program.
    """
    block = contextlib.ExitStack()
    found, cache = block.enter_context(watch("all")), block.enter_context(watch_cache())
    calls = CallCounter(settings["calls_s"])
    functions, host = FunctionRecorder(calls.note_compile), HostCalls(calls.on_read)
    used = _profiling()

    def finish(how: str) -> dict[str, Any]:
        calls.close()
        host.close()
        block.close()
        kept = [
            dataclasses.replace(
                one,
                held=calls.lifetimes.held(one.fun),
                repeated=calls.notes.repeated(one.fun),
                carried=calls.fed_back.carried(one.fun),
                wide_lines=host.wide.asdict(),
                called_at=calls.notes.called_at(one.fun),
                nan_at=calls.nans.nan_at(one.fun),
            )
            for one in functions.close()
        ]
        facts = {
            "main_thread_share": main_thread_share(found),
            "is_profiled": bool(used),
            "calls": calls.asdict(),
            "host": host.asdict(),
            "eager_calls": calls.eager_calls.asdict(),
            "eager_arrays": calls.eager_arrays.asdict(),
            "stale": calls.stale.asdict(),
            "inner_layouts": [
                {**move, "defined": one.place.defined, "is_carried": move["at"] in dict(one.carried.positions)}
                for one in kept
                for move in find_moves(one.place.name, one.jaxpr, calls.notes.layouts(one.fun))
            ],
            "second_forwards": _second_forwards(calls.shared),
            "host_work": calls.host_work.asdict(),
            "lost_digits": [*calls.lost.asdict(), *host.lost.asdict()],
            **calls.notes.asdict(),
        }
        return {
            "watch": found.asdict(),
            "cache": cache.asdict(),
            "transfers": calls.transfers.asdict(),
            "environment": _environment(has_backend=bool(found.compiles)),
            "facts": facts,
            "read": _read(kept, settings["rules"], how),
        }

    return finish


def _read(functions: Sequence[RecordedFunction], rules: Sequence[str], how: str) -> dict[str, Any] | None:
    """Nothing is read of a program that was ended. Of one that failed nothing is compiled again: who waits for it wants
    to see why."""
    if how != "exit":
        return None
    begun = perf_counter()
    from benchax.auditing import function_audits  # noqa: PLC0415  # with all the rules: no program should begin with that

    # The program has ended, and whoever looks at its terminal does not know what is still being done.
    if functions and sys.stderr is not None and sys.stderr.isatty():
        names = ", ".join(one.place.name for one in functions[: function_audits.MOST_BUILT])
        sys.stderr.write(f"benchax audit: the program has ended; looking at {names}\n")
    # Python sets `sys.last_type` where an exception that nobody caught ends the program.
    has_failed = getattr(sys, "last_type", None) is not None
    found = (function_audits.look if has_failed else function_audits.read)(functions, rules)
    return found | {"elapsed_s": perf_counter() - begun}


def _second_forwards(shared: SharedCalls) -> list[dict[str, Any]]:
    """Functions that do what another one does of the same arrays: of a few that may, both programs are compared."""
    if not shared.found:
        return []
    from benchax.auditing.forward_calls import second_forwards  # noqa: PLC0415  # as in `_read`

    return second_forwards(shared)


def _profiling() -> list[str]:
    """The list to which the program's own use of JAX's profiler is added, as it happens."""
    used: list[str] = []

    def note_profile(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            used.append(name)
            return function(*args, **kwargs)

        return call

    # JAX tells nobody of a profile. Wrapped this early, also `from jax.profiler import trace` takes the wrapper.
    for name in PROFILING:
        setattr(jax.profiler, name, note_profile(name, getattr(jax.profiler, name)))
    return used


def _environment(*, has_backend: bool) -> dict[str, Any] | None:
    """Devices are not asked of a program that has used none: the question would start a backend."""
    with contextlib.suppress(OSError):  # its folder was deleted under it: then no more than the rest is known
        return dataclasses.asdict(capture(with_jax=has_backend))
    return None
