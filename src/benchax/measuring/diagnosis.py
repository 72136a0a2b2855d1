"""Turns an exception from a user's function into a `Failure` with advice: which argument, which line, what to do.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import ast
import itertools
import linecache
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from types import FrameType, ModuleType
from typing import Any, Literal

import jax
import jax.numpy as jnp
import jax.scipy
from jax.core import Tracer

from benchax.errors import BenchaxError, text_of
from benchax.measuring.program import advise_on_unrun
from benchax.model import Failure, FailureKind
from benchax.printable import LONGEST_TRACEBACK, cap
from benchax.source_files import format_error, is_library

_MISSING = re.compile(r"missing (\d+ required|a required)")
_PATH = re.compile(r"at path (\S+)")
_TYPE = re.compile(r"of type <class '(?:\S+\.)?(\S+)'>")


def diagnose(error: BaseException, stage: str) -> Failure:
    """Describes the error in `stage`, in a form that a row can keep."""
    kind, advice = _judge(error)
    where = user_line(error)
    message = cap(_message(error)) + (f" (at {where})" if where else "")
    return Failure(kind, stage, message, advice, cap(format_error(error), LONGEST_TRACEBACK))


_ADVICE: tuple[tuple[Callable[[BaseException, str], object], FailureKind, str], ...] = (
    (
        lambda error, text: isinstance(error, MemoryError) or "RESOURCE_EXHAUSTED" in text or "Out of memory" in text,
        "out_of_memory",
        "Measure a smaller case, donate arguments that are not needed any more, or use a bigger device.",
    ),
    (
        lambda error, text: _is_bad_output(error, text),
        "wrong_output",
        (
            "A jitted function may return arrays, numbers, and dicts, lists and tuples of them. To time a call that "
            "returns something else, measure it eagerly (jit=False, --no-jit)."
        ),
    ),
    (
        lambda error, text: (
            not _is_bad_argument(error) and "deleted" in text and ("donated" in text or "delete" in text)
        ),
        "error",
        (
            "A buffer was used after it had been donated. benchax renews donated arguments if it sees the donation. It "
            "doesn't see one inside a plain function: declare it (donate=...), or pass the jitted function itself."
        ),
    ),
    (
        lambda error, text: type(error).__name__ == "TraceContextError" and "different trace level" in text,
        "error",
        (
            "The function changes an object of Flax NNX that it closes over, or is a method of. Pass it as an "
            "argument: what a call changes in its arguments is put back for each call, and timed."
        ),
    ),
    (
        lambda error, text: isinstance(error, ValueError) and "vmap got inconsistent sizes" in text,
        "error",
        (
            "Without in_axes=, vmap takes the first axis of every argument for the batch: give in_axes=(0, None) for "
            "those that are shared."
        ),
    ),
    (
        # The call of the function itself raised it. An error inside the user's code would have a frame there.
        lambda error, text: isinstance(error, TypeError) and _MISSING.search(text) and user_line(error) is None,
        "error",
        (
            "Inputs follow the function: bench(f, x, y), or on the command line f32[8,128], 3.0 or axis=0. For other "
            "inputs, such as parameters of a model, use a file bench_*.py: @benchax.benchmark(args=(x, y))."
        ),
    ),
)
"""(applies to an error and its text, kind, advice): the first that applies counts."""


def _judge(error: BaseException) -> tuple[FailureKind, str]:
    """(kind, advice)"""
    text = text_of(error)
    if (explained := explain(error)) is not None:
        return "error", explained.advice
    if advice := advise_on_unrun(error):
        return "wrong_output", advice
    for applies, kind, advice in _ADVICE:
        if applies(error, text):
            return kind, advice
    if _is_bad_argument(error):
        return "error", _advise_on_argument(text)
    return "error", error.hint if isinstance(error, BenchaxError) else ""


def _is_bad_output(error: BaseException, text: str) -> bool:
    """ "... returned a value of type <class 'str'> ... not a valid JAX type"; in jax 0.6 "Argument 'abc' of type ...",
    though it is not an argument."""
    is_output = "returned" in text or "output" in text.lower() or text.startswith("Argument '")
    return isinstance(error, TypeError) and "not a valid JAX type" in text and is_output


def _is_bad_argument(error: BaseException) -> bool:
    text = text_of(error)
    return isinstance(error, TypeError) and ("as an abstract array" in text or "not a valid JAX type" in text)


def _advise_on_argument(text: str) -> str:
    found = _PATH.search(text)
    path = found[1].rstrip(".") if found else ""
    if "." in path or "[" in path:
        return "Pass the function without jax.jit, or under equinox.filter_jit: then such leaves are static."
    argument = f"argument {path}" if path else "it"
    return f"If {argument} is a setting and not data, declare it static (static=...)."


def _message(error: BaseException) -> str:
    if isinstance(error, BenchaxError):
        return text_of(error).partition("\n\nhint:")[0].replace("\n", "; ")
    if _is_bad_argument(error) and (path := _PATH.search(text_of(error))) and (kind := _TYPE.search(text_of(error))):
        return f"{type(error).__name__}: jax.jit does not take {path[1].rstrip('.')}, a {kind[1]}"
    # JAX's messages can fill pages. The first sentence says what happened, and the traceback keeps the rest.
    first_line, _, rest = text_of(error).strip().partition("\n")
    if first_line.endswith(":"):
        # The announced list belongs to the sentence: the sizes that vmap found, and for which arguments.
        lines = cap(rest, LONGEST_TRACEBACK).splitlines()
        listed = itertools.takewhile(lambda line: line.lstrip().startswith("*"), lines)
        first_line = " ".join([first_line, *(line.strip(" *") for line in listed)])
    return f"{type(error).__name__}: {first_line}" if first_line else type(error).__name__


def user_line(error: BaseException) -> str | None:
    """file:line of the innermost frame of the user's own code; None if there is no such frame."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [f for f in frames if not is_library(f.filename)]
    return f"{own[-1].filename}:{own[-1].lineno}" if own else None


