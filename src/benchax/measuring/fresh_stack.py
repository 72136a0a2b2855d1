"""Runs what is timed at the top of an empty Python stack.

JAX records the Python traceback of each call of a compiled function and of each wait for an array, for its error
messages. This takes 10 to 40 ns for every frame above the call. A call of 4.4 µs took 5.0 under 20 frames, 5.6 under 50
and 10 under 300 (jax 0.10.2). So the same function took longer in a pytest session (42 frames) than by `benchax.bench`
(11), and longer in a worker process than here.

A greenlet has no frames above it, but runs in the same thread. So the user's settings for this thread hold in it, such
as `with jax.default_matmul_precision(...)`. 4.4 µs are then 4.4 µs under 300 frames.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from functools import wraps
from threading import get_ident
from typing import ParamSpec, TypeVar

from greenlet import getcurrent, greenlet

P = ParamSpec("P")
R = TypeVar("R")


def on_fresh_stack(call: Callable[P, R]) -> Callable[P, R]:
    """Returns `call` so that it sees none of its callers. Its exceptions pass through.

    The first call of a compiled function on a new stack takes 5 µs longer, because Python gets memory for its frames.
    So use it for work of many calls whose median is taken. Single readings take `sample_on_fresh_stack`.
    """

    @wraps(call)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        stack = greenlet(call)
        # A new greenlet begins with an empty context, in which the user's context variables would have their defaults.
        stack.gr_context = copy_context()
        return stack.switch(*args, **kwargs)

    return run


def sample_on_fresh_stack(sample: Callable[[int], int]) -> Callable[[int], int]:
    """`sample`, which sees none of its callers, on one stack that stays from reading to reading (0.2 µs each)."""
    stack, thread = greenlet(_serve), get_ident()

    def run(n: int) -> int:
        nonlocal stack, thread
        if stack.dead or thread != get_ident():  # a reading has raised; or another thread is reading
            stack, thread = greenlet(_serve), get_ident()
        stack.parent, stack.gr_context = getcurrent(), copy_context()
        # A greenlet is true once it has been started: the first switch calls `_serve`, later ones return from its own
        # switch.
        return stack.switch(n) if stack else stack.switch(sample, n)

    return run


def _serve(sample: Callable[[int], int], n: int) -> None:
    """Takes a reading each time it is switched to, until no reference to it is left."""
    while (back := getcurrent().parent) is not None:  # each reading may have another caller
        n = back.switch(sample(n))
