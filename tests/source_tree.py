"""The files and modules of benchax, for tests that read source. They import none of it."""

from __future__ import annotations

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src" / "benchax"


def files(package: Path = PACKAGE) -> list[Path]:
    return sorted(package.rglob("*.py"))


def modules(package: Path = PACKAGE) -> dict[str, Path]:
    """Dotted name to file: benchax, benchax.model, benchax.store, benchax.store.schema, …"""
    return {module_name(file, package): file for file in files(package)}


def module_name(file: Path, package: Path = PACKAGE) -> str:
    parts = file.relative_to(package.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"), str(file))
