"""Observes how far the calls of a case raise memory: when, and for which calls.

It takes separate passes: for resident memory on CPU (`memory.py`), for the device's memory on an accelerator
(`device_memory.py`). A part that cannot be observed gives the reason, and the rest goes on.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax

from benchax.measuring import device_memory, memory
from benchax.measuring.record import Record
from benchax.measuring.timers.base import Subject
from benchax.model import Absent, Options

QUICK_CALL_S = 0.3
"""A quicker eager call is read more often where the first readings differ; a longer one as seldom as can be."""


def observe_memory(record: Record, subject: Subject, options: Options) -> None:
    """Observes the rises of both calls, in separate passes."""
    if not options.memory:
        record.absent += [
            Absent(f"memory.{name}", "switched off", is_by_choice=True)
            for name in ("compiled_rise_bytes", "eager_rise_bytes")
        ]
        return
    record.enter("memory")
    if jax.default_backend() != "cpu":
        _observe_on_device(record, subject)
        return
    if subject.program.kind != "eager":
        _observe(record, "compiled_rise_bytes", subject, subject.program.call)
    if subject.program.kind == "eager" or _eager_has_run(record, subject):
        with record.or_absent("memory.eager_rise_bytes"):
            fn = subject.program.eager or subject.program.call
            calls = _call_on_fresh_buffers(subject, fn, _readings(subject))
            _note_eager(record, memory.observed_range(calls, QUICK_CALL_S, _readings(subject) - 1))


def _observe_on_device(record: Record, subject: Subject) -> None:
    program, device = subject.program, device_of(subject)
    if program.kind != "eager":
        with record.or_absent("memory.compiled_rise_bytes"):
            call = _call_on_fresh_buffers(subject, program.call)
            rise, _ = device_memory.observed_range(call, device, memory.CALLS - 1)
            record.memory = replace(record.memory, method=device_memory.METHOD, compiled_rise_bytes=rise)
    if program.kind == "eager" or _eager_has_run(record, subject):
        with record.or_absent("memory.eager_rise_bytes"):
            call = _call_on_fresh_buffers(subject, program.eager or program.call, memory.AGREEING + 1)
            _note_eager(record, device_memory.observed_range(call, device, memory.AGREEING), device_memory.METHOD)


def device_of(subject: Subject) -> Any:
    """One of the devices that it runs on, which are alike."""
    used = [device for leaf in subject.inputs.data for device in leaf.sharding.device_set]
    return min(used, key=lambda device: device.id, default=jax.devices()[0])


def _readings(subject: Subject) -> int:
    """Returns how often an eager call is made, including the unread call. It is rare if each call has its own buffers,
    which all wait in memory."""
    return memory.CALLS if subject.needs_renewal else memory.MOST_EAGER_READINGS + 1


def _note_eager(record: Record, ends: tuple[int, int], method: str = memory.METHOD) -> None:
    least, most = ends
    low = None if memory.is_one_figure(least, most) else least
    record.memory = replace(record.memory, method=method, eager_rise_bytes=most, eager_rise_low_bytes=low)


def _observe(record: Record, name: str, subject: Subject, fn: Callable[..., Any]) -> None:
    with record.or_absent(f"memory.{name}"):
        rise = memory.observed_rise(_call_on_fresh_buffers(subject, fn))
        record.memory = replace(record.memory, method=memory.METHOD, **{name: rise})


def _call_on_fresh_buffers(subject: Subject, fn: Callable[..., Any], count: int = memory.CALLS) -> Callable[[], Any]:
    """Buffers for all calls are made beforehand: they must not count as memory of the call."""
    # An iterator, because each set of buffers serves one call; a call too many is a mistake of ours and raises.
    calls = iter([subject.ready(fn) for _ in range(count)])
    return lambda: next(calls)()


def _eager_has_run(record: Record, subject: Subject) -> bool:
    """Was the eager call run before? Compiling its operations would be taken for memory of the call."""
    if record.numerics is not None or record.undecided:
        return True
    record.absent.append(Absent("memory.eager_rise_bytes", record.why("numerics")))
    return False


def observe_next_call(record: Record, subject: Subject) -> float | None:
    """Observes the rise of an eager function by one call, or two if they are short. Before it, one call runs while
    every block is mapped. Returns the seconds of that call; None if there was no such call."""
    record.enter("memory")
    if any(absent.what == "memory.eager_rise_bytes" for absent in record.absent):
        return None
    last_s = None
    with record.or_absent("memory.eager_rise_bytes"):
        call = _call_on_fresh_buffers(subject, subject.program.call, _readings(subject))
        rise = memory.read_rise(call)
        last_s = rise.elapsed_s
        if last_s < QUICK_CALL_S:
            _note_eager(record, memory.read_range(call, QUICK_CALL_S, _readings(subject) - 1, rise))
        else:
            rise_bytes = memory.believed(rise)
            _note_eager(record, (rise_bytes, rise_bytes))
    return last_s
