"""Several processes that do the same work on many things. Each process has one worker.

Processes start fresh (spawn) instead of by a fork, because the process that writes a site might have JAX loaded. JAX's
threads do not survive a fork. So the worker travels as a pickle, without connections, and the data that it reads stay
in its process.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context, parent_process
from multiprocessing.connection import wait
from typing import Any, Generic, TypeVar

from benchax.errors import NotAvailable

Worker = TypeVar("Worker")
T = TypeVar("T")
Result = TypeVar("Result")

_worker: Any = None
"""The worker of this process, if another process started it."""


class Workers(Generic[Worker]):
    """Hands things to workers; see `open_workers`."""

    def __init__(self, worker: Worker, executor: Executor | None, processes: int) -> None:
        self._worker, self._executor, self._processes = worker, executor, processes

    def map(self, work: Callable[[Worker, T], Result], items: Sequence[T]) -> Iterator[Result]:
        """Yields the result of `work(worker, item)` for each item, in order. Raises the exceptions that `work` raises.

        Args:
            work: a function of a module, or a method as its class has it.
        """
        if self._executor is None:
            yield from map(partial(work, self._worker), items)
            return
        # Eight for each process, or else fewer than that would work at the end; each way back and forth takes 0.2 ms.
        at_once = max(1, min(16, len(items) // (8 * self._processes)))
        try:
            yield from self._executor.map(partial(_run, work), items, chunksize=at_once)
        except BrokenProcessPool as error:
            problem = "a process that was writing pages has ended before its time"
            hint = "the system might have run out of memory: see `dmesg`; then try again"
            raise NotAvailable(problem, hint=hint) from error


@contextmanager
def open_workers(worker: Worker, processes: int) -> Generator[Workers[Worker]]:
    """Opens workers in this number of processes. If it is 1, or if no other process can start, the worker is in this
    process. The workers end when the context ends.

    Raises:
        NotAvailable: one of the processes was ended by the system.
    """
    executor = _start_executor(worker, processes) if processes > 1 else None
    try:
        yield Workers(worker, executor, processes)
    finally:
        if executor is not None:
            executor.shutdown(cancel_futures=True)  # after an error, or Ctrl-C, what nobody has begun is not begun


def _start_executor(worker: object, processes: int) -> Executor | None:
    """None where there can be none: in some sandboxes without /dev/shm, where semaphores live."""
    try:
        return ProcessPoolExecutor(processes, get_context("spawn"), _begin, (worker,))
    except (OSError, NotImplementedError, ImportError):
        return None


def _begin(worker: object) -> None:
    global _worker
    # Ctrl-C reaches all processes of a terminal. The first one tells these what it means.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _worker = worker


def _end_with_parent() -> None:
    """Without it, processes of an executor whose parent was killed wait for work for ever (Python 3.11 to 3.13)."""
    if (parent := parent_process()) is not None:
        wait([parent.sentinel])
        os._exit(1)


def _run(work: Callable[[Any, T], Result], item: T) -> Result:
    return work(_worker, item)