# ---- tracer errors ---------------------------------------------------------------------------------------------------
#
# Explains an exception that comes from a traced value: which value, in which expression, and the fitting remedies.
#
# JAX raises its own errors for most of these, which name the argument. Slices and repeated lists end in an IndexError
# and a TypeError. Then the expression on the user's line shows the value (jax 0.6 to 0.10.2).


_ARGUMENT = re.compile(r"depends on the values? of the arguments? (.+?)\.?\s*$", re.MULTILINE)
_SIZED_SEQUENCE = re.compile(r"for \*:.*(?:'(?:list|tuple)'.*Tracer|Tracer.*'(?:list|tuple)')")
_SLICE = re.compile(r"Slice entries must be static|static start/stop/step")
_SIZE_TEXTS = ("Shapes must be 1D sequences", "jnp.arange", "jnp.linspace", "jnp.repeat")
_SELECTION = re.compile(r"size argument of|To make jnp\.\w+\(\) compatible with JIT")

_TRACER_ERRORS = (
    jax.errors.ConcretizationTypeError,
    jax.errors.TracerArrayConversionError,
    jax.errors.TracerIntegerConversionError,
    jax.errors.NonConcreteBooleanIndexError,
)
_COUNTERPARTS: Mapping[str, tuple[str, Any]] = {
    "numpy": ("jnp", jnp),
    "math": ("jnp", jnp),
    "scipy": ("jax.scipy", jax.scipy),
}
"""By the name of a module: what has functions of the same names that can be traced."""

REMEDIES = (
    "Three remedies: declare {argument} static, if it takes few values (static_argnames=...); decide inside the "
    "compiled program with jax.lax.cond, jax.lax.while_loop or jnp.where; or jit only the inner part that does not "
    "depend on it."
)
SIZE_REMEDIES = (
    "Three remedies: declare {argument} static, if it takes few values (static_argnames=...): each is compiled once; "
    "give the array its largest size whatever the value, and mask the rest, jnp.where(jnp.arange(largest) < {name}, x, "
    "0), or jax.lax.dynamic_slice where only the start depends on it; or jit only the inner part that does not depend "
    "on it."
)
SELECTION_REMEDIES = (
    "Three remedies: keep the shape with jnp.where(mask, x, 0), or jnp.sum(x, where=mask) for what sums up; give a "
    "largest number, jnp.nonzero(mask, size=largest, fill_value=0); or select outside, and jit only the inner part."
)

TracedUse = Literal["value", "size", "selection", "library"]
"""The purpose that needed the value: a decision of Python, or the size of an array. Or the number of elements that a
mask selects, or a function of NumPy or a similar library."""


@dataclass(frozen=True)
class TracerError:
    """The meaning of an exception that comes from a traced value."""

    use: TracedUse
    argument: str
    """Whose value was needed: "the argument n", "k", "the argument" where it is not told."""
    expression: str
    """Which needed it: "np.sin(x)"; empty if it is not told."""
    advice: str


