"""The one thing that pyproject.toml has no stable word for yet: a C library, built where there is a compiler."""

from setuptools import Extension, setup

# Not a Python module but a library that `clock/handlers.py` loads by its path. Optional: without a compiler benchax
# installs all the same, and the clock is built at first use or runs in Python.
setup(ext_modules=[Extension("benchax.clock.native", ["src/benchax/clock/handlers.c"], optional=True)])
