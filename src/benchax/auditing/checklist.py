"""`benchax.checklist`: the advice of every guide to fast JAX, ticked off for one function by what was measured.

Rules, variants that were tried, or a measurement answer each line. "yes": the advice is followed, or a measurement
shows that it gains nothing. "no": a rule found something, or a variant saves time or memory. If a line does not apply,
was not checked or was not decided, it gives the reason.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from benchax.auditing.audit import MAX_TIME_S, choose_rules, enter_step, read_limits, rule_event, run_rules
from benchax.auditing.evidence import TIMEOUT_S, Evidence, TrialCall
from benchax.case import Case, make_case
from benchax.comparing.sequential import Effort
from benchax.environment import capture
from benchax.errors import BenchaxError, NotMeasured
from benchax.experiments.experiment import run_experiment
from benchax.experiments.functions import is_float
from benchax.experiments.variant import BASELINE_OF_GROUP
from benchax.keywords import guard_keywords
from benchax.measuring.diagnosis import diagnose
from benchax.progress import Listener, Progress, quiet, show_progress
from benchax.results.audit import Answer, Audit, Checked, Checklist, Finding, Tick
from benchax.results.experiment import Experiment, VariantRow
from benchax.units import plural, seconds, size

VARIANTS = ("bf16", "accumulate-gradients", "remat")
"""Tried together, in one session."""
TRYING_SHARE = 0.5
"""The share of the time that rules leave to the variants."""
LEAST_LOOKS = 3
"""Before variants are timed, at least this many things are built and run in another process: the function, in float64
too, and one variant."""

Said = tuple[Answer, str]


@guard_keywords()
def checklist(
    fn: Callable[..., Any],
    *args: Any,
    max_time_s: float | str = MAX_TIME_S,
    timeout_s: float | str | None = TIMEOUT_S,
    name: str | None = None,
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    seed: int | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Checklist:
    """Goes through a checklist of optimisations for `fn(*args, **kwargs)`; see `audit` for the arguments.

    Raises:
        UsageError: inputs that cannot be made.

    Example:
        >>> c = benchax.checklist(jnp.sin, "f32[8]", max_time_s=1)
        >>> len(c.ticks) > 20
        True
    """
    case = make_case(fn, args, kwargs, name=name, static=static, donate=donate)
    options = read_limits(max_time_s, timeout_s, seed)
    with show_progress(progress) as report:
        return walk_checklist(case, **options, report=report)[0]


def walk_checklist(
    case: Case,
    *,
    max_time_s: float = MAX_TIME_S,
    timeout_s: float | None = TIMEOUT_S,
    seed: int = 0,
    report: Listener = quiet,
) -> tuple[Checklist, TrialCall]:
    """(the checklist, what came of calling the function in a worker process first)"""
    begun = perf_counter()
    evidence = Evidence(case, max_time_s=max_time_s * (1 - TRYING_SHARE), seed=seed, timeout_s=timeout_s)
    asked = choose_rules(sorted({rule for item in ITEMS for rule in item.rules}))
    n, name = len(asked), case.id.label
    evidence.tell = lambda doing: report(rule_event(name, next(iter(asked)), 0, n, doing))
    signature = evidence.signature
    audit = run_rules(evidence, asked, name, signature, folder=case.folder, report=report)
    enter_step(evidence, rule_event(name, "variants", n, n + 1), report)
    tried, why_untried = None, ""
    try:
        tried = _try_variants(evidence, max_time_s, begun)
    except NotMeasured as error:
        why_untried = error.problem
    known = Known(evidence, audit, tried, why_untried)
    ticks = tuple(Tick(item.section, item.text, *item.answer(known), item.by) for item in ITEMS)
    found = Checklist(name, signature, ticks, perf_counter() - begun, capture(case.folder))
    return found, evidence.trial("compiled")


def _try_variants(evidence: Evidence, max_time_s: float, begun: float) -> Experiment:
    """Raises `NotMeasured`: the function does not compile, or must not be called, so there is nothing to vary; or there
    is no time left for it."""
    if why := evidence.trial("compiled").why:
        raise NotMeasured(why)
    if failure := evidence.failure:
        raise NotMeasured(f"it does not {failure.stage}: {failure.message}")
    left_s = max_time_s - (perf_counter() - begun)
    if left_s < LEAST_LOOKS * evidence.process_s:
        raise NotMeasured(f"the {max_time_s:g} s were used up (--max-time)")
    # Only start the last process if there is time for it.
    effort = Effort(looks=(2, 3), max_time_s=left_s - evidence.process_s)
    lab = evidence.lab(effort, report=lambda event: evidence.tell(event.item), begins_late=False)
    return run_experiment(evidence.case, VARIANTS, lab)


@dataclass(frozen=True)
class Known:
    """The facts found about the function."""

    evidence: Evidence
    audit: Audit
    tried: Experiment | None
    why_untried: str = ""
    """Completes "not checked, because …"."""

    @property
    def findings(self) -> list[Finding]:
        """All findings, also those that the author of the code has silenced."""
        return [*self.audit.findings, *(one.finding for one in self.audit.suppressed)]

    def checked(self, rules: Sequence[str]) -> list[Checked]:
        return [one for rule in rules for one in self.audit.checked if one.rule == rule]

    def rows(self, variant: str) -> list[VariantRow]:
        """Returns the rows of a variant, or of its kinds, as remat:dots_saveable; not the one that these are compared
        with."""
        rows = self.tried.rows if self.tried else ()
        named = [row for row in rows if row.name.partition(":")[0] == variant]
        return [row for row in named if row.reason != BASELINE_OF_GROUP]


@dataclass(frozen=True)
class Item:
    """One line of the list."""

    section: str
    text: str
    find: Callable[[Known, Item], Said]
    rules: tuple[str, ...] = ()
    variant: str = ""

    @property
    def by(self) -> tuple[str, ...]:
        return (*self.rules, *([self.variant] if self.variant else []))

    def answer(self, known: Known) -> Said:
        """(answer, why)"""
        try:
            return self.find(known, self)
        except BenchaxError as error:
            return "not checked", error.problem
        except Exception as error:  # of the user's function
            return "not checked", diagnose(error, self.text).message


def _by_rules(known: Known, item: Item) -> Said:
    checked = known.checked(item.rules)
    if findings := [f for f in known.findings if f.rule in item.rules]:
        return "no", "; ".join(f.title + (f" ({f.gain})" if f.gain else "") for f in findings)
    fine = [c.rule for c in checked if c.outcome == "fine"]
    found_nothing = f"nothing found by {', '.join(fine)}" if fine else ""
    # A tick covers everything that a line looks at. If one rule could not see a part, the others have not seen it
    # either.
    if unseen := [c for c in checked if c.outcome == "not checked"]:
        return "not checked", "; ".join(dict.fromkeys([*(c.why for c in unseen), *filter(None, [found_nothing])]))
    if fine:
        return "yes", found_nothing
    return "not applicable", "; ".join(dict.fromkeys(c.why for c in checked))


def _by_variant(known: Known, item: Item) -> Said:
    rows = known.rows(item.variant)
    if not rows:
        return "not checked", known.why_untried
    said = [_of_row(row) for row in rows]
    # One variant that gains something is advice. A tick needs a decision about each of them.
    for answer in ("no", "not checked", "yes"):
        if of_them := [why for given, why in said if given == answer]:
            return answer, "; ".join(of_them)
    return "not applicable", "; ".join(dict.fromkeys(why for _, why in said))


def _of_row(row: VariantRow) -> Said:
    name = f"{row.name.partition(':')[2]}: " if ":" in row.name else ""
    if row.status == "not_available":
        return "not applicable", row.reason
    if row.status == "failed":
        return "not checked", name + row.reason
    if row.status == "wrong_result":
        return "yes", f"{name}tried, and rightly not used: {row.reason}"
    # The sentence starts with the gain, even if the variant also costs something (`variant.sentence`): the author
    # decides.
    if row.sentence.startswith("saves"):
        return "no", f"{name}tried: it {row.sentence}"
    if row.comparison is not None and row.comparison.verdict == "unclear":
        return "not checked", f"{name}tried, and undecided: {row.sentence}"
    return "yes", f"{name}tried, nothing to be gained: {row.sentence}"


def _check_jitted(known: Known, item: Item) -> Said:
    # A tick needs a decision whether it pays. Without one, the line gives the reason.
    if known.evidence.is_jitted and known.checked(["trivial-jit"])[0].outcome == "fine":
        return "yes", f"jitted; a call takes {_per_call(known.evidence)}"
    return _by_rules(known, item)


def _per_call(e: Evidence) -> str:
    """21.2 µs by the in_graph timer. Other lines show the wall time of the same call."""
    return f"{seconds(e.measurement.median_s)} by the {e.measurement.samples[0].timer} timer"


def _memory(known: Known, item: Item) -> Said:
    memory = known.evidence.measurement.memory
    parts = [("planned peak", memory.predicted_peak_bytes), ("temporaries", memory.temp_bytes)]
    parts += [("observed rise during a call", memory.compiled_rise_bytes)]
    told = [f"{what} {size(number)}" for what, number in parts if number is not None]
    return ("yes", f"measured just now: {', '.join(told)}") if told else ("not checked", "it has no number")


def _check_profile(known: Known, item: Item) -> Said:
    build_s = known.evidence.measurement.stages.build_s
    built = f", building it {seconds(build_s)}" if build_s is not None else ""
    return "yes", f"measured just now: a call takes {_per_call(known.evidence)}{built}"


def _parameters(known: Known, item: Item) -> Said:
    floats = [leaf for leaf in known.evidence.inputs.data if is_float(leaf)]
    if not floats:
        return "not applicable", "no input is a float array"
    low = [leaf for leaf in floats if leaf.dtype.itemsize < 4]
    if low:
        return "no", f"{len(low)} of {len(floats)} float inputs have fewer than 32 bits, such as {low[0].dtype.name}"
    return "yes", f"{plural(len(floats), 'float input')} of 32 bits or more, none of fewer"


def _stable(known: Known, item: Item) -> Said:
    if known.tried is None:
        return "not checked", known.why_untried
    found = known.tried.baseline.errors
    if found is None or found.reference != "float64" or found.max_rel is None:
        why = (a.why for a in known.tried.baseline.absent if a.what == "errors")
        return "not checked", next(why, "there is no run in float64 to compare with")
    if found.overflows or found.nans:
        return "no", f"{found.overflows} values overflow and {found.nans} are NaN where float64 has numbers"
    return "yes", f"within {found.max_rel:.1e} of the largest value of a run in float64"


def _devices(known: Known, item: Item) -> Said:
    if len(known.evidence.devices) == 1:
        return "not applicable", "there is one device"
    if item.rules:
        return _by_rules(known, item)
    return "not checked", "a pipeline needs several functions, and this is one"


def _check_comparisons(known: Known, item: Item) -> Said:
    gains = [f.gain for f in known.findings if f.gain]
    measured = sum(gain.startswith("measured") for gain in gains)
    tried = [row.comparison for row in known.tried.rows if row.comparison is not None] if known.tried else []
    decided = sum(c.verdict != "unclear" for c in tried)
    if not gains and not tried:
        return "not applicable", "no gain was claimed"
    of_gains = f"gains above that are measured: {measured} of {len(gains)}"
    if not decided and not measured:
        return "not checked", f"of {len(tried)} variants compared in pairs none was decided; {of_gains}"
    return "yes", f"{decided} of {len(tried)} variants compared in pairs were decided; {of_gains}"


COMPILATION, VECTORIZATION, MEMORY = "compilation", "vectorization", "memory"
PRECISION, DEVICES, PROFILING = "precision", "multi-device", "profiling"
ITEMS = (
    Item(COMPILATION, "JIT expensive functions", _check_jitted, ("not-jitted", "trivial-jit")),
    Item(COMPILATION, "Use static_argnums for config and shapes", _by_rules, ("static-churn", "branch-on-value")),
    Item(COMPILATION, "Enable the compilation cache", _by_rules, ("cache-off",)),
    Item(COMPILATION, "Look for recompilation hot spots", _by_rules, ("recompile-hot-spot", "jit-in-loop")),
    Item(VECTORIZATION, "Replace loops with vmap", _by_rules, ("python-loop-vmap", "unrolled-loop")),
    Item(VECTORIZATION, "Order: jit(vmap(f)), not vmap(jit(f))", _by_rules, ("vmap-of-jit",)),
    Item(VECTORIZATION, "Broadcast by in_axes, not by copies", _by_rules, ("materialised-broadcast",)),
    Item(VECTORIZATION, "Batch large enough", _by_rules, ("small-batch",)),
    Item(MEMORY, "Rematerialise in large models", _by_variant, variant="remat"),
    Item(MEMORY, "Donate buffers", _by_rules, ("donation-possible", "donation-unused")),
    Item(MEMORY, "Profile memory", _memory),
    Item(MEMORY, "Accumulate gradients of large batches", _by_variant, variant="accumulate-gradients"),
    Item(PRECISION, "Compute in bf16 or fp16", _by_variant, variant="bf16"),
    Item(PRECISION, "Keep parameters in fp32", _parameters),
    Item(PRECISION, "Test numerical stability", _stable),
    Item(DEVICES, "Shard over the devices", _devices, ("mesh-mismatch",)),
    Item(DEVICES, "Profile the communication", _devices, ("collectives-dominate",)),
    Item(DEVICES, "Fit the mesh to the devices", _devices, ("mesh-mismatch",)),
    Item(DEVICES, "Pipeline huge models", _devices),
    Item(PROFILING, "Profile before optimising", _check_profile),
    Item(PROFILING, "Take traces with jax.profiler", _by_rules, ("profile-missing",)),
    Item(PROFILING, "Check for recompilation", _by_rules, ("recompile-hot-spot",)),
    Item(PROFILING, "Monitor memory", _memory),
    Item(PROFILING, "Validate speedups with benchmarks", _check_comparisons),
)
