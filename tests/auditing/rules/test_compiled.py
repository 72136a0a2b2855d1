"""Rules about the compiled program."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.auditing.evidence import Evidence
from benchax.auditing.recorder.log import Carried
from benchax.auditing.rules.compiled import captured_constants
from benchax.case import make_case

# ---- captured-constants ----------------------------------------------------------------------------------------------

LARGE = np.random.default_rng(0).standard_normal((512, 1024)).astype(np.float32)
SMALL = LARGE[:8, :8]


def check(fn, *args):
    return list(captured_constants.check(Evidence(make_case(fn, args))))


def test_a_large_array_in_a_global_is_found_with_its_size_and_line() -> None:
    def f(x):
        return x @ LARGE

    (finding,) = check(f, "f32[4,512]")

    assert finding.title == "closes over 1 array of 2.00 MiB"
    assert finding.seen[0].startswith("f32[512,1024], 2.00 MiB, first used at dot_general at ")
    assert "the compiled program holds 2.00 MiB of constants" in finding.seen
    assert finding.where == (__file__, f.__code__.co_firstlineno)


def test_one_that_an_inner_jit_closes_over_is_found() -> None:
    inner = jax.jit(lambda x: x @ LARGE)

    assert len(check(lambda x: inner(x) + 1, "f32[4,512]")) == 1


def test_what_xla_folds_is_told_apart_from_what_is_closed_over() -> None:
    (finding,) = check(lambda x: x + jnp.asarray(LARGE).sum(0), "f32[1024]")

    assert "the compiled program holds 4.00 KiB of constants" in finding.seen


def test_arguments_and_small_tables_are_fine() -> None:
    assert check(lambda x, w: x @ w, "f32[4,512]", LARGE) == []
    assert check(lambda x: x @ SMALL, "f32[4,8]") == []


def test_what_takes_next_to_no_time_to_compile_is_an_info(monkeypatch) -> None:
    severities = []
    for dear in (1 << 23, 1 << 21):
        monkeypatch.setattr("benchax.auditing.rules.compiled.DEAR_BYTES", dear)
        severities += [finding.severity for finding in check(lambda x: x @ LARGE, "f32[4,512]")]

    assert severities == ["info", "warning"]


# ---- donation-possible -----------------------------------------------------------------------------------------------


def moved(params: Any, grads: Any) -> Any:
    return {"w": params["w"] - 0.1 * grads}


PARAMS = {"w": "f32[512,1024]"}


def test_what_an_output_could_take_over_is_named_with_bytes_and_time(ask_about: Any) -> None:
    answered = ask_about("donation-possible", moved, PARAMS, "f32[512,1024]", ratio=0.5)

    assert answered.one.title == "2.00 MiB of its arguments could be donated"
    assert answered.one.seen[0] == "args[0]['w'] f32[512,1024] → result['w'], 2.00 MiB"
    assert answered.one.gain_bytes == 2 << 20
    assert answered.one.gain == (
        "measured: 1.00 ms → 500 µs per call (2.00×, 1.96 – 2.04); 2.00 MiB less in the compiler's plan"
    )
    assert [(before.donate, variant.donate) for before, variant in answered.pairs] == [((), (0,))]


def test_where_time_is_not_won_the_bytes_are(ask_about: Any) -> None:
    answered = ask_about("donation-possible", moved, PARAMS, "f32[512,1024]", ratio=1.0)

    assert (answered.one.gain, answered.one.gain_s) == ("measured: 2.00 MiB less in the compiler's plan", None)


def test_where_it_would_be_slower_nothing_is_advised(ask_about: Any) -> None:
    answered = ask_about("donation-possible", moved, PARAMS, "f32[512,1024]", ratio=1.2)

    assert answered.outcome == "not applicable"
    assert answered.why.startswith("no argument is donated, and donating 2.00 MiB would not pay: donated: slower")


def test_small_arrays_are_not_worth_a_word(ask_about: Any) -> None:
    answered = ask_about("donation-possible", lambda a: a + 1, "f32[256]")

    assert answered.outcome == "not applicable"
    assert answered.why == "1.00 KiB could be donated, too little to matter"


def test_a_sum_can_take_over_nothing(ask_about: Any) -> None:
    assert ask_about("donation-possible", lambda a: a.sum(), "f32[1024,1024]").outcome == "not applicable"


def test_a_function_that_donates_is_another_rules(ask_about: Any) -> None:
    assert ask_about("donation-possible", lambda a: a + 1, "f32[1024,1024]", donate=(0,)).outcome == "not applicable"


def test_what_is_to_be_donated_can_hold_no_array_as_under_equinox(ask_about: Any) -> None:
    answered = ask_about("donation-possible", lambda given, a: a + 1, {}, "f32[1024,1024]", donate=(0,))

    assert answered.outcome == "not checked"
    assert answered.why == "the arguments that it is to donate hold no array, and others are not looked at"


def stored(buffer: Any, row: Any) -> Any:
    return buffer.at[3].set(row), row.sum()


def rewritten(buffer: Any, row: Any) -> Any:
    return buffer * row, row.sum()


@pytest.mark.parametrize(
    ("fn", "title"),
    [
        (stored, "copies 16.0 MiB in each call, to change a part of it"),
        (rewritten, "16.0 MiB of its arguments could be donated"),
    ],
)
def test_what_comes_back_with_a_part_changed_is_copied_in_each_call_and_a_warning(
    ask_about: Any, fn: Any, title: str
) -> None:
    parts = {"carried": Carried(50, ((0, 0),))}

    found = ask_about("donation-possible", fn, "f32[4096,1024]", "f32[1024]", ratio=1.0, parts=parts).one

    assert found.title == title
    assert found.severity == ("warning" if fn is stored else "info")


def test_without_coming_back_it_is_an_info(ask_about: Any) -> None:
    assert ask_about("donation-possible", stored, "f32[4096,1024]", "f32[1024]", ratio=1.0).one.severity == "info"


# ---- donation-unused -------------------------------------------------------------------------------------------------


def test_a_donated_array_that_fits_no_output_is_named_with_the_reason(ask_about: Any) -> None:
    finding = ask_about("donation-unused", lambda a, b: (a + 1, b.sum()), "f32[256]", "f32[1024]", donate=(0, 1)).one

    assert finding.title == "1 of 2 donated arrays are not reused"
    assert finding.seen[0].startswith("args[1] f32[1024], 4.00 KiB: no output has its shape and dtype")
    assert finding.seen[1] == "4.00 KiB of the 5.00 KiB that are donated"
    assert finding.severity == "info"


def test_a_large_one_is_a_warning(ask_about: Any) -> None:
    assert ask_about("donation-unused", lambda a: a.sum(), "f32[512,1024]", donate=(0,)).one.severity == "warning"


def test_donations_that_are_used_are_fine(ask_about: Any) -> None:
    assert ask_about("donation-unused", lambda a: a + 1, "f32[256]", donate=(0,)).outcome == "fine"


def test_without_donation_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about("donation-unused", lambda a: a + 1, "f32[256]").outcome == "not applicable"


def test_a_counter_that_is_donated_in_vain_is_fine(ask_about: Any) -> None:
    assert (
        ask_about("donation-unused", lambda a, n: a + n.astype(a.dtype), "f32[256]", "i32[]", donate=(0, 1)).outcome
        == "fine"
    )


# ---- materialised-broadcast ------------------------------------------------------------------------------------------


def test_an_input_with_equal_rows_is_told_with_what_one_row_would_save(ask_about: Any) -> None:
    given = np.tile(np.arange(512, dtype="f4"), (1024, 1))

    finding = ask_about("materialised-broadcast", lambda a, b: a @ b, given, "f32[512,2]").one

    assert finding.title == "args[0] holds one array 1024 times"
    assert finding.gain_bytes == given.nbytes - 512 * 4


def test_a_broadcast_that_is_an_output_is_told_with_its_line(ask_about: Any) -> None:
    def spread(a: Any) -> Any:
        return jnp.broadcast_to(a, (1024, 512))

    finding = ask_about("materialised-broadcast", spread, "f32[512]").one

    assert finding.title == "the compiler keeps a broadcast of 2.00 MiB in memory"
    assert finding.where == (__file__, spread.__code__.co_firstlineno + 1)


def test_a_broadcast_that_is_fused_away_is_fine(ask_about: Any) -> None:
    assert ask_about("materialised-broadcast", lambda a, b: a + b, "f32[512]", "f32[1024,512]").outcome == "fine"


def test_zeros_are_no_copies(ask_about: Any) -> None:
    assert ask_about("materialised-broadcast", lambda a: jnp.zeros((1024, 512)) + a.sum(), "f32[512]").outcome == "fine"
    assert ask_about("materialised-broadcast", lambda a: a * 2, np.zeros((1024, 512), "f4")).outcome == "fine"


# ---- scan-flops ------------------------------------------------------------------------------------------------------


def test_turns_that_xla_does_not_count_are_told(ask_about: Any) -> None:
    finding = ask_about("scan-flops", lambda a: jax.lax.fori_loop(0, 10, lambda i, b: b @ a, a), "f32[64,64]").one

    assert finding.title == "XLA counts 524 kFLOP, and 5.24 MFLOP are done"
    assert "10 iterations" in finding.seen[0]


def test_a_loop_of_unknown_length_is_counted_as_far_as_can_be(ask_about: Any) -> None:
    def two_loops(a: jax.Array) -> jax.Array:
        a = jax.lax.fori_loop(0, 10, lambda i, b: b @ a, a)
        return jax.lax.while_loop(lambda b: b.sum() < 1e9, lambda b: b @ a, a)

    finding = ask_about("scan-flops", two_loops, "f32[64,64]").one

    assert re.fullmatch(r"XLA counts \S+ MFLOP, and about 5\.\d+ MFLOP are done", finding.title)
    assert any("an unknown number of iterations" in line for line in finding.seen)


def test_a_program_without_loops_has_nothing_to_leave_out(ask_about: Any) -> None:
    assert ask_about("scan-flops", lambda a: a @ a, "f32[64,64]").outcome == "not applicable"


def test_in_a_program_it_is_told_where_the_file_asks_for_the_count(ask_about: Any, tmp_path: Path) -> None:
    loop = "import jax\ndef f(a):\n    return jax.lax.fori_loop(0, 10, lambda i, b: b @ a, a)\n"
    outcomes = []
    for name, text in (("plain", loop), ("counted", f"{loop}flops = lambda c: c.cost_analysis()['flops']\n")):
        file, made = tmp_path / f"{name}.py", dict[str, Any]()
        file.write_text(text)
        exec(compile(text, str(file), "exec"), made)
        parts = {"why_not_called": "it belongs to a program"}
        outcomes.append(ask_about("scan-flops", made["f"], "f32[64,64]", parts=parts).outcome)

    assert outcomes == ["not applicable", "finding"]


# ---- page-faulting-output --------------------------------------------------------------------------------------------

LARGE_OF_PAGES = "f32[4096,2304]"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.serial
def test_the_faults_of_a_large_output_are_counted_and_what_they_cost_is_estimated(ask_about: Any) -> None:
    finding = ask_about("page-faulting-output", lambda a: a + 1, LARGE_OF_PAGES).one

    assert finding.title == "36.0 MiB of outputs and temporaries are new pages in each call"
    assert "page faults per call" in finding.seen[0]
    assert finding.gain.startswith("estimated: up to ")
    assert finding.gain_s > 0


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_an_output_on_the_pages_of_a_donated_argument_is_fine(ask_about: Any) -> None:
    assert ask_about("page-faulting-output", lambda a: a + 1, LARGE_OF_PAGES, donate=(0,)).outcome == "fine"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
def test_a_small_output_is_fine(ask_about: Any) -> None:
    assert ask_about("page-faulting-output", lambda a: a + 1, "f32[1024]").outcome == "fine"


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's allocator")
@pytest.mark.serial
def test_a_function_that_returns_a_number_is_not_told_to_return_less(ask_about: Any) -> None:
    def total(a: Any) -> Any:
        return (a.T.reshape(a.shape) * a).sum()

    found = ask_about("page-faulting-output", total, LARGE_OF_PAGES)

    assert found.one.title.endswith(" of temporaries are new pages in each call")
    assert "return less" not in found.one.advice
    assert "batch_size" in found.one.advice


# ---- devices ---------------------------------------------------------------------------------------------------------

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
