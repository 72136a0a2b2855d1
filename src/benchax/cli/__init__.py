"""The command line has one file for each command: a thin layer over the library function of the same name.

Commands import JAX and other slow modules when they run, not when Python loads them. Otherwise `benchax --help` would
wait for JAX (`tests/test_imports.py` checks this). The head of a file has only imports that cost nothing.
"""
