"""Rules about calls: small ones and eager operations, and what jit, vmap, and the size of the batch do to a call."""

from __future__ import annotations

import math
import mmap
import os
import sys
import timeit
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import dropwhile, islice, takewhile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.log import CallLine, CallSite, Event, Log
from benchax.auditing.rule import (
    MOST_LISTED,
    Gain,
    Match,
    NotApplicable,
    grade,
    list_some,
    measured_gain,
    median_s,
    refuse_failed,
    require_decided,
    rule,
)
from benchax.auditing.rules.compiling import resized_operations
from benchax.auditing.rules.transfers import OFTEN, intervals, watch_call
from benchax.auditing.syntax import (
    Place,
    code_of,
    kind_of,
    loops_around,
    readable,
    tree_of,
    where_of,
)
from benchax.case import Case
from benchax.comparing.break_even import break_even, of_comparison
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.functions import Batch, CallArguments, change_arrays, find_batch
from benchax.grouping import group_by
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.model import Comparison
from benchax.profiling.profile import LEAST_S, profile
from benchax.results.audit import Where
from benchax.results.profile import Profile
from benchax.source_files import outward, owner_of
from benchax.units import count, number, percent, plural, seconds, size
from benchax.watching.frames import place
from benchax.watching.transfers import BatchedCall

OUTSIDE = ("stage", "fold_in", "split")
"""Operations whose place is outside of a program: what jnp.asarray sends, and a new random key for each step."""
INDEXING = "__getitem__"
MANY_OPERATIONS, MANY_INSIDE = 100, 1000
"""Operations from one line; more if a package sends them: one call of it, as to set up a sampler, may take hundreds.
The 46 clean programs that the tests run send at most 119 from a line, next to as many jitted calls, and 89 from a
package's line."""
BY_FAR = 5.0
"""Operations for each call of a jitted function: then operations are most of what the program does.
One of the 46 clean programs has more than 4."""
MANY_CALLS, MANY_IN_TURN = 200, 2000
"""Calls from one line that could be one, and calls that each need the one before. With as little data as
below, the 46 clean programs make 100 and 20 at most."""
SMALL_BYTES, TINY_BYTES = 1 << 17, 1 << 10
"""Arguments of a call that differ from the call before. A call with 1 KiB takes 6 µs, and one with 128 KiB 17 µs. 1000
calls in turn with 1 KiB take 12 to 42 ms, and 0.02 ms as a scan (float32, jaxlib 0.12.0, CPU, two busy cores)."""
MANY_READS, READS_PER_CALL = 1000, 20.0
"""Operations of x[i] from one line, and for each call: x[i] takes two or three, and a batch has a few
arrays. The 46 clean programs make 14 at most from a line, and 2 for each call."""
LARGE_BYTES = 1 << 20
"""Copying less takes about as long as sending the operation. An update of 4 to 256 KiB takes 0.3 ms, of 1 MiB 0.6 ms,
and of 16 MiB 4 ms (jaxlib 0.12.0, CPU, two busy cores)."""
FASTEST = 50e9
"""Bytes a second: one core of a CPU copies no faster, so that the time is a lower bound. NumPy copies 1 MiB in the
caches at 38 GB/s, and 64 MiB at 10 GB/s (two busy cores)."""
ROUNDS = 200
"""Calls that are timed together, about a millisecond: the quickest of five such times counts."""


def operations_of(e: ProgramEvidence) -> list[Event]:
    """Eager operations after the first call of a jitted function, or all if there is no such call.

    Operations before that call set the program up, each line once.
    """
    _ = e.lines  # raises if calls are not seen
    first = next((i for i, event in enumerate(e.log.events) if event.kind == "call"), 0)
    found = (event for event in e.log.events[first:] if event.kind == "operation")
    return [event for event in found if not any(word in (event.by, event.note) for word in OUTSIDE)]


