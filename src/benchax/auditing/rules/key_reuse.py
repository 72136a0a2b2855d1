"""Finds random keys that are used twice: numbers that are drawn with them are the same, or depend on one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import jax

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.key_lines import line_that_chooses
from benchax.auditing.named_lines import named_again_at
from benchax.auditing.places import made_at
from benchax.auditing.recorder.views import keys_used_twice
from benchax.auditing.rule import list_some, rule
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr
from benchax.program.jaxpr import frames_inside, line_apart, line_of_vmap
from benchax.results.audit import Finding, Where
from benchax.units import plural

CONSUMES = {"random_bits": "drawn from", "random_split": "split"}
SAME_KEY = ("random_wrap", "random_unwrap", "convert_element_type", "reshape", "squeeze", "expand_dims", "copy")
TAKES = ("slice", "dynamic_slice", "unstack", "index_in_dim")
RECOMPUTED = ("rematted_computation", "checkpoint/", "transpose(")
"""Scopes in which a forward pass is computed again: the same numbers are wanted there."""
ADVICE = (
    "Use each key once: key, other = jax.random.split(key), or jax.random.fold_in(key, i) with a number that differs "
    "each time."
)


@rule("key-reuse", "is each random key used once?", "warning", of="both", needs_trace_only=True)
def key_reuse(e: Evidence | ProgramEvidence) -> Iterable[Finding]:
    if isinstance(e, ProgramEvidence):
        yield from _used_by_hand(e)
        return
    for i, body in enumerate(bodies(closed_jaxpr(e))):
        yield from _used_twice(e, body)
        if body.is_loop:
            constant = frozenset(range(body.constants))
            yield from _same_each_time(e, body, constant, f"each of {body.trips or 'its'} iterations")
        elif i == 0 and e.repeated_inputs:
            yield from _same_each_call(e, body)
        yield from _same_in_each_row(e, body)


def _used_by_hand(e: ProgramEvidence) -> Iterable[Finding]:
    """Finds keys used twice that functions of `jax.random` were given outside of jit."""
    told: set[str] = set()
    for events in keys_used_twice(e.log):
        uses = Counter((event.by, event.where) for event in events)
        # Of many keys that go the same way through the program, one is enough.
        if events[-1].where not in told:
            told.add(events[-1].where)
            yield key_reuse.finding(
                f"one key is used {plural(len(events), 'time')}",
                list_some([f"{by} at {where}{f', {n} times' if n > 1 else ''}" for (by, where), n in uses.items()]),
                ADVICE,
                where=where_of(events[-1].where),
                related=[("also used here", where_of(where)) for _, where in uses]
                + [place for where in {one for _, one in uses} for place in made_at(where_of(where), "", "key")],
            )


def _used_twice(e: Evidence, body: Body) -> Iterable[Finding]:
    uses: dict[Any, list[TracedEquation]] = {}
    for step in body.program.steps:
        if step.name in CONSUMES and not any(scope in f"{step.scope}/" for scope in RECOMPUTED):
            uses.setdefault(_identify(body, step.reads[0]), []).append(step)
    for steps in uses.values():
        if len(steps) > 1:
            last = where_of(line_apart(steps[-1].outermost, steps[0].outermost) or steps[-1].line)
            yield key_reuse.finding(
                f"one key is used {plural(len(steps), 'time')}",
                list_some([f"{CONSUMES[step.name]}{step.at}" for step in steps]),
                ADVICE,
                where=named_again_at(where_of(steps[0].line), last) or last or e.def_where,
            )


def _identify(body: Body, value: TracedValue) -> Any:
    """Equal for values that are the same key, as keys[0] is each time that it is written."""
    step = body.maker(value)
    if step is None:
        return id(value)
    if step.name in SAME_KEY:
        return _identify(body, step.reads[0])
    literals = tuple(str(one.literal) for one in step.reads[1:])
    if step.name in TAKES and all(one.literal is not None for one in step.reads[1:]):
        at = next(i for i, made in enumerate(step.makes) if made is value)
        return step.name, str(step.equation.params), literals, at, _identify(body, step.reads[0])
    return id(value)


def _same_each_time(e: Evidence, body: Body, constant: frozenset[int], when: str) -> Iterable[Finding]:
    """Tells, of each line that chooses a key, what is drawn with it: what that line calls does what it should with the
    key that it is given."""
    by_line: dict[Where | None, list[TracedEquation]] = {}
    for step in body.program.steps:
        if step.name == "random_bits":
            sources = body.sources(step.reads[0])
            if sources and sources <= constant and any(_is_key(body.program.inputs[i]) for i in sources):
                frames = frames_inside(step.outermost, body.of.equation) if body.of is not None else []
                by_line.setdefault(line_that_chooses(frames) or where_of(step.line), []).append(step)
    for where, steps in by_line.items():
        drawn = dict.fromkeys(f"{one.makes[0].spec} is drawn{one.at}" for one in steps)
        yield key_reuse.finding(
            f"{when} draws the same random numbers",
            list_some([f"{one}, with a key that is the same in {when}" for one in drawn]),
            ADVICE,
            where=where or e.def_where,
        )


def _same_in_each_row(e: Evidence, body: Body) -> Iterable[Finding]:
    """Tells the call of what `jax.vmap` makes: common random numbers may be wanted, so it is an info."""
    by_line: dict[str, list[TracedEquation]] = {}
    for step in body.program.steps:
        # Under vmap a key has one axis for each level of it over which it varies.
        if step.name == "random_bits" and step.scope.count("vmap(") > len(step.reads[0].shape):
            by_line.setdefault(line_of_vmap(step.outermost) or step.line, []).append(step)
    for line, steps in by_line.items():
        drawn = dict.fromkeys(f"{one.makes[0].spec} is drawn{one.at}, once for all rows" for one in steps)
        yield key_reuse.finding(
            "each row of jax.vmap draws the same random numbers",
            list_some(list(drawn)),
            "Give each row a key of its own: jax.random.split(key, n), with in_axes=0 for it. Where all rows are meant "
            "to see the same numbers, all is well.",
            where=where_of(line) or e.def_where,
            severity="info",
        )


def _same_each_call(e: Evidence, body: Body) -> Iterable[Finding]:
    """Tells the line that passes the key, once: the function does what it should with the key that it is given."""
    found = list(_same_each_time(e, body, e.repeated_inputs, "each call"))
    if not (found and e.called_at):
        yield from found
        return
    drawn = [seen for finding in found for seen in finding.seen]
    yield replace(
        found[0],
        seen=tuple(list_some([f"it is called at {e.called_at}", *drawn])),
        where=where_of(e.called_at),
        advice=f"Pass another key at {e.called_at} each time: split it there, or jax.random.fold_in(key, i) with the "
        "number of the iteration.",
    )


def _is_key(value: TracedValue) -> bool:
    if jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key):
        return True
    return str(value.dtype) == "uint32" and value.shape[-1:] in ((2,), (4,))
