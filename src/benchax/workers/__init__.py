"""Where a case runs, and the processes for that."""
