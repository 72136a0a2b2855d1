"""From results to eyes: a module for each kind makes a `Document`; `terminal`, `html` and `markdown` render it."""
