"""Where rows live. `database.open_store` writes and reads, `reading.load` reads, `base` says what they promise.

Part of the reading half: nothing here imports JAX, and this file imports nothing at all.
"""
