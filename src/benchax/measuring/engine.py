"""measure(case, options) -> Measurement: the order of work, as a list of calls.

    inputs → build (trace, lower, compile) → artifacts → first run → verify → transfers → warm up → dispatch → samples
    → memory → remarks

What was measured before something failed is kept, beside the failure. A part that cannot be measured here says why and
the rest goes on. `Options.stages` ends the list earlier; then memory comes before the samples, as part of warming up,
so that a slow function is called as seldom as possible.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import jax

from benchax.artifacts.cost import cost, inline_flops, lowered_flops
from benchax.artifacts.memory_plan import memory_plan
from benchax.case import Case
from benchax.environment import capture, jax_config
from benchax.errors import NotMeasured
from benchax.measuring import memory, noise, purity, stages, timers
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.exported import exported
from benchax.measuring.floor import call_floor
from benchax.measuring.inputs import make_inputs
from benchax.measuring.mutation import ClosedOver
from benchax.measuring.program import program_of
from benchax.measuring.purity import Purity
from benchax.measuring.remarks import RowEvidence, remarks
from benchax.measuring.sampling import NO_WARMUP, Warmup, believable, call_again, collect, warm_up
from benchax.measuring.stages import BuiltProgram
from benchax.measuring.stopping import PROCESSES, count_processes, share_time
from benchax.measuring.surroundings import remember
from benchax.measuring.timers.base import Ready, Subject
from benchax.measuring.verification import Notes, Undecided, verify
from benchax.model import (
    OTHER_PROCESSES,
    Absent,
    Cold,
    Environment,
    Measurement,
    Memory,
    Noise,
    Options,
    Program,
    Samples,
    Stages,
)
from benchax.watching.compiles import watch_compiles

LONG_CALL_S = 20e-3
"""Of a call as long as this memory is read once, and not twice, where `Options.stages` asks for few calls."""

Progress = Callable[[str, float], None]
"""Told the stage, and the share of it that is done where that is known (else 0)."""


def quiet(stage: str, share: float = 0.0) -> None:
    """No progress."""


@dataclass
class Record:
    """What is known so far. Each step adds to it; the row is made of it, whether or not the end was reached."""

    progress: Progress
    stage: str = "inputs"
    signature: str = ""
    stages: Stages = field(default_factory=Stages)
    samples: list[Samples] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    cost: Any = None
    numerics: Any = None
    undecided: str = ""
    """Why it cannot be told whether the compiled result is right."""
    program: Program | None = None
    remarks: tuple[Any, ...] = ()
    absent: list[Absent] = field(default_factory=list)
    closed_over: ClosedOver | None = None
    purity: Purity = field(default_factory=Purity)
    notes: Notes = field(default_factory=Notes)
    processes: int | None = None
    """That share the time for sampling; None before that is known."""
    noise: Noise = field(default_factory=Noise)

    def enter(self, stage: str) -> None:
        self.stage = stage
        self.progress(stage, 0.0)

    def why(self, what: str) -> str:
        return next(a.why for a in self.absent if a.what == what)

    @contextmanager
    def or_absent(self, what: str) -> Iterator[None]:
        """A part that may turn out not to be measurable: then the row says why."""
        try:
            yield
        except NotMeasured as error:
            self.absent.append(Absent(what, error.problem))


def measure(
    case: Case, options: Options, *, run_id: str, progress: Progress = quiet, cold: Cold = "function"
) -> Measurement:
    """Measures one case. Never raises for what the user's function does: that becomes the row's failure.

    Args:
        options: resolved, without `None`.
        cold: what had never been compiled before in this process, for `Stages.cold`.
    """
    started_at = datetime.now(UTC).isoformat(timespec="microseconds")
    record, failure = Record(progress), None
    reading = noise.start()
    try:
        with warnings.catch_warnings():
            # Said by remarks, with numbers; as warnings they would break the progress display.
            warnings.filterwarnings("ignore", message="Some donated buffers were not usable")
            _measure(case, options, record, reading, cold)
    except (Exception, SystemExit) as error:  # a benchmark that calls sys.exit ends itself, not the run
        failure = diagnose(error, record.stage)
        _tell(case, "error", error)
    return Measurement(
        case=case.id,
        environment=_environment(run_id, case.folder, options.store),
        options=options if record.processes is None else replace(options, processes=record.processes),
        run_id=run_id,
        started_at=started_at,
        signature=record.signature,
        failure=failure,
        stages=record.stages,
        samples=tuple(record.samples),
        memory=record.memory,
        cost=record.cost,
        numerics=record.numerics,
        noise=record.noise if failure is None else noise.finish(reading),
        program=record.program,
        remarks=record.remarks,
        not_measured=tuple(record.absent),
    )


def _tell(case: Case, what: str, value: Any) -> None:
    if case.listen is not None:
        case.listen(what, value)


@lru_cache(maxsize=8)
def _environment(run_id: str, folder: Path | None, store: str) -> Environment:
    """Asked once in a run: git takes 5 ms, and what is measured is what was there when the run began."""
    return capture(folder, besides=None if store == "off" or "://" in store else Path(store))


def _measure(case: Case, options: Options, record: Record, reading: Any, cold: Cold) -> None:
    record.enter("inputs")
    inputs = make_inputs(case, options.seed)
    record.signature = inputs.signature
    program = program_of(case, inputs)
    put_back = remember(program.eager or case.fn)
    record.closed_over = ClosedOver(program.eager or case.fn)

    built = stages.build(program, inputs, record.enter)
    hlo = _artifacts(record, built)
    _tell(case, "lowered", built.lowered)
    _tell(case, "hlo", hlo)
    record.stages = _stages(built, cold)
    subject = Subject(program, inputs, None, built.static, built.donates, hlo)
    subject = _look_for_impurity(record, case, subject, built, put_back)
    warmup, compiles = NO_WARMUP, 0
    if options.stages == "all":
        subject = _called(record, case, subject, options)
        _transfers(record, subject)
        warmup = _warm_up(record, subject, options, record.stages.first_run_s)
        _dispatch(record, subject, built, warmup)
        compiles = _sample(record, subject, options, warmup)
        _memory(record, subject, options)
    elif options.stages != "build":
        subject, last_s = _called_and_observed(record, case, subject, options)
        if options.stages == "samples":
            warmup = _warm_up(record, subject, options, last_s)
            compiles = _sample(record, subject, options, warmup)
    record.absent += _left_out(options)
    record.noise = noise.finish(reading)
    _export(record, subject, options)
    record.remarks = remarks(_evidence(record, subject, built, warmup, compiles))


def _look_for_impurity(
    record: Record, case: Case, subject: Subject, built: BuiltProgram, put_back: Callable[[], None]
) -> Subject:
    record.enter("trace")
    with record.or_absent("purity"):
        record.purity = purity.check(subject, built, case.id.name, put_back)
    return replace(subject, impure=record.purity.difference)


def _left_out(options: Options) -> list[Absent]:
    """What `Options.stages` did not ask for."""
    why = f"only stages={options.stages!r} was asked for"
    parts = [*_LEFT_OUT][: len(_REACHES) - 1 - _REACHES.index(options.stages)]
    return [Absent(what, why) for part in parts for what in part]


_REACHES = ("build", "first_run", "samples", "all")
_LEFT_OUT = (
    ("stages.transfer_in", "stages.transfer_out", "stages.dispatch_s", "stages.call_floor"),
    ("samples",),
    ("stages.first_run_s", "numerics", "memory.compiled_rise_bytes", "memory.eager_rise_bytes"),
)


def _stages(built: BuiltProgram, cold: Cold) -> Stages:
    seconds = built.seconds
    return Stages(
        trace_s=seconds.get("trace"),
        lower_s=seconds.get("lower"),
        compile_s=seconds.get("compile"),
        cache=built.cache,
        cold=cold if built.seconds else None,
    )


def _called(record: Record, case: Case, subject: Subject, options: Options) -> Subject:
    """The first run, and whether it is right."""
    subject = _first_run(record, subject)
    if record.closed_over is not None:
        record.closed_over.check(case.id.name)
    _tell(case, "outputs", subject.returned)
    record.enter("verify")
    with record.or_absent("numerics"):
        try:
            record.numerics = verify(subject, options.verify, case.reference, record.notes)
        except Undecided as error:
            record.undecided = error.problem
            raise
    return subject


def _first_run(record: Record, subject: Subject) -> Subject:
    record.enter("first run")
    is_eager = subject.program.kind == "eager"
    # What an eager function donates only shows in what it leaves of its arguments, so it is given copies.
    ready = Ready(subject, subject.program.call, *(subject.inputs.renewed() if is_eager else subject.calls(1)[0]))
    with _device_memory(record, "eager_rise_bytes" if is_eager else "compiled_rise_bytes"), watch_compiles() as log:
        result, first_run_s = stages.first_run(ready)
    if log.compiles:
        why = f"the first call compiled {log.compiles} program{'s' * (log.compiles > 1)} itself"
        record.absent.append(Absent("stages.first_run_s", why))
    else:
        record.stages = replace(record.stages, first_run_s=first_run_s)
    donates = subject.donates or (is_eager and _is_any_deleted((ready.args, ready.kwargs)))
    return replace(subject, outputs=ready.outcome(result), donates=donates)


def _is_any_deleted(tree: Any) -> bool:
    return any(leaf.is_deleted() for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array))


def _called_and_observed(
    record: Record, case: Case, subject: Subject, options: Options
) -> tuple[Subject, float | None]:
    """First run, verification and memory with as few calls as can be; and the seconds of the last call.

    Of an eager function on CPU the first run is the one that goes before a reading of memory.
    """
    if subject.program.kind != "eager" or not options.memory or jax.default_backend() != "cpu":
        subject = _called(record, case, subject, options)
        _memory(record, subject, options)
        return subject, record.stages.first_run_s
    last_s = None
    with ExitStack() as stack:
        with record.or_absent("memory.eager_rise_bytes"):
            stack.enter_context(memory.mapping_every_block())
        subject = _called(record, case, subject, options)
        _withdraw_first_run(record)
        record.enter("memory")
        if not any(absent.what == "memory.eager_rise_bytes" for absent in record.absent):
            with record.or_absent("memory.eager_rise_bytes"):
                call = _call_on_fresh_buffers(subject, subject.program.call)
                rise = memory.read_rise(call)
                last_s = rise.elapsed_s
                if last_s < LONG_CALL_S:
                    rise = max(rise, memory.read_rise(call), key=lambda one: one.rise_bytes)
                rise_bytes = memory.believed(rise)
                record.memory = replace(record.memory, method=memory.METHOD, eager_rise_bytes=rise_bytes)
    return subject, last_s


def _withdraw_first_run(record: Record) -> None:
    if record.stages.first_run_s is not None:
        record.stages = replace(record.stages, first_run_s=None)
        record.absent.append(Absent("stages.first_run_s", "memory was being observed, which makes calls slower"))


def _warm_up(record: Record, subject: Subject, options: Options, last_s: float | None) -> Warmup:
    record.enter("warm-up")
    return warm_up(subject.ready, options.max_warmup_s, first_s=last_s or 0.0)


def _transfers(record: Record, subject: Subject) -> None:
    record.enter("transfer")
    into, out = stages.transfer_in(subject.inputs), stages.transfer_out(subject.call)
    record.stages = replace(record.stages, transfer_in=into, transfer_out=out)
    if into is None:
        record.absent.append(Absent("stages.transfer_in", "there are no input arrays"))
    if out is None:
        record.absent.append(Absent("stages.transfer_out", "there are no output arrays"))


def _dispatch(record: Record, subject: Subject, built: BuiltProgram, warmup: Warmup) -> None:
    record.enter("dispatch")
    record.stages = replace(record.stages, dispatch_s=stages.dispatch(subject.ready))
    with record.or_absent("stages.call_floor"):
        flops = inline_flops(built.compiled) if built.compiled is not None else None
        record.stages = replace(record.stages, call_floor=call_floor(subject, warmup.last_s, flops))


def _sample(record: Record, subject: Subject, options: Options, warmup: Warmup) -> int:
    """Samples with every chosen timer; returns how many programs were compiled while being timed."""
    compiles = 0
    warmup = call_again(subject.ready, warmup, timers.AUTO_LIMIT_S) if options.timer == "auto" else warmup
    options, why_alone = _share_time(record, options, warmup)
    choice = timers.choose(options.timer, warmup.least_s, warmup.timed)
    record.absent += [Absent(f"samples.{name}", why) for name, why in choice.left_out]
    for name in choice.names:
        if why := timers.why_not_needed(name, options.timer, record.samples):
            record.absent.append(Absent(f"samples.{name}", why, is_by_choice=True))
            continue
        record.enter(name)
        with record.or_absent(f"samples.{name}"):
            timer = timers.TIMERS[name]
            prepared = timer.prepare(subject)
            with watch_compiles() as log:
                samples = collect(
                    name,
                    prepared,
                    options,
                    lambda share, name=name: record.progress(name, share),
                    call_s=warmup.least_s,
                )
            compiles += log.compiles
            record.samples.append(believable(replace(samples, answers=timer.answers), _least_call_s(record, warmup)))
    if record.samples:
        record.absent.append(Absent(OTHER_PROCESSES, why_alone))
    return compiles


def _share_time(record: Record, options: Options, warmup: Warmup) -> tuple[Options, str]:
    """This process's part of the time for sampling, and why it is alone: it is, as far as is known here; whoever
    starts the others takes that back (`executors/replicated.py`)."""
    why = f"one was asked for; --processes {PROCESSES}" if options.processes == 1 else "they were not started"
    record.processes = 1
    try:
        platform = jax.default_backend()
        record.processes = count_processes(options.processes, warmup.least_s, record.stages.build_s, platform)
    except NotMeasured as error:
        why = error.problem
    return share_time(options, record.processes), why


def _least_call_s(record: Record, warmup: Warmup) -> float:
    """The shortest call that was seen of the function itself; 0 where none was."""
    floor, wall = record.stages.call_floor, next((s.summary for s in record.samples if s.timer == "wall"), None)
    seen = [*warmup.windows_s, *(floor.call_s if floor else ()), *((wall.min_s,) if wall else ())]
    return min(seen, default=0.0)


def _export(record: Record, subject: Subject, options: Options) -> None:
    """The program, for comparisons to come."""
    if options.store == "off":
        record.absent.append(Absent("program", "the row is not stored"))
        return
    with record.or_absent("program"):
        record.program = exported(subject)


def _artifacts(record: Record, built: BuiltProgram) -> str:
    """Reads the compiler's plan and cost; returns the optimised HLO, empty where there is none."""
    record.enter("artifacts")
    record.absent += built.absent
    if built.compiled is None:
        why = next(
            (a.why for a in built.absent if a.what == "stages.compile_s"), "its compiled program cannot be reached"
        )
        record.absent += [Absent("memory.plan", why), Absent("cost", why)]
        return ""
    hlo = built.compiled.as_text() or ""
    captured = None
    if built.traced is not None:
        captured = sum(getattr(c, "nbytes", 0) for c in built.traced.jaxpr.consts)
    record.memory = memory_plan(built.compiled, captured_bytes=captured, hlo_text=hlo)
    record.cost = cost(built.compiled, hlo)
    return hlo


