"""Why something was compiled again: each reason is provoked, and its sentence read."""

from __future__ import annotations

import functools
from collections import namedtuple
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import benchax
from benchax.results.watch import Watch
from benchax.watching import frames, signatures
from benchax.watching.signatures import MOST, attributes

X3, X4 = np.ones(3, np.float32), np.ones(4, np.float32)
can_tell = pytest.mark.skipif(not frames.can_tell_earlier_calls(), reason="this JAX does not tell of earlier calls")


def calls(*functions: Callable[[], Any]) -> Watch:
    with benchax.watch() as w:
        for function in functions:
            function()
    return w


def why(*functions: Callable[[], Any]) -> list[tuple[str, str]]:
    """(kind, sentence) of the last program that is not eager."""
    last = [c for c in calls(*functions).compiles if not c.is_eager][-1]
    return [(r.kind, r.text) for r in last.reasons]


def fresh(**settings: Any) -> Callable[..., Any]:
    def f(x: Any, n: Any = 0, params: Any = None) -> Any:
        return jax.tree.map(lambda leaf: leaf + 1, (x, params))

    return jax.jit(f, **settings)


@can_tell
def test_the_first_call_is_a_first_call():
    f = fresh()

    assert why(lambda: f(X3)) == [("first call", "first call")]


def square(x: Any) -> Any:
    return (x * x).sum()


LONG = tuple(range(100))
STATIC = {"static_argnames": "n"}
DIFFERENT: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    # settings of jax.jit, and the arguments of each call
    "shape": ({}, [{"x": X3}, {"x": X4}]),
    "dtype": ({}, [{"x": X3}, {"x": X3.astype(np.int32)}]),
    # JAX's own explanation names a difference to another call than the nearest one.
    "nearest": ({}, [{"x": X3}, {"x": X4, "params": [X3, X3]}, {"x": X3.astype(np.int32)}]),
    "weak number": ({}, [{"x": np.float32(1)}, {"x": 1.0}]),
    "weak array": ({}, [{"x": np.float32(1)}, {"x": jnp.asarray(1.0)}]),
    "not weak": ({}, [{"x": 1.0}, {"x": jnp.asarray(1.0, jnp.float32)}]),
    "static": (STATIC, [{"x": X3, "n": 3}, {"x": X3, "n": 4}]),
    "many values": (STATIC, [{"x": X4, "n": n} for n in range(5, 12)]),
    "long values": (STATIC, [{"x": X3, "n": (*LONG, 7)}, {"x": X3, "n": (*LONG, 8)}]),
    "new leaf": ({}, [{"x": {"w": X3}}, {"x": {"w": X3, "b": X3}}]),
    "lost leaf": ({}, [{"x": {"w": X4, "b": X4}}, {"x": {"w": X4}}]),
    "container": ({}, [{"x": [X4, X3]}, {"x": (X4, X3)}]),
    "inner container": ({}, [{"x": {"a": [X3, X4]}}, {"x": {"a": (X3, X4)}}]),
    "no longer None": ({}, [{"x": None}, {"x": X3}]),
    "None now": ({}, [{"x": {"w": X3, "b": X3}}, {"x": {"w": X3, "b": None}}]),
    "one more argument": ({}, [{"x": X3}, {"x": X3, "n": 2}]),
    "path": ({}, [{"x": X3, "params": {"w": [X3]}}, {"x": X3, "params": {"w": [X4]}}]),
    "many differences": ({}, [{"x": [X3] * 9}, {"x": [X4] * 9}]),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_what_differs_from_the_nearest_earlier_call_is_told(name: str, snapshot: Any):
    settings, given = DIFFERENT[name]
    f = fresh(**settings)

    assert why(*(functools.partial(f, **one) for one in given)) == snapshot


class Config:
    """Without __eq__."""


WAYS: dict[str, tuple[Callable[[], Any], list[Callable[[Any], Any]]]] = {
    # what is made once, and each call of it
    "static, counted from the end": (
        lambda: jax.jit(lambda x, name: x + 1, static_argnums=-1), [lambda f: f(X3, "a"), lambda f: f(X3, "b")]
    ),
    "static without __eq__": (lambda: fresh(**STATIC), [lambda f: f(X3, n=Config())] * 2),
    "by keyword": (fresh, [lambda f: f(X3), lambda f: f(x=X3)]),
    "settings": (lambda: lambda x: x + 1, [lambda f: jax.jit(f)(X3), lambda f: jax.jit(f, donate_argnums=0)(X3)]),
    "transformation": (
        lambda: jax.jit(lambda x: (x * x).sum()),
        [lambda f: f(X3), lambda f: jax.vmap(f)(np.ones((2, 3), np.float32))],
    ),
    "cleared": (fresh, [lambda f: f(X3), lambda f: f.clear_cache(), lambda f: f(X3)]),
}  # fmt: skip


