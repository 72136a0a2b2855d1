"""Rules about calls."""

from __future__ import annotations

import ast
import functools
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import jax.numpy as jnp
import pytest
from evidence_by_hand import ScriptedEvidence, evidence, judged

import benchax
from benchax.auditing.audit import ask
from benchax.auditing.evidence import Evidence
from benchax.auditing.rule import NotApplicable
from benchax.auditing.rules import eager
from benchax.auditing.rules.eager import not_jitted, trivial_jit, vmap_of_jit
from benchax.auditing.syntax import calls, passed_functions
from benchax.case import make_case
from benchax.comparing.break_even import SAME_PROGRAM
from benchax.errors import NotMeasured
from benchax.model import CaseId, Comparison, Remark, Version
from benchax.results.profile import Profile

# ---- not-jitted ------------------------------------------------------------------------------------------------------


def selu(x):
    return 1.05 * jnp.where(x > 0, x, 1.67 * jnp.exp(x) - 1.67)


@pytest.mark.slow
@pytest.mark.serial
def test_many_operations_one_by_one_are_found_with_the_measured_gain() -> None:
    (finding,) = not_jitted.check(Evidence(make_case(selu, ("f32[100000]",))))

    assert finding.title == "runs operation by operation"
    assert finding.gain is not None
    assert finding.gain.startswith("measured: ")
    assert finding.gain_s is not None
    assert finding.gain_s > 0
    assert "pays from" in finding.seen[0]
    assert finding.where == (__file__, selu.__code__.co_firstlineno)


def test_the_gain_is_that_of_the_pairs() -> None:
    e = evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3, build_s=0.01, comparison=judged(0.5))

    (finding,) = not_jitted.check(e)

    assert finding.gain == "measured: 10.0 µs → 5.00 µs per call (2.00×, 1.98 – 2.02)"
    assert finding.gain_s == pytest.approx(5e-6)
    assert "pays from 2,000 calls on" in finding.seen[0]  # 10 ms over 5 µs
    assert "2.00× (1.98 – 2.02) faster" in finding.seen[0]  # one speedup, in both places
    assert finding.severity == "info"


def test_what_pays_soon_is_a_warning() -> None:
    (finding,) = not_jitted.check(
        evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3, build_s=0.001, comparison=judged(0.5))
    )

    assert finding.severity == "warning"
    assert finding.advice.startswith("Use jax.jit if you call it directly 200 times or more")


def test_one_operation_is_not_said_to_be_nothing_to_compare() -> None:
    same = Remark(SAME_PROGRAM, "info", "both run the same program")
    c = judged(0.5, remarks=(same,))

    (finding,) = not_jitted.check(
        evidence(lambda x: x + 1, "f32[8]", eager_s=2e-5, jitted_s=1e-5, build_s=0.01, comparison=c)
    )

    assert finding.title == "starts its one operation from Python"
    text = " ".join(finding.seen)
    assert text.startswith(
        "Both calls run the same program; only the way that Python starts it differs. Compiling (10.0 ms) pays"
    )
    assert text.endswith("(95 %: 1,981 – 2,021): 10.0 µs eager, 5.00 µs jitted, 2.00× (1.98 – 2.02) faster.")


def test_one_long_operation_is_fine_without_a_comparison() -> None:
    assert list(not_jitted.check(evidence(selu, "f32[8]", eager_s=1.05e-3, jitted_s=1e-3))) == []


@pytest.mark.parametrize("ratio", [1.0, 1.2])
def test_what_the_pairs_do_not_confirm_is_no_finding(ratio: float) -> None:
    assert list(not_jitted.check(evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3, comparison=judged(ratio)))) == []


def test_what_the_pairs_could_not_tell_is_not_called_fine() -> None:
    """An eager step that was 24.6 times slower got a tick on a busy machine."""
    unclear = judged(1 / 24.6, verdict="unclear", why="a change below 97 % could have been missed")
    e = evidence(selu, "f32[8]", eager_s=24.6e-3, jitted_s=1e-3, comparison=unclear)

    with pytest.raises(NotMeasured) as error:
        list(not_jitted.check(e))

    assert error.value.problem.startswith("the comparison with jax.jit is undecided (24.6×")
    assert error.value.problem.endswith("could have been missed")


def test_a_jitted_function_is_not_asked() -> None:
    with pytest.raises(NotApplicable, match="it is jitted"):
        list(not_jitted.check(Evidence(make_case(jax.jit(selu), ("f32[8]",)))))


def test_without_time_for_a_comparison_nothing_is_claimed() -> None:
    e = evidence(selu, "f32[8]", eager_s=3e-3, jitted_s=1e-3)

    with pytest.raises(NotMeasured, match="used up"):
        list(not_jitted.check(e))


# ---- trivial-jit -----------------------------------------------------------------------------------------------------


