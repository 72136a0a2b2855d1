"""`collectives-dominate` and `mesh-mismatch`, with eight devices that are pretended in one process of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

CHILD = """
import dataclasses, json
import jax
jax.config.update("jax_num_cpu_devices", 8)
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from benchax.auditing.audit import ask
from benchax.auditing import evidence as module
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.evidence import Evidence
from benchax.auditing.rules import rules
from benchax.case import make_case
from benchax.results.watch import Watch

module.SHORT = {"store": "off", "max_time_s": 0.02, "max_warmup_s": 0.02, "memory": False}
mesh = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))
def spread(shape, *spec):
    return jax.device_put(jnp.ones(shape), NamedSharding(mesh, P(*spec)))

def mean_of_products(a, b):
    return jax.lax.with_sharding_constraint(a @ b, NamedSharding(mesh, P()))

CASES = {
    "summed": (mean_of_products, (spread((512, 64), None, "d"), spread((64, 512), "d", None))),
    "apart": (lambda a: a * 2, (spread((512, 64), "d", None),)),
    "one": (lambda a: a * 2, (jnp.ones(8),)),
    "copied": (lambda a, w: a @ w, (spread((512, 1024), "d", None), spread((1024, 512)))),
    "apart from each other": (lambda a, b: a + b, tuple(jax.device_put(jnp.ones(8), d) for d in jax.devices()[:2])),
}
found = {}
for name, (fn, inputs) in CASES.items():
    evidence = Evidence(make_case(fn, inputs, {}), max_time_s=0)
    for rule in ("collectives-dominate", "mesh-mismatch"):
        findings, checked = ask(rules()[rule], evidence)
        found[f"{name}: {rule}"] = [[dataclasses.asdict(f) for f in findings], checked.outcome, checked.why]
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def answers() -> dict[str, Any]:
    ended = subprocess.run([sys.executable, "-c", CHILD], capture_output=True, text=True, check=False, timeout=120)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout.splitlines()[-1])


@pytest.mark.slow
def test_a_program_that_mostly_collects_is_told_with_its_bytes(answers: dict[str, Any]) -> None:
    (finding,), _, _ = answers["summed: collectives-dominate"]

    assert finding["title"].startswith("1.00 MiB per call come from other devices")
    assert finding["seen"][0] == "1 × all-reduce: 1.00 MiB on each of 8 devices"


def test_devices_that_say_nothing_to_one_another_are_fine(answers: dict[str, Any]) -> None:
    assert answers["apart: collectives-dominate"][1] == "fine"
    assert answers["apart: mesh-mismatch"][1] == "fine"


def test_a_program_on_one_of_eight_devices_is_told(answers: dict[str, Any]) -> None:
    (finding,), _, _ = answers["one: mesh-mismatch"]

    assert finding["title"] == "it runs on 1 of 8 devices"
    assert answers["one: collectives-dominate"][1:] == ["not applicable", "the program runs on one device"]


def test_an_argument_that_every_device_holds_in_full_is_told(answers: dict[str, Any]) -> None:
    (finding,), _, _ = answers["copied: mesh-mismatch"]

    assert finding["title"] == "args[1] is held in full by 8 devices"
    assert finding["gain_bytes"] == 7 * (2 << 20)


def test_arguments_on_different_devices_are_an_error(answers: dict[str, Any]) -> None:
    (finding,), _, _ = answers["apart from each other: mesh-mismatch"]

    assert finding["severity"] == "error"


@pytest.mark.parametrize("rule", ["collectives-dominate", "mesh-mismatch"])
def test_with_one_device_neither_applies(ask_about: Any, rule: str) -> None:
    answered = ask_about(rule, lambda a: a * 2, "f32[8]")

    assert (answered.outcome, answered.why) == ("not applicable", "there is one device")
