"""Comparing versions by running them side by side: in fresh processes, until the verdict is clear or time is up."""
