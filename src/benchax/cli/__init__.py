"""The command line: one file for each command, thin over the functions of the same name.

Commands import what they need when they run, not when they are loaded: `benchax --help` would else wait for JAX
(`tests/test_imports.py` keeps it). At the head of a file stands what costs nothing.
"""
