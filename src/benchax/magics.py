"""`%benchax` and `%%benchax`: measure a call, an expression or a cell of a notebook, as `%timeit` does.

    %load_ext benchax
    %benchax f(x, axis=0)
    m = %benchax --mode grad loss(params, batch)
    %%benchax --work samples=32
    h = jnp.tanh(x @ w)
    h.sum()

A call is measured as `benchax.bench(f, x, axis=0)`. Any other code becomes a function of the arrays (and trees of
arrays) that it reads, which is jitted and measured. It returns the value of the last expression, or else all that it
assigns, since XLA leaves out unused values.
"""

from __future__ import annotations

import ast
import builtins
import shlex
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from benchax.api import bench
from benchax.discovery import read_work
from benchax.errors import UsageError, one_of
from benchax.options import TABLE
from benchax.printable import truncate

if TYPE_CHECKING:
    from benchax.model import Measurement

CELL = "cell"
LONGEST_NAME = 60
_WORDS = {"--mode": "mode", "--name": "name", "--tag": "tag"}
_SWITCHES: dict[str, tuple[str, bool]] = {"--no-jit": ("jit", False)}
for _name, _row in TABLE.items():
    _flag = f"--{_name.removesuffix('_s').removesuffix('_bytes').replace('_', '-')}"
    if _row.is_switch:
        _SWITCHES |= {_flag: (_name, True), _row.metavar: (_name, False)}
    else:
        _WORDS[_flag] = _name
_WORK = "--work"


def register(shell: Any) -> None:
    """Gives the shell of IPython both magics; `%load_ext benchax` calls it."""

    def benchax(line: str, cell: str | None = None) -> Measurement:
        """Measures a call, an expression, or a cell. See `benchax.magics`."""
        options, code = split_options(line)
        if cell is not None and code.strip():
            raise UsageError(f"%%benchax is followed by {code.strip()!r}", "options only; the code is in the cell")
        return measure(code if cell is None else cell, options, shell.user_ns)

    shell.register_magic_function(benchax, "line_cell", "benchax")


def split_options(line: str) -> tuple[dict[str, Any], str]:
    """(options of `bench`, the code behind them).

    Raises:
        UsageError: an option that there is not, or one without its value.
    """
    options: dict[str, Any] = {}
    rest = line.strip()
    while rest.startswith("--"):
        name, _, rest = rest.partition(" ")
        name, equals, value = name.partition("=")
        if name in _SWITCHES:
            options.update([_SWITCHES[name]])
            continue
        if name not in _WORDS and name != _WORK:
            raise UsageError(f"%benchax has no option {name!r}", one_of([*_SWITCHES, *_WORDS, _WORK], name))
        if not equals:
            word, _, rest = rest.strip().partition(" ")
            value = "".join(shlex.split(word))
        if not value:
            raise UsageError(f"{name} has no value", f"%benchax {name} VALUE f(x)")
        if name == _WORK:
            options["work"] = {**options.get("work", {}), **read_work([value])}
        else:
            options[_WORDS[name]] = value
    return options, rest


def measure(code: str, options: Mapping[str, Any], names: dict[str, Any]) -> Measurement:
    """Measures `code`, which may use `names`.

    Raises:
        UsageError: there is no code, or it is no Python.
    """
    body = _parse(code)
    last = body[-1]
    if len(body) == 1 and isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
        fn, args, kwargs = _take_apart(last.value, names)
        return bench(fn, *args, **{**kwargs, **options})
    fn, given = function_of(body, names)
    named = {"name": options.get("name") or truncate(" ".join(code.split()), LONGEST_NAME)}
    return bench(fn, *(names[name] for name in given), **{**options, **named})


def _parse(code: str) -> list[ast.stmt]:
    try:
        body = ast.parse(code.strip()).body
    except SyntaxError as error:
        raise UsageError(
            f"{code.strip()!r} isn't Python: {error.msg}", "a call, an expression, or statements"
        ) from None
    if not body:
        raise UsageError("there is nothing to measure", "%benchax f(x), or a cell below %%benchax")
    return body


def _take_apart(call: ast.Call, names: dict[str, Any]) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """The function and the values of its arguments, whose making is not measured."""
    given = ast.copy_location(ast.Call(ast.Name(CELL, ast.Load()), call.args, call.keywords), call)
    args, kwargs = _evaluate(ast.fix_missing_locations(given), names | {CELL: lambda *args, **kwargs: (args, kwargs)})
    return _evaluate(call.func, names), args, kwargs


def _evaluate(node: ast.expr, names: dict[str, Any]) -> Any:
    return eval(compile(ast.Expression(node), "<benchax>", "eval"), names)


def function_of(body: Sequence[ast.stmt], names: Mapping[str, Any]) -> tuple[Callable[..., Any], list[str]]:
    """(a function of the arrays that `body` reads, their names). Everything else that it reads it finds by its name."""
    given = [name for name in _names_read(body) if name in names and _is_data(names[name])]
    *before, last = body
    if isinstance(last, ast.Expr):
        returned = ast.Return(last.value)
    else:
        before = list(body)
        returned = ast.Return(ast.Tuple([ast.Name(name, ast.Load()) for name in _names_assigned(body)], ast.Load()))
    module = ast.parse(f"def {CELL}({', '.join(given)}): pass")
    vars(module.body[0])["body"] = [*before, returned]
    ast.fix_missing_locations(module)
    # A copy, so that the function does not stay among the names of the notebook.
    scope = dict(names)
    exec(compile(module, "<benchax>", "exec"), scope)
    return scope[CELL], given


def _names_read(body: Sequence[ast.stmt]) -> list[str]:
    """Names that are read before anything is assigned to them."""
    read: dict[str, None] = {}
    for position, statement in enumerate(body):
        assigned = _names_assigned(body[:position])
        read |= dict.fromkeys(name for name in _names(statement, ast.Load) if name not in assigned)
    return [name for name in read if not hasattr(builtins, name)]


def _names_assigned(body: Sequence[ast.stmt]) -> list[str]:
    return [*dict.fromkeys(name for statement in body for name in _names(statement, ast.Store))]


def _names(statement: ast.stmt, context: type[ast.expr_context]) -> list[str]:
    return [node.id for node in ast.walk(statement) if isinstance(node, ast.Name) and isinstance(node.ctx, context)]


def _is_data(value: Any) -> bool:
    """Is it an array, or a tree of arrays? Numbers stay what they are: they can be sizes."""
    # Here, because IPython loads this file long before anything is measured.
    import jax
    import numpy as np  # noqa: PLC0415

    leaves = [] if callable(value) else jax.tree.leaves(value)
    return bool(leaves) and all(isinstance(leaf, jax.Array | np.ndarray | np.generic) for leaf in leaves)
