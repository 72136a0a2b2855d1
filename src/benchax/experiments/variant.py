"""Defines variants, and reads the values that the user gives them.

A `Variant` is a way to change a case, or to measure around it, under a name. One that changes a case gives another
case, which does the same in another way; `experiments/experiment.py` compares the two. One that measures is not a
comparison of two functions (a sweep, starts of fresh processes). It first announces its plan, so that mistakes of the
user show early, and then measures in a lab.

A new variant is one function and one line of the table in its file of `experiments/variants/`. The function gets an
`Asked`, which reads values in one grammar:

    unroll   8                   one whole number
    devices  1,2,4               whole numbers
    static   n=1,2,3             values of an argument
    vmap     x=1..256            sizes for an argument; 1..256 doubles from 1 on
    shapes   x.0+w.1=100,130     sizes of axes that have one size together
    vmap     1..256              no arguments named: all of them, or the first, depending on the variant
    loop     model.py:unfinished an object of a module or file, as for the command line

Lists and mappings work, too: {"n": [1, 2, 3]}.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import jax

from benchax.case import Case
from benchax.discovery import MODULE_PREFIX, literal, resolve_target
from benchax.errors import NotAvailable, NotMeasured, UsageError
from benchax.experiments.functions import Arguments, arguments, every_argument, find_arguments, plain
from benchax.experiments.lab import ChangedCase, Observation, Pair, Study, WorkerLab
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.inputs import Inputs, make_inputs
from benchax.measuring.prepare import prepare
from benchax.model import Absent, Comparison, Failure
from benchax.results.experiment import Curve, Errors, Experiment, Facts, Status, VariantRow
from benchax.units import number, percent, seconds, size
from benchax.workers.task import Failed

Measure: TypeAlias = Callable[[WorkerLab], Sequence[VariantRow | Curve]]
"""Measures in a lab. Raises `NotAvailable` where that shows it cannot work here."""


Axis: TypeAlias = tuple[int | str, int]
"""An argument, and an axis of every array in it."""


@dataclass(frozen=True)
class Variant:
    """One way to change a case, to measure around it, or both: alone it measures then, among others it changes."""

    name: str
    """The word on the command line."""
    title: str
    """Describes the variant in a line."""
    changes: Callable[[Asked], ChangedCase] | None = None
    measures: Callable[[Asked], Measure] | None = None
    needs: str = ""
    """The variant's requirements that might be missing ("a GPU"); empty: no requirements."""
    only_by_name: bool = False
    """It is left out if you name no variants: it takes many processes, other devices, or is slower on every backend."""
    untold: str = ""
    """The reason why it needs a value; empty if it works without one."""
    unjitted: str = ""
    """Why it does nothing for a function that is not jitted; empty: it does."""
    family: str = ""
    """A combination has at most one variant of a family."""
    combines: bool = True
    """False: it is never part of a combination."""
    cuts_batch: bool = False
    """Does it split a batch? Then `batch` can name the arguments that hold it."""

    def change(self, case: Case, given: Any = None, seed: int = 0) -> ChangedCase:
        """The variant of `case`.

        Args:
            given: what the user said about this variant ("0,2"); None: nothing.
            seed: of the data made from specs.

        Raises:
            NotAvailable: it cannot work here, or not for this case.
            NotMeasured: it could, but there would be nothing to see.
            UsageError: `given` cannot be understood.
        """
        if self.changes is None:
            raise NotAvailable(f"{self.name} does not change a case")
        return self.changes(self._ask(case, given, seed))

    def plan(self, case: Case, given: Any = None, seed: int = 0, batch: str = "") -> Measure:
        """How it will measure. Nothing is measured yet; arguments and errors are those of `change`.

        Args:
            batch: names the arguments that hold the batch; empty: they are guessed.
        """
        if self.measures is None:
            raise NotAvailable(f"{self.name} does not measure by itself")
        return partial(self._measure, self.measures(self._ask(case, given, seed, batch)))

    def _measure(self, measure: Measure, lab: WorkerLab) -> Sequence[VariantRow | Curve]:
        """A variant that fails or cannot work here becomes a row with the reason."""
        try:
            return measure(lab)
        except Exception as error:  # of the user's function, mostly
            return [row_of_error(self.name, self.title, error, self.name)]

    def _ask(self, case: Case, given: Any, seed: int, batch: str = "") -> Asked:
        if given is None and self.untold:
            raise NotMeasured(self.untold)
        if not case.jit and self.unjitted:
            raise NotAvailable(self.unjitted)
        return Asked(self, case, given, seed, batch)


