"""Calls that change their arguments: the change is timed and verified, and the user's objects stay as they are."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchax.case import make_case
from benchax.compiled_grids import compiled
from benchax.compiled_grids.compiled_result import Status
from benchax.errors import NotAvailable
from benchax.experiments.functions import plain
from benchax.measuring import state, timers
from benchax.measuring.exported import ImportedProgram, exported, leaves_of
from benchax.measuring.state import CallOutcome
from benchax.measuring.timers.embedding import function_of_leaves
from benchax.measuring.verification import Notes, verify

nnx = pytest.importorskip("flax.nnx")
optax = pytest.importorskip("optax")
needs_refs = pytest.mark.skipif(not hasattr(jax, "new_ref"), reason="this JAX has no references")

X, Y = jnp.linspace(-1, 1, 8 * 4).reshape(8, 4), jnp.ones((8, 1))


class Net(nnx.Module):
    """Weights that learn, statistics that are kept, noise whose counter goes up."""

    def __init__(self, rngs: Any, rate: float = 0.5) -> None:
        self.first = nnx.Linear(4, 16, use_bias=False, rngs=rngs)
        self.norm = nnx.BatchNorm(16, rngs=rngs)
        self.noise = nnx.Dropout(rate, rngs=rngs)
        self.last = nnx.Linear(16, 1, rngs=rngs)

    def __call__(self, x: Any) -> Any:
        return self.last(self.noise(jax.nn.relu(self.norm(self.first(x)))))


def model() -> Any:
    return Net(nnx.Rngs(0))


def optimizer(of: Any) -> Any:
    return nnx.Optimizer(of, optax.adam(1e-2), wrt=nnx.Param)


def step(model: Any, opt: Any, x: Any, y: Any) -> Any:
    loss, grads = nnx.value_and_grad(lambda m: ((m(x) - y) ** 2).mean())(model)
    opt.update(model, grads)
    return loss


def forward(model: Any, x: Any) -> Any:
    return model(x)


def is_traced(x: Any) -> bool:
    return isinstance(x, jax.core.Tracer)


def values(*objects: Any) -> list[np.ndarray]:
    leaves = jax.tree.leaves(nnx.split(objects)[1])
    return [np.asarray(state.data_of(leaf)) for leaf in leaves]


def dots(fn: Callable[..., Any], *args: Any) -> int:
    """Matrix products in the optimised program."""
    return jax.jit(fn).lower(*args).compile().as_text().count("dot(")


@pytest.mark.slow
@pytest.mark.parametrize("jit", [nnx.jit, lambda f: f], ids=["nnx.jit", "eager"])
def test_the_timed_program_holds_the_backward_pass_of_a_step_that_returns_only_its_loss(jit, subject) -> None:
    net = model()
    opt = optimizer(net)
    graph, held = nnx.split((net, opt))

    def returning(held: Any, x: Any, y: Any) -> Any:
        merged = nnx.merge(graph, held)
        return step(*merged, x, y), nnx.split(merged)[1]

    body, leaves = function_of_leaves(subject(jit(step), net, opt, X, Y))

    alone, inputs = function_of_leaves(subject(nnx.jit(forward), net, X))
    assert dots(body, leaves) == dots(returning, held, X, Y) > dots(alone, inputs)


@pytest.mark.slow
def test_what_only_noise_decides_is_named_and_not_called_wrong(subject) -> None:
    """A bias before batch normalisation has a gradient of zero but for rounding, of which Adam makes a whole step."""

    class Biased(Net):
        def __init__(self, rngs: Any) -> None:
            super().__init__(rngs)
            self.first = nnx.Linear(4, 16, rngs=rngs)

    net, notes = Biased(nnx.Rngs(0)), Notes()
    x = jax.random.normal(jax.random.key(1), (32, 4))

    numerics = verify(subject(nnx.jit(step), net, optimizer(net), x, jnp.ones((32, 1))), "eager", notes=notes)

    assert numerics.agrees, numerics.why
    assert all("first.bias" in name for name in notes.undetermined)


def test_a_step_that_spoils_its_state_when_it_is_compiled_is_wrong(subject) -> None:
    def spoilt(model: Any, x: Any) -> Any:
        out = model(x)
        if is_traced(model.last.bias.get_value()):
            model.last.bias.set_value(model.last.bias.get_value() + 1)
        return out

    numerics = verify(subject(nnx.jit(spoilt), model(), X), "eager")

    assert not numerics.agrees
    assert "model.last.bias" in numerics.why


@pytest.mark.slow
@pytest.mark.parametrize("given", [{}, {"donate_argnums": (0, 1)}], ids=["", "donated"])
def test_the_users_objects_are_as_they_were(given, bench) -> None:
    net = model()
    opt, rngs = optimizer(net), nnx.Rngs(3)

    def noisy(model: Any, opt: Any, rngs: Any, x: Any, y: Any) -> Any:
        return step(model, opt, x + rngs.normal(x.shape), y)

    before = values(net, opt, rngs)
    m = bench(nnx.jit(noisy, **given), net, opt, rngs, X, Y)

    assert m.failure is None
    assert m.numerics.agrees, m.numerics.why
    assert all(np.array_equal(one, other) for one, other in zip(before, values(net, opt, rngs), strict=True))


@pytest.mark.slow
@needs_refs
@pytest.mark.parametrize("timer", ["in_graph", "wall", "pipelined", "loop", "device"])
def test_every_call_of_every_timer_starts_from_the_same_state(timer, subject) -> None:
    seen = []

    def count(ref: Any, x: Any) -> Any:
        ref[...] += 1.0
        return ref[...] + jnp.sin(x).sum()

    ref = jax.new_ref(jnp.zeros(()))
    made = subject(jax.jit(count), ref, jnp.zeros(2000))
    call = made.program.call
    spy = replace(made.program, call=lambda *args: seen.append(call(*args)) or seen[-1])

    prepared = timers.TIMERS[timer].prepare(replace(made, program=spy))
    prepared.sample(8)

    assert [float(value) for value in seen] == [1.0] * len(seen)
    assert bool(seen) == (timer in ("wall", "pipelined", "device"))
    assert ref[...] == 0.0


@needs_refs
def test_a_reference_is_changed_beside_an_array_that_is_returned(bench) -> None:
    """An array of several elements, and one whose only element is 0: neither has a truth value that says anything."""

    def average(mean: Any, x: Any) -> Any:
        mean[...] = 0.9 * mean[...] + 0.1 * x
        return mean[...] * 2

    for size in (128, 1):
        m = bench(jax.jit(average), jax.new_ref(jnp.zeros(size)), jnp.zeros(size), options={"timer": "wall"})

        assert m.failure is None
        assert m.numerics.agrees


@needs_refs
def test_an_accumulator_that_returns_nothing_is_timed_by_what_it_changes(bench) -> None:
    total = jax.new_ref(jnp.zeros(2000))

    def accumulate(total: Any, x: Any) -> None:
        total[...] += jnp.sin(x)

    m = bench(accumulate, total, "f32[2000]", options={"timer": "in_graph,wall"})

    assert m.failure is None
    assert m.numerics.agrees
    assert {"in_graph", "wall"} == {s.timer for s in m.samples}
    assert m.signature == "ref f32[2000], f32[2000]"
    assert "each call changes total in place" in next(r.message for r in m.remarks if r.code == "stateful")
    assert not total[...].any()


@needs_refs
def test_what_is_returned_beside_a_change_may_be_any_tree(bench: Any) -> None:
    def count(ref: Any, x: Any) -> Any:
        ref[...] = ref[...] + x
        return {"twice": x * 2}, [x]

    m = bench(count, jax.new_ref(jnp.ones(3)), jnp.ones(3), options={"stages": "first_run"})

    assert (m.failure, m.numerics.agrees, m.why_absent("purity")) == (None, True, None)


@needs_refs
def test_only_what_is_changed_is_an_output(subject) -> None:
    def last(kept: Any, changed: Any, filled: Any, x: Any) -> Any:
        def body(i: Any, carry: Any) -> Any:
            filled[i] = x[i].sum()
            return carry + x.sum()

        changed[0] = kept[...].sum()
        return jax.lax.fori_loop(0, 3, body, 0.0)

    made = subject(last, jax.new_ref(X), jax.new_ref(jnp.zeros(3)), jax.new_ref(jnp.zeros(3)), X)

    assert made.mutated == ("changed", "filled")
    assert list(made.outputs.state) == ["changed", "filled"]
    assert subject(nnx.jit(lambda m, x: m(x)), nnx.Linear(4, 2, rngs=nnx.Rngs(0)), X).mutated == ()


def test_objects_that_are_shared_stay_shared(subject) -> None:
    inner = nnx.Linear(4, 4, rngs=nnx.Rngs(0))

    def through_the_other(model: Any, holder: Any, x: Any) -> Any:
        holder["m"].bias.set_value(holder["m"].bias.get_value() + 1)
        return model(x)

    made = subject(nnx.jit(through_the_other), inner, {"m": inner}, X)

    assert jnp.allclose(made.returned, X @ inner.kernel.get_value() + 1, atol=1e-5)
    assert made.mutated == ("model.bias",)
    assert verify(made, "eager").agrees


@pytest.mark.slow
def test_jax_jit_over_nnx_objects_is_said_to_drop_their_changes(bench) -> None:
    net = model()

    m = bench(jax.jit(step), net, optimizer(net), X, Y, options={"stages": "first_run"})

    assert m.numerics.agrees
    (remark,) = [r for r in m.remarks if r.code == "state-dropped"]
    assert "model.first.kernel" in remark.message
    assert "use flax.nnx.jit" in remark.message


def test_a_model_that_is_returned_is_an_output_like_any_other(bench) -> None:
    def updated(model: Any, x: Any) -> Any:
        model(x)
        return model

    m = bench(nnx.jit(updated), model(), X)

    assert m.failure is None
    assert m.numerics.agrees, m.numerics.why


@pytest.mark.slow
def test_the_exported_program_takes_and_gives_the_state(subject) -> None:
    net = model()
    made = subject(nnx.jit(step), net, optimizer(net), X, Y)

    program = exported(made)

    given = ImportedProgram(program.content)(*leaves_of(made).args)
    expected = jax.tree.leaves(made.outputs)
    assert len(given) == len(expected) > 20
    assert all(np.allclose(one, other, atol=1e-5) for one, other in zip(given, expected, strict=True))


def test_state_that_is_returned_by_equinox_is_measured_as_before(bench) -> None:
    eqx = pytest.importorskip("equinox")
    norm, kept = eqx.nn.make_with_state(eqx.nn.BatchNorm)(4, axis_name="batch", mode="batch")

    def forward(norm: Any, kept: Any, x: Any) -> Any:
        return jax.vmap(norm, in_axes=(0, None), out_axes=(0, None), axis_name="batch")(x, kept)

    m = bench(eqx.filter_jit(forward), norm, kept, X)

    assert m.failure is None
    assert m.numerics.agrees, m.numerics.why
    assert not any(r.code in ("stateful", "state-dropped") for r in m.remarks)


@needs_refs
def test_one_reference_given_twice_stays_one() -> None:
    ref = jax.new_ref(jnp.zeros(3))

    parts = state.take_apart(((ref, [ref]), {}))
    ((one, (other,)), _) = parts.merge(parts.leaves)

    assert one is other
    assert one is not ref
    assert list(parts.values) == ["args[0]", "args[1][0]"]


def test_what_has_no_state_is_called_with_the_same_arrays(subject) -> None:
    made = subject(lambda x: x + 1, X)

    assert made.calls(2)[0][0][0] is made.calls(2)[1][0][0]
    assert not isinstance(made.outputs, CallOutcome)


@needs_refs
@pytest.mark.parametrize("jit", [jax.jit, lambda f: f], ids=["jit", "eager"])
def test_a_reference_that_is_closed_over_and_changed_is_refused_by_name_and_put_back(jit, bench) -> None:
    total = jax.new_ref(jnp.zeros(()))

    def accumulate(x: Any) -> Any:
        total[...] += x.sum()
        return x * 2

    m = bench(jit(accumulate), X)

    assert m.failure is not None
    assert m.failure.message.startswith("accumulate changes 'total' in place, which it is not given as an argument")
    assert "pass 'total' as an argument" in m.failure.advice
    assert total[...] == 0.0


def test_a_model_that_is_closed_over_and_changed_is_refused_and_put_back(bench) -> None:
    net = model()
    before = values(net)

    eager = bench(lambda x: net(x), X, jit=False)
    jitted = bench(nnx.jit(lambda x: net(x)), X)

    assert "changes 'net.noise.rngs.count' in place" in eager.failure.message
    assert "closes over" in jitted.failure.advice
    assert all(np.array_equal(one, other) for one, other in zip(before, values(net), strict=True))


@needs_refs
def test_a_compiled_grid_refuses_what_changes_its_arguments() -> None:
    def stepping(net: Any, x: Any) -> Any:
        return net(x)

    models = model(), nnx.Linear(4, 1, rngs=nnx.Rngs(0))
    learning, constant = (compiled.trace("f", stepping, (made, X)) for made in models)

    assert learning.refused is Status.error
    assert "args[0].norm.mean" in learning.note
    assert "in place, and this grid keeps no state" in learning.note
    assert constant.refused is None


def test_variants_are_not_made_of_what_changes_its_arguments() -> None:
    net = model()

    with pytest.raises(NotAvailable, match=r"'step' changes model.*in place, and variants need"):
        plain(make_case(nnx.jit(step), (net, optimizer(net), X, Y)))

    assert plain(make_case(nnx.jit(forward), (nnx.Linear(4, 1, rngs=nnx.Rngs(0)), X))).fn is forward
