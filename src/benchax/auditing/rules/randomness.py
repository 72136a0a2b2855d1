"""Random keys."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import replace

import jax

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.log import grouped
from benchax.auditing.recorder.views import keys_used_twice
from benchax.auditing.rule import Match, list_some, rule
from benchax.auditing.syntax import made_at, where_of
from benchax.program.index import KEEPS, Body, TracedOp, TracedProgram, Value
from benchax.program.jaxpr import frames_inside, line_apart, line_of_vmap
from benchax.results.audit import Where
from benchax.units import plural

CONSUMES = {"random_bits": "drawn from", "random_split": "split"}
SAME_KEY = KEEPS | {"random_wrap", "random_unwrap", "convert_element_type"}
RECOMPUTED = ("rematted_computation", "checkpoint/", "transpose(")
"""Scopes in which a forward pass is computed again: the same numbers are wanted there."""
ADVICE = (
    "Use each key once: key, other = jax.random.split(key), or jax.random.fold_in(key, i) with a number that differs "
    "each time."
)


@rule("key-reuse", "is each random key used once?", "warning", traced=True)
def key_reuse(e: Evidence) -> Iterable[Match]:
    """Finds random keys that are used twice: the numbers that are drawn with them are equal or depend on each other."""
    program = e.program
    yield from _used_twice(e, program)
    draws = (op for op in program.ops if op.name == "random_bits")
    for body, ops in grouped(draws, lambda op: _loop_around(op.body)).items():
        if body.is_loop:
            yield from _same_each_time(e, body, ops, (), f"each of {body.trips or 'its'} iterations")
        elif e.use.repeated:
            yield from _same_each_call(e, body, ops)
    yield from _same_in_each_row(e, program)


@key_reuse.in_program
def _used_by_hand(e: ProgramEvidence) -> Iterable[Match]:
    """Finds keys used twice that functions of `jax.random` were given outside of jit."""
    told: set[str] = set()
    for events in keys_used_twice(e.log):
        uses = Counter((event.by, event.where) for event in events)
        # One is enough of many keys that go the same way through the program.
        if events[-1].where not in told:
            told.add(events[-1].where)
            yield Match(
                f"one key is used {plural(len(events), 'time')}",
                list_some([f"{by} at {where}{f', {n} times' if n > 1 else ''}" for (by, where), n in uses.items()]),
                ADVICE,
                where=where_of(events[-1].where),
                related=[("also used here", where_of(where)) for _, where in uses]
                + [place for where in {one for _, one in uses} for place in made_at(where_of(where), "", "key")],
            )


def _used_twice(e: Evidence, program: TracedProgram) -> Iterable[Match]:
    uses = (op for op in program.ops if op.name in CONSUMES and not any(s in f"{op.scope}/" for s in RECOMPUTED))
    for every in grouped(uses, lambda op: program.numbers[op.reads[0].back(SAME_KEY)]).values():
        # Of the branches of one cond only one runs.
        ops = [op for op in every if any(one is not op and not _exclude(one, op) for one in every)]
        if ops:
            last = where_of(line_apart(ops[-1].outermost, ops[0].outermost) or ops[-1].line)
            n = max(sum(one is op or not _exclude(one, op) for one in ops) for op in ops)
            yield Match(
                f"one key is used {plural(n, 'time')}",
                list_some([f"{CONSUMES[op.name]}{op.at}" for op in ops]),
                ADVICE,
                where=last,
                related=[*(("also used here", where_of(op.line)) for op in ops), *made_at(last, "", "key")],
            )


def _exclude(one: TracedOp, other: TracedOp) -> bool:
    """Are they in different branches of one cond?"""
    branches = dict(_branches_around(one.body))
    return any(cond in branches and branches[cond] is not branch for cond, branch in _branches_around(other.body))


def _branches_around(body: Body) -> Iterable[tuple[TracedOp, Body]]:
    while body.op is not None:
        if body.kind == "branch":
            yield body.op, body
        body = body.op.body


def _loop_around(body: Body) -> Body:
    """The innermost loop that a body is in, or the program."""
    while body.op is not None and not body.is_loop:
        body = body.op.body
    return body


def _same_each_time(
    e: Evidence, body: Body, draws: list[TracedOp], same: Collection[Value], when: str
) -> Iterable[Match]:
    """Names each line of the body that draws or passes a key on, and the draws behind it.

    Args:
        same: inputs of the body that are the same each time, besides values from outside.
    """
    by_line: dict[Where | None, list[tuple[TracedOp, list[Where]]]] = defaultdict(list)
    for op in draws:
        roots, inside = op.reads[0].roots, {body, op.body, *(branch for _, branch in _branches_around(op.body))}
        varies = any(root.body in inside and root.const is None and root not in same for root in roots)
        if not varies and any(map(_is_key, roots)):
            frames = frames_inside(op.outermost, body.op.equation) if body.op is not None else []
            way = [(frame.file, frame.line) for frame in frames]
            by_line[way[0] if way else where_of(op.line)].append((op, way))
    for where, found in by_line.items():
        drawn = dict.fromkeys(f"{op.makes[0].spec} is drawn{op.at}" for op, _ in found)
        yield Match(
            f"{when} draws the same random numbers",
            list_some([f"{one}, with a key that is the same in {when}" for one in drawn]),
            ADVICE,
            where=where,
            related=[("on the way to the draw", line) for _, way in found for line in way],
        )


def _same_each_call(e: Evidence, body: Body, draws: list[TracedOp]) -> Iterable[Match]:
    """Names the line that passes the key, once: the function does what it should with the key that it is given."""
    same = [value for i, value in enumerate(body.inputs) if i in e.use.repeated]
    # A key that the program holds is the same in each call, too, which is what its author wrote.
    drawn = [op for op in draws if any(root in same for root in op.reads[0].roots)]
    found = list(_same_each_time(e, body, drawn, same, "each call"))
    if not (found and e.use.called_at):
        yield from found
        return
    seen = [f"it is called at {e.use.called_at}", *(line for finding in found for line in finding.seen)]
    yield replace(
        found[0],
        seen=tuple(list_some(seen)),
        where=where_of(e.use.called_at),
        advice=f"Pass another key at {e.use.called_at} each time: split it there, or jax.random.fold_in(key, i) with "
        "the number of the iteration.",
    )


def _same_in_each_row(e: Evidence, program: TracedProgram) -> Iterable[Match]:
    """Names the call of what `jax.vmap` makes. Common random numbers can be wanted, so it is an info."""
    draws = (op for op in program.ops if op.name == "random_bits")
    # Under vmap a key has one axis for each level of it over which it varies.
    same = (op for op in draws if op.scope.count("vmap(") > len(op.reads[0].shape))
    for line, ops in grouped(same, lambda op: line_of_vmap(op.outermost) or op.line).items():
        drawn = dict.fromkeys(f"{op.makes[0].spec} is drawn{op.at}, once for all rows" for op in ops)
        yield Match(
            "each row of jax.vmap draws the same random numbers",
            list_some(list(drawn)),
            "Give each row a separate key: jax.random.split(key, n), with in_axes=0 for it. If all rows are meant to "
            "see the same numbers, nothing needs to be done.",
            where=where_of(line),
            severity="info",
        )


def _is_key(value: Value) -> bool:
    is_raw = str(value.dtype) == "uint32" and value.shape[-1:] in ((2,), (4,))
    return is_raw or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
