"""What holds for every variant, whoever wrote it."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from benchax.experiments import variants as folder
from benchax.experiments.variant import ChangingVariant, MeasuringVariant
from benchax.experiments.variants import FAMILIES, VARIANTS

MODULES = sorted(path.stem for path in Path(folder.__path__[0]).glob("*.py") if path.stem != "__init__")


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda variant: variant.name)
def test_a_variant_changes_a_case_or_measures(variant: Any) -> None:
    """Or both: alone it measures its ways, among others it changes the case in the first of them."""
    does = {isinstance(variant, ChangingVariant), isinstance(variant, MeasuringVariant)}
    assert does == ({True} if variant.name == "remat" else {True, False})


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=lambda variant: variant.name)
def test_a_variant_says_what_it_does_and_holds_nothing_that_measures(variant: Any) -> None:
    """What measures is in the lab."""
    assert re.fullmatch(r"[a-z][a-z0-9]*([-_][a-z0-9]+)*", variant.name)
    assert variant.title
    assert not [name for name, value in vars(variant).items() if callable(value)]


def test_every_module_is_a_family_and_no_two_variants_share_a_name() -> None:
    assert sorted(map(id, FAMILIES)) == sorted(id(import_module(f"{folder.__name__}.{m}").MEMBERS) for m in MODULES)
    assert len(VARIANTS) == sum(map(len, FAMILIES))
