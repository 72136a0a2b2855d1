"""Another commit, another JAX, another Python: where it lies, and how a process of it is started."""
