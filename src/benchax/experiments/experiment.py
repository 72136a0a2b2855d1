"""`benchax.experiment`: an unchanged function, and variants of it, each compared with it.

    change the case for each variant → look at every side once, in a worker (`study.py`) → leave out what failed, is
    wrong, or is the same program → pairs of the rest with the baseline, in one session of fresh processes → rows

Variants that measure by themselves are planned with the changes and measured after the look.

Each variant has its own paired run, because each ends at another time: a clear verdict needs few processes, a close one
many. All paired runs share their processes. Combinations and the ablation go the same way afterwards (`ablation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import jax

from benchax.case import Case, make_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotAvailable, NotMeasured, UsageError, one_of
from benchax.experiments import variant_rows
from benchax.experiments.ablation import add_combination
from benchax.experiments.batches import BATCH, CutsBatch
from benchax.experiments.lab import BASELINE, Lab, WorkerLab
from benchax.experiments.pure_calls import make_pure
from benchax.experiments.study import Study, StudySide
from benchax.experiments.variant import AnyVariant, ChangedCase, Measure, MeasuringVariant, Variant
from benchax.experiments.variant_rows import judge_variants
from benchax.experiments.variants import VARIANTS, choose_promising
from benchax.keywords import guard_keywords
from benchax.measuring.diagnosis import diagnose
from benchax.model import Remark
from benchax.options import NAMES, resolve, split_names
from benchax.progress import Progress, show_progress
from benchax.results.experiment import Curve, Errors, Experiment, VariantRow
from benchax.units import percent, read_duration

MAX_TIME_S = 60.0
"""The limit for an experiment with all variants that apply, if no limit is given."""
CHAOTIC = 0.5
"""Errors of the function as it is, as a share of its largest value, from which on those of variants say nothing."""
Own = tuple[list[VariantRow], list[Curve]]
"""The results of a variant that measures by itself."""


@guard_keywords(NAMES)
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


def time_limit(asked_s: float | None, names: Sequence[str] | None) -> float | None:
    """The limit of an experiment: where neither time nor variants were asked for, a minute."""
    return MAX_TIME_S if asked_s is None and names is None else asked_s


def choose_variants(names: Sequence[str] | None) -> tuple[dict[str, AnyVariant], bool]:
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
    lab: Lab,
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
    variants = _with_batch(variants, given.pop(BATCH, None))
    for unknown in set(given) - set(variants):
        raise UsageError(f"something is given for {unknown!r}, which is not tried", one_of(variants, unknown))
    case, about_wrapper = _open_wrapper(case, lab.options.seed)
    ready = _prepare_variants(case, variants, given, lab.options.seed, was_asked)
    looked = lab.study([StudySide(BASELINE, case), *_sides(ready.changed), *_baselines(case, ready.changed)])
    if BASELINE in looked.failures or BASELINE not in looked.seen:
        # Also where the function fails as it is: a variant such as static may be what helps.
        return _without_baseline(case, looked, ready.refused, _measure_plans(variants, ready, lab), was_asked)
    baseline = variant_rows.seen_row(BASELINE, "as it is", looked.seen[BASELINE])
    titles = {name: variant.title for name, variant in variants.items()}
    rows = {**ready.refused, **judge_variants(case, titles, ready.changed, looked, baseline, lab)}
    # Last, because each takes as long as all the others together, and there may be a limit of time.
    own = _measure_plans(variants, ready, lab)
    listed = [*(rows[name] for name in variants if name in rows), *(row for found, _ in own for row in found)]
    found = Experiment(
        case.id.label,
        looked.seen[BASELINE].signature,
        baseline,
        tuple(listed),
        _curves(own),
        remarks=(*about_wrapper, *_of_chaos(baseline.errors), *_of_nothing(listed, ready.left_out)),
        environment=looked.environment,
    )
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
        return case, (
            Remark("wrapper-stays", "warning", f"Nothing that changes the function is tried: {error.problem}."),
        )
    except Exception:  # of the user's function, mostly: the row of the function as it is says it
        return case, ()
    if not wrapper:
        return case, ()
    text = (
        f"All rows, and the function as it is, are measured under jax.jit, as functions of the arrays that {wrapper} "
        f"gives to the program: the Python of {wrapper}, which each call of yours takes as well, is in none of them."
    )
    return pure, (Remark("without-wrapper", "info", text),)


def _of_chaos(errors: Errors | None) -> tuple[Remark, ...]:
    if errors is None or errors.reference != "float64" or (errors.max_rel or 0.0) < CHAOTIC:
        return ()
    text = (
        f"As it is, its results are off by {percent(errors.max_rel or 0.0)} of the largest value of a run in float64. "
        "It amplifies rounding until nothing of the result is left, as chaotic systems and ill-conditioned problems "
        "do: another order of operations gives other numbers, so errors of variants say nothing here; times do."
    )
    return (Remark("chaotic", "warning", text),)


def _of_nothing(rows: Sequence[VariantRow], left_out: Mapping[str, str]) -> tuple[Remark, ...]:
    """A table of nothing but the baseline says why."""
    if rows or not left_out:
        return ()
    by_reason: dict[str, list[str]] = {}
    to_be_told: list[str] = []
    for name, why in left_out.items():
        if why.startswith(("it has to be told", "it needs")):  # the user's to know, and nothing about the function
            to_be_told.append(name)
        else:
            by_reason.setdefault(why, []).append(name)
    reasons = "; ".join(f"{why} ({', '.join(names)})" for why, names in by_reason.items())
    text = f"No variant can be made of this function by itself: {reasons}." if reasons else ""
    more = f"These have to be told something, see benchax experiment --list: {', '.join(to_be_told)}."
    told = " ".join([text, *([more] if to_be_told else [])]).strip()
    return (Remark("nothing-tried", "warning", told),)


def _with_batch(variants: Mapping[str, AnyVariant], batch: Any) -> dict[str, AnyVariant]:
    """Passes the names of the batch arguments to the variants that split a batch.

    Raises:
        UsageError: `batch` is given, and no variant splits a batch.
    """
    if batch is None:
        return dict(variants)
    told = {name: v.with_batch(str(batch)) for name, v in variants.items() if isinstance(v, CutsBatch)}
    if not told:
        able = ", ".join(name for name, variant in VARIANTS.items() if isinstance(variant, CutsBatch))
        raise UsageError(
            f"batch={batch!r} is given, and no variant that is tried takes a batch apart", f"one of: {able}"
        )
    return {**variants, **told}


@dataclass(frozen=True)
class ReadyVariants:
    """The variants to try, and the unavailable ones, by the names of the variants."""

    changed: dict[str, ChangedCase] = field(default_factory=dict[str, ChangedCase])
    plans: dict[str, Measure] = field(default_factory=dict[str, Measure])
    refused: dict[str, VariantRow] = field(default_factory=dict[str, VariantRow])
    left_out: dict[str, str] = field(default_factory=dict[str, str])
    """The reasons why variants that the user did not request have no row."""


def _prepare_variants(
    case: Case, variants: Mapping[str, AnyVariant], given: Mapping[str, Any], seed: int, was_asked: bool
) -> ReadyVariants:
    """Where all were to be tried, what would show nothing is left out."""
    ready = ReadyVariants()
    for name, variant in variants.items():
        try:
            # One that can do both measures by itself, and changes the case among others (`ablation.py`).
            if not isinstance(variant, MeasuringVariant):
                ready.changed[name] = variant.change(case, given.get(name), seed)
            elif was_asked or not variant.only_by_name:
                ready.plans[name] = variant.plan(case, given.get(name), seed)
        except (NotAvailable, NotMeasured) as error:
            if was_asked:
                ready.refused[name] = variant_rows.refused_row(name, variant.title, "not_available", error.problem)
            else:
                ready.left_out[name] = error.problem
        # A mistake in what was asked for, which is no finding about the function.
        except UsageError:
            raise
        except Exception as error:  # of the user's function, mostly: a row says it, and the others go on
            ready.refused[name] = variant_rows.failed_row(name, variant.title, diagnose(error, "preparing"))
    return ready


def _sides(changed: Mapping[str, ChangedCase]) -> list[StudySide]:
    return [one.as_side(name) for name, one in changed.items()]


def _baselines(case: Case, changed: Mapping[str, ChangedCase]) -> list[StudySide]:
    """The function as it is under the settings that some variants need for both sides."""
    return [StudySide(f"{BASELINE} beside {name}", case, one.settings) for name, one in changed.items() if one.settings]


def _curves(own: Sequence[Own]) -> tuple[Curve, ...]:
    return tuple(curve for _, curves in own for curve in curves)


def _without_baseline(
    case: Case, looked: Study, refused: Mapping[str, VariantRow], own: Sequence[Own], was_asked: bool
) -> Experiment:
    """Handles a function that itself fails: nothing can be compared with it. Variants that measure by themselves can
    still show what would help, such as a static argument."""
    failure = looked.failures[BASELINE]
    row = variant_rows.failed_row(BASELINE, "as it is", failure)
    advice = (Remark("advice", "info", failure.advice),) if failure.advice else ()
    rows = (*refused.values(), *(row for found, _ in own for row in found))
    if not was_asked:  # nearly all of them have failed of the same, and would say so in as many words again
        rows = tuple(row for row in rows if row.status == "ok")
    return Experiment(case.id.label, "", row, rows, _curves(own), remarks=advice, environment=looked.environment)


def _measure_plans(variants: Mapping[str, AnyVariant], ready: ReadyVariants, lab: Lab) -> list[Own]:
    return [_measure_by_itself(variants[name], measure, lab) for name, measure in ready.plans.items()]


def _measure_by_itself(variant: Variant, measure: Measure, lab: Lab) -> Own:
    """Returns the results of a variant that measures by itself."""
    try:
        found = measure(lab)
    except (NotAvailable, NotMeasured) as error:
        return [variant_rows.refused_row(variant.name, variant.title, "not_available", error.problem)], []
    except Exception as error:  # as in `_prepare_variants`
        return [variant_rows.failed_row(variant.name, variant.title, diagnose(error, variant.name))], []
    rows = [one for one in found if isinstance(one, VariantRow)]
    return rows, [one for one in found if isinstance(one, Curve)]