@rule(
    "eager-operations",
    "are operations sent one at a time?",
    "warning",
    of="program",
    advice=(
        "Put them into a function of arrays under jax.jit, ideally the one that makes their inputs. For models, "
        "there are equinox.filter_jit and flax.nnx.jit. The operations become one program: one call, and no "
        "arrays in between. Don't jit a method that stores attributes: move its computation out of it."
    ),
)
def eager_operations(e: ProgramEvidence) -> Iterable[Match]:
    operations = [event for event in operations_of(e) if event.note != INDEXING]
    jitted, resized = e.log.counts["call"], resized_operations(e)
    if not jitted + len(operations):
        raise NotMeasured("no call was seen")
    # Under jit, operations whose sizes differ each time would compile each time. growing-shapes reports them.
    rest = [event for event in operations if event.where and event.where not in resized]
    # Fewer than one per step are occasional operations, such as reading or making a key.
    least = max(MANY_OPERATIONS, jitted)
    functions = _functions(e.log, rest, least)
    chosen = set(functions)
    own = Counter(event.where for event in rest if event.caller != "package")
    inside = {event.where for event in rest if any(e.log.entered[entry] in chosen for entry in event.path)}
    lines = [
        (where, n)
        for where, n in Counter(event.where for event in rest).most_common()
        if where in inside or n >= MANY_INSIDE or min(n, own[where]) >= least
    ]
    if not lines:
        return
    programs = [c for c in e.watch.compiles if c.is_eager and c.where in dict(lines)]
    within = f"in the {seconds(e.log.seen_s)} in which calls were watched"
    compiled_s = seconds(sum(c.total_s for c in programs))
    yield Match(
        f"sends operations one at a time: {lines[0][1]} from one line",
        [
            *list_some([f"{n} from {where}" for where, n in lines], what="lines"),
            f"{len(operations)} operations {within}, and calls of jitted functions: {jitted}",
            *[f"programs for these lines: {len(programs)}, compiled in {compiled_s}"] * bool(programs),
        ],
        where=lines[0][0],
        related=[*_places(functions), *(("also here", line) for line, _ in lines[1:MOST_LISTED])],
        severity="warning" if len(operations) >= BY_FAR * jitted else "info",
    )


def _functions(log: Log, operations: Iterable[Event], least: int) -> list[CallSite]:
    """Calls of functions that jit could take as a whole, the one that sends most first. They send many operations in
    each of many calls, read no value, and call nothing that is jitted."""
    sent, entries = Counter[CallSite](), defaultdict[CallSite, set[int]](set)
    for event in operations:
        for entry in event.path:
            entries[log.entered[entry]].add(entry)
        sent.update({log.entered[entry] for entry in event.path})
    others = (event for event in log.of("call", "read", "wait") if event.kind != "call" or event.caller != "package")
    unfit = {log.entered[entry] for event in others for entry in event.path}
    return [
        site
        for site, n in sent.most_common()
        if site not in unfit
        and len(entries[site]) >= OFTEN
        and n >= (MANY_INSIDE if site.is_through_package else least)
    ]


def _places(functions: Sequence[CallSite]) -> Iterator[Place]:
    for site in functions[:MOST_LISTED]:
        yield "called here", site.where
        if owner_of(site.callee.co_filename) == "user":
            yield "defined here", site.defined


# ---- small-calls ------------------------------------------------------------------------------------------------


@rule("small-calls", "is a function called few times with much data?", "warning", of="program")
def small_calls(e: ProgramEvidence) -> Iterable[Match]:
    if not e.lines:
        raise NotMeasured("no call of a jitted function was seen")
    for line in e.lines:
        where = where_of(line.where)
        if where is None or any(event.note == "batched" for event in line.events):
            continue
        most, large = (MANY_IN_TURN, TINY_BYTES) if line.is_in_turn else (MANY_CALLS, SMALL_BYTES)
        is_small = line.count - _of_packages(line, where) >= most and line.fresh_bytes <= large
        # Equal calls, as in a benchmark, cannot be batched.
        is_one = line.is_in_turn or line.fresh_bytes > 0
        if is_small and is_one and not _is_timed_each(where):
            yield _small(e, line, where)


