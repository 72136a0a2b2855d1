"""Stages of a function on devices of their own, fed with micro-batches: not available here, and what does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from benchax.case import Case
from benchax.errors import NotAvailable
from benchax.experiments.base import Prepared


@dataclass(frozen=True)
class Pipeline:
    name: str = "pipeline"
    title: str = "stages on devices of their own, fed with micro-batches"
    needs: str = "several devices"

    def prepare(self, case: Case, given: Mapping[str, Any]) -> Prepared:
        raise NotAvailable(
            "where a function can be cut into stages is not to be seen from its program: give them to "
            "benchax.experiments.pipeline(stages, x)"
        )


MEMBERS = (Pipeline(),)
