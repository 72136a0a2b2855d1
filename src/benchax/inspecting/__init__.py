"""The compiled form of a function: built once, never run, and shown."""
