"""Operations that a program sends one at a time. Real programs are in tests/auditing/test_audited_program.py."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchax.auditing.audit import ask
from benchax.auditing.evidence import ProgramEvidence
from benchax.auditing.live_evidence import LiveEvidence
from benchax.auditing.rules.eager_operations import eager_operations
from benchax.case import make_case
from benchax.results.audit import Checked, Finding
from benchax.results.watch import Watch


def asked(eager_calls: Any = None, **calls: Any) -> tuple[list[Finding], Checked]:
    seen = {"is_seen": True, "seen_s": 20.0, "jitted": 0, "eager": 0, "eager_lines": [], **calls}
    facts = {"calls": seen, "eager_calls": eager_calls or {"calls": [], "paths": []}}
    return ask(eager_operations, ProgramEvidence("python train.py", Watch("all"), facts=facts))


TRAIN = """import blackjax
def transition(chain, key):
    return chain + key

def main(sampler, kernel, keys):
    step = kernel.step
    for key in keys:
        chain = transition(chain, key)
        state = step(key, chain)
        chain = kernel.other(state)
"""


def of_call(folder: Path, line: int, columns: tuple[int, int], **about: Any) -> tuple[list[Finding], Checked]:
    """Of a program that sends 40 operations in each of 25 calls at this line."""
    train = folder / "train.py"
    train.write_text(TRAIN, encoding="utf-8")
    called = {
        "where": f"{train}:{line}", "span": [line, line, *columns], "function": "transition", "defined": f"{train}:2",
        "is_users": True, "is_through_package": False, "stores": False, "count": 25, "jitted": 0, "reads": 0,
        "read_at": "", "acts_on_values": False, **about,
    }  # fmt: skip
    noted = {"calls": [called], "paths": [[[0], f"{train}:3", 1000]]}
    return asked(noted, eager=1000, eager_lines=[(f"{train}:3", 1000)])


def test_a_function_that_could_be_jitted_is_told_at_its_definition(tmp_path: Path) -> None:
    (finding,), _ = of_call(tmp_path, 8, (16, 38))

    assert finding.title == "transition, called at line 8, sends 40 operations one at a time each call"
    assert finding.where == (str(tmp_path / "train.py"), 2)
    assert finding.advice.startswith("Decorate transition with jax.jit")
    assert finding.seen[0].startswith("transition was called 25 times at ")


def test_a_function_of_a_package_is_told_where_it_gets_a_name_or_is_called(tmp_path: Path) -> None:
    package = {"is_users": False, "function": "build.step_fn", "defined": "/lib/blackjax/mala.py:70"}

    (bound,), _ = of_call(tmp_path, 9, (16, 32), **package)
    (called,), _ = of_call(tmp_path, 10, (16, 35), **package)

    assert (bound.where, bound.title[:5]) == ((str(tmp_path / "train.py"), 6), "step,")
    assert called.where == (str(tmp_path / "train.py"), 10)
    assert called.advice.startswith("Make jax.jit(kernel.other) once")


def test_what_a_function_reads_at_its_end_is_to_be_returned(tmp_path: Path) -> None:
    (finding,), _ = of_call(tmp_path, 8, (16, 38), reads=25, read_at="train.py:4")

    assert "Return what it reads at train.py:4" in finding.advice


def test_the_jit_of_the_library_is_told(tmp_path: Path) -> None:
    program = TRAIN.replace("import blackjax", "from flax import nnx")
    Path(tmp_path, "net.py").write_text(program, encoding="utf-8")

    (finding,), _ = of_call(tmp_path, 8, (16, 38), where=f"{tmp_path / 'net.py'}:8")

    assert "nnx.jit" in finding.advice


def test_a_line_with_many_operations_is_a_warning() -> None:
    (finding,), _ = asked(jitted=10, eager=120, eager_lines=[("train.py:7", 110), ("train.py:3", 10)])

    assert finding.severity == "warning"
    assert finding.where == (str(Path("train.py").absolute()), 7)
    assert finding.seen[:2] == (
        "110 from train.py:7",
        "120 operations in the 20.0 s in which calls were counted, and calls of jitted functions: 10",
    )


def test_beside_as_many_calls_of_jitted_functions_it_is_an_info() -> None:
    (finding,), _ = asked(jitted=110, eager=110, eager_lines=[("train.py:7", 110)])

    assert finding.severity == "info"


def test_what_a_package_sends_from_one_call_is_fine_and_from_many_is_not() -> None:
    once, _ = asked(eager=120, eager_lines=[("train.py:7", 120)], eager_inside=[("train.py:7", 118)])
    often, _ = asked(eager=3000, eager_lines=[("train.py:7", 3000)], eager_inside=[("train.py:7", 3000)])

    assert (once, len(often)) == ([], 1)


def test_many_lines_with_a_few_operations_each_are_fine() -> None:
    findings, answer = asked(jitted=1, eager=500, eager_lines=[(f"model.py:{line}", 50) for line in range(10)])

    assert (findings, answer.outcome) == ([], "fine")


def test_a_line_that_cannot_be_seen_is_no_advice() -> None:
    findings, _ = asked(eager=500, eager_lines=[(None, 500)])

    assert findings == []


def test_a_jax_whose_calls_cannot_be_seen_is_not_called_fine() -> None:
    _, answer = asked(is_seen=False)

    assert (answer.outcome, answer.why) == ("not checked", "calls cannot be seen in this JAX")


def test_of_one_function_it_says_nothing() -> None:
    _, answer = ask(eager_operations, LiveEvidence(make_case(abs, (1.0,))))

    assert (answer.outcome, answer.why) == ("not applicable", "one function is audited, not a program")
