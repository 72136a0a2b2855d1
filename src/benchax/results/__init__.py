"""Results that are observed rather than timed, as plain data: inspections, profiles, watches.

No JAX: both halves know these types.

Results show themselves, as rows do: `print(p)` and, in a notebook, `p`.
"""