def _of_packages(line: CallLine, where: Where) -> int:
    """Calls that a package makes in its loop, by itself or by a function of yours, such as an objective."""
    tree = tree_of(where[0])
    has_loop = tree is None or bool(loops_around(tree, where[1]))
    return line.by_package + (0 if has_loop else line.handed)


def _is_timed_each(where: Where) -> bool:
    """Does the loop around a call read a clock before and after it?"""
    tree = readable(where[0])
    loop = next(iter(loops_around(tree, where[1])), None)
    return loop is not None and any(loop.lineno < each.first <= where[1] <= each.last for each in intervals(tree))


def _small(e: ProgramEvidence, line: CallLine, where: Where) -> Match:
    n, each_s = line.count, call_s()
    # Calls cannot have cost more than the run took.
    saved_s = min(n * each_s, e.watch.wall_s or n * each_s)
    loop = next(iter(loops_around(readable(where[0]), where[1])), None)
    around = f", in the {kind_of(loop)} at line {loop.lineno}" if loop else ""
    is_cheap = line.is_in_turn and grade(saved_s, e.watch.wall_s) != "warning"
    is_read = not line.is_in_turn and _is_read_between(e, line)
    return Match(
        f"calls {line.name} {count(n)} times with little data",
        [
            f"{count(n)} calls{around}, in the {seconds(e.log.seen_s)} in which calls were watched",
            f"at most {size(line.fresh_bytes)} of arguments differ from call to call",
            *([f"at most {line.in_turn} of them needed one another's results"] if line.in_turn > 1 else []),
            f"calling a near-empty jitted function takes {seconds(each_s)} here",
        ],
        IN_TURN if line.is_in_turn else IF_APART if is_read else APART,
        where=where,
        gain=Gain(f"estimated: at least {seconds(saved_s)}, the cost of starting these calls"),
        severity="info" if is_cheap or is_read else None,
    )


def _is_read_between(e: ProgramEvidence, line: CallLine) -> bool:
    """Does the host read a value after most of these calls? The next call can need it: a policy, for one, that an
    environment in Python answers."""
    calls, n, is_read = set(map(id, line.events)), 0, False
    for event in e.log.of("call", "read", "wait"):
        if id(event) in calls:
            n, is_read = n + is_read, False
        elif event.kind != "call":
            is_read = True
    return 2 * n >= line.count


def call_s() -> float:
    """Seconds of a call of a program that adds two numbers: the quickest of some rounds."""
    add, one = jax.jit(lambda a, b: a + b), jnp.ones(())
    add(one, one).block_until_ready()
    return min(timeit.repeat(lambda: add(one, one), number=ROUNDS)) / ROUNDS


# ---- arrays outside of jit --------------------------------------------------------------------------------------


@rule(
    "copied-updates",
    "are large arrays changed in place?",
    "warning",
    of="program",
    advice=(
        "Update it in a jitted function that donates it: jax.jit(update, donate_argnums=0). Then it changes in "
        "place. If the host fills it row by row, use a NumPy array first."
    ),
)
def copied_updates(e: ProgramEvidence) -> Iterable[Match]:
    # Outside of jit, x.at[i].set(value) copies: the original array stays as it is.
    large = (event for event in operations_of(e) if event.size >= LARGE_BYTES and event.where)
    updates = (event for event in large if event.by.startswith("scatter"))
    for where, events in group_by(updates, lambda event: event.where).items():
        total, n = sum(event.size for event in events), len(events)
        lost_s = total / FASTEST
        yield Match(
            f"copies {size(total // n)} for each update, {plural(n, 'time')}",
            [
                f"{size(total)} in the {seconds(e.log.seen_s)} in which calls were watched",
                "outside of jit, x.at[i].set(value) copies all of x, because the old array stays valid",
            ],
            where=where,
            gain=Gain(f"estimated: at least {percent(lost_s / e.log.seen_s)}, at {size(int(FASTEST))} a second"),
            lost=(lost_s, e.log.seen_s),
        )


