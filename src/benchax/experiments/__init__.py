"""Variants of a function, each measured beside it: `benchax.experiment`, and the command of that name. And `loops`: a
loop in five ways; `pipeline`: stages on devices of their own.
"""

import benchax.reporting.display  # noqa: F401  what they return shows itself, as what the hub gives does
from benchax.experiments.variants.loops import loops as loops
from benchax.experiments.variants.pipeline import pipeline as pipeline
