"""Finds values of a trace that outlive it: they are kept in a global, a closure or an object."""

from __future__ import annotations

import re
from collections.abc import Iterable

import jax

from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import refuse_failed, rule
from benchax.errors import BenchaxError, NotMeasured
from benchax.measuring import program as programs
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.program import program_of
from benchax.results.audit import Finding

_HOLDER = re.compile(r"is referred to by ([^<\s]\S*)")
_TRACED = re.compile(r"^(?:Jit)?(?:Tracer|Traced<)\(?(.*?)[)>]", re.MULTILINE)
_OF_DERIVATIVES = ":JaxprTrace "
ADVICE = (
    "Return the value as an output of the function, and store it outside. A traced value stands for no number; using "
    "it after the trace is an error (UnexpectedTracerError)."
)


@rule("leaked-tracer", "do values of a trace outlive it?", "error")
def leaked_tracer(e: Evidence) -> Iterable[Finding]:
    if (used := _find_use(e)) is not None:
        yield leaked_tracer.finding("uses a value of a trace that is over", [used], ADVICE, where=e.def_where)
        return
    refuse_failed(e.failure)
    leak = _leak(e)
    if leak is None:
        return
    values = [f"a traced value {text} is still held after the trace" for text in dict.fromkeys(_TRACED.findall(leak))]
    holders = [f"held by {name}" for name in dict.fromkeys(_HOLDER.findall(leak))]
    if values and not holders and all(_OF_DERIVATIVES in value for value in values):
        # jax 0.10.2 says so of each jax.debug.callback in a scan that is differentiated, which keeps nothing.
        raise NotMeasured("JAX names values of its own, which derivatives are made of, and nobody who keeps them")
    yield leaked_tracer.finding(
        "keeps a traced value beyond the trace",
        [
            *(values[:3] or ["a traced value is still held after the trace"]),
            *holders[:3],
            "seen by jax.checking_leaks()",
        ],
        ADVICE,
        where=e.def_where,
    )


def _find_use(e: Evidence) -> str | None:
    """What says that it takes a value from an earlier trace. JAX makes such a value an input of its own, which only the
    call refuses; so this must be asked before anything that compiles."""
    try:
        traced = programs.trace(program_of(e.case), e.inputs.args, e.inputs.kwargs)
    except jax.errors.UnexpectedTracerError as error:
        return str(error).strip().splitlines()[0]
    except BenchaxError:
        raise
    except Exception:  # it does not trace for another reason, which `failure` tells
        return None
    more = len(traced.jaxpr.in_avals) - len(jax.tree.leaves(traced.args_info))
    return f"its program has {more} inputs more than it is given: values of an earlier trace" if more > 0 else None


def _leak(e: Evidence) -> str | None:
    """What JAX says of a leak in a new trace of the function; None: there is none."""
    try:
        with jax.checking_leaks():
            programs.trace(program_of(e.plain_case), e.inputs.args, e.inputs.kwargs)
    except Exception as error:  # a leak is told as a bare Exception
        if str(error).startswith("Leaked"):
            return str(error)
        raise NotMeasured(f"tracing it with jax.checking_leaks() fails: {diagnose(error, 'trace').message}") from error
    return None
