"""Every snippet of the documentation of pytest-jax-bench, as it is written there. Only the arrays are smaller."""

from __future__ import annotations

import sys

import pytest
import warm_python
from pytest_sessions import Project

from pytest_jax_bench import load_bench_data

USAGE = """
import jax
import jax.numpy as jnp

def fft(x): # An example function we want to profile
    return jnp.fft.ifftn(jnp.fft.fftn(x))

def test_fft(jax_bench):  # jax_bench is a fixture that creates a JaxBench object.
    x = jnp.ones((256, 256, 256), dtype=jnp.float32)

    jb = jax_bench(jit_rounds=20, jit_warmup=1, eager_rounds=10, eager_warmup=1)
    jb.measure(fn=fft, fn_jit=jax.jit(fft), x=x)
"""

ALTERNATIVE = """
from pytest_jax_bench import JaxBench

def test_fft_alt(request):
    x = jnp.ones((256, 256, 256), dtype=jnp.float32)

    jb = JaxBench(request, jit_rounds=20, jit_warmup=1, eager_rounds=10, eager_warmup=1)
    jb.measure(fn_jit=jax.jit(fft), x=x)
"""

TAGS = """
def rfft(x):
    return jnp.fft.irfftn(jnp.fft.rfftn(x*2.))

def fft(x):
    return jnp.fft.ifftn(jnp.fft.fftn(x*2.))

def test_tags(request):
    x = jnp.ones((256, 256, 256), dtype=jnp.float32)

    jb = JaxBench(request, jit_rounds=10, jit_warmup=1, eager_rounds=5, eager_warmup=1)

    jb.measure(fn=fft, fn_jit=jax.jit(fft), x=x, tag="fft")
    jb.measure(fn=rfft, fn_jit=jax.jit(rfft), x=x, tag="rfft")
"""


PLOTS = """
import matplotlib.pyplot as plt
import pytest

def custom_plot(data):
    fig = plt.figure()
    plt.xlabel("run_id")
    plt.plot(data["run_id"], data["compile_ms"])
    plt.ylabel("compile_ms")
    return fig

@pytest.mark.ptjb(plot=custom_plot)
def test_with_custom_plot(jax_bench):
    x = jnp.ones((128, 128, 128), dtype=jnp.float32)

    jb = jax_bench(jit_rounds=10, jit_warmup=1)
    jb.measure(fn_jit=jax.jit(rfft), x=x)

def custom_plot_par(data):
    fig = plt.figure()
    plt.xlabel("n")
    plt.ylabel("jit_mean_ms")
    plt.plot(data["n"], data["jit_mean_ms"])
    return fig

@pytest.mark.ptjb(plot_summary=custom_plot_par, only_last=True)
@pytest.mark.parametrize("n", [128, 170, 220, 270])
def test_pars_with_custom_plot(jax_bench, n):
    x = jnp.ones((n, n, n), dtype=jnp.float32)

    jb = jax_bench(jit_rounds=10, jit_warmup=1)
    jb.measure(fn_jit=jax.jit(rfft), x=x)
"""


def write(ptjb: Project, name: str, *snippets: str) -> None:
    text = "\n".join(snippets).replace("256, 256, 256", "16, 16, 16").replace("128, 128, 128", "8, 8, 8")
    (ptjb.path / f"{name}.py").write_text(text.replace("[128, 170, 220, 270]", "[4, 5, 6, 8]"))


def test_usage_alternative_usage_and_tags(ptjb) -> None:
    write(ptjb, "test_benchmark", USAGE, ALTERNATIVE)
    write(ptjb, "test_tagged", USAGE, ALTERNATIVE, TAGS)

    session = ptjb.run("-v")

    for row in (*session.rows("test_benchmark.py--test_fft/"), *session.rows("test_tagged.py--test_tags")):
        assert min(row["compile_ms"], row["jit_mean_ms"], row["eager_mean_ms"], row["jit_peak_bytes"]) > 0
    (alternative,) = session.rows("test_benchmark.py--test_fft_alt")
    assert (alternative["jit_rounds"], alternative["eager_mean_ms"] > 0) == (20, False)
    assert [row["tag"] for row in session.rows("test_tags")] == ["fft", "rfft"]
    data = load_bench_data(ptjb.output)
    assert data["jit_mean_ms"].tolist() == [row["jit_mean_ms"] for row in session.rows()]
    assert set(data["commit"].tolist()) == {"unknown"}
    for title in ("Test", "C.Run", "Tag", "Compile", "Jit-Run", "Eager-Run", "Jit-Peak"):
        assert title in session.table[0]
    again = ptjb.run("-v", "test_benchmark.py::test_fft")
    assert "0->1" in again.line("test_benchmark.py::test_fft ")


def test_plots_are_drawn_by_the_option_and_by_the_command(ptjb) -> None:
    pytest.importorskip("matplotlib")
    write(ptjb, "test_plots", USAGE, ALTERNATIVE, TAGS, PLOTS)

    session = ptjb.run("--ptjb-plot")

    drawn = {str(file.relative_to(ptjb.output)) for file in ptjb.output.rglob("*.png")}
    assert drawn >= {
        "test_plots.py--test_fft/main.png",
        "test_plots.py--test_tags/main_xtag.png",
        "test_plots.py--test_with_custom_plot/main_custom.png",
        "test_plots.py--test_pars_with_custom_plot/n.png",
        "test_plots.py--test_pars_with_custom_plot/custom.png",
    }
    # Each test has its own marker.
    assert "test_plots.py--test_fft/main_custom.png" not in drawn
    assert f"drew {len(drawn)} plots in" in session.text
    assert "not drawn" not in session.text

    command = [sys.executable, "-c", "from pytest_jax_bench.plot_command import main; raise SystemExit(main())"]
    done = warm_python.run([*command, "-s", "svg"], cwd=ptjb.path)
    assert done.returncode == 0, done.stderr
    assert (ptjb.output / "test_plots.py--test_fft" / "main.svg").exists()


def test_graphs_are_saved_when_one_operation_of_forty_changes(ptjb, monkeypatch) -> None:
    write(
        ptjb,
        "test_graph",
        USAGE,
        """
import os
import pytest

def chain(x):
    for i in range(40):
        x = (jnp.tanh if i == int(os.environ["CHANGED"]) else jnp.sin)(x)
    return x

@pytest.mark.ptjb(save_graph=True)
def test_graph(jax_bench):
    jb = jax_bench(jit_rounds=1)
    jb.measure(fn_jit=jax.jit(chain), x=jnp.ones(8))
""",
    )

    def saved(changed: int, *options: str) -> list[str]:
        monkeypatch.setenv("CHANGED", str(changed))
        assert "not saved" not in ptjb.run(*options).text
        return sorted(str(file.relative_to(ptjb.output)) for file in ptjb.output.rglob("*.svg"))

    graph = "test_graph.py--test_graph/main-{}-base.svg"
    assert saved(-1) == [graph.format(0)]
    assert saved(-1) == [graph.format(0)]
    assert saved(17) == [graph.format(0), graph.format(2)]
    assert saved(17, "--ptjb-save-graph") == [
        "test_graph.py--test_fft/main-3-base.svg",
        graph.format(0),
        graph.format(2),
    ]
    for file in ptjb.output.rglob("*.svg"):
        assert "http" not in file.read_text().replace("http://www.w3.org/", "")
