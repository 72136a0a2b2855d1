"""What the compiler shows us of a program: its text, its plan for memory, its count of operations.

Functions that read, never measure: nothing here runs the program. `hlo` reads text only and needs no JAX.
"""
