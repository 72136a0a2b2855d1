"""How often is benchax wrong on this machine? Runs comparisons whose right answer is known: `benchax doctor --aa`.

    a round:  a kernel as it is, against  an unchanged copy · another one · 5 % more iterations · 10 % more

The kernels take turns. A round is judged as `benchax compare` judges a suite: fresh processes, interim analyses,
confirmation. The only difference is that identical programs are timed, too. A round counts only if it is finished,
because an early end would change the verdicts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import cycle
from time import monotonic

from benchax.case import make_case
from benchax.comparing.error_rates import UNCHANGED, ErrorRates, Trial, planted_name
from benchax.comparing.sequential import Effort
from benchax.machine import noise
from benchax.machine.planted import KERNELS, Kernel
from benchax.measuring.sides import Side
from benchax.model import Comparison, Version
from benchax.options import DEFAULTS
from benchax.paired_runs import session
from benchax.paired_runs.paired_run import PairedRun
from benchax.progress import Listener, quiet

PLANTED = (UNCHANGED, UNCHANGED, 0.05, 0.10)
"""Two unchanged copies: false alarms are rare, so that it takes many comparisons to see how rare."""
MAX_TIME_S = 180.0
Judge = Callable[[Sequence[PairedRun], Effort, Listener], list[list[Comparison]]]


def measure_rounds(
    max_time_s: float = MAX_TIME_S,
    report: Listener = quiet,
    *,
    kernels: Sequence[Kernel] = KERNELS,
    judge: Judge = session.compare_runs,
    clock: Callable[[], float] = monotonic,
) -> Iterator[ErrorRates]:
    """Yields the error rates after each round. The first round is always made. Another one begins only if it will
    probably end in time.

    Raises:
        KeyboardInterrupt: passes through; the results of earlier rounds have been yielded.
    """
    begun, machine = clock(), noise.start()
    trials: list[Trial] = []
    elapsed_s = longest_s = 0.0
    for kernel in cycle(kernels):
        if trials and elapsed_s + longest_s > max_time_s:
            break
        found = judge([_make_paired_run(kernel, planted) for planted in PLANTED], Effort(skips_equal=False), report)
        trials += [
            Trial(kernel.name, planted, c)
            for planted, comparisons in zip(PLANTED, found, strict=True)
            for c in comparisons
            if c.metric == "run"
        ]
        before_s, elapsed_s = elapsed_s, clock() - begun
        longest_s = max(longest_s, elapsed_s - before_s)
        yield ErrorRates(tuple(trials), elapsed_s, noise.finish(machine))


def _make_paired_run(kernel: Kernel, planted: float) -> PairedRun:
    versions = {"as it is": kernel.slower(UNCHANGED), planted_name(planted): kernel.slower(planted)}
    cases = {label: make_case(fn, kernel.specs, name=kernel.name) for label, fn in versions.items()}
    return PairedRun(
        cases["as it is"].id,
        tuple(Side(label, case) for label, case in cases.items()),
        tuple(Version(label) for label in cases),
        DEFAULTS,  # not those of the project in which the doctor happens to be asked
    )