@dataclass(frozen=True)
class Asked:
    """One request to a variant: the case, and the values that the user gives."""

    variant: Variant
    case: Case
    given: Any = None
    seed: int = 0
    batch: str = ""
    """The arguments that hold the batch, as the user names them; empty: to be guessed."""

    @cached_property
    def plain(self) -> Case:
        """The eager function. Raises `NotAvailable` where it cannot be reached."""
        return plain(self.case, self.seed)

    @cached_property
    def inputs(self) -> Inputs:
        """Those of the eager function."""
        return make_inputs(self.plain, self.seed)

    @cached_property
    def program(self) -> Any:
        """The traced program. Raises `NotAvailable` if it doesn't exist."""
        return prepare(replace(self.plain, jit=True), self.seed).trace().reach_trace().jaxpr

    @property
    def text(self) -> str:
        """The given value, in the user's words: unroll='3'."""
        return f"{self.variant.name}={self.given!r}"

    def numbers(self, usual: Sequence[int], expected: str, least: int = 1, most: int = 2**31) -> tuple[int, ...]:
        """Whole numbers: 1,2,4.

        Args:
            usual: the value if the user gives none.
            expected: what a refusal asks for.

        Raises:
            UsageError: they aren't whole numbers, or are outside of `least` to `most`.
        """
        found = tuple(map(whole_number, self.words(usual)))
        if not all(least <= number <= most for number in found):
            raise UsageError(self.text, expected)
        return found

    def number(self, usual: int, expected: str, least: int = 1, most: int = 2**31) -> int:
        """One whole number; otherwise as `numbers`."""
        number, *more = self.numbers((usual,), expected, least, most)
        if more:
            raise UsageError(self.text, expected)
        return number

    def words(self, usual: Sequence[Any] | str = ()) -> list[str]:
        """The given text, list, or value, split at commas. Without one, it is `usual`."""
        return split_words(usual if self.given is None else self.given)

    def halves(self) -> tuple[str, Any]:
        """Returns (arguments, values). The first is empty without arguments, and the second is None without values."""
        raw = self.given
        if isinstance(raw, Mapping) and len(raw) == 1:
            ((arguments, values),) = raw.items()
            return str(arguments), values
        if not isinstance(raw, str):
            return "", raw
        before, equals, after = raw.partition("=")
        if equals:
            return before.strip(), after
        is_values = raw.strip()[:1].isdecimal() and "." not in raw.replace("..", "")
        return ("", raw.strip()) if is_values else (raw.strip(), None)

    def values(self, given: Any) -> tuple[Any, ...]:
        """Reads 1,2,3 and 'a',None as Python does; words that Python cannot read are texts.

        Raises:
            UsageError: there are no values.
        """
        found = given
        if isinstance(given, str):
            whole = literal(f"({given},)") if given.strip() else ()
            found = whole if isinstance(whole, tuple) else [literal(word.strip()) for word in given.split(",")]
        if not isinstance(found, Sequence) or not found:
            raise self.refusal(f"the values {given!r}", "values, such as n=1,2,3")
        return tuple(found)

    def sizes(self, given: Any) -> tuple[int, ...]:
        """100,130 and 1..256 as numbers in order, each once.

        Raises:
            UsageError: not whole numbers from 1 up.
        """
        found = [_double(word) for word in split_words(given)]
        if not found or not all(found):
            raise self.refusal(f"the sizes {given!r}", "whole numbers from 1 up: 100,130,200 or 1..256")
        return tuple(sorted({size for sizes in found for size in sizes}))

    def axes(self, text: str) -> tuple[Axis, ...]:
        """x.0+w.1 as axes of every array in an argument; x alone is its first one.

        Raises:
            UsageError: an argument that is not there, or an axis that it does not have.
        """
        return tuple(self._axis(word.strip()) for word in text.split("+"))

    def _axis(self, word: str) -> Axis:
        name, dot, number = word.rpartition(".")
        name, number = (name, number) if dot else (word, "0")
        (key,), axis = self.arguments([name]), whole_number(number)
        if axis < 0:
            raise self.refusal(repr(word), "an argument, or one with the number of an axis: x.1")
        leaves = array_leaves(every_argument(self.inputs)[key])
        if not leaves or any(leaf.ndim <= axis for leaf in leaves):
            raise self.refusal(f"{word!r}: {name!r} has no axis {number}", "an axis that its arrays have")
        return key, axis

    def arguments(self, words: Collection[str]) -> Arguments:
        """The dynamic arguments of these names, or at these positions. Raises `UsageError` if one does not exist."""
        return find_arguments(self.variant.name, words, arguments(self.plain, self.inputs))

    def named_object(self, target: str) -> Any:
        """Returns the object that MODULE:NAME, or FILE.py:NAME, refers to. It does not import a file again that was
        imported before, such as the file of the case's own function. A second import would repeat the file's side
        effects, and make other classes.

        Raises:
            UsageError: there is no such module, or nothing of that name in it.
        """
        target = target.strip()
        where, _, name = target.rpartition(":")
        if not where or not name:
            raise self.refusal(f"the name {target!r}", "MODULE:NAME or FILE.py:NAME, such as model.py:f")
        own = getattr(self.case.fn, "__module__", None) or ""
        module = _module_of(Path(where), own) if where.endswith(".py") else None
        if module is None:
            return resolve_target(target)
        try:
            return resolve_target(f"{module}:{name}")
        except UsageError as error:  # in the words of the user, who wrote a file
            raise UsageError(f"{where!r} has nothing called {name!r}", error.expected) from None

    def refusal(self, what: str, expected: str) -> UsageError:
        return UsageError(f"{self.variant.name} is given {what}", expected)


