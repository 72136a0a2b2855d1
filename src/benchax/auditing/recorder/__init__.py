"""Records what one process of a program does with JAX, for the rules that look at it when the program has ended."""
