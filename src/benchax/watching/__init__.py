"""What JAX does behind a call, counted: traces, lowerings, compilations, cache hits."""
