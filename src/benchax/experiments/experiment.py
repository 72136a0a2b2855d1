"""`benchax.experiment`: an unchanged function, and variants of it, each compared with it.

    change the case for each variant → look at every side once, in a worker (`lab.py`) → leave out what failed, is
    wrong, or is the same program → pairs of the rest with the baseline, in one session of fresh processes → rows

Variants that measure by themselves are planned with the changes and measured after the look.

Each variant has its own paired run, because each ends at another time: a clear verdict needs few processes, a close one
many. All paired runs share their processes. Combinations and the ablation go the same way afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import jax

from benchax.case import Case, make_case
from benchax.comparing.break_even import of_comparison
from benchax.comparing.sequential import Effort
from benchax.errors import BenchaxError, NotAvailable, NotMeasured, UsageError, one_of
from benchax.experiments.functions import BATCH, make_pure
from benchax.experiments.lab import BASELINE, ChangedCase, Pair, WorkerLab
from benchax.experiments.variant import Variant, compare_ways, judge, memory_change, prepare_ways, saved_s
from benchax.experiments.variants import VARIANTS, choose_promising
from benchax.experiments.variants.devices import MICRO_BATCHES, Stage, chain, check_numbers, check_stages
from benchax.grouping import group_by
from benchax.inspecting.inspect import inspect_case
from benchax.keywords import guard_keywords
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import with_settings
from benchax.model import CaseId, Comparison, Estimate, Measurement, Options, Remark, Severity
from benchax.options import resolve, split_names
from benchax.printable import list_some
from benchax.progress import Listener, Progress, show_progress
from benchax.results.experiment import Contribution, Curve, Errors, Experiment, VariantRow
from benchax.results.inspection import Argument
from benchax.units import percent, plural, read_duration, seconds, seconds_range
from benchax.wrappers import without_jit

MAX_TIME_S = 60.0
"""The limit for an experiment with all variants that apply, if no limit is given."""
CHAOTIC = 0.5
"""A share of the function's largest value. If the function itself has such an error, not even the first binary digit is
right, and the errors of variants say nothing."""


@guard_keywords()
def experiment(
    fn: Callable[..., Any],
    *args: Any,
    variants: Sequence[str] | str | None = None,
    combine: bool = False,
    ablation: bool = False,
    given: Mapping[str, Any] | None = None,
    name: str | None = None,
    static: Iterable[int | str] | int | str = (),
    donate: Iterable[int | str] | int | str = (),
    jit: bool = True,
    max_time_s: float | str | None = None,
    timeout_s: float | str | None = None,
    memory_limit_bytes: int | str | None = None,
    seed: int | None = None,
    progress: Progress = None,
    **kwargs: Any,
) -> Experiment:
    """Tries variants of `fn(*args, **kwargs)`: speed, memory, time to compile and errors of each, compared with the
    original.

    Times are compared as `compare` does it: in pairs, in fresh processes, every change confirmed. Outputs are compared
    with a run in float64. A variant that fails, is wrong, or is not available here is a row with its reason.

    Args:
        fn, args, kwargs, name, static, donate, jit, seed: as for `bench`.
        variants: names, as `benchax experiment --list` has them, or "donate,bf16"; default: all that apply and can
            help on this backend.
        combine: also all of them at once.
        ablation: also all at once, and all but each, to find each variant's contribution. Implies `combine`.
        given: values for variants, by name: {"donate": "state"}. "batch" names the arguments that hold the batch, for
            all variants that split it: {"batch": "x+y"}. Without it, benchax guesses them, and the result says so.
        max_time_s: begin no further process after this long; half of it is for confirming changes. Variants that would
            come later say so, and the combination and the ablation are left out.
        timeout_s, memory_limit_bytes: limits of each stage in the worker processes.
        progress: as for `bench`.

    Raises:
        UsageError: a variant that does not exist, or an argument that cannot work.

    Example:
        >>> e = benchax.experiment(lambda x: x + 1, "f32[8]", variants=["bf16"], max_time_s=1)
        >>> [row.name for row in e.rows]
        ['bf16']
    """
    options = resolve({"timeout_s": timeout_s, "memory_limit_bytes": memory_limit_bytes, "seed": seed})
    case = make_case(fn, args, kwargs, name=name, static=static, donate=donate, jit=jit)
    names = split_names(variants)
    effort = Effort(max_time_s=time_limit(read_duration("max_time_s", max_time_s), names))
    with show_progress(progress) as report:
        lab = WorkerLab(options, effort, report)
        return run_experiment(case, names, lab, given, combine=combine, ablation=ablation)


@guard_keywords()
def pipeline(
    stages: Sequence[Stage],
    x: Any,
    *,
    micro_batches: Iterable[int] = MICRO_BATCHES,
    name: str | None = None,
    timeout_s: float | str | None = None,
    seed: int | None = None,
    progress: Progress = None,
) -> Experiment:
    """Lets micro-batches flow through stages on one device each, and compares the results with the whole batch on one.

        for stage in stages:
            x = stage(x)

    Args:
        stages: functions y = stage(x), with their parameters inside (a closure, a partial). Each must treat the rows of
            its input separately. A stage that does not, such as a mean over the batch, gives a wrong result, which the
            experiment reports.
        x: the batch: an array, a pytree of arrays with as many rows, a spec such as "f32[1024,64]".
        micro_batches: the numbers of parts to cut the batch into, one after the other.
        timeout_s: of each number of micro-batches, in the process that tries them.
        seed: of the data made from specs.
        progress: as for `bench`.

    Returns:
        Experiment: its one curve has a point for each number of micro-batches. It has no `seconds` if they would not
            represent devices; the sentence of the curve gives the reason.

    Raises:
        UsageError: `stages` are not several functions, or `micro_batches` are not numbers.
    """
    stages = check_stages(f"stages={stages!r}", stages)
    numbers = check_numbers(f"micro_batches={micro_batches!r}", micro_batches)
    options = resolve({"timeout_s": timeout_s, "seed": seed})
    case = make_case(partial(chain, stages), (x,), name=name or f"pipeline of {len(stages)} stages")
    with show_progress(progress) as report:
        lab = WorkerLab(options, report=report)
        return run_experiment(case, ["pipeline"], lab, {"pipeline": (stages, numbers)})


def time_limit(asked_s: float | None, names: Sequence[str] | None) -> float | None:
    """The limit of an experiment: where neither time nor variants were asked for, a minute."""
    return MAX_TIME_S if asked_s is None and names is None else asked_s


def choose_variants(names: Sequence[str] | None) -> tuple[dict[str, Variant], bool]:
    """(variants by name, were they asked for?); in the order of `VARIANTS`, else the most promising first.

    Raises:
        UsageError: a name that none has.
    """
    for name in names or ():
        if name not in VARIANTS:
            raise UsageError(f"there is no variant {name!r}", one_of(VARIANTS, name), "benchax experiment --list")
    if names is None:
        return choose_promising(jax.default_backend()), False
    return {name: v for name, v in VARIANTS.items() if name in names}, True


def run_experiment(
    case: Case,
    names: Sequence[str] | None,
    lab: WorkerLab,
    given: Mapping[str, Any] | None = None,
    *,
    combine: bool = False,
    ablation: bool = False,
) -> Experiment:
    """Runs an experiment with a case. Raises `UsageError` for a variant that does not exist.

    Args:
        given: values for variants, by name, and "batch".
    """
    variants, was_asked = choose_variants(names)
    given = dict(given or {})
    batch = str(given.pop(BATCH, ""))
    able = [name for name, variant in VARIANTS.items() if variant.cuts_batch]
    if batch and variants.keys().isdisjoint(able):
        what = f"batch={batch!r} is given, and no variant that is tried splits a batch"
        raise UsageError(what, f"one of: {', '.join(able)}")
    for unknown in set(given) - set(variants):
        raise UsageError(f"a value is given for {unknown!r}, which is not tried", one_of(variants, unknown))
    case, about_wrapper = _open_wrapper(case, lab.options.seed)
    seed = lab.options.seed
    # A variant that can do both measures by itself, and changes the case when combined (`_apply_all`).
    plans, unplanned = prepare_ways(
        {
            name: (v.title, partial(v.plan, case, given.get(name), seed, batch))
            for name, v in variants.items()
            if v.measures
        }
    )
    ways = {
        name: (v.title, partial(v.change, case, given.get(name), seed))
        for name, v in variants.items()
        if not v.measures
    }
    found, looked = compare_ways(BASELINE, "as it is", case, ways, lab)
    rows = {row.name: row for row in found.rows} | unplanned
    # If all variants were requested, leave out those that show nothing.
    unasked = {} if was_asked else {name: row for name, row in rows.items() if row.status == "not_available"}
    # These run last: each takes as long as all the others together, and time may be limited. They also run if the
    # function itself fails, because a variant such as static may help.
    own = [one for plan in plans.values() for one in plan(lab)]
    curves = tuple(one for one in own if isinstance(one, Curve))
    listed = tuple(rows[name] for name in variants if name in rows and name not in unasked)
    listed += tuple(one for one in own if isinstance(one, VariantRow))
    found = replace(found, rows=listed, curves=curves)
    if found.baseline.status == "failed":
        if not was_asked:  # nearly all of them have failed of the same, and would say so in as many words again
            found = replace(found, rows=tuple(row for row in listed if row.status == "ok"))
        advice = looked.failures[BASELINE].advice
        return replace(found, remarks=(Remark("advice", "info", advice),) if advice else ())
    remarks = (*about_wrapper, *_of_chaos(found.baseline.errors), *_of_nothing(listed, unasked))
    found = replace(found, remarks=remarks)
    if not combine and not ablation:
        return found
    try:
        return add_combination(found, case, variants, lab, given, is_ablation=ablation)
    except NotMeasured as error:  # no time was left
        text = f"there is no combination: {error.problem}"
        return replace(found, remarks=(*found.remarks, Remark("no-combination", "warning", text)))


def _open_wrapper(case: Case, seed: int) -> tuple[Case, tuple[Remark, ...]]:
    """The case without `equinox.filter_jit` or `flax.nnx.jit` around it, or why it stays as it is."""
    try:
        pure, wrapper = make_pure(case, seed)
    except NotAvailable as error:
        text = f"No variant that changes the function is tried: {error.problem}."
        return case, (Remark("wrapper-stays", "warning", text),)
    except Exception:  # of the user's function, mostly: the row of the function as it is says it
        return case, ()
    if not wrapper:
        return case, ()
    text = (
        f"All rows, and the unchanged function, are measured under jax.jit, as functions of the arrays that {wrapper} "
        f"gives to the program. No row has the Python of {wrapper}, which your own calls need as well."
    )
    return pure, (Remark("without-wrapper", "info", text),)


def _of_chaos(errors: Errors | None) -> tuple[Remark, ...]:
    if errors is None or errors.reference != "float64" or (errors.max_rel or 0.0) < CHAOTIC:
        return ()
    text = (
        f"Unchanged, its results are off by {percent(errors.max_rel or 0.0)} of the largest value of a run in "
        "float64. It amplifies rounding until nothing of the result is left, as chaotic systems and ill-conditioned "
        "problems do: a different order of operations gives different numbers. So errors of variants are meaningless "
        "here; times are valid."
    )
    return (Remark("chaotic", "warning", text),)


def _of_nothing(rows: Sequence[VariantRow], left_out: Mapping[str, VariantRow]) -> tuple[Remark, ...]:
    """A table of nothing but the baseline says why."""
    if rows or not left_out:
        return ()
    # A missing value says nothing about the function: only the user knows it.
    reasons_of = {name: "" if row.reason == VARIANTS[name].untold else row.reason for name, row in left_out.items()}
    by_reason = group_by(reasons_of, lambda name: reasons_of[name])
    untold = by_reason.pop("", [])
    reasons = "; ".join(f"{why} ({', '.join(names)})" for why, names in by_reason.items())
    texts = [f"No variant can be made of this function by itself: {reasons}."] if reasons else []
    if untold:
        texts.append(f"These need a value, see benchax experiment --list: {', '.join(untold)}.")
    return (Remark("nothing-tried", "warning", " ".join(texts)),)


# ---- all variants at once, and the contribution of each: all but one against all -----------------------------------
#
# The combination has the variants whose row has no failure, and only the fastest of each family. It also has variants
# that only apply once others are on (accumulating in float32, after bf16). They are applied in the order of `VARIANTS`.

ALL, ALL_BUT = "all", "all but "


def add_combination(
    found: Experiment,
    case: Case,
    variants: Mapping[str, Variant],
    lab: WorkerLab,
    given: Mapping[str, Any],
    *,
    is_ablation: bool,
) -> Experiment:
    """Returns the experiment with a row "all", and each variant's contribution to it if that was requested."""
    seed = lab.options.seed
    candidates = _choose_candidates(found, variants)
    one, on, why = _apply_all(case, candidates, given, seed)
    found = replace(found, remarks=(*found.remarks, *why))

    def end(code: str, severity: Severity, text: str) -> Experiment:
        return replace(found, remarks=(*found.remarks, Remark(code, severity, text)))

    if len(on) < 2:
        text = "there is no combination: " + (f"only {on[0]} can be on" if on else "no variant can be on")
        return end("no-combination", "info", text)
    less: dict[str, ChangedCase] = {}
    for name in on if is_ablation else ():
        # Apply the others again: a variant that depends on the omitted one, such as float32 sums after bf16, goes with
        # it.
        others = [each for each in candidates if each.name in on and each.name != name]
        changed, still_on, _ = _apply_all(case, others, given, seed)
        if still_on:
            less[ALL_BUT + name] = replace(changed, settings={**one.settings, **changed.settings})
    sides = {ALL: replace(one, title=" + ".join(on)), **less}
    looked = lab.study({BASELINE: ChangedCase(case), **sides})
    if BASELINE not in looked.seen:
        return end("no-combination", "warning", f"there is no combination: {looked.failures[BASELINE].message}")
    row = judge(case, {ALL: sides[ALL]}, looked, found.baseline, lab)[ALL]
    found = replace(found, rows=(*found.rows, row))
    if not is_ablation:
        return found
    if row.status != "ok":
        return end("no-ablation", "warning", f"there is no ablation: all together, {row.reason}")
    without = judge(one.case, less, looked, row, lab)
    return replace(found, ablation=tuple(contribution(name, row, without.get(ALL_BUT + name)) for name in on))


