"""What the compiler makes of a function: built once, never run, and shown."""
