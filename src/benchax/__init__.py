"""benchax measures JAX functions."""
