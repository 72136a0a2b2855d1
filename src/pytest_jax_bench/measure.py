"""The steps of one `measure()`: its cases, how far to measure them, and their options. benchax measures.

    eager: first run, memory, warm up, rounds  →  jitted: trace, lower, compile, plan, first run, verify, rounds

A round is a sample: one reading of the clock, over several calls if they are short. Warming up ends when the times are
steady. It takes at most 20 ms for each requested warm-up call (one call of a slow function is enough). With
`calls_per_round` both counts are exact.
"""

from __future__ import annotations

import contextlib
import operator
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from benchax import api
from benchax.case import Case, ExactCalls, make_case, storable_param
from benchax.environment import clean
from benchax.errors import BenchaxError, UsageError
from benchax.measuring.inputs import Inputs
from benchax.model import Failure, Measurement, Options
from benchax.options import resolve
from benchax.source_files import keep_own_frames
from benchax.whole_files import hide_from_git
from pytest_jax_bench.context import LOCK, BenchContext, by_value
from pytest_jax_bench.dispatches import Observed, can_be_observed

WARMUP_S = 0.02
SAMPLING_S = 0.01
"""All rounds together take at least this long: a shorter look cannot see the machine change its pace."""
LEAST_SAMPLE_S = 150e-6
NO_TIME_S, NO_LIMIT_S = 1e-9, 1e9
"""Options know neither 0 nor infinity."""
NEVER_PRECISE = 1e-9
"""All rounds are taken, however well the median is known before."""
INSIDE = "in_graph,loop,wall"
"""What `jit_loops` asks for: calls inside one compiled program; the first that can serve."""


class BenchmarkFailed(BenchaxError):
    """The function failed in another process, was stopped at its limit, or took its process with it."""


def whole_number(name: str, value: Any, least: int) -> int:
    """`value` as an int: also 3.0 and NumPy's integers.

    Raises:
        UsageError: it's no whole number, or below `least`.
    """
    number: Any = int(value) if isinstance(value, float) and value.is_integer() else value
    if isinstance(number, bool) or not hasattr(number, "__index__") or operator.index(number) < least:
        raise UsageError(f"invalid {name}={value!r}", f"a whole number from {int(least)} up")
    return operator.index(number)


@dataclass(frozen=True)
class Rounds:
    """The numbers of rounds and warm-ups, as given to `JaxBench`."""

    jit_rounds: int = 0
    jit_loops: int = 1
    jit_warmup: int = 0
    eager_rounds: int = 0
    eager_warmup: int = 0
    calls_per_round: int | None = None
    """None: as many as a reading needs, and warming up until times are steady."""

    def __post_init__(self) -> None:
        for name, value in dict(vars(self)).items():
            if name != "calls_per_round" or value is not None:
                object.__setattr__(self, name, whole_number(name, value, least=name == "calls_per_round"))


@dataclass(frozen=True)
class MeasureCall:
    """The function to call, and its purpose."""

    fn: Callable[..., Any] | None
    fn_jit: Callable[..., Any] | None
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    tag: str
    work: Any = None
    """The work of one call, as for `benchax.bench`."""
    is_observed: bool = False
    """Does `fn` count as jitted work if it dispatches any?"""


@dataclass(frozen=True)
class Overrides:
    """The options given to JaxBench itself. They override the marker, and the command line overrides them."""

    timer: str | None = None
    verify: str | None = None
    timeout_s: float | str | None = None
    save_graph: bool | None = None
    max_time_s: float | None = None
    """Sampling ends after this time, but not before the first rounds."""
    setup: Callable[[], tuple[tuple[Any, ...], dict[str, Any]]] | None = None
    """Makes the arguments of each call. It needs `calls_per_round`."""
    is_build: bool = False
    """Is each call meant to compile something?"""


