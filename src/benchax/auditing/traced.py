"""The decorator, the finding, and the known values of rules that query the index of a traced program.

A rule is a function that gets the index and the evidence, and yields `Match` for each operation that it finds. The
engine keeps one finding for each line, leaves out operations of reverse-mode derivatives, times the alternative in
pairs, and names the line.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchax.auditing.evidence import Evidence
from benchax.auditing.places import Place
from benchax.auditing.rule import Gain, Rule, gain_of_part, try_variant, with_bytes
from benchax.auditing.syntax import where_of
from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.model import Severity
from benchax.program.evaluate import evaluate, look_up
from benchax.program.index import TracedOp, TracedProgram, Value, index
from benchax.results.audit import Finding, Where
from benchax.results.inspection import JaxprFacts
from benchax.units import size

MOST_OPERATIONS = 500
"""Operations behind values that are computed again; more take long to compile."""


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
    """A find of a rule at one operation."""

    op: TracedOp
    title: str
    seen: Sequence[str]
    advice: str
    instead: Instead | None = None
    gain: Gain | None = None
    """If nothing is timed, or nothing came of it."""
    bytes_saved: int = 0
    """Memory that is saved at most."""
    severity: Severity | None = None
    """None: the rule's own."""
    at: Where | None = None
    """None: the line of the operation."""
    related: Sequence[Place] = ()
    """Other lines that have to do with it."""


Query = Callable[[TracedProgram, Evidence], Iterable[Match]]


def traced_rule(
    id: str,
    title: str,
    severity: Severity,
    *,
    known_on: str = "",
    of_each_line: bool = True,
    keeps_backward: bool = False,
    pack: str = "",
) -> Callable[[Query], Rule]:
    """Makes a rule of a query.

    Args:
        known_on: the one platform whose measurements the rule goes by; on others its findings are "not measured".
        keeps_backward: operations that a reverse-mode derivative has made are findings, too.
        of_each_line: one finding for each line. A derivative, or a second trace, makes an operation again.
        pack: the rule is asked only by the name of this pack, or by its own.
    """

    def make(query: Query) -> Rule:
        def find(e: Evidence) -> Iterator[Finding]:
            lines: set[object] = set()
            for found in query(program_of(e), e):
                line = found.op.line
                is_left_out = found.op.is_backward and not keeps_backward
                if is_left_out or (of_each_line and line in lines):
                    continue
                if known_on and e.platform != known_on:
                    raise NotMeasured(f"what it costs is known on {known_on}, not on {e.platform}")
                lines.add(line)
                yield _finding(made, e, found)

        find.__name__, find.__doc__ = query.__name__, query.__doc__
        made = Rule(id, title, severity, "function", True, find, pack)
        return made

    return make


def _finding(made: Rule, e: Evidence, found: Match) -> Finding:
    seen, gain, instead = list(found.seen), found.gain, found.instead
    if instead is not None:
        now, better = (
            make_case(fn, instead.inputs, name=fn.__name__.strip("_"), static=instead.static)
            for fn in (instead.now, instead.better)
        )
        tried = try_variant(e, instead.name, better, now)
        seen.append(tried.sentence)
        gain = gain_of_part(e, tried.gain, instead.part) or gain
    if found.bytes_saved:
        gain = with_bytes(gain, found.bytes_saved, f"estimated: at most {size(found.bytes_saved)} of memory")
    where = found.at or where_of(found.op.line) or e.def_where
    return made.finding(
        found.title, seen, found.advice, where=where, related=found.related, gain=gain, severity=found.severity
    )


def program_of(e: Evidence) -> TracedProgram:
    """The index of the function that is audited.

    Raises:
        NotMeasured: it is a wrapper without a separate step of tracing.
    """
    return index(e.closed_jaxpr)


def jaxpr_facts(e: Evidence) -> JaxprFacts:
    """Returns the counts of the jaxpr.

    Raises:
        NotMeasured: the jaxpr is out of reach.
    """
    return e.inspected("jaxpr")


def arrays_of_call(e: Evidence) -> dict[Value, Any]:
    """The inputs of one call that were kept, by the values of the index."""
    pairs = zip(program_of(e).inputs, e.data, strict=False)
    return {value: array for value, array in pairs if array is not None}


def compute_values(e: Evidence, values: Sequence[Value]) -> list[np.ndarray]:
    """Computes these values for the call whose inputs were kept.

    They are computed again, compiled, without effects, and only what they are made of.

    Raises:
        NotMeasured: none were kept, or they are in a loop or branch, or too much is behind them.
    """
    body, given = program_of(e).body, arrays_of_call(e)
    if any(value.body is not body for value in values):
        raise NotMeasured("it is in a loop or branch, whose values were not computed")
    if len(e.data) != len(body.inputs):
        raise NotMeasured("what it was called with was not kept, which is done of small arrays")
    behind = {one for value in values for one in value.behind()}
    makers = {one.maker for one in behind if one.maker is not None}
    if len(makers) > MOST_OPERATIONS:
        raise NotMeasured(f"it is made by {len(makers)} operations, which were not computed again")
    needed = [value for value in body.inputs if value in behind]
    if any(value not in given for value in needed):
        raise NotMeasured("an array that it depends on was too large to be kept")
    ops = [op for op in body.ops if op in makers]

    def compute(*inputs: Any) -> list[Any]:
        known = evaluate(ops, dict(zip(needed, inputs, strict=True)))
        return [look_up(known, value) for value in values]

    # NumPy doesn't know the dtypes of random keys.
    inputs = [given[v] if v.is_of(jax.dtypes.extended) else np.asarray(given[v], v.dtype) for v in needed]
    return [np.asarray(one) for one in jax.jit(compute)(*inputs)]


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
    arguments do not match the inputs one by one, as under a library's jit."""
    n = len(e.closed_jaxpr.in_avals)
    if e.recorded is not None and len(e.recorded.input_names) == n:
        return list(e.recorded.input_names)
    args, kwargs = e.given
    parameters = _parameters(e)
    named = [
        *((parameters[i] if i < len(parameters) else f"argument {i}", value) for i, value in enumerate(args)),
        *sorted(kwargs.items()),
    ]
    static = {*e.case.static, *(parameters[i] for i in e.case.static if isinstance(i, int) and i < len(parameters))}
    paths = [
        name + jax.tree_util.keystr(path)
        for i, (name, value) in enumerate(named)
        if name not in static and not (i < len(args) and i in static)
        for path, _ in jax.tree_util.tree_leaves_with_path(value)
    ]
    return paths if len(paths) == n else [f"input {i}" for i in range(n)]


def _parameters(e: Evidence) -> list[str]:
    try:
        return list(inspect.signature(e.fn).parameters)
    except (TypeError, ValueError):  # builtins have no signature
        return []
