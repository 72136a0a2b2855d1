"""Stops loops inside XLA: `with_deadline` for users, `interruptible` for programs that keep their own time.

A running XLA program cannot be stopped from outside, short of killing the process. Here it stops itself: the function
is traced and its loops (`while_loop`, `scan`, `fori_loop`) are rewritten so that they look at the clock every 0.2 to
1 ms. Which loops and how, says `rewriting.py`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable
from time import perf_counter_ns
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jax.core import Tracer, eval_jaxpr
from jax.custom_batching import custom_vmap

from benchax import units
from benchax.clock import handlers, rewriting
from benchax.clock.handlers import default_platform, nanoseconds, tier
from benchax.clock.stamps import stamp
from benchax.clock.times import is_before
from benchax.errors import BenchaxError, DeadlineExceeded, NotAvailable, UsageError, one_of
from benchax.keywords import check_places, positional_names, positions
from benchax.program.jaxpr import every_equation
from benchax.static_leaves import Static, as_function_of_arrays, data_of
from benchax.wrappers import name_of

OnTimeout = Literal["raise", "partial"]
REACHED = "benchax: the time limit was reached"
"""What `handlers.c` says when it ends a program."""
_ON_ONE_DEVICE = "put with_deadline inside jax.shard_map, around what one device does alone"
HELD_BACK = 2**14
"""Inputs of up to this many elements are passed through the clock, which copies them once."""


def with_deadline(
    f: Callable[..., Any],
    seconds: Any,
    on_timeout: OnTimeout = "raise",
    *,
    static: Iterable[int | str] | int | str = (),
    static_argnums: int | Iterable[int] = (),
    static_argnames: str | Iterable[str] = (),
) -> WithDeadline:
    """Returns `f`, jitted, which stops after it has run for `seconds`. On CPUs, and on NVIDIA GPUs.

        simulate = with_deadline(simulate, 0.5)                          # raises DeadlineExceeded
        simulate = with_deadline(simulate, 0.5, on_timeout="partial")    # returns (outputs, is_expired)

    The loops of `f` look at the clock every 0.2 to 1 ms; nothing else can stop. Tracing and compiling do not count: the
    time begins when the largest input is ready. On GPUs they look every 0.8 to 4 ms, which no run on a GPU has verified
    yet.

    Args:
        f: a function that `jax.jit` takes, jitted or not, differentiated or vmapped or not.
        seconds: above 0 and finite: 2.5, "500ms", "2min". Inside `jax.jit` it can be traced, f32[], so that another
            limit needs no new compilation. Then a value at or below 0 has already passed, and infinity and NaN mean no
            limit.
        on_timeout: "raise": a call that takes longer raises; the call waits for its result. Inside your own `jax.jit`,
            a stopped loop ends the whole program, with a `JaxRuntimeError` DEADLINE_EXCEEDED; a GPU can't do that.
            "partial": the call returns (what `f` returns, is_expired), with is_expired a bool[].
        static: arguments by position or name; static_argnums, static_argnames: as for `jax.jit`. Give them for a jitted
            `f`, too: its own are not known here.

    `is_expired` says that a loop found the limit passed. Each loop has then stopped at its current iteration. A
    `while_loop` or a `scan` returns its last carry. Rows of `ys` that a `scan` did not reach are zero. Loops that begin
    later make no iteration. Everything else, in the iteration around a stopped loop and after it, was computed from
    these values. If it is False, the outputs are complete.

    If no loop is stopped, results equal those of `jax.jit(f)` bit for bit. This held in all of 500 generated programs
    over 2 KiB, and in 249 of 250 over a few bytes; the other one differed in a last digit. In XLA:CPU, rounding depends
    on fusion. It compiles loops over less than 1 KiB in another way if loops inside them look at the clock.

    Custom calls, callbacks, kernels, and loops over references stay unchanged; `.unchecked` lists them after the first
    call. A loop that surely ends within 0.1 ms stays unchanged, too, and is not listed. A `scan` that is completely
    unrolled is not a loop. Donated arguments of a jitted `f` are not donated.

    Raises:
        UsageError: `seconds` or `on_timeout` has another value than above. When called: the result is differentiated or
            vmapped; put `with_deadline` outside, as in `with_deadline(jax.grad(f), seconds)`.
        NotAvailable: when called: neither a CPU nor an NVIDIA GPU, loops or inputs on several devices, or a JAX with
            other internals. Also "raise" inside your own `jax.jit` on a GPU.
        DeadlineExceeded: when called, see `on_timeout`.

    Example:
        >>> double = benchax.with_deadline(lambda x: x * 2, "1s")
        >>> double(jnp.ones(2)).tolist()
        [2.0, 2.0]
    """
    if not callable(f):
        raise UsageError(f"cannot limit {f!r}, a {type(f).__name__}", "a function, jitted or not")
    if not isinstance(on_timeout, str) or on_timeout not in get_args(OnTimeout):
        raise UsageError(f"on_timeout={on_timeout!r}", one_of(get_args(OnTimeout), given=str(on_timeout)))
    return WithDeadline(f, _limit(seconds), on_timeout, _static_places(f, static, static_argnums, static_argnames))


def _static_places(f: Callable[..., Any], *given: int | str | Iterable[int | str] | None) -> frozenset[int | str]:
    """The static arguments of `f`, each by position and by name, as far as its signature shows them.

    Args:
        given: positions and names, each one or several.

    Raises:
        UsageError: `f` has no such argument.
    """
    which: set[int | str] = set()
    for each in given:
        which.update(positions(() if each is None else each, "static"))
    check_places(f, which, "static")
    names = positional_names(f)
    for number, name in enumerate(names):
        if {number, number - len(names), name} & which:
            which |= {number, name}
    return frozenset(which)


def _static_part(place: int | str, value: Any) -> Static:
    """A static argument as a part of the structure of the tree of all arguments.

    Raises:
        UsageError: it is not hashable.
    """
    try:
        hash(value)
    except TypeError:
        raise UsageError(
            f"the static argument {place!r} is {value!r}, a {type(value).__name__}",
            "something hashable that identifies the compiled program",
        ) from None
    return Static(value)


class WithDeadline:
    """The result of `with_deadline`: called as the function itself."""

    def __init__(self, f: Any, seconds: Any, on_timeout: OnTimeout, static: frozenset[int | str]) -> None:
        self.seconds = seconds
        self.on_timeout: OnTimeout = on_timeout
        self._f = f
        self._static = static
        self._unchecked: set[str] = set()
        self._program: Callable[..., Any] = jax.jit(self._trace)
        # Don't copy f's `__dict__`: if f is a callable object, its names may clash with attributes here.
        functools.update_wrapper(self, f, updated=())

    @property
    def unchecked(self) -> tuple[str, ...]:
        """Names of the primitives that no deadline stops, in all that was traced so far."""
        return tuple(sorted(self._unchecked))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        static = {n % len(args) for n in self._static if isinstance(n, int) and -len(args) <= n < len(args)}
        args = tuple(_static_part(n, arg) if n in static else arg for n, arg in enumerate(args))
        kwargs = {name: _static_part(name, arg) if name in self._static else arg for name, arg in kwargs.items()}
        leaves = jax.tree.leaves((args, kwargs))
        if (text := next((leaf for leaf in leaves if isinstance(leaf, str | bytes)), None)) is not None:
            raise UsageError(
                f"an argument of {name_of(self._f)} under with_deadline is {text!r}",
                "arrays and numbers, or pytrees of them",
                f"a text can be a static argument: with_deadline({name_of(self._f)}, …, static=…)",
            )
        refuse_elsewhere(leaves, "each device would stop at another time, and wait for the others", _ON_ONE_DEVICE)
        if self.on_timeout == "partial":
            return self._program(self.seconds, args, kwargs)[:2]
        try:
            outputs, is_expired, until = self._program(self.seconds, args, kwargs)
            if isinstance(until, Tracer):  # inside a jit, whose program ends by itself
                self._refuse_inside()
                return outputs
            jax.block_until_ready(outputs)
            # Nothing checks the clock after the last loop, and the rest of the program can use up the time.
            is_late = perf_counter_ns() >= nanoseconds(until) if tier().can_raise else bool(is_expired)
        except jax.errors.JaxRuntimeError as error:
            if REACHED not in str(error):
                raise
            is_late = True
        if is_late:
            name = name_of(self._f)
            raise DeadlineExceeded(
                f"{name} ran past its limit of {units.seconds(float(self.seconds))}",
                hint=f"allow more, or take the partial result: with_deadline({name}, …, on_timeout='partial')",
            )
        return outputs

    def _refuse_inside(self) -> None:
        if not tier().can_raise:
            raise NotAvailable(
                f"{name_of(self._f)} under with_deadline cannot raise inside a jit on {default_platform()}",
                hint=f"take the partial result: with_deadline({name_of(self._f)}, …, on_timeout='partial')",
            )

    def _trace(self, seconds: Any, args: Any, kwargs: Any) -> tuple[Any, Any, Any]:
        leaves, tree = jax.tree.flatten((args, kwargs))
        seconds, *leaves = _outermost([seconds, *leaves], name_of(self._f))
        until, leaves = _arm(seconds, leaves)
        args, kwargs = jax.tree.unflatten(tree, leaves)
        clock, must_raise = tier(), self.on_timeout == "raise"
        g = interruptible(self._f, must_raise=must_raise and clock.can_raise, note=self._unchecked.update)
        outputs, is_expired = g(until, *args, **kwargs)
        if must_raise and not clock.can_raise:  # the host has another clock, so the program reads its own at the end
            arrays = [data_of(leaf) for leaf in jax.tree.leaves((outputs, is_expired))]
            is_expired |= ~is_before(handlers.stamp(clock, [], arrays)[1], until)
        return outputs, is_expired, until


def _arm(seconds: Any, leaves: list[Any]) -> tuple[Any, list[Any]]:
    """Returns (the deadline, the inputs to go on with). The outputs are left alone: with one look at the clock there,
    XLA would fuse their computation in another way, which rounds in another way."""
    largest = max(map(data_of, leaves), key=jnp.size, default=np.zeros(1, np.float32))
    until = handlers.deadline(tier(), seconds, after=largest)
    # Work that depends on these starts after the clock. Larger inputs are not copied for that.
    small = {i: leaf for i, leaf in enumerate(leaves) if jnp.size(leaf) <= HELD_BACK}
    (until, small), _ = stamp((until, small))
    return until, [small.get(i, leaf) for i, leaf in enumerate(leaves)]


def interruptible(
    f: Callable[..., Any],
    *,
    must_raise: bool = False,
    note: Callable[[tuple[str, ...]], Any] | None = None,
) -> Callable[..., tuple[Any, jax.Array]]:
    """Returns g(until, *args, **kwargs) -> (outputs, is_expired): `f` whose loops stop at a time. Call it while
    tracing.

    Args:
        must_raise: the whole program ends with DEADLINE_EXCEEDED instead of returning partial results.
        note: receives, at every trace, the names of primitives that cannot be stopped.

    `until` is u32[2] from `handlers.deadline`. `is_expired` (bool[]) says whether the time was up when a loop looked
    last. Leaves of the arguments that are not arrays are constants of the trace.
    """

    def g(until: Any, /, *args: Any, **kwargs: Any) -> tuple[Any, jax.Array]:
        flat, arrays = as_function_of_arrays(f, args, kwargs)
        program, shape = jax.make_jaxpr(flat, return_shape=True)(*arrays)
        # Faults of f itself appear when it is traced. A failure here is a fault of benchax or JAX.
        try:
            program = rewriting.alive(program)
            if note:
                note(rewriting.find_unchecked(program))
            outputs, is_expired = _rewrite(program, arrays, rewriting.Guard(tier(), until, must_raise))
        except BenchaxError:
            raise
        except Exception as error:
            raise NotAvailable(
                f"loops cannot be rewritten with JAX {jax.__version__}: {type(error).__name__}: {error}"
            ) from error
        return jax.tree.unflatten(jax.tree.structure(shape), outputs), is_expired

    return g


def _rewrite(program: Any, arrays: list[Any], guard: rewriting.Guard) -> tuple[list[Any], jax.Array]:
    if not rewriting.is_spread(program):
        return rewriting.run(program, arrays, jnp.bool_(False), guard)
    if any(rewriting.is_checked(eqn, guard.costs) for eqn in every_equation(program)):
        raise NotAvailable(
            "it has loops and runs on several devices: each device would stop at another time, and wait for the "
            "others forever",
            hint=_ON_ONE_DEVICE,
        )
    return eval_jaxpr(program.jaxpr, program.consts, *arrays), jnp.bool_(False)


def _outermost(values: list[Any], name: str) -> list[Any]:
    """`values`, which say what to do when they are differentiated or vmapped: clocks fail at that less clearly."""

    def refuse(transformation: str, what: str, *_: Any) -> Any:
        raise UsageError(
            f"{name} under with_deadline cannot be {what}",
            f"the other way round: with_deadline(jax.{transformation}({name}), …)",
        )

    lanes = custom_vmap(lambda values: values)
    lanes.def_vmap(functools.partial(refuse, "vmap", "vmapped"))
    smooth = jax.custom_jvp(lanes)
    smooth.defjvp(functools.partial(refuse, "grad", "differentiated"))
    return smooth(values)


def _limit(seconds: Any) -> Any:
    """`seconds` as an operand.

    Raises:
        UsageError: it is no time that a function could have.
    """
    expected = "a number of seconds, above 0 and finite, or a text such as 500ms"
    if isinstance(seconds, Tracer):
        if seconds.shape:
            raise UsageError(f"a limit of shape {seconds.shape}", "one number of seconds, a scalar")
        return seconds
    try:
        number = units.parse_seconds(seconds) if isinstance(seconds, str) else float(seconds)
    except (TypeError, ValueError, OverflowError, UsageError):
        number = math.nan
    if isinstance(seconds, bool) or not 0 < number < math.inf:
        raise UsageError(f"a limit of {seconds!r} seconds", expected)
    # Longer than the age of the universe, and still without overflow.
    return np.float32(min(number, 1e18))


def refuse_elsewhere(leaves: list[Any], why_not_several: str, hint: str) -> None:
    """Raises `NotAvailable` if the clock does not run where `leaves` are, or if several devices would read it."""
    here = default_platform()
    arrays = [a for a in leaves if isinstance(a, jax.Array) and not isinstance(a, Tracer)]
    # Uncommitted arrays go to the default device.
    platforms = {device.platform for a in arrays if a.committed for device in a.devices()} or {here}
    if platforms != {here} or here not in ("cpu", "gpu"):
        raise NotAvailable(
            f"the clock inside compiled code runs on {here if here == 'gpu' else 'cpu'}, and this runs on "
            f"{', '.join(sorted(platforms))}",
            hint="make the inputs inside: with jax.default_device(jax.devices('cpu')[0])",
        )
    if (devices := max((len(a.devices()) for a in arrays), default=1)) > 1:
        raise NotAvailable(f"an input is spread over {devices} devices, and {why_not_several}", hint=hint)
