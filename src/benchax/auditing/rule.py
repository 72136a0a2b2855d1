"""The definition of a rule: a function that asks one question about a function or a program, from its evidence.

It looks at `Evidence` or `ProgramEvidence` and yields what it finds, or nothing if all is well. If it cannot apply, it
raises `NotApplicable`. If a reading is missing, `NotMeasured` passes through, and the audit says so. A new rule is a
function in a module of `auditing/rules/`:

    @rule("sort-top-k", "are the few largest elements selected without a sort?", "warning", traced=True)
    def sort_top_k(e: Evidence) -> Iterator[Match]:
        for op in e.program.find("sort"):
            ...
            yield Match("sorts 4096 elements and uses 8", seen, advice, op=op, instead=Instead(...))

and a page, `docs/reference/rules/<id>.md`, and programs in `tests/auditing/programs/<id>/`. There is no list to edit.

A rule queries the index of the traced program (`e.program`), or the log of a run (`e.log`), and yields a `Match` for
each find. `Rule.check` does the rest. It decides the severity by `lost` or `work`, and keeps one finding for each line.
It leaves out operations of reverse-mode derivatives, times the alternative in pairs, and names the line.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import jax
import numpy as np

from benchax.auditing.evidence import Evidence, NotApplicable, ProgramEvidence
from benchax.auditing.evidence import refuse_failed as refuse_failed
from benchax.auditing.syntax import Place, Spot, where_of
from benchax.case import Case, make_case
from benchax.errors import NotMeasured
from benchax.experiments.lab import ChangedCase, Observation
from benchax.experiments.variant import saved_s, speedup
from benchax.model import Comparison, Measurement, Severity
from benchax.printable import MOST_LISTED as MOST_LISTED
from benchax.printable import list_some as list_some
from benchax.program.evaluate import compute
from benchax.program.index import TracedOp, Value
from benchax.results.audit import Finding, Where
from benchax.source_files import owner_of
from benchax.units import seconds

RuleSubject = Literal["function", "program", "both"]


FELT, LARGE = 0.005, 0.05
"""Shares of a run or call. Below the first a finding is not worth a line: two runs of one program differ by more. From
the second on it is worth a warning: that is where the CI recipes of `benchax compare` fail (docs/how-to/ci.md)."""
FEW_OPERATIONS = 1 << 18
"""Counted from shapes. This many take 9 to 37 µs as tanh, a product, a sum, or a Cholesky factor. A near-empty call
takes 4 µs (float32, jaxlib 0.12.0, CPU, two busy cores)."""


def grade(lost: float, of: float | None) -> Severity | None:
    """The severity of a finding by its cost: seconds or bytes lost, as a share of the run or call.

    One rule for all findings about cost. None: not worth a line. Time and memory are warnings at most; an error is a
    wrong result or a failure, and the rule states it.

    Args:
        of: the whole; None if unknown, which makes it a warning.
    """
    if of is None or lost >= LARGE * of:
        return "warning"
    return "info" if lost >= FELT * of else None


@dataclass(frozen=True)
class Instead:
    """Two functions that do the same: as it is, and better. They are timed in pairs."""

    name: str
    """The name of the better one, for a sentence: "a lookup"."""
    part: str
    """The work of both, for the gain: "this product"."""
    now: Callable[..., Any]
    better: Callable[..., Any]
    inputs: tuple[Any, ...]
    static: tuple[int, ...] = ()


@dataclass(frozen=True)
class Match:
    """A find of a rule."""

    title: str
    seen: Sequence[str]
    advice: str = ""
    """Empty: the rule's."""
    where: Spot = None
    """The line to change. None: the line of `op`, or the first related line, or the `def` of the function."""
    related: Iterable[Place] = ()
    """Other lines, each with what happens there: ("called here", …)."""
    op: TracedOp | None = None
    """The operation that it is about."""
    instead: Instead | None = None
    gain: Gain | None = None
    """If nothing is timed, or nothing came of it. Its bytes are saved in any case."""
    lost: tuple[float, float | None] | None = None
    """(lost, whole): seconds or bytes that it costs, and that the run or call takes. `grade` decides the severity."""
    work: tuple[float, float] | None = None
    """The same of operations, counted from shapes. Fewer than `FEW_OPERATIONS` are nothing; if nothing is timed, so is
    less than `LARGE`."""
    severity: Severity | None = None
    """None: as `lost` says, or the rule."""


