"""Variants of a function, each measured beside it: `benchax.experiment`, `benchax try`."""
