"""The rules: the modules of this folder hold one or more each, grouped by what they are about."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from benchax.auditing.rule import Rule


@cache
def rules() -> dict[str, Rule]:
    """All of them by id, in order of the ids. Loads their modules."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    found = {value.id: value for module in modules for value in vars(module).values() if isinstance(value, Rule)}
    return dict(sorted(found.items()))
