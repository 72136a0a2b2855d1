"""The engine: turns a Case into a Measurement.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""
