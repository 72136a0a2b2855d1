"""Captures what the profiler of JAX sees, and reads it: operations, devices, gaps."""
