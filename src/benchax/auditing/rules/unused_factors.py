"""Finds factorisations of which only the singular values, the eigenvalues or the first columns are used, and which
could be asked for no more than that."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import jax
import jax.numpy as jnp

from benchax.auditing.dataflow import Body, bodies
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import Tried, gain_of_part, rule, try_variant
from benchax.auditing.syntax import where_of
from benchax.auditing.traced import TracedEquation, TracedValue, closed_jaxpr, first_of_each_line
from benchax.case import make_case
from benchax.errors import NotMeasured
from benchax.results.audit import Finding
from benchax.units import count, size

LEAST_SAVED = 1 << 22
"""FLOP of what is not used, with its loop. With less, what was saved took 0.3 ms or less on one core."""
MOVES = ("transpose", "neg", "convert_element_type", "copy")


@dataclass(frozen=True)
class _Unused:
    """A factorisation that makes more than is used."""

    step: TracedEquation
    title: str
    advice: str
    kind: str
    saved: float
    """FLOP, about."""
    unused: tuple[TracedValue, ...]


@rule("unused-factors", "are factors only made where they are used?", "warning", needs_trace_only=True)
def unused_factors(e: Evidence) -> Iterable[Finding]:
    found = [
        one for body in bodies(closed_jaxpr(e)) for one in _unused(body) if one.saved * (body.trips or 1) >= LEAST_SAVED
    ]
    if found and e.platform != "cpu":
        raise NotMeasured(f"what unused factors take is known of CPUs, not of {e.platform}")
    yield from (_finding(e, one) for one in first_of_each_line(found))


def _unused(body: Body) -> Iterator[_Unused]:
    needed: set[int] | None = None
    for step in body.program.steps:
        if step.name in _KINDS:
            needed = _needed(body) if needed is None else needed
            found = _KINDS[step.name](body, step, needed)
            if found is not None:
                yield found


def _of_svd(body: Body, step: TracedEquation, needed: set[int]) -> _Unused | None:
    if len(step.makes) != 3:
        return None
    (values, left, right), (batch, m, n) = step.makes, _sizes(step)
    least = min(m, n)
    if id(values) in needed and id(left) not in needed and id(right) not in needed:
        return _Unused(
            step, "makes singular vectors and uses the singular values alone", _VALUES, "values",
            8.0 * batch * max(m, n) * least**2, (left, right),
        )  # fmt: skip
    # One of the two is square and larger than the matrix has columns or rows: of that the rest completes a basis.
    large, axis = (left, -1) if m > n else (right, -2)
    if m == n or large.shape[axis] == least or not _is_cut(body, large, axis, least, needed):
        return None
    return _Unused(
        step, f"makes {large.spec} of singular vectors and uses {least} of them at most", _THIN, "thin",
        4.0 * batch * least * max(m, n) * (max(m, n) - least), (large,),
    )  # fmt: skip


def _of_eig(body: Body, step: TracedEquation, needed: set[int]) -> _Unused | None:
    values, *vectors = step.makes
    if not vectors or id(values) not in needed or any(id(one) in needed for one in vectors):
        return None
    batch, n, _ = _sizes(step)
    return _Unused(
        step, "makes eigenvectors and uses the eigenvalues alone", _EIGENVALUES, "eigenvalues",
        15.0 * batch * n**3, tuple(vectors),
    )  # fmt: skip


def _of_qr(body: Body, step: TracedEquation, needed: set[int]) -> _Unused | None:
    basis, (batch, m, n) = step.makes[0], _sizes(step)
    # A basis that nobody reads is left out by XLA.
    if m <= n or basis.shape[-1] == n or id(basis) not in needed or not _is_cut(body, basis, -1, n, needed):
        return None
    return _Unused(
        step, f"makes {basis.spec} of a basis and uses {n} columns at most", _REDUCED, "reduced",
        4.0 * batch * n * m * (m - n), (basis,),
    )  # fmt: skip


_KINDS = {"svd": _of_svd, "eig": _of_eig, "qr": _of_qr}
"""Not eigh, which JAX has no cheaper form of: `jnp.linalg.eigvalsh` took as long (jaxlib 0.10.2, CPU)."""


def _sizes(step: TracedEquation) -> tuple[int, int, int]:
    *batch, m, n = step.reads[0].shape
    return math.prod(batch), m, n


def _needed(body: Body) -> set[int]:
    """Values that the outputs depend on, or something with effects."""
    found = {id(value) for value in body.program.outputs}
    for step in reversed(body.program.steps):
        if getattr(step.equation, "effects", ()) or any(id(value) in found for value in step.makes):
            found |= {id(value) for value in step.reads}
    return found


def _is_cut(body: Body, value: TracedValue, axis: int, most: int, needed: set[int]) -> bool:
    """Are no more than the first few read of it along this axis, or nothing?"""
    axis %= len(value.shape)
    if body.is_output(value):
        return False
    readers = (step for step in body.readers(value) if any(id(made) in needed for made in step.makes))
    return all(_cuts(body, step, axis, most, needed) for step in readers)


def _cuts(body: Body, step: TracedEquation, axis: int, most: int, needed: set[int]) -> bool:
    params = step.equation.params
    if step.name == "slice":
        return params["limit_indices"][axis] <= most
    if step.name not in MOVES:
        return False
    moved = params["permutation"].index(axis) if step.name == "transpose" else axis
    return _is_cut(body, step.makes[0], moved, most, needed)


_VALUES = (
    "Ask for the values alone: jnp.linalg.svd(a, compute_uv=False), or jnp.linalg.svdvals(a). XLA leaves nothing out "
    "of a factorisation whose vectors nobody reads."
)
_THIN = "Give jnp.linalg.svd full_matrices=False: its default completes the vectors to a basis of the whole space."
_EIGENVALUES = "Ask for the eigenvalues alone: jnp.linalg.eigvals(a)."
_REDUCED = 'Use jnp.linalg.qr(a), whose default is mode="reduced": "complete" makes a basis of the whole space.'


def _finding(e: Evidence, found: _Unused) -> Finding:
    tried = _try_less(e, found)
    unused = " and ".join(value.spec for value in found.unused)
    what = "of which the rest is never read" if found.kind in ("thin", "reduced") else "which are never read"
    seen = [
        (
            f"{found.step.name} of {found.step.reads[0].spec} makes {unused}, "
            f"{size(sum(value.size_bytes for value in found.unused))}, {what}: "
            f"about {count(found.saved, 'FLOP')} that nobody needs"
        ),
        tried.sentence,
    ]
    return unused_factors.finding(
        found.title,
        seen,
        found.advice,
        where=where_of(found.step.line) or e.def_where,
        gain=gain_of_part(e, tried.gain, "this factorisation"),
    )


def _try_less(e: Evidence, found: _Unused) -> Tried:
    """Of one of a batch."""
    matrix = found.step.reads[0]
    inputs = (f"{matrix.dtype}[{matrix.shape[-2]},{matrix.shape[-1]}]",)
    before, after = (make_case(fn, inputs, name=fn.__name__.strip("_")) for fn in _PAIRS[found.kind])
    return try_variant(e, "without what is not used", after, before)


def _svd(a: jax.Array) -> jax.Array:
    return jnp.linalg.svd(a, full_matrices=False)[1]


def _singular_values(a: jax.Array) -> jax.Array:
    return jnp.linalg.svd(a, compute_uv=False)


def _full_svd(a: jax.Array) -> tuple[jax.Array, ...]:
    u, s, vh = jnp.linalg.svd(a)
    return u[:, : s.shape[0]], s, vh[: s.shape[0]]


def _thin_svd(a: jax.Array) -> tuple[jax.Array, ...]:
    return tuple(jnp.linalg.svd(a, full_matrices=False))


def _eig(a: jax.Array) -> jax.Array:
    return jnp.linalg.eig(a)[0]


def _eigenvalues(a: jax.Array) -> jax.Array:
    return jnp.linalg.eigvals(a)


def _complete_qr(a: jax.Array) -> jax.Array:
    return jnp.linalg.qr(a, mode="complete")[0][:, : a.shape[1]]


def _reduced_qr(a: jax.Array) -> jax.Array:
    return jnp.linalg.qr(a)[0]


_PAIRS = {
    "values": (_svd, _singular_values),
    "thin": (_full_svd, _thin_svd),
    "eigenvalues": (_eig, _eigenvalues),
    "reduced": (_complete_qr, _reduced_qr),
}
