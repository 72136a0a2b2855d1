"""The contract of a timer: one way of reading time, in one file.

A timer is prepared for one subject and then asked for samples. It says what its interval contains, and refuses with
`NotMeasured` what it cannot serve: a row without that timer, never a wrong one.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextvars import copy_context
from dataclasses import dataclass
from functools import cached_property, partial, wraps
from threading import get_ident
from time import perf_counter_ns
from typing import Any, ParamSpec, TypeVar

import jax
from greenlet import getcurrent, greenlet

from benchax.errors import NotMeasured
from benchax.machine.noise import clock_resolution_s
from benchax.measuring import state
from benchax.measuring.inputs import Call, Inputs, copied, without_static
from benchax.measuring.program import CallableProgram
from benchax.model import Census
from benchax.numerics import describe_nonfinite
from benchax.program.hlo import is_value_dependent
from benchax.static_leaves import data_of, hide_all, reveal

# ---- feedback --------------------------------------------------------------------------------------------------------
#
# Feeds the outputs of a donating call back as its next arguments, as the loop `state = step(state)` does.
#
# A donating function needs new arguments for every call. Fresh copies are not in a cache: a call that updates 256 KiB
# in place takes 20 µs in such a loop and 62 µs on fresh copies (jax 0.10.2). So the timers feed the outputs back if
# they fit. Values drift during the loop. So each sample starts again from the inputs. A trial first checks that as many
# calls as in a sample keep every number finite. Fresh copies go to a program that sorts or branches by its values, or
# loops until they are good enough.


FED_BACK, FRESH_COPIES = "outputs fed back", "fresh copies of donated arguments"
"""The regimes of the timers that call a donating function."""
TRIAL_CALLS, TRIAL_NS = 65, 10_000_000
"""The trial ends with whichever comes first. A sample of 150 µs makes 64 calls of 2.3 µs."""


@dataclass(frozen=True)
class Feedback:
    """How to feed a function's outputs back."""

    call: Callable[..., Any]
    inputs: Call
    places: tuple[tuple[int, int | None], ...]
    """(position of a donated argument, the output that replaces it; None: all outputs together)"""
    most_calls: int = TRIAL_CALLS
    """The number of calls in a row that keep every number finite; `start` makes the first one."""

    def start(self) -> Callable[[], Any]:
        """A row of calls, each on what the one before returned: gives the outputs of the next, without waiting for it.

        The first call, on copies that no cache holds, is made.
        """
        call, places, args, kwargs = self.call, self.places, list(self.inputs[0]), self.inputs[1]
        for place, _ in places:
            args[place] = jax.tree.map(copied, args[place])
        jax.block_until_ready(args)

        def feed() -> Any:
            outputs = call(*args, **kwargs)
            for place, output in places:
                args[place] = outputs if output is None else outputs[output]
            return outputs

        jax.block_until_ready(feed())
        return feed


def find_feedback(call: Callable[..., Any], inputs: Call) -> Feedback | None:
    """Finds how the outputs of `call(*args, **kwargs)` become its next arguments. None if they do not fit the donated
    arguments, or if a number does not stay finite."""
    args, kwargs = jax.block_until_ready(jax.tree.map(copied, inputs))
    outputs = jax.block_until_ready(call(*args, **kwargs))
    taken = [i for i, arg in enumerate(args) if _is_taken(arg)]
    places = _match(taken, inputs[0], outputs)
    if _is_taken(kwargs) or not places:
        return None
    try:
        feed, begun, calls = Feedback(call, inputs, places).start(), perf_counter_ns(), 1
        while calls < TRIAL_CALLS and (calls < 2 or perf_counter_ns() - begun < TRIAL_NS):
            outputs = jax.block_until_ready(feed())
            calls += 1
    except Exception:  # it may refuse its own outputs, which is no fault of the call that is measured
        return None
    # Use NumPy: JAX would compile a program in the middle of the timing.
    fed = [outputs if place is None else outputs[place] for _, place in places]
    has_overflowed = describe_nonfinite([*_arrays(fed)]) and not describe_nonfinite([*_arrays(inputs)])
    return None if has_overflowed else Feedback(call, inputs, places, calls)


def _is_taken(tree: Any) -> bool:
    return any(array.is_deleted() for array in _arrays(tree))


def _match(donated: list[int], args: tuple[Any, ...], outputs: Any) -> tuple[tuple[int, int | None], ...]:
    """`Feedback.places`; empty if an argument has no output like it."""
    if len(donated) == 1 and _describe(args[donated[0]]) == _describe(outputs):
        return ((donated[0], None),)
    free = dict(enumerate(outputs)) if isinstance(outputs, tuple | list) else {}
    places: list[tuple[int, int | None]] = []
    for i in donated:
        fitting = next((j for j, output in free.items() if _describe(output) == _describe(args[i])), None)
        if fitting is None:
            return ()
        del free[fitting]
        places.append((i, fitting))
    return tuple(places)