@rule(
    "element-reads",
    "are arrays read as a whole?",
    "warning",
    of="program",
    advice=(
        "Read the array once, by numpy.asarray(x) or jax.device_get(x), and take its elements from the result. Or "
        "keep it as one array, and select from it in a jitted function."
    ),
)
def element_reads(e: ProgramEvidence) -> Iterable[Match]:
    taken = Counter(event.where for event in operations_of(e) if event.note == INDEXING and event.where)
    for where, n in taken.most_common():
        if n >= max(MANY_READS, READS_PER_CALL * e.log.counts["call"]):
            yield Match(
                f"takes parts of arrays one at a time: {count(n)} operations from one line",
                [
                    f"in {seconds(e.log.seen_s)}, with {count(e.log.counts['call'])} calls of jitted functions",
                    "each x[i] sends a program to the device and makes a new array",
                ],
                where=where,
            )


# ---- texts ------------------------------------------------------------------------------------------------------

APART = (
    "No call needs the result of another. Stack their arguments, and call jax.vmap(f) once on all of them, "
    "or on a few hundred at a time."
)
IF_APART = (
    "The host reads a value after most of these calls. If no call needs such a value, stack their arguments, and call "
    "jax.vmap(f) once on all of them."
)
IN_TURN = (
    "Each call needs the result of an earlier one. Do many of them in one program, with jax.lax.scan or "
    "jax.lax.fori_loop, and return to Python only to read or print something."
)

# ---- a call as a whole -----------------------------------------------------------------------------------------------
#
# Whether jit pays, where vmap is, the size of the batch, and its profile.


WORTH_ASKING = 1.1
"""Only where the medians are this far apart is a comparison made."""
FEW_CALLS = 1000
"""Advice that pays only after more calls is a hint: most programs call few functions as often."""


@rule("not-jitted", "is it compiled as a whole?", "warning")
def not_jitted(e: Evidence) -> Iterable[Match]:
    """Finds a function that runs operation by operation, though compiled as a whole it would be faster."""
    if e.is_jitted:
        raise NotApplicable("it is jitted")
    rows = break_even(e.eager, e.measurement)
    # The two medians come from different moments. That is enough to decide whether to compare, which takes 5 to 20 s,
    # but not enough to report.
    if rows.speedup < WORTH_ASKING:
        return
    c = require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit")
    gain, pays = measured_gain(c), of_comparison(rows.build_s, c)
    # If jit pays only after more calls than `trivial-jit` allows, do not recommend it: the two rules must not
    # contradict each other.
    if gain is None or pays is None or not pays.pays_soon:
        return
    seen = [str(pays)]
    if e.inspection.jaxpr is not None and not pays.is_same_program:
        seen.append(f"{e.inspection.jaxpr.equations} operations, sent to the device one by one")
    yield Match(
        "starts its one operation from Python" if pays.is_same_program else "runs operation by operation",
        seen,
        pays.advice,
        gain=gain,
        severity="info" if pays.calls is None or pays.calls > FEW_CALLS else None,
    )


MANY_BATCHED = 20
"""Calls. To measure the cost of one takes longer than fewer calls take."""
ONE = np.ones(1, np.float32)


