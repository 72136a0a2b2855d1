"""Pipelines."""

from __future__ import annotations

import pytest

from benchax.case import make_case
from benchax.errors import NotAvailable
from benchax.experiments.variants.pipeline import Pipeline


def test_there_is_none_and_it_says_why() -> None:
    with pytest.raises(NotAvailable, match="where a function can be cut into stages"):
        Pipeline().prepare(make_case(abs, ("f32[4]",)), {})
