"""Everything that benchax raises, and the one form that its messages have.

    BenchaxError            base: catch this to catch all of them
    ├── UsageError          the caller gave something that cannot work: an option, a spec, a path, a name
    ├── MissingPackage      an optional package is needed and not installed
    ├── StoreError          rows could not be written or read
    ├── FormatError         a document is not one of ours, or was written by a newer benchax
    ├── NotAvailable        a feature cannot work here: no compiler, another platform, another JAX
    ├── DeadlineExceeded    a function under `with_deadline` was stopped
    └── NotMeasured         a reading cannot be taken here; it becomes a row without that number, never a guess

A message says what was wrong (with the caller's own value), what was expected, and what to do.
"""

from __future__ import annotations

import difflib
import importlib
import inspect
from collections.abc import Callable, Iterable, Mapping
from types import ModuleType
from typing import Any


class BenchaxError(Exception):
    """Base of all errors of benchax.

    Args:
        problem: what was wrong, quoting the value that was given.
        expected: what would have been right, listing the permitted values.
        hint: what to do next.
    """

    def __init__(self, problem: str, expected: str = "", hint: str = "") -> None:
        # All three reach Exception.args, so that the error survives pickling between processes.
        super().__init__(problem, expected, hint)
        self.problem = problem
        self.expected = expected
        self.hint = hint

    def __str__(self) -> str:
        lines = [self.problem]
        if self.expected:
            lines.append(f"expected {self.expected}")
        if self.hint:
            lines.append(f"\nhint: {self.hint}")
        return "\n".join(lines)


class UsageError(BenchaxError):
    """The caller gave something that cannot work."""


class MissingPackage(BenchaxError):
    """An optional package is needed and not installed."""


class StoreError(BenchaxError):
    """Rows could not be written or read."""


class FormatError(BenchaxError):
    """A document is not one of ours, or was written by a newer benchax."""


class NotAvailable(BenchaxError):
    """A feature cannot work here; `problem` completes the sentence "not available here, because …"."""

    def __str__(self) -> str:
        return f"not available here, because {super().__str__()}"


class DeadlineExceeded(BenchaxError):
    """A function under `with_deadline` was stopped at its time limit."""


class NotMeasured(BenchaxError):
    """A reading cannot be taken here; `problem` completes the sentence "not measured, because …"."""


def one_of(names: Iterable[str], given: str | None = None) -> str:
    """What is permitted: "'timer'? Permitted is one of: seed, timer". The nearest name to `given` comes first.

    Of more than 30 names only the nearest few are listed.
    """
    listed = sorted(names)
    near = difflib.get_close_matches(given, listed, n=5) if given else []
    did_you_mean = f"{near[0]!r}? Permitted is " if near else ""
    if len(listed) > 30:
        return f"{did_you_mean}one of {len(listed)} names, such as {', '.join(near or listed[:5])}"
    return f"{did_you_mean}one of: {', '.join(listed)}"


def refuse_ambiguous(by: str, fn: Callable[..., Any], given: Mapping[str, Any], otherwise: str = "") -> None:
    """A name that both we and the user's function take would silently go to one of them.

    Args:
        by: our function.
        given: its options that could be meant; None was not given.
        otherwise: what else can be done, behind the advice.

    Raises:
        UsageError: one of them is a parameter of `fn`.
    """
    try:
        theirs = inspect.signature(fn).parameters
    except (TypeError, ValueError):  # builtins have no signature, and no such names
        return
    for name, value in given.items():
        if value is not None and name in theirs:
            raise UsageError(
                f"{name}={value!r} is both an option of {by} and an argument of the function",
                "an unambiguous call",
                f"for the function: functools.partial(f, {name}=...){otherwise}",
            )


def takes(fn: Callable[..., Any], name: str) -> bool:
    """Has `fn` a parameter of this name? Builtins have no signature, and no parameters then; `**kwargs` is none."""
    try:
        return name in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False


NEARLY = 0.75
"""How alike a name and an option are that one is taken for a slip of the other (max_time and max_time_s: 0.89)."""


def refuse_misspelt(
    by: str, fn: Callable[..., Any], kwargs: Mapping[str, Any], options: Iterable[str], elsewhere: Iterable[str] = ()
) -> None:
    """A keyword that is nearly an option would silently go to the user's function.

    Args:
        by: our function.
        kwargs: what would be passed on to `fn`.
        options: of `by`.
        elsewhere: options that `by` does not take, and [tool.benchax] does.

    Raises:
        UsageError: one of `kwargs` is no parameter of `fn` by name, and nearly an option.
    """
    for name, value in kwargs.items():
        if takes(fn, name):
            continue
        for_function = f"for the function: functools.partial(f, {name}=...)"
        if name in elsewhere:
            raise UsageError(
                f"{name}={value!r} is no option of {by}", "options that are given by name", f"set {name} in "
                f"[tool.benchax]; {for_function}",
            )  # fmt: skip
        if near := difflib.get_close_matches(name, options, 1, NEARLY):
            raise UsageError(
                f"{name}={value!r} is no option of {by}, and no argument of the function by that name",
                f"{near[0]}=",
                for_function,
            )


def require(package: str, *, extra: str, doing: str) -> ModuleType:
    """Imports an optional package, or says which extra brings it.

    Raises:
        MissingPackage: `package` is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise MissingPackage(
            f"{doing} needs the package {package!r}, which is not installed",
            hint=f"pip install 'benchax[{extra}]'",
        ) from error
