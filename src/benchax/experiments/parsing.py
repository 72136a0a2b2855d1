"""The values for variants that sweep: arguments, their axes, and their values.

    static   n=1,2,3             values of an argument
    vmap     x=1..256            sizes for an argument; 1..256 doubles from 1 on
    shapes   x.0+w.1=100,130     sizes of axes that have one size together
    vmap     1..256              no arguments named: all of them, or the first, depending on the variant

Lists and mappings work, too: {"n": [1, 2, 3]}. Functions are named like targets of the command line:

    loop     model.py:unfinished
    pipeline model.py:STAGES=1,2,4
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax

from benchax.case import Case
from benchax.discovery import MODULE_PREFIX, resolve_target
from benchax.errors import UsageError
from benchax.experiments.functions import argument_name
from benchax.measuring.inputs import Inputs

MOST_VALUES = 64


@dataclass(frozen=True)
class CommonAxis:
    """An axis of every array in an argument."""

    argument: int | str
    axis: int = 0


def halves(variant: str, raw: Any) -> tuple[str, Any]:
    """Returns (arguments, values). Without arguments the first is empty; without values the second is None.

    Raises:
        UsageError: a mapping of more or less than one argument.
    """
    if isinstance(raw, Mapping):
        if len(raw) != 1:
            raise UsageError(f"{variant} is given {raw!r}", "one entry: arguments and their values")
        ((arguments, values),) = raw.items()
        return str(arguments), values
    if not isinstance(raw, str):
        return "", raw
    before, equals, after = raw.partition("=")
    return (before.strip(), after) if equals else _without_equals(raw.strip())


def _without_equals(text: str) -> tuple[str, Any]:
    is_values = text[:1].isdecimal() and "." not in text.replace("..", "")
    return ("", text) if is_values else (text, None)


def values(variant: str, given: Any) -> tuple[Any, ...]:
    """Reads 1,2,3 and 'a',None as Python does; words that Python cannot read are texts.

    Raises:
        UsageError: there are no values, or too many.
    """
    found = _literals(given) if isinstance(given, str) else given
    if found is None or isinstance(found, Mapping) or not isinstance(found, Sequence) or not found:
        raise UsageError(f"{variant} is given the values {given!r}", "values, such as n=1,2,3")
    _refuse_many(variant, len(found))
    return tuple(found)


def _literals(text: str) -> tuple[Any, ...]:
    try:
        return ast.literal_eval(f"({text},)") if text.strip() else ()
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return tuple(_literal(word.strip()) for word in text.split(","))


def _literal(word: str) -> Any:
    try:
        return ast.literal_eval(word)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return word


def sizes(variant: str, given: Any) -> tuple[int, ...]:
    """100,130 and 1..256 as numbers in order, each once.

    Raises:
        UsageError: not whole numbers from 1 up.
    """
    words = given.split(",") if isinstance(given, str) else given
    try:
        found = {size for word in words for size in _double(str(word).strip())}
    except (TypeError, ValueError):
        raise UsageError(
            f"{variant} is given the sizes {given!r}", "whole numbers from 1 up: 100,130,200 or 1..256"
        ) from None
    _refuse_many(variant, len(found))
    return tuple(sorted(found))


def _double(word: str) -> list[int]:
    first, dots, last = word.partition("..")
    low, high = int(first), int(last if dots else first)
    if not 1 <= low <= high < 2**31:
        raise ValueError(word)
    return [low * 2**k for k in range((high // low).bit_length())]


def _refuse_many(variant: str, count: int) -> None:
    if count > MOST_VALUES:
        raise UsageError(f"{variant} is given {count} values", f"at most {MOST_VALUES}")


def arguments(case: Case, inputs: Inputs) -> dict[str, int | str]:
    """The dynamic arguments of the call: as their author calls them → position or name."""
    keys: list[int | str] = [*range(len(inputs.args)), *inputs.kwargs]
    return {argument_name(case.fn, key): key for key in keys if key not in inputs.static}


def axes(variant: str, text: str, case: Case, inputs: Inputs) -> tuple[CommonAxis, ...]:
    """x.0+w.1 as axes; x alone is its first one.

    Raises:
        UsageError: an argument that is not there, or an axis that it does not have.
    """
    permitted = arguments(case, inputs)
    return tuple(_axis(variant, word.strip(), permitted, inputs) for word in text.split("+"))


def _axis(variant: str, word: str, permitted: Mapping[str, int | str], inputs: Inputs) -> CommonAxis:
    name, dot, number = word.rpartition(".")
    name, number = (name, number) if dot else (word, "0")
    key = find_argument(variant, name, permitted)
    if not number.isdecimal():
        raise UsageError(f"{variant} is given {word!r}", "an argument, or one with the number of an axis: x.1")
    # No array has as many axes; and Python refuses to read numbers of thousands of digits.
    axis = int(number) if len(number) < 4 else 1000
    leaves = array_leaves(value_of(inputs, key))
    if not leaves or any(leaf.ndim <= axis for leaf in leaves):
        raise UsageError(f"{variant} is given {word!r}: {name!r} has no axis {number}", "an axis that its arrays have")
    return CommonAxis(key, axis)


def find_argument(variant: str, word: str, permitted: Mapping[str, int | str]) -> int | str:
    """The argument of that name, or at that position.

    Raises:
        UsageError: it is none of `permitted`.
    """
    by_position = {str(key): key for key in permitted.values()}
    key = permitted.get(word.strip(), by_position.get(word.strip()))
    if key is None:
        raise UsageError(f"{variant} is given the argument {word!r}", f"one of: {', '.join(permitted)}")
    return key


def value_of(inputs: Inputs, key: int | str) -> Any:
    return inputs.args[key] if isinstance(key, int) else inputs.kwargs[key]


def array_leaves(tree: Any) -> list[Any]:
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


def named_objects(variant: str, targets: Sequence[str], case: Case) -> list[Any]:
    """Returns the objects that MODULE:NAME, or FILE.py:NAME, refer to. It does not import a file again that was
    imported before, such as the file of the case's own function. A second import would repeat the file's side effects,
    and make other classes.

    Raises:
        UsageError: there is no such module, or nothing of that name in it.
    """
    return [_named_object(variant, target.strip(), getattr(case.fn, "__module__", None) or "") for target in targets]


def _named_object(variant: str, target: str, own: str) -> Any:
    where, _, name = target.rpartition(":")
    if not where or not name:
        raise UsageError(f"{variant} is given the name {target!r}", "MODULE:NAME or FILE.py:NAME, such as model.py:f")
    module = _module_of(Path(where), own) if where.endswith(".py") else None
    if module is None:
        return resolve_target(target)
    try:
        return resolve_target(f"{module}:{name}")
    except UsageError as error:  # in the words of the user, who wrote a file
        raise UsageError(f"{where!r} has nothing called {name!r}", error.expected) from None


def _module_of(file: Path, own: str) -> str | None:
    """The name of the module that this file has become."""
    names = (own, *(name for name in sys.modules if name.startswith(MODULE_PREFIX)))
    files = {name: getattr(sys.modules.get(name), "__file__", None) for name in names}
    return next((name for name, its in files.items() if its and Path(its).resolve() == file.resolve()), None)
