"""What this machine can resolve: who disturbs it, how steady its pace is, and the rates that it reaches.

PYTEST_DONT_REWRITE: pytest must not rewrite code that is being timed.
"""
