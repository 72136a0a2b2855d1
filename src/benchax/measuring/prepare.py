"""A case on its way to a measurement: inputs → program → build → first call. Everything that runs a case begins here.
The other one-time costs of a call are measured here, too: transfers, dispatch, and the floor of a call.

Each step is made once, at its first use. So a caller that only traces does not compile, and a built case is not built
again. Each step is announced before it begins. Exceptions of the user's function pass through, and belong to that step.

Trace, lower and compile are timed on the program's own AOT path, from nothing (`program.forget`). The first run goes
through the ordinary call, which then finds the executable. The compile watch reports the use of JAX's persistent cache,
and whether anything was compiled at all. A look-up is never reported as a compile.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from operator import methodcaller
from statistics import median
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from benchax.case import Case
from benchax.errors import FormatError, NotAvailable, NotMeasured, UsageError
from benchax.machine.noise import paused_gc, timed
from benchax.measuring import program as programs
from benchax.measuring.inputs import Call, Inputs, is_data, make_inputs, meshes_of, undeclared_static
from benchax.measuring.state import Surroundings
from benchax.measuring.timers.base import Ready, Subject, on_fresh_stack, refuse
from benchax.measuring.timers.embedding import number_like
from benchax.model import Absent, Cache, CallFloor, Cold, Devices, DeviceShare, Stages, Transfer
from benchax.program import arguments
from benchax.program.compiled import INLINE_FLOPS, inline_flops
from benchax.program.hlo import parse
from benchax.program.jaxpr import every_equation
from benchax.program.work import count_devices, counts
from benchax.static_leaves import drop
from benchax.units import plural, seconds
from benchax.watching.compiles import CompileLog, watch_compiles, why_cache_off

Enter = Callable[[str], None]
"""Told the name of each step before it begins."""


@dataclass(frozen=True)
class FirstRun:
    """The first call of a program."""

    subject: Subject
    """With the outputs of the call."""
    elapsed_s: float
    compiles: int
    """Programs that were compiled in it: then its time is not that of a first run."""


def prepare(case: Case, seed: int = 0, enter: Enter = lambda step: None) -> Prepared:
    """The case with its inputs.

    Args:
        seed: of the data made from specs.

    Raises:
        UsageError: a spec that cannot be read. Whatever the factory of the inputs raises passes through.
    """
    enter("inputs")
    inputs = make_inputs(case, seed)
    return Prepared(programs.program_of(case, inputs), inputs, enter)


@dataclass(eq=False)
class Prepared:
    """A program and its inputs, and what has been made of them so far: the stages of JAX, and the seconds of each."""

    program: programs.CallableProgram
    inputs: Inputs
    tell: Enter = lambda step: None
    forgets: bool = True
    """False leaves a jitted function the programs that it has: to look at one, times are not needed."""
    step: str = "trace"
    """That was entered last, or is the first to come: where a failure belongs."""
    seconds: dict[str, float] = field(init=False, default_factory=dict)
    absent: list[Absent] = field(init=False, default_factory=list)
    """The reasons for missing times."""
    cache: Cache | None = field(init=False, default=None)
    """The persistent cache's part in compiling; None if nothing was compiled."""

    def on_inputs_of(self, case: Case, seed: int) -> Prepared:
        """The same program with the inputs of another case: a jitted function is called with several."""
        return replace(self, inputs=make_inputs(case, seed))

    def enter(self, step: str) -> None:
        self.step = step
        self.tell(step)

    @cached_property
    def surroundings(self) -> Surroundings:
        """Taken with the first use, which is before the function is traced."""
        return Surroundings(self.program.eager or self.program.call)

    # The objects that JAX or a wrapper gives for a step; None if there is no such step.

    @cached_property
    def _trace(self) -> Any:
        _ = self.surroundings  # tracing may leave something there
        if self.forgets:
            programs.forget(self.program)
        args, kwargs = self._call
        return self._time("trace", lambda: programs.trace(self.program, args, kwargs))

    @cached_property
    def _lower(self) -> Any:
        traced, (args, kwargs) = self._trace, self._call
        return self._time("lower", lambda: programs.lower(self.program, traced, args, kwargs))

    @cached_property
    def _compile(self) -> Any:
        lowered = self._lower
        if lowered is None:
            self.absent.append(Absent("stages.compile_s", self.absent[-1].why))
            return self.program.call  # perhaps a Compiled
        with watch_compiles() as log:
            # JAX also sends a compilation event for a lookup in the persistent cache, and none for one in memory. So
            # the time alone does not show which it was.
            compiled = self._time("compile", lowered.compile)
        self._note_cache(log)
        return compiled

    @cached_property
    def _call(self) -> Call:
        # Tracing does not change objects. A wrapper's own effects are its own concern.
        return self.inputs.renewed(copy=False)

    def _time(self, step: str, call: Callable[[], Any]) -> Any:
        """The result of a timed step; None, with the reason, if there is no such step."""
        self.enter(step)
        try:
            result, self.seconds[step] = timed(call)
        except NotMeasured as error:
            self.absent.append(Absent(f"stages.{step}_s", error.problem))
            return None
        return result

    def _note_cache(self, log: CompileLog) -> None:
        """Says what the persistent cache did, and withdraws a time to compile that was a look-up in memory."""
        # This is possible: a wrapper around a jit cannot be made to forget its programs, and `inspect` does not require
        # it.
        if not log.was_asked:
            self.cache = "warm"
            del self.seconds["compile"]
            why = "it had been compiled before in this process; a fresh one (--cold-process) shows the cost"
            self.absent.append(Absent("stages.compile_s", why))
        elif log.cache_hits:
            self.cache = "hit"
        else:
            self.cache = "miss" if why_cache_off() is None else "off"

    @property
    def traced(self) -> jax.stages.Traced | None:
        return programs.unwrapped(self._trace, jax.stages.Traced)

    @property
    def lowered(self) -> jax.stages.Lowered | None:
        return programs.unwrapped(self._lower, jax.stages.Lowered)

    @property
    def compiled(self) -> jax.stages.Compiled | None:
        return programs.unwrapped(self._compile, jax.stages.Compiled)

    @property
    def built(self) -> Prepared:
        """Itself, traced, lowered and compiled, each timed, from nothing."""
        _ = self._compile
        return self

    def trace(self) -> Prepared:
        """Returns itself, traced, for callers that do not compile. JAX keeps the trace: a later build would find it
        there and have no time to trace."""
        self.forgets = False
        _ = self.traced or self.lowered
        return self

    def reach_trace(self) -> jax.stages.Traced:
        """Raises `NotMeasured` if it cannot be reached."""
        if self.traced is None:
            why = (absent.why for absent in self.absent if absent.what == "stages.trace_s")
            raise NotMeasured(next(why, "its trace cannot be reached"))
        return self.traced

    @property
    def stages(self) -> Stages:
        """The times of the row."""
        seconds = self.seconds.get
        return Stages(trace_s=seconds("trace"), lower_s=seconds("lower"), compile_s=seconds("compile"))

    @cached_property
    def donated(self) -> tuple[int, ...]:
        """Which of the arrays and numbers that the compiled program takes, as far as JAX publishes it."""
        stage = self.traced or self.lowered
        leaves = [] if stage is None else arguments.leaves("", stage.args_info)
        return tuple(i for i, leaf in enumerate(leaves) if leaf.donated)

    @cached_property
    def static(self) -> tuple[int | str, ...]:
        stage = self.traced or self.lowered
        if stage is None or self.program.kind != "jit":
            return self.inputs.static
        return undeclared_static(stage.args_info, self.inputs.args, self.inputs.kwargs)

    @property
    def subject(self) -> Subject:
        """For timers, as far as the trace tells. It has no outputs before the first run."""
        return Subject(self.program, self.inputs, None, self.static, bool(self.donated), donated=self.donated)

    @cached_property
    def hlo(self) -> str:
        """The optimised program; empty if it cannot be reached."""
        return (self.compiled.as_text() or "") if self.compiled is not None else ""

    def count_operations(self) -> float:
        """The FLOPs of a call on one device, bodies of loops times their trip counts; XLA counts each body once.

        Raises:
            NotMeasured: there is no program, or some of its operations can't be counted.
        """
        found = counts(parse(self.hlo)) if self.hlo else None
        if found is None or found.flops is None or not found.is_exact:
            whys = found.restrictions if found else ()
            raise NotMeasured(next(iter(whys), "there is no program whose operations could be counted"))
        return found.flops

    @cached_property
    def inline_flops(self) -> float | None:
        """By which XLA:CPU decides where the program runs; None if it cannot be reached, or XLA does not say."""
        return inline_flops(self.compiled) if self.compiled is not None else None

    def call_first(self) -> FirstRun:
        """The first ordinary call, which finds the executable."""
        subject = self.built.subject
        self.enter("first run")
        is_eager = self.program.kind == "eager"
        # The donations of an eager function show only in what is left of its arguments, so it gets copies.
        copied = is_eager and self.inputs.anew is None
        ready = Ready(subject, self.program.call, *(self.inputs.renewed() if copied else subject.calls(1)[0]))
        with watch_compiles() as log:
            result, elapsed_s = timed(lambda: jax.block_until_ready(programs.refuse_result(ready())))
        arrays = [leaf for leaf in jax.tree.leaves((ready.args, ready.kwargs)) if isinstance(leaf, jax.Array)]
        donates = subject.donates or (is_eager and any(array.is_deleted() for array in arrays))
        return FirstRun(replace(subject, outputs=ready.outcome(result), donates=donates), elapsed_s, log.compiles)


