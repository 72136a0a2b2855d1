"""Arithmetic on floats. Knows nothing of benchmarks, imports nothing of benchax but its errors."""
