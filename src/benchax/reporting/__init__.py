"""From rows to eyes. `tables` makes rows of text, shared by all renderers; `terminal` and `html` draw them."""