def _describe(tree: Any) -> Any:
    """Returns the description for which JAX compiles a program."""
    leaves, structure = jax.tree.flatten(tree)
    kinds = [(a.shape, a.dtype, a.weak_type, a.sharding) if isinstance(a, jax.Array) else type(a) for a in leaves]
    return structure, kinds


@dataclass(frozen=True)
class Subject:
    """A built program and its inputs: all that a timer needs to know."""

    program: CallableProgram
    inputs: Inputs
    outputs: Any
    """The outputs of one call; for their types and sizes. A `CallOutcome` where calls change their arguments."""
    static: tuple[int | str, ...] = ()
    donates: bool = False
    hlo: str = ""
    """The optimised program; empty if it cannot be reached."""
    impure: str = ""
    """How two traces of it differ; empty if they do not, or if this was not checked."""
    donated: tuple[int, ...] = ()
    """Which of `dynamic_leaves` it donates, as its trace says; empty for a function without one."""

    @property
    def needs_renewal(self) -> bool:
        """Does each call need its own arguments? It does if the call takes their buffers or changes them in place, or
        if the author makes them for each call."""
        return self.donates or self.inputs.is_stateful or self.inputs.anew is not None

    @cached_property
    def feedback(self) -> Feedback | None:
        """How its outputs become the arguments that its next call donates; None if this is not done."""
        # Feeding outputs back would change the work: sorted numbers sort faster, and a solver stops at once at its own
        # solution.
        if not self._donates_arrays or not self.hlo or is_value_dependent(self.hlo):
            return None
        return find_feedback(self.program.call, (self.inputs.args, self.inputs.kwargs))

    @property
    def fed_leaves(self) -> dict[int, int]:
        """Which of `dynamic_leaves` becomes which array of the outputs in the next call; empty without `feedback`."""
        if self.feedback is None:
            return {}
        # Numbers represent the leaves that count; no other leaf is a number.
        args, _ = self._merge()([*range(len(self.dynamic_leaves))])
        numbers = itertools.count()
        outputs = jax.tree.map(lambda leaf: next(numbers) if state.is_carried(leaf) else leaf, self.outputs)
        fed: dict[int, int] = {}
        for place, output in self.feedback.places:
            pair = jax.tree.leaves(args[place]), jax.tree.leaves(outputs if output is None else outputs[output])
            taken, given = ([leaf for leaf in leaves if state.is_carried(leaf)] for leaves in pair)
            fed |= zip(taken, given, strict=True)
        return fed

    @property
    def regime(self) -> str | None:
        """Where calls get the arrays that they donate; None if they donate none."""
        if not self._donates_arrays:
            return None
        return FED_BACK if self.feedback else FRESH_COPIES

    @property
    def _donates_arrays(self) -> bool:
        """Whether each call takes buffers of the shared inputs. Objects that it changes, and arguments that a setup
        makes for each call, are renewed in another way."""
        return self.donates and not self.inputs.is_stateful and self.inputs.anew is None

    def calls(self, n: int) -> list[Call]:
        """Arguments for `n` calls: one set for all, or for each its own where calls take or change them."""
        if not self.needs_renewal:
            return [(self.inputs.args, self.inputs.kwargs)] * n
        if self.inputs.anew is not None:
            return [self.inputs.anew() for _ in range(n)]
        return [self.inputs.renewed(copy=self.donates) for _ in range(n)]

    def row(self, n: int) -> list[Callable[[], Any]]:
        """Prepares `n` calls completely, but does not make them. If outputs are fed back, each call takes the
        outputs of the call before."""
        if self.feedback:
            return [self.feedback.start()] * n
        if self.inputs.is_stateful:
            return [self.ready() for _ in range(n)]
        return [partial(self.program.call, *args, **kwargs) for args, kwargs in self.calls(n)]

    def ready(self, fn: Callable[..., Any] | None = None) -> Ready:
        """Prepares one call completely, but does not make it.

        Args:
            fn: the function to call with the subject's arguments; default: its program.
        """
        (call,), fn = self.calls(1), fn or self.program.call
        return Ready(self, fn, *(call if fn is self.program.call else reveal(call)))

    def call(self) -> Any:
        """Makes one ordinary call, on fresh arguments if needed. Does not wait; callers wait for the returned value."""
        return self.ready()()

    def outcome(self) -> Any:
        """Makes one ordinary call and waits. Returns its outputs, or a `CallOutcome`."""
        ready = self.ready()
        return ready.outcome(jax.block_until_ready(ready()))

    @property
    def returned(self) -> Any:
        """The return value of the function, without the values that it changed."""
        return self.outputs.outputs if isinstance(self.outputs, state.CallOutcome) else self.outputs

    @property
    def dynamic(self) -> Call:
        """The call with its static arguments taken out: `None` in their positions, their names left out."""
        call = without_static(self.inputs.args, self.inputs.kwargs, self.static)
        return hide_all(call) if self.program.hide is hide_all else call

    @property
    def parts(self) -> state.Parts:
        """The values inside `dynamic`."""
        return state.take_apart(self.dynamic, self.inputs.labels)

    @property
    def dynamic_leaves(self) -> list[Any]:
        """The run-time inputs of the compiled program: arrays and Python numbers."""
        return [leaf for leaf in self.parts.leaves if state.is_carried(leaf)]

    @property
    def mutated(self) -> tuple[str, ...]:
        """Names of the values that a call changes in place, from its jaxpr; empty if there is no jaxpr."""
        inner = self.program.inner
        if inner is None or not self.inputs.is_stateful:
            return ()
        key, after = id(self.program), self._after(inner)
        if key not in self.inputs.mutated:  # with the program, so that no other one can have its id
            self.inputs.mutated[key] = self.program, state.changed_names(lambda values: after(values)[1], self.parts)
        return self.inputs.mutated[key][1]

    def body(self, inner: Callable[..., Any]) -> Callable[[list[Any]], Any]:
        """`inner`, which takes this subject's call, as a function of `dynamic_leaves`."""
        if not self.inputs.is_stateful:
            merge = self._merge()

            def plain(values: list[Any]) -> Any:
                args, kwargs = reveal(merge(values))
                return self.program.hide(inner(*args, **kwargs))

            return plain
        after, names = self._after(inner), self.mutated

        def body(values: list[Any]) -> state.CallOutcome:
            outputs, now = after(values)
            leaves = state.take_apart(self.program.hide(outputs)).leaves
            return state.CallOutcome(leaves, {name: data_of(now[name]) for name in names})

        return body

    def _after(self, inner: Callable[..., Any]) -> Callable[[list[Any]], tuple[Any, state.Values]]:
        merge, labels = self._merge(), self.inputs.labels

        def after(values: list[Any]) -> tuple[Any, state.Values]:
            args, kwargs = reveal(merge(values))
            outputs = inner(*args, **kwargs)
            return outputs, state.take_apart(without_static(tuple(args), kwargs, self.static), labels).values

        return after

    def _merge(self) -> Callable[[list[Any]], Call]:
        parts, inputs = self.parts, self.inputs

        def merge(values: list[Any]) -> Call:
            given = iter(values)
            args, kwargs = parts.merge([next(given) if state.is_carried(leaf) else leaf for leaf in parts.leaves])
            return inputs.with_static(args, kwargs, self.static)

        return merge

    @property
    def input_bytes(self) -> int:
        return sum(leaf.nbytes for leaf in self.inputs.data)

    @property
    def output_bytes(self) -> int:
        return sum(array.nbytes for array in _arrays(self.outputs))


