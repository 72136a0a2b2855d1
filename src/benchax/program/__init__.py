"""What the compiler shows us of a program: its text, its plan for memory, its count of operations.

Functions that read, never measure: nothing here runs the program. `hlo`, `normalized` and `graph` read text only and
need no JAX.
"""
