"""The timer by CUPTI, on a stand-in for JAX's own: what is asked of it, and what becomes of its answers."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.mosaic.gpu import profiler

from benchax.errors import NotMeasured
from benchax.measuring.timers import TIMERS, device
from benchax.measuring.timers.base import Subject

Make = Callable[..., Subject]


class Cupti:
    """As in jax 0.7.2 to 0.10.2: one number for one call, a list for several, None where no kernel ran."""

    answer: Any = 0.25
    asked: list[tuple[bool, int]] = []  # noqa: RUF012  emptied by each test

    def __init__(self, *, finalize: bool = True) -> None:
        self.finalize = finalize

    def measure(self, f: Callable[..., Any], *, aggregate: bool = True, iterations: int = 1) -> Callable[..., Any]:
        self.asked.append((self.finalize, iterations))
        assert aggregate

        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if isinstance(self.answer, Exception):
                raise self.answer
            out = f(*args, **kwargs)
            return out, self.answer if iterations == 1 or self.answer is None else [self.answer] * iterations

        return wrapper


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> type[Cupti]:
    """A GPU, as far as the timer can see."""
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(profiler, "Cupti", Cupti)
    monkeypatch.setattr(Cupti, "asked", [])
    return Cupti


def test_on_nvidia_the_device_is_timed_by_cupti(gpu: type[Cupti], subject: Make) -> None:
    prepared = TIMERS["device"].prepare(subject(lambda x: x + 1, jnp.ones(8)))

    assert prepared.take is not None
    assert prepared.take(1, 3) == [250_000] * 3
    assert prepared.sample(4) == 1_000_000
    assert prepared.regime == "kernels, L2 warm"
    assert gpu.asked == [(False, 1), (False, 3), (False, 4)]


class Older:
    def measure(self, f: Any, *, mode: str = "events", aggregate: bool = True) -> Any: ...


@pytest.mark.parametrize(
    ("of", "name", "value", "why"),
    [
        (Cupti, "answer", None, "it ran no kernel on the GPU"),
        (Cupti, "answer", RuntimeError("CUPTI_ERROR_X\nand more"), r"^CUPTI: CUPTI_ERROR_X$"),
        (profiler, "Cupti", Older, r"knows no finalize, iterations; 0\.7\.2 or newer does"),
        (profiler, "Cupti", None, r"this jax has no timer by CUPTI \("),
    ],
    ids=["no kernels", "an error", "an older jax", "a jax without it"],
)
def test_what_cannot_be_timed_is_a_reason(of, name, value, why, gpu: type[Cupti], subject: Make, monkeypatch) -> None:
    monkeypatch.setattr(of, name, value)

    with pytest.raises(NotMeasured, match=why):
        TIMERS["device"].prepare(subject(lambda x: x + 1, jnp.ones(8)))


@pytest.mark.parametrize(
    ("of_the_case", "why"),
    [({"donate": [0]}, "it donates its arguments"), ({"jit": False}, "takes jitted and compiled functions only")],
)
def test_what_cannot_be_repeated_there_is_refused(of_the_case, why: str, gpu: type[Cupti], subject: Make) -> None:
    with pytest.raises(NotMeasured, match=why):
        TIMERS["device"].prepare(subject(lambda x: x + 1, "f32[8]", **of_the_case))


def test_the_timer_of_this_jax_is_the_one_that_was_read(subject: Make) -> None:
    """Where there is no GPU it says so itself."""
    with pytest.raises(NotMeasured, match="CUPTI"):
        device.prepare_kernels(subject(lambda x: x + 1, jnp.ones(8)))


@pytest.mark.gpu
def test_on_a_real_gpu_a_longer_function_takes_longer() -> None:
    program = """
import benchax, jax.numpy as jnp
short, long = (benchax.bench(lambda x: x @ x, f"f32[{n},{n}]", timer="device", store="off") for n in (512, 4096))
print(short.summary("device").median_s * 10 < long.summary("device").median_s)
"""
    out = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout

    assert out == "True\n"


@pytest.mark.parametrize(
    ("seen_ns", "step_s"),
    [({1056, 1087, 1088, 1120, 1184}, 31e-9), ({1088}, None), ({1087, 1088}, None), (set(), None)],
)
def test_the_step_of_its_clock_is_what_readings_differ_by(seen_ns: set[int], step_s: float | None) -> None:
    assert device._step_s(seen_ns) == step_s
