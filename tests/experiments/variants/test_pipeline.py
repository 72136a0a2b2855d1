"""Pipelines."""

from __future__ import annotations

import pytest

from benchax.case import make_case
from benchax.errors import NotAvailable
from benchax.experiments.variants.pipeline import Pipeline


def test_there_is_none_and_it_says_what_to_call() -> None:
    with pytest.raises(
        NotAvailable, match=r"not to be seen from its program: give them to benchax\.experiments\.pipeline"
    ):
        Pipeline().prepare(make_case(abs, ("f32[4]",)), {})