@dataclass(eq=False)
class Rule:
    """One question, and the functions that answer it."""

    id: str
    """In kebab-case: not-jitted. Its page is docs/reference/rules/<id>.md."""
    title: str
    """The question, in a line: "is it compiled as a whole?"."""
    severity: Severity
    """The severity of its findings, where they do not say another."""
    of: RuleSubject
    """The subject of the rule: one function (`Evidence`), a program that ran (`ProgramEvidence`), or either."""
    find: Callable[[Any], Iterable[Match]]
    """Finds problems in evidence of such a subject; it yields nothing if all is well."""
    advice: str = ""
    """The advice, if all its findings have the same."""
    traced: bool = False
    """Needs no more of a function than its jaxpr and its source: so every function of a program can be asked about."""
    known_on: str = ""
    """The one platform whose measurements the rule goes by; on others its findings are "not measured"."""
    keeps_backward: bool = False
    """Operations that a reverse-mode derivative has made are findings, too."""
    pack: str = ""
    """Empty: it is asked by default. Otherwise only by the name of this pack, or by its own."""
    find_in_program: Callable[[ProgramEvidence], Iterable[Match]] | None = None

    def in_program(self, find: Callable[[ProgramEvidence], Iterable[Match]]) -> Callable[..., Iterable[Match]]:
        """Decorates the function that answers the question about a program; the rule's own is about one function."""
        self.of, self.find_in_program = "both", find
        return find

    def check(self, e: Evidence | ProgramEvidence) -> Iterable[Finding]:
        """Yields its findings.

        Raises:
            NotApplicable: it has nothing to say about this function or program.
            NotMeasured: a reading that it needs could not be taken.
        """
        is_program = isinstance(e, ProgramEvidence)
        if self.of == ("function" if is_program else "program"):
            told = "a program is audited, not one function with its inputs"
            raise NotApplicable(told if is_program else "one function is audited, not a program")
        return self._findings(e, (self.find_in_program if is_program else None) or self.find)

    def _findings(self, e: Any, find: Callable[[Any], Iterable[Match]]) -> Iterator[Finding]:
        lines, refuted, is_found = set[str](), list[str](), False
        for match in find(e):
            op, severity = match.op, self._severity(match)
            is_left_out = op is not None and ((op.is_backward and not self.keeps_backward) or op.line in lines)
            if is_left_out or severity is None:
                continue
            if op is not None:
                lines.add(op.line)
            if self.known_on and e.platform != self.known_on:
                raise NotMeasured(f"what it costs is known on {self.known_on}, not on {e.platform}")
            found = self._finding(e, match, match.severity or severity)
            if isinstance(found, Finding):
                is_found = True
                yield found
            else:
                refuted.append(found)
        if refuted and not is_found:
            raise NotApplicable("; ".join(dict.fromkeys(refuted)))

    def _severity(self, match: Match) -> Severity | None:
        """By the cost of a match, if it tells any."""
        cost = match.lost or match.work
        found = grade(*cost) if cost is not None else self.severity
        if match.work is not None and (match.work[0] < FEW_OPERATIONS or (found == "info" and match.instead is None)):
            return None
        return found

    def _finding(self, e: Any, match: Match, severity: Severity) -> Finding | str:
        """The finding; or the measured result, if the advice was timed and is not faster."""
        seen, gain, instead = list(match.seen), match.gain or Gain(), match.instead
        if instead is not None:
            now, better = (
                make_case(fn, instead.inputs, name=name, static=instead.static)
                for name, fn in (("now", instead.now), ("better", instead.better))
            )
            tried = try_variant(e, instead.name, better, now)
            timed = tried.comparison
            if timed is not None and timed.verdict in ("same", "slower") and not gain.bytes:
                return tried.sentence
            seen.append(tried.sentence)
            of_part = gain_of_part(e, tried.gain, instead.part)
            gain = with_bytes(of_part, gain.bytes, gain.text or "") if gain.bytes else of_part or gain
        others = [(label, place) for label, at in match.related if (place := where_of(at)) and _is_yours(place)]
        own = where_of(match.where) or (where_of(match.op.line) if match.op is not None else None)
        defined = None if isinstance(e, ProgramEvidence) else e.def_where
        lines = (own, *(place for _, place in others), defined)
        where = next((line for line in lines if line is not None and _is_yours(line)), None)
        places = dict.fromkeys((label, *place) for label, place in others if place != where)
        return Finding(
            self.id, severity, match.title, tuple(seen), match.advice or self.advice, page_of(self.id), where,
            gain.text, gain.seconds, gain.bytes, tuple(places),
        )  # fmt: skip