# ---- transfers and dispatch ------------------------------------------------------------------------------------------


TRANSFERS = 5
DISPATCHES = 50
DISPATCH_TIME_NS = 20_000_000


def transfer_in(inputs: Inputs) -> Transfer:
    """Host to device, from fresh host copies. Raises `NotMeasured` if there is nothing to transfer.

    On CPU, `device_put` can alias the NumPy buffer (when it is aligned to 64 bytes) and copy nothing. The pointers show
    this; the time alone would look like an absurd bandwidth.
    """
    leaves = [leaf for leaf in inputs.data if leaf.is_fully_addressable]
    refuse((not leaves, "there are no input arrays"))
    host = [np.asarray(leaf) for leaf in leaves]
    # Put each leaf where it was: an array over several devices must not go to the first one.
    places = [leaf.sharding if len(leaf.sharding.device_set) > 1 else None for leaf in leaves]
    put_all = jax.device_put if not any(places) else lambda fresh: list(map(jax.device_put, fresh, places))

    def move() -> tuple[list[Any], list[Any], float]:
        fresh = [array.copy() for array in host]
        put, elapsed_s = timed(lambda: jax.block_until_ready(put_all(fresh)))
        return put, fresh, elapsed_s

    return _transfer(move)


def transfer_out(call: Callable[[], Any]) -> Transfer:
    """Device to host, from fresh outputs (JAX keeps the host copy of an array once it was read). Raises `NotMeasured`
    if there is no array."""

    def move() -> tuple[list[Any], list[Any], float]:
        outputs = jax.tree.leaves(jax.block_until_ready(call()))
        leaves = [leaf for leaf in outputs if is_data(leaf) and leaf.is_fully_addressable]
        refuse((not leaves, "there are no output arrays"))
        arrays, elapsed_s = timed(lambda: [np.asarray(leaf) for leaf in leaves])
        return leaves, arrays, elapsed_s

    return _transfer(move)


