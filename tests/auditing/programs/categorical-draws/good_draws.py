# answers: fine
# Few draws, draws of as many distributions, and other noise.
import jax, jax.numpy as jnp

KEY = jax.random.PRNGKey(0)

other_distributions = lambda key=KEY, logits="f32[4000,600]": jax.random.categorical(key, logits)
few_draws = lambda key=KEY, logits="f32[600]": jax.random.categorical(key, logits, shape=(400,))
few_categories = lambda key=KEY, logits="f32[4]": jax.random.categorical(key, logits, shape=(400_000,))
by_the_sum = lambda key=KEY, logits="f32[600]": jax.random.choice(key, 600, (4000,), p=jax.nn.softmax(logits))
normal_noise = lambda key=KEY, logits="f32[600]": jnp.argmax(logits + jax.random.normal(key, (4000, 600)), axis=1)
uniform_noise = lambda key=KEY, logits="f32[600]": jnp.argmax(logits + jax.random.uniform(key, (4000, 600)), axis=1)
no_draw = lambda logits="f32[600]": jnp.argmax(logits + jnp.ones((4000, 600)), axis=1)
