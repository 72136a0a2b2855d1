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
from collections.abc import Iterable
from types import ModuleType


class BenchaxError(Exception):
    """Base of all errors of benchax.

    Args:
        problem: what was wrong, quoting the value that was given.
        expected: what would have been right, listing the permitted values.
        hint: what to do next.

    Example:
        >>> try:
        ...     benchax.bench(abs, "f32[8]", timer="watch")
        ... except benchax.BenchaxError as error:
        ...     print(error.problem)
        unknown timer 'watch'
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


class UsageError(BenchaxError, ValueError):
    """The caller gave something that cannot work. A ValueError too, as people who catch those expect.

    Example:
        >>> try:
        ...     benchax.bench(abs, "f32[8]", max_time_s="soon")
        ... except benchax.UsageError as error:
        ...     print("soon" in error.problem)
        True
    """


class MissingPackage(BenchaxError):
    """An optional package is needed and not installed.

    Example:
        >>> print(benchax.MissingPackage("drawing needs the package 'x'", hint="pip install x"))
        drawing needs the package 'x'
        <BLANKLINE>
        hint: pip install x
    """


class StoreError(BenchaxError):
    """Rows could not be written or read.

    Example:
        >>> try:
        ...     benchax.load("nowhere")
        ... except benchax.StoreError as error:
        ...     print("nowhere" in str(error))
        True
    """


class FormatError(BenchaxError):
    """A document is not one of ours, or was written by a newer benchax.

    Example:
        >>> _ = pathlib.Path("rows.jsonl").write_text("{}")
        >>> try:
        ...     benchax.load("rows.jsonl")
        ... except benchax.FormatError as error:
        ...     print("rows.jsonl" in str(error))
        True
    """


class NotAvailable(BenchaxError):
    """A feature cannot work here; `problem` completes the sentence "not available here, because …".

    Example:
        >>> print(benchax.NotAvailable("there is no compiler"))
        not available here, because there is no compiler
    """

    def __str__(self) -> str:
        return f"not available here, because {super().__str__()}"


class DeadlineExceeded(BenchaxError):
    """A function under `with_deadline` was stopped at its time limit.

    Example:
        >>> endless = lambda x: jax.lax.while_loop(lambda y: jnp.all(y >= 0), lambda y: y * 0.5, x)
        >>> try:
        ...     benchax.with_deadline(endless, 0.05)(jnp.ones(4))
        ... except benchax.DeadlineExceeded as error:
        ...     print("50.0 ms" in error.problem)
        True
    """


class NotMeasured(BenchaxError):
    """A reading cannot be taken here; `problem` completes the sentence "not measured, because …".

    Example:
        >>> raise benchax.NotMeasured("there is no clock")
        Traceback (most recent call last):
        benchax.errors.NotMeasured: there is no clock
    """


def text_of(error: BaseException) -> str:
    """The text of an error. If that raises, as the user's own classes can, it is what Python prints then."""
    try:
        return str(error)
    except Exception:
        return "<exception str() failed>"


def reason_of(error: BaseException) -> str:
    """In one line, to complete "because …": the problem of an error of ours, else the type and the text."""
    text = error.problem if isinstance(error, BenchaxError) else f"{type(error).__name__}: {text_of(error)}"
    return " ".join(text.split())


def one_of(names: Iterable[str], given: str | None = None) -> str:
    """States the permitted values: "'timer'? Choices: seed, timer". The nearest name to `given` comes
    first.

    If there are more than 30 names, only the nearest few are listed.
    """
    listed = sorted(names)
    near = difflib.get_close_matches(given, listed, n=5) if given else []
    if len(listed) > 30:
        choices = f"{len(listed)} names, such as {', '.join(near or listed[:5])}"
        return f"{near[0]!r}? Choices: {choices}" if near else f"one of {choices}"
    choices = ", ".join(listed)
    return f"{near[0]!r}? Choices: {choices}" if near else f"one of: {choices}"


UPGRADE = "install a newer benchax from where this one came: pip install --upgrade PATH_OR_URL"
_INSTALLED_AS = {"psycopg": "'psycopg[binary]'", "ray": "'ray[client]'"}
"""The names that pip needs for a package if the package's own name is not enough."""


def require(package: str, *, doing: str) -> ModuleType:
    """Imports an optional package, or says how to get it.

    Raises:
        MissingPackage: `package` is not installed.
    """
    try:
        return importlib.import_module(package)
    except ImportError as error:
        name = package.partition(".")[0]
        raise MissingPackage(
            f"{doing} needs the package {name!r}, which is not installed",
            hint=f"pip install {_INSTALLED_AS.get(name, name)}",
        ) from error
