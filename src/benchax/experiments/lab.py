"""Where variants are measured.

A lab has all that measures: the worker that looks at each side once and counts programs (`study.py`), pairs of cases,
and pairs of fresh processes. A variant is handed one, and so is whatever else compares; tests hand in
one with results made by hand. How what was measured is judged says `variant.py`.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from benchax.case import Benchmark, Case
from benchax.checkouts.boot import Launch, Selection
from benchax.comparing.sequential import Effort
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments import study
from benchax.experiments.functions import ByPosition, by_position, every_argument, plain, positions_among, side_by_side
from benchax.experiments.study import Counted, Study, StudySide, under
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import make_inputs
from benchax.measuring.jax_settings import apply_settings, jax_settings
from benchax.measuring.sides import Side
from benchax.model import Comparison, Failure, Measurement, Options, Version
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun
from benchax.paired_runs.process_pairs import compare_launches
from benchax.progress import Listener, ProgressEvent, quiet
from benchax.workers import pickling
from benchax.workers.call_limits import limits_of
from benchax.workers.executors import Isolated
from benchax.workers.pool import Pool, shared_pool, spawned_pool
from benchax.workers.task import A, R, Task

BASELINE = "baseline"


@dataclass(frozen=True)
class Condition:
    """The conditions at the start of a process."""

    label: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX, on top of those of this program."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])


USUAL = Condition("as usual")
LEAST_LEFT_S = 1e-3
"""A measurement that has begun takes its first group of processes even with this little time left."""


class Failed(Exception):
    """What was asked of a process of its own ended with a failure."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


@dataclass
class WorkerLab:
    """Measures for variants, in worker processes."""

    options: Options
    """Limits, and the seed."""
    effort: Effort = field(default_factory=Effort)
    """How long to go on with comparisons."""
    report: Listener = quiet
    begun_s: float = field(default_factory=monotonic)
    has_studied: bool = False
    """Has it looked at anything? The first look is had whatever the limit."""
    begins_late: bool = True
    """Do comparisons take their first group of processes even when no time is left?"""

    def tell(self, text: str) -> None:
        """Receives the progress in words."""
        self.report(ProgressEvent(text, left_s=self._left_s, is_most=True))

    def study(self, sides: Sequence[StudySide], condition: Condition | None = None) -> Study:
        """Builds and runs every side once, in a worker; the first is the baseline.

        Args:
            condition: what the worker is to be born with; None: any that is warm.
        """
        if self.has_studied:
            self._refuse_late()
        self.has_studied = True
        with nullcontext(shared_pool()) if condition is None else _pool_under(condition) as pool:
            return study.study(pool, sides, self.options, self.tell)

    def time_pairs(self, pairs: Sequence[Pair], looks: tuple[int, ...] | None = None) -> dict[str, Comparison]:
        """Compares the run times of each pair in fresh processes, and returns the comparisons by name.

        Args:
            looks: the numbers of processes after which to look; None: the numbers of `effort`.
        """
        if looks is not None:  # of a variant that measures by itself, for which another limit would begin
            self._refuse_late()
        left_s = 0.0 if self._left_s == LEAST_LEFT_S and not self.begins_late else self._left_s
        effort = replace(self.effort, looks=looks or self.effort.looks, max_time_s=left_s)
        return time_pairs(pairs, self.options, effort, self.report)

    def count_programs(self, ways: Mapping[str, Sequence[Case]]) -> dict[str, Counted]:
        """How many programs a jitted function needs for a list of calls, for each way to make them, in a worker."""
        self._refuse_late()
        return study.count_ways(shared_pool(), ways, self.options, self.tell)

    def time_processes(self, case: Case, conditions: tuple[Condition, Condition]) -> Comparison:
        """The comparison of run times under two conditions that a process is born with, in pairs of new processes."""
        self._refuse_late()
        found = pair_processes(case, conditions, self.options.seed, self._left_s, self.report)
        return next(c for c in found if c.metric == "run")

    def measure_alone(self, case: Case, condition: Condition, options: Options) -> Measurement:
        """A measurement in a new process that is born under that condition."""
        self._refuse_late()
        with _pool_under(condition) as pool:
            return Isolated(pool=pool).run(case, options, run_id="", progress=lambda stage, share: None)

    def call_alone(
        self, task: Task[A, R], argument: A, *, name: str, condition: Condition = USUAL, tells_stages: bool = True
    ) -> R:
        """Returns the result of a task for its argument in a new process.

        Args:
            name: name of the object to send, for the message if sending fails.
            tells_stages: False: the caller has reported the progress.

        Raises:
            Failed: the task failed, or its process did.
        """
        self._refuse_late()
        tell = self.tell if tells_stages else lambda text: None
        with _pool_under(condition) as pool:
            found = pool.call(
                task, argument, limits_of(self.options), name=name, on_message=lambda message: tell(message["stage"])
            )
        if isinstance(found, Failure):
            raise Failed(found)
        return found

    @property
    def _left_s(self) -> float | None:
        """Returns the rest of the limit, which all measurements of this lab share, or None if there is no limit."""
        limit_s = self.effort.max_time_s
        return None if limit_s is None else max(LEAST_LEFT_S, limit_s - (monotonic() - self.begun_s))

    def _refuse_late(self) -> None:
        if self._left_s == LEAST_LEFT_S:
            raise NotMeasured(f"the {self.effort.max_time_s:g} s were used up (--max-time)")