@pytest.mark.parametrize("name", WAYS)
def test_what_was_called_in_another_way_is_told(name: str, snapshot: Any):
    make, ways = WAYS[name]
    f = make()

    assert why(*(functools.partial(way, f) for way in ways)) == snapshot


def test_static_functions_and_objects_are_shown_without_their_addresses_and_are_not_said_to_become_arrays():
    class Relu:
        pass

    class Tanh:
        pass

    f, g = (fresh(static_argnames="n") for _ in range(2))
    bodies = [jax.jit(make) for make in ((lambda x: x + 1), (lambda x: x + 2), (lambda x: x + 3))]

    ((_, functions),) = why(*(functools.partial(f, X3, n=body) for body in bodies))
    ((_, objects),) = why(*(functools.partial(g, X3, n=n) for n in (Relu(), Tanh())))

    assert functions.startswith("static n: another function of the same text, <PjitFunction of <function ")
    assert functions.endswith(" (each function is compiled separately)")
    assert " at 0x" not in objects
    assert "Tanh object" in objects
    assert objects.endswith(" (each value is compiled separately)")


def test_a_static_object_that_cannot_be_shown_or_compared_does_no_harm():
    class Rude:
        def __repr__(self) -> str:
            raise ValueError("no repr")

    f = fresh(static_argnames="n")

    w = calls(lambda: f(X3, n=Rude()), lambda: f(X3, n=Rude()))

    assert (len(w.compiles), w.remarks) == (2, [])
    assert "<Rude without a repr>" in w.compiles[0].arguments


def add(n: int, x: Any) -> Any:
    return x + n


@pytest.mark.parametrize(
    ("make", "name"), [(lambda: lambda x: x + 1, "<lambda>"), (lambda: functools.partial(add, 1), "partial(add)")]
)
def test_a_function_made_anew_in_each_turn(make: Callable[[], Any], name: str):
    turns = [lambda: jax.jit(make())(X3)] * 3

    ((kind, text),) = why(*turns)

    assert kind == "new function"
    assert text.startswith(f"new function object: {name} of ")
    assert text.endswith("was made again, and each one is compiled; make it, and jax.jit it, once outside of the loop")


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda: jax.jit(jax.vmap(square)), lambda: jax.jit(jax.grad(square))),
        (fresh, lambda: jax.jit(lambda x: x)),
    ],
    ids=["two transformations of one", "two of one name"],
)
def test_two_functions_are_not_one_made_anew(one: Callable[[], Any], other: Callable[[], Any]):
    f, g = one(), other()

    assert calls(lambda: f(X3), lambda: g(X3)).recompiles == []


@pytest.mark.parametrize("by_hand", [False, True])
def test_committed(by_hand: bool):
    """For a lowering by hand nothing is traced."""
    f = fresh()
    put = jax.device_put(X3, jax.devices()[0])

    ((kind, text),) = why(lambda: f(X3), lambda: f.lower(put).compile() if by_hand else f(put))

    assert kind == "committed"
    assert text.startswith("x: committed to ")
    assert text.endswith("(jax.device_put) now, not committed before; place it in the same way each time")


def test_what_equinox_takes_as_static_is_told_by_the_users_names():
    equinox = pytest.importorskip("equinox")
    model = equinox.nn.Linear(3, 3, key=jax.random.key(0))
    f = equinox.filter_jit(lambda model, x, scale: model(x) * scale)

    assert why(lambda: f(model, X3, 2.0), lambda: f(model, X3, 3.0)) == [
        ("static", "static scale: 2.0 → 3.0 (each value is compiled separately)")
    ]
    bare = equinox.tree_at(lambda m: m.bias, model, None)
    assert why(lambda: f(model, X4[:3] + 1, 4.0), lambda: f(bare, X3, 4.0)) == [
        ("structure", "model.bias: None now, an array f32[3] before")
    ]


def test_attributes_of_flax_modules_are_told_by_their_whole_path():
    nnx = pytest.importorskip("flax.nnx")
    if not hasattr(nnx, "List"):
        pytest.skip("this flax has no lists of modules")

    class Net(nnx.Module):
        def __init__(self) -> None:
            self.layers, self.rate = nnx.List([nnx.Linear(3, 3, rngs=nnx.Rngs(0))]), 0.5

    net, f = Net(), nnx.jit(lambda net, x: net.layers[0](x) * net.rate)
    f(net, X3)

    with benchax.watch() as seen:
        f(net, X3)
        f(net, jnp.ones(3, jnp.bfloat16))
        net.rate = 0.25
        f(net, X3)

    assert [reason.text for c in seen.recompiles for reason in c.reasons].count("net.rate: 0.5 → 0.25") == 1


