"""The place where an argument of a call was made: followed backwards through the text of the user's file.

`fit(state, *batch)` at train.py:80 is read as Python reads it. The steps are the argument's name, the one assignment or
loop that binds it, and the function that returns or yields it. Further steps are the attribute of an object, and the
constructor that got it. A step is taken only if it is unambiguous; if the text leaves a choice, the search ends. Values
that a function returns to itself, `state = step(state)`, count as their first value.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchax.auditing.bindings import (
    ELEMENT,
    Path,
    argument_of,
    attribute_values,
    bindings_of,
    bound_calls,
    calls_on,
    class_of,
    default_of,
    definition_of,
    element_of,
    field_default,
    fields_of,
    own_nodes,
    parameters_of,
)
from benchax.auditing.syntax import callee_name, holds, last_name, loops_around, scopes_around, tree_of
from benchax.results.audit import Where

MOST_STEPS = 25
NO_FUNCTION = "no function"
"""In place of a name, where no call's results go round."""
_PART = re.compile(r"\.?([A-Za-z_]\w*)|\[(['\"]?)(.+?)\2\]")


def made_by(called: Where | None, function: str, path: str) -> Where | None:
    """The line that makes what a function is given as an argument, or as a part of one.

    Args:
        called: the line of the call.
        function: its name, as the file defines it.
        path: of the argument, by the function's own names: "state.ema", "batch['x']".

    Returns:
        None where the text tells no more than the call does.
    """
    tree = tree_of(called[0]) if called is not None else None
    parts = _parts(path)
    if called is None or tree is None or not parts:
        return None
    reader = _Reader(tree, called[1], function)
    given = reader.argument_at(called[1], parts[0])
    end = reader.follow(given[0], given[1] + parts[1:]) if given is not None else None
    return (called[0], end.lineno) if end is not None and end.lineno != called[1] else None


def dtype_written_at(made: Where | None, dtype: str) -> Where | None:
    """Returns the line that names the dtype of an array that another line makes. For `jnp.zeros(n, precision.counts)`
    it is the default of the field, `counts: jnp.dtype = jnp.bfloat16`. It returns None if no argument of a call on that
    line can be followed to it. It also returns None if the name is read elsewhere, too, like a model's dtype: then
    users must not change it for this array."""
    tree = tree_of(made[0]) if made is not None else None
    if made is None or tree is None:
        return None
    given = [one for call in calls_on(tree, made[1]) for one in (*call.args, *(k.value for k in call.keywords))]
    ends = [_Reader(tree, made[1], NO_FUNCTION).follow(one, ()) for one in given if _is_read_once(tree, one, dtype)]
    lines = {end.lineno for end in ends if end is not None and _names_dtype(end, dtype)}
    return (made[0], lines.pop()) if len(lines) == 1 else None


def _is_read_once(tree: ast.AST, node: ast.expr, dtype: str) -> bool:
    name, nodes = last_name(node), (one for one in ast.walk(tree) if isinstance(one, ast.Attribute | ast.Name))
    return name in ("", dtype) or sum(last_name(one) == name and isinstance(one.ctx, ast.Load) for one in nodes) == 1


def _names_dtype(node: ast.expr, dtype: str) -> bool:
    """jnp.bfloat16, "bfloat16", jnp.dtype("bfloat16") or a field with such a default?"""
    if isinstance(node, ast.Call):
        is_of_dtypes = callee_name(node) in ("dtype", "field")
        parts = [*node.args, *(keyword.value for keyword in node.keywords)]
        return is_of_dtypes and any(_names_dtype(one, dtype) for one in parts)
    return dtype in (getattr(node, "attr", ""), getattr(node, "id", ""), getattr(node, "value", ""))


def _parts(path: str) -> Path:
    """Splits params['w'][0].bias into its parts; empty for a text that is not a path."""
    found = list(_PART.finditer(path))
    is_whole = bool(found) and found[0][1] is not None and "".join(match[0] for match in found) == path
    return tuple(match[1] or match[3] for match in found) if is_whole else ()


