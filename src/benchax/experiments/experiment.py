"""`benchax.experiment`: a function as it is, and variants of it, each measured beside it.

    prepare each variant → look at every side once, in a worker (`study.py`) → leave out what failed, is wrong, or is
    the same program → pairs of the rest with the baseline, in one session of fresh processes → rows

One paired run per variant, since each has its own end: a clear verdict needs few processes, a close one many. All
paired runs share their processes. Combinations and the ablation go the same way afterwards (`ablation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from benchax.case import Case, make_case
from benchax.comparing.sequential import Effort
from benchax.errors import NotAvailable, NotMeasured, UsageError, one_of
from benchax.experiments import variant_rows
from benchax.experiments.ablation import add_combination
from benchax.experiments.base import PreparedVariant, Tell, Variant
from benchax.experiments.lab import BASELINE, Lab, judge_variants, quiet
from benchax.experiments.study import Study, StudySide
from benchax.experiments.variants import VARIANTS
from benchax.measuring.diagnosis import diagnose
from benchax.model import Remark
from benchax.options import resolve
from benchax.results.experiment import Curve, Experiment, VariantRow

Own = tuple[list[VariantRow], list[Curve]]
"""What a variant told that measures by itself."""


def experiment(
    fn: Callable[..., Any],
    *args: Any,
    variants: Sequence[str] | None = None,
    combine: bool = False,
    ablation: bool = False,
    given: Mapping[str, Any] | None = None,
    name: str | None = None,
    static: Iterable[int | str] = (),
    donate: Iterable[int | str] = (),
    jit: bool = True,
    max_time_s: float | None = None,
    timeout_s: float | str | None = None,
    memory_limit_bytes: int | str | None = None,
    seed: int | None = None,
    progress: Tell = quiet,
    **kwargs: Any,
) -> Experiment:
    """Tries variants of `fn(*args, **kwargs)`: speed, memory, time to compile and errors of each, beside the original.

    Times are compared as `compare` does it: in pairs, in fresh processes, every change confirmed. Outputs are compared
    with a run in float64. A variant that fails, is wrong, or cannot be had here is a row with its reason.

    Args:
        fn, args, kwargs, name, static, donate, jit, seed: as for `bench`.
        variants: names, as `benchax try --list` has them; default: all that apply.
        combine: also all of them at once.
        ablation: also all at once, and all but each: what does each contribute? Implies `combine`.
        given: what a variant is to be told, by its name: {"donate": "0"}.
        max_time_s: begin no further process after this long, but for confirming a change; of each of up to three
            parts: the variants, the combination, the ablation.
        timeout_s, memory_limit_bytes: limits of each stage in the worker processes.
        progress: told in words how far it is.

    Raises:
        UsageError: a variant that does not exist, or an argument that cannot work.
    """
    options = resolve({"timeout_s": timeout_s, "memory_limit_bytes": memory_limit_bytes, "seed": seed})
    case = make_case(fn, args, kwargs, name=name, static=static, donate=donate, jit=jit)
    request = Lab(options, dict(given or {}), Effort(max_time_s=max_time_s), progress)
    return run_experiment(case, variants, request, combine=combine, ablation=ablation)


def choose_variants(names: Sequence[str] | None) -> tuple[dict[str, Variant], bool]:
    """(variants by name, were they asked for?); in the order of `VARIANTS`.

    Raises:
        UsageError: a name that none has.
    """
    for name in names or ():
        if name not in VARIANTS:
            raise UsageError(f"there is no variant {name!r}", one_of(VARIANTS, name), "benchax try --list")
    return {name: v for name, v in VARIANTS.items() if names is None or name in names}, names is not None


def run_experiment(
    case: Case, names: Sequence[str] | None, request: Lab, *, combine: bool = False, ablation: bool = False
) -> Experiment:
    """An experiment with a case. Raises `UsageError` for a variant that does not exist."""
    variants, was_asked = choose_variants(names)
    for unknown in set(request.given) - set(variants):
        raise UsageError(f"something is given for {unknown!r}, which is not tried", one_of(variants, unknown))
    prepared, refused = _prepare_variants(case, variants, request, was_asked)
    compared = {name: one for name, one in prepared.items() if one.measure is None}
    looked = request.study_sides([StudySide(BASELINE, case), *_sides(compared), *_baselines(case, compared)])
    own = [
        _measure_by_itself(variants[name], one, request) for name, one in prepared.items() if one.measure is not None
    ]
    if BASELINE in looked.failures or BASELINE not in looked.seen:
        return _without_baseline(case, looked, refused, own)
    baseline = variant_rows.seen_row(BASELINE, "as it is", looked.seen[BASELINE])
    titles = {name: variant.title for name, variant in variants.items()}
    rows = {**refused, **judge_variants(case, titles, compared, looked, baseline, request)}
    listed = [*(rows[name] for name in variants if name in rows), *(row for found, _ in own for row in found)]
    found = Experiment(
        case.id.label,
        looked.seen[BASELINE].signature,
        baseline,
        tuple(listed),
        _curves(own),
        environment=looked.environment,
    )
    if not combine and not ablation:
        return found
    return add_combination(found, case, variants, request, is_ablation=ablation)


def _prepare_variants(
    case: Case, variants: Mapping[str, Variant], request: Lab, was_asked: bool
) -> tuple[dict[str, PreparedVariant], dict[str, VariantRow]]:
    """Those that can be tried, and rows of those that cannot. Where all were to be tried, what would show nothing is
    left out."""
    prepared: dict[str, PreparedVariant] = {}
    refused: dict[str, VariantRow] = {}
    for name, variant in variants.items():
        try:
            prepared[name] = variant.prepare(case, {"asked": was_asked, **request.variant_settings})
        except (NotAvailable, NotMeasured) as error:
            if was_asked:
                refused[name] = variant_rows.refused_row(name, variant.title, "not_available", error.problem)
        except UsageError:
            raise
        except Exception as error:  # of the user's function, mostly: a row says it, and the others go on
            refused[name] = variant_rows.failed_row(name, variant.title, diagnose(error, "preparing"))
    return prepared, refused


def _sides(prepared: Mapping[str, PreparedVariant]) -> list[StudySide]:
    return [StudySide(name, one.case, one.settings, one.look) for name, one in prepared.items()]


def _baselines(case: Case, prepared: Mapping[str, PreparedVariant]) -> list[StudySide]:
    """The function as it is under the settings that some variants need for both sides."""
    return [
        StudySide(f"{BASELINE} beside {name}", case, one.settings) for name, one in prepared.items() if one.settings
    ]


def _curves(own: Sequence[Own]) -> tuple[Curve, ...]:
    return tuple(curve for _, curves in own for curve in curves)


def _without_baseline(case: Case, looked: Study, refused: Mapping[str, VariantRow], own: Sequence[Own]) -> Experiment:
    """The function itself fails: nothing can be compared with it. Variants that measure by themselves may still tell
    what would help, such as a static argument."""
    failure = looked.failures[BASELINE]
    row = variant_rows.failed_row(BASELINE, "as it is", failure)
    advice = (Remark("advice", "info", failure.advice),) if failure.advice else ()
    rows = (*refused.values(), *(row for found, _ in own for row in found))
    return Experiment(case.id.label, "", row, rows, _curves(own), remarks=advice, environment=looked.environment)


def _measure_by_itself(variant: Variant, prepared: PreparedVariant, request: Lab) -> Own:
    """Of a variant that measures by itself."""
    assert prepared.measure is not None
    try:
        found = prepared.measure(request.tell)
    except (NotAvailable, NotMeasured) as error:
        return [variant_rows.refused_row(variant.name, variant.title, "not_available", error.problem)], []
    except Exception as error:  # as in `_prepare_variants`
        return [variant_rows.failed_row(variant.name, variant.title, diagnose(error, variant.name))], []
    listed = found if isinstance(found, tuple) else (found,)
    rows = [one for one in listed if isinstance(one, VariantRow)]
    return rows, [one for one in listed if isinstance(one, Curve)]
