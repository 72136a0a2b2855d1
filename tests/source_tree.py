"""The source of benchax as the promise tests read it: files, modules, import statements; nothing is imported."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "benchax"


@dataclass(frozen=True)
class Import:
    """One imported name. `name` is the longest dotted path that is a module, for modules of the package itself."""

    file: Path
    line: int
    name: str
    in_function: bool
    for_types: bool
    """Stands under `if TYPE_CHECKING`."""

    @property
    def at_load(self) -> bool:
        return not self.in_function and not self.for_types

    def __str__(self) -> str:
        return f"{self.file}:{self.line} imports {self.name}"


def files(package: Path = PACKAGE) -> list[Path]:
    return sorted(package.rglob("*.py"))


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Dotted name to file: benchax, benchax.model, benchax.store, benchax.store.schema, …"""
    return {module_name(file, package): file for file in files(package)}


def module_name(file: Path, package: Path = PACKAGE) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def part_of(module: str) -> str:
    """The module or package directly under benchax: "measuring" for benchax.measuring.timers.wall; "" for benchax."""
    return f"{module}.".split(".")[1]


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))


def all_imports(package: Path = PACKAGE) -> dict[str, list[Import]]:
    """Every import statement of each module, by its dotted name."""
    ours = modules(package)  # once: with a look at the disk for each file the tests of the ladder took a minute
    return {name: list(imports(file, package, ours)) for name, file in ours.items()}


def imports(file: Path, package: Path, ours: Mapping[str, Path]) -> Iterator[Import]:
    """Every import statement of `file`, wherever it stands. `ours` are the modules of `package`."""
    relative = file.relative_to(package)

    def walk(node: ast.AST, in_function: bool, for_types: bool) -> Iterator[Import]:
        for name in _names(node, ours):
            yield Import(relative, node.lineno, name, in_function, for_types)  # type: ignore[attr-defined]  # a statement
        in_function = in_function or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typed = node.body if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test) else []
        for child in ast.iter_child_nodes(node):
            yield from walk(child, in_function, for_types or child in typed)

    yield from walk(parse(file), False, False)


def _names(node: ast.AST, ours: Mapping[str, Path]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = "." * node.level + (node.module or "")
        # `from benchax import codec` imports the module benchax.codec; `from benchax import bench` asks the hub.
        longer = [f"{base}.{alias.name}" for alias in node.names]
        return sorted({name if name in ours else base for name in longer})
    return []
