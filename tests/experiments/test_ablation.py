"""What each variant contributes to a training step that is none of ours: equinox and optax. Looks are real."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from labs_by_hand import ScriptedLab

from benchax.case import make_case
from benchax.experiments.experiment import run_experiment

eqx, optax = pytest.importorskip("equinox"), pytest.importorskip("optax")

pytestmark = pytest.mark.slow  # four variants are built, and each is compiled

OPTIMIZER = optax.adam(1e-3)


def random(*shape: int) -> Any:
    return jnp.asarray(np.random.default_rng(0).normal(size=shape), jnp.float32)


@jax.jit
def train_step(params: Any, state: Any, batch: Any) -> Any:
    """As the guide's: a batch of x and y, a model that is mapped over it, an optimizer."""

    def loss_fn(params: Any) -> Any:
        return jnp.mean((jax.vmap(params)(batch["x"]) - batch["y"]) ** 2)

    loss, grads = eqx.filter_value_and_grad(loss_fn)(params)
    updates, state = OPTIMIZER.update(grads, state)
    return eqx.apply_updates(params, updates), state, loss


@pytest.fixture(scope="module")
def found(optimized: None) -> Any:
    # A model of equinox holds functions, which are no data: its arrays are the parameters.
    model = eqx.nn.MLP(16, 4, 64, 2, activation=jax.nn.relu, key=jax.random.key(0))
    arrays, static = eqx.partition(model, eqx.is_array)

    def step(arrays: Any, state: Any, batch: Any) -> Any:
        model, state, loss = train_step.__wrapped__(eqx.combine(arrays, static), state, batch)
        return eqx.filter(model, eqx.is_array), state, loss

    case = make_case(jax.jit(step), (arrays, OPTIMIZER.init(arrays), {"x": random(32, 16), "y": random(32, 4)}))
    lab = ScriptedLab({"all": 0.5, "donate": 1.25, "mixed-bf16": 1.25, "remat": 0.8}, usual=0.8)
    given = {"remat": "nothing_saveable,segments=2", "donate": "arrays,state"}
    found = run_experiment(case, ["mixed-bf16", "remat", "donate"], lab, given, ablation=True)
    # jaxlib 0.10.2 on processors of Intel with products of bf16 of their own: "Unsupported element type for DotThunk".
    if "UNIMPLEMENTED" in found.row("mixed-bf16").reason:
        pytest.skip("XLA has no product of BF16 x BF16 = F32 for this processor")
    return found


def test_each_variant_has_right_results_and_its_contribution(found: Any) -> None:
    rows = {row.name: row.status for row in found.rows}

    names = ["mixed-bf16", "donate", "remat:none", "remat:nothing_saveable", "remat:segments=2", "all"]
    assert rows == dict.fromkeys(names, "ok")
    assert found.rows[-1].title == "mixed-bf16 + remat + donate"
    assert [one.name for one in found.ablation] == ["mixed-bf16", "remat", "donate"]
    assert all(one.comparison is not None for one in found.ablation)
    assert dict(found.row("donate").facts)["donated"].startswith("arrays, state")
