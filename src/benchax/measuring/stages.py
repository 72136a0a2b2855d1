"""Measures the one-time costs of a call, each separately: transfer in, trace, lower, compile, first run, dispatch,
transfer out.

Trace, lower and compile are timed on the program's own AOT path, from nothing (`program.forget`). The first run goes
through the ordinary call, which then finds the executable. The compile watch reports the use of JAX's persistent cache,
and whether anything was compiled at all. A look-up is never reported as a compile.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median
from time import perf_counter_ns
from typing import Any

import jax
import numpy as np

from benchax.environment import jax_config
from benchax.errors import NotMeasured
from benchax.measuring import program as programs
from benchax.measuring.fresh_stack import on_fresh_stack
from benchax.measuring.inputs import Inputs, is_data, undeclared_static
from benchax.measuring.program import CallableProgram
from benchax.measuring.unrun import refuse_result
from benchax.model import Absent, Cache, Transfer
from benchax.watching.compiles import CompileLog, watch_compiles

TRANSFERS = 5
DISPATCHES = 50
DISPATCH_TIME_NS = 20_000_000


@dataclass
class BuiltProgram:
    """The results of building: the stages of JAX, the seconds of each, and the reasons for missing ones."""

    seconds: dict[str, float] = field(default_factory=dict)
    absent: list[Absent] = field(default_factory=list)
    cache: Cache | None = None
    traced: jax.stages.Traced | None = None
    lowered: jax.stages.Lowered | None = None
    compiled: jax.stages.Compiled | None = None
    donated: tuple[int, ...] = ()
    """Which of the arrays and numbers that the compiled program takes."""
    static: tuple[int | str, ...] = ()

    @property
    def donates(self) -> bool:
        return bool(self.donated)

    def reach_trace(self) -> jax.stages.Traced:
        """Raises `NotMeasured` if it cannot be reached."""
        if self.traced is None:
            why = (absent.why for absent in self.absent if absent.what == "stages.trace_s")
            raise NotMeasured(next(why, "its trace cannot be reached"))
        return self.traced


def timed(call: Callable[[], Any]) -> tuple[Any, float]:
    """(result, seconds until `call` returned)."""
    start = perf_counter_ns()
    result = call()
    return result, (perf_counter_ns() - start) / 1e9


def build(program: CallableProgram, inputs: Inputs, enter: Callable[[str], None], forgets: bool = True) -> BuiltProgram:
    """Trace, lower, compile, each timed, from nothing.

    Args:
        enter: called with the name of each stage before it begins.
        forgets: False leaves a jitted function its programs; then times may be those of looking them up.

    Raises:
        whatever JAX raises for a function that does not trace or compile.
    """
    built = BuiltProgram(static=inputs.static)
    # Tracing leaves objects as they were; what a wrapper makes of them is its own affair.
    args, kwargs = inputs.renewed(copy=False)
    if forgets:
        programs.forget(program)
    built.traced = _step(built, "trace", enter, lambda: programs.trace(program, args, kwargs))
    lowered = _step(built, "lower", enter, lambda: programs.lower(program, built.traced, args, kwargs))
    if lowered is None:
        built.absent.append(Absent("stages.compile_s", built.absent[-1].why))
        built.compiled = programs.unwrapped(program.call, jax.stages.Compiled)
        return built
    with watch_compiles() as log:
        # JAX sends the event of a compilation for a look-up in the persistent cache, too, and none at all for one in
        # memory, so that the time alone does not say which it was.
        compiled = _step(built, "compile", enter, lowered.compile)
    built.traced = programs.unwrapped(built.traced, jax.stages.Traced)
    built.lowered = programs.unwrapped(lowered, jax.stages.Lowered)
    built.compiled = programs.unwrapped(compiled, jax.stages.Compiled)
    _judge_cache(built, log)
    _read_arguments(built, program, inputs)
    return built


def trace_only(program: CallableProgram, inputs: Inputs) -> BuiltProgram:
    """Returns the results of tracing, for callers that do not compile."""
    built = BuiltProgram(static=inputs.static)
    traced = _step(built, "trace", lambda stage: None, lambda: programs.trace(program, *inputs.renewed(copy=False)))
    if traced is None:
        built.lowered = programs.unwrapped(
            programs.lower(program, None, *inputs.renewed(copy=False)), jax.stages.Lowered
        )
    built.traced = programs.unwrapped(traced, jax.stages.Traced)
    _read_arguments(built, program, inputs)
    return built


def _step(built: BuiltProgram, name: str, enter: Callable[[str], None], call: Callable[[], Any]) -> Any:
    enter(name)
    try:
        result, built.seconds[name] = timed(call)
    except NotMeasured as error:
        built.absent.append(Absent(f"stages.{name}_s", error.problem))
        return None
    return result


def _judge_cache(built: BuiltProgram, log: CompileLog) -> None:
    """Says what the persistent cache did, and withdraws a time to compile that was a look-up in memory."""
    # Possible, since a wrapper around a jit cannot be made to forget its programs, and `inspect` does not ask for it.
    if not log.was_asked:
        built.cache = "warm"
        del built.seconds["compile"]
        why = "it had been compiled before in this process; a fresh one (--cold-process) shows the cost"
        built.absent.append(Absent("stages.compile_s", why))
    elif log.cache_hits:
        built.cache = "hit"
    else:
        built.cache = "miss" if is_cache_on() else "off"


def is_cache_on() -> bool:
    """Is there a persistent cache of JAX's, which a program would be written to?"""
    settings = jax_config(jax.config)
    return (
        bool(settings.get("jax_compilation_cache_dir")) and settings.get("jax_enable_compilation_cache", True) is True
    )


