"""Variants of a function, each measured beside it: `benchax.experiment`, `benchax try`. And `loops`: a loop in five
ways.
"""

from benchax.experiments.looping import loops as loops
