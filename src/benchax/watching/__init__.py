"""Counts JAX's work behind a call: traces, lowerings, compilations, cache hits."""
