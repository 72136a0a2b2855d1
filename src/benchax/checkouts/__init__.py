"""Another commit, another JAX, another Python: finds it, and starts a process with it."""