class Ready:
    """A call whose arguments are made. It can be called once."""

    def __init__(self, subject: Subject, fn: Callable[..., Any], args: Any, kwargs: Any) -> None:
        self._subject, self._fn, self.args, self.kwargs = subject, fn, args, kwargs
        self._watch = None
        if subject.inputs.is_stateful:
            # Find the variables before the call. Then the reading inside the interval covers only their values, and not
            # the graph of a model.
            self._watch = state.watch(self._dynamic, self._names, subject.inputs.labels)
            self._refs = [leaf for leaf in jax.tree.leaves(self._dynamic) if state.is_ref(leaf)]

    @property
    def _dynamic(self) -> Call:
        return without_static(self.args, self.kwargs, self._subject.static)

    @property
    def _is_traced(self) -> bool:
        return self._fn is self._subject.program.call and self._subject.program.inner is not None

    @property
    def _names(self) -> tuple[str, ...]:
        """The names of the changed values; without a jaxpr, all names that the call could change."""
        if self._is_traced:
            return self._subject.mutated
        return tuple(self._subject.inputs.parts.names.values())

    def __call__(self) -> Any:
        """Returns the values to wait for: the outputs, and the arrays that the call has put into its arguments."""
        outputs = self._fn(*self.args, **self.kwargs)
        if self._watch is None:
            return outputs
        arrays = self._watch()
        return outputs, arrays, self._unwaited(outputs, arrays)

    def _unwaited(self, outputs: Any, arrays: list[Any]) -> list[Any]:
        """A reference cannot be waited for, only a copy of it. The outputs of one program are all ready at the same
        time. So a copy is needed only if there are no other outputs, or several programs."""
        has_outputs = next(_arrays(outputs, arrays), None) is not None
        if not self._refs or (self._subject.program.kind != "eager" and has_outputs):
            return []
        return [ref[...] for ref in self._refs]

    def outcome(self, result: Any) -> Any:
        """Returns the outcome of the call, given its return value `result`: its outputs, or a `CallOutcome`."""
        hide = self._subject.program.hide
        if self._watch is None:
            return hide(result)
        now, before = self.state(), self._subject.inputs.parts.values
        names = self._names if self._is_traced else [n for n in now if now[n] is not before.get(n)]
        return state.CallOutcome(hide(result[0]), {name: data_of(now[name]) for name in names})

    def state(self) -> state.Values:
        """All that the mutable arguments hold now."""
        return state.take_apart(self._dynamic, self._subject.inputs.labels).values