def _transfer(move: Callable[[], tuple[list[Any], list[Any], float]]) -> Transfer:
    """Several transfers by `move`, which gives the arrays on the device and on the host, and the seconds."""
    moves = [move() for _ in range(TRANSFERS)]
    # Alignment is luck. One real copy among the views makes this a measurement of copies.
    views = [all(map(shares_memory, device, host)) for device, host, _ in moves]
    return Transfer(sum(a.nbytes for a in moves[0][1]), tuple(seconds for _, _, seconds in moves), all(views))


def shares_memory(device: jax.Array, host: np.ndarray) -> bool:
    """Is the array on the device the same bytes as `host`? Only on CPU, only told for one device."""
    if not device.size or len(device.devices()) > 1 or next(iter(device.devices())).platform != "cpu":
        return False
    return device.unsafe_buffer_pointer() == host.ctypes.data


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
        # Without this wait, the next call would wait for the work of this one, and that wait would count as its
        # dispatch.
        jax.block_until_ready(outputs)
    return median(times) / 1e9


# ---- first time ------------------------------------------------------------------------------------------------------
#
# Triggers JAX's one-time work in a process with a small program, before the stages of the user's program are timed.
#
# Lowering the first function in a process took 30 to 60 ms, and lowering the next one took 8. In the first, JAX imports
# modules, loads dialects of MLIR, and starts LLVM. So a small program is traced, lowered and compiled first (50 ms,
# once).
#
# The first use of a function of JAX cannot be done beforehand: `relu` is itself jitted, and is traced at its first use
# with such shapes. If a function has operations that no earlier function had, `Stages.cold` says so.


_SEEN: set[str] = set()
"""Operations of the functions that were built in this process, and functions of JAX that are jitted themselves."""


@lru_cache(maxsize=1)
def do_first_work() -> None:
    """Traces, lowers and compiles a small program, and never runs it. Nothing the second time."""
    # If it does not compile, the user's program will not either, and will then give the reason.
    with contextlib.suppress(Exception):
        lowered = jax.jit(_program).lower(np.ones((2, 2), np.float32))
        # The persistent cache belongs to the user, and JAX decides at the first compilation of a process whether there
        # is one.
        if why_cache_off() is not None:
            lowered.compile()


