"""The rules: each module of this folder holds a family of them. The module `numerics` is a pack that is off by
default."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from benchax.auditing.rule import Rule


@cache
def rules() -> dict[str, Rule]:
    """All of them by id, in order of the ids. Loads their modules."""
    names = [module.name for module in pkgutil.iter_modules(__path__, f"{__name__}.")]
    modules = map(importlib.import_module, names)
    found = {value.id: value for module in modules for value in vars(module).values() if isinstance(value, Rule)}
    return dict(sorted(found.items()))


@cache
def packs() -> frozenset[str]:
    """Names of groups of rules that are off by default."""
    return frozenset(rule.pack for rule in rules().values() if rule.pack)