def _arrays(*trees: Any) -> Iterator[Any]:
    return (leaf for leaf in jax.tree.leaves(trees) if isinstance(leaf, jax.Array))


def refuse(*reasons: tuple[object, str]) -> None:
    """Raises `NotMeasured` with the reason of the first condition that holds."""
    for applies, why in reasons:
        if applies:
            raise NotMeasured(why)


@dataclass(frozen=True)
class PreparedTimer:
    """A timer ready for one subject.

    `sample(n)` returns the nanoseconds of `n` calls; for timers that take differences it can be negative.
    """

    sample: Callable[[int], int]
    take: Callable[[int, int], list[int]] | None = None
    """`take(n, count)` returns `count` samples of `n` calls at once; for timers that take them inside one program."""
    overhead_s: Callable[[int], float] | None = None
    """The timer's own share of a sample of `n` calls, measured while the samples were taken."""
    clock_tier: str | None = None
    regime: str | None = None
    census: Census | None = None
    """The census of the timer's own program around the function."""
    least_iterations: int = 1
    most_iterations: int = 1_000_000
    length: float = 1.0
    """How long a sample should be, in multiples of `Options.sample_time_s`."""
    sample_time_s: float | None = None
    """How long a sample should be, where the timer knows better than the options."""
    resolution_s: Callable[[], float | None] = clock_resolution_s
    """The smallest step of its clock that was seen; None: none was."""


# ---- an empty stack --------------------------------------------------------------------------------------------------
#
# Runs what is timed at the top of an empty Python stack.
#
# JAX records the Python traceback of each call of a compiled function and of each wait for an array, for its error
# messages. This takes 10 to 40 ns for every frame above the call. A call of 4.4 µs took 5.0 under 20 frames, 5.6 under
# 50 and 10 under 300 (jax 0.10.2). So the same function took longer in a pytest session (42 frames) than by
# `benchax.bench` (11), and longer in a worker process than here.
#
# A greenlet has no frames above it, but runs in the same thread. So the user's settings for this thread hold in it,
# such as `with jax.default_matmul_precision(...)`. 4.4 µs are then 4.4 µs under 300 frames.


P = ParamSpec("P")
R = TypeVar("R")


def on_fresh_stack(call: Callable[P, R]) -> Callable[P, R]:
    """Returns `call` so that it sees none of its callers. Its exceptions pass through.

    All its calls are on one stack that stays (0.2 µs each). The first call of a compiled function on a new stack takes
    5 µs longer, because Python gets memory for its frames.
    """
    stack, thread = greenlet(_serve), get_ident()

    @wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal stack, thread
        if stack.dead or thread != get_ident():  # a call has raised; or another thread is calling
            stack, thread = greenlet(_serve), get_ident()
        # By default, a greenlet has an empty context, in which the user's context variables have their defaults.
        stack.parent, stack.gr_context = getcurrent(), copy_context()
        if not stack:  # a greenlet is true once it has been started
            stack.switch(call)
        answers: list[R] = []
        stack.switch((args, kwargs, answers))
        return answers[0]

    return run


def _serve(call: Callable[..., Any]) -> None:
    """Makes a call each time it is switched to, until no reference to it is left. Between calls it holds neither
    arguments nor results: they can be large."""
    while (back := getcurrent().parent) is not None:  # each call may have another caller
        args, kwargs, answers = back.switch()
        answers.append(call(*args, **kwargs))
        del args, kwargs, answers
