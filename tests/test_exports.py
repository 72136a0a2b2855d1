"""`benchax/__init__.py` is the only list of what is public: its own three copies agree."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import types
from importlib import import_module
from pathlib import Path

import pytest
from goldens import records
from source_tree import PACKAGE, modules, parse

import benchax

HUB = parse(PACKAGE / "__init__.py")


def home_of_each_name() -> dict[str, str]:
    """The map from public names to modules, as it is written."""
    dicts = [node.value for node in HUB.body if isinstance(node, ast.Assign | ast.AnnAssign)]
    return next((ast.literal_eval(d) for d in dicts if isinstance(d, ast.Dict)), {})


def imports_for_types() -> dict[str, str]:
    """The same names as pyright sees them: the imports under `if TYPE_CHECKING`."""
    blocks = [n.body for n in HUB.body if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n.test)]
    statements = [n for block in blocks for n in block]
    names = {
        alias.asname or alias.name: str(n.module)
        for n in statements
        if isinstance(n, ast.ImportFrom)
        for alias in n.names
    }
    modules = {str(alias.asname): alias.name for n in statements if isinstance(n, ast.Import) for alias in n.names}
    return names | modules


def test_the_map_the_imports_for_types_and_the_list_agree() -> None:
    assert "bench" in home_of_each_name()
    assert imports_for_types() == home_of_each_name()
    assert sorted(benchax.__all__) == sorted(home_of_each_name())
    assert set(benchax.__all__) <= set(dir(benchax))


@pytest.mark.parametrize(("name", "home"), home_of_each_name().items())
def test_every_public_name_is_what_its_home_calls_so(name: str, home: str) -> None:
    module = importlib.import_module(home)
    assert getattr(benchax, name) is (module if home == f"benchax.{name}" else getattr(module, name))


def test_the_version_is_that_of_the_installed_package() -> None:
    assert benchax.__version__ == importlib.metadata.version("benchax")


def test_an_unknown_name_is_an_attribute_error_that_quotes_it() -> None:
    with pytest.raises(AttributeError, match="'benchmrk'"):
        benchax.benchmrk  # noqa: B018  # looking it up is the act


def test_no_public_name_is_that_of_a_submodule() -> None:
    """Importing the submodule anywhere would put the module in the place of the function."""
    submodules = {name.removeprefix("benchax.") for name in modules() if name.count(".") == 1}
    values = {name: getattr(benchax, name) for name in benchax.__all__}

    assert [n for n, v in values.items() if n in submodules and not isinstance(v, types.ModuleType)] == []


SLOW = ("JSON keys", "pytest --")
"""Sections that run commands."""


@pytest.mark.parametrize("part", ["contract", "codec"])
def test_what_programs_of_users_rely_on_is_unchanged(part: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """If you meant the change: make goldens GOLDENS='--only contract,codec'"""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "docs" / "_ext")
    recorded = records.read(part)
    sections = {t: make for t, make in import_module(f"goldens.{part}").sections().items() if not t.startswith(SLOW)}

    now = records.make(sections, 1, lambda title: None)

    different = [title for title in now if recorded.get(title) != now[title]]
    gone = [title for title in recorded if title not in now and not title.startswith((*SLOW, "recorded with"))]
    assert "\n".join(records.difference(t, recorded.get(t, ""), now[t]) for t in different) == ""
    assert gone == []