@jax.jit
def trivial(x):
    return x + 1


def check(eager_s: float, jitted_s: float, **more):
    return list(trivial_jit.check(evidence(trivial, "f32[8]", eager_s=eager_s, jitted_s=jitted_s, **more)))


def test_a_jit_that_saves_hardly_anything_is_found_with_the_number_of_calls() -> None:
    """The pairs are on 10 µs: at best 2.01 times as long, which saves 10.2 µs of each call."""
    (finding,) = check(6e-6, 3e-6, build_s=1.0, comparison=judged(2.0))

    assert finding.title == "compiling pays from 98,040 calls on at best"
    assert finding.advice.startswith("Use jax.jit if you call it directly 100,000 times or more")
    assert finding.gain is None
    assert finding.where == (__file__, trivial.__wrapped__.__code__.co_firstlineno + 1)


def test_where_the_unjitted_function_is_faster_the_gain_is_measured() -> None:
    (finding,) = check(3e-6, 6e-6, comparison=judged(0.5))

    assert finding.title == "compiling never pays"
    assert finding.gain is not None
    assert finding.gain.startswith("measured: 10.0 µs → 5.00 µs")


def test_a_jit_that_pays_soon_is_fine_without_a_comparison() -> None:
    assert check(3e-3, 1e-3) == []


def test_medians_of_a_noisy_moment_are_no_finding_where_pairs_say_otherwise() -> None:
    assert check(1e-3, 2e-3, comparison=judged(3.0)) == []


def test_an_unclear_comparison_is_said_to_be_one() -> None:
    with pytest.raises(NotMeasured, match=r"is undecided \(1.00×.*\): too noisy"):
        check(3e-6, 6e-6, comparison=judged(1.0, verdict="unclear", why="too noisy"))


def test_a_function_that_is_not_jitted_is_not_asked() -> None:
    with pytest.raises(NotApplicable, match="not jitted"):
        list(trivial_jit.check(evidence(trivial.__wrapped__, "f32[8]", eager_s=1.0, jitted_s=1.0)))


def test_without_an_interval_nothing_is_claimed() -> None:
    with pytest.raises(NotMeasured, match="has no interval"):
        check(3e-6, 6e-6, comparison=judged(1.0, low=None, high=None))


@pytest.mark.parametrize("build_s", [0.001, 0.04, 0.1, 0.2, 10.0])
@pytest.mark.parametrize("jitted_takes", [0.2, 0.5, 0.9, 1.5])
def test_of_one_function_jitted_and_not_at_most_one_rule_speaks_and_both_advise_the_same(
    build_s: float, jitted_takes: float
) -> None:
    """The eager call takes 10 µs; of the jitted function it is the candidate."""
    eager_s, jitted_s = 1e-5, 1e-5 * jitted_takes
    plain = evidence(
        trivial.__wrapped__, "f32[8]", eager_s=eager_s, jitted_s=jitted_s, build_s=build_s,
        comparison=judged(jitted_takes, baseline_value=eager_s, blocks=()),
    )  # fmt: skip
    jitted = judged(1 / jitted_takes, baseline_value=jitted_s, blocks=())

    without = list(not_jitted.check(plain))
    within = check(eager_s, jitted_s, build_s=build_s, comparison=jitted)

    assert len(without) + len(within) <= 1
    for finding in (*without, *within):
        pays = jitted_takes < 1
        assert finding.advice.startswith("Use jax.jit if" if pays else "Don't jit it where")
        assert "do nothing: a jit within a jit costs nothing" in finding.advice


# ---- vmap-of-jit -----------------------------------------------------------------------------------------------------

X = jnp.ones((8, 4))


@jax.jit
def double(x: Any) -> Any:
    return jnp.sin(x) * 2


def plain(x: Any) -> Any:
    return jnp.sin(x) * 2


def by_name(x: Any) -> Any:
    return jax.vmap(double)(x)


def written_out(x: Any) -> Any:
    return jax.vmap(jax.jit(plain))(x)


def not_jitted_at_all(x: Any) -> Any:
    return jax.vmap(plain)(x)


def of(fn: Callable[..., Any]) -> ScriptedEvidence:
    """With a comparison that was made elsewhere."""
    versions = Version("as it is"), Version("jax.jit")
    made = Comparison(CaseId("f"), "run", *versions, "faster", ratio=0.1, baseline_value=2e-4, low=0.09, high=0.11)
    return ScriptedEvidence(Evidence(make_case(fn, (X,))), compare=lambda name: made)