def _choose_candidates(found: Experiment, variants: Mapping[str, Variant]) -> list[Variant]:
    """The variants that change a case, without failed and wrong ones. Of a family, it is the first member that no other
    clearly beats."""
    rows = {row.name: row for row in found.rows}
    bad = {name for name, row in rows.items() if row.status in ("failed", "wrong_result")}
    # The kinds of one variant, as remat:dots_saveable, have rows of their own.
    kinds = {name: [row for row in rows if row.startswith(f"{name}:")] for name in variants}
    bad |= {name for name, listed in kinds.items() if listed and bad.issuperset(listed)}

    def ratio(name: str) -> float:
        c = rows[name].comparison
        return (c.ratio or 1.0) if c and c.verdict in ("faster", "slower") else 1.0

    # A member that does not apply by itself has no ratio, so it cannot be the best of its family.
    applied = [name for name in variants if name in rows and rows[name].status == "ok"]
    best: dict[str, str] = {}
    for name in sorted(applied, key=ratio):
        best.setdefault(variants[name].family, name)
    able = [each for name, each in variants.items() if each.changes and each.combines and name not in bad]
    return [each for each in able if not each.family or each.name in best.values()]


def _apply_all(
    case: Case, candidates: Sequence[Variant], given: Mapping[str, Any], seed: int
) -> tuple[ChangedCase, list[str], tuple[Remark, ...]]:
    """Returns (a case with all variants that can be on, their names, remarks on the others)."""
    whole = ChangedCase(case)
    on: list[str] = []
    notes: list[Remark] = []
    for variant in candidates:
        try:
            with with_settings(whole.settings):
                one = variant.change(whole.case, given.get(variant.name), seed)
        except (NotAvailable, NotMeasured):
            continue  # alone it has a row that says why
        except Exception as error:  # the user's function, changed by those before: they go on without this one
            why = diagnose(error, "preparing").message
            notes.append(Remark("not-combined", "warning", f"{variant.name} is off among all: {why}"))
            continue
        tolerances = [t for t in (whole.tolerance, one.tolerance) if t is not None]
        whole = ChangedCase(
            one.case,
            max(tolerances, default=None),
            settings={**whole.settings, **one.settings},
            # A combination has at most one variant that converts.
            rounds_to=whole.rounds_to or one.rounds_to,
        )
        on.append(variant.name)
    return whole, on, tuple(notes)


