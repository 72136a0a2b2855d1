"""The ladder: a module imports only from lower rungs, and the two halves never meet."""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest
from source_tree import PACKAGE, Import, all_imports, modules, part_of

RUNGS = [  # lowest first; names on one rung do not import one another
    {"errors", "printable", "renderers", "static_leaves", "whole_files"},
    {
        "units",
        "stats",
        "specs",
        "protobuf",
        "settings",
        "source_files",
        "subprocesses",
        "kinds",
        "modes",
        "repeating",
        "suggestions",
    },
    {"model", "progress", "keywords", "amounts"},
    {"results", "json_values"},
    {"program", "environment", "kept_peaks"},  # of which profiling needs collectives, the machine, and its rates
    {"codec", "options", "case", "numerics", "profiling", "watching", "clock", "hooks"},
    {"workloads", "machine"},
    {"measuring", "store", "comparing", "discovery", "demo"},
    {"workers", "reporting", "checkouts"},
    {"clusters"},
    {"grids", "paired_runs", "inspecting"},
    {"compiled_grids"},
    {"api"},
    {"experiments"},
    {"auditing"},  # rules try variants
    {"cli", "magics"},
    {"__main__"},
]
RUNG = {name: height for height, names in enumerate(RUNGS) for name in names}
MEASURES = {"static_leaves", "numerics", "program", "profiling", "watching", "clock", "machine", "measuring", "workers"}
READS = {"store", "comparing", "reporting"}
KNOWS_BOTH = {
    "clusters",  # a table of nodes
    "compiled_grids",
    "grids",
    "paired_runs",
    "experiments",
    "auditing",
    "inspecting",
}  # as api and cli do: a grid measures, stores each cell, and shows itself
ASKS_JAX_LATE = {  # inside functions only
    "environment",  # the reading half imports it too
    "demo",  # its functions
    "magics",  # what is an array
    "modes",  # gradients, when they are called
    "workloads",  # as those of the demos are examples of what is measured
}

Tree = list[tuple[str, Import]]


def tree(package: Path) -> Tree:
    """(part of the importer, import) for every import statement but those of benchax/__init__, which is the hub."""
    every = [(part_of(name), i) for name, found in all_imports(package).items() for i in found]
    return [(importer, i) for importer, i in every if importer]


@pytest.fixture(scope="module")
def ours() -> Tree:
    return tree(PACKAGE)


def inner(found: Tree) -> Tree:
    """Imports of other parts of benchax, both ends on the ladder."""
    return [
        (importer, i)
        for importer, i in found
        if i.name.startswith("benchax.") and part_of(i.name) != importer and {importer, part_of(i.name)} <= RUNG.keys()
    ]


def upward(found: Tree) -> list[str]:
    return [str(i) for importer, i in inner(found) if RUNG[part_of(i.name)] >= RUNG[importer]]


def across(found: Tree) -> list[str]:
    pairs = [({importer, part_of(i.name)}, i) for importer, i in inner(found)]
    return [str(i) for pair, i in pairs if pair & MEASURES and pair & READS]


def relative_or_hub(found: Tree) -> list[str]:
    return [str(i) for _, i in found if i.name.startswith(".") or i.name == "benchax"]


def jax_where_it_must_not_be(found: Tree) -> list[str]:
    jax = [(importer, i) for importer, i in found if i.name.split(".")[0] in ("jax", "jaxlib")]
    may = MEASURES | KNOWS_BOTH
    return [str(i) for importer, i in jax if importer not in may and not (importer in ASKS_JAX_LATE and not i.at_load)]


def cycle(package: Path = PACKAGE) -> list[str]:
    """One cycle among the imports that run while modules are loaded; empty without any."""
    found = all_imports(package)
    graph = {
        name: {i.name for i in statements if i.at_load and i.name in found and i.name != "benchax"}
        for name, statements in found.items()
    }
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_every_module_stands_on_a_rung() -> None:
    unlisted = {part_of(name) for name in modules()} - {""} - RUNG.keys()

    assert not unlisted, f"add {sorted(unlisted)} to RUNGS in {__file__}, above all that they import"


def test_the_table_for_contributors_names_every_part() -> None:
    page = PACKAGE.parents[1] / "CONTRIBUTING.md"
    named = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| \d+ \|.*$", page.read_text(encoding="utf-8"), re.M))))

    assert named == set(RUNG)


def test_imports_are_absolute_and_pass_by_the_hub(ours: Tree) -> None:
    assert relative_or_hub(ours) == []


def test_imports_go_down_the_ladder(ours: Tree) -> None:
    assert upward(ours) == []


def test_the_two_halves_do_not_meet(ours: Tree) -> None:
    assert across(ours) == []


def test_only_the_measuring_half_imports_jax(ours: Tree) -> None:
    assert jax_where_it_must_not_be(ours) == []


def test_modules_do_not_import_in_circles() -> None:
    assert cycle() == []


@pytest.mark.parametrize(
    ("rule", "importer", "statement"),
    [
        (relative_or_hub, "store/schema.py", "from . import base"),
        (relative_or_hub, "store/schema.py", "from benchax import bench"),
        (upward, "model.py", "def f():\n    from benchax.store import base"),
        (upward, "codec.py", "from benchax import options"),
        (across, "reporting/html.py", "from benchax.measuring import engine"),
        (jax_where_it_must_not_be, "store/base.py", "def f():\n    import jax.numpy"),
        (jax_where_it_must_not_be, "environment.py", "import jax"),
    ],
)
def test_the_rules_see_what_they_forbid(rule, importer: str, statement: str, tmp_path: Path) -> None:
    package = tmp_path / "benchax"
    for name in ("__init__", "model", "codec", "options", "environment", "store/base", "measuring/engine"):
        _write(package / f"{name}.py", "import benchax.errors\n")
    assert rule(tree(package)) == []

    _write(package / importer, statement)

    assert [importer in line for line in rule(tree(package))] == [True]


def test_a_circle_is_seen_and_one_inside_functions_or_types_is_none(tmp_path: Path) -> None:
    package = tmp_path / "benchax"
    _write(package / "stats/a.py", "from benchax.stats import b")
    late = "if TYPE_CHECKING:\n    import benchax.stats.a\ndef f():\n    import benchax.stats.a"
    _write(package / "stats/b.py", late)
    assert cycle(package) == []

    _write(package / "stats/b.py", "from benchax.stats.a import f")

    assert set(cycle(package)) == {"benchax.stats.a", "benchax.stats.b"}


def _write(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
