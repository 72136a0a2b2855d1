"""A case under two conditions that hold from the start of a process (settings of JAX, flags of XLA), in process pairs.

Each condition gets a folder. It has the pickled case, and a benchmark file that sets the condition and revives the
case. So `paired_runs/process_pairs.py` finds one case by one name in both folders.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchax.case import Benchmark, Case
from benchax.checkouts.boot import Launch, Selection
from benchax.experiments.functions import SharedArguments, plain, positions_among
from benchax.measuring.inputs import make_inputs
from benchax.measuring.jax_settings import apply_settings, jax_settings
from benchax.model import Comparison, Version
from benchax.paired_runs.process_pairs import compare_launches
from benchax.progress import Listener
from benchax.workers import pickling

FILE = "bench_revived.py"
_BENCH = """
from pathlib import Path
from benchax.experiments.processes import revive
benchmark = revive(Path(__file__).parent)
"""
Judge = Callable[..., list[Comparison]]


@dataclass(frozen=True)
class Condition:
    """The conditions at the start of a process."""

    label: str
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Settings of JAX, on top of those of this program."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])


@dataclass(frozen=True)
class Flat:
    """An input factory: all arguments by position."""

    case: Case

    def __call__(self) -> tuple[Any, ...]:
        args, kwargs = self.case.inputs()
        return (*args, *kwargs.values())


def pairs(
    case: Case,
    conditions: tuple[Condition, Condition],
    seed: int,
    max_time_s: float | None,
    report: Listener,
    judge: Judge = compare_launches,
) -> list[Comparison]:
    """The comparisons of the second condition with the first: run times, times to compile, what the compiler counts.

    Raises:
        NotAvailable: the function under a jit cannot be reached.
        whatever pickling raises for a case that cannot travel.
    """
    content = pickling.dumps(_as_benchmark(case, seed))
    with tempfile.TemporaryDirectory(prefix="benchax-pairs-") as folder:
        launches = [_launch(Path(folder) / str(i), each, content) for i, each in enumerate(conditions)]
        return judge((launches[0], launches[1]), Selection((FILE,)), max_time_s, report)


def _as_benchmark(case: Case, seed: int) -> Benchmark:
    bare = plain(case, seed) if case.jit else case
    inputs = make_inputs(bare, seed)
    names = tuple(inputs.kwargs)
    return Benchmark(
        SharedArguments(bare.fn, 0, len(inputs.args) + len(names), names) if names else bare.fn,
        Flat(bare),
        case.id.name,
        {},
        case.id.tag,
        positions_among(bare, inputs, bare.static, 0),
        positions_among(bare, inputs, bare.donate, 0),
        bare.jit,
        {**case.options, "seed": seed},
    )


def _launch(folder: Path, condition: Condition, content: bytes) -> Launch:
    folder.mkdir()
    told = {
        "environ": dict(condition.environ),
        "settings": {**jax_settings(), **condition.settings},
        "folder": str(Path.cwd()),
        "paths": [path for path in sys.path if path],
    }
    (folder / "told.json").write_text(json.dumps(told), encoding="utf-8")
    (folder / "benchmark.pickle").write_bytes(content)
    (folder / FILE).write_text(_BENCH, encoding="utf-8")
    return Launch(Version(condition.label), folder=folder)


def revive(folder: Path) -> Benchmark:
    """In the process of a pair, before its backend starts: sets the condition, and gives the benchmark."""
    told = json.loads((folder / "told.json").read_text(encoding="utf-8"))
    # First of all: XLA reads its flags once, when the backend starts.
    os.environ.update(told["environ"])
    content = (folder / "benchmark.pickle").read_bytes()
    os.chdir(told["folder"])  # where relative paths of the user's function start
    sys.path += [path for path in told["paths"] if path not in sys.path]
    apply_settings(told["settings"])
    return pickling.loads(content)
