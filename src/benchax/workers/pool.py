"""Workers that are ready before they are needed, and can be killed at any time.

One worker does the jobs, and a standby waits: when the worker is killed, the standby takes over at once. Both are "deep
warm": they have traced, compiled and run something tiny, which costs a process 50 to 200 ms once. A new standby is made
on request (`prepare`), or if a worker is needed and not there. It is never made during a job, because it would take the
processor from the timed work.

A worker is used again unless there is doubt: it was killed, it crashed, memory ran out, it left threads or processes
behind, or it has imported code that was edited since.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, partial
from typing import Any

from benchax.environment import memory_on_demand
from benchax.errors import NotAvailable, UsageError
from benchax.measuring.diagnosis import diagnose
from benchax.measuring.jax_settings import jax_settings
from benchax.model import Failure
from benchax.workers import conversation, pickling
from benchax.workers.channel import Closed, Garbled
from benchax.workers.conversation import (
    CannotStart,
    Conclusion,
    Conversation,
    Job,
    Listener,
    StartKeeper,
    Worker,
    ZygoteClient,
    ignore,
)
from benchax.workers.task import UNLIMITED, A, CallLimits, R, Task
from benchax.workers.worker import WARM_UP_S, capture_state, start_flags, warm_up

# A worker may end while it waits, or find that code has changed: the next one gets the job.
_ATTEMPTS = 3


class Pool:
    """Calls tasks, one at a time, in its own workers. It is a context manager and starts nothing before it is needed.

    Args:
        warm: workers have compiled and run something tiny before their first job.
        reuse: a worker can do several jobs; False gives each job a new process.
        preload: modules that every worker imports; forked workers share one import. The modules must start neither
            threads nor a backend.
        environ: environment variables of the workers from their start on, in addition to those of this process. A
            setting of JAX goes into `jax_config` instead, because workers get the settings of this process.
        jax_config: settings of JAX for the workers, by name, as `jax.config.update` takes them. This process keeps its
            own.
        start_keeper: starts the keeper of workers of another version. They share no state with this process, and
            nothing looks at what a job has left.

    Raises:
        NotAvailable: this JAX has no such setting.
    """

    def __init__(
        self,
        *,
        warm: bool = True,
        reuse: bool = True,
        preload: Sequence[str] = (),
        environ: Mapping[str, str] | None = None,
        jax_config: Mapping[str, Any] | None = None,
        start_keeper: StartKeeper | None = None,
    ) -> None:
        self.warm, self.reuse = warm, reuse
        self.environ = memory_on_demand() | dict(environ or {})
        self.jax_config = dict(jax_config or {})
        # Workers pass over settings that they do not know, and a measurement would take that for the usual value.
        if unknown := sorted(self.jax_config.keys() - jax_settings().keys()):
            raise NotAvailable(f"this JAX has no setting {', '.join(unknown)}")
        self._is_foreign = start_keeper is not None
        self._start_keeper = partial(start_keeper or conversation.start_keeper, tuple(preload), self.environ)
        self._lock = threading.Lock()
        self._keeper: ZygoteClient | None = None
        self._ready: list[Worker] = []
        self._conditions: Any = None, None
        self._has_killed = False
        self._modules: set[str] = set()
        _pools.add(self)

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def call(
        self,
        task: Task[A, R],
        argument: A,
        limits: CallLimits = UNLIMITED,
        *,
        name: str = "the argument",
        shows_output: bool = True,
        on_message: Listener = ignore,
        worker: int = 0,
    ) -> R | Failure:
        """Returns the result of `task(argument)` in a worker, or the reason for its failure. Never raises errors of the
        task.

        Args:
            name: names the argument in the message if it can't be sent.
            shows_output: its output appears on this program's standard error, up to a limit.
            on_message: receives each announcement, {"stage": ..., **facts}. Its exceptions pass through, as
                KeyboardInterrupt does, and leave no process.
            worker: the number of the pool's worker; one that isn't there yet is started, and stays.
        """
        with self._lock, self._release_on_error():
            return self._run(Job(task, argument, limits, shows_output), name, on_message, worker)

    def prepare(self) -> None:
        """Makes sure that a worker and a standby are ready. To be called when nothing is timed."""
        with self._lock, self._release_on_error(), contextlib.suppress(CannotStart):  # the next call says so
            self._fill(2 if self.reuse else 1)

    def renew(self) -> None:
        """The next job gets a new process, whatever the last one was like."""
        with self._lock:
            self._discard(self._ready)

    def close(self) -> None:
        """Ends all processes. A job that another thread is running fails."""
        # Do this before taking the lock, which a job on another thread holds until this makes it fail.
        if (keeper := self._keeper) is not None:
            keeper.stop()
        with self._lock:
            self._let_go()

    @contextlib.contextmanager
    def _release_on_error(self) -> Iterator[None]:
        """No process is left by what passes through, such as KeyboardInterrupt."""
        try:
            yield
        except BaseException:
            self._let_go()
            raise

    def _run(self, job: Job, name: str, on_message: Listener, place: int) -> Any:
        try:
            sections = pickling.pack_argument(job.argument, name)
        except UsageError as error:
            return diagnose(error, "start")
        self._modules.add(job.task.__module__)
        conclusion = Conclusion()
        for _ in range(_ATTEMPTS):
            try:
                keeper = self._fill(place + 1)
            except CannotStart as error:
                return Failure("crashed", "start", error.problem, error.hint)
            worker = self._ready[place]
            conclusion = Conversation(keeper, worker, job, sections, self._state(), on_message).finish()
            if conclusion.doubt or not self.reuse:
                self._has_killed = self._has_killed or bool(conclusion.doubt)
                self._discard([worker])
            elif not self._is_foreign:
                keeper.kill()
            if not conclusion.is_stale:
                return conclusion.outcome
        text = f"no worker could begin, {_ATTEMPTS} times in a row; the last time because of {conclusion.doubt}"
        return Failure("error", "start", text)

    def _state(self) -> dict[str, Any] | None:
        return None if self._is_foreign else capture_state(self._conditions[1], self.environ, self.jax_config)

    def _discard(self, workers: Sequence[Worker]) -> None:
        self._ready = [worker for worker in self._ready if worker not in workers]
        for worker in workers:
            if self._keeper is not None and worker.pid in self._keeper.workers:
                self._keeper.kill(worker)

    def _fill(self, count: int) -> ZygoteClient:
        """At least `count` workers are ready. Where one was killed already, also its successor: warming two up takes
        hardly longer than one. Raises `CannotStart`."""
        self._drop_what_does_not_serve()
        if self._keeper is None:
            self._keeper = ZygoteClient(self._start_keeper)
        if len(self._ready) < count:
            wanted = max(2, count) if self._has_killed and self.reuse else count
            new = [self._keeper.start() for _ in range(wanted - len(self._ready))]
            if self.warm:
                self._warm_up(self._keeper, new)
            self._ready += new
        return self._keeper

    def _warm_up(self, keeper: ZygoteClient, workers: list[Worker]) -> None:
        """All at the same time."""
        job = Job(warm_up, tuple(sorted(self._modules)), CallLimits(lambda stage: WARM_UP_S))
        content, state = [pickling.dumps(job.argument)], self._state()
        conversations = [Conversation(keeper, worker, job, content, state) for worker in workers]
        for conclusion in [each.finish() for each in conversations]:
            if conclusion.is_stale:
                raise CannotStart(f"a worker process could not begin: {conclusion.doubt}")
            if isinstance(failure := conclusion.outcome, Failure):
                words = failure.traceback.strip().splitlines()
                last = f"; its last output: {words[-1]}" if words else ""
                raise CannotStart(f"a worker process could not do its first computation: {failure.message}{last}")

    def _drop_what_does_not_serve(self) -> None:
        """Workers that have ended while they waited, or that were born under other conditions than those of now."""
        before, self._conditions = self._conditions, (start_flags(), jax_settings())
        if self._keeper is None:
            return
        try:
            self._keeper.read_events()
            is_lost = before[0] != self._conditions[0]
        except (Closed, Garbled):
            is_lost = True
        if is_lost:
            self._let_go()
        self._discard([w for w in self._ready if w.status is not None or before != self._conditions])

    def _let_go(self) -> None:
        keeper, self._keeper = self._keeper, None
        self._ready = []
        if keeper is not None:
            keeper.close()

    def _abandon(self) -> None:
        """In a fork of this program: the processes belong to the other one."""
        keeper, self._keeper = self._keeper, None
        self._ready, self._lock = [], threading.Lock()
        if keeper is not None:
            keeper.detach()


def shared_pool(warm: bool = True) -> Pool:
    """The pool of this program: the workers of one call serve the next. With `warm=False` one that gives each job a
    process in which JAX has done nothing yet. Closed at exit."""
    return _make_shared(warm)


@cache
def _make_shared(warm: bool) -> Pool:
    return Pool(warm=warm, reuse=warm)


_pools: weakref.WeakSet[Pool] = weakref.WeakSet()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close()
    _make_shared.cache_clear()


def _abandon_all() -> None:
    for pool in list(_pools):
        pool._abandon()
    _make_shared.cache_clear()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