@rule(
    "vmap-of-jit",
    "is vmap outside of jit?",
    "warning",
    advice="Write jax.jit(jax.vmap(f)) instead of jax.vmap(jax.jit(f)), and jax.jit(jax.grad(f)).",
)
def vmap_of_jit(e: Evidence) -> Iterable[Match]:
    """Finds vmap(jit(f)) and grad(jit(f)) outside of jit: Python transforms the function again in each call."""
    if e.is_jitted:
        raise NotApplicable("it is jitted as a whole")
    lines = list[str]()

    def hear(fun: Any, leaves: Sequence[Any]) -> None:
        frames = list(dropwhile(lambda frame: frame.f_code.co_name != "vmap_f", outward(sys._getframe())))
        if frames and isinstance(fun, BatchedCall) and not fun.is_of_jax:
            own = takewhile(lambda frame: owner_of(frame.f_code.co_filename) != "benchax", frames)
            users = (frame for frame in own if owner_of(frame.f_code.co_filename) == "user")
            lines.append(next((place(frame.f_code.co_filename, frame.f_lineno) for frame in users), ""))

    watch_call(e, e.fn, hear)
    if not lines:
        raise NotApplicable("it calls no jitted function under vmap")
    eager_s, jitted_s = median_s(e.eager), median_s(e.measurement)
    if eager_s < WORTH_ASKING * jitted_s:
        return
    # The rule not-jitted asks for the same comparison, word for word, so it runs once.
    gain = measured_gain(require_decided(e.compare("jax.jit", e.case, e.eager_case), "jax.jit"))
    if gain is None:
        return
    yield Match(
        "maps a jitted function with vmap, and is not jitted itself",
        [
            "outside of jit, Python does the transformation by vmap again in each call",
            "compared in pairs with jit around all of it, in new processes",
        ],
        where=lines[0],
        gain=gain,
    )


@vmap_of_jit.in_program
def _calls_under_vmap(e: ProgramEvidence) -> Iterable[Match]:
    """Jitted functions that lines of the program call under vmap or a derivative, outside of jit."""
    for line in e.lines:
        n = sum(event.note == "batched" for event in line.events)
        if n >= MANY_BATCHED:
            lost_s = n * outside_s()
            yield Match(
                f"{line.name} is run {count(n)} times under vmap or a derivative, outside of jit",
                [
                    "outside of jit, Python does transformations such as vmap and grad again in each call",
                    f"for a near-empty function, that takes {seconds(lost_s / n)} more here each time",
                    "a call under a reverse-mode derivative runs it twice",
                ],
                related=[
                    ("called here", line.where),
                    ("defined here", e.log.functions[line.function].defined),
                ],
                gain=Gain(f"estimated: at least {seconds(lost_s)} of this run"),
                lost=(lost_s, e.watch.wall_s),
            )


@cache
def outside_s() -> float:
    """The seconds that a call of jax.vmap(jax.jit(f)) takes longer than one of jax.jit(jax.vmap(f)), adding two
    numbers."""
    add = jax.jit(lambda a: a + 1)

    def quickest_s(call: Callable[..., Any]) -> float:
        call(ONE).block_until_ready()
        return min(timeit.repeat(lambda: call(ONE), number=20)) / 20

    return max(0.0, quickest_s(jax.vmap(add)) - quickest_s(jax.jit(jax.vmap(add))))


@rule("trivial-jit", "does compiling it pay?", "info")
def trivial_jit(e: Evidence) -> Iterable[Match]:
    """Finds a jitted function so small that compiling it hardly ever pays."""
    if not e.is_jitted:
        raise NotApplicable("it is not jitted")
    rows = break_even(e.eager, e.measurement)
    # Use the end of the interval that favors compiling.
    if rows.pays_soon:
        return
    # The two medians come from different moments. Only pairs can show that this little, or nothing, is saved.
    c = require_decided(e.compare("no jit", e.eager_case), "the eager function")
    pays = of_comparison(rows.build_s, c, is_eager_baseline=False)
    if pays is None:
        raise NotMeasured("the comparison with the eager function has no interval")
    if pays.pays_soon:
        return
    yield Match(
        f"compiling pays from {pays.low:,} calls on at best" if pays.low else "compiling never pays",
        [str(pays)],
        pays.advice,
        gain=measured_gain(c),
    )


SHORT_CALL_S = 100e-6
"""In shorter calls the dispatch to the thread pool decides, whose time depends on what else runs."""
LONG_CALL_S = 0.1
"""A call of this length has enough to do."""
LITTLE = 1.4
"""Twice the work in less than this times the time. Twice as many products of 64 × 64 as 2, 8, and 32 take 0.9, 1.2, and
2.0 times as long (float32, jaxlib 0.12.0, CPU, two busy cores)."""


