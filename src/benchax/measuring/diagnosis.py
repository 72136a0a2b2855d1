"""Turns an exception from a user's function into a `Failure` with advice: which argument, which line, what to do.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import itertools
import re
import traceback
from collections.abc import Callable

from benchax.errors import BenchaxError
from benchax.measuring import unrun
from benchax.measuring.tracer_errors import explain
from benchax.model import Failure, FailureKind
from benchax.printable import LONGEST_TRACEBACK, cap
from benchax.source_files import format_error, is_library

_MISSING = re.compile(r"missing (\d+ required|a required)")
_PATH = re.compile(r"at path (\S+)")
_TYPE = re.compile(r"of type <class '(?:\S+\.)?(\S+)'>")


def diagnose(error: BaseException, stage: str) -> Failure:
    """Describes the error in `stage`, in a form that a row can keep."""
    kind, advice = _judge(error, stage)
    where = user_line(error)
    message = cap(_message(error)) + (f" (at {where})" if where else "")
    return Failure(kind, stage, message, advice, cap(format_error(error), LONGEST_TRACEBACK))


def _judge(error: BaseException, stage: str) -> tuple[FailureKind, str]:
    for fits, judge in _KNOWN:
        if fits(error):
            return judge(error)
    return "error", getattr(error, "hint", "")


def _is_tracer_error(error: BaseException) -> bool:
    return explain(error) is not None


def _tracer(error: BaseException) -> tuple[FailureKind, str]:
    explained = explain(error)
    return "error", explained.advice if explained else ""


def _is_out_of_memory(error: BaseException) -> bool:
    return isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in str(error) or "Out of memory" in str(error)


def _out_of_memory(error: BaseException) -> tuple[FailureKind, str]:
    return (
        "out_of_memory",
        "Measure a smaller case, donate arguments that are not needed any more, or use a bigger device.",
    )


def _is_unrun(error: BaseException) -> bool:
    return bool(unrun.advise(error))


def _unrun(error: BaseException) -> tuple[FailureKind, str]:
    return "wrong_output", unrun.advise(error)


def _is_bad_output(error: BaseException) -> bool:
    # "... returned a value of type <class 'str'> ... not a valid JAX type"; in jax 0.6 "Argument 'abc' of type ...",
    # though it is not an argument.
    text = str(error)
    is_output = "returned" in text or "output" in text.lower() or text.startswith("Argument '")
    return isinstance(error, TypeError) and "not a valid JAX type" in text and is_output


def _bad_output(error: BaseException) -> tuple[FailureKind, str]:
    advice = (
        "A jitted function may return arrays, numbers, and dicts, lists and tuples of them. To time a call that "
        "returns something else, measure it eagerly (jit=False, --no-jit)."
    )
    return "wrong_output", advice


def _is_bad_argument(error: BaseException) -> bool:
    text = str(error)
    return isinstance(error, TypeError) and ("as an abstract array" in text or "not a valid JAX type" in text)


def _bad_argument(error: BaseException) -> tuple[FailureKind, str]:
    found = _PATH.search(str(error))
    path = found[1].rstrip(".") if found else ""
    if re.search(r"[.\[]", path):
        return "error", "Pass the function without jax.jit, or under equinox.filter_jit: then such leaves are static."
    argument = f"argument {path}" if path else "it"
    return "error", f"If {argument} is a setting and not data, declare it static (static=...)."


def _is_deleted(error: BaseException) -> bool:
    return "deleted" in str(error) and ("donated" in str(error) or "delete" in str(error))


def _deleted(error: BaseException) -> tuple[FailureKind, str]:
    advice = (
        "A buffer was used after it had been donated. benchax renews the arguments of a function whose donation it "
        "can see; a donation inside a plain function it cannot: declare it (donate=...), or pass the jitted "
        "function itself."
    )
    return "error", advice


def _is_closed_over(error: BaseException) -> bool:
    return type(error).__name__ == "TraceContextError" and "different trace level" in str(error)


def _closed_over(error: BaseException) -> tuple[FailureKind, str]:
    return "error", (
        "The function changes an object of Flax NNX that it closes over, or is a method of. Pass it as an argument: "
        "what a call changes in its arguments is put back for each call, and timed."
    )


def _is_unbatched(error: BaseException) -> bool:
    return isinstance(error, ValueError) and "vmap got inconsistent sizes" in str(error)


def _unbatched(error: BaseException) -> tuple[FailureKind, str]:
    return "error", (
        "Without in_axes=, vmap takes the first axis of every argument for the batch: give in_axes=(0, None) for those "
        "that are shared."
    )


def _is_without_inputs(error: BaseException) -> bool:
    """Raised by the call of the function itself: where the user's own code calls something wrongly, it has a frame."""
    return isinstance(error, TypeError) and bool(_MISSING.search(str(error))) and user_line(error) is None


def _without_inputs(error: BaseException) -> tuple[FailureKind, str]:
    return "error", (
        "Inputs follow the function: bench(f, x, y), or on the command line f32[8,128], 3.0 or axis=0. What cannot be "
        "written there, such as parameters of a model, is given by a file bench_*.py: @benchax.benchmark(args=(x, y))."
    )


_KNOWN: tuple[tuple[Callable[[BaseException], bool], Callable[[BaseException], tuple[FailureKind, str]]], ...] = (
    (_is_tracer_error, _tracer),
    (_is_out_of_memory, _out_of_memory),
    (_is_unrun, _unrun),
    (_is_bad_output, _bad_output),
    (_is_bad_argument, _bad_argument),
    (_is_deleted, _deleted),
    (_is_closed_over, _closed_over),
    (_is_unbatched, _unbatched),
    (_is_without_inputs, _without_inputs),
)


def _message(error: BaseException) -> str:
    if isinstance(error, BenchaxError):
        return str(error).partition("\n\nhint:")[0].replace("\n", "; ")
    if _is_bad_argument(error) and (path := _PATH.search(str(error))) and (kind := _TYPE.search(str(error))):
        return f"{type(error).__name__}: jax.jit does not take {path[1].rstrip('.')}, a {kind[1]}"
    # JAX's messages go on for pages; the first sentence says what happened, the traceback keeps the rest.
    first_line, _, rest = str(error).strip().partition("\n")
    if first_line.endswith(":"):
        # What it announces belongs to it: the sizes that vmap found, and of which arguments.
        lines = cap(rest, LONGEST_TRACEBACK).splitlines()
        listed = itertools.takewhile(lambda line: line.lstrip().startswith("*"), lines)
        first_line = " ".join([first_line, *(line.strip(" *") for line in listed)])
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def user_line(error: BaseException) -> str | None:
    """file:line of the innermost frame of the user's own code; None if there is no such frame."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not is_library(f.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None
