"""Names the lines that move data between host and device without `jax.device_put` or `jax.device_get`.

Host to device: NumPy arrays and Python numbers as arguments of jitted functions and eager operations.
`jax.transfer_guard("disallow")` refuses the same, but this module finds all of them, not just the first, and their
lines. Device to host: reads by `float(x)`, `if x:`, `print(x)`, `x.tolist()` and NumPy; each of them waits for the
result.

JAX's own guard raises at the first transfer, or logs from C++ to file descriptor 2 without a line. On CPU it does not
see transfers from device to host. So this module looks inside JAX, and no other module does:

* Calls of jitted functions are kept off JAX's fast path, on which no Python runs. A configuration entry in the key of
that path makes it miss, and the slow path leaves nothing there. Nothing is traced or compiled again. A warm call takes
about ten times as long during the block: do not time inside it.
* Calls of a `jax.stages.Compiled` are seen at its `__call__`, with its function if that was recorded (`frames.py`).
* All reading of arrays in Python uses `ArrayImpl._value`.

The last block restores all of them at its end. Tried on jax 0.10.2 to 0.12.0.1. If a part is missing, its direction is
missing from `Transfers.sees`, and a remark says so.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax._src import array, config, core, pjit, xla_bridge  # noqa: TID251  # what for is said above

from benchax.errors import UsageError
from benchax.model import Remark
from benchax.results.watch import Direction, ObservedTransfer, Transfers
from benchax.source_files import is_in_package, outward, owner_of
from benchax.specs import short_dtype, spec_of
from benchax.watching.frames import function_of, user_line
from benchax.wrappers import name_of

_OWN_READS = tuple(
    str(Path("jax", "_src", name)) for name in ("callback.py", "debugging.py", str(Path("interpreters", "mlir.py")))
)
"""Files of JAX that read arrays for themselves: callbacks of a compiled program, constants that it is compiled with."""
Listener = Callable[[ObservedTransfer], None]
Hearer = Callable[[Any, Sequence[Any]], None]
ResultHearer = Callable[[Any, Sequence[Any], Sequence[Any]], None]


_Call = tuple[Any, Sequence[Any]]
"""A function, and its arguments flat."""


class _Watcher(NamedTuple):
    """The functions of one block."""

    listeners: tuple[Listener, ...]
    hear: Hearer | None
    hear_result: ResultHearer | None


_watchers: list[_Watcher] = []
_lock = threading.Lock()
_undo = contextlib.ExitStack()
_sees: list[Direction] = []
_busy = threading.local()
_called = 0
_told_at: dict[tuple[Direction, str | None, str], int] = {}
"""The number of the last call when a line was reported."""


@contextlib.contextmanager
def watch_transfers(
    hear: Hearer | None = None, hear_result: ResultHearer | None = None, hear_transfer: Listener | None = None
) -> Iterator[Transfers]:
    """Yields the transfers inside the block, of all threads. Blocks may be nested: each sees all inside it.

    Args:
        hear: told of each call of a jitted function and of each eager operation before it runs: the function, and its
            arguments flat. Stays silent where "host to device" cannot be seen.
        hear_result: told of it when it has been started: the function, its arguments and its results, flat.
        hear_transfer: told of each transfer, with its line, while that is still on the stack.

    Raises:
        UsageError: `hear`, `hear_result` or `hear_transfer` is no function.

    Example:
        >>> add = jax.jit(lambda x: x + 1)
        >>> with benchax.watch_transfers() as found:
        ...     _ = add(np.ones(1000))
        >>> found.count("host to device")
        1
    """
    for name, given, of in (
        ("hear", hear, "a function and its arguments"),
        ("hear_result", hear_result, "a function, its arguments and its results"),
        ("hear_transfer", hear_transfer, "a transfer"),
    ):
        if given is not None and not callable(given):
            raise UsageError(f"{name}={given!r} cannot be called", f"a function of {of}, or None")
    found = Transfers()
    watcher = _Watcher((found.add, *([hear_transfer] if hear_transfer else [])), hear, hear_result)
    with _lock:
        if not _watchers:
            _install()
        _watchers.append(watcher)
        found.sees = tuple(_sees)
    try:
        yield found
    finally:
        # After the block, because only now has the program chosen its backend.
        found.remarks += _remarks(found)
        with _lock:
            _watchers.remove(watcher)
            if not _watchers:
                _undo.close()


class BatchedCall:
    """A jitted function that is called under `vmap` or a derivative from Python. JAX runs a program made from the
    function, which is known by name and place only."""

    def __init__(self, name: str, defined: str, is_of_jax: bool) -> None:
        self.__name__, self.defined, self.is_of_jax = name, defined, is_of_jax


def clock() -> float:
    """Seconds on a clock of this thread that stands still while calls and reads are looked at."""
    now = getattr(_busy, "looks_since", None) or time.perf_counter()
    return now - getattr(_busy, "looked_s", 0.0)


@contextlib.contextmanager
def _looking() -> Iterator[None]:
    """Whatever surprises us in there is not the user's fault."""
    if getattr(_busy, "looks_since", None) is not None:
        yield
        return
    _busy.looks_since = time.perf_counter()
    try:
        with contextlib.suppress(Exception):
            yield
    finally:
        _busy.looked_s = getattr(_busy, "looked_s", 0.0) + time.perf_counter() - _busy.looks_since
        _busy.looks_since = None


