"""What a loop hands on through the host."""

from __future__ import annotations

import ast

import pytest

from benchax.auditing.rules.eager import needs_own_result

FED_BACK = {
    "environment": "while not done:\n    a = int(policy(w, obs))  #\n    obs, r, done = env.step(a)\n",
    "through other names": "for _ in r:\n    a = policy(obs)  #\n    s = move(s, np.asarray(a))\n    obs = look(s)\n",
    "state of an object": "for _ in r:\n    env.step(int(policy(env.obs)))  #\n",
    "object of an object": "for _ in r:\n    self.env.step(int(policy(w, self.env.state())))  #\n",
    "chosen": "for _ in r:\n    if float(loss(x)) < best:  #\n        x = x + 1\n",
    "sum": "for _ in r:\n    total += float(f(total, x))  #\n",
    "walrus": "while (y := f(y)) > 1:  #\n    pass\n",
}
APART = {
    "list": "for x in xs:\n    out.append(solve(x))  #\n",
    "by index": "for i in r:\n    out[i] = solve(xs[i])  #\n",
    "sum": "for x in xs:\n    total = total + float(solve(x))  #\n",
    "module": "import numpy as np\nfor x in xs:\n    y = np.asarray(solve(np.square(x)))  #\n",
    "imported": "from jax import numpy as jnp\nfor x in xs:\n    y = jnp.sin(solve(jnp.cos(x)))  #\n",
    "no names": "for i in r:\n    out[i] = solve(read().x)  #\n",
    "comprehension": "y = [solve(y) for y in ys]  #\n",
    "new in each iteration": "for x in xs:\n    z = prepare(x)\n    y = solve(z)  #\n    z.show()\n",
    "own object": "for i in r:\n    y = self.solve(self.xs[i])  #\n",
    "attributes beside": "for _ in r:\n    self.log.append(solve(self.x))  #\n",
    "no loop": "y = solve(y)  #\n",
}


def is_fed_back(text: str, name: str = "solve") -> bool:
    line = next(i + 1 for i, each in enumerate(text.splitlines()) if each.endswith("#"))
    return needs_own_result(ast.parse(text), line, name)


@pytest.mark.parametrize("text", FED_BACK.values(), ids=FED_BACK)
def test_a_call_that_is_given_what_python_made_of_its_result_is_seen(text: str) -> None:
    assert is_fed_back(text, "policy")


@pytest.mark.parametrize("text", APART.values(), ids=APART)
def test_calls_that_do_not_need_one_another_are_none(text: str) -> None:
    assert not is_fed_back(text)


ACTS = """\
class Agent:
    def act(self, obs):
        return int(self.policy(self.w, obs))  #

for _ in range(9):
    {}
"""


def test_a_method_that_calls_is_asked_about_where_it_is_called() -> None:
    assert is_fed_back(ACTS.format("obs = env.step(agent.act(obs))"))
    assert not is_fed_back(ACTS.format("actions.append(agent.act(next(source)))"))
    assert not is_fed_back(ACTS.format("pass"))
