"""Installed and unused, the plugin costs next to nothing: it loads neither JAX nor NumPy, and starts no backend."""

from __future__ import annotations

import subprocess
import sys

import pytest

import pytest_jax_bench

HEAVY = {"jax", "jaxlib", "numpy", "benchax", "matplotlib"}

CONFTEST = """
import sys

def pytest_unconfigure():
    print("LOADED", sorted({name.partition(".")[0] for name in sys.modules}))
    print("OURS", sorted(name for name in sys.modules if name.startswith("pytest_jax_bench")))
"""


def session(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> tuple[set[str], set[str]]:
    """Top-level modules, and our own, that a session with no plugin but ours has loaded when it ends."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(CONFTEST)
    result = pytester.runpytest_subprocess("-s", "-p", "pytest_jax_bench.plugin", *arguments)
    assert result.ret == 0, result.stdout.str()
    lines = {line.split(" ", 1)[0]: line for line in result.outlines}
    return set(eval(lines["LOADED"].removeprefix("LOADED "))), set(eval(lines["OURS"].removeprefix("OURS ")))


@pytest.mark.parametrize("arguments", [[], ["-v"], ["--collect-only"]])
def test_a_session_without_benchmarks_loads_nothing_heavy(arguments, pytester, monkeypatch) -> None:
    pytester.makepyfile("def test_empty():\n    pass")

    loaded, ours = session(pytester, monkeypatch, *arguments)

    assert loaded & HEAVY == set()
    assert ours == {"pytest_jax_bench", *(f"pytest_jax_bench.{name}" for name in ("options", "plugin", "stash"))}


@pytest.mark.slow
def test_a_session_with_a_benchmark_does_load_it(pytester, monkeypatch) -> None:
    """Else the test above would pass for want of looking."""
    pytester.makepyfile("def test_one(jax_bench):\n    pass")

    assert "jax" in session(pytester, monkeypatch)[0]


@pytest.mark.slow
def test_a_benchmark_loads_no_pallas(pytester, monkeypatch) -> None:
    """`jax.extend` does, for 20 ms."""
    pytester.makepyfile("def test_one(jax_bench):\n    jax_bench(jit_rounds=3).measure(fn_jit=lambda x: x + 1, x=2.0)")
    pytester.makeconftest(
        "import sys\ndef pytest_unconfigure():\n    print('EXTEND', 'jax.extend' in sys.modules, file=sys.stderr)"
    )

    result = pytester.runpytest_subprocess("-s", "-p", "pytest_jax_bench.plugin")

    result.stderr.fnmatch_lines("EXTEND False")


def test_collecting_a_benchmark_loads_nothing_heavy(pytester, monkeypatch) -> None:
    pytester.makepyfile("def test_one(jax_bench):\n    pass")

    assert session(pytester, monkeypatch, "--collect-only")[0] & HEAVY == set()


def test_importing_the_package_loads_nothing_heavy() -> None:
    program = "import sys, pytest_jax_bench; print({m.partition('.')[0] for m in sys.modules})"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert eval(done.stdout) & (HEAVY | {"pytest"}) == set()


def test_loading_leaves_the_finders_of_modules_in_their_order_behind_new_ones(tmp_path, monkeypatch) -> None:
    (tmp_path / "brings_a_finder.py").write_text("import sys\nclass New: find_spec = None\nsys.meta_path.append(New)")
    monkeypatch.setattr(pytest_jax_bench, "__path__", [*pytest_jax_bench.__path__, str(tmp_path)])
    before = list(sys.meta_path)
    monkeypatch.setattr(sys, "meta_path", list(before))

    module = pytest_jax_bench.load("brings_a_finder")

    assert sys.meta_path == [module.New, *before]
    del sys.modules[module.__name__], pytest_jax_bench.brings_a_finder


def test_jaxbench_needs_no_pytest(tmp_path) -> None:
    program = """
import sys
sys.modules["pytest"] = None
from pytest_jax_bench import JaxBench
res, out = JaxBench(jit_rounds=1).measure(fn_jit=lambda x: x + 1, x=2.0, write=False)
print(out)
"""

    done = subprocess.run([sys.executable, "-c", program], check=True, cwd=tmp_path, stdout=subprocess.PIPE, text=True)

    assert done.stdout == "3.0\n"