@rule(
    "small-batch",
    "is the batch too small to use the machine?",
    "info",
    advice="Process more elements in one call, unless you need each result at once.",
)
def small_batch(e: Evidence) -> Iterable[Match]:
    """Finds batches so small that a batch of twice the size takes hardly longer."""
    refuse_failed(e.failure)
    case = replace(e.plain_case, donate=())
    batch = _batch(case, e.inputs)
    n = batch.rows
    call_s = e.measurement.median_s
    # In paired measurements, twice the batch took 1.2 times as long. In plain loops it took 0.5 to 3.6 times as long,
    # for calls of 15 to 60 µs, depending on whether a thread of XLA's pool was awake (docs/about/field-notes.md).
    if call_s < SHORT_CALL_S:
        took = f"{seconds(call_s)} by the {e.measurement.samples[0].timer} timer"
        raise NotApplicable(f"a call takes {took}, and most of that time does not depend on the batch")
    if call_s > LONG_CALL_S:
        return
    doubled = replace(case, inputs=_Twice(case, e.seed, batch.arguments))
    c = require_decided(e.compare(f"batch {2 * n}", doubled, case), f"a batch of {2 * n}")
    if c.ratio is None or (c.low or c.ratio) > LITTLE:
        return
    # Use the end of the interval that is against it: batching more is work for the user, and a median alone does not
    # justify it.
    if (c.high or c.ratio) > LITTLE:
        raise NotMeasured(f"undecided: {_describe_batch(n, c)}")
    yield Match(
        f"a batch of {2 * n} takes {number(c.ratio)} times as long as one of {n}",
        [
            _describe_batch(n, c),
            f"batch: {batch.how}",
            f"{percent(1 - c.ratio / 2)} less time for each element of the batch",
        ],
        gain=_gain_of_batch(n, c),
    )


def _gain_of_batch(n: int, c: Comparison) -> Gain | None:
    if c.baseline_value is None or c.ratio is None:
        return None
    now, then = c.baseline_value, c.baseline_value * c.ratio / 2
    return Gain(f"measured: {seconds(now / n)} → {seconds(then / n)} per element of the batch", now - then)


def _describe_batch(n: int, c: Comparison) -> str:
    around = f", {number(c.low)} – {number(c.high)}" if c.low and c.high else ""
    return f"batch {n}: {seconds(c.baseline_value or 0.0)} per call; batch {2 * n}: {number(c.ratio or 0.0)}×{around}"


def _batch(case: Case, inputs: Inputs) -> Batch:
    """Raises `NotApplicable` where the outputs grow with no argument: what holds the batch is not known then."""
    try:
        found = find_batch(case, inputs)
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    if found.basis != "outputs":
        raise NotApplicable("no argument has a first axis along which its outputs grow")
    return found


@dataclass(frozen=True)
class _Twice:
    """An input factory: the inputs of a case, some of them twice, one behind the other."""

    case: Case
    seed: int
    chosen: tuple[int | str, ...]

    def __call__(self) -> CallArguments:
        made = make_inputs(self.case, self.seed)
        return change_arrays(made, lambda key, leaf: jnp.concatenate([leaf, leaf]) if key in self.chosen else leaf)


DEPTH, MOST_FOLDERS = 3, 5000  # `benchax profile` writes to .benchmarks/profiles/NAME
MOST_RUNS, DONATING_RUNS = 100, 5  # each run of those that donate needs a copy of the inputs
WORTH_PROFILE_S = 0.01
"""A call of this length is worth a look: a thousand take ten seconds. A shorter call is mostly dispatch, and the rule
would list all of a library's functions."""
LONG_PROFILE_S = 10.0  # what takes longer to call twice is not profiled in passing