def _read_arguments(built: BuiltProgram, program: CallableProgram, inputs: Inputs) -> None:
    """Which arguments are donated and which are static, as far as JAX publishes it."""
    stage = built.traced or built.lowered
    if stage is None:
        return
    infos = stage.args_info
    flags = [info.donated for info in jax.tree.leaves(infos, is_leaf=_is_info) if _is_info(info)]
    built.donated = tuple(i for i, is_donated in enumerate(flags) if is_donated)
    if program.kind == "jit":
        built.static = undeclared_static(infos, inputs.args, inputs.kwargs)


def _is_info(leaf: Any) -> bool:
    return hasattr(leaf, "donated")


def transfer_in(inputs: Inputs) -> Transfer | None:
    """Host to device, from fresh host copies; None if there is nothing to transfer.

    On CPU, `device_put` can alias the NumPy buffer (when it is aligned to 64 bytes) and copy nothing. The pointers show
    this; the time alone would look like an absurd bandwidth.
    """
    leaves = [leaf for leaf in inputs.data if leaf.is_fully_addressable]
    host = [np.asarray(leaf) for leaf in leaves]
    if not host:
        return None
    # To where each lies: an array over several devices is not put on the first.
    places = [leaf.sharding if len(leaf.sharding.device_set) > 1 else None for leaf in leaves]
    put_all = jax.device_put if not any(places) else lambda fresh: list(map(jax.device_put, fresh, places))
    times, aliased = [], []
    for _ in range(TRANSFERS):
        fresh = [array.copy() for array in host]
        put, seconds = timed(lambda fresh=fresh: jax.block_until_ready(put_all(fresh)))
        times.append(seconds)
        aliased.append(all(map(shares_memory, put, fresh)))
    # Alignment is luck: one real copy among the views makes it a measurement of copies.
    return Transfer(sum(a.nbytes for a in host), tuple(times), all(aliased))


def transfer_out(call: Callable[[], Any]) -> Transfer | None:
    """Device to host, from fresh outputs (JAX keeps the host copy of an array once it was read)."""
    times, views, size = [], [], 0
    for _ in range(TRANSFERS):
        leaves = [leaf for leaf in jax.tree.leaves(jax.block_until_ready(call())) if is_data(leaf)]
        leaves = [leaf for leaf in leaves if leaf.is_fully_addressable]
        if not leaves:
            return None
        arrays, seconds = timed(lambda leaves=leaves: [np.asarray(leaf) for leaf in leaves])
        times.append(seconds)
        views.append(all(map(shares_memory, leaves, arrays)))
        size = sum(a.nbytes for a in arrays)
    return Transfer(size, tuple(times), all(views))


def shares_memory(device: jax.Array, host: np.ndarray) -> bool:
    """Is the array on the device the same bytes as `host`? Only on CPU, only told for one device."""
    if not device.size or len(device.devices()) > 1 or next(iter(device.devices())).platform != "cpu":
        return False
    return device.unsafe_buffer_pointer() == host.ctypes.data


def first_run(call: Callable[[], Any]) -> tuple[Any, float]:
    """(outputs, seconds until they were ready) of the first ordinary call. Raises UsageError where it runs nothing."""
    return timed(lambda: jax.block_until_ready(refuse_result(call())))


@on_fresh_stack
def dispatch(ready: Callable[[], Callable[[], Any]]) -> float:
    """Median seconds until a warm call returns, not waiting for its work. 3 to 50 calls, in about 20 ms with their
    work.

    Args:
        ready: makes a call and all that it needs, which is not timed.
    """
    times: list[int] = []
    begun = perf_counter_ns()
    while len(times) < 3 or (len(times) < DISPATCHES and perf_counter_ns() - begun < DISPATCH_TIME_NS):
        call = ready()
        start = perf_counter_ns()
        outputs = call()
        times.append(perf_counter_ns() - start)
        # Without this wait the next call would queue up behind the work of this one, and the wait be taken for its
        # dispatch.
        jax.block_until_ready(outputs)
    return median(times) / 1e9
