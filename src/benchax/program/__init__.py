"""The compiler's view of a program: its text, its plan for memory, its count of operations.

These functions read, and never measure: nothing here runs the program. `hlo` and `graph` read text only and need no
JAX.
"""
