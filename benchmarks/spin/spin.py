"""`spin(us)`: a JAX function x -> x that takes `us` microseconds, by construction. The ruler of `accuracy.py`.

A handler in plain C (`spin.c`) is compiled by `cc` when it is first needed, in 0.1 to 0.2 s, and registered with XLA.
CPU only. On top of `us` come one reading of the clock (about 0.03 µs) and XLA's own dispatch of a custom call (about
0.1 µs). Chain calls by their operand; two calls with one operand are one call to XLA, and a call whose result is not
used is none.

    python benchmarks/spin/spin.py      compares chains of calls with the truth
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import tempfile
from collections.abc import Callable
from functools import lru_cache, reduce
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TARGET = "benchax_spin"
SOURCE = Path(__file__).with_name("spin.c")


class NoSpin(Exception):
    """The handler cannot be built here, or does not keep time."""


def spin(us: float) -> Callable[[Any], Any]:
    """A function x -> x that takes `us` microseconds; jit it, chain it, or put it into a loop.

    Raises:
        NoSpin: there is no C compiler, or it cannot compile the handler.
    """
    _register()
    ns = np.int64(round(us * 1000))

    def spinning(x: Any) -> Any:
        x = jnp.asarray(x)
        call = jax.ffi.ffi_call(TARGET, jax.ShapeDtypeStruct(x.shape, x.dtype), input_output_aliases={0: 0})
        return call(x, ns=ns)

    spinning.__name__ = spinning.__qualname__ = f"spin_{us:g}us".replace(".", "_")
    return spinning


@lru_cache(maxsize=1)
def _register() -> None:
    # The file may go once it is loaded; the library itself stays for as long as the process.
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        library = ctypes.CDLL(str(_compiled(Path(folder))))
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(library.benchax_spin), platform="cpu")


def _compiled(folder: Path) -> Path:
    compiler, library = os.environ.get("CC", "cc"), folder / "spin.so"
    command = [
        *compiler.split(),
        "-O2",
        "-shared",
        "-fPIC",
        "-I",
        jax.ffi.include_dir(),
        "-o",
        str(library),
        str(SOURCE),
    ]
    try:
        subprocess.run(command, check=True, capture_output=True, text=True)
    except FileNotFoundError:
        raise NoSpin(
            f"there is no C compiler {compiler!r}, which builds the function of known duration\nhint: install one "
            "(on Debian and Ubuntu: apt install gcc libc6-dev), or name it: CC=/path/to/compiler"
        ) from None
    except subprocess.CalledProcessError as error:
        raise NoSpin(f"{compiler!r} cannot compile {SOURCE.name}:\n{error.stderr}") from None
    return library


def check(us: float, patience_s: float = 3.0) -> float:
    """What one call of `spin(us)` takes inside a program: the truth within 0.3 µs and 1 %.

    The slope between a short and a long chain of calls, so that what a program costs once cancels. Of each chain the
    least of many readings, because whatever disturbs a known wait can only lengthen it.

    Raises:
        NoSpin: it is not, however often it was tried in `patience_s`.
    """
    few = max(1, min(8, round(50 / max(us, 1))))  # long chains do not fit between two preemptions of a busy machine
    chains, calls = [_chain(us, few), _chain(us, 3 * few)], 2 * few
    x, least_ns, deadline = jnp.float32(1), [2**62, 2**62], perf_counter_ns() + patience_s * 1e9
    while True:
        for _ in range(10):
            least_ns = [min(least, _once_ns(chain, x)) for least, chain in zip(least_ns, chains, strict=True)]
        found = (least_ns[1] - least_ns[0]) / calls / 1000
        if abs(found - us) <= 0.3 + 0.01 * us:
            return found
        if perf_counter_ns() > deadline:
            raise NoSpin(
                f"spin({us:g}) takes {found:.2f} µs; expected {us:g} within 0.3 µs and 1 %. Is the machine very busy?"
            )


def _chain(us: float, n: int) -> Callable[[Any], Any]:
    once = spin(us)
    return jax.jit(lambda x: reduce(lambda y, _: once(y), range(n), x))


def _once_ns(fn: Callable[..., Any], x: Any) -> int:
    begun = perf_counter_ns()
    fn(x).block_until_ready()
    return perf_counter_ns() - begun


def main() -> None:
    print(f"{'true µs':>10}{'measured':>12}{'excess':>10}")
    for us in (0, 1, 10, 100, 1000):
        found = check(us)
        print(f"{us:>10}{found:>12.3f}{found - us:>10.3f}")


if __name__ == "__main__":
    main()