def _is_yours(place: Where) -> bool:
    """Is it a line that you could look at? None inside of benchax or JAX is."""
    return owner_of(place[0]) not in ("benchax", "jax")


def rule(
    id: str, title: str, severity: Severity, *, of: RuleSubject = "function", **settings: Any
) -> Callable[[Callable[[Any], Iterable[Match]]], Rule]:
    """Makes a rule of a function that looks at evidence; the arguments are the fields of `Rule`."""
    return lambda find: Rule(id, title, severity, of, find, **settings)


def name_leaves(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Each leaf of the arguments of a call with its path: args[0]['w']."""
    leaves = jax.tree.leaves_with_path((tuple(args), dict(kwargs)))
    return [(f"{('args', 'kwargs')[path[0].idx]}{jax.tree_util.keystr(path[1:])}", leaf) for path, leaf in leaves]


def page_of(rule_id: str) -> str:
    return f"docs/reference/rules/{rule_id}.md"


@dataclass(frozen=True)
class Gain:
    """The gain from following an advice, for each call."""

    text: str | None = None
    """Begins with "measured: " or "estimated: "."""
    seconds: float | None = None
    bytes: int | None = None


def measured_gain(c: Comparison) -> Gain | None:
    """Returns the gain of a better function over the unchanged one (baseline), or None unless it is faster."""
    if c.verdict != "faster" or c.baseline_value is None or c.ratio is None:
        return None
    saved = saved_s(c, c.ratio)
    now, then = seconds(c.baseline_value), seconds(c.baseline_value - saved)
    return Gain(f"measured: {now} → {then} per call ({speedup(c)})", saved)


def require_decided(c: Comparison, what: str) -> Comparison:
    """A comparison that says something: "nothing found" must not come of one that could not tell.

    Args:
        what: it was of: "jax.jit".

    Raises:
        NotMeasured: it is unclear.
    """
    if c.verdict != "unclear":
        return c
    seen = f" ({speedup(c)})" if c.ratio else ""
    raise NotMeasured(f"the comparison with {what} is undecided{seen}{f': {c.why}' if c.why else ''}")


def median_s(m: Measurement) -> float:
    """The median time of a call as Python makes it, waiting for its outputs, which eager functions have as well.

    Raises:
        NotMeasured: there is no median time.
    """
    return m.summary("wall").median_s


class Tried(NamedTuple):
    """The result of a comparison."""

    gain: Gain | None
    """None unless the variant is faster."""
    sentence: str
    """The measured result, or why there is no measurement."""
    comparison: Comparison | None


def try_variant(e: Evidence, name: str, variant: Case, baseline: Case | None = None) -> Tried:
    """Compares run times. Nothing measured is a sentence here, for the finding has other evidence."""
    try:
        comparison = e.compare(name, variant, baseline)
    except NotMeasured as error:
        return Tried(None, f"{name}: gain not measured, because {error.problem}", None)
    return Tried(measured_gain(comparison), f"{name}: {_describe(comparison)}", comparison)


def gain_of_part(e: Evidence, gain: Gain | None, what: str) -> Gain | None:
    """Returns the gain of a part that was compared by itself. It is at most the time of a call, if that is known."""
    if gain is None or gain.text is None:
        return None
    saved = gain.seconds
    with contextlib.suppress(NotMeasured, NotApplicable):
        saved = None if saved is None else min(saved, median_s(e.measurement))
    return Gain(f"{gain.text}, of {what} alone", saved, gain.bytes)


def _describe(c: Comparison) -> str:
    unclear = f"time unclear{f': {c.why}' if c.why else ''}"
    known = {"unclear": unclear, "same": "as fast as before"}
    return known.get(c.verdict) or f"{c.verdict} ({speedup(c)})"


def with_bytes(gain: Gain | None, size_bytes: int, text: str) -> Gain:
    """A gain that has bytes too; `text` says so without time, and begins with "measured: " or "estimated: "."""
    if gain is None or gain.text is None:
        return Gain(text, None, size_bytes)
    added = text.partition(": ")
    return replace(gain, text=f"{gain.text}; {added[2] if gain.text.startswith(added[0]) else text}", bytes=size_bytes)


def probe(e: Evidence, name: str, variant: Case) -> tuple[Observation, Observation]:
    """(the function, the variant), each built and run once in another process, with their errors against float64.

    Raises:
        NotMeasured: one of them fails there, or the function may not be called.
    """
    sides = {"as it is": ChangedCase(e.plain_case), name: ChangedCase(variant)}
    found = e.lab().study(sides)
    for side in sides:
        if side not in found.seen:
            failure = found.failures.get(side) or found.failures.get("as it is")
            raise NotMeasured(f"{side} fails: {failure.message if failure else 'no answer'}")
    return found.seen["as it is"], found.seen[name]


def arrays_of_call(e: Evidence) -> dict[Value, Any]:
    """The inputs of one call that were kept, by the values of the index."""
    pairs = zip(e.program.inputs, e.data, strict=False)
    return {value: array for value, array in pairs if array is not None}


def compute_values(e: Evidence, values: Sequence[Value]) -> list[np.ndarray]:
    """Computes these values for the call whose inputs were kept.

    They are computed again, compiled, without effects, and only what they are made of.

    Raises:
        NotMeasured: none were kept, or they are in a loop or branch, or too much is behind them.
    """
    body, given = e.program.body, arrays_of_call(e)
    if any(value.body is not body for value in values):
        raise NotMeasured("it is in a loop or branch, whose values were not computed")
    if len(e.data) != len(body.inputs):
        raise NotMeasured("its arguments were not kept, because only small arrays are")
    behind = {one for value in values for one in value.behind()}
    needed = [value for value in body.inputs if value in behind]
    if any(value not in given for value in needed):
        raise NotMeasured("an array that it depends on was too large to be kept")
    # NumPy doesn't know the dtypes of random keys.
    inputs = [given[v] if v.is_of(jax.dtypes.extended) else np.asarray(given[v], v.dtype) for v in needed]
    found = jax.jit(lambda *inputs: compute(values, dict(zip(needed, inputs, strict=True))))(*inputs)
    return [np.asarray(one) for one in found]


def is_written(conversion: TracedOp) -> bool:
    """Is this conversion written in the program, rather than made by JAX's promotion? True also if JAX's frames, which
    it doesn't document, cannot be read (tried on jax 0.10.2 to 0.12.0.1): without knowing there is no finding."""
    try:
        frames = conversion.equation.source_info.traceback.frames
    except AttributeError:
        return True
    return any(frame.function_name in ("astype", "convert_element_type", "asarray", "array") for frame in frames)


def name_inputs(e: Evidence) -> list[str]:
    """The name of each input of the program, as its author wrote it: `state.f`, `batch['x']`. It is "input 3" if
    neither JAX nor the call tells it, as under a library's jit."""
    n, names = len(e.closed_jaxpr.in_avals), e.recorded.input_names if e.recorded is not None else ()
    if len(names) != n:
        names = getattr(e.closed_jaxpr.jaxpr.debug_info, "arg_names", None) or ()
    return (
        [name or f"input {i}" for i, name in enumerate(names)] if len(names) == n else [f"input {i}" for i in range(n)]
    )
