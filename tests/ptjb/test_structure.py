"""The modules of the plugin: none imports itself on a detour, and its files are read without JAX."""

from __future__ import annotations

import subprocess
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from source_tree import files, imports, module_name, modules

PACKAGE = Path(__file__).parents[2] / "src" / "pytest_jax_bench"


def imported_by(package: Path) -> dict[str, set[str]]:
    """Module to the modules of the same package that it imports, also inside functions, but not for types only."""
    graph: dict[str, set[str]] = {}
    for file in files(package):
        names = {i.name for i in imports(file, package, modules(package)) if not i.for_types}
        graph[module_name(file, package)] = {name for name in names if name.startswith(package.name)}
    return graph


def test_no_circle_of_imports_also_inside_functions() -> None:
    graph = imported_by(PACKAGE)

    assert len(graph) > 20
    assert "pytest_jax_bench.stash" in graph["pytest_jax_bench.plugin"]
    assert list(TopologicalSorter(graph).static_order())  # raises CycleError, which names the circle


def test_a_circle_inside_functions_is_found(tmp_path: Path) -> None:
    package = tmp_path / "pack"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "a.py").write_text("def f():\n    from pack import b\n")
    (package / "b.py").write_text("import pack.a\n")

    with pytest.raises(CycleError, match=r"pack\.a"):
        list(TopologicalSorter(imported_by(package)).static_order())


def test_csv_files_are_read_without_jax() -> None:
    """`ptjb-plot` and `load_bench_data` need none of it."""
    program = "import sys, pytest_jax_bench.data, pytest_jax_bench.csv.files; print('jax' in sys.modules)"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
