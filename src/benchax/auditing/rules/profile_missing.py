"""Finds functions without a profile since they were written, and states what a profile would show."""

from __future__ import annotations

import math
import mmap
import os
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.rule import NotApplicable, median_s, rule
from benchax.auditing.syntax import code_of
from benchax.errors import NotMeasured
from benchax.profiling.profile import LEAST_S, profile
from benchax.results.audit import Finding
from benchax.results.profile import Profile
from benchax.units import percent, seconds

DEPTH, MOST_FOLDERS = 3, 5000  # `benchax profile` writes to .benchmarks/profiles/NAME
MOST_RUNS, DONATING_RUNS = 100, 5  # each run of those that donate needs a copy of the inputs
WORTH_S = 0.01
"""A call of this length is worth a look: a thousand take ten seconds. A shorter call is mostly dispatch, and the rule
would list all of a library's functions."""
LONG_S = 10.0  # what takes longer to call twice is not profiled in passing


@rule("profile-missing", "was it profiled since it was written?", "info", of="both")
def profile_missing(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    if isinstance(e, ProgramEvidence):
        raise NotApplicable("a program is audited, whose own use of jax.profiler is not seen")
    folders = list(islice(_folders(Path.cwd()), MOST_FOLDERS))
    if any(_shows(e, trace) for folder in folders for trace in folder.glob("plugins/profile/*/*.xplane.pb")):
        return
    if (one_s := median_s(e.measurement)) < WORTH_S:
        raise NotApplicable(f"a call takes {seconds(one_s)}: from {seconds(WORTH_S)} on it is worth a profile")
    p, runs = _take_profile(e)
    hottest = [f"{op.name} ({Path(op.source or op.category).name}), {percent(op.share)}" for op in p.ops[:3]]
    yield profile_missing.finding(
        f"no profile of it was recorded since its file was changed; the hottest operation is {hottest[0]}",
        [
            f"folders searched, {DEPTH} levels down from the working one: {len(folders)}, at most {MOST_FOLDERS}",
            f"{runs} calls were profiled just now, compiled; shares of their operations: {'; '.join(hottest)}",
            *(f"{d.name} was busy for {seconds(d.busy_s)} and idle for {seconds(d.idle_s)}" for d in p.devices),
            *(r.message for r in p.remarks if r.severity == "error"),
        ],
        "Look at one before changing anything: `benchax profile` takes what `benchax audit` was given, shows all "
        "operations, and keeps the trace in .benchmarks/profiles.",
        where=e.def_where,
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
    # Not by age alone, by which a profile of any other function silences the rule; nor by the file alone, by which one
    # of `mlp` did so for `fft` beside it.
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
    if 2 * one_s > LONG_S:
        raise NotMeasured(f"calling it twice takes {seconds(2 * one_s)}, too long to profile it in passing")
    program, donates = e.prepared.program, donation is None or bool(donation.arguments)
    runs = min(DONATING_RUNS if donates else MOST_RUNS, math.ceil(LEAST_S / one_s))
    inputs = [e.fresh_inputs() if donates else (e.inputs.args, e.inputs.kwargs) for _ in range(runs + 1)]
    calls = (partial(program.call, *args, **kwargs) for args, kwargs in inputs)  # the first one warms up
    e.tell("profiling it")
    p = profile(lambda: next(calls)(), runs=runs)
    if not p.ops:
        raise NotMeasured("; ".join(remark.message for remark in p.remarks) or "the trace holds no operation")
    return p, runs
