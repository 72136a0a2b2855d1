"""From rows to verdicts."""