def contribution(name: str, everything: VariantRow, without: VariantRow | None) -> Contribution:
    """Returns the loss without one variant.

    Args:
        without: all but this one, compared with all of them; None: the others cannot be on without it.
    """
    if without is None:
        return Contribution(name, None, None, sentence="the others cannot be on without it")
    before, now, c = everything.peak_bytes, without.peak_bytes, without.comparison
    saved_bytes = None if before is None or now is None else now - before
    memory = memory_change(before, now)
    if c is None or c.estimate is None:
        text = "; ".join(filter(None, (memory, c.why if c else without.sentence)))
        return Contribution(name, c, None, saved_bytes=saved_bytes, sentence=text)
    saved = c.estimate.map(lambda ratio: -saved_s(c, ratio))
    text = "; ".join(filter(None, (_describe_time(c, saved), memory)))
    return Contribution(name, c, saved.value, saved.low, saved.high, saved_bytes, text)


def _describe_time(c: Comparison, saved: Estimate) -> str:
    if c.verdict in ("slower", "faster"):
        size = saved.map(abs)
        around = "" if size.low is None or size.high is None else f" ({seconds_range(size.low, size.high)})"
        how = f", {c.why}" if c.is_by_cpu_time else ""
        return f"{'saves' if c.verdict == 'slower' else 'costs'} {seconds(size.value)}{around}{how}"
    if c.verdict == "unclear":
        return f"unclear: {c.why}" if c.why else "unclear"
    return f"makes no difference ({c.why})" if c.why else "makes no difference"