def _program(x: Any) -> Any:
    """A product, a reduction, and operations on elements, one of which is a jitted function of JAX."""
    return jnp.where(x > 0, jnp.tanh(x @ x), x).sum()


def note_first_uses(traced: jax.stages.Traced | None, cold: Cold) -> Cold:
    """ "operations" where this function brought some that none before it had, else what it was.

    Args:
        cold: what had never been compiled before it, as far as whoever started this process knows.
    """
    if traced is None or cold != "function":
        return cold
    new = operations_of(traced.jaxpr) - _SEEN
    _SEEN.update(new)
    return "operations" if new else cold


def operations_of(jaxpr: Any) -> set[str]:
    """Names of primitives, and of the jitted functions in it: `relu` is one operation to whoever writes it."""
    found = list(every_equation(jaxpr))
    inner = {f"{e.primitive.name} {e.params['name']}" for e in found if isinstance(e.params.get("name"), str)}
    return {e.primitive.name for e in found} | inner


# ---- floor -----------------------------------------------------------------------------------------------------------
#
# The floor of a call: the time to call a program that does almost nothing, alternately with the measured one.
#
# The program has the measured one's tree of arguments (each array a number, on the same device), and as many results.
# It is on the same side of the limit from which XLA:CPU hands programs to another thread. It goes through `jax.jit` or
# a `Compiled`, as the measured one does. The additional cost of a wrapper around a jit is not included.
#
# The two alternate, because two medians taken one after the other on a busy machine differ with the machine's load.


LONGEST_CALL_S = 1e-3
"""For longer calls, the floor of 5 to 100 µs does not matter."""
PAIRS = 40
TIME_NS, ACCELERATOR_NS = 2_000_000, 20_000_000
"""The floor of a GPU is some 100 µs, and its first launches take longer."""


def call_floor(subject: Subject, call_s: float, inline_flops: float | None) -> CallFloor:
    """3 to 40 calls of each program, in about 2 ms; in 20 ms on an accelerator.

    Args:
        call_s: about how long a call takes.
        inline_flops: see `cost.inline_flops`, of the measured program.

    Raises:
        NotMeasured: there is nothing to compare with, or a call is so long that its floor does not matter.
    """
    is_long = call_s > LONGEST_CALL_S
    refuse(
        (subject.program.kind == "eager", "it is measured eagerly, where each operation is a call"),
        (
            subject.inputs.is_stateful,
            "it changes its arguments in place, which a near-empty program would not",
        ),
        (is_long, f"it is for calls below {seconds(LONGEST_CALL_S)}, and this one takes {seconds(call_s)}"),
        (
            any(len(leaf.sharding.device_set) > 1 for leaf in subject.inputs.data),
            "its inputs are on several devices",
        ),
        (
            inline_flops is None and jax.default_backend() == "cpu",
            "XLA does not say on which thread its program runs",
        ),
    )
    args, kwargs = jax.tree.map(number_like, subject.dynamic)
    floor = _nothing(jax.tree.structure(drop(subject.outputs)), (inline_flops or 0.0) < INLINE_FLOPS)
    if subject.program.kind == "compiled":
        floor = floor.lower(*args, **kwargs).compile()
    return on_fresh_stack(_alternate)(subject, lambda: floor(*args, **kwargs))


@lru_cache(maxsize=64)
def _nothing(outputs: Any, is_inline: bool) -> Any:
    """A jitted program of any arguments; kept, since most functions of a suite have one array in and one out."""

    def nothing(*args: Any, **kwargs: Any) -> Any:
        numbers = lax.iota(jnp.uint32, 1 if is_inline else 2 * INLINE_FLOPS)
        # XLA does not fold a product of counters. 4000 integer operations take less than 1 µs.
        number = (numbers * numbers).sum()
        return jax.tree.unflatten(outputs, [number + jnp.uint32(i) for i in range(outputs.num_leaves)])

    # JAX would drop unused arguments, and calls differ by the handling of arguments: 7 µs with one number, 61 µs with
    # 100 leaves.
    return jax.jit(nothing, keep_unused=True)


