"""Programs with the pitfall."""

import jax

KEY = jax.random.PRNGKey(0)


def two_draws(key=KEY):
    first = jax.random.normal(key)
    return first + jax.random.uniform(key)  # expect: key-reuse


def typed(key=KEY):
    key = jax.random.wrap_key_data(key)
    first = jax.random.normal(key)
    return first + jax.random.uniform(key)  # expect: key-reuse


def in_a_python_loop(key=KEY):
    return sum(jax.random.normal(key) for _ in range(3))  # expect: key-reuse


def in_a_scan(key=KEY):
    def add(total, _):
        return total + jax.random.normal(key), None  # expect: key-reuse

    return jax.lax.scan(add, 0.0, None, length=4)[0]


def split_and_drawn(key=KEY):
    first = jax.random.normal(key)
    return first + jax.random.normal(jax.random.split(key)[0])  # expect: key-reuse


def the_same_part(key=KEY):
    keys = jax.random.split(key, 3)
    first = jax.random.normal(keys[0])
    return first + jax.random.uniform(keys[0])  # expect: key-reuse


def the_same_number(key=KEY):
    first = jax.random.normal(jax.random.fold_in(key, 1))
    return first + jax.random.uniform(jax.random.fold_in(key, 1))  # expect: key-reuse


def with_nothing_added(key=KEY):
    first = jax.random.normal(key)
    return first + jax.random.uniform(key + 0)  # expect: key-reuse


def carried_unchanged(key=KEY):
    def step(i, carry):
        return carry[0] + jax.random.normal(carry[1]), carry[1]  # expect: key-reuse

    return jax.lax.fori_loop(0, 4, step, (0.0, key))[0]


def split_twice(key=KEY):
    first = jax.random.normal(jax.random.split(key)[0])
    return first + jax.random.normal(jax.random.split(key)[0])  # expect: key-reuse


def in_a_branch_and_after_it(key=KEY, x=1.0):
    first = jax.lax.cond(x > 0, lambda: jax.random.normal(key), lambda: jax.random.uniform(key))
    return first + jax.random.normal(key)  # expect: key-reuse


def in_a_branch_of_a_loop(key=KEY, x=1.0):
    def draw():
        return jax.random.normal(key)  # expect: key-reuse

    return jax.lax.fori_loop(0, 4, lambda i, total: total + jax.lax.cond(x > i, draw, lambda: 0.0), 0.0)


def in_each_row(key=KEY, x="f32[4]"):
    return jax.vmap(lambda x: x + jax.random.normal(key))(x)  # expect: key-reuse:info