@pytest.mark.slow
@pytest.mark.parametrize("fn", [jax.vmap(double), by_name, written_out])
def test_it_is_found_and_compared_with_jit_outside(fn: Callable[..., Any]) -> None:
    e = of(fn)

    (finding,), _ = ask(vmap_of_jit, e)

    assert [(variant.jit, baseline.jit) for baseline, variant in e.pairs] == [(True, False)]
    assert finding.gain is not None
    assert finding.gain.startswith("measured: 200 µs → 20.0 µs per call")
    assert finding.where is not None
    assert finding.where[0] == __file__
    assert "jax.jit(jax.vmap(f))" in finding.advice


@pytest.mark.parametrize(
    "fn",
    [
        jax.jit(jax.vmap(plain)),
        jax.jit(by_name),
        not_jitted_at_all,
        functools.partial(plain),
        jax.grad(lambda x: double(x).sum()),
        jax.grad(jax.jit(lambda x: x.sum())),
    ],
)
def test_jit_outside_no_jit_inside_or_another_transformation_is_none_of_it(fn: Callable[..., Any]) -> None:
    findings, answer = ask(vmap_of_jit, of(fn))

    assert (findings, answer.outcome) == ([], "not applicable")


@pytest.mark.slow
def test_a_comparison_that_could_not_tell_is_no_nothing_found() -> None:
    versions = Version("as it is"), Version("jax.jit")
    unclear = Comparison(CaseId("f"), "run", *versions, "unclear", "the processes differ", ratio=0.05)
    e = ScriptedEvidence(Evidence(make_case(written_out, (X,))), compare=lambda name: unclear)

    findings, answer = ask(vmap_of_jit, e)

    assert (findings, answer.outcome) == ([], "not checked")


# ---- small-batch -----------------------------------------------------------------------------------------------------

SHAPES = ("f32[64,64]", "f32[4,64]")


