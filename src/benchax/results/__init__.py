"""What is seen rather than timed, as plain data: inspections, profiles, watches.

No JAX: both halves know these types.
"""