def _remarks(found: Transfers) -> Iterator[Remark]:
    for direction in ("host to device", "device to host"):
        if direction not in found.sees:
            message = f"transfers from {direction} cannot be seen in jax {jax.__version__}: none is listed"
            yield Remark("transfers-unseen", "warning", message)
    # Don't ask before the program has chosen its backend: the question would choose it.
    if "device to host" in found.sees and xla_bridge.backends_are_initialized() and jax.default_backend() == "cpu":
        yield Remark(
            "transfers-in-place",
            "info",
            "on CPU, NumPy reads JAX's arrays where they are (np.asarray(x), x.item()): no transfer, and not listed",
        )


def _tell(direction: Direction, where: str | None, what: str, by: str, size: int, elapsed_s: float | None) -> None:
    in_a_row = int(_told_at.get((direction, where, by)) == _called)
    _told_at[direction, where, by] = _called
    transfer = ObservedTransfer(direction, where, what, by, 1, size, elapsed_s, in_a_row)
    for listener in [one for watcher in tuple(_watchers) for one in watcher.listeners]:
        listener(transfer)


def _observe(run: Callable[[], Any], look: Callable[[], _Call], results: Callable[[Any], Sequence[Any]]) -> Any:
    """Returns the result of a call. Reports it to the watchers before it runs, and when it has been started.

    Args:
        look: the function, or None for an unknown one, and the arguments.
        results: the results of the call, flat.
    """
    call: _Call | None = None
    with _looking():
        if core.trace_state_clean():  # inside a trace arguments become constants of the program
            fun, args_flat = look()
            if not isinstance(fun, BatchedCall):
                # Before it runs, since donated ones are gone afterwards.
                _arguments(args_flat, "a Compiled" if fun is None else name_of(fun))
            call = None if fun is None else (fun, args_flat)
        for watcher in tuple(_watchers):
            if watcher.hear and call:
                watcher.hear(*call)
    found = run()
    with _looking():
        for watcher in tuple(_watchers):
            if watcher.hear_result and call:
                watcher.hear_result(*call, results(found))
    return found


# ---- inside JAX -------------------------------------------------------------------------------------------------


def _install() -> None:
    _sees.clear()
    _told_at.clear()
    parts: dict[Direction, Callable[[], None]] = {
        "host to device": _off_the_fast_path,
        "device to host": _reading_of_arrays,
    }
    for direction, install in parts.items():
        with contextlib.suppress(AttributeError, KeyError, TypeError):  # a JAX without such a part: `_remarks` says so
            install()
            _sees.append(direction)


_is_watched: Any = None
"""The entry of JAX's configuration; one for the life of the process, as JAX has no way to take it out again."""


def _off_the_fast_path() -> None:
    global _is_watched
    run: Callable[..., Any] = pjit._run_python_pjit
    if not hasattr(pjit, "_get_fastpath_data"):
        raise AttributeError("without it, calls on the fast path would not be seen")
    if _is_watched is None:
        _is_watched = config.config_ext.Config("benchax_watches_transfers", None, include_in_jit_key=True)

    def call_and_record(p: Any, args_flat: Any, fun: Any, *rest: Any) -> Any:
        return _observe(lambda: run(p, args_flat, fun, *rest), lambda: (fun, args_flat), lambda found: found[1])

    _replace(pjit, "_run_python_pjit", call_and_record)
    _inside_transformations()
    _replace(pjit, "_get_fastpath_data", lambda *_, **__: None)
    _replace(jax.stages.Compiled, "__call__", _record_compiled_calls(jax.stages.Compiled.__call__))
    _is_watched.set_global(True)
    _undo.callback(_is_watched.set_global, None)


_batched: dict[tuple[str, str], BatchedCall] = {}


def _inside_transformations() -> None:
    """`jax.vmap(jitted)(x)` and `jax.grad(jitted)(x)` go by the rule for running the primitive of `jax.jit`."""
    primitive: Any = getattr(pjit, "jit_p", None) or vars(pjit)["pjit_p"]  # jit_p since jax 0.7
    run: Callable[..., Any] = primitive.impl

    def run_and_record(*args: Any, **params: Any) -> Any:
        return _observe(lambda: run(*args, **params), lambda: (_batched_call(params), args), lambda found: found)

    primitive.def_impl(run_and_record)
    _undo.callback(primitive.def_impl, run)