def explain(error: BaseException) -> TracerError | None:
    """Returns the meaning; None for an exception that does not come from a traced value."""
    use = _use(error)
    if use is None:
        return None
    text, node, frame = _failing_expression(error) or ("", None, None)
    text = " ".join(text.split())
    named = _ARGUMENT.search(text_of(error))
    argument = f"the argument {named[1]}" if named else _size_name(node, frame) or "the argument"
    unknown = f"The value of {argument} is not known while tracing"
    if use in ("value", "library") and (names := _counterpart(node, frame)):
        theirs, ours = names
        advice = (
            f"{unknown}. {theirs} needs values and computes at once. Use {ours}, which JAX can trace. If {argument} is "
            f"a setting, declare it static (static_argnames=...). To call {theirs} from a compiled program, use "
            "jax.pure_callback. If the function contains no jit, you can measure it as it is: --no-jit (jit=False)."
        )
        return TracerError("library", argument, text, advice)
    if use == "selection":
        advice = f"How many elements are selected is not known while tracing. {SELECTION_REMEDIES}"
        return TracerError(use, argument, text, advice)
    if use == "size":
        name = argument.removeprefix("the argument").strip() or "n"
        is_argument = argument.startswith("the argument")
        remedies = SIZE_REMEDIES.format(argument=argument if is_argument else f"what {argument} comes from", name=name)
        return TracerError(use, argument, text, f"{unknown}, and the size of an array depends on it. {remedies}")
    return TracerError("value", argument, text, f"{unknown}. {REMEDIES.format(argument=argument)}")


def _use(error: BaseException) -> TracedUse | None:
    text = text_of(error)
    if isinstance(error, jax.errors.NonConcreteBooleanIndexError) or _SELECTION.search(text):
        return "selection"
    if isinstance(error, TypeError) and _SIZED_SEQUENCE.search(text):
        return "size"
    if isinstance(error, IndexError) and _SLICE.search(text):
        return "size"
    # Some are plain TypeErrors (a traced shape), recognized by the sentence that JAX adds to all of them.
    if not isinstance(error, _TRACER_ERRORS) and "was not available in Python because it depends" not in text:
        return None
    if any(each in text for each in _SIZE_TEXTS):
        return "size"
    return "library" if isinstance(error, jax.errors.TracerArrayConversionError) else "value"


# ---- the user's own line ------------------------------------------------------------------------------------------


def _failing_expression(error: BaseException) -> tuple[str, ast.expr, FrameType] | None:
    """(text, syntax tree, frame) of the expression that was evaluated in the innermost frame of the user's own code."""
    pairs = zip(traceback.extract_tb(error.__traceback__), traceback.walk_tb(error.__traceback__), strict=True)
    own = [(summary, frame) for summary, (frame, _) in pairs if not is_library(summary.filename)]
    if not own:
        return None
    text = _text_of(own[-1][0])
    try:
        # In parentheses, an expression may span several lines.
        return text, ast.parse(f"({text})", mode="eval").body, own[-1][1]
    except (SyntaxError, ValueError):  # a statement, or a source that is not there
        return None


def _text_of(at: traceback.FrameSummary) -> str:
    source = "".join(linecache.getlines(at.filename))
    place: Any = {"lineno": at.lineno, "end_lineno": at.end_lineno, "col_offset": at.colno}
    node = ast.Pass(**place, end_col_offset=at.end_colno)
    return (ast.get_source_segment(source, node) or "") if source else ""


def _size_name(node: ast.expr | None, frame: FrameType | None) -> str:
    """The name of the traced value that a slice or a repeated list needs; empty if it cannot be determined."""
    if node is None or frame is None:
        return ""
    values = frame.f_locals
    named = [each for part in _sizes(node, values) for each in ast.walk(part) if isinstance(each, ast.Name)]
    names = [each.id for each in named if isinstance(values.get(each.id), Tracer)]
    code = frame.f_code
    arguments = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return next((f"the argument {name}" if name in arguments else name for name in names), "")


def _sizes(node: ast.expr, values: Mapping[str, Any]) -> Iterator[ast.expr]:
    """The parts of an expression that say how large its value is."""
    if isinstance(node, ast.Subscript):
        yield node.slice
    elif isinstance(node, ast.BinOp):
        for side in (node.left, node.right):
            is_repeated = isinstance(side, ast.List | ast.Tuple | ast.ListComp)
            if not is_repeated and not (isinstance(side, ast.Name) and isinstance(values.get(side.id), list | tuple)):
                yield side


def _counterpart(node: ast.expr | None, frame: FrameType | None) -> tuple[str, str] | None:
    """("np.sin", "jnp.sin") if the call is of a function of NumPy, SciPy or math that JAX has, too."""
    if not isinstance(node, ast.Call) or frame is None:
        return None
    root, *path = ast.unparse(node.func).split(".")
    module = frame.f_locals.get(root, frame.f_globals.get(root))
    if not isinstance(module, ModuleType) or not path:
        return None
    # numpy.linalg may be imported as la.
    top, *below = module.__name__.split(".")
    prefix, ours = _COUNTERPARTS.get(top, ("", None))
    whole = [*below, *path]
    if ours is None or not callable(reduce(lambda found, name: getattr(found, name, None), whole, ours)):
        return None
    return f"{root}.{'.'.join(path)}", f"{prefix}.{'.'.join(whole)}"
