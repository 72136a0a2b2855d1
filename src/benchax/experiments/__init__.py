"""Variants of a function, each compared with it: `benchax.experiment`, and the command of that name.

`loops` is a loop in five ways; `pipeline` is stages on separate devices.
"""

from benchax.experiments.experiment import pipeline as pipeline
from benchax.experiments.variants.changes import loops as loops