def _batched_call(params: Any) -> BatchedCall:
    # "score at train.py:7", as JAX describes a function in its errors (0.10.2 to 0.12.0.1).
    jaxpr = params["jaxpr"]
    described = getattr(getattr(jaxpr, "jaxpr", jaxpr).debug_info, "func_src_info", "") or ""
    name, _, defined = described.partition(" at ")
    key = name or params["name"], defined
    if key not in _batched:
        file = defined.rpartition(":")[0]
        _batched[key] = BatchedCall(key[0], defined, not file or owner_of(file) != "user")
    return _batched[key]


def _record_compiled_calls(call: Callable[..., Any]) -> Callable[..., Any]:
    """Records calls of compiled programs. A program compiled by hand has its own fast path, behind this method."""

    # `frames.py` knows this function and its arguments by their names.
    def call_compiled(compiled: Any, /, *args: Any, **kwargs: Any) -> Any:
        def look() -> _Call:
            return function_of(compiled), jax.tree.leaves((args, kwargs))

        return _observe(lambda: call(compiled, *args, **kwargs), look, jax.tree.leaves)

    return call_compiled


def _arguments(args_flat: Any, by: str) -> None:
    """Counts the call, and reports the arguments that it moves."""
    global _called
    _called += 1
    of_host = [value for value in args_flat if not isinstance(value, jax.Array)]
    if not of_host:
        return
    where = user_line()
    for value in of_host:
        dtype = jnp.result_type(value)
        shape = np.shape(value)
        _tell(
            "host to device", where, _describe_array(value, dtype, shape), by, dtype.itemsize * math.prod(shape), None
        )


def _describe_array(value: Any, dtype: Any, shape: tuple[int, ...]) -> str:
    if isinstance(value, bool | int | float | complex) and not isinstance(value, np.generic):
        kind = next(kind for kind in (bool, int, float, complex) if isinstance(value, kind))
        return f"Python {kind.__name__}"
    given = getattr(value, "dtype", dtype)
    spec = f"NumPy {short_dtype(given.name)}[{','.join(map(str, shape))}]"
    return spec if given == dtype else f"{spec}, made {short_dtype(dtype.name)}"


def _reading_of_arrays() -> None:
    plain: property = array.ArrayImpl.__dict__["_value"]
    read: Callable[[Any], Any] = plain.fget  # pyright: ignore[reportAssignmentType]

    def read_and_record(self: Any) -> Any:
        # A copy that the host already has is not a transfer, and the parts of a sharded array are not one each.
        if getattr(_busy, "is_reading", False) or getattr(self, "_npy_value", None) is not None:
            return read(self)
        _busy.is_reading = True
        begun = time.perf_counter_ns()
        try:
            return read(self)
        finally:
            elapsed_s = (time.perf_counter_ns() - begun) / 1e9
            _busy.is_reading = False
            with _looking():
                _reading(self, elapsed_s)

    _replace(array.ArrayImpl, "_value", property(read_and_record, doc=plain.__doc__))


@contextlib.contextmanager
def reads_unseen() -> Iterator[None]:
    """Hides this thread's own reads of arrays inside the block: they come from benchax, not from the user."""
    before = getattr(_busy, "is_reading", False)
    _busy.is_reading = True
    try:
        yield
    finally:
        _busy.is_reading = before


def _reading(value: Any, elapsed_s: float) -> None:
    # Above this function and `read_and_record`, where the frames of JAX begin.
    frame = sys._getframe(2)
    by = _reader(frame)
    # Explicit (device_put reads an array that it places elsewhere), the reading of a callback, or a truth value that a
    # package tests: none is a line of the user's.
    if by not in ("device_get", "device_put", None) and not (value.dtype == bool and is_in_package(frame)):
        _tell("device to host", user_line(), spec_of(value), by, value.nbytes, elapsed_s)


def _reader(frame: FrameType) -> str | None:
    """The function of JAX that the user's line called: __float__, __repr__, device_get. None: JAX reads for itself, as
    for a callback of a compiled program."""
    codes = [one.f_code for one in outward(frame)]
    if any(code.co_filename.endswith(_OWN_READS) for code in codes):
        return None
    # While they are watched, calls go through functions of benchax.
    ours = itertools.takewhile(lambda code: owner_of(code.co_filename) in ("jax", "benchax"), codes)
    return ([code.co_name for code in ours if owner_of(code.co_filename) == "jax"] or ["?"])[-1]


def _replace(owner: Any, name: str, new: Any) -> None:
    _undo.callback(setattr, owner, name, owner.__dict__[name])
    setattr(owner, name, new)
