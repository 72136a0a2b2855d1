"""Programs with one planted pitfall each, and programs without any, for `benchmarks/audit_planted.py`."""
