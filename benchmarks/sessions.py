"""A session of 50 tests of 20 rounds: the same file with our fixture `benchmark` and with pytest-benchmark, in turns.

Also with `jax_bench`, which the tests then ask for by its own name. Small jitted functions, where what surrounds the
rounds is most of it. Each session begins in a folder of its own; `again` is a second one in the same folder, which has
a history, and finds its programs stored. Wall time, and CPU time of the process with its children. Of the plugins that
are installed each session has the one that it is about, and a session before all others, which is not counted, leaves
byte code behind.

    python benchmarks/sessions.py --python .venv-peers/bin/python [--rounds 7]
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median

import peers
from ptjb import HEAD, Took, run
from report import header, load, note, table

FUNCTIONS = f"""{HEAD}
def loop(x):
    return jax.lax.fori_loop(0, 10, lambda i, x: jnp.sin(x) + 1e-3, x)

def gradient(x):
    return jax.grad(lambda x: jnp.sum(jnp.tanh(x @ x) ** 2))(x)

def scan(x):
    return jax.lax.scan(lambda carry, row: (carry + row, carry * row), jnp.zeros_like(x[0]), x)

@pytest.mark.parametrize("n", range(8, 88, 8))
@pytest.mark.parametrize("f", [norm, softmax, loop, gradient, scan])
"""

BENCHMARK = """
def test_session(benchmark, f, n):
    x = jnp.ones((n, n), dtype=jnp.float32)
    f = jax.jit(f)
    benchmark.pedantic(lambda: jax.block_until_ready(f(x)), rounds=20, warmup_rounds=1)
"""

JAX_BENCH = """
def test_session(jax_bench, f, n):
    x = jnp.ones((n, n), dtype=jnp.float32)
    jax_bench(jit_rounds=20, jit_warmup=1).measure(fn_jit=jax.jit(f), x=x)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    peers.add_option(parser)
    parser.add_argument("--ours", default=sys.executable, help="interpreter that has benchax (default: this one)")
    parser.add_argument("--rounds", type=int, default=7, help="sessions of each kind (default: 7)")
    given = parser.parse_args()
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    header("Sessions of 50 tests of 20 rounds", ["pytest"], peers.described(peers.versions(given.python)))

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # what else is installed has plugins, too

    ours = ("-p", "pytest_jax_bench.plugin")
    kinds = {
        "pytest-benchmark": (given.python, BENCHMARK, ("-p", "pytest_benchmark.plugin")),
        "benchmark": (given.ours, BENCHMARK, (*ours, "--benchax-fixture")),
        "jax_bench": (given.ours, JAX_BENCH, ours),
    }
    took: dict[str, list[Took]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for kind, (python, tests, options) in kinds.items():
            _session(Path(scratch) / f"{kind}-before", python, tests, (*options, "-k", "norm-8"))
        for i in range(given.rounds):
            for kind, (python, tests, options) in kinds.items():
                note(f"session {i + 1}/{given.rounds} of {kind}   {load()}")
                place = Path(scratch) / f"{kind}-{i}"
                took.setdefault(kind, []).append(_session(place, python, tests, options))
                if kind != "pytest-benchmark":
                    took.setdefault(f"{kind}, again", []).append(_session(place, python, tests, options))
    table(
        ["", "median wall s", "median CPU s", "wall, of pytest-benchmark's", "CPU"],
        [[kind, *_middle(many), *_ratios(many, took["pytest-benchmark"])] for kind, many in took.items()],
    )


def _session(place: Path, python: str, tests: str, options: Sequence[str]) -> Took:
    place.mkdir(exist_ok=True)
    (place / "test_suite.py").write_text(FUNCTIONS + tests, encoding="utf-8")
    return run([python, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options], place)


def _middle(many: list[Took]) -> list[str]:
    return [f"{median(t.wall_s for t in many):.2f}", f"{median(t.cpu_s for t in many):.2f}"]


def _ratios(ours: list[Took], theirs: list[Took]) -> list[str]:
    """Medians of the ratios, turn by turn."""
    pairs = list(zip(ours, theirs, strict=True))
    return [
        f"{median(a.wall_s / b.wall_s for a, b in pairs):.2f}",
        f"{median(a.cpu_s / b.cpu_s for a, b in pairs):.2f}",
    ]


if __name__ == "__main__":
    main()
