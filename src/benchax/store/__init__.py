"""Where rows live. `database.open_store` writes and reads, `load.load` reads.

Part of the reading half: nothing here imports JAX, and this file imports nothing at all.
"""
