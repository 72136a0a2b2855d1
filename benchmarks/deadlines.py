"""`with_deadline`: how late endless loops inside XLA stop, and what looking at the clock costs loops that end.

    stops   endless functions with a limit of 0.2 s: milliseconds from the limit to the return of the call. Beside them
            a program that only waits for that long: what it is late is the machine's doing
    costs   functions that end, as jax.jit(f) and as jax.jit(with_deadline(f)), in turns: the median of the ratios of
            each turn. "identical": all outputs are, bit for bit. And what a call, and the first call, cost besides

Claimed: stops within 2 ms (median); long loops cost at most 10 % more. Nests of tiny loops whose lengths are not known
before they run are the worst case and outside of that claim: a look costs 0.2 to 0.4 µs, an iteration 4 ns.

    python benchmarks/deadlines.py [--quick] [--neighbour]      about a minute
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from report import busy_neighbour, header, load, note, table

from benchax.clock import handlers, tier, with_deadline
from benchax.errors import DeadlineExceeded
from benchax.units import seconds

LIMIT_S, LATE_MS, COST = 0.2, 2.0, 1.10
NEVER_S = 1000.0
Function = Callable[..., Any]


def halve(x: Any) -> Any:
    return x * 0.5 + 1.0


def fori(n: Any, x: Any, body: Callable[[Any], Any] = halve) -> Any:
    return lax.fori_loop(0, n, lambda _, x: body(x), x)


def endless(x: Any, body: Callable[[Any], Any] = halve) -> Any:
    return lax.while_loop(lambda x: jnp.ravel(x)[0] > -9.0, body, x)


ENDLESS: dict[str, tuple[Function, Any]] = {
    "while_loop": (endless, 1.0),
    "scan of 1e9 steps": (lambda x: lax.scan(lambda x, _: (halve(x), None), x, None, length=10**9)[0], 1.0),
    "fori of 1000 in a while": (lambda x: endless(x, lambda x: fori(1000, x)), 1.0),
    "fori of n in a while": (lambda x: endless(x[0], lambda y: fori(x[1], y)), (1.0, 1000)),
    "while in cond in jit": (jax.jit(lambda x: lax.cond(x > 0, endless, halve, x)), 1.0),
    "vmapped while": (jax.vmap(endless), np.ones(4, np.float32)),
    "matmul of 400 in a while": (lambda x: endless(x, lambda x: jnp.tanh(x @ x)), np.eye(400, dtype=np.float32)),
}


def normal(*shape: int) -> np.ndarray:
    return 0.1 * np.random.default_rng(0).standard_normal(shape, np.float32)


def counted(n: Any, x: Any) -> Any:
    return lax.while_loop(lambda c: c[0] < n, lambda c: (c[0] + 1, halve(c[1])), (0, x))


def rows(x: Any) -> Any:
    return lax.scan(lambda x, _: (halve(x), x.sum()), x, None, length=20_000)


def rnn(h: Any, w: Any, xs: Any) -> Any:
    def step(h: Any, x: Any) -> Any:
        h = jnp.tanh(h @ w + x)
        return h, h

    return lax.scan(step, h, xs)


def nest(n: Any, x: Any) -> Any:
    return fori(300, x, lambda x: fori(n, x) + 1.0)


LONG: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "fori 200k, tiny body": (partial(fori, 200_000), (normal(8),)),
    "fori n = 200k, tiny body": (fori, (200_000, normal(8))),
    "while 200k, tiny body": (counted, (200_000, 1.0)),
    "scan 20k with ys": (rows, (normal(8),)),
    "scan 2000 RNN steps of 64": (rnn, (normal(64), normal(64, 64), normal(2000, 64))),
    "scan 20k RNN steps of 64": (rnn, (normal(64), normal(64, 64), normal(20_000, 64))),
    "gradient of the RNN": (
        jax.grad(lambda w, h, xs: rnn(h, w, xs)[1].sum()),
        (normal(64, 64), normal(64), normal(2000, 64)),
    ),
    "fori 500, matmul of 128": (
        lambda x, w: fori(500, x, lambda x: jnp.tanh(x @ w)),
        (normal(128, 128), normal(128, 128)),
    ),
    "fori 100 over 4 MiB": (partial(fori, 100), (normal(1 << 20),)),
    "300 x fori 100, tiny": (partial(nest, 100), (normal(8),)),
    "300 x fori 1000, tiny": (partial(nest, 1000), (normal(8),)),
}
WORST: dict[str, tuple[Function, tuple[Any, ...]]] = {
    "300 x fori n = 100, tiny": (nest, (100, normal(8))),
    "300 x fori n = 1000, tiny": (nest, (1000, normal(8))),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a fifth of the calls")
    parser.add_argument("--neighbour", action="store_true", help="beside processes that compute in bursts")
    given = parser.parse_args()
    with busy_neighbour() if given.neighbour else nullcontext():
        header("deadlines inside XLA" + (", beside a busy neighbour" if given.neighbour else ""))
        print(f"clock: {tier().name}")
        stops(5 if given.quick else 25)
        costs(LONG | WORST, 9 if given.quick else 45)
        besides(200 if given.quick else 1000, 3 if given.quick else 9)
        print(load())


def stops(calls: int) -> None:
    print(f"a limit of {seconds(LIMIT_S)}: ms late, median [worst] of {calls} calls")
    waiting = jax.jit(lambda x: handlers.spin(tier(), x, int(LIMIT_S * 1e9)))
    x = jnp.ones(8)
    ours: dict[str, list[list[float]]] = {}
    for name, (f, argument) in ENDLESS.items():
        note(name)
        ways = [with_deadline(f, LIMIT_S, "partial"), with_deadline(f, LIMIT_S), lambda _: waiting(x)]
        late = [[_late_ms(way, argument) for way in ways] for _ in range(calls + 1)][1:]
        ours[name] = [list(column) for column in zip(*late, strict=True)]
    texts = [[name, *(f"{median(ms):.2f} [{max(ms):.2f}]" for ms in found)] for name, found in ours.items()]
    table(["", "partial", "raise", "waiting only"], texts)
    late = {name: max(map(median, found[:2])) for name, found in ours.items()}
    name = max(late, key=late.__getitem__)
    print(f"latest: {late[name]:.2f} ms ({name}; claimed: {LATE_MS:g})\n")


def _late_ms(call: Callable[[Any], Any], argument: Any) -> float:
    begin = perf_counter()
    with suppress(DeadlineExceeded):
        jax.block_until_ready(call(argument))
    return (perf_counter() - begin - LIMIT_S) * 1e3


def costs(functions: dict[str, tuple[Function, tuple[Any, ...]]], turns: int) -> None:
    print(f"time with a limit that is not met / time without, median [quartiles] of {turns} turns")
    found = {}
    for name, (f, arguments) in functions.items():
        note(name)
        found[name] = _cost([jnp.asarray(a) for a in arguments], _ways(f), turns)
    texts = []
    for name, (base, ratios, is_identical) in found.items():
        shown = [f"{np.median(r):.3f} [{np.quantile(r, 0.25):.3f} - {np.quantile(r, 0.75):.3f}]" for r in ratios]
        texts.append([name, seconds(base), *shown, "yes" if is_identical else "NO"])
    table(["", "jit", "partial", "raise", "identical"], texts)
    worst = {name: max(map(np.median, found[name][1])) for name in LONG}
    name = max(worst, key=worst.__getitem__)
    print(f"dearest long loop: {worst[name]:.3f} ({name}; claimed: {COST:.2f})\n")


def _ways(f: Function) -> list[Function]:
    """As jitted functions, all of them, so that what differs is the loops."""
    limited, raising = with_deadline(f, NEVER_S, "partial"), with_deadline(f, NEVER_S)
    return [jax.jit(lambda *a: f(*a)), jax.jit(lambda *a: limited(*a)[0]), jax.jit(lambda *a: raising(*a))]


def _cost(arguments: list[Any], ways: list[Function], turns: int) -> tuple[float, list[list[float]], bool]:
    """(seconds without a limit, ratios by way, whether all outputs are the same bits)."""
    outputs = [[np.asarray(leaf).tobytes() for leaf in jax.tree.leaves(way(*arguments))] for way in ways]
    times = [[_seconds(way, arguments) for way in ways] for _ in range(turns)]
    ratios = [[turn[i] / turn[0] for turn in times] for i in range(1, len(ways))]
    return median(turn[0] for turn in times), ratios, all(found == outputs[0] for found in outputs)


def _seconds(f: Function, arguments: Any) -> float:
    begin = perf_counter()
    jax.block_until_ready(f(*arguments))
    return perf_counter() - begin


def besides(calls: int, compilations: int) -> None:
    print("besides: a call of a function that does nothing, and the first call of the RNN, medians")
    x = (jnp.ones(8),)
    makers = {
        "jit": jax.jit,
        "partial": partial(with_deadline, seconds=NEVER_S, on_timeout="partial"),
        "raise": partial(with_deadline, seconds=NEVER_S),
    }
    trivial = {name: make(lambda x: x + 1) for name, make in makers.items()}
    arguments = LONG["scan 2000 RNN steps of 64"][1]
    every = {name: [_seconds(f, x) for _ in range(calls)] for name, f in trivial.items()}
    first = {
        name: [_seconds(make(lambda *a: rnn(*a)), arguments) for _ in range(compilations)]
        for name, make in makers.items()
    }
    table(
        ["", *makers],
        [[what, *(seconds(median(t)) for t in by.values())] for what, by in (("call", every), ("first call", first))],
    )


if __name__ == "__main__":
    main()
