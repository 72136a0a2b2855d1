"""Dtypes that lose digits, or that are wider than needed; random keys that are used twice."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from functools import cache

import jax
import jax.numpy as jnp

from benchax.auditing.evidence import Evidence, ProgramEvidence
from benchax.auditing.recorder.hooks import WIDE
from benchax.auditing.recorder.log import Carried, keys_used_twice
from benchax.auditing.rule import Gain, Match, NotApplicable, is_written, list_some, name_inputs, probe, rule
from benchax.auditing.syntax import made_at, named_at, where_of
from benchax.errors import NotAvailable, NotMeasured
from benchax.experiments.rewriting import ADDITIONS, LOW
from benchax.experiments.variant import scientific
from benchax.experiments.variants import VARIANTS
from benchax.grouping import group_by
from benchax.model import find_why
from benchax.program.index import CONVERTS, KEEPS, REPEATS, Body, TracedOp, TracedProgram, Value, list_ahead
from benchax.program.jaxpr import frames_inside, line_apart, line_of_vmap
from benchax.results.audit import Where
from benchax.units import count, plural, size

PASSES = KEEPS | CONVERTS
SCATTERS = ("scatter-add", "scatter_add")
BITS = {"bfloat16": 8, "float16": 11}
"""Digits of the mantissa, with the one that is not stored."""


LowSum = tuple[str, Value, TracedOp, float]
"""(for a sentence: "a loop adds up", the beginning of the sum, the operation that adds, the terms of one element on
average)"""


def low_sums(program: TracedProgram, carried: Carried) -> Iterator[LowSum]:
    """Sums of loops, outermost loops first, and what single scatters add. Then sums of a Python loop: results that come
    back as an argument with something added."""
    inputs, outputs = program.inputs, program.outputs
    for op in (op for op in program.ops if op.name == "scan"):
        for start, taken, returned in op.bodies[0].carries:
            if added := _added(returned, taken):
                yield "a loop adds up", start, added[1], op.params["length"] * added[0]
    for op in program.find(*SCATTERS):
        yield "a scatter adds up", op.reads[0], op, _terms(op)
    for i, j in carried.positions:
        if j < len(outputs) and (added := _added(outputs[j], inputs[i])):
            yield "calls in a loop add up", inputs[i], added[1], carried.calls * added[0]


def _added(returned: Value, carry: Value) -> tuple[float, TracedOp] | None:
    """(how many terms are added to a carry, the last addition). None if anything else is done to it. The terms must
    come from elsewhere; a step of an optimizer is made of the carry."""
    depending = list_ahead([carry])

    @cache
    def behind(value: Value) -> tuple[float, TracedOp | None] | None:
        op = value.maker
        if value is carry or op is None or value not in depending:
            return (0.0, None) if value is carry else None
        parts = [one for one in op.reads if one in depending]
        if op.name in PASSES:
            return behind(op.reads[0])
        if op.name == "select_n":
            sides = [behind(one) for one in op.reads[1:]]
            return max((side for side in sides if side), key=lambda side: side[0]) if all(sides) else None
        before, more = behind(parts[0]) if len(parts) == 1 else None, None
        if op.name in (*ADDITIONS, *SCATTERS):
            more = (_terms(op) if op.name in SCATTERS else 1.0), op
        elif op.name == "scan" and (at := op.makes.index(value)) < len(op.bodies[0].carries):
            start, taken, given = op.bodies[0].carries[at]
            before, inner = behind(start), _added(given, taken)
            more = inner and (op.params["length"] * inner[0], inner[1])
        return (before[0] + more[0], more[1]) if before and more else None

    found = behind(returned)
    return (found[0], found[1]) if found and found[1] is not None else None


def _terms(scatter: TracedOp) -> float:
    return scatter.reads[2].size / max(scatter.reads[0].size, 1)


# ---- low-precision-accumulation --------------------------------------------------------------------------------------

MANY = 256
"""Terms; from here on one more of the same size is less than half a digit of a sum in bf16."""
SUM_WIDE = (
    "Sum in float32: jnp.matmul(a, b, preferred_element_type=jnp.float32), jnp.sum(x, dtype=jnp.float32), in a loop a "
    "carry of float32; then convert the result. For its time, run: benchax experiment --variants accumulate-f32."
)


@rule("low-precision-accumulation", "are sums of bf16 and f16 accumulated in float32?", "warning", traced=True)
def low_precision_accumulation(e: Evidence) -> Iterable[Match]:
    """Finds sums and products of bf16 and f16 that are accumulated in bf16 and f16."""
    if not any(str(value.dtype) in LOW for op in e.program.ops for value in op.makes):
        raise NotApplicable("it computes nothing in bf16 or f16")
    if e.why_not_called:
        yield from _seen_in_loops(e, e.why_not_called)
        return
    try:
        variant = VARIANTS["accumulate-f32"].change(e.case, seed=e.seed).case
    except NotAvailable as error:
        raise NotApplicable(error.problem) from error
    as_it_is, widened = probe(e, "accumulated in float32", variant)
    now, wide = as_it_is.errors, widened.errors
    # Errors relative to the function itself do not show how exact it is.
    if now is None or wide is None or now.max_rel is None or wide.max_rel is None or now.reference != "float64":
        why = find_why((*as_it_is.absent, *widened.absent), "errors") or "its errors in float64 are not known"
        # A function that creates its carry in bf16 does not fit a run in float64, but still accumulates terms.
        yield from _seen_in_loops(e, why)
        return
    # An error of 0 cannot be made smaller; otherwise it has to lose one bit less.
    is_better = now.max_rel > 0 and now.max_rel >= 2 * wide.max_rel
    if not is_better and not now.overflows > wide.overflows:
        return
    change = f"{scientific(now.max_rel)} → {scientific(wide.max_rel)}"
    seen = [f"largest error against a run in float64: {change} of the largest value"]
    if now.overflows > wide.overflows:
        seen.append(f"infinite where float64 is finite: {now.overflows} → {wide.overflows}")
    gain = Gain(f"measured: error {change}")
    yield Match("sums lose digits that float32 would keep", seen, SUM_WIDE, gain=gain)


def _seen_in_loops(e: Evidence, why: str) -> Iterable[Match]:
    """Reads from the program how many terms a loop adds, which needs no comparison with float64."""
    for adds, start, added, terms in low_sums(e.program, e.use.carried):
        dtype, begun = str(start.dtype), start.back(KEEPS)
        if dtype not in LOW or terms < MANY:
            continue
        at, near = e.program.body.position(begun), added.line or e.def_where
        name = name_inputs(e)[at] if at is not None else ""
        made = made_at(e.use.called_at, getattr(e.fn, "__name__", ""), name)
        each = " for each element on average" if added.name in SCATTERS else ""
        places = [("begun here", begun.maker.line)] if begun.maker is not None else made
        yield Match(
            f"{adds} {int(terms)} terms in {dtype}",
            [
                f"{start.spec}{f', the argument {name}' if name else ''}, to which {int(terms)} terms{each} are added",
                *([f"added{added.at}"] if added.line else []),
                (
                    f"{dtype} has {BITS[dtype]} bits: a sum of equal terms stops growing after {2 ** BITS[dtype]}; the "
                    f"error was not measured, because {why}"
                ),
            ],
            SUM_WIDE,
            op=added,
            where=next((place for _, place in places), None),
            related=[*places, ("added here", near), *named_at(near, "the dtype is named here", dtype)],
        )
    raise NotMeasured(why)


# ---- weak-type-promotion ---------------------------------------------------------------------------------------------


@rule("weak-type-promotion", "do the types of scalars change those of arrays?", "warning")
def weak_type_promotion(e: Evidence) -> Iterable[Match]:
    """Finds strongly typed scalars that widen bf16 or f16, and weakly typed outputs that are fed back."""
    widened = [pair for op in e.program.ops for pair in _widened_by_scalars(op)]
    if widened:
        converts, meets = widened[0]
        added = sum(one.makes[0].size_bytes - one.reads[0].size_bytes for one, _ in widened)
        seen = [
            f"{one.reads[0].spec} becomes {one.makes[0].spec} for {other.name} with a strongly typed scalar{other.at}"
            for one, other in widened
        ]
        yield Match(
            f"a scalar widens {converts.reads[0].spec} to {converts.makes[0].dtype}",
            [*list_some(seen), f"{size(added)} more to compute with, as traced"],
            "Use a Python number, which is weakly typed and takes the dtype of the array, or give the scalar that "
            "dtype: scale.astype(x.dtype).",
            where=meets.line,
        )
    if e.why_not_called:  # whether a program feeds it back is known: compiled-twice reports what was compiled again
        return
    facts = e.inspected("jaxpr")
    strong = {i.spec: i.path for i in facts.inputs if not i.is_weak}
    # Only an output that looks like an input can be meant to be fed back.
    weak = [o for o in facts.outputs if o.is_weak and o.spec in strong]
    if weak:
        seen = [f"{o.path} is a weakly typed {o.spec}, {strong[o.spec]} a strongly typed one" for o in weak]
        yield Match(
            f"{len(weak)} outputs are weakly typed" if len(weak) > 1 else "an output is weakly typed",
            list_some(seen),
            "If you pass it to the next call, the function compiles a second time. Give it a dtype: "
            "jnp.asarray(value, dtype), jnp.full(shape, value, dtype).",
            severity="info",
        )


def _widened_by_scalars(op: TracedOp) -> Iterable[tuple[TracedOp, TracedOp]]:
    """(the conversion of an array, the operation with a scalar that it is made for)"""
    for value in op.reads if len(op.reads) > 1 else ():
        source = value.maker
        if source is None or source.name not in CONVERTS or not value.shape or str(value.dtype) in LOW:
            continue
        # In the jaxpr, `x.astype(f32) * s` looks the same. Only the frames show what the user wrote on purpose.
        if str(source.reads[0].dtype) in LOW and not is_written(source):
            scalars = (one.back(REPEATS | CONVERTS | KEEPS) for one in op.reads if one is not value)
            if any(not one.shape and one.is_of(jnp.floating) and str(one.dtype) not in LOW for one in scalars):
                yield source, op


# ---- float64-promotion -----------------------------------------------------------------------------------------------


@rule("float64-promotion", "does it compute in float64 without being asked?", "warning", traced=True)
def float64_promotion(e: Evidence) -> Iterable[Match]:
    """Finds programs that compute in float64 though no input asks for it."""
    if not jax.config.read("jax_enable_x64"):
        raise NotApplicable("jax_enable_x64 is off, so nothing is float64")
    program = e.program
    # In x64 mode every Python float is a weakly typed float64: passing one does not ask for float64.
    if any(_is_wide(value) and not value.is_weak for value in program.inputs):
        yield from _of_inputs(e, program)
        return
    if program.inputs and all(_is_wide(value) for value in program.inputs):
        raise NotApplicable("its inputs are Python numbers, and with jax_enable_x64 these are float64")
    ops = list(program.ops)
    arrays = [op for op in ops if any(_is_wide(value) and value.shape for value in op.makes)]
    if not arrays:
        return
    # The start of each chain of wide arrays: an operation that reads none.
    begins = [op for op in arrays if not any(_is_wide(v) and v.shape for v in op.reads)] or arrays[:1]
    total = sum(v.size_bytes for op in arrays for v in op.makes if _is_wide(v))
    narrow = sorted({str(value.dtype) for value in program.inputs if value.is_of(jnp.inexact) and not value.is_weak})
    made = [(op, next(v for v in op.makes if _is_wide(v))) for op in begins]
    # JAX reports no line for a constant. The log of the run has the lines that make such arrays.
    constants = [e.use.wide_lines.get(v.spec, ()) for v in program.consts if v.shape and _is_wide(v)]
    of_constant = next((line for line, *others in filter(None, constants) if not others), "")
    yield Match(
        f"float64 out of {' and '.join(narrow) or 'integer'} inputs",
        [
            *list_some([f"{op.name} makes {value.spec}{op.at}" for op, value in made]),
            f"{len(arrays)} of {len(ops)} equations make float64 arrays, {size(total)} as traced",
        ],
        "Give constants and conversions the dtype of the inputs: x.astype(y.dtype), jnp.zeros(n, y.dtype), and Python "
        "numbers instead of NumPy's, which are strongly float64.",
        where=of_constant or begins[0].line,
    )


def _of_inputs(e: Evidence, program: TracedProgram) -> Iterable[Match]:
    """A state of float32 that comes back as float32, and is computed in float64 for what it meets: what float64 gives
    is lost."""
    narrow = [v for v in program.inputs if v.shape and v.is_of(jnp.inexact) and not _is_wide(v)]
    returned = {v.spec for v in program.outputs}
    is_state = sum(v.size_bytes for v in narrow if v.spec in returned) * 2 > sum(v.size_bytes for v in narrow) > 0
    names = name_inputs(e)
    given = [f"{names[i]} {v.spec}" for i, v in enumerate(program.inputs) if v.shape and _is_wide(v)]
    if not is_state or not given or any(_is_wide(v) and v.shape for v in program.outputs):
        raise NotApplicable("its inputs are float64")
    work = [(op, op.work * op.times) for op in program.ops if op.name not in ("scan", "while")]
    wide = sum(n for op, n in work if any(_is_wide(v) and v.shape for v in op.makes))
    total = sum(n for _, n in work)
    lines = {line for each in e.use.wide_lines.values() for line in each}
    yield Match(
        "computes in float64 what it returns as float32",
        [
            f"float64 among its inputs: {', '.join(list_some(given))}",
            f"{count(wide)} of {count(total)} operations make float64 arrays, counted from the shapes",
            "no array that it returns is float64: its state is float32 before and after",
            *list_some([f"makes float64 arrays without being asked: {line}" for line in sorted(lines)]),
        ],
        "Convert its inputs where they are made: jnp.asarray(x, jnp.float32). With jax_enable_x64, a NumPy array stays "
        "float64, and so does everything that meets it.",
        where=lines.pop() if len(lines) == 1 else e.def_where,
        work=(wide, total),
    )


def _is_wide(value: Value) -> bool:
    return str(value.dtype) in WIDE


# ---- key-reuse -------------------------------------------------------------------------------------------------------


CONSUMES = {"random_bits": "drawn from", "random_split": "split"}
SAME_KEY = KEEPS | {"random_wrap", "random_unwrap", "convert_element_type"}
RECOMPUTED = ("rematted_computation", "checkpoint/", "transpose(")
"""Scopes in which a forward pass is computed again: the same numbers are wanted there."""
USE_ONCE = (
    "Use each key once: key, other = jax.random.split(key), or jax.random.fold_in(key, i) with a number that differs "
    "each time."
)


@rule("key-reuse", "is each random key used once?", "warning", traced=True)
def key_reuse(e: Evidence) -> Iterable[Match]:
    """Finds random keys that are used twice: the numbers that are drawn with them are equal or depend on each other."""
    program = e.program
    yield from _used_twice(program)
    draws = (op for op in program.ops if op.name == "random_bits")
    for body, ops in group_by(
        draws, lambda op: next((one for one in op.body.around if one.is_loop), program.body)
    ).items():
        if body.is_loop:
            yield from _same_each_time(body, ops, (), f"each of {body.trips or 'its'} iterations")
        elif e.use.repeated:
            yield from _same_each_call(e, body, ops)
    yield from _same_in_each_row(program)


@key_reuse.in_program
def _used_by_hand(e: ProgramEvidence) -> Iterable[Match]:
    """Finds keys used twice that functions of `jax.random` were given outside of jit."""
    told: set[str] = set()
    for events in keys_used_twice(e.log):
        uses = Counter((event.by, event.where) for event in events)
        # If many keys take the same way through the program, one is enough.
        if events[-1].where not in told:
            told.add(events[-1].where)
            yield Match(
                f"one key is used {plural(len(events), 'time')}",
                list_some([f"{by} at {where}{f', {n} times' if n > 1 else ''}" for (by, where), n in uses.items()]),
                USE_ONCE,
                where=events[-1].where,
                related=[("also used here", where) for _, where in uses]
                + [place for where in {one for _, one in uses} for place in made_at(where, "", "key")],
            )


def _used_twice(program: TracedProgram) -> Iterable[Match]:
    uses = (op for op in program.ops if op.name in CONSUMES and not any(s in f"{op.scope}/" for s in RECOMPUTED))
    for every in group_by(uses, lambda op: program.numbers[op.reads[0].back(SAME_KEY)]).values():
        # Only one branch of a cond runs.
        ops = [op for op in every if any(one is not op and not _exclude(one, op) for one in every)]
        if ops:
            last = line_apart(ops[-1].outermost, ops[0].outermost) or ops[-1].line
            n = max(sum(one is op or not _exclude(one, op) for one in ops) for op in ops)
            yield Match(
                f"one key is used {plural(n, 'time')}",
                list_some([f"{CONSUMES[op.name]}{op.at}" for op in ops]),
                USE_ONCE,
                where=last,
                related=[*(("also used here", op.line) for op in ops), *made_at(last, "", "key")],
            )


def _exclude(one: TracedOp, other: TracedOp) -> bool:
    """Are they in different branches of one cond?"""
    branches = {body.op: body for body in one.body.around if body.kind == "branch"}
    return any(branches.get(body.op, body) is not body for body in other.body.around if body.kind == "branch")


def _same_each_time(body: Body, draws: list[TracedOp], same: Collection[Value], when: str) -> Iterable[Match]:
    """Names each line of the body that draws or passes a key on, and the draws behind it.

    Args:
        same: inputs of the body that are the same each time, besides values from outside.
    """
    by_line: dict[Where | None, list[tuple[TracedOp, list[Where]]]] = defaultdict(list)
    for op in draws:
        roots, inside = op.reads[0].roots, {body, op.body, *(one for one in op.body.around if one.kind == "branch")}
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
            USE_ONCE,
            where=where,
            related=[("on the way to the draw", line) for _, way in found for line in way],
        )


def _same_each_call(e: Evidence, body: Body, draws: list[TracedOp]) -> Iterable[Match]:
    """Names the line that passes the key, once: the function does what it should with the key that it is given."""
    same = [value for i, value in enumerate(body.inputs) if i in e.use.repeated]
    # A key that the program holds is also the same in each call, as its author wrote it.
    drawn = [op for op in draws if any(root in same for root in op.reads[0].roots)]
    found = list(_same_each_time(body, drawn, same, "each call"))
    if not (found and e.use.called_at):
        return found
    seen = [f"it is called at {e.use.called_at}", *(line for finding in found for line in finding.seen)]
    advice = (
        f"Pass another key at {e.use.called_at} each time: split it there, or jax.random.fold_in(key, i) with the "
        "number of the iteration."
    )
    return [replace(found[0], seen=list_some(seen), where=e.use.called_at, advice=advice)]


def _same_in_each_row(program: TracedProgram) -> Iterable[Match]:
    """Names the call of what `jax.vmap` makes. Common random numbers can be wanted, so it is an info."""
    draws = (op for op in program.ops if op.name == "random_bits")
    # Under vmap, a key has one axis for each level over which it varies.
    same = (op for op in draws if op.scope.count("vmap(") > len(op.reads[0].shape))
    for line, ops in group_by(same, lambda op: line_of_vmap(op.outermost) or op.line).items():
        drawn = dict.fromkeys(f"{op.makes[0].spec} is drawn{op.at}, once for all rows" for op in ops)
        yield Match(
            "each row of jax.vmap draws the same random numbers",
            list_some(list(drawn)),
            "Give each row a separate key: jax.random.split(key, n), with in_axes=0 for it. If all rows should see "
            "the same numbers, ignore this.",
            where=line,
            severity="info",
        )


def _is_key(value: Value) -> bool:
    is_raw = str(value.dtype) == "uint32" and value.shape[-1:] in ((2,), (4,))
    return is_raw or jax.dtypes.issubdtype(value.dtype, jax.dtypes.prng_key)
