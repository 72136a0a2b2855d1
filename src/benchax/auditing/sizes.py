"""Where the sizes are chosen for which a function is compiled again: read from the user's file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from benchax.auditing.origins import size_made_by
from benchax.auditing.passed_values import changed_path
from benchax.auditing.syntax import scopes_around, tree_of, where_of
from benchax.results.audit import Where
from benchax.results.watch import Compile

OF_SIZES = frozenset({"shape", "weak type"})
"""A carry that begins weakly typed may come with sizes that change, once."""


def sized_at(compiles: Sequence[Compile]) -> Where | None:
    """The line that gives an argument another size each time, if all of them are called from one line: of several
    arrays that one function makes, the first."""
    if not all(any(reason.kind == "shape" for reason in c.reasons) for c in compiles):
        return None
    kinds = {reason.kind for c in compiles for reason in c.reasons}
    if len({c.where for c in compiles}) != 1 or not OF_SIZES.issuperset(kinds):
        return None
    called, function = where_of(compiles[0].where), compiles[0].function
    shapes = (reason.text for c in compiles for reason in c.reasons if reason.kind == "shape")
    paths = dict.fromkeys(path for text in shapes if (path := changed_path([text])))
    return first_of_one_function(line for path in paths if (line := size_made_by(called, function, path)) is not None)


def first_of_one_function(lines: Iterable[Where | None]) -> Where | None:
    """The first one given of some lines, if all are known and stand in one function."""
    found = list(lines)
    known = [line for line in found if line is not None]
    return known[0] if known and len(known) == len(found) and len(set(map(_function_of, known))) == 1 else None


def _function_of(where: Where) -> int:
    tree = tree_of(where[0])
    return next((scope.lineno for scope in scopes_around(tree, where[1])), 0) if tree is not None else 0