def _memory(record: Record, subject: Subject, options: Options) -> None:
    """The observed rises of both calls on CPU, in passes of their own."""
    record.enter("memory")
    if not options.memory:
        record.absent += [
            Absent(f"memory.{name}", "switched off") for name in ("compiled_rise_bytes", "eager_rise_bytes")
        ]
        return
    if jax.default_backend() != "cpu":
        if subject.program.kind != "eager":
            why = "an accelerator's mark tells only the first call, which was the compiled one"
            record.absent.append(Absent("memory.eager_rise_bytes", why))
        return
    if subject.program.kind != "eager":
        _observe(record, "compiled_rise_bytes", subject, subject.program.call)
    if subject.program.kind == "eager" or _eager_has_run(record, subject):
        _observe(record, "eager_rise_bytes", subject, subject.program.eager or subject.program.call)


def _observe(record: Record, name: str, subject: Subject, fn: Callable[..., Any]) -> None:
    with record.or_absent(f"memory.{name}"):
        rise = memory.observed_rise(_call_on_fresh_buffers(subject, fn))
        record.memory = replace(record.memory, method=memory.METHOD, **{name: rise})


def _call_on_fresh_buffers(subject: Subject, fn: Callable[..., Any]) -> Callable[[], Any]:
    """Buffers for all calls are made beforehand: they must not count as memory of the call."""
    calls = iter([subject.ready(fn) for _ in range(memory.CALLS)])
    return lambda: next(calls)()