def row_of_error(name: str, title: str, error: Exception, stage: str) -> VariantRow:
    """The row of a variant that failed, or can't run here."""
    if isinstance(error, NotAvailable | NotMeasured):
        return refused_row(name, title, "not_available", error.problem)
    return failed_row(name, title, error.failure if isinstance(error, Failed) else diagnose(error, stage))


def failed_row(name: str, title: str, failure: Failure) -> VariantRow:
    reason = f"{failure.kind.replace('_', ' ')} in {failure.stage}: {failure.message}"
    return refused_row(name, title, "failed", reason)


def refused_row(name: str, title: str, status: Status, reason: str) -> VariantRow:
    return VariantRow(name, title, status, reason, sentence=reason, absent=(Absent("comparison", reason),))


def whole_number(word: str) -> int:
    """A number written in digits; -1 for any other word."""
    word = word.strip()
    return int(word) if word.isascii() and word.isdecimal() and len(word) < 10 else -1


def split_words(given: Any) -> list[str]:
    """A text at its commas; or the parts of a list, or a single value, as texts."""
    listed = given.split(",") if isinstance(given, str) else given if isinstance(given, Sequence) else [given]
    return [str(word).strip() for word in listed]


def _double(word: str) -> list[int]:
    """1..256 as 1, 2, 4, … 256; 8 as 8; nothing for any other word."""
    first, dots, last = word.partition("..")
    low, high = whole_number(first), whole_number(last if dots else first)
    return [low * 2**k for k in range((high // low).bit_length())] if 1 <= low <= high else []


def array_leaves(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


def _module_of(file: Path, own: str) -> str | None:
    """The name of the module that this file has become."""
    names = (own, *(name for name in sys.modules if name.startswith(MODULE_PREFIX)))
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return next((name for name, its in files.items() if its and Path(its).resolve() == file.resolve()), None)


# ---- rows ------------------------------------------------------------------------------------------------------------
#
# A row has a sentence, from the observation of a variant and its comparison. A variant that failed, is wrong, or is the
# same program as the baseline is not timed: its row says so.


T = TypeVar("T")
Ways: TypeAlias = Mapping[str, tuple[str, Callable[[], T]]]
"""Ways to change a case, or to measure it, not made yet, by name: the title, and what makes it."""
SAME_PROGRAM = "does nothing here: the compiled program is the same"
BASELINE_OF_GROUP = "the baseline of the others"
ROUNDINGS = 4.0
"""Errors in a lower precision may be this many times those that rounding the inputs makes alone: JAX rounds the values
between as well. In bf16 and f16, tanh networks of 1 to 16 layers, attention, a layer norm, and gradients have 1.0 to
2.4 times as much (jaxlib 0.12.0, CPU)."""


def seen_row(name: str, title: str, seen: Observation) -> VariantRow:
    """All but verdicts."""
    build = () if seen.build_s is not None else (Absent("compile_s", "nothing is compiled as a whole"),)
    plan = () if seen.plan.predicted_peak_bytes is not None else (Absent("peak_bytes", "there is no compiler's plan"),)
    return VariantRow(
        name,
        title,
        compile_s=seen.build_s,
        temp_bytes=seen.plan.temp_bytes,
        peak_bytes=seen.plan.predicted_peak_bytes,
        observed_bytes=seen.observed_bytes,
        flops=seen.flops,
        errors=seen.errors,
        absent=(*build, *plan, *seen.absent),
    )


def wrongness(tolerance: float | None, seen: Observation, baseline: Observation) -> str:
    """Returns why the results are wrong, or an empty text if they are right. The baseline's own error does not count
    against a variant.

    Args:
        tolerance: permitted relative error; None: the tolerance of the outputs' own dtype.
    """
    found, own = seen.errors, baseline.errors or Errors("baseline", 0.0, 0.0)
    if found is None:
        return ""
    leaf = f" of leaf {found.worst}" if found.worst else ""
    where = "the run in float64" if found.reference == "float64" else "the baseline"
    if found.overflows > own.overflows:
        return f"{found.overflows} values{leaf} are infinite where {where} has finite ones"
    if found.nans > own.nans:
        return f"{found.nans} values{leaf} are NaN where {where} has numbers"
    permitted = seen.bound if tolerance is None else tolerance
    # If rounding the inputs alone moves the results of a function, nothing in that precision can be right.
    permitted = max(permitted, ROUNDINGS * (seen.rounding_rel or 0.0))
    # A function that is already off by 1 % is not wrong in bf16.
    if found.max_rel is not None and found.max_rel > max(permitted, own.max_rel or 0.0):
        share = f"off by {percent(found.max_rel)} of the largest value{leaf} in {where}"
        return f"{share}; permitted is {percent(permitted)}"
    return ""


def wrong_row(row: VariantRow, why: str) -> VariantRow:
    absent = Absent("comparison", "a wrong result is not timed")
    return replace(row, status="wrong_result", reason=why, sentence=why, absent=(*row.absent, absent))


def uncompared(row: VariantRow, reason: str, sentence: str) -> VariantRow:
    """The row without a comparison, for this reason."""
    return replace(row, reason=reason, sentence=sentence, absent=(*row.absent, Absent("comparison", reason)))


def add_comparison(row: VariantRow, comparison: Comparison, baseline: VariantRow) -> VariantRow:
    """Adds the verdict, or the reason why there is no verdict. A result that differs, and has no errors to judge it by,
    is wrong."""
    if comparison.differs and comparison.numerics and row.errors is None:
        return wrong_row(row, comparison.numerics.why)
    # It repeats, by other rules, what the errors show.
    kept = tuple(remark for remark in comparison.remarks if remark.code != "outputs-differ")
    comparison = replace(comparison, remarks=kept, numerics=None)
    if comparison.failure is not None:
        failed = failed_row(row.name, row.title, comparison.failure)
        return replace(row, status="failed", reason=failed.reason, sentence=failed.sentence, comparison=comparison)
    row = replace(row, comparison=comparison)
    return replace(row, sentence=sentence(row, baseline))


def sentence(row: VariantRow, baseline: VariantRow) -> str:
    """saves 64.0 MiB and 3.8 ms (1.31×, 1.28 – 1.35); equal results"""
    changes = [memory_change(row.peak_bytes, baseline.peak_bytes), _time(row.comparison)]
    parts: list[str] = []
    for verb in ("saves ", "costs "):
        amounts = [text.removeprefix(verb) for text in changes if text.startswith(verb)]
        parts += [verb + " and ".join(amounts)] if amounts else []
    parts += [text for text in changes if not text.startswith(("saves ", "costs "))]
    return "; ".join(filter(None, (*parts, _results(row.errors, baseline.errors))))


def memory_change(now: int | None, before: int | None) -> str:
    if now is None or before is None or now == before:
        return ""
    return f"saves {size(before - now)}" if now < before else f"costs {size(now - before)}"


def _time(c: Comparison | None) -> str:
    """The change of the run time."""
    if c is None or c.verdict == "unclear" or c.baseline_value is None or c.ratio is None:
        return f"time unclear{f': {c.why}' if c and c.why else ''}"
    if c.verdict == "same":
        return f"as fast as before{f' ({c.why})' if c.why else ''}"
    return f"{'saves' if c.verdict == 'faster' else 'costs'} {seconds(abs(saved_s(c, c.ratio)))} ({speedup(c)})"


def saved_s(c: Comparison, ratio: float) -> float:
    """Seconds of a call that a ratio means, of the baseline's median."""
    return (c.baseline_value or 0.0) * (1 - ratio)


def speedup(c: Comparison) -> str:
    """1.31×, 1.28 – 1.35; by CPU time, -20 % (-22 to -18 %)"""
    if c.estimate is None:
        return ""
    times = c.estimate.map(lambda ratio: 1 / ratio)
    wall = ", ".join(filter(None, (f"{number(times.value)}×", times.text_of_ends())))
    # The interval of the wall time can hold 1 then: without the measure that decided, it contradicts the verdict.
    return f"{wall}; {c.why}" if c.is_by_cpu_time else wall


def _results(now: Errors | None, before: Errors | None) -> str:
    if now is None or before is None or now.max_rel is None or before.max_rel is None:
        return ""
    if (now.max_rel, now.median_rel) == (before.max_rel, before.median_rel):
        return "equal results"
    return f"errors up to {scientific(now.max_rel)} of the largest value (before: {scientific(before.max_rel)})"


def scientific(value: float) -> str:
    """3.5e-4; 0"""
    return f"{value:.1e}".replace("e-0", "e-").replace("e+0", "e+") if value else "0"


# ---- several rows ---------------------------------------------------------------------------------------------------


def prepare_ways(ways: Ways[T]) -> tuple[dict[str, T], dict[str, VariantRow]]:
    """Returns (what the ways make, by name, rows of those that cannot be made).

    Raises:
        UsageError: a mistake in what was asked for, which is no finding about the function.
    """
    made: dict[str, T] = {}
    refused: dict[str, VariantRow] = {}
    for name, (title, make) in ways.items():
        try:
            made[name] = make()
        except UsageError:
            raise
        except Exception as error:  # of the user's function, mostly: a row says it, and the others go on
            refused[name] = row_of_error(name, title, error, "preparing")
    return made, refused


def compare_ways(
    name: str, title: str, case: Case, ways: Ways[ChangedCase], lab: WorkerLab, looks: tuple[int, ...] | None = None
) -> tuple[Experiment, Study]:
    """Makes the ways, looks at `case`, the baseline, and at what was made, and compares it with the baseline. If the
    baseline fails, only ways that could not be made have rows."""
    made, rows = prepare_ways(ways)
    changed = {key: replace(one, title=ways[key][0]) for key, one in made.items()}
    looked = lab.study({name: ChangedCase(case), **changed})
    own = looked.seen.get(name)
    if own is None:
        baseline = failed_row(name, title, looked.failures[name])
    else:
        baseline = seen_row(name, title, own)
        rows |= judge(case, changed, looked, baseline, lab, looks)
    listed = tuple(rows[key] for key in ways if key in rows)
    signature = own.signature if own else ""
    return Experiment(case.id.label, signature, baseline, listed, environment=looked.environment), looked


def judge(
    case: Case,
    changed: Mapping[str, ChangedCase],
    looked: Study,
    baseline: VariantRow,
    lab: WorkerLab,
    looks: tuple[int, ...] | None = None,
) -> dict[str, VariantRow]:
    """Returns the rows of the studied cases, by their names in the study.

    Args:
        case, baseline: what they are compared with; it was looked at under the name of its row.
    """
    own = looked.seen[baseline.name]
    rows = {name: _row(name, one, looked, own) for name, one in changed.items()}
    # Don't time others: a wrong result is the fastest one, and the same program takes the same time.
    due = [name for name, row in rows.items() if row.status == "ok" and not row.sentence]
    pairs = [Pair(name, baseline.name, case, name, changed[name].case, changed[name].settings) for name in due]
    for name, comparison in lab.time_pairs(pairs, looks).items():
        rows[name] = add_comparison(rows[name], comparison, baseline)
    for name, seen in looked.seen.items():
        if name in changed:
            facts = changed[name].facts(own, seen, rows[name].comparison)
            rows[name] = replace(rows[name], facts=(*facts, *_of_sensitivity(changed[name], seen)))
    return rows


def _row(name: str, changed: ChangedCase, looked: Study, baseline: Observation) -> VariantRow:
    """The row before anything is timed."""
    if name in looked.failures:
        return failed_row(name, changed.title, looked.failures[name])
    seen = looked.seen[name]
    row = seen_row(name, changed.title, seen)
    if why := wrongness(changed.tolerance, seen, baseline):
        return wrong_row(row, why)
    return uncompared(row, "same program", SAME_PROGRAM) if seen.is_same_program(baseline) else row


def _of_sensitivity(changed: ChangedCase, seen: Observation) -> Facts:
    if (seen.rounding_rel or 0.0) <= (changed.tolerance or seen.bound) / ROUNDINGS:
        return ()
    moved = f"rounding the inputs alone moves the results of a run in float64 by {percent(seen.rounding_rel or 0.0)}"
    return (("sensitive", moved),)


def measure_ways(
    name: str,
    title: str,
    case: Case,
    ways: Ways[ChangedCase],
    lab: WorkerLab,
    looks: tuple[int, ...] | None = None,
    facts: Callable[[Observation], Facts] = lambda seen: (),
) -> tuple[VariantRow, ...]:
    """A row of `case`, which is the baseline here, and one of each way, compared with it. Without any way that can be
    made, only their reasons.

    Args:
        facts: the facts of the baseline.
    """
    found, looked = compare_ways(name, title, case, ways, lab, looks)
    if found.baseline.status == "failed":
        return (found.baseline, *found.rows)
    if ways.keys().isdisjoint({*looked.seen, *looked.failures}):
        return found.rows
    baseline = replace(found.baseline, facts=facts(looked.seen[name]))
    return (uncompared(baseline, BASELINE_OF_GROUP, title), *found.rows)