@pytest.fixture(autouse=True)
def any_length(monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls of a test are short."""
    monkeypatch.setattr(eager, "SHORT_CALL_S", 0.0)


def layer(w: Any, x: Any) -> Any:
    return jnp.tanh(x @ w)


def test_twice_the_batch_in_hardly_more_time_is_told_per_element(ask_about: Any, result_of: Any) -> None:
    answered = ask_about("small-batch", layer, *SHAPES, ratio=1.1)

    assert answered.one.title == "a batch of 8 takes 1.10 times as long as one of 4"
    assert answered.one.gain == "measured: 250 µs → 138 µs per element of the batch"
    ((one, two),) = answered.pairs
    (before,), (after,) = result_of(one), result_of(two)
    assert after.shape == (8, 64)
    assert jnp.allclose(after[:4], before, rtol=1e-4)


@pytest.mark.parametrize("ratio", [1.5, 2.0])
def test_a_batch_that_takes_longer_with_its_size_is_fine(ask_about: Any, ratio: float) -> None:
    assert ask_about("small-batch", layer, *SHAPES, ratio=ratio).outcome == "fine"


def test_an_interval_on_both_sides_of_the_limit_is_undecided(ask_about: Any) -> None:
    answered = ask_about("small-batch", layer, *SHAPES, ratio=eager.LITTLE)

    assert (answered.findings, answered.outcome) == ([], "not checked")
    assert answered.why == "undecided: batch 4: 1.00 ms per call; batch 8: 1.40×, 1.39 – 1.41"


def test_without_a_batch_it_does_not_apply(ask_about: Any) -> None:
    assert ask_about("small-batch", lambda x: (x @ x).sum(), "f32[64,64]").outcome == "not applicable"


def test_without_time_for_a_comparison_it_was_not_checked(ask_about: Any) -> None:
    assert ask_about("small-batch", layer, *SHAPES).outcome == "not checked"


def test_arguments_that_have_the_batch_in_common_grow_together(ask_about: Any) -> None:
    answered = ask_about("small-batch", lambda x, y: x * y, "f32[4,64]", "f32[4,64]", ratio=1.0)

    ((_, two),) = answered.pairs
    assert [leaf.shape for leaf in two.inputs()[0]] == [(8, 64), (8, 64)]


def test_a_call_that_is_mostly_dispatch_says_nothing_of_its_batch(ask_about: Any, monkeypatch) -> None:
    monkeypatch.setattr(eager, "SHORT_CALL_S", 10.0)

    answered = ask_about("small-batch", layer, *SHAPES, ratio=1.1)

    assert (answered.outcome, answered.pairs) == ("not applicable", [])


# ---- profile-missing -------------------------------------------------------------------------------------------------

INPUT = "f32[64,64]"
MODEL = """
import jax.numpy as jnp

def inner(x):
    return jnp.sin(x) @ x

def outer(x):
    return inner(x) + 1

def other(x):
    return jnp.cos(x)
"""


@pytest.fixture(autouse=True)
def worthy(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short a call is."""
    monkeypatch.setattr(eager, "WORTH_PROFILE_S", 0.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    file = tmp_path_factory.mktemp("model") / "model.py"
    file.write_text(MODEL, encoding="utf-8")
    spec = importlib.util.spec_from_file_location("model", file)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def trace(model: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of a profile of `outer`, which calls `inner`."""
    kept = benchax.profile(jax.jit(model.outer), jnp.ones((8, 8)), dir=tmp_path_factory.mktemp("trace"), runs=1)
    return Path(kept.files["xplane"])


def put(trace: Path, folder: Path) -> Path:
    """As if it had been recorded there."""
    new = folder / "plugins" / "profile" / "run" / trace.name
    new.parent.mkdir(parents=True)
    new.write_bytes(trace.read_bytes())
    return new


def test_a_short_call_is_not_told_to_be_profiled(
    project: Path, model: ModuleType, ask_about: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager, "WORTH_PROFILE_S", 3600.0)

    answered = ask_about("profile-missing", model.outer, INPUT)

    assert answered.outcome == "not applicable"
    assert "a profile is worth it from 3600 s on" in answered.why


def test_without_a_profile_the_finding_shows_what_one_would_show(
    project: Path, model: ModuleType, ask_about: Any
) -> None:
    finding = ask_about("profile-missing", model.outer, INPUT).one

    assert finding.title.startswith("hasn't been profiled since its file changed; the hottest operation is ")
    assert finding.where == (model.__file__, 7)
    assert "searched 1 folders, " in finding.seen[0]
    assert "compiled calls just now; shares" in finding.seen[1]
    assert "(model.py:5), " in finding.seen[1]
    assert finding.seen[2].startswith("cpu:0 was busy for ")
    assert finding.gain is None
    assert not list(project.iterdir())


@pytest.mark.parametrize("place", [".", "traces", "a/b/c", ".benchmarks/profiles/outer-20260101-000000"])
@pytest.mark.parametrize("name", ["outer", "inner"])
def test_a_profile_of_it_is_found_also_where_another_function_calls_it(
    project: Path, model: ModuleType, trace: Path, ask_about: Any, place: str, name: str
) -> None:
    put(trace, project / place)

    assert ask_about("profile-missing", getattr(model, name), INPUT).outcome == "fine"


@pytest.mark.parametrize(
    ("place", "name", "age_s", "is_empty"),
    [
        (".hidden", "outer", 0, False),
        ("a/b/c/d", "outer", 0, False),
        (".", "other", 0, False),
        (".", "outer", 1, False),
        (".", "outer", 0, True),
    ],
    ids=["hidden", "deep", "of another function of the file", "older than the file", "empty"],
)
def test_what_is_no_profile_of_it(
    project: Path, model: ModuleType, trace: Path, ask_about: Any, place: str, name: str, age_s: int, is_empty: bool
) -> None:
    kept = put(trace, project / place)
    if is_empty:
        kept.write_bytes(b"")
    if age_s:
        before = Path(str(model.__file__)).stat().st_mtime - age_s
        os.utime(kept, (before, before))

    assert ask_about("profile-missing", getattr(model, name), INPUT).outcome == "finding"


def test_a_function_that_takes_its_buffers_is_profiled_too(project: Path, ask_about: Any) -> None:
    finding = ask_about("profile-missing", lambda x: x * 2, "f32[128]", donate=(0,)).one

    assert finding.seen[1].startswith("profiled 5 compiled calls ")


def test_what_takes_long_is_not_profiled_in_passing(
    project: Path, model: ModuleType, ask_about: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(eager, "LONG_PROFILE_S", 0.0)

    answered = ask_about("profile-missing", model.outer, INPUT)

    assert answered.outcome == "not checked"
    assert "too long to profile" in answered.why


def test_a_trace_without_operations_is_told(
    project: Path, model: ModuleType, ask_about: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Profile("", "cpu", (), remarks=(Remark("no-operations", "error", "there is no such plane"),))
    monkeypatch.setattr(eager, "profile", lambda fn, runs: empty)

    answered = ask_about("profile-missing", model.outer, INPUT)

    assert (answered.outcome, answered.why) == ("not checked", "there is no such plane")


def test_where_another_recording_runs_that_is_told(project: Path, model: ModuleType, ask_about: Any) -> None:
    with benchax.profile():
        answered = ask_about("profile-missing", model.outer, INPUT)

    assert answered.outcome == "not checked"
    assert "profil" in answered.why or "recording" in answered.why


@pytest.mark.parametrize(
    ("call", "is_given"),
    [("update(g, value_fn=loss)", True), ("update(g, lambda w: w)", True), ("update(g, rate)", False)],
)
def test_a_call_that_is_given_a_function_is_no_call_for_jit(call: str, is_given: bool) -> None:
    tree = ast.parse(f"def loss(w): return w\n{call}")
    update = next(calls(tree, "update"))

    passed = passed_functions(tree, [*update.args, *(keyword.value for keyword in update.keywords)])

    assert any(passed) == is_given
