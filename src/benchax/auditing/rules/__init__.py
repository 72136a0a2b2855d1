"""The rules: every module of this folder is one, and brings it as `RULE`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from benchax.auditing.base import Rule


@cache
def rules() -> dict[str, Rule]:
    """All of them by id, in order of the ids. Loads their modules."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found: list[Rule] = [importlib.import_module(f"{__name__}.{name}").RULE for name in names]
    return {rule.id: rule for rule in sorted(found, key=lambda rule: rule.id)}
