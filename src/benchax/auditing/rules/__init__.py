"""The rules: every module of this folder holds one, under the module's own name."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from benchax.auditing.rule import Rule


@cache
def rules() -> dict[str, Rule]:
    """All of them by id, in order of the ids. Loads their modules."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found: list[Rule] = [getattr(importlib.import_module(f"{__name__}.{name}"), name) for name in names]
    return {rule.id: rule for rule in sorted(found, key=lambda rule: rule.id)}
