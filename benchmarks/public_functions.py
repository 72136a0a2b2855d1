"""Public functions of JAX and its libraries, with inputs: what `census.py` measures.

    python benchmarks/public_functions.py             counts per library
    python benchmarks/public_functions.py --check     runs each of them once under jit, and says what does not run

Each takes about 5 µs to 3 ms on two cores. Inputs are made from a text (`make_input`) with a seed of their own. The
tables stand in `public_functions_*.py`. A library is imported when its row is made, and one that is not installed
(`NotInstalled`) costs its rows only.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchax.specs import parse_spec

Call = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
"""(function, positional arguments, keyword arguments)."""


class NotInstalled(Exception):
    """A library that a row needs is not there."""


@dataclass(frozen=True)
class PublicFunction:
    """A function and how to get it with its inputs."""

    name: str
    library: str
    make: Callable[[], Call]
    pure: Callable[[], Call] | None = None
    """For functions that change their arguments: the same work, with the state as argument and output. The chain
    takes this form, for it has to see what is changed."""
    note: str = ""

    @property
    def label(self) -> str:
        return f"{self.library}.{self.name}"


Table = dict[str, tuple[Any, ...]]
"""Name → (function, *inputs as texts)."""


def from_table(library: str, table: Table) -> list[PublicFunction]:
    """A row for each entry; an input that is no text is passed on as it stands."""

    def make(name: str, fn: Callable[..., Any], texts: tuple[Any, ...]) -> Callable[[], Call]:
        return lambda: (fn, tuple(make_input(t, f"{name} {i}") for i, t in enumerate(texts)), {})

    return [PublicFunction(name, library, make(name, fn, texts)) for name, (fn, *texts) in table.items()]


def lazy(library: str, package: str) -> Callable[[Callable[[], Call]], PublicFunction]:
    """Decorator: a function that imports `package` and gives (fn, args, kwargs) becomes a row."""

    def wrap(make: Callable[[], Call]) -> PublicFunction:
        def made() -> Call:
            require(package)
            return make()

        return PublicFunction(make.__name__, library, made, note=(make.__doc__ or "").strip())

    return wrap


def require(package: str) -> None:
    """Raises `NotInstalled` where it is."""
    if importlib.util.find_spec(package) is None:
        raise NotInstalled(f"{package} is not installed (python -m pip install '.[benchmarks]')")


def make_input(text: Any, seed: str = "") -> Any:
    """Arrays from texts: benchax's specs, and `p:` (uniform in 0.05 to 0.95), `spd:` (positive definite), `sorted:`.

    f32[512,128] is standard normal, i32[64] 0 to 99, bool[8] fair coins, key a key; c64[8] normal in both parts.
    """
    if not isinstance(text, str):
        return text
    kind, _, spec_text = text.rpartition(":")
    spec = parse_spec(spec_text)
    rng = np.random.default_rng(zlib.crc32(f"{seed} {text}".encode()))
    if spec.dtype == "key":
        key = jax.random.key(int(rng.integers(2**31)))
        return jax.random.split(key, spec.shape) if spec.shape else key
    data = _data(rng, kind, spec.dtype, spec.shape)
    return jnp.asarray(data).astype(spec.dtype)


def _data(rng: np.random.Generator, kind: str, dtype: str, shape: tuple[int, ...]) -> Any:
    if kind == "p":
        return rng.uniform(0.05, 0.95, shape).astype(np.float32)
    if kind == "spd":
        half = rng.normal(size=shape).astype(np.float32)
        return half @ np.swapaxes(half, -1, -2) / shape[-1] + np.eye(shape[-1], dtype=np.float32)
    if dtype == "bool":
        return rng.random(shape) < 0.5
    if "int" in dtype:
        return rng.integers(0, 100, shape)
    data = rng.normal(size=shape).astype(np.float32)
    if "complex" in dtype:
        return data + 1j * rng.normal(size=shape).astype(np.float32)
    return np.sort(data) if kind == "sorted" else data


def functions() -> list[PublicFunction]:
    """All of them; their labels differ."""
    import public_functions_lax
    import public_functions_libraries
    import public_functions_numpy
    import public_functions_science
    import public_functions_state
    import public_functions_training
    import public_functions_traps

    modules = [
        public_functions_numpy, public_functions_science, public_functions_lax, public_functions_training,
        public_functions_libraries, public_functions_state, public_functions_traps,
    ]  # fmt: skip
    found = [row for module in modules for row in module.ROWS]
    twice = [label for label, count in Counter(row.label for row in found).items() if count > 1]
    if twice:
        raise ValueError(f"two functions of one name: {', '.join(twice)}")
    return found


def choose(only: str = "", library: str = "", limit: int | None = None) -> list[PublicFunction]:
    """Those whose label contains `only`, of one library; `limit` of them, evenly spread."""
    found = [row for row in functions() if only in row.label and library in ("", row.library)]
    if limit is None or limit >= len(found):
        return found
    return [found[i * len(found) // limit] for i in range(limit)]


def run_once(row: PublicFunction) -> tuple[int, float]:
    """(number of output arrays, least seconds of three warm calls).

    Raises:
        NotInstalled; whatever the function raises.
    """
    fn, args, kwargs = row.make()
    fn = fn if hasattr(fn, "lower") or row.pure or row.library == "equinox" else jax.jit(fn)
    leaves = [leaf for leaf in jax.tree.leaves(fn(*args, **kwargs)) if isinstance(leaf, jax.Array)]
    times = []
    for _ in range(3):
        begun = time.perf_counter()
        jax.block_until_ready(fn(*args, **kwargs))
        times.append(time.perf_counter() - begun)
    return len(leaves), min(times)


def check(rows: Sequence[PublicFunction]) -> int:
    """Runs each once; prints what is wrong or out of the range of sizes, and returns how many failed."""
    failed = 0
    for row in rows:
        try:
            outputs, least_s = run_once(row)
        except NotInstalled as error:
            print(f"{row.label:45} not measured, because {error}")
            continue
        except Exception as error:
            failed += 1
            print(f"{row.label:45} FAILED: {type(error).__name__}: {re.sub(chr(10), ' ', str(error))[:200]}")
            traceback.print_exc(limit=-2, file=sys.stderr)
            continue
        if not outputs and row.pure is None:  # what writes into a Ref may return nothing
            failed += 1
            print(f"{row.label:45} FAILED: it returns no array")
        elif least_s > 4e-3:
            print(f"{row.label:45} long: {least_s * 1e3:.1f} ms a call")
    return failed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="run each of them once")
    parser.add_argument("--only", default="", help="those whose name contains this")
    parser.add_argument("--library", default="", help="those of this library")
    arguments = parser.parse_args()
    rows = choose(arguments.only, arguments.library)
    for library, count in Counter(row.library for row in rows).items():
        print(f"{library:15}{count:5}")
    print(f"{'':15}{len(rows):5}\n")
    if arguments.check:
        failed = check(rows)
        sys.exit(f"{failed} of {len(rows)} do not run" if failed else 0)


if __name__ == "__main__":
    # The tables import this module by its name; as a script it would be there twice.
    import public_functions

    public_functions.main()