@dataclass
class StepResults:
    """A request, and the results of its steps, filled in step by step."""

    call: MeasureCall
    rounds: Rounds
    overrides: Overrides
    context: BenchContext
    eager: Measurement | None = None
    jit: Measurement | None = None
    out: Any = None
    heard: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The "hlo" of the jitted function, its "lowered" program, and the "leaves" that this takes. Empty if they stayed
    in another process."""
    error: BaseException | None = None
    """The exception of the function, or the reason why there is no answer."""
    kept: list[tuple[Measurement, Options]] = field(default_factory=list[tuple[Measurement, Options]])
    """Rows, until they are stored."""
    notes: list[str] = field(default_factory=list[str])
    """The notes about storing the results."""
    observed: Observed | None = None

    @property
    def timed(self) -> dict[str, Measurement]:
        """The measurements with run times: "jit" of jitted work, "eager" of anything else."""
        if self.observed is not None and self.observed.dispatches and self.eager is not None:
            return {"jit": self.eager}
        return {kind: m for kind, m in (("jit", self.jit), ("eager", self.eager)) if m is not None}

    @property
    def rows(self) -> list[Measurement]:
        return [m for m in (self.eager, self.jit) if m is not None]


def run_steps(
    call: MeasureCall, rounds: Rounds, overrides: Overrides, context: BenchContext, *, store: bool
) -> StepResults:
    """Takes the requested steps, and stops at the first that fails.

    Args:
        store: keep the rows in the database (with several processes of JAX, the first one's).

    Raises:
        UsageError: an option that is not permitted. Errors of the functions are in the answer.
    """
    measured = StepResults(call, rounds, overrides, context)
    # Each process of a JAX cluster runs the test, and one row is enough.
    options = {"store": None if store and jax.process_index() == 0 else "off"}
    try:
        if call.fn is not None and (rounds.eager_rounds or rounds.eager_warmup):
            _take_eager_step(measured, call.fn, options)
        if call.fn_jit is not None and measured.error is None:
            verify = "off" if measured.eager is None else "eager"
            if rounds.jit_loops > 1:
                options["timer"] = _choose_timer(measured) or INSIDE
            measured.jit = _run(measured, call, rounds.jit_rounds, rounds.jit_warmup, options, verify)
    finally:
        _store(measured, context)
    return measured


def _take_eager_step(measured: StepResults, fn: Callable[..., Any], base: dict[str, Any]) -> None:
    """Measures `fn`, and compiles the one jitted function that it calls, if it is observed: its compile time, memory
    plan, and program."""
    call, rounds = measured.call, measured.rounds
    if call.is_observed and can_be_observed(fn):
        # The second call is a warm-up, or one that observes memory, unless the user asks for few calls.
        is_timed = rounds.calls_per_round is not None and rounds.eager_warmup < 2
        fn = measured.observed = Observed(fn, 1 if is_timed else 2)
    # Observing memory takes two more calls.
    options = base | {"timer": "wall", "verify": "off", "memory": rounds.calls_per_round is None}
    asked = replace(call, fn=fn, fn_jit=None)
    measured.eager = _run(measured, asked, rounds.eager_rounds, rounds.eager_warmup, options)
    program = measured.observed and measured.observed.program
    if program is not None and measured.error is None:
        built = StepResults(call, Rounds(), measured.overrides, measured.context)
        inner = replace(call, fn=None, fn_jit=program.fn, args=program.args, kwargs=program.kwargs)
        row = _run(built, inner, 0, 0, base)
        if built.error is None:
            measured.jit, measured.heard = row, built.heard
            measured.kept += built.kept


def _store(measured: StepResults, context: BenchContext) -> None:
    places = dict.fromkeys(options.store for _, options in measured.kept if options.store not in (None, "off"))
    folder = context.output_dir
    if folder is not None and places and not folder.is_dir():
        with contextlib.suppress(OSError):  # writing the row says what is wrong with the folder
            folder.mkdir(parents=True, exist_ok=True)
            # Git sees the CSV files in it, which you can keep, and not the database.
            hide_from_git(folder, f"benchax.db*\n{LOCK}")
    with warnings_into(measured.notes):
        for place in places:
            context.hold_open(place)
        outcome = api.store_together(measured.kept)
    measured.notes += [str(unstored.error) for unstored in outcome.unstored]


@contextlib.contextmanager
def warnings_into(notes: list[str]) -> Iterator[None]:
    """Turns warnings inside (a damaged file was repaired) into notes: pytest can turn warnings into errors, and a row
    would be lost."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        yield
    notes += [str(warning.message) for warning in caught]


def _choose_timer(measured: StepResults) -> str | None:
    overrides = measured.overrides
    # Only "wall" can have new arguments for each call.
    return overrides.timer if overrides.setup else measured.context.choose("timer", overrides.timer)


def make_case_of(call: MeasureCall, context: BenchContext) -> Case:
    """The case of the jitted function, else of the other one."""
    # A text is passed on unchanged. benchax would read it as the spec of an array.
    texts = [i for i, value in enumerate(call.args) if isinstance(value, str)]
    names = [name for name, value in call.kwargs.items() if isinstance(value, str)]
    fn: Any = call.fn if call.fn_jit is None else call.fn_jit
    case = make_case(
        fn, call.args, call.kwargs, name=clean(context.name), tag=clean(call.tag),
        jit=call.fn_jit is not None, static=[*texts, *names], work=call.work,
    )  # fmt: skip
    params = tuple((name, storable_param(value)) for name, value in context.params.items())
    return replace(case, id=replace(case.id, params=params), folder=context.folder)


def _run(
    measured: StepResults, call: MeasureCall, rounds: int, warmup: int, given: dict[str, Any], verify: str = "off"
) -> Measurement:
    """Measures the jitted function of a call, else the other one, and puts its outputs, program, and error into
    `measured`.

    Args:
        given: options that the user cannot change here.
        verify: how a result is checked where the user says nothing.
    """
    context, overrides, per_round = measured.context, measured.overrides, measured.rounds.calls_per_round
    timeout_s = context.choose("timeout_s", overrides.timeout_s)
    options = {
        "timer": _choose_timer(measured),
        "verify": context.choose("verify", overrides.verify),
        "timeout_s": timeout_s,
        # The columns hold the compiler's plan, which needs no further run.
        "memory": False,
        "stages": "samples" if rounds else "first_run" if warmup else "build",
        # Only the number of rounds ends the sampling.
        "relative_width": NEVER_PRECISE,
        "min_time_s": NO_TIME_S,
        "max_samples": max(1, rounds),
        "sample_time_s": max(LEAST_SAMPLE_S, SAMPLING_S / max(1, rounds)),
        "max_warmup_s": WARMUP_S * warmup or NO_TIME_S,
        # Sampling may take this long, in addition to the limit of a stage.
        "max_time_s": timeout_s or overrides.max_time_s or NO_LIMIT_S,
    }
    defaults = {"timer": "wall", "verify": verify, "store": str(context.output_dir) if context.output_dir else "off"}
    resolved = resolve(options | given, defaults=defaults, project=context.folder)
    if resolved.store != "off":
        api.opened(resolved.store)  # refuses an impossible place before measuring
    # `listen` delivers what the row doesn't hold, such as outputs and HLO. A worker delivers nothing.
    heard: dict[str, Any] = {}
    reference = measured.out  # of the eager function
    case = replace(
        make_case_of(call, context),
        reference=None if reference is None else lambda: reference,
        calls=None if per_round is None else ExactCalls(per_round, warmup, overrides.setup),
        listen=heard.__setitem__,
    )
    is_sent = resolved.isolate or resolved.cold_process or resolved.timeout_s or resolved.memory_limit_bytes
    with by_value(context.module if is_sent else None):
        (row,) = api.run([case], [resolved], run_id=context.session, keep=lambda *kept: measured.kept.append(kept))
    if row.failure is not None:
        measured.error = _explain_failure(row, row.failure, heard.get("error"))
        return row
    if "outputs" in heard:
        measured.out = heard["outputs"]
    elif resolved.stages != "build":
        measured.out = call_once(case.fn, *case.inputs())  # the outputs stayed in another process
    measured.heard = heard
    return row


def call_each_once(call: MeasureCall) -> Any:
    """Calls each function once, unmeasured; returns what the jitted one returned, else the eager one."""
    return [call_once(fn, call.args, call.kwargs) for fn in (call.fn, call.fn_jit) if fn is not None][-1]


def call_once(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
    """One call on copies of the arrays, since the function may donate them, and of mutable objects."""
    copied_args, copied_kwargs = Inputs(args, dict(kwargs), (), "").renewed()
    return jax.block_until_ready(fn(*copied_args, **copied_kwargs))


def _explain_failure(row: Measurement, failure: Failure, error: BaseException | None) -> BaseException:
    """Returns the function's own `error`, with a traceback of the user's own code only. It is empty if the function was
    never entered, as with a wrong argument. Where another process had the error, only words are left of it."""
    if error is not None:
        return error.with_traceback(keep_own_frames(error.__traceback__))
    what = f"{row.case.label} ended with {failure.kind} in {failure.stage}: {failure.message}"
    return BenchmarkFailed(what, hint="\n".join(part for part in (failure.advice, failure.traceback) if part))
