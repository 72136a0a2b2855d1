"""Functions × data: `grid`, every cell in a worker that can be killed."""
