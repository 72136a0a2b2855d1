"""A case that is built once and then sampled on request, for two processes that alternate on one core.

A sample is the same as in `paired.py`: calls back to back, with a wait for each. An untimed call before them wakes
threads and refills the caches, which the other process has used in between. Buffers and executable stay: another pair
of processes has others.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from benchax.case import Case
from benchax.measuring import paired
from benchax.measuring.prepare import prepare as prepare_case
from benchax.measuring.sampling import warm_up
from benchax.measuring.timers.base import PreparedTimer, Subject
from benchax.measuring.timers.wall import WallTimer
from benchax.model import Numerics
from benchax.numerics import compare
from benchax.watching.compiles import watch_compiles


@dataclass(frozen=True)
class Turns:
    """A case, warm."""

    subject: Subject
    timer: PreparedTimer
    facts: dict[str, Any]
    """Facts from building: signature, builds, plan, flops, inline_flops. And compilations during samples: compiles."""
    iterations: int
    """Calls in a sample, so that it takes `paired.SAMPLE_NS`."""
    call_ns: int

    def sample(self, iterations: int) -> int:
        """Returns the nanoseconds of this many calls."""
        with watch_compiles() as log:
            if self.call_ns < paired.WAKING_NS:
                jax.block_until_ready(self.subject.call())
            compiled, ns = log.compiles, self.timer.sample(iterations)
            self.facts["compiles"] += log.compiles - compiled
        return ns

    @property
    def outputs(self) -> list[Any]:
        return jax.tree.leaves(self.subject.outputs)

    def agreement(self, baseline: Sequence[np.ndarray]) -> Numerics:
        """How far its outputs are from the leaves that the baseline gave."""
        mine = tuple(_plain(leaf) for leaf in self.outputs)
        return compare(mine, tuple(baseline), against="baseline")


def _plain(leaf: Any) -> Any:
    """As it is when it has travelled between processes: a typed key is its data there."""
    is_key = isinstance(leaf, jax.Array) and jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    return np.asarray(jax.random.key_data(leaf) if is_key else leaf)


def imported_jax() -> str:
    """Returns the version that the module itself says: what is installed may not be what was found first."""
    return jax.__version__


def prepare(case: Case, seed: int, enter: Callable[[str], None]) -> Turns:
    """Makes the inputs, builds, warms up, and finds how many calls a sample has.

    Args:
        seed: of the data made from specs.
        enter: called with the name of each stage before it begins.

    Raises:
        whatever the case raises.
    """
    enter("inputs")
    prepared = prepare_case(case, seed)
    enter("build")  # one word for all of its steps: a limit of time is one for them together, as beside other versions
    signature = prepared.inputs.signature
    facts: dict[str, Any] = {"is_program": False, "sha256": None, "signature": signature, "builds": [], "compiles": 0}
    subject = paired.build(prepared, facts)
    facts |= paired.result_facts(subject)
    enter("warm-up")
    warm_up(subject.ready, paired.WARMUP_S)
    timer = WallTimer().prepare(subject)
    iterations, call_ns = paired.calibrated([timer])
    return Turns(subject, timer, facts, iterations, call_ns)
