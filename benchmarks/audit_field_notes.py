"""What an audit reports of functions that nobody wrote for it: benchax.workloads, and five of other people's packages.

    pip install optax equinox diffrax jaxopt flax
    python benchmarks/audit_field_notes.py                 # prints findings, to be looked at by hand
    python benchmarks/audit_field_notes.py --only optax

Every function is jitted, as it is meant to run. What was thought of the findings stands in docs/about/field-notes.md.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import Any

import jax
import jax.numpy as jnp

import benchax
from benchax import workloads

TIME_S = 15.0
"""Of each audit, for comparisons."""
Case = tuple[str, Callable[..., Any], tuple[Any, ...]]


def of_workloads() -> Iterator[Case]:
    for one in workloads.BENCHMARKS:
        for case in one.cases():
            yield f"benchax.workloads:{case.id.name}", case.fn, case.inputs()[0]


def of_optax() -> Case:
    import optax

    rule = optax.adam(1e-3)
    params = {"w": jnp.ones((256, 256)), "b": jnp.zeros(256)}
    return "optax.adam(1e-3).update", rule.update, (params, rule.init(params), params)


def of_equinox() -> Case:
    import equinox

    model = equinox.nn.MLP(32, 8, 64, 2, key=jax.random.key(0))
    arrays, rest = equinox.partition(model, equinox.is_array)

    def call(arrays: Any, x: Any) -> Any:
        return jax.vmap(equinox.combine(arrays, rest))(x)

    return "equinox.nn.MLP, vmapped", call, (arrays, "f32[128,32]")


def of_diffrax() -> Case:
    import diffrax

    def solve(y: Any) -> Any:
        term = diffrax.ODETerm(lambda t, y, args: -y)
        return diffrax.diffeqsolve(term, diffrax.Tsit5(), t0=0.0, t1=1.0, dt0=0.01, y0=y).ys

    return "diffrax.diffeqsolve, Tsit5", solve, ("f32[64]",)


def of_jaxopt() -> Case:
    from jaxopt.projection import projection_simplex

    return "jaxopt.projection.projection_simplex", projection_simplex, ("f32[1000]",)


def of_flax() -> Case:
    from flax import linen

    model = linen.Sequential([linen.Dense(64), linen.LayerNorm(), linen.relu, linen.Dense(8)])
    x = jnp.ones((128, 32))
    return "flax.linen.Sequential.apply", model.apply, (model.init(jax.random.key(0), x), x)


def cases() -> Iterator[Case]:
    yield from of_workloads()
    for make in (of_optax, of_equinox, of_diffrax, of_jaxopt, of_flax):
        yield make()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", metavar="TEXT", help="functions whose name contains it")
    only = parser.parse_args().only
    for name, fn, args in cases():
        if only in name:
            report(name, benchax.audit(jax.jit(fn), *args, max_time_s=TIME_S, name=name))


def report(name: str, found: benchax.Audit) -> None:
    answers = {
        outcome: len(found.outcomes(outcome)) for outcome in ("fine", "finding", "not applicable", "not checked")
    }
    print(f"\n## {name}: {', '.join(f'{n} {outcome}' for outcome, n in answers.items() if n)}")
    for finding in found.findings:
        where = ":".join(map(str, finding.where)) if finding.where else "no line"
        print(f"- {finding.severity} {finding.rule}: {finding.title} ({where})")
        print("".join(f"    {text}\n" for text in (*finding.seen, finding.gain) if text), end="")
    for answer in found.outcomes("not checked"):
        print(f"- not checked: {answer.rule}: {answer.why}")


if __name__ == "__main__":
    main()
