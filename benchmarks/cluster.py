"""What handing cells to a cluster costs the driver: 1,000 simulated nodes, a million cells; or two real nodes of Ray.

    python benchmarks/cluster.py                     1,000,000 cells handed out, 20,000 through a whole grid: minutes
    python benchmarks/cluster.py --cells 50000       a first impression
    python benchmarks/cluster.py --ray HOST:PORT     200 cells on a cluster that runs, beside the same at home

Simulated nodes answer at once in real time, so that the processor time of this program is the driver's own. 1 % of
them are fifty times as slow, and 1 % are lost on the way, of which half come back. A call takes a second there, and
what ends within 20 ms is heard of at once.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import psutil
from report import header, load, note, table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from grid_fakes import HerePool
from simulated_agents import SimulatedAgents

import benchax
from benchax.clusters.agents import Dispatcher, WorkBatch
from benchax.grids.cell import measure_cell
from benchax.grids.grid import defaults, start_run, validate_spec
from benchax.units import seconds, size
from benchax.workers.conversation import ignore
from benchax.workers.task import UNLIMITED

NODES, FUNCTIONS = 1000, 10


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=1_000_000, help="handed out (1000000); a fiftieth of it as a grid")
    parser.add_argument("--ray", metavar="HOST:PORT", help="measure on this cluster instead")
    given = parser.parse_args()
    header("Cells on a cluster", ["ray"])
    if given.ray:
        report_real(given.ray)
    else:
        report_dispatcher(given.cells)
        report_grid(given.cells // 50, stores=False)
        report_grid(given.cells // 50, stores=True)
    print(load())


class Empty:
    """A job that nobody makes."""

    def __call__(self, pool: Any, on_message: Any) -> None: ...

    def seal(self) -> Empty:
        return self


def agents(count: int, answer: Callable[..., Any]) -> SimulatedAgents:
    found = SimulatedAgents(
        NODES, lost_share=0.01, slow_share=0.01, call_s=1.0, lifetime_s=count / NODES, answer=answer, window_s=0.02
    )
    found.begun = deque(maxlen=1)  # type: ignore[assignment]
    return found


def report_dispatcher(count: int) -> None:
    note(f"{count} cells handed out to {NODES} nodes")
    fake, job = agents(count, lambda job, on_message: None), Empty()
    batches = (WorkBatch(deque((point, f) for f in range(FUNCTIONS))) for point in range(count // FUNCTIONS))
    dispatcher = Dispatcher(fake, fake.start(None, UNLIMITED), batches, lambda item, node: job, lambda *_: None)
    seen, doubles = bytearray(count), 0
    before, begun = rss(), time.process_time()
    for each in dispatcher:
        at = each.item[0] * FUNCTIONS + each.item[1]
        doubles += seen[at]
        seen[at] = 1
    spent = time.process_time() - begun
    ideal_s = count / (NODES * 0.98)
    rows = [
        ("processor time a cell", seconds(spent / count)),
        ("memory gained in all", size(max(0, rss() - before))),
        ("cells without an end, with two", f"{count - sum(seen)}, {doubles}"),
        ("nodes lost", f"{len(dispatcher.lost)} of {len(dispatcher.seen)}"),
        ("simulated time, over that of even shares", f"{fake.now_s / ideal_s:.2f}"),
    ]
    table(["the dispatcher", ""], rows)


def report_grid(count: int, stores: bool) -> None:
    note(f"{count} cells as a grid, store {'durable' if stores else 'off'}")
    points = [f"f32[{n + 1}]" for n in range(count // FUNCTIONS)]
    functions = {f"f{i}": jnp.sin for i in range(FUNCTIONS)}
    with tempfile.TemporaryDirectory() as folder:
        given = {"compare": False, "store": folder if stores else "off", "timeout_s": None}
        spec = validate_spec(functions, points, defaults() | given)
        messages, answer = one_answer()

        def say_and_answer(job: Any, on_message: Callable[[Any], None]) -> Any:
            for message in messages:
                on_message(message)
            return answer

        fake = agents(count, say_and_answer)
        run = start_run(spec, fake, lambda event: None)
        before, begun, began = rss(), time.process_time(), time.perf_counter()
        run.go()
        spent, took = time.process_time() - begun, time.perf_counter() - began
    statuses = [cell.status for cell in run.cells.values()]
    rows = [
        ("processor time a cell", seconds(spent / count)),
        ("time a cell", seconds(took / count)),
        ("memory a cell", size((rss() - before) // count)),
        ("ok", f"{statuses.count('ok')} of {count}"),
    ]
    table([f"a grid of them, store {'durable' if stores else 'off'}", ""], rows)


def one_answer() -> tuple[list[dict[str, Any]], Any]:
    """What a worker announced of a real cell, and its answer."""
    messages: list[dict[str, Any]] = []
    answers: list[Any] = []

    class Keeping(HerePool):
        def call(self, task: Any, argument: Any, *given: Any, on_message: Any = ignore, **more: Any) -> Any:
            def listen(message: dict[str, Any]) -> None:
                messages.append(message)
                on_message(message)

            if task is not measure_cell:
                return super().call(task, argument, *given, on_message=on_message, **more)
            answers.append(super().call(task, argument, *given, on_message=listen, **more))
            return answers[-1]

    from grid_fakes import run_of

    run_of({"f": jnp.sin}, ["f32[8]"], Keeping())
    return messages, answers[0]


def report_real(address: str) -> None:
    def power(n: int) -> Callable[[Any], Any]:
        def f(x: Any) -> Any:
            return x**n + jnp.sin(x)

        f.__name__ = f"power{n}"
        return f

    functions, data = [power(n) for n in range(2, 12)], [f"f32[{n}]" for n in range(4, 24)]
    rows = []
    for where, on in (("at home", None), ("on the cluster", address)):
        with tempfile.TemporaryDirectory() as folder, benchax.clusters.open_agents(on) as found:
            spec = validate_spec(functions, data, defaults() | {"store": folder})
            run = start_run(spec, found, lambda event: None)
            begun, began = time.process_time(), time.perf_counter()
            run.go()
            spent, took = time.process_time() - begun, time.perf_counter() - began
        cells = len(run.cells)
        beside = sum(cell.spent_s for cell in run.cells.values())
        rows.append((where, str(cells), seconds(took / cells), seconds(beside / cells), seconds(spent / cells)))
    table(["200 cells", "cells", "time a cell", "from sent to answered", "driver's CPU a cell"], rows)


def rss() -> int:
    return psutil.Process().memory_info().rss


if __name__ == "__main__":
    main()