def _eager_has_run(record: Record, subject: Subject) -> bool:
    """Was the eager call run before? Compiling its operations would be taken for memory of the call."""
    if record.numerics is not None or record.undecided:
        return True
    record.absent.append(Absent("memory.eager_rise_bytes", record.why("numerics")))
    return False


@contextmanager
def _device_memory(record: Record, name: str) -> Iterator[None]:
    """On an accelerator, the rise of its allocator's mark around the first call; later ones cannot exceed it."""
    if jax.default_backend() == "cpu":
        yield
        return
    device = jax.devices()[0]
    before = None
    with record.or_absent(f"memory.{name}"):
        before = memory.device_usage(device)
    yield
    if before is not None:
        with record.or_absent(f"memory.{name}"):
            rise = memory.device_rise(before, memory.device_usage(device))
            record.memory = replace(record.memory, method="memory_stats", **{name: rise})


def _evidence(record: Record, subject: Subject, built: BuiltProgram, warmup: Warmup, compiles: int) -> RowEvidence:
    return RowEvidence(
        platform=jax.default_backend(),
        program=subject.program,
        inputs=subject.inputs,
        built=built,
        stages=record.stages,
        samples=tuple(record.samples),
        warmup=warmup,
        compiles_while_timed=compiles,
        has_data=bool(subject.dynamic_leaves),
        output_bytes=subject.output_bytes,
        memory=record.memory,
        cost=record.cost,
        lowered_flops=lowered_flops(built.lowered) if built.lowered is not None else None,
        inline_flops=inline_flops(built.compiled) if built.compiled is not None else None,
        hlo=subject.hlo,
        numerics=record.numerics,
        undecided=record.undecided,
        noise=record.noise,
        mutated=tuple(getattr(subject.outputs, "state", ())),
        notes=record.notes,
        purity=record.purity,
        is_dispatch_async=jax_config(jax.config).get("jax_cpu_enable_async_dispatch", True) is not False,
        has_glibc=platform.libc_ver()[0] == "glibc",
    )