# ---- eager calls -----------------------------------------------------------------------------------------------------
#
# Compares the eager call of each case with the jitted one: after how many calls does compiling pay?


def with_eager(case: Case) -> tuple[Case, ...]:
    """Returns the eager form of the case, and the case. If the function has no eager form, returns only the case."""
    fn = without_jit(case.fn)
    if not case.jit or hasattr(fn, "lower") or isinstance(fn, jax.stages.Compiled):
        return (case,)
    return replace(case.eager(), fn=fn), case


def find_pairs(cases: Sequence[Case], rows: Sequence[Measurement]) -> dict[CaseId, Pair]:
    """Returns the eager and the jitted call of each case that has both, by the id of the jitted one, if both ran."""
    ran = {row.case for row in rows if row.failure is None}
    by_id = {case.id: case for case in cases if case.id in ran}
    eager_ids = {id: replace(id, variant="eager") for id in by_id if id.variant != "eager"}
    return {
        id: Pair(id.label, "eager", by_id[eager], "jitted", by_id[id])
        for id, eager in eager_ids.items()
        if eager in by_id
    }


def compare_eager(
    pairs: Mapping[CaseId, Pair], rows: Sequence[Measurement], options: Mapping[CaseId, Options], report: Listener
) -> tuple[dict[CaseId, Comparison], list[str]]:
    """Compares the jitted call of each case that ran both ways with the eager one. The two run alternately.

    Args:
        pairs: what `find_pairs` found.
        options: the options of each case.

    Returns:
        The comparisons by the id of the jitted case, and sentences: when compiling pays, and what the program is.
    """
    found: dict[str, Comparison] = {}
    for common, group in group_by(pairs, options.__getitem__).items():
        found |= WorkerLab(common, Effort(looks=(2, 3)), report).time_pairs([pairs[id] for id in group])
    compared = {id: found[id.label] for id in pairs}
    built = {row.case: row.stages.build_s for row in rows if row.case in pairs}
    texts = [(id, describe_break_even(s, compared[id])) for id, s in built.items() if s is not None]
    texts += [(id, describe_program(pair.other)) for id, pair in pairs.items()]
    return compared, [f"{id.label}: {text}" if len(pairs) > 1 else text for id, text in texts]