def test_configuration():
    f = fresh()

    def precise() -> None:
        with jax.default_matmul_precision("highest"):
            f(X3)

    ((kind, text),) = why(lambda: f(X3), precise)

    assert kind == "config"
    assert text.startswith("config jax_default_matmul_precision: None → ")
    assert "highest" in text.lower()


def test_a_backward_pass_is_told_by_its_shapes():
    grad = jax.grad(jax.jit(lambda x: jax.lax.exp(x)))

    w = calls(lambda: grad(np.float32(1)))

    assert w.remarks == []
    assert w.recompiles == []
    own = [c for c in w.compiles if not c.is_eager]
    assert [c.function for c in own] == ["<lambda>", "<lambda>, inside a transformation"]
    if frames.can_tell_earlier_calls():
        assert own[0].why == "first call under a derivative"


@can_tell
def test_calls_before_the_watch_are_known():
    f = fresh(static_argnames="n")
    f(X3, n=1)

    assert why(lambda: f(X4, n=1)) == [("shape", "x: shape f32[3] → f32[4]")]
    assert why(lambda: f(X3, n=2))[0] == ("static", "static n: 1 → 2 (each value is compiled separately)")


@can_tell
def test_what_jax_does_not_tell_of_earlier_calls_is_not_guessed():
    f = fresh()
    f(X3)

    ((kind, text),) = why(lambda: f(jax.device_put(X3, jax.devices()[0])))

    assert kind == "unknown"
    assert text.startswith("traced before for such arguments, by a call that was not watched")
    assert "(x is committed now)" in text
    assert "cleared" not in text


@can_tell
def test_a_function_traced_inside_another_before_is_not_said_to_have_changed():
    inner = fresh()
    outer = jax.jit(lambda x: inner(x))
    outer(X3)

    ((kind, text),) = why(lambda: inner(X3))

    assert kind == "unknown"
    assert "traced inside another function" in text


def test_a_jax_that_does_not_tell_of_earlier_calls_says_so(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(frames, "can_tell_earlier_calls", lambda: False)
    f = fresh()
    f(X3)

    assert why(lambda: f(X4)) == [
        ("first call", "first call since the watch began; this JAX doesn't report earlier ones")
    ]
    ((kind, text),) = why(lambda: f(jax.device_put(X3, jax.devices()[0])))
    assert (kind, text.split(",")[0]) == ("unknown", "traced before the watch began")


def test_sharding_is_told_between_committed_arrays():
    leaf = signatures.ArrayLeaf((8,), "float32", False, False, True, "P('x',) over {'x': 2}")
    other = signatures.ArrayLeaf((8,), "float32", False, False, True, "P(None,) over {'x': 2}")

    (told,) = signatures._of_leaf("x", leaf, other)

    assert (told.kind, told.text) == ("sharding", "x: sharding P(None,) over {'x': 2} → P('x',) over {'x': 2}")


@given(st.text(max_size=10_000))
def test_a_static_text_of_any_kind_is_one_short_line(value: str):
    shown = signatures.text(value)

    assert len(shown) <= signatures.LONGEST
    assert "\n" not in shown


@can_tell
def test_settings_of_earlier_calls_are_not_guessed():
    def f(x: Any) -> Any:
        return x + 1

    jax.jit(f)(X3)

    ((kind, text),) = why(lambda: jax.jit(f)(X4), lambda: jax.jit(f, donate_argnums=0)(X3))

    assert kind == "unknown"
    assert "by a jax.jit with other settings" in text


# ---- `watching/signatures.py`: the parts of a pytree besides its arrays ---------------------------------------------

Pair = namedtuple("Pair", "mean, name")


@jax.tree_util.register_dataclass
@dataclass
class Layer:
    weight: Any
    bias: Any
    activation: str = "relu"


def test_whatever_is_no_array_has_its_path() -> None:
    value = {"layers": [Layer(jnp.ones(3), None)], "state": Pair(jnp.ones(2), "adam"), "rate": 0.5}

    assert attributes(value, "model") == {
        "model['layers'][0].bias": None,
        "model['layers'][0].activation": "relu",
        "model['state'].name": "adam",
        "model['rate']": 0.5,
    }
    assert attributes(None, "mask") == {"mask": None}
    assert attributes(jnp.ones(3), "x") == {}


def test_an_object_that_holds_itself_ends_and_a_huge_one_is_cut_off() -> None:
    layer = Layer(jnp.ones(3), 1)
    layer.bias = layer

    assert attributes(layer, "m") == {"m.activation": "relu"}
    assert len(attributes(list(range(10 * MOST)), "x")) == MOST
