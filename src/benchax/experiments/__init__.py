"""Variants of a function, each compared with it: `benchax.experiment`, and the command of that name.

`loops` is a loop in five ways; `pipeline` is stages on separate devices.
"""

import benchax.reporting.display  # noqa: F401  what they return shows itself, as what the hub gives does
from benchax.experiments.experiment import pipeline as pipeline
from benchax.experiments.variants.changes import loops as loops
