"""`benchax.experiment`: a function as it is, and variants of it, each measured beside it.

    prepare each variant → look at every side once, in a worker (`study.py`) → leave out what failed, is wrong, or is
    the same program → pairs of the rest with the baseline, in one session of fresh processes → rows

One contest per variant, since each has its own end: a clear verdict needs few processes, a close one many. All
contests share their processes. Combinations and the ablation go the same way afterwards (`ablation.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from benchax.case import Case, make_case
from benchax.errors import NotAvailable, NotMeasured, UsageError, one_of
from benchax.executors.pool import shared_pool
from benchax.experiments import ablation as ablations
from benchax.experiments import judging
from benchax.experiments.base import Prepared, Variant
from benchax.experiments.study import Side, Study, study
from benchax.experiments.timing import Duel, timed
from benchax.experiments.variants import VARIANTS
from benchax.measuring.diagnosis import diagnose
from benchax.model import Comparison, Options, Remark
from benchax.options import resolve
from benchax.pairing.session import Effort
from benchax.results.experiment import Curve, Experiment, VariantRow

BASELINE = "baseline"
Tell = Callable[[str], None]
Own = tuple[list[VariantRow], list[Curve]]
"""What a variant told that measures by itself."""


def quiet(text: str) -> None:
    """No progress."""


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
    request = Request(options, dict(given or {}), Effort(max_time_s=max_time_s), progress)
    return run(case, variants, request, combine=combine, ablation=ablation)


@dataclass(frozen=True)
class Request:
    """How to go about it."""

    options: Options
    given: Mapping[str, Any] = field(default_factory=dict[str, Any])
    effort: Effort = field(default_factory=Effort)
    tell: Tell = quiet
    study: Callable[..., Study] = study
    timed: Callable[..., dict[str, Comparison]] = timed

    @property
    def told(self) -> Mapping[str, Any]:
        """For `Variant.prepare`."""
        return {"seed": self.options.seed, "options": self.options, "effort": self.effort, **self.given}

    def look(self, sides: Sequence[Side]) -> Study:
        return self.study(shared_pool(), sides, self.options, self.tell)

    def duels(self, duels: Sequence[Duel]) -> dict[str, Comparison]:
        return self.timed(duels, self.options, self.effort, self.tell)


def chosen(names: Sequence[str] | None) -> tuple[dict[str, Variant], bool]:
    """(variants by name, were they asked for?); in the order of `VARIANTS`.

    Raises:
        UsageError: a name that none has.
    """
    for name in names or ():
        if name not in VARIANTS:
            raise UsageError(f"there is no variant {name!r}", one_of(VARIANTS, name), "benchax try --list")
    return {name: v for name, v in VARIANTS.items() if names is None or name in names}, names is not None


def run(
    case: Case, names: Sequence[str] | None, request: Request, *, combine: bool = False, ablation: bool = False
) -> Experiment:
    """An experiment with a case. Raises `UsageError` for a variant that does not exist."""
    variants, was_asked = chosen(names)
    for unknown in set(request.given) - set(variants):
        raise UsageError(f"something is given for {unknown!r}, which is not tried", one_of(variants, unknown))
    prepared, refused = _prepared(case, variants, request, was_asked)
    compared = {name: one for name, one in prepared.items() if one.measure is None}
    looked = request.look([Side(BASELINE, case), *_sides(compared), *_baselines(case, compared)])
    own = [_measured(variants[name], one, request) for name, one in prepared.items() if one.measure is not None]
    if BASELINE in looked.failures or BASELINE not in looked.seen:
        return _without_baseline(case, looked, refused, own)
    baseline = judging.seen_row(BASELINE, "as it is", looked.seen[BASELINE])
    titles = {name: variant.title for name, variant in variants.items()}
    rows = {**refused, **judged(case, titles, compared, looked, baseline, request)}
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
    return ablations.combined(found, case, variants, request, judged, is_ablation=ablation)


def _prepared(
    case: Case, variants: Mapping[str, Variant], request: Request, was_asked: bool
) -> tuple[dict[str, Prepared], dict[str, VariantRow]]:
    """Those that can be tried, and rows of those that cannot. Where all were to be tried, what would show nothing is
    left out."""
    prepared: dict[str, Prepared] = {}
    refused: dict[str, VariantRow] = {}
    for name, variant in variants.items():
        try:
            prepared[name] = variant.prepare(case, {"asked": was_asked, **request.told})
        except (NotAvailable, NotMeasured) as error:
            if was_asked:
                refused[name] = judging.refused_row(name, variant.title, "not_available", error.problem)
        except UsageError:
            raise
        except Exception as error:  # of the user's function, mostly: a row says it, and the others go on
            refused[name] = judging.failed_row(name, variant.title, diagnose(error, "preparing"))
    return prepared, refused


def _sides(prepared: Mapping[str, Prepared]) -> list[Side]:
    return [Side(name, one.case, one.settings, one.look) for name, one in prepared.items()]


def _baselines(case: Case, prepared: Mapping[str, Prepared]) -> list[Side]:
    """The function as it is under the settings that some variants need for both sides."""
    return [Side(f"{BASELINE} beside {name}", case, one.settings) for name, one in prepared.items() if one.settings]


def _curves(own: Sequence[Own]) -> tuple[Curve, ...]:
    return tuple(curve for _, curves in own for curve in curves)


def _without_baseline(case: Case, looked: Study, refused: Mapping[str, VariantRow], own: Sequence[Own]) -> Experiment:
    """The function itself fails: nothing can be compared with it. Variants that measure by themselves may still tell
    what would help, such as a static argument."""
    failure = looked.failures[BASELINE]
    row = judging.failed_row(BASELINE, "as it is", failure)
    advice = (Remark("advice", "info", failure.advice),) if failure.advice else ()
    rows = (*refused.values(), *(row for found, _ in own for row in found))
    return Experiment(case.id.label, "", row, rows, _curves(own), remarks=advice, environment=looked.environment)


def judged(
    case: Case,
    titles: Mapping[str, str],
    prepared: Mapping[str, Prepared],
    looked: Study,
    baseline: VariantRow,
    request: Request,
) -> dict[str, VariantRow]:
    """Rows of what was looked at; timed are those that are another program with right results."""
    rows: dict[str, VariantRow] = {}
    own = looked.seen[BASELINE]
    for name, one in prepared.items():
        title = titles[name]
        if name in looked.failures:
            rows[name] = judging.failed_row(name, title, looked.failures[name])
            continue
        seen = looked.seen[name]
        row = judging.seen_row(name, title, seen)
        if why := judging.wrongness(one, seen, own):
            row = judging.wrong(row, why)
        elif seen.digest and (seen.digest, seen.signature) == (own.digest, own.signature):
            row = judging.same_program(row)
        rows[name] = row
    due = [name for name, row in rows.items() if row.status == "ok" and not row.sentence]
    duels = [Duel(name, BASELINE, case, name, prepared[name].case, prepared[name].settings) for name in due]
    for name, comparison in request.duels(duels).items():
        rows[name] = judging.compared(rows[name], comparison, baseline)
    return {name: _with_facts(row, prepared[name], looked) for name, row in rows.items()}


def _with_facts(row: VariantRow, prepared: Prepared, looked: Study) -> VariantRow:
    if row.name not in looked.seen:
        return row
    own, facts = looked.seen[BASELINE], list(row.facts)
    if prepared.facts is not None:
        facts += prepared.facts(own, looked.seen[row.name], row.comparison)
    beside = looked.seen.get(f"{BASELINE} beside {row.name}")
    if beside is not None and beside.digest != own.digest:
        listed = ", ".join(f"{name}={value}" for name, value in prepared.settings.items())
        facts.append(("timed beside", f"the baseline under {listed}, which makes another program of it"))
    return replace(row, facts=tuple(facts))


def _measured(variant: Variant, prepared: Prepared, request: Request) -> Own:
    """Of a variant that measures by itself."""
    assert prepared.measure is not None
    try:
        found = prepared.measure(request.tell)
    except (NotAvailable, NotMeasured) as error:
        return [judging.refused_row(variant.name, variant.title, "not_available", error.problem)], []
    except Exception as error:  # as in `_prepared`
        return [judging.failed_row(variant.name, variant.title, diagnose(error, variant.name))], []
    listed = found if isinstance(found, tuple) else (found,)
    rows = [one for one in listed if isinstance(one, VariantRow)]
    return rows, [one for one in listed if isinstance(one, Curve)]