def describe_break_even(build_s: float, c: Comparison) -> str:
    """States after how many calls compiling pays, or why this is unknown."""
    found = of_comparison(build_s, c)
    unknown = f"Whether compiling ({seconds(build_s)}) pays was not measured, because {c.why}"
    return unknown if found is None else str(found)


def describe_program(case: Case) -> str:
    """Returns a text such as: An eager call starts 7 operations one by one; the compiled program has 1 fusion. It takes
    i32[8] and gives f32[8]."""
    try:
        found = inspect_case(case)
    except BenchaxError as error:
        return f"Its operations and fusions are not known, because {error.problem}"
    if found.jaxpr is None or found.counts is None:
        missing = "jaxpr" if found.jaxpr is None else "counts"
        return f"Its operations and fusions are not known, because {found.why_absent(missing)}"
    operations = plural(found.jaxpr.outer_equations, "operation")
    fusions = plural(found.counts.fusions, "fusion") if found.counts.fusions else "no fusion"
    return (
        f"An eager call starts {operations} one by one; the compiled program has {fusions}. "
        f"It takes {_list(found.jaxpr.inputs)} and gives {_list(found.jaxpr.outputs)}."
    )


def _list(arguments: Sequence[Argument]) -> str:
    return ", ".join(list_some([each.spec for each in arguments], 3)) or "nothing"
