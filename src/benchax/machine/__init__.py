"""Examines this machine: its disturbances, the steadiness of its pace, and the highest rates.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""