@dataclass
class _Reader:
    """One file, and the call whose arguments are followed."""

    tree: ast.Module
    line: int
    function: str
    seen: list[ast.AST] = field(default_factory=list[ast.AST])

    def argument_at(self, line: int, name: str) -> tuple[ast.expr, Path] | None:
        """Returns the argument that the call of the function on this line gives for a parameter, and the part of it."""
        found = [call for call in calls_on(self.tree, line) if self._calls(call)]
        if len(found) != 1:
            return None
        return argument_of(found[0], name, parameters_of(definition_of(self.tree, self.function))[self._n_bound() :])

    def _n_bound(self) -> int:
        """How many arguments the one `functools.partial(f, ...)` of the file gives it."""
        nodes = (node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and callee_name(node) == "partial")
        found = [node for node in nodes if node.args and last_name(node.args[0]) == self.function]
        return len(found[0].args) - 1 if len(found) == 1 else 0

    def _calls(self, call: ast.Call) -> bool:
        """Is this a call of it, by its name or by one that the file gives it: `self._step = jax.jit(step)`?"""
        name = callee_name(call)
        if name == self.function:
            return True
        bound = [
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Assign) and name in map(last_name, node.targets)
        ]
        return len(bound) == 1 and any(last_name(one) == self.function for one in ast.walk(bound[0].value))

    def follow(self, node: ast.expr, path: Path) -> ast.expr | None:
        """The expression that makes it, or a part of it: as far as there is a single one. None where that ends before
        the part is found."""
        if len(self.seen) >= MOST_STEPS or node in self.seen:
            return node
        self.seen.append(node)
        return self._follow(node, path) or (None if path else node)

    def _follow(self, node: ast.expr, path: Path) -> ast.expr | None:
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return self.follow(node.value, (str(node.slice.value), *path))
        if isinstance(node, ast.Name):
            return self._follow_name(node, path)
        if isinstance(node, ast.Attribute):
            return self._follow_attribute(node, path)
        if isinstance(node, ast.Call):
            return self._follow_call(node, path)
        if path and isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.ListComp | ast.GeneratorExp):
            element = element_of(node, path[0])
            return self.follow(element, path[1:]) if element is not None else None
        return node

    def _follow_name(self, node: ast.Name, path: Path) -> ast.expr | None:
        for scope in (*scopes_around(self.tree, node.lineno), self.tree):
            bound = [one for one in bindings_of(scope, node.id) if not self._is_own_result(one[0])]
            if bound:
                nearest = bound if len(bound) == 1 else self._in_same_loop(bound, node)
                return self.follow(nearest[0][0], nearest[0][1] + path) if len(nearest) == 1 else None
            if isinstance(scope, ast.FunctionDef) and node.id in parameters_of(scope, own=True):
                return self._follow_parameter(scope, node.id, path)
        return None

    def _in_same_loop(self, bound: Sequence[tuple[ast.expr, Path]], node: ast.Name) -> list[tuple[ast.expr, Path]]:
        """Returns the bindings before it in the innermost loop around it, whose values it has there."""
        loop = max(loops_around(self.tree, node.lineno), key=lambda one: one.lineno, default=None)
        return [
            one for one in bound if loop is not None and holds(loop, one[0].lineno) and one[0].lineno <= node.lineno
        ]

    def _is_own_result(self, value: ast.expr) -> bool:
        """Returns whether it comes from the result of the function in question, so that it goes round."""
        return any(isinstance(one, ast.Call) and self._calls(one) for one in ast.walk(value))

    def _follow_parameter(self, scope: ast.FunctionDef, name: str, path: Path) -> ast.expr | None:
        owner = class_of(self.tree, scope)
        called = {scope.name} if scope.name not in ("__init__", "__call__") or owner is None else set[str]()
        if owner is not None and scope.name == "__init__":
            called = {owner.name}
        elif owner is not None and scope.name == "__call__":
            called = {name for call, name in bound_calls(self.tree) if callee_name(call) == owner.name}
        calls = [node for node in ast.walk(self.tree) if isinstance(node, ast.Call) and callee_name(node) in called]
        if len(calls) != 1:
            return None
        given = argument_of(calls[0], name, parameters_of(scope))
        if given is not None:
            return self.follow(given[0], given[1] + path)
        default = default_of(scope, name)
        # A number is an option, and right as it stands: it is what reads it that makes something else of it.
        return None if isinstance(default, ast.Constant) else default

    def _follow_attribute(self, node: ast.Attribute, path: Path) -> ast.expr | None:
        if last_name(node.value) != "self":
            return self.follow(node.value, (node.attr, *path))
        inside = [one for one in ast.walk(self.tree) if isinstance(one, ast.ClassDef) and holds(one, node.lineno)]
        return self._follow_field(max(inside, key=lambda one: one.lineno), node.attr, path) if inside else None

    def _follow_field(self, owner: ast.ClassDef, name: str, path: Path) -> ast.expr | None:
        """Returns the value that an object of this class has under a name."""
        values = [one for one in attribute_values(owner, name) if not self._is_own_result(one[0])]
        if values:
            return self.follow(values[0][0], values[0][1] + path) if len(values) == 1 else None
        made = [call for call in ast.walk(self.tree) if isinstance(call, ast.Call) and callee_name(call) == owner.name]
        given = [found for call in made if (found := argument_of(call, name, fields_of(owner))) is not None]
        if len(given) == 1:
            return self.follow(given[0][0], given[0][1] + path)
        return field_default(owner, name) if not given else None

    def _follow_call(self, node: ast.Call, path: Path) -> ast.expr | None:
        name = callee_name(node)
        if path and path[0] in (keyword.arg for keyword in node.keywords):
            value = next(keyword.value for keyword in node.keywords if keyword.arg == path[0])
            return self.follow(value, path[1:])
        if path and name in ("zip", "enumerate") and path[0] == ELEMENT:
            return self._follow_zip(node, name, path[1:])
        if name in ("replace", "_replace", "iter", "reversed", "list", "tuple", "next") and path:
            whole = node.args[0] if node.args else getattr(node.func, "value", None)
            return self.follow(whole, (ELEMENT, *path) if name == "next" else path) if whole is not None else None
        owner = next((one for one in ast.walk(self.tree) if isinstance(one, ast.ClassDef) and one.name == name), None)
        if owner is not None and path[:1] == (ELEMENT,):
            return self._follow_iteration(owner, path)
        if owner is not None:
            given = argument_of(node, path[0], fields_of(owner)) if path else None
            if given is not None:
                return self.follow(given[0], given[1] + path[1:])
            return self._follow_field(owner, path[0], path[1:]) if path else node
        return self._follow_result(node, name, path)

    def _follow_iteration(self, owner: ast.ClassDef, path: Path) -> ast.expr | None:
        """Returns the value that `__iter__` of a class yields."""
        own = [one for one in owner.body if isinstance(one, ast.FunctionDef) and one.name == "__iter__"]
        found = [one.value for scope in own for one in own_nodes(scope) if isinstance(one, ast.Yield)]
        return self.follow(found[0], path[1:]) if len(found) == 1 and found[0] is not None else None

    def _follow_zip(self, node: ast.Call, name: str, path: Path) -> ast.expr | None:
        if name == "enumerate":
            return self.follow(node.args[0], (ELEMENT, *path[1:])) if path[:1] == ("1",) and node.args else None
        at = int(path[0]) if path and path[0].isdecimal() else len(node.args)
        return self.follow(node.args[at], (ELEMENT, *path[1:])) if at < len(node.args) else None

    def _follow_result(self, node: ast.Call, name: str, path: Path) -> ast.expr | None:
        """Returns the value that a function of this file returns or yields; a call of another function makes the value
        itself."""
        scope = definition_of(self.tree, name)
        if scope is None:
            return node
        given = [one for one in own_nodes(scope) if isinstance(one, ast.Return | ast.Yield) and one.value is not None]
        values = [one.value for one in given if one.value is not None]
        if len(values) != 1 or values[0] in self.seen:
            return None
        is_yielded = isinstance(given[0], ast.Yield)
        if is_yielded and path[:1] != (ELEMENT,):
            return node if not path else None
        return self.follow(values[0], path[1:] if is_yielded else path)