def _pool_under(condition: Condition) -> Pool:
    return spawned_pool(condition.environ, condition.settings)


# ---- run times of pairs, compared as `benchax.compare` does it: one session for all that share settings -------------


@dataclass(frozen=True)
class Pair:
    """A pair; the comparison is of `other` against `one`."""

    name: str
    one_label: str
    one: Case
    other_label: str
    other: Case
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])


def time_pairs(pairs: Sequence[Pair], options: Options, effort: Effort, report: Listener) -> dict[str, Comparison]:
    """The comparison of run times of each pair, by its name."""
    found: dict[str, Comparison] = {}
    paired_runs: dict[tuple[tuple[str, Any], ...], dict[str, PairedRun]] = {}
    for pair in pairs:
        # With the variant in its name, which progress shows.
        case_id = replace(pair.one.id, variant=pair.name)
        versions = Version(pair.one_label), Version(pair.other_label)
        try:
            with under(pair.settings):
                one, other = side_by_side(pair.one, pair.other, options.seed)
        except Exception as error:  # its inputs cannot be laid beside the others: a row says so
            failure = diagnose(error, "preparing")
            problem = error.problem if isinstance(error, BenchaxError) else failure.message
            found[pair.name] = Comparison(case_id, "run", *versions, "unclear", problem, failure=failure)
        else:
            sides = Side(pair.one_label, one), Side(pair.other_label, other)
            # Settings of JAX hold for a process, which all pairs of a session share.
            group = paired_runs.setdefault(tuple(sorted(pair.settings.items())), {})
            group[pair.name] = PairedRun(case_id, sides, versions, options)
    begun = monotonic()
    for settings, group in paired_runs.items():
        limit_s = effort.max_time_s
        left = effort if limit_s is None else replace(effort, max_time_s=limit_s - (monotonic() - begun))
        with session.fresh_processes(dict(settings)) as start:
            settled = session.compare_runs(list(group.values()), left, report, start)
        for name, comparisons in zip(group, settled, strict=True):
            found[name] = next(c for c in comparisons if c.metric == "run")
    return found


# ---- a case under two conditions that hold from the start of a process, in pairs of processes -----------------------
#
# Each condition gets a folder. It has the pickled case, and a benchmark file that sets the condition and revives the
# case. So `paired_runs/process_pairs.py` finds one case by one name in both folders.

FILE = "bench_revived.py"
_BENCH = """
from pathlib import Path
from benchax.experiments.lab import revive
benchmark = revive(Path(__file__).parent)
"""


def pair_processes(
    case: Case,
    conditions: tuple[Condition, Condition],
    seed: int,
    max_time_s: float | None,
    report: Listener,
) -> list[Comparison]:
    """The comparisons of the second condition with the first: run times, times to compile, what the compiler counts.

    Raises:
        NotAvailable: the function under a jit cannot be reached.
        whatever pickling raises for a case that cannot travel.
    """
    content = pickling.dumps(_as_benchmark(case, seed))
    with tempfile.TemporaryDirectory(prefix="benchax-pairs-") as folder:
        launches = [_launch(Path(folder) / str(i), each, content) for i, each in enumerate(conditions)]
        return compare_launches((launches[0], launches[1]), Selection((FILE,)), max_time_s, report)


def _as_benchmark(case: Case, seed: int) -> Benchmark:
    bare = plain(case, seed) if case.jit else case
    inputs = make_inputs(bare, seed)
    return Benchmark(
        ByPosition(bare.fn, tuple(every_argument(inputs))) if inputs.kwargs else bare.fn,
        partial(by_position, bare.inputs),
        case.id.name,
        {},
        case.id.tag,
        positions_among(bare, inputs, bare.static, 0),
        positions_among(bare, inputs, bare.donate, 0),
        bare.jit,
        {**case.options, "seed": seed},
    )


def _launch(folder: Path, condition: Condition, content: bytes) -> Launch:
    folder.mkdir()
    told = {
        "environ": dict(condition.environ),
        "settings": {**jax_settings(), **condition.settings},
        "folder": str(Path.cwd()),
        "paths": [path for path in sys.path if path],
    }
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
    (folder / "benchmark.pickle").write_bytes(content)
    (folder / FILE).write_text(_BENCH, encoding="utf-8")
    return Launch(Version(condition.label), folder=folder)


def revive(folder: Path) -> Benchmark:
    """In the process of a pair, before its backend starts: sets the condition, and gives the benchmark."""
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    # First of all: XLA reads its flags once, when the backend starts.
    os.environ.update(told["environ"])
    content = (folder / "benchmark.pickle").read_bytes()
    os.chdir(told["folder"])  # where relative paths of the user's function start
    sys.path += [path for path in told["paths"] if path not in sys.path]
    apply_settings(told["settings"])
    return pickling.loads(content)
