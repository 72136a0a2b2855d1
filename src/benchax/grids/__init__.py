"""Functions × data: `grid`, every cell in a worker that can be killed; `compiled`, all of it in one jitted call."""
