"""What a worker tells of a cell: each step before it begins, with what is new; and the outputs of its trials."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchax.grids import trees
from benchax.json_values import encode_value
from benchax.measuring.record import Record
from benchax.model import Samples
from benchax.units import size
from benchax.workers.task import Say

STEPS = {"first run": "run"}
"""What a grid calls steps of the engine."""
OF_OURS = frozenset({"artifacts"})
"""Nothing of the user's runs in these: they belong to the step before, and telling the parent takes 0.2 ms."""


@dataclass
class CellReport:
    """Tells the parent each step before it begins, and with it what is new."""

    say: Say
    record: Record = field(init=False)
    shape: str = ""
    trials: list[Any] = field(default_factory=list)
    """Samples of each trial and timer, as JSON has them."""
    told: dict[str, Any] = field(default_factory=dict)
    told_trials: int = 0
    known: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.record = Record(self.announce)

    def announce(self, step: str, share: float = 0.0) -> None:
        """The budget of a step begins anew each time: every call has the whole of it."""
        if step in OF_OURS:
            return
        self.say(STEPS.get(step, step), again=True, **self.news(), **self._new_trials())

    def note_trials(self, found: Sequence[Samples]) -> None:
        """All that there are by now."""
        self.trials += [encode_value(each, Samples) for each in found[len(self.trials) :]]

    def _new_trials(self) -> dict[str, Any]:
        new, self.told_trials = self.trials[self.told_trials :], len(self.trials)
        return {"new_trials": new} if new else {}

    def news(self) -> dict[str, Any]:
        """What is known now and was not told yet."""
        record = self.record
        known = {
            "signature": record.signature,
            "stages": record.stages,
            "absent": tuple(record.absent),
            "memory": record.memory,
            "cost": record.cost,
            "shape": self.shape,
        }
        new = {name: value for name, value in known.items() if value != self.known.get(name)}
        self.known |= new
        told = {name: plain(value) for name, value in new.items()}
        self.told |= told
        return told


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, tuple):
        return [plain(each) for each in value]
    # Not `dataclasses.asdict`, which copies every number, ten times in each cell.
    if not dataclasses.is_dataclass(value):
        return value
    return {each.name: plain(getattr(value, each.name)) for each in dataclasses.fields(value)}


@dataclass
class TrialOutputs:
    """The outputs of all trials, for the answer."""

    limit_bytes: int
    arrays: list[np.ndarray] = field(default_factory=list)
    trees: list[dict[str, Any]] = field(default_factory=list)
    kept_bytes: int = 0
    not_kept: str = ""

    def keep(self, outputs: Any) -> None:
        """Those of one trial; all of them are let go once they are more than the limit."""
        description, leaves = trees.taken_apart(outputs)
        self.kept_bytes += trees.size_bytes(leaves)
        if self.kept_bytes > self.limit_bytes:
            self.not_kept = f"they take more than the {size(self.limit_bytes)} that this grid has left for outputs"
            self.trees, self.arrays = [], []
        if self.not_kept:
            return
        self.trees.append({"tree": description, "first": len(self.arrays), "count": len(leaves)})
        self.arrays += trees.on_host(leaves)