def _alternate(subject: Subject, floor: Callable[[], Any]) -> CallFloor:
    """Calls of the measured program and of the floor, one after the other, each waited for as `wall` waits."""
    is_array = isinstance(subject.outputs, jax.Array)
    wait: Callable[[Any], Any] = methodcaller("block_until_ready") if is_array else jax.block_until_ready
    call, calls_ns, floors_ns = subject.program.call, [], []
    time_ns = TIME_NS if jax.default_backend() == "cpu" else ACCELERATOR_NS
    wait(floor())
    begun = perf_counter_ns()
    with paused_gc():
        while len(floors_ns) < 3 or (len(floors_ns) < PAIRS and perf_counter_ns() - begun < time_ns):
            # Make copies for a donating function here, outside both intervals.
            ((args, kwargs),) = subject.calls(1)
            start = perf_counter_ns()
            wait(call(*args, **kwargs))
            between = perf_counter_ns()
            wait(floor())
            end = perf_counter_ns()
            calls_ns.append(between - start)
            floors_ns.append(end - between)
    return CallFloor(tuple(ns / 1e9 for ns in floors_ns), tuple(ns / 1e9 for ns in calls_ns))


# ---- release ---------------------------------------------------------------------------------------------------------
#
# Releases compiled programs, in a process of benchax that measures many cases.
#
# The program of a measured function ends with the function. The programs of the eager reference don't: JAX keeps one of
# about 1 MiB for each operation and shape, and up to 4096 for each operation. A thousand cases took 4 GB.


MOST = 200
"""The number of programs that can stay: compiling them again takes longer than keeping them."""
_kept = 0
"""Programs that were still in use after the last release."""


def release_programs() -> None:
    """Makes JAX forget all programs and traces once there are `MOST` new ones.

    Not for a process of the user's, whose own functions would compile again.
    """
    global _kept
    if count_programs() - _kept <= MOST:
        return
    jax.clear_caches()
    _SEEN.clear()  # the traces of JAX's own functions are gone, too: the next use of each is the first again
    gc.collect()
    # glibc would keep the freed memory. Without this 20 released programs left the process as large as it was.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
    _kept = count_programs()


def count_programs() -> int:
    """Returns the number of compiled programs in this process. It is 0 if no backend has started, or the number is not
    available.
    """
    # Asking for the backend would start it, and on an accelerator take the memory that workers need. Only private API
    # shows whether it has started (jax 0.6.0 to 0.12.0.1).
    has_started = getattr(sys.modules.get("jax._src.xla_bridge"), "backends_are_initialized", None)
    if has_started is None or not has_started():
        return 0
    from jax.extend.backend import get_backend  # noqa: PLC0415  # jax.extend loads Pallas: 20 ms in each session

    live = getattr(get_backend(), "live_executables", list)
    return len(live())


# ---- devices ---------------------------------------------------------------------------------------------------------
#
# Finds the number of devices of a program, and the time that each one works and is in collectives in one call.
#
# The time comes from one recording of several calls by JAX's profiler, in a separate pass. `profiling/operations.py`
# defines communication and exposed communication.


CALLS = 5


def is_fake(devices: Sequence[Any]) -> bool:
    """Do several of them share one processor? On a CPU each process has one that is real."""
    local = [d for d in devices if d.platform == "cpu" and d.process_index == jax.process_index()]
    return len(local) > 1


def devices_of(subject: Subject) -> Devices | None:
    """None of a program on one device."""
    arrays = [
        leaf for leaf in (*subject.inputs.data, *jax.tree.leaves(subject.returned)) if isinstance(leaf, jax.Array)
    ]
    held = {device for array in arrays for device in array.sharding.device_set}
    count = max(count_devices(subject.hlo), len(held))
    if count < 2:
        return None
    return Devices(count, is_fake(list(held) if len(held) == count else jax.devices()), meshes_of(arrays))


def record_shares(subject: Subject, count: int) -> tuple[DeviceShare, ...]:
    """Records the activity of each of `count` devices in one call, on average of several calls.

    Raises:
        NotMeasured: it could not be recorded, or the recording lacks a device or some of its work.
    """
    from benchax.profiling.profile import session  # noqa: PLC0415  # with the reader of traces, 0.1 s
    from benchax.profiling.trace import profile_of, refuse_incomplete  # noqa: PLC0415

    calls = [subject.ready() for _ in range(CALLS)]
    try:
        with session() as recording:
            for call in calls:
                jax.block_until_ready(call())
        profile = profile_of(recording.xspace)
    except (UsageError, NotAvailable, FormatError) as error:
        raise NotMeasured(error.problem) from error
    refuse_incomplete(profile)
    if len(profile.devices) != count:
        there = plural(len(profile.devices), "device")
        raise NotMeasured(f"the recording has operations of {there}, and the program runs on {count}")
    return tuple(
        DeviceShare(
            d.name, d.busy_s / CALLS, *(s if s is None else s / CALLS for s in (d.communication_s, d.exposed_s))
        )
        for d in profile.devices
    )