@rule(
    "profile-missing",
    "was it profiled since its last change?",
    "info",
    advice=(
        "Profile it before you change anything: `benchax profile` takes the same function and inputs, shows all "
        "operations, and keeps the trace in .benchmarks/profiles."
    ),
)
def profile_missing(e: Evidence) -> Iterable[Match]:
    """Finds functions without a profile since they were written, and states what a profile would show."""
    folders = list(islice(_folders(Path.cwd()), MOST_FOLDERS))
    if any(_shows(e, trace) for folder in folders for trace in folder.glob("plugins/profile/*/*.xplane.pb")):
        return
    if (one_s := median_s(e.measurement)) < WORTH_PROFILE_S:
        worth = f"a profile is worth it from {seconds(WORTH_PROFILE_S)} on"
        raise NotApplicable(f"a call takes {seconds(one_s)} by the wall timer, and {worth}")
    p, runs = _take_profile(e)
    shares = [f"{op.name} ({Path(op.source or op.category).name}), {percent(op.share)}" for op in p.ops]
    hottest = list_some(shares, 3, "operations")
    yield Match(
        f"hasn't been profiled since its file changed; the hottest operation is {hottest[0]}",
        [
            f"searched {len(folders)} folders, {DEPTH} levels deep (at most {MOST_FOLDERS})",
            f"profiled {runs} compiled calls just now; shares of their operations: {'; '.join(hottest)}",
            *(f"{d.name} was busy for {seconds(d.busy_s)} and idle for {seconds(d.idle_s)}" for d in p.devices),
            *(r.message for r in p.remarks if r.severity == "error"),
        ],
    )


def _folders(top: Path) -> Iterator[Path]:
    """Itself and those below it, .benchmarks first; no links, and no other hidden ones."""
    for folder, below, _ in os.walk(top):
        yield Path(folder)
        below[:] = sorted(name for name in below if name == ".benchmarks" or not name.startswith("."))
        if len(Path(folder).relative_to(top).parts) == DEPTH:
            below.clear()


def _shows(e: Evidence, trace: Path) -> bool:
    """Does it name the function and its file, and is it newer than that?"""
    # Neither age nor file is enough. By age alone, a profile of any function would silence the rule; by file alone, a
    # profile of `mlp` did so for `fft` in the same file.
    file, code = Path(e.source.file) if e.source else None, code_of(e.fn)
    names = [f"jit({e.case.id.name})".encode(errors="replace")]
    if code and len(inlined := code.co_qualname.encode()) < 128:  # function_names of XLA's StackFrameIndexProto
        names.append(b"\x12%c%b" % (len(inlined), inlined))
    try:
        if file and file.exists() and trace.stat().st_mtime_ns < file.stat().st_mtime_ns:
            return False
        with trace.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as data:
            is_here = file is None or data.find(f"{os.sep}{file.name}".encode()) >= 0
            return is_here and any(data.find(name) >= 0 for name in names)
    except (OSError, ValueError):  # gone, unreadable or empty: it shows nothing
        return False


def _take_profile(e: Evidence) -> tuple[Profile, int]:
    """A short profile of the compiled function, and its runs."""
    one_s, donation = median_s(e.measurement), e.inspection.donation
    if 2 * one_s > LONG_PROFILE_S:
        raise NotMeasured(f"calling it twice takes {seconds(2 * one_s)}, too long to profile it here")
    program, donates = e.prepared.program, donation is None or bool(donation.arguments)
    runs = min(DONATING_RUNS if donates else MOST_RUNS, math.ceil(LEAST_S / one_s))
    inputs = [e.fresh_inputs() if donates else (e.inputs.args, e.inputs.kwargs) for _ in range(runs + 1)]
    calls = (partial(program.call, *args, **kwargs) for args, kwargs in inputs)  # the first one warms up
    e.tell("profiling it")
    p = profile(lambda: next(calls)(), runs=runs)
    if not p.ops:
        raise NotMeasured("; ".join(remark.message for remark in p.remarks) or "the trace holds no operation")
    return p, runs
